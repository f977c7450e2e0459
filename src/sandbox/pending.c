/* Stand-ins, weak, for confinement modules that are being written: each disappears by itself when the real function is
 * linked. This file goes away with the last of them. */
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "sandbox/cgroup.h"
#include "sandbox/confine.h"
#include "sandbox/idrange.h"
#include "sandbox/netns.h"
#include "sandbox/network.h"
#include "sandbox/seccomp.h"

#define WEAK __attribute__((weak))

WEAK int idrange_allocator_open(uint32_t base, const char *lock_file, struct idrange_allocator **ret, struct error *e) { static uint32_t next; next = base; *ret = (void *)&next; return 0; }
WEAK void idrange_allocator_close(struct idrange_allocator *a) { }
WEAK int idrange_take(struct idrange_allocator *a, uint32_t *ret_first, struct error *e) { *ret_first = *(uint32_t *)a += IDRANGE_SIZE; return 0; }
WEAK void idrange_give(struct idrange_allocator *a, uint32_t first) { }
WEAK uint32_t idrange_store(const struct idrange_allocator *a) { return 0x40000000u; }

WEAK int cgroup_manager_open(const char *instance, struct cgroup_manager **ret, struct error *e) { *ret = NULL; return 0; }
WEAK void cgroup_manager_close(struct cgroup_manager *m) { }
WEAK const char *cgroup_manager_describe(const struct cgroup_manager *m) { return "none"; }
WEAK int cgroup_pool_fill(struct cgroup_manager *m, unsigned want, unsigned most) { return 0; }
WEAK int cgroup_take(struct cgroup_manager *m, struct cgroup **ret, struct error *e) { return -EOPNOTSUPP; }
WEAK int cgroup_set_limits(struct cgroup *c, const struct cgroup_limits *l, struct error *e) { return -EOPNOTSUPP; }
WEAK int cgroup_sub_make(struct cgroup *c, const char *name, int *ret_fd) { return -EOPNOTSUPP; }
WEAK int cgroup_attach(struct cgroup *c, int sub_fd, pid_t pid, bool cloned_in) { return -EOPNOTSUPP; }
WEAK int cgroup_sub_kill(int sub_fd) { return -EOPNOTSUPP; }
WEAK int cgroup_sub_remove(struct cgroup *c, const char *name) { return -EOPNOTSUPP; }
WEAK int cgroup_kill(struct cgroup *c) { return -EOPNOTSUPP; }
WEAK int cgroup_oom_fd(struct cgroup *c, uint32_t *ret_epoll) { return -1; }
WEAK void cgroup_oom_clear(struct cgroup *c) { }
WEAK void cgroup_read_events(struct cgroup *c, struct cgroup_events *ret) { }
WEAK void cgroup_read_usage(struct cgroup *c, struct cgroup_usage *ret) { }
WEAK int cgroup_destroy(struct cgroup *c) { return 0; }

WEAK int netns_pool_open(struct netns_pool **ret, struct error *e) { *ret = NULL; return 0; }
WEAK void netns_pool_close(struct netns_pool *p) { }
WEAK int netns_pool_fill(struct netns_pool *p, unsigned want, unsigned most) { return 0; }
WEAK int netns_take(struct netns_pool *p, int *ret_fd, struct error *e) {
        int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (host < 0 || unshare(CLONE_NEWNET) < 0)
                return error_set(e, -errno, "make a network namespace");
        int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };
        int r = fd < 0 || s < 0 || ioctl(s, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
        fd_close(s);
        if (setns(host, CLONE_NEWNET) < 0)
                abort();
        fd_close(host);
        *ret_fd = fd;
        return r < 0 ? error_set(e, r, "raise the loopback link") : 0;
}

WEAK uint64_t confine_profile_caps(enum sandbox_profile profile) { return 0; }
WEAK void confine_plan_init(enum sandbox_profile profile, bool helper, uint64_t open_files, struct confine_plan *ret, bool *ret_capped) { *ret = (struct confine_plan){ .nofile = { open_files, open_files }, .landlock_fd = -1 }; *ret_capped = false; }
WEAK int confine_rlimits(const struct confine_plan *p) { return setrlimit(RLIMIT_NOFILE, &p->nofile) < 0 || setrlimit(RLIMIT_CORE, &p->core) < 0 ? -errno : 0; }
WEAK int confine_landlock(const struct confine_plan *p) { return 0; }
WEAK int confine_bounding(const struct confine_plan *p) { return 0; }
WEAK int confine_privileges(const struct confine_plan *p, uint32_t uid) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0; }
WEAK int seccomp_init(struct error *e) { return 0; }
WEAK const struct sock_fprog *seccomp_program(enum seccomp_kind kind) { return NULL; }
WEAK int seccomp_install(const struct sock_fprog *prog) { return 0; }

WEAK int network_open(const struct network_config *cfg, struct network **ret, struct error *e) { return error_set(e, -EOPNOTSUPP, "network"); }
WEAK void network_close(struct network *n) { }
WEAK int network_attach(struct network *n, int netns_fd, struct network_link *ret, struct error *e) { return -EOPNOTSUPP; }
WEAK int network_detach(struct network *n, const struct network_link *l) { return 0; }
WEAK int network_resolv_conf(const struct network *n, struct buf *b) { return 0; }
WEAK int network_sweep(const char *instance, struct error *e) { return 0; }
