/* The parts of a sandbox: checked, made, and unmade. Nothing here waits. */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "egress/egress.h"
#include "sandbox/child.h"
#include "sandbox/facilities.h"
#include "sandbox/mounts.h"
#include "sandbox/seccomp.h"
#include "sandbox/spec.h"

#define SHM_MAX (1ull << 40)
#define LOWER_ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV)
#define INNER_ATTRS (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* ---- planes ---- */

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

static int own(struct build *b, int fd) {
        if (fd >= 0) {
                ASSERT(b->n_own < ARRAY_SIZE(b->own));
                b->own[b->n_own++] = fd;
        }
        return fd;
}

static int add_mount(struct build *b, int fd, const char *target) {
        if (b->child.n_mounts >= CHILD_MOUNTS_MAX)
                return -E2BIG;
        b->child.mounts[b->child.n_mounts++] = (struct child_mount){ fd, target };
        return 0;
}

static bool is_scratch(const struct build *b) { return strcmp(b->cell->spec.image, IMAGE_SCRATCH) == 0; }

static int image_lower(struct build *b, enum plane p) {
        struct seat *s = b->cell->seat;
        if (b->image >= 0)
                return p == PLANE_ROOT ? own(b, is_scratch(b) ? cell_lowest(b->sp, LOWER_ATTRS, s->user_ns) : mount_clone(b->image, "", LOWER_ATTRS, s->user_ns)) : -ENOENT;
        if (b->sp->host_lower[p] < 0)
                return -ENOENT;
        if (s->lower[p] < 0) {
                int fd = mount_clone(b->sp->host_lower[p], "", LOWER_ATTRS, s->user_ns);
                if (fd < 0)
                        return fd;
                s->lower[p] = fd;
        }
        return s->lower[p];
}

static int layer_lower(struct build *b, const char *id, enum plane p) {
        uint32_t from;
        int fd = own(b, layer_image_lower(b->sp->layers, id, plane_path[p], &from)), map;
        if (fd < 0)
                return fd;
        int r = seat_map(b->cell->seat, from, &map, &b->f->error);
        if (r < 0)
                return r;
        if (map >= 0) {
                struct mount_attr a = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)map };
                if (mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof a) < 0)
                        return -errno;
        }
        return fd;
}

static int add_lowest(struct build *b) {
        int fd = own(b, cell_lowest(b->sp, LOWER_ATTRS, b->cell->seat->user_ns)), parked = fd < 0 ? fd : mount_park(fd);
        if (parked < 0)
                return fault_set(b->f, "attach the image", parked);
        b->lower[PLANE_ROOT][b->n_lowers[PLANE_ROOT]++] = fd;
        return 0;
}

/* Lowers of each plane, top first: layers from the last to the first, then the image. */
static int collect_lowers(struct build *b) {
        const char *const *layers = b->cell->spec.layers;
        size_t n = 0;
        while (layers && layers[n])
                n++;
        for (int p = 0; p < (b->image < 0 ? PLANE_MAX : PLANE_ROOT + 1); p++) {
                for (size_t i = n; i-- > 0;) {
                        int fd = layer_lower(b, layers[i], (enum plane)p);
                        if (fd == -ENOENT)
                                continue;
                        int parked = fd < 0 ? fd : mount_park(fd);
                        if (parked < 0)
                                return fault_set(b->f, "attach a layer", parked);
                        b->lower[p][b->n_lowers[p]++] = fd;
                }
                int fd = image_lower(b, (enum plane)p), parked = fd < 0 ? fd : mount_park(fd);
                if (parked < 0 && fd != -ENOENT)
                        return fault_set(b->f, "attach the image", parked);
                /* A layer made on another image may hold planes that this one has not: they are not used. */
                if (fd == -ENOENT)
                        b->n_lowers[p] = 0;
                else
                        b->lower[p][b->n_lowers[p]++] = fd;
        }
        return b->image >= 0 && !is_scratch(b) ? add_lowest(b) : 0;
}

static int base_plane(struct build *b, enum plane p) {
        const int *lower = b->lower[p];
        int fd;
        if (b->n_lowers[p] > 1)
                fd = mount_overlay(lower, b->n_lowers[p], -1, NULL, NULL, LOWER_ATTRS | MOUNT_ATTR_NOSUID);
        else if (b->n_lowers[p] == 1 && (p == PLANE_ROOT || b->all || !(b->cell->spec.layers && b->cell->spec.layers[0])))
                fd = mount_clone(lower[0], "", LOWER_ATTRS | MOUNT_ATTR_NOSUID, -1);
        else
                return 0;      /* the image's alone, beside a layer's tree: nobody compares with that */
        if (fd < 0)
                return fd;
        b->cell->base[p] = fd;
        return 0;
}

int cell_base(struct spawn *sp, struct cell *c, bool all) {
        struct fault f = { 0 };
        struct build *b = calloc(1, sizeof *b);
        if (!b)
                return -ENOMEM;
        *b = (struct build){ .sp = sp, .cell = c, .f = &f, .image = -1, .all = all };
        int r = cell_open_base(sp, c->spec.image, &b->image);
        if (r == 0)
                r = collect_lowers(b);
        for (int p = 0; p < PLANE_MAX && r == 0; p++)
                if (c->base[p] < 0)
                        r = base_plane(b, (enum plane)p);
        c->base_all |= all && r == 0;
        if (r < 0)
                for (int p = 0; p < PLANE_MAX; p++)
                        c->base[p] = fd_close(c->base[p]);
        for (size_t i = 0; i < b->n_own; i++)
                mount_release(b->own[i]);
        fd_close(b->image);
        free(b);
        return r;
}

static int make_dir(int at, const char *path, mode_t mode, uint32_t owner) {
        if (mkdirat(at, path, 0700) < 0 && errno != EEXIST)
                return -errno;
        if (fchownat(at, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(at, path, mode, 0) < 0)
                return -errno;
        return 0;
}

static int make_upper_dirs(struct build *b) {
        int up = b->cell->upper;
        uint32_t base = b->cell->seat->base;
        int r = make_dir(up, "work", 0700, 0);
        for (int p = 0; p < PLANE_MAX && r == 0; p++) {
                if (b->n_lowers[p] == 0)
                        continue;
                char work[16];
                snprintf(work, sizeof work, "work/%s", plane_dir[p]);
                r = make_dir(up, plane_dir[p], 0755, base);
                if (r == 0)
                        r = make_dir(up, work, 0700, base);
        }
        if (r == 0)
                r = make_dir(up, "shm", 01777, base);
        return r < 0 ? fault_set(b->f, "make the upper's directories", r) : 0;
}

static int make_planes(struct build *b) {
        for (int p = 0; p < PLANE_MAX; p++) {
                if (b->n_lowers[p] == 0)
                        continue;
                char work[16];
                snprintf(work, sizeof work, "work/%s", plane_dir[p]);
                int fd = mount_overlay(b->lower[p], b->n_lowers[p], b->cell->upper, plane_dir[p], work, MOUNT_ATTR_NODEV);
                if (fd < 0)
                        return fault_set(b->f, "mount an overlay", fd);
                b->cell->plane[p] = fd;
                int r = add_mount(b, fd, p == PLANE_ROOT ? "" : plane_dir[p]);
                if (r < 0)
                        return fault_set(b->f, "attach a plane", r);
        }
        return b->cell->plane[PLANE_ROOT] < 0 ? fault_set(b->f, "attach the image", -ENOENT) : 0;
}

/* ---- what else is mounted ---- */

#define DEFAULT_HOSTNAME "brig"
static const char *host_name(const struct cell *c) { return c->spec.hostname ? c->spec.hostname : DEFAULT_HOSTNAME; }

/* Makes the directories of `target` in the new root, never through a link. Owned by root inside. */
static int make_target(struct build *b, const char *target) {
        char path[4096];
        uint32_t base = b->cell->seat->base;
        _cleanup_close_ int at = fcntl(b->cell->plane[PLANE_ROOT], F_DUPFD_CLOEXEC, 3);
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
                if (made == 0 && fchownat(at, path, base, base, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                int next = fs_open_beneath(at, path, O_PATH | O_DIRECTORY, 0);
                if (next < 0)
                        return next;
                fd_close(at);
                at = next;
        }
        return 0;
}

static int add_inner(struct build *b) {
        struct cell *c = b->cell;
        char gid[16];
        snprintf(gid, sizeof gid, "%u", c->seat->base + 5);
        int pts = own(b, mount_new("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, "newinstance", "", "ptmxmode", "0666", "mode", "0620",
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
        int shm = own(b, mount_clone(c->upper, "shm", INNER_ATTRS, -1));
        if (shm < 0)
                return fault_set(b->f, "attach /dev/shm", shm);
        /* The upper itself lies below /dev/shm, where nobody can reach it, so that it goes away in one with the namespace: a
         * mount that is attached nowhere costs a grace period to drop. An image's mount stays the layers'. */
        int r = add_mount(b, pts, "dev/pts");
        if (r == 0 && c->spec.upper == UPPER_TMPFS) {
                /* A parked mount belongs to the spawner's namespace and cannot move to another: then a clone of it goes. */
                int upper = facility_ok(FACILITY_DETACHED_SOURCE) ? c->upper : own(b, mount_clone(c->upper, "", INNER_ATTRS, -1));
                r = upper < 0 ? upper : add_mount(b, upper, "dev/shm");
        }
        if (r == 0)
                r = add_mount(b, shm, "dev/shm");
        return r < 0 ? fault_set(b->f, "attach inner file systems", r) : 0;
}

static int add_files(struct build *b) {
        struct cell *c = b->cell;
        if (c->spec.n_files == 0)
                return 0;
        int r = make_dir(c->upper, "files", 0755, 0);
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
        int fd = own(b, mount_clone(c->upper, "files", INNER_ATTRS | MOUNT_ATTR_RDONLY, -1));
        if (fd < 0)
                return fault_set(b->f, "attach /run/brig", fd);
        r = make_target(b, "run/brig");
        if (r == 0)
                r = add_mount(b, fd, "run/brig");
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
                return own(b, clone_source(b->sp, m->fd, attrs | MOUNT_ATTR_RDONLY, -1));
        if (!b->sp->layers)
                return -ENOENT;
        int dir = own(b, layer_mirror_open(b->sp->layers, m->id)), map;
        if (dir < 0)
                return dir;
        int r = seat_map(c->seat, layer_mirror_owner(b->sp->layers), &map, &b->f->error);
        if (r < 0)
                return r;
        return own(b, mount_clone(dir, "", attrs | (m->writable ? 0 : MOUNT_ATTR_RDONLY), map));
}

static int add_mounts(struct build *b) {
        for (size_t i = 0; i < b->cell->spec.n_mounts; i++) {
                const struct sandbox_mount *m = &b->cell->spec.mounts[i];
                int fd = open_mount(b, m);
                if (fd < 0)
                        return fault_set(b->f, "open a mount", fd);
                int r = make_target(b, m->target + 1);
                if (r == 0)
                        r = add_mount(b, fd, m->target + 1);
                if (r < 0)
                        return fault_set(b->f, "attach a mount", r);
        }
        return 0;
}

/* ---- limits, network ---- */

static int make_group(struct build *b) {
        struct cell *c = b->cell;
        struct spawn *sp = b->sp;
        if (!sp->cgroups)
                return 0;
        int r = c->cgroup ? 0 : cgroup_take(sp->cgroups, &c->cgroup, &b->f->error);
        const struct cgroup_limits l = {
                .memory_bytes = c->spec.limits.memory_bytes, .pids = c->spec.limits.pids, .cpu_milli = c->spec.limits.cpu_milli,
                .tmpfs_bytes = c->spec.upper == UPPER_TMPFS ? c->spec.limits.disk_bytes : 0,
        };
        if (r == 0)
                r = cgroup_set_limits(c->cgroup, &l, &b->f->error);
        if (r < 0)
                return fault_set(b->f, "make the cgroup", r);
        if (c->init_group < 0)
                c->init_group = cgroup_open_group(c->cgroup);  /* -1 and less: no v2 tree */
        return 0;
}

static int write_resolv_conf(struct build *b, const struct buf *text) {
        int r = make_target(b, "etc");
        _cleanup_close_ int etc = r < 0 ? -1 : fs_open_beneath(b->cell->plane[PLANE_ROOT], "etc", O_RDONLY | O_DIRECTORY, 0);
        if (etc < 0)
                return r < 0 ? r : etc;
        unlinkat(etc, "resolv.conf", 0);
        _cleanup_close_ int fd = fs_open_beneath(etc, "resolv.conf", O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0)
                return fd;
        r = fs_write_all(fd, buf_str(text), text->len);
        return r == 0 && fchown(fd, b->cell->seat->base, b->cell->seat->base) < 0 ? -errno : r;
}

/* No way out, but to the daemon. */
static int make_caught(struct build *b) {
        _cleanup_buf_ struct buf text = BUF_INIT(256);
        int r = facility_ok(FACILITY_SK_LOOKUP) ? catch_open(b->cell->net_ns, &b->cell->catch, &b->f->error)
                                                : error_say(&b->f->error, -EOPNOTSUPP, "this kernel cannot lead connections to the daemon (see brig doctor: sk-lookup)");
        if (r == 0)
                r = buf_adds(&text, "nameserver " EGRESS_RESOLVER "\n");
        if (r == 0)
                r = write_resolv_conf(b, &text);
        if (r < 0)
                b->f->step = "open the network";
        if (r < 0 && !b->f->error.code)
                error_set(&b->f->error, r, "write /etc/resolv.conf");
        return r;
}

static int make_network(struct build *b) {
        struct cell *c = b->cell;
        struct spawn *sp = b->sp;
        if (c->spec.network == NETWORK_HOST)
                return 0;
        int r = c->net_ns >= 0 ? 0 : netns_take(sp->net_pool, &c->net_ns, &b->f->error);
        if (r < 0)
                return fault_set(b->f, "make the network namespace", r);
        if (c->spec.network == NETWORK_ALLOW)
                return make_caught(b);
        if (c->spec.network != NETWORK_OPEN)
                return 0;
        if (!sp->network) {
                const struct network_config cfg = { .instance = sp->instance, .allow = (const char *const *)sp->network_allow };
                r = network_open(&cfg, &sp->network, &b->f->error);
        }
        if (r == 0)
                r = network_attach(sp->network, c->net_ns, &c->link, &b->f->error);
        if (r == 0) {
                _cleanup_buf_ struct buf text = BUF_INIT(65536);
                c->linked = true;
                r = network_resolv_conf(sp->network, &text);
                if (r == 0)
                        r = write_resolv_conf(b, &text);
        }
        if (r < 0)
                b->f->step = "open the network";
        return r;
}

/* ---- all of it ---- */

int cell_take_seat(struct spawn *sp, struct cell *c, struct fault *f) {
        if (sp->seats) {
                c->seat = sp->seats;
                sp->seats = c->seat->next;
                sp->n_seats--;
                return 0;
        }
        uint32_t base;
        int r = idrange_take(sp->ranges, &base, &f->error);
        if (r == 0) {
                r = seat_new(base, &c->seat, &f->error);
                if (r < 0)
                        idrange_give(sp->ranges, base);
        }
        if (r < 0)
                f->step = "take a range of ids";
        return r;
}

static int make_upper(struct build *b) {
        struct cell *c = b->cell;
        if (c->upper < 0)              /* else an image, mounted by a job */
                c->upper = mount_tmpfs(c->spec.limits.disk_bytes, c->spec.limits.inodes, 0755, MOUNT_ATTR_NODEV);
        int r = c->upper < 0 ? c->upper : mount_park(c->upper);
        return r < 0 ? fault_set(b->f, "mount the upper", r) : 0;
}

static void fill_child(struct build *b, struct child_first *child) {
        struct cell *c = b->cell;
        child->seed_ns = b->sp->seed_ns;
        child->net_ns = c->net_ns;
        child->hostname = host_name(c);
        child->exec.user_ns = c->seat->user_ns;
        child->exec.null_fd = b->sp->null_file;
        child->exec.filter = seccomp_program(SECCOMP_STANDARD);
        child->exec.cgroup = c->cgroup;
        child->exec.group = c->init_group;
}

static int start_first(struct build *b, const struct exec_request *x, int program) {
        struct cell *c = b->cell;
        struct child_first *child = c->parked ? &c->parked->first : &b->child;
        if (!c->parked)
                fill_child(b, child);
        child->exec.x = x;
        child->exec.program = program;
        cell_confine(c, false, &child->exec.confine);
        if (program >= 0)
                child->exec.confine.caps = 1ull << 5;  /* CAP_KILL: init ends processes of other users inside */
        int r = c->parked ? child_unpark(c->parked) : child_first(child, &c->init, &c->init_pidfd);
        if (r < 0)
                return fault_set(b->f, child->report.step, r);
        free(c->parked);               /* with its stack: a blank holds it, a sandbox need not */
        c->parked = NULL;
        return 0;
}

static int start_init(struct build *b) {
        struct cell *c = b->cell;
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return fault_set(b->f, "socketpair", -errno);
        c->control.fd = pair[0];
        _cleanup_close_ int theirs = pair[1];
        static const char *const argv[] = { "init", NULL };
        const struct exec_request x = { .argv = (const char **)argv, .fds = { { theirs, 0 } }, .n_fds = 1 };
        return start_first(b, &x, b->sp->init_image);
}

/* What a claimed blank has of its own. */

static int resize_upper(struct build *b) {
        const struct cell *c = b->cell;
        const struct sandbox_limits *want = &c->spec.limits, *has = &c->made_for;
        if (want->disk_bytes == has->disk_bytes && want->inodes == has->inodes)
                return 0;
        int r = mount_tmpfs_resize(c->upper, want->disk_bytes, want->inodes);
        return r < 0 ? fault_set(b->f, "mount the upper", r) : 0;
}

/* Only root of the machine can: the child no longer is. */
static int set_host_name(struct build *b) {
        const struct cell *c = b->cell;
        const char *name = host_name(c);
        if (strcmp(name, DEFAULT_HOSTNAME) == 0)
                return 0;
        _cleanup_close_ int own_uts = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
        if (own_uts < 0 || setns(c->init_pidfd, CLONE_NEWUTS) < 0)
                return fault_set(b->f, "set the host name", -errno);
        int r = sethostname(name, strlen(name)) < 0 ? -errno : 0;
        if (setns(own_uts, CLONE_NEWUTS) < 0)
                abort();
        return r < 0 ? fault_set(b->f, "set the host name", r) : 0;
}

static int start_direct(struct build *b) {
        struct exec_request x;
        int r = exec_request_decode(b->cell->request, &x);
        if (r == 0 && x.helper)
                r = -EINVAL;
        r = r < 0 ? fault_set(b->f, "check the first exec", r) : start_first(b, &x, -1);
        exec_request_release(&x);
        return r;
}

typedef int (*build_step)(struct build *);
static const build_step alike[] = { make_group, make_upper, collect_lowers, make_upper_dirs, make_planes, add_inner };
static const build_step fresh[] = { add_files, add_mounts, make_network };
static const build_step claimed[] = { make_group, resize_upper, set_host_name, make_network };

static int run_steps(struct build *b, const build_step *steps, size_t n, int r) {
        for (size_t i = 0; i < n && r == 0; i++)
                r = steps[i](b);
        return r;
}

static struct build *build_new(struct spawn *sp, struct cell *c, struct fault *f) {
        struct build *b = calloc(1, sizeof *b);
        if (b)
                *b = (struct build){ .sp = sp, .cell = c, .f = f, .image = -1 };
        else
                fault_set(f, "create", -ENOMEM);
        return b;
}

static void build_free(struct build *b) {
        for (size_t i = 0; i < b->n_own; i++)
                mount_release(b->own[i]);
        fd_close(b->image);
        free(b);
}

static int park_first(struct build *b) {
        struct cell *c = b->cell;
        c->parked = aligned_alloc(16, sizeof *c->parked);
        if (!c->parked)
                return fault_set(b->f, "park the first process", -ENOMEM);
        c->parked->first = b->child;
        fill_child(b, &c->parked->first);
        /* The limit that differs is lowered later: by then it can only be. */
        struct confine_plan *plan = &c->parked->first.exec.confine;
        cell_confine(c, false, plan);
        getrlimit(RLIMIT_NOFILE, &plan->nofile);
        int r = child_park(c->parked, &c->init, &c->init_pidfd);
        return r < 0 ? fault_set(b->f, c->parked->first.report.step, r) : 0;
}

int cell_prefabricate(struct spawn *sp, struct cell *c, struct fault *f) {
        struct build *b = build_new(sp, c, f);
        if (!b)
                return f->error.code;
        int r = run_steps(b, alike, ARRAY_SIZE(alike), 0);
        if (r == 0)
                r = make_network(b);
        if (r == 0)
                r = park_first(b);
        build_free(b);
        return r;
}

int cell_build(struct spawn *sp, struct cell *c, struct fault *f) {
        struct build *b = build_new(sp, c, f);
        if (!b)
                return f->error.code;
        int r = cell_open_base(sp, c->spec.image, &b->image);
        if (r < 0)
                fault_set(f, SANDBOX_STEP_IMAGE, r);
        if (c->parked) {
                r = run_steps(b, claimed, ARRAY_SIZE(claimed), r);
        } else {
                r = run_steps(b, alike, ARRAY_SIZE(alike), r);
                r = run_steps(b, fresh, ARRAY_SIZE(fresh), r);
        }
        if (r == 0)
                r = c->direct ? start_direct(b) : start_init(b);
        /* A layer's file system is busy while a plane over it is: then nothing is kept. */
        bool plain = c->spec.upper == UPPER_TMPFS && !(c->spec.layers && c->spec.layers[0]);
        for (int p = 0; p < PLANE_MAX && !plain; p++)
                c->plane[p] = fd_close(c->plane[p]);
        build_free(b);
        c->started_ms = now_ms();
        return r;
}
