/* Names in patches: quoting, timestamps, the dropped first component, and what no patch may name. */
#pragma once
#include <stdbool.h>
#include "base/error.h"

/* Reads the name at p[0..len) (one line, without its newline): C-quoted or plain. `until_tab`: a plain name ends at a tab.
 * *ret is malloc'ed, not stripped of anything; *ret_used = bytes read. -EBADMSG for broken quoting, -EPERM for a NUL. */
int name_read(const char *p, size_t len, bool until_tab, char **ret, size_t *ret_used);
/* Bytes of p[0..len) before a trailing time stamp as `diff -u` writes without a tab (" 2024-01-02 03:04:05..."). */
size_t name_without_timestamp(const char *p, size_t len);
/* "a/x" -> "x": behind the first slash, NULL when there is none or nothing behind it. Points into name. */
const char *name_strip(const char *name);
/* May a patch name this path in the tree? NULL = yes, else why not (static text). */
const char *name_refusal(const char *path);
/* Is this component `.git` in any spelling that some file system takes for it? */
bool name_is_dotgit(const char *component, size_t len);
