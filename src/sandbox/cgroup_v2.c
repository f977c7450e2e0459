/* The pure v2 backend: one group per set, with all controllers.
 *
 * No process may sit in a group that hands controllers to its children, except in the root. So the caller (and its parent,
 * the daemon) moves to a leaf, brig-<instance>-main, beside the sandboxes' parent. Where others share our group (a login
 * session, say) that does not empty it; then the sets go below the root of the mount instead. */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include "sandbox/cgroup_backend.h"

#define CPU_PERIOD_US 100000

/* Hands the controllers of `dir` down to its children; cpu is a plus. */
static int delegate(int dir) {
        int r = cg_write(dir, NULL, "cgroup.subtree_control", "+memory +pids");
        if (r == 0)
                (void)cg_write(dir, NULL, "cgroup.subtree_control", "+cpu");
        return r;
}

static int move_to_leaf(int base, const char *instance) {
        char leaf[64];
        snprintf(leaf, sizeof leaf, "brig-%s-main", instance);
        if (mkdirat(base, leaf, 0755) < 0 && errno != EEXIST)
                return -errno;
        int r = cg_write(base, leaf, "cgroup.procs", "%d", (int)getpid());
        if (r == 0 && getppid() > 1)
                (void)cg_write(base, leaf, "cgroup.procs", "%d", (int)getppid());   /* whoever else is there stays */
        return r;
}

static int open_below(struct cgroup_manager *m, const char *path, bool leaf) {
        _cleanup_close_ int base = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (base < 0)
                return -errno;
        int r = leaf ? move_to_leaf(base, m->instance) : 0;
        if (r == 0)
                r = delegate(base);
        if (r < 0)
                return r;
        char name[64];
        snprintf(name, sizeof name, "brig-%s", m->instance);
        if (mkdirat(base, name, 0755) < 0 && errno != EEXIST)
                return -errno;
        _cleanup_close_ int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return -errno;
        r = delegate(dir);
        if (r < 0)
                return r;
        m->dir[CG_GROUP] = TAKE_FD(dir);
        return 0;
}

/* Opened before by this process, or by its parent: then it sits in the leaf already, and the sets belong beside that. */
static void leave_leaf(const struct cgroup_manager *m, char *path) {
        char leaf[64];
        snprintf(leaf, sizeof leaf, "/brig-%s-main", m->instance);
        size_t n = strlen(path), k = strlen(leaf);
        if (n > k && strcmp(path + n - k, leaf) == 0)
                path[n - k] = 0;
}

static int v2_open(struct cgroup_manager *m, struct error *e) {
        struct cg_mounts mounts;
        int r = cg_find_mounts(&mounts);
        if (r < 0)
                return error_set(e, r, "find the cgroup mounts");
        leave_leaf(m, mounts.path[CG_GROUP]);
        const char *own = mounts.path[CG_GROUP], *root = mounts.root[CG_GROUP];
        bool in_root = strcmp(own, root) == 0;
        r = open_below(m, own, !in_root);
        if (r < 0 && !in_root)
                r = open_below(m, root, false);
        if (r < 0)
                return error_set(e, r, "make brig-%s in %s", m->instance, own);
        char text[CG_FILE_MAX] = "";
        (void)cg_read(m->dir[CG_GROUP], NULL, "cgroup.subtree_control", text);
        text[strcspn(text, "\n")] = 0;
        snprintf(m->describe, sizeof m->describe, "v2 (%.100s)", text);
        return 0;
}

static int v2_make(struct cgroup *c) {
        if (mkdirat(c->m->dir[CG_GROUP], c->name, 0755) < 0)
                return -errno;
        c->made = 1u << CG_GROUP;
        /* One process over the limit takes the whole set with it. */
        (void)cg_write(c->m->dir[CG_GROUP], c->name, "memory.oom.group", "1");
        return 0;
}

static int write_limit(struct cgroup *c, const char *file, uint64_t value) {
        int dir = c->m->dir[CG_GROUP];
        return value ? cg_write(dir, c->name, file, "%llu", (unsigned long long)value) : cg_write(dir, c->name, file, "max");
}

static int v2_limit(struct cgroup *c, const struct cgroup_limits *l, struct error *e) {
        uint64_t memory = l->memory_bytes ? l->memory_bytes + l->tmpfs_bytes : 0;
        int r = write_limit(c, "memory.max", memory);
        if (r == 0) {
                r = cg_write(c->m->dir[CG_GROUP], c->name, "memory.swap.max", memory ? "0" : "max");
                r = r == -ENOENT ? 0 : r;   /* a kernel without swap accounting, which the facilities table says */
        }
        if (r < 0)
                return error_set(e, r, "limit memory to %llu bytes", (unsigned long long)memory);
        r = write_limit(c, "pids.max", l->pids);
        if (r < 0)
                return error_set(e, r, "limit pids to %llu", (unsigned long long)l->pids);
        if (l->cpu_milli == c->limits.cpu_milli)
                return 0;
        if (l->cpu_milli)
                r = cg_write(c->m->dir[CG_GROUP], c->name, "cpu.max", "%llu %d",
                             (unsigned long long)(l->cpu_milli * (CPU_PERIOD_US / 1000)), CPU_PERIOD_US);
        else
                r = cg_write(c->m->dir[CG_GROUP], c->name, "cpu.max", "max");
        return r < 0 ? error_set(e, r, "limit cpu to %llu/1000", (unsigned long long)l->cpu_milli) : 0;
}

static int v2_attach(struct cgroup *c, pid_t pid) {
        return 0;   /* the grouping hierarchy is all there is */
}

static int v2_arm_oom(struct cgroup *c) {
        char path[64];
        snprintf(path, sizeof path, "%s/memory.events", c->name);
        int fd = openat(c->m->dir[CG_GROUP], path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        c->oom_fd = fd;
        c->m->backend->oom_clear(c);   /* a fresh file polls as changed once */
        return 0;
}

static void v2_oom_clear(struct cgroup *c) {
        char text[512];
        if (c->oom_fd >= 0 && pread(c->oom_fd, text, sizeof text, 0) < 0)
                return;
}

static void v2_events(struct cgroup *c, struct cgroup_events *ret) {
        int dir = c->m->dir[CG_GROUP];
        ret->oom = cg_read_number(dir, c->name, "memory.events", "oom");
        ret->oom_kill = cg_read_number(dir, c->name, "memory.events", "oom_kill");
        ret->pids_max = cg_read_number(dir, c->name, "pids.events", "max");
}

static void v2_usage(struct cgroup *c, struct cgroup_usage *ret) {
        int dir = c->m->dir[CG_GROUP];
        ret->memory_peak_bytes = cg_read_number(dir, c->name, "memory.peak", NULL);
        ret->pids_peak = cg_read_number(dir, c->name, "pids.peak", NULL);
}

static void v2_now(struct cgroup *c, struct cgroup_now *ret) {
        ret->memory_bytes = cg_read_number(c->m->dir[CG_GROUP], c->name, "memory.current", NULL);
        ret->pids = cg_read_number(c->m->dir[CG_GROUP], c->name, "pids.current", NULL);
}

/* What its sockets hold counts as its memory here; v1 has a limit of its own for that. */
static int64_t v2_private_memory(struct cgroup *c) {
        int64_t anon = cg_read_number(c->m->dir[CG_GROUP], c->name, "memory.stat", "anon");
        int64_t sock = cg_read_number(c->m->dir[CG_GROUP], c->name, "memory.stat", "sock");
        return anon < 0 ? anon : anon + MAX2(sock, (int64_t)0);
}

static int64_t v2_shared_memory(struct cgroup *c) {
        return cg_read_number(c->m->dir[CG_GROUP], c->name, "memory.stat", "shmem");
}

const struct cgroup_backend cgroup_backend_v2 = {
        .kind = CGROUP_V2,
        .open = v2_open,
        .make = v2_make,
        .limit = v2_limit,
        .attach = v2_attach,
        .arm_oom = v2_arm_oom,
        .oom_epoll = EPOLLPRI,
        .oom_clear = v2_oom_clear,
        .events = v2_events,
        .usage = v2_usage,
        .now = v2_now,
        .private_memory = v2_private_memory,
        .shared_memory = v2_shared_memory,
};
