/* NULL-terminated lists of owned strings (char **). NULL is the empty list that was never given.
 *
 *     char **v = NULL;
 *     r = strv_push(&v, "one");
 *     ...
 *     v = strv_free(v);
 *
 * Capacity is a power of two above the length, so only strv_* may grow a list. strv_push counts the list first: for long lists
 * keep the count and use strv_append_take. */
#pragma once
#include <stdbool.h>
#include <string.h>
#include "base/macros.h"

char **strv_free(char **v);                                  /* always NULL */
static inline void strv_cleanup(char ***v) { *v = strv_free(*v); }
size_t strv_len(const char *const *v);
int strv_push(char ***v, const char *s);                     /* copies; -ENOMEM */
int strv_push_n(char ***v, const char *s, size_t n);         /* n bytes, no NUL among them */
int strv_push_take(char ***v, char *s);                      /* takes the string over, also on failure */
/* *n is the list's length, counted on: constant time. Takes the string over, also on failure; s NULL is -ENOMEM. */
int strv_append_take(char ***v, size_t *n, char *s);
/* Makes *v an empty list if it is NULL: given, but with nothing in it. */
int strv_ensure(char ***v);
bool strv_contains(const char *const *v, const char *s);
/* Environments: each "NAME=value" of `more` (may be NULL) takes the place of what `*env` has under its name, or comes at the end. */
int strv_merge_env(char ***env, const char *const *more);
void strv_sort(char **v);                                    /* by bytes */

#define _cleanup_strv_ CLEANUP(strv_cleanup)
