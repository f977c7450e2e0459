/* Detached mounts: made, mapped and attached by descriptor, so that no path is ever resolved twice and nothing shows in the
 * host's mount table. All functions return a descriptor (CLOEXEC) or 0, or -errno. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MOUNTS_INHERIT 0           /* attr: as the source has them */

/* A fresh tmpfs; `inodes` 0 = no limit of its own. attrs: MOUNT_ATTR_*. */
int mount_tmpfs(uint64_t bytes, uint64_t inodes, mode_t mode, uint64_t attrs);
/* New bounds for one that is mounted. */
int mount_tmpfs_resize(int fd, uint64_t bytes, uint64_t inodes);
/* A private copy of the one mount that `path` below `dirfd` lies on, with that directory (or file) as its root. `user_ns`
 * >= 0: id-mapped through it. */
int mount_clone(int dirfd, const char *path, uint64_t attrs, int user_ns);
/* Sets attributes of a mount by descriptor. */
int mount_attrs(int fd, uint64_t set);
/* An overlay. More lowers than an option can name at once are added one by one where the kernel can (FACILITY_OVERLAY_APPEND, 6.8);
 * elsewhere the old mount call takes them all in one page, for a moment attached below MOUNT_PARK. Lowers are directories, top first;
 * `upper_dir` < 0: lowers only (two at least), read-only. Names `upper` and `work` are directories below upper_dir. */
#define OVERLAY_LOWERS_MAX 130       /* SPEC_LAYERS_MAX, the image, what is below it */
int mount_overlay(const int *lowers, size_t n_lowers, int upper_dir, const char *upper, const char *work, uint64_t attrs);
/* Attaches a detached mount over the directory (or file) `target` below `dirfd`; no component of target may be a link. */
int mount_attach(int fd, int dirfd, const char *target);
/* Before Linux 6.15 nothing can be built on a detached mount: no clone of it, no overlay over it. There mount_park attaches it
 * below MOUNT_PARK in this process's own mount namespace; where FACILITY_DETACHED_SOURCE is present it does nothing. A parked
 * mount lives until mount_release, which also closes the descriptor (and may be called for any other descriptor too). */
#define MOUNT_PARK "/run/brig/park"
int mount_park_prepare(void);      /* once, in the namespace that will hold them */
int mount_park(int fd);
int mount_release(int fd);         /* -1 */
/* A new file system by name with string options ("key", "value", ..., NULL); value "" means a flag. */
int mount_new(const char *type, uint64_t attrs, ...) __attribute__((sentinel));
