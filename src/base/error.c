#include <stdarg.h>
#include <string.h>

#include "base/error.h"

PRINTF_LIKE(4, 0) static void set_text(struct error *e, int code, const char *suffix, const char *fmt, va_list ap) {
        e->code = code;
        int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
        if (suffix && n >= 0 && (size_t)n < sizeof e->text)
                snprintf(e->text + n, sizeof e->text - (size_t)n, ": %s", suffix);
}

int error_set(struct error *e, int code, const char *fmt, ...) {
        ASSERT(code < 0);
        if (!e)
                return code;
        char why[128];
        va_list ap;
        va_start(ap, fmt);
        set_text(e, code, strerror_r(-code, why, sizeof why), fmt, ap);
        va_end(ap);
        return code;
}

int error_say(struct error *e, int code, const char *fmt, ...) {
        ASSERT(code < 0);
        if (!e)
                return code;
        va_list ap;
        va_start(ap, fmt);
        set_text(e, code, NULL, fmt, ap);
        va_end(ap);
        return code;
}

int error_prefix(struct error *e, const char *fmt, ...) {
        if (!e)
                return -EINVAL;
        char old[ERROR_TEXT_MAX];
        memcpy(old, e->text, sizeof old);
        va_list ap;
        va_start(ap, fmt);
        set_text(e, e->code, old, fmt, ap);
        va_end(ap);
        return e->code;
}

void brig_assert_failed(const char *expr, const char *file, int line, const char *func) {
        fprintf(stderr, "brig: assertion failed: %s (%s:%d, %s)\n", expr, file, line, func);
        abort();
}
