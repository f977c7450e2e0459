/* A sandbox made out of its parts: steps that run in order, and the first process. Nothing here waits. */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/build.h"
#include "sandbox/seccomp.h"
#include "sandbox/spec.h"

/* ---- tools of the steps ---- */

int build_own(struct build *b, int fd) {
        if (fd >= 0) {
                ASSERT(b->n_own < ARRAY_SIZE(b->own));
                b->own[b->n_own++] = fd;
        }
        return fd;
}

int build_add_mount(struct build *b, int fd, const char *target) {
        if (b->child.n_mounts >= CHILD_MOUNTS_MAX)
                return -E2BIG;
        b->child.mounts[b->child.n_mounts++] = (struct child_mount){ fd, target };
        return 0;
}

#define DEFAULT_HOSTNAME "brig"
const char *build_host_name(const struct cell *c) { return c->spec.hostname ? c->spec.hostname : DEFAULT_HOSTNAME; }

/* ---- limits ---- */

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

static void fill_child(struct build *b, struct child_first *child) {
        struct cell *c = b->cell;
        child->seed_ns = b->sp->seed_ns;
        child->net_ns = c->net_ns;
        child->hostname = build_host_name(c);
        child->exec.user_ns = c->seat->user_ns;
        child->exec.null_fd = b->sp->null_file;
        child->exec.filter = cell_filter(c, false);
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
        const char *name = build_host_name(c);
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
static const build_step alike[] = { make_group, build_upper, build_lowers, build_upper_dirs, build_planes, build_inner };
static const build_step fresh[] = { build_files, build_user_dir, build_mounts, build_network };
static const build_step claimed[] = { make_group, resize_upper, set_host_name, build_user_dir, build_network };

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
                r = build_network(b);
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
