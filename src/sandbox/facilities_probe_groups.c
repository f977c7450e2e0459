/* Probes of cgroups and of the network. Each runs in a child process: see run_probe in facilities.c. */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/hash.h"
#include "sandbox/cgroup_backend.h"
#include "sandbox/facilities_probe.h"
#include "sandbox/catch.h"
#include "sandbox/netlink.h"

/* ---- cgroups ---- */

struct probe_group { char path[320]; int fd; };

static int group_make(const char *parent, struct probe_group *g) {
        /* Not the process's number: the spawner's namespace begins anew with 2 in every daemon, so two that start at once would
         * take each other's group for a refusal, and one that was left by a crash would be in the way for ever. */
        uint64_t salt = 0;
        random_bytes(&salt, sizeof salt);
        snprintf(g->path, sizeof g->path, "%s/brig-probe-%016llx", parent, (unsigned long long)salt);
        if (mkdir(g->path, 0755) < 0) {
                int r = -errno;
                g->path[0] = 0;        /* not ours to remove */
                return r;
        }
        g->fd = open(g->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return g->fd < 0 ? -errno : 0;
}

static void group_remove(struct probe_group *g) {
        g->fd = fd_close(g->fd);
        if (g->path[0])
                rmdir(g->path);
}

static void probe_file(struct facilities *f, enum facility which, const struct probe_group *g, const char *file) {
        bool there = g->fd >= 0 && faccessat(g->fd, file, F_OK, 0) == 0;
        facility_set(f, which, there ? FACILITY_OK : FACILITY_MISSING, 0, there ? "%s" : "no %s", file);
}

/* A group that is killed stays deadly: a clone into one whose kill count differs from the parent's own is born killed. So it is
 * below a spawner whose ancestor was once killed, which nothing but a throw-away clone shows. */
static void probe_clone_into(struct facilities *f, int dir) {
        struct clone_args args = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)dir };
        long pid = syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0)
                _exit(0);
        int status = 0;
        if (pid < 0)
                facility_tried(f, FACILITY_CLONE_INTO_CGROUP, -errno, "clone3");
        else if (waitpid((pid_t)pid, &status, 0) < 0 || !WIFEXITED(status))
                facility_set(f, FACILITY_CLONE_INTO_CGROUP, FACILITY_MISSING, 0, "a child is born killed: a group above was once killed");
        else
                facility_tried(f, FACILITY_CLONE_INTO_CGROUP, 0, "clone3");
}

static void probe_group_tree(struct facilities *f, const struct cg_mounts *m) {
        struct probe_group g = { .fd = -1 };
        int r = m->path[CG_GROUP][0] ? group_make(m->path[CG_GROUP], &g) : -ENOENT;
        if (r < 0) {
                facility_tried(f, FACILITY_CLONE_INTO_CGROUP, r, "make a group in the v2 tree");
                facility_tried(f, FACILITY_CGROUP_KILL, r, "make a group in the v2 tree");
        } else {
                probe_clone_into(f, g.fd);
                probe_file(f, FACILITY_CGROUP_KILL, &g, "cgroup.kill");
        }
        group_remove(&g);
}

static void probe_hybrid(struct facilities *f, const struct cg_mounts *m) {
        struct probe_group memory = { .fd = -1 }, pids = { .fd = -1 }, cpu = { .fd = -1 };
        int r = group_make(m->path[CG_MEMORY], &memory);
        if (r == 0)
                r = group_make(m->path[CG_PIDS], &pids);
        if (r == 0)
                facility_set(f, FACILITY_CGROUP, m->path[CG_GROUP][0] ? FACILITY_OK : FACILITY_DEGRADED, CGROUP_HYBRID, "%s",
                             m->path[CG_GROUP][0] ? "hybrid: v1 controllers beside a v2 tree" : "v1 only: an exec cannot be killed alone");
        else
                facility_tried(f, FACILITY_CGROUP, r, "make a group in the memory and pids hierarchies");
        probe_file(f, FACILITY_MEMORY_PEAK, &memory, "memory.max_usage_in_bytes");
        probe_file(f, FACILITY_SWAP_LIMIT, &memory, "memory.memsw.limit_in_bytes");
        probe_file(f, FACILITY_PIDS_PEAK, &pids, "pids.peak");
        if (m->path[CG_CPU][0])
                (void)group_make(m->path[CG_CPU], &cpu);
        probe_file(f, FACILITY_CPU_QUOTA, &cpu, "cpu.cfs_quota_us");
        group_remove(&cpu);
        group_remove(&pids);
        group_remove(&memory);
}

/* Groups show their controllers' files only where the parent hands them down; the root of the mount may always do that, our own
 * group only after everybody in it moved to a leaf, which a probe must not do. */
static void probe_v2(struct facilities *f, const struct cg_mounts *m) {
        (void)cg_write(AT_FDCWD, m->root[CG_GROUP], "cgroup.subtree_control", "+memory +pids");
        (void)cg_write(AT_FDCWD, m->root[CG_GROUP], "cgroup.subtree_control", "+cpu");
        struct probe_group g = { .fd = -1 };
        int r = group_make(m->root[CG_GROUP], &g);
        if (r == 0 && faccessat(g.fd, "memory.max", F_OK, 0) < 0)
                r = -errno;
        if (r == 0)
                facility_set(f, FACILITY_CGROUP, FACILITY_OK, CGROUP_V2, "v2");
        else
                facility_tried(f, FACILITY_CGROUP, r, "make a group with the memory controller");
        probe_file(f, FACILITY_MEMORY_PEAK, &g, "memory.peak");
        probe_file(f, FACILITY_SWAP_LIMIT, &g, "memory.swap.max");
        probe_file(f, FACILITY_PIDS_PEAK, &g, "pids.peak");
        probe_file(f, FACILITY_CPU_QUOTA, &g, "cpu.max");
        group_remove(&g);
}

void facilities_probe_cgroups(struct facilities *f) {
        struct cg_mounts m = { 0 };
        int r = cg_find_mounts(&m);
        probe_group_tree(f, &m);
        if (r == 0 && m.kind == CGROUP_HYBRID)
                probe_hybrid(f, &m);
        else if (r == 0 && m.kind == CGROUP_V2)
                probe_v2(f, &m);
        else
                facility_set(f, FACILITY_CGROUP, FACILITY_MISSING, CGROUP_NONE, "no memory and pids controllers are mounted");
}

/* ---- network ---- */

#define NFT_PROBE "add table inet brig_probe; add chain inet brig_probe c { type nat hook postrouting priority 100; }; " \
                  "add rule inet brig_probe c ip saddr 100.96.0.0/16 oifname != \"brig*\" masquerade"

static int try_nft(void) {
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                int null = open("/dev/null", O_RDWR | O_CLOEXEC);
                dup2(null, STDOUT_FILENO);
                dup2(null, STDERR_FILENO);
                execle(NFT_PATH, "nft", NFT_PROBE, (char *)NULL, (char *[]){ NULL });
                _exit(errno == ENOENT ? 127 : 126);
        }
        int status = 0;
        if (waitpid(pid, &status, 0) < 0)
                return -errno;
        if (!WIFEXITED(status) || WEXITSTATUS(status) == 126)
                return -EACCES;
        return WEXITSTATUS(status) == 0 ? 0 : WEXITSTATUS(status) == 127 ? -ENOENT : -EOPNOTSUPP;
}

void facilities_probe_network(struct facilities *f) {
        int r = unshare(CLONE_NEWNET) < 0 ? -errno : 0;
        facility_tried(f, FACILITY_NET_NS, r, "unshare the network");
        if (r < 0) {
                facility_tried(f, FACILITY_VETH, r, "unshare the network");
                facility_tried(f, FACILITY_NFT, r, "unshare the network");
                return;
        }
        facility_tried(f, FACILITY_SK_LOOKUP, catch_probe(), "load a program of the type sk_lookup");
        struct netlink *nl = NULL;
        r = netlink_open(&nl);
        if (r == 0)
                r = netlink_veth_make(nl, "brig-probe", "brig-peer", -1);
        netlink_close(nl);
        facility_tried(f, FACILITY_VETH, r, "make a veth pair");
        facility_tried(f, FACILITY_NFT, try_nft(), NFT_PATH);
}
