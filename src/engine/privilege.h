/* Becoming the daemon's user, for good. */
#pragma once
#include <sys/types.h>

#include "base/error.h"

/* Ids of user `name`, or the fallbacks when there is no such user. */
void privilege_user(const char *name, uid_t uid, gid_t gid, uid_t *ret_uid, gid_t *ret_gid);
/* No group but gid, no capability in any set, none to be had by exec (bounding set empty, no-new-privs). Checked afterwards:
 * -EPERM if anything is left. Before any thread exists. */
int privilege_drop(uid_t uid, gid_t gid, struct error *e);
