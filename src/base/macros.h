/* Small tools that every file may use: cleanup attributes, hand-over of ownership, array sizes, assertions that stay on in release builds. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <errno.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN2(a, b) ((a) < (b) ? (a) : (b))
#define MAX2(a, b) ((a) > (b) ? (a) : (b))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define UNUSED __attribute__((unused))
#define NORETURN __attribute__((noreturn))
#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* Hands a pointer (descriptor) over: the variable is NULL (-1) afterwards, so its cleanup does nothing. */
#define TAKE_PTR(p) \
        ({ __typeof__(p) *p_ = &(p); __typeof__(p) v_ = *p_; *p_ = NULL; v_; })
#define TAKE_FD(fd) \
        ({ int *f_ = &(fd); int v_ = *f_; *f_ = -1; v_; })

static inline void cleanup_free(void *p) { free(*(void **)p); }
static inline void cleanup_fclose(FILE **f) { if (*f) fclose(*f); }
/* Closes if >= 0, keeps errno, returns -1: `fd = fd_close(fd);` */
static inline int fd_close(int fd) {
        if (fd >= 0) { int saved = errno; close(fd); errno = saved; }
        return -1;
}
static inline void cleanup_close(int *fd) { *fd = fd_close(*fd); }

#define _cleanup_free_ CLEANUP(cleanup_free)
#define _cleanup_close_ CLEANUP(cleanup_close)
#define _cleanup_fclose_ CLEANUP(cleanup_fclose)

/* For our own mistakes only; never for input. Stays on in release: a wrong state must not go on. */
NORETURN void brig_assert_failed(const char *expr, const char *file, int line, const char *func);
#define ASSERT(e) ((e) ? (void)0 : brig_assert_failed(#e, __FILE__, __LINE__, __func__))

/* String tables of enums: STRING_TABLE(outcome, outcome_names, OUTCOME_MAX) defines
 * outcome_to_string() (NULL when out of range) and outcome_from_string() (-1 when unknown). */
#define STRING_TABLE_DECLARE(name) \
        const char *name##_to_string(int v); \
        int name##_from_string(const char *s)
#define STRING_TABLE(name, table, max) \
        _Static_assert(ARRAY_SIZE(table) == (max), "string table of " #name " is incomplete"); \
        const char *name##_to_string(int v) { return v >= 0 && v < (int)(max) ? (table)[v] : NULL; } \
        int name##_from_string(const char *s) { \
                for (int i_ = 0; s && i_ < (int)(max); i_++) \
                        if ((table)[i_] && strcmp((table)[i_], s) == 0) return i_; \
                return -1; }
