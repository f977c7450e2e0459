/* Who there is in an image: its own /etc/passwd and /etc/group, below HELPER_ROOT_FD. Hostile text: what is no line of such a table is passed over.
 * A table that is missing, no regular file or larger than ACCOUNT_TABLE_MAX names nobody. One thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define ACCOUNT_TABLE_MAX (4u << 20)
#define ACCOUNT_ID_MAX 65535u          /* a sandbox owns a range of 65,536 ids */

struct account { uint32_t uid, gid; char name[64], home[256]; };       /* "": the table says none that can be used */

/* -EINVAL: not a number; -ERANGE: an id that no sandbox has. */
int account_id(const char *text, uint32_t *ret);
/* The first line that names it; false, and *ret untouched, without one. */
bool account_by_name(const char *name, struct account *ret);
bool account_by_uid(uint32_t uid, struct account *ret);
bool account_group(const char *name, uint32_t *ret_gid);
