/* The hybrid backend: controllers in v1 hierarchies, beside a v2 tree without controllers that groups, kills and counts.
 *
 * A child puts itself in with "0" into `tasks`: for the calling thread alone the kernel takes no threadgroup lock, whose
 * first taker after a pause otherwise waits out an RCU grace period (measured: 25 us against up to 9 ms). */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "sandbox/cgroup_backend.h"

#define CPU_PERIOD_US 100000

static int open_parent(const char *path, const char *instance, int *ret) {
        char dir[320];
        snprintf(dir, sizeof dir, "%s/brig-%s", path, instance);
        if (mkdir(dir, 0755) < 0 && errno != EEXIST)
                return -errno;
        int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret = fd;
        return 0;
}

static int hybrid_open(struct cgroup_manager *m, struct error *e) {
        struct cg_mounts mounts;
        int r = cg_find_mounts(&mounts);
        if (r < 0)
                return error_set(e, r, "find the cgroup mounts");
        for (int h = 0; h < CG_HIERARCHY_MAX; h++) {
                if (!mounts.path[h][0])
                        continue;
                r = open_parent(mounts.path[h], m->instance, &m->dir[h]);
                if (r < 0)
                        return error_set(e, r, "make brig-%s in %s", m->instance, mounts.path[h]);
        }
        bool memsw = faccessat(m->dir[CG_MEMORY], "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
        snprintf(m->describe, sizeof m->describe, "hybrid (v1 memory pids%s; v2 tree %s; swap %s)",
                 m->dir[CG_CPU] >= 0 ? " cpu" : "", m->dir[CG_GROUP] >= 0 ? "groups and kills" : "absent",
                 memsw ? "limited" : "not accounted");
        return 0;
}

static int make_in(struct cgroup *c, enum cg_hierarchy h) {
        if (mkdirat(c->m->dir[h], c->name, 0755) < 0)
                return -errno;
        c->made |= 1u << h;
        return 0;
}

static int hybrid_make(struct cgroup *c) {
        int r = make_in(c, CG_MEMORY);
        if (r == 0)
                r = make_in(c, CG_PIDS);
        if (r == 0 && c->m->dir[CG_GROUP] >= 0)
                r = make_in(c, CG_GROUP);
        return r;
}

static int limit_memory(struct cgroup *c, uint64_t bytes) {
        int dir = c->m->dir[CG_MEMORY];
        char value[24] = "-1";
        if (bytes)
                snprintf(value, sizeof value, "%llu", (unsigned long long)bytes);
        int r = cg_write(dir, c->name, "memory.limit_in_bytes", "%s", value);
        if (r == -EINVAL) {   /* raising it above memory+swap: that one first */
                r = cg_write(dir, c->name, "memory.memsw.limit_in_bytes", "%s", value);
                if (r == 0)
                        r = cg_write(dir, c->name, "memory.limit_in_bytes", "%s", value);
        }
        if (r < 0)
                return r;
        /* memory+swap = memory: no swap. ENOENT: swap is not accounted, which the facilities table says. */
        r = cg_write(dir, c->name, "memory.memsw.limit_in_bytes", "%s", value);
        return r == -ENOENT ? 0 : r;
}

/* v1 counts what sockets hold (TCP, UDP) apart, and only where it has a limit: without one, full buffers would take the machine's memory and the
 * share of it that all sockets have together. At the limit buffers stay small and datagrams are dropped; nobody is killed. */
static int limit_sockets(struct cgroup *c, uint64_t memory) {
        char value[24] = "-1";
        if (memory)
                snprintf(value, sizeof value, "%llu", (unsigned long long)MIN2(memory, (uint64_t)CGROUP_SOCKET_BYTES));
        int r = cg_write(c->m->dir[CG_MEMORY], c->name, "memory.kmem.tcp.limit_in_bytes", "%s", value);
        return r == -ENOENT ? 0 : r;   /* a kernel that does not count them */
}

static int hybrid_limit(struct cgroup *c, const struct cgroup_limits *l, struct error *e) {
        uint64_t memory = l->memory_bytes ? l->memory_bytes + l->tmpfs_bytes : 0;
        uint64_t had = c->limits.memory_bytes ? c->limits.memory_bytes + c->limits.tmpfs_bytes : 0;
        int r = memory == had ? 0 : limit_memory(c, memory);
        if (r < 0)
                return error_set(e, r, "limit memory to %llu bytes", (unsigned long long)memory);
        r = memory == had ? 0 : limit_sockets(c, l->memory_bytes);
        if (r < 0)
                return error_set(e, r, "limit the memory of sockets");
        if (l->pids != c->limits.pids) {
                r = l->pids ? cg_write(c->m->dir[CG_PIDS], c->name, "pids.max", "%llu", (unsigned long long)l->pids)
                            : cg_write(c->m->dir[CG_PIDS], c->name, "pids.max", "max");
                if (r < 0)
                        return error_set(e, r, "limit pids to %llu", (unsigned long long)l->pids);
        }
        if (l->cpu_milli == c->limits.cpu_milli)
                return 0;
        if (c->m->dir[CG_CPU] < 0)
                return error_say(e, -EOPNOTSUPP, "limit cpu: no cpu controller is mounted");
        if (!(c->made & 1u << CG_CPU))
                r = make_in(c, CG_CPU);
        if (r == 0)
                r = cg_write(c->m->dir[CG_CPU], c->name, "cpu.cfs_quota_us", "%lld",
                             l->cpu_milli ? (long long)(l->cpu_milli * (CPU_PERIOD_US / 1000)) : -1ll);
        return r < 0 ? error_set(e, r, "limit cpu to %llu/1000", (unsigned long long)l->cpu_milli) : 0;
}

static int hybrid_attach(struct cgroup *c, pid_t pid) {
        for (int h = CG_MEMORY; h < CG_HIERARCHY_MAX; h++) {
                if (!(c->made & 1u << h))
                        continue;
                int r = cg_write(c->m->dir[h], c->name, pid == 0 ? "tasks" : "cgroup.procs", "%d", (int)pid);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int hybrid_arm_oom(struct cgroup *c) {
        char path[64];
        snprintf(path, sizeof path, "%s/memory.oom_control", c->name);
        _cleanup_close_ int control = openat(c->m->dir[CG_MEMORY], path, O_RDONLY | O_CLOEXEC);
        if (control < 0)
                return -errno;
        _cleanup_close_ int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
                return -errno;
        int r = cg_write(c->m->dir[CG_MEMORY], c->name, "cgroup.event_control", "%d %d", fd, control);
        if (r < 0)
                return r;
        c->oom_fd = TAKE_FD(fd);
        return 0;
}

static void hybrid_oom_clear(struct cgroup *c) {
        uint64_t n;
        if (c->oom_fd >= 0 && read(c->oom_fd, &n, sizeof n) == sizeof n)
                c->oom_seen += n;
}

/* Room that a set at its limit may still show: charges come in batches of 64 pages. */
#define LIMIT_SLACK (512 * 1024)

/* failcnt would say it, but some kernels (6.18 here) no longer count it. */
static bool limit_was_reached(struct cgroup *c) {
        if (c->limits.memory_bytes == 0)
                return false;
        int64_t peak = cg_read_number(c->m->dir[CG_MEMORY], c->name, "memory.max_usage_in_bytes", NULL);
        return peak < 0 || (uint64_t)peak + LIMIT_SLACK >= c->limits.memory_bytes + c->limits.tmpfs_bytes;
}

/* The kernel notifies all groups below the one whose limit was reached, and counts in a victim's group also kills for the
 * whole machine. It was this set's own limit if it was notified and had reached it. */
static void hybrid_events(struct cgroup *c, struct cgroup_events *ret) {
        hybrid_oom_clear(c);
        int64_t killed = cg_read_number(c->m->dir[CG_MEMORY], c->name, "memory.oom_control", "oom_kill");
        bool notified = c->oom_seen > 0;
        ret->oom_kill = killed;
        /* The notification comes before the kill. */
        ret->oom = notified && limit_was_reached(c) ? MAX2(killed, 1) : 0;
        ret->pids_max = cg_read_number(c->m->dir[CG_PIDS], c->name, "pids.events", "max");
}

static void hybrid_usage(struct cgroup *c, struct cgroup_usage *ret) {
        ret->memory_peak_bytes = cg_read_number(c->m->dir[CG_MEMORY], c->name, "memory.max_usage_in_bytes", NULL);
        ret->pids_peak = cg_read_number(c->m->dir[CG_PIDS], c->name, "pids.peak", NULL);
}

static void hybrid_now(struct cgroup *c, struct cgroup_now *ret) {
        ret->memory_bytes = cg_read_number(c->m->dir[CG_MEMORY], c->name, "memory.usage_in_bytes", NULL);
        ret->pids = cg_read_number(c->m->dir[CG_PIDS], c->name, "pids.current", NULL);
}

static int64_t hybrid_private_memory(struct cgroup *c) {
        return cg_read_number(c->m->dir[CG_MEMORY], c->name, "memory.stat", "rss");
}

static int64_t hybrid_shared_memory(struct cgroup *c) {
        return cg_read_number(c->m->dir[CG_MEMORY], c->name, "memory.stat", "shmem");
}

const struct cgroup_backend cgroup_backend_hybrid = {
        .kind = CGROUP_HYBRID,
        .open = hybrid_open,
        .make = hybrid_make,
        .limit = hybrid_limit,
        .attach = hybrid_attach,
        .arm_oom = hybrid_arm_oom,
        .oom_epoll = EPOLLIN,
        .oom_clear = hybrid_oom_clear,
        .events = hybrid_events,
        .usage = hybrid_usage,
        .now = hybrid_now,
        .private_memory = hybrid_private_memory,
        .shared_memory = hybrid_shared_memory,
};
