/* $BRIG_HOME: its lock, its layout, and the id of the instance that lives there.
 *
 * One daemon per home: an exclusive flock on `lock`, held for as long as the struct lives, whose contents name the holder.
 * The instance id is made once and stored in the file `instance`; everything that Brig makes on the machine (links, cgroups,
 * directories) carries it, and a sweep touches only its own. Taken by the daemon before the spawner starts and before
 * privileges are dropped. */
#pragma once
#include <sys/types.h>

#include "base/error.h"

#define HOME_INSTANCE_LEN 8        /* lower-case hex digits: short enough for the name of a network link */
#define HOME_LOCK_FILE "lock"
#define HOME_INSTANCE_FILE "instance"

struct home {
        int dirfd, lock_fd;
        char instance[HOME_INSTANCE_LEN + 1];
};
#define HOME_INIT { .dirfd = -1, .lock_fd = -1 }

/* Makes the directory if needed and takes the lock. -EWOULDBLOCK when another process holds it: the text says which. */
int home_open(const char *path, struct home *ret, struct error *e);
/* Makes the sub-directories (runs, images...; not layers and mirrors, which are the spawner's) and gives them, the home and the lock to uid:gid, which the daemon
 * becomes. Directories that the spawner keeps for itself are its own business. */
int home_layout(const struct home *h, uid_t uid, gid_t gid, struct error *e);
void home_release(struct home *h);
