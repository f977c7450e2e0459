/* The skeleton of the host image: the directory that is the lower of its "/" plane.
 *
 * Made once per fingerprint of the machine, below $BRIG_HOME/images/host-<fingerprint>/root: a curated copy of /etc and of
 * the package database, links for /bin and /lib*, and empty directories where the other planes and file systems go. Only
 * what every user of the machine may read is copied, from lists of names; so never a shadow file, a key or a token of /root,
 * /home or /etc. Owned by root; sandboxes see it through an id-mapped mount. */
#pragma once
#include "base/error.h"
#include "base/hash.h"

#define SKELETON_FORMAT 1              /* raise it when what is copied changes */
#define SKELETON_BYTES_MAX (1ull << 30)
#define SKELETON_DEPTH_MAX 16

/* Identity of the host image: os-release, package database, toolchain directories, the copied part of /etc. */
int skeleton_fingerprint(char ret[static SHA256_HEX], struct error *e);
/* Opens it (O_PATH), making it first where needed. `home_fd` is BRIG_HOME. Old ones are left for the store to delete. */
int skeleton_open(int home_fd, const char *fingerprint, int *ret_fd, struct error *e);
