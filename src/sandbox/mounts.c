#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "sandbox/facilities.h"
#include "sandbox/mounts.h"

static int finish(int fs, uint64_t attrs) {
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        int fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
        return fd < 0 ? -errno : fd;
}

static int option(int fs, const char *key, const char *value) {
        int r = *value ? fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) : fsconfig(fs, FSCONFIG_SET_FLAG, key, NULL, 0);
        return r < 0 ? -errno : 0;
}

int mount_new(const char *type, uint64_t attrs, ...) {
        _cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
        if (fs < 0)
                return -errno;
        va_list ap;
        va_start(ap, attrs);
        int r = 0;
        for (const char *key; r == 0 && (key = va_arg(ap, const char *));)
                r = option(fs, key, va_arg(ap, const char *));
        va_end(ap);
        return r < 0 ? r : finish(fs, attrs);
}

int mount_tmpfs(uint64_t bytes, uint64_t inodes, mode_t mode, uint64_t attrs) {
        char size[24], nodes[24], perm[8];
        snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
        snprintf(nodes, sizeof nodes, "%llu", (unsigned long long)inodes);
        snprintf(perm, sizeof perm, "%o", (unsigned)mode & 07777u);
        return mount_new("tmpfs", attrs, "size", size, "nr_inodes", nodes, "mode", perm, NULL);
}

int mount_tmpfs_resize(int fd, uint64_t bytes, uint64_t inodes) {
        _cleanup_close_ int fs = fspick(fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
        if (fs < 0)
                return -errno;
        char size[24], nodes[24];
        snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
        snprintf(nodes, sizeof nodes, "%llu", (unsigned long long)inodes);
        int r = option(fs, "size", size);
        if (r == 0)
                r = option(fs, "nr_inodes", nodes);
        return r < 0 ? r : fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0 ? -errno : 0;
}

int mount_clone(int dirfd, const char *path, uint64_t attrs, int user_ns) {
        _cleanup_close_ int fd = open_tree(dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
        if (fd < 0)
                return -errno;
        struct mount_attr a = { .attr_set = attrs };
        if (user_ns >= 0) {
                a.attr_set |= MOUNT_ATTR_IDMAP;
                a.userns_fd = (uint64_t)user_ns;
        }
        if (a.attr_set && mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof a) < 0)
                return -errno;
        return TAKE_FD(fd);
}

int mount_attrs(int fd, uint64_t set) {
        struct mount_attr a = { .attr_set = set };
        return mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof a) < 0 ? -errno : 0;
}

/* "/proc/self/fd/3:/proc/self/fd/4..." -E2BIG when it does not fit. */
static int lowers_text(const int *lowers, size_t n, char *ret, size_t size) {
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
                int put = snprintf(ret + at, size - at, "%s/proc/self/fd/%d", i ? ":" : "", lowers[i]);
                if (put < 0 || (size_t)put >= size - at)
                        return -E2BIG;
                at += (size_t)put;
        }
        return (int)at;
}

static int overlay_lowers(int fs, const int *lowers, size_t n) {
        char list[256];                /* one option takes 255 bytes */
        if (lowers_text(lowers, n, list, sizeof list) >= 0)
                return option(fs, "lowerdir", list);
        int r = 0;
        for (size_t i = 0; i < n && r == 0; i++) {
                snprintf(list, sizeof list, "/proc/self/fd/%d", lowers[i]);
                r = option(fs, "lowerdir+", list);
        }
        return r;
}

static bool lowers_need_page(const int *lowers, size_t n) {
        char list[256];
        return lowers_text(lowers, n, list, sizeof list) < 0 && !facility_ok(FACILITY_OVERLAY_APPEND);
}

/* By the old call, whose options may be a page long; then taken off its place again. */
static int overlay_by_page(const int *lowers, size_t n, int upper_dir, const char *upper, const char *work, uint64_t attrs) {
        char options[4096] = "redirect_dir=nofollow,index=off,metacopy=off,xino=off";
        size_t at = strlen(options);
        if (upper_dir >= 0)
                at += (size_t)snprintf(options + at, sizeof options - at, ",upperdir=/proc/self/fd/%d/%s,workdir=/proc/self/fd/%d/%s", upper_dir, upper, upper_dir, work);
        at += (size_t)snprintf(options + at, sizeof options - at, ",lowerdir=");
        int r = lowers_text(lowers, n, options + at, sizeof options - at);
        if (r >= 0)
                r = fs_mkdir_p(MOUNT_PARK, 0700);
        if (r < 0)
                return r;
        if (mkdir(MOUNT_PARK "/overlay", 0700) < 0 && errno != EEXIST)
                return -errno;
        if (mount("overlay", MOUNT_PARK "/overlay", "overlay", 0, options) < 0)
                return -errno;
        int fd = mount_clone(AT_FDCWD, MOUNT_PARK "/overlay", attrs, -1);
        if (umount2(MOUNT_PARK "/overlay", MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
                r = -errno;
        if (r < 0)
                fd_close(fd);
        return r < 0 ? r : fd;
}

int mount_overlay(const int *lowers, size_t n_lowers, int upper_dir, const char *upper, const char *work, uint64_t attrs) {
        if (n_lowers == 0 || n_lowers > OVERLAY_LOWERS_MAX || (upper_dir < 0 && n_lowers < 2))
                return -EINVAL;
        if (lowers_need_page(lowers, n_lowers))
                return overlay_by_page(lowers, n_lowers, upper_dir, upper, work, attrs);
        _cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
        if (fs < 0)
                return -errno;
        int r = overlay_lowers(fs, lowers, n_lowers);
        if (r == 0 && upper_dir >= 0) {
                char path[128];
                snprintf(path, sizeof path, "/proc/self/fd/%d/%s", upper_dir, upper);
                r = option(fs, "upperdir", path);
                snprintf(path, sizeof path, "/proc/self/fd/%d/%s", upper_dir, work);
                if (r == 0)
                        r = option(fs, "workdir", path);
        }
        static const char *const fixed[][2] = { { "redirect_dir", "nofollow" }, { "index", "off" }, { "metacopy", "off" }, { "xino", "off" } };
        for (size_t i = 0; i < ARRAY_SIZE(fixed) && r == 0; i++)
                r = option(fs, fixed[i][0], fixed[i][1]);
        return r < 0 ? r : finish(fs, attrs);
}

int mount_attach(int fd, int dirfd, const char *target) {
        _cleanup_close_ int at = fs_open_beneath(dirfd, target, O_PATH, 0);
        if (at < 0)
                return at;
        if (move_mount(fd, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return -errno;
        return 0;
}

/* ---- parking ---- */

static void park_path(int fd, char path[static 64]) {
        snprintf(path, 64, MOUNT_PARK "/%d", fd);
}

int mount_park_prepare(void) {
        if (facility_ok(FACILITY_DETACHED_SOURCE))
                return 0;
        int r = fs_mkdir_p(MOUNT_PARK, 0700);
        if (r < 0)
                return r;
        _cleanup_close_ int top = mount_tmpfs(1 << 20, 0, 0700, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        if (top < 0)
                return top;
        return move_mount(top, "", AT_FDCWD, MOUNT_PARK, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int mount_park(int fd) {
        if (facility_ok(FACILITY_DETACHED_SOURCE))
                return 0;
        _cleanup_close_ int clone = open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (clone >= 0)
                return 0;      /* attached already, here or by whoever keeps it */
        char path[64];
        park_path(fd, path);
        /* The number may have belonged to a mount that was closed without being released. */
        while (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
                ;
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return -errno;
        return move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

int mount_release(int fd) {
        if (fd >= 0 && !facility_ok(FACILITY_DETACHED_SOURCE)) {
                char path[64];
                park_path(fd, path);
                (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
        }
        return fd_close(fd);
}
