/* A sandbox in the making: what cell.c and its parts cell_planes.c, cell_mounts.c and cell_network.c share. Spawner only. */
#pragma once
#include "sandbox/child.h"
#include "sandbox/mounts.h"

#define LOWER_ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV)
#define INNER_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

struct build {
        struct spawn *sp;
        struct cell *cell;
        struct fault *f;
        int image;                         /* directory image, or -1: the host's */
        int lower[PLANE_MAX][OVERLAY_LOWERS_MAX]; size_t n_lowers[PLANE_MAX];
        int own[CHILD_MOUNTS_MAX * 2 + PLANE_MAX * OVERLAY_LOWERS_MAX]; size_t n_own;   /* closed when the build is over */
        struct child_first child;
        bool all;                          /* cell_base: of every plane */
};

/* ---- cell.c ---- */
int build_own(struct build *b, int fd);                /* closed when the build is over; returns fd */
int build_add_mount(struct build *b, int fd, const char *target);
const char *build_host_name(const struct cell *c);

/* ---- steps: 0, or -errno with the fault set ---- */

/* cell_planes.c */
int build_upper(struct build *b);
int build_lowers(struct build *b);
int build_upper_dirs(struct build *b);
int build_planes(struct build *b);
int build_make_dir(int at, const char *path, mode_t mode, uint32_t owner);
/* cell_mounts.c */
int build_inner(struct build *b);
int build_files(struct build *b);
int build_mounts(struct build *b);
int build_user_dir(struct build *b);
/* Makes the directories of `target` (relative) below `dirfd` where they are not there, never through a link; those belong to `owner`. */
int build_make_dirs(int dirfd, const char *target, uint32_t owner);
int build_make_target(struct build *b, const char *target);    /* in the new root, owned by root inside */
/* cell_network.c */
int build_network(struct build *b);
