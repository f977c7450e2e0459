/* What is mounted in a sandbox besides its planes. */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/build.h"
#include "sandbox/facilities.h"

int build_make_dirs(int dirfd, const char *target, uint32_t owner) {
        char path[4096];
        _cleanup_close_ int at = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
        while (*target) {
                size_t n = strcspn(target, "/");
                if (n >= sizeof path)
                        return -ENAMETOOLONG;
                memcpy(path, target, n);
                path[n] = 0;
                target += n + (target[n] == '/');
                if (n == 0)
                        continue;
                int made = mkdirat(at, path, 0755);
                if (made < 0 && errno != EEXIST)
                        return -errno;
                if (made == 0 && fchownat(at, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                int next = fs_open_beneath(at, path, O_PATH | O_DIRECTORY, 0);
                if (next < 0)
                        return next;
                fd_close(at);
                at = next;
        }
        return 0;
}

int build_make_target(struct build *b, const char *target) { return build_make_dirs(b->cell->plane[PLANE_ROOT], target, b->cell->seat->base); }

int build_inner(struct build *b) {
        struct cell *c = b->cell;
        char gid[16];
        snprintf(gid, sizeof gid, "%u", c->seat->base + 5);
        int pts = build_own(b, mount_new("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, "newinstance", "", "ptmxmode", "0666", "mode", "0620",
                                   "gid", gid, "max", "1024", NULL));
        if (pts < 0)
                return fault_set(b->f, "mount devpts", pts);
        /* The terminals' file system belongs to this sandbox's mount namespace alone: when the kernel says that it is
         * unmounted, the namespace is gone. */
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", pts);
        c->unmount_wd = inotify_add_watch(b->sp->inotify_watch.fd, path, IN_UNMOUNT | IN_MASK_CREATE);
        if (c->unmount_wd < 0)
                return fault_set(b->f, "watch for the unmount", -errno);
        int shm = build_own(b, mount_clone(c->upper, "shm", INNER_ATTRS, -1));
        if (shm < 0)
                return fault_set(b->f, "attach /dev/shm", shm);
        /* The upper itself lies below /dev/shm, where nobody can reach it, so that it goes away in one with the namespace: a
         * mount that is attached nowhere costs a grace period to drop. An image's mount stays the layers'. */
        int r = build_add_mount(b, pts, "dev/pts");
        if (r == 0 && c->spec.upper == UPPER_TMPFS) {
                /* A parked mount belongs to the spawner's namespace and cannot move to another: then a clone of it goes. */
                int upper = facility_ok(FACILITY_DETACHED_SOURCE) ? c->upper : build_own(b, mount_clone(c->upper, "", INNER_ATTRS, -1));
                r = upper < 0 ? upper : build_add_mount(b, upper, "dev/shm");
        }
        if (r == 0)
                r = build_add_mount(b, shm, "dev/shm");
        return r < 0 ? fault_set(b->f, "attach inner file systems", r) : 0;
}

int build_files(struct build *b) {
        struct cell *c = b->cell;
        if (c->spec.n_files == 0)
                return 0;
        int r = build_make_dir(c->upper, "files", 0755, 0);
        _cleanup_close_ int dir = r < 0 ? -1 : openat(c->upper, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r == 0 && dir < 0)
                r = -errno;
        for (size_t i = 0; i < c->spec.n_files && r == 0; i++) {
                const struct sandbox_file *file = &c->spec.files[i];
                struct stat st;
                if (fstat(file->fd, &st) < 0)
                        return fault_set(b->f, "copy files", -errno);
                _cleanup_close_ int to = openat(dir, file->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                if (to < 0)
                        return fault_set(b->f, "copy files", -errno);
                off_t at = 0;
                while (at < st.st_size && r == 0) {
                        ssize_t n = sendfile(to, file->fd, &at, (size_t)(st.st_size - at));
                        if (n <= 0)
                                r = n < 0 ? -errno : -EIO;
                }
                if (r == 0 && fchmod(to, file->mode & 0555) < 0)
                        r = -errno;
        }
        if (r < 0)
                return fault_set(b->f, "copy files", r);
        int fd = build_own(b, mount_clone(c->upper, "files", INNER_ATTRS | MOUNT_ATTR_RDONLY, -1));
        if (fd < 0)
                return fault_set(b->f, "attach /run/brig", fd);
        r = build_make_target(b, "run/brig");
        if (r == 0)
                r = build_add_mount(b, fd, "run/brig");
        return r < 0 ? fault_set(b->f, "attach /run/brig", r) : 0;
}

/* The daemon's descriptor lies on a mount of the host's namespace, and only there may it be cloned. */
static int clone_source(struct spawn *sp, int fd, uint64_t attrs, int user_ns) {
        if (setns(sp->host_mounts, CLONE_NEWNS) < 0)
                return -errno;
        int r = mount_clone(fd, "", attrs, user_ns);
        if (setns(sp->own_mounts, CLONE_NEWNS) < 0)
                abort();
        return r;
}

static int open_mount(struct build *b, const struct sandbox_mount *m) {
        struct cell *c = b->cell;
        uint64_t attrs = INNER_ATTRS;
        if (m->class == MOUNT_SOURCE)
                /* Not id-mapped: what is inside reads it as a stranger, as the daemon could, and not as its owner. */
                return build_own(b, clone_source(b->sp, m->fd, attrs | MOUNT_ATTR_RDONLY, -1));
        if (!b->sp->layers)
                return -ENOENT;
        int dir = build_own(b, layer_mirror_open(b->sp->layers, m->id)), map;
        if (dir < 0)
                return dir;
        int r = seat_map(c->seat, layer_mirror_owner(b->sp->layers), &map, &b->f->error);
        if (r < 0)
                return r;
        return build_own(b, mount_clone(dir, "", attrs | (m->writable ? 0 : MOUNT_ATTR_RDONLY), map));
}

int build_mounts(struct build *b) {
        for (size_t i = 0; i < b->cell->spec.n_mounts; i++) {
                const struct sandbox_mount *m = &b->cell->spec.mounts[i];
                int fd = open_mount(b, m);
                if (fd < 0)
                        return fault_set(b->f, "open a mount", fd);
                int r = build_make_target(b, m->target + 1);
                if (r == 0)
                        r = build_add_mount(b, fd, m->target + 1);
                if (r < 0)
                        return fault_set(b->f, "attach a mount", r);
        }
        return 0;
}

int build_user_dir(struct build *b) {
        const struct cell *c = b->cell;
        if (!c->spec.user_dir)
                return 0;
        uint32_t owner = c->seat->base + SANDBOX_USER;
        int r = build_make_target(b, c->spec.user_dir + 1);
        _cleanup_close_ int fd = r < 0 ? -1 : fs_open_beneath(c->plane[PLANE_ROOT], c->spec.user_dir + 1, O_RDONLY | O_DIRECTORY, 0);
        if (r == 0 && (fd < 0 || fchown(fd, owner, owner) < 0))
                r = fd < 0 ? fd : -errno;
        return r < 0 ? fault_set(b->f, "make the user's directory", r) : 0;
}
