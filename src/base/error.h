/* Errors at module boundaries.
 *
 * Inside a module a function returns 0 or -errno. Where a person will read the reason, it also takes a
 * `struct error *` (may be NULL), set exactly when the function returns < 0, never touched otherwise:
 *
 *     if (fd < 0)
 *             return error_set(e, -errno, "open %s", path);
 *     ...
 *     r = layer_open(s, id, &layer, e);
 *     if (r < 0)
 *             return error_prefix(e, "prepare %s", key);
 *
 * A plain value: no ownership, no allocation, cut at ERROR_TEXT_MAX - 1 bytes. Library code never logs. */
#pragma once
#include "base/macros.h"

#define ERROR_TEXT_MAX 512

struct error {
        int code;                    /* -errno */
        char text[ERROR_TEXT_MAX];   /* one line for a human, no secrets */
};

/* Sets e (if not NULL) to code and "<fmt>: <strerror(-code)>"; returns code, which must be < 0. */
int error_set(struct error *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Like error_set, without the strerror text: the message says it all. */
int error_say(struct error *e, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts context before the text; returns e->code (or -EINVAL when e is NULL: pass the code on yourself then). */
int error_prefix(struct error *e, const char *fmt, ...) PRINTF_LIKE(2, 3);
