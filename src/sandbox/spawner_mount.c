/* Directories of workspaces, mounted in standing sandboxes.
 *
 * What may be mounted lies below $BRIG_HOME/workspaces, which belongs to root: everything below a workspace's own directory may have been written
 * by code in sandboxes, so no link is followed there and nothing is executed or read, only opened. On disk all of it belongs to the store's
 * range of ids; each mount maps that to the range of its sandbox. */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/build.h"
#include "sandbox/facilities.h"
#include "sandbox/spec.h"

/* The directory `path` of workspaces, made where it is not there: O_PATH, or -errno. */
static int open_workspace(struct spawn *sp, const char *path) {
        uint32_t owner = idrange_store(sp->ranges) + SANDBOX_USER;
        if (mkdirat(sp->home_fd, WORKSPACES_DIR, 0700) < 0 && errno != EEXIST)
                return -errno;
        int at = openat(sp->home_fd, WORKSPACES_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (at < 0)
                return -errno;
        if (fstat(at, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022)) {
                close(at);
                return -EPERM;         /* nobody but root may have made what is in it */
        }
        char name[NAME_MAX + 1];
        for (size_t n; at >= 0 && *path; path += n + (path[n] == '/')) {
                n = strcspn(path, "/");
                memcpy(name, path, n); /* checked: WORKSPACE_NAME_MAX */
                name[n] = 0;
                int made = mkdirat(at, name, 0755), r = made < 0 && errno != EEXIST ? -errno : 0;
                if (made == 0 && fchownat(at, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0)
                        r = -errno;
                int next = r < 0 ? r : fs_open_beneath(at, name, O_PATH | O_DIRECTORY, 0);
                close(at);
                at = next;
        }
        return at;
}

/* In the sandbox's mount namespace, which is ours for the moment. */
static int attach_here(int mount, const char *target, uint32_t owner) {
        struct stat was, is;
        _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        int r = build_make_dirs(root, target + 1, owner);
        if (r == 0)
                r = mount_attach(mount, root, target + 1);
        if (r < 0)
                return r;
        /* What is seen there now, by the name that those inside use. */
        _cleanup_close_ int seen = fs_open_beneath(root, target + 1, O_PATH | O_DIRECTORY, 0);
        if (seen < 0 || fstat(mount, &was) < 0 || fstat(seen, &is) < 0)
                return seen < 0 ? seen : -errno;
        return was.st_dev == is.st_dev && was.st_ino == is.st_ino ? 0 : -ESTALE;
}

static int attach(struct spawn *sp, const struct cell *c, int mount, const char *target) {
        if (setns(c->init_pidfd, CLONE_NEWNS) < 0)
                return -errno;
        int r = attach_here(mount, target, c->seat->base);
        if (setns(sp->own_mounts, CLONE_NEWNS) < 0)
                abort();
        return r;
}

int op_mount(struct spawn *sp, struct message *m, struct fault *f) {
        struct cell *c = handle_get(&sp->cells, m->handle);
        const char *path = wire_get_str(&m->wire), *target = wire_get_str(&m->wire);
        bool writable = wire_get_u32(&m->wire) != 0;
        int map;
        if (m->wire.bad || !workspace_path_ok(path) || !spec_path_ok(target))
                return fault_set(f, "read the request", -EBADMSG);
        if (!c || c->state != CELL_READY || c->direct || c->init <= 0)
                return fault_set(f, "find the sandbox", -ESHUTDOWN);
        if (c->spec.profile != PROFILE_RLM)
                return fault_set(f, "mount a workspace", -EPERM);
        if (c->n_mounted >= SANDBOX_MOUNTS_MAX)
                return fault_set(f, "mount a workspace", -ENOSPC);
        _cleanup_close_ int dir = open_workspace(sp, path);
        if (dir < 0)
                return fault_set(f, "open the workspace", dir);
        int r = seat_map(c->seat, idrange_store(sp->ranges), &map, &f->error);
        if (r < 0)
                return fault_set(f, "map the workspace's ids", r);
        _cleanup_close_ int mount = mount_clone(dir, "", INNER_ATTRS | (writable ? 0 : MOUNT_ATTR_RDONLY), map);
        r = mount < 0 ? mount : attach(sp, c, mount, target);
        if (r < 0)
                return fault_set(f, "mount the workspace", r);
        c->n_mounted++;
        _cleanup_buf_ struct buf b = BUF_INIT(16);
        wire_put_u32(&b, 0);
        spawner_send(sp, EV_DONE, m->ref, c->handle, &b, NULL, 0);
        return 0;
}
