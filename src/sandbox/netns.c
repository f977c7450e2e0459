#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

#include "base/fs.h"
#include "sandbox/mounts.h"
#include "sandbox/netns.h"

/* The kernel keeps a name of /proc/sys/net for each namespace it was looked up in, all in one chain of its cache: at a thousand
 * namespaces each look-up would walk all of them. A mount of our own has names of its own. */
#define PROC_USES 16

struct netns_pool {
        int host;                    /* the namespace to come back to */
        int proc;                    /* a mount of proc, or -1 */
        unsigned proc_uses;
        int fds[NETNS_POOL_MAX];
        unsigned n;
};

int netns_pool_open(struct netns_pool **ret, struct error *e) {
        struct netns_pool *p = calloc(1, sizeof *p);
        if (!p)
                return error_set(e, -ENOMEM, "open the network namespaces");
        p->proc = -1;
        p->host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (p->host < 0) {
                int r = -errno;
                free(p);
                return error_set(e, r, "open our network namespace");
        }
        *ret = p;
        return 0;
}

void netns_pool_close(struct netns_pool *p) {
        if (!p)
                return;
        for (unsigned i = 0; i < p->n; i++)
                fd_close(p->fds[i]);
        fd_close(p->proc);
        fd_close(p->host);
        free(p);
}

static int fresh_proc(struct netns_pool *p) {
        if (p->proc < 0 || p->proc_uses >= PROC_USES) {
                fd_close(p->proc);
                p->proc_uses = 0;
                p->proc = mount_new("proc", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
        }
        p->proc_uses++;
        return MIN2(p->proc, 0);
}

static int write_sysctl(int dir, const char *name, const char *value) {
        _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return fs_write_all(fd, value, strlen(value));
}

/* Runs in the new namespace. */
static int set_up(struct netns_pool *p) {
        _cleanup_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (s < 0)
                return -errno;
        struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
        if (ioctl(s, SIOCSIFFLAGS, &lo) < 0)
                return -errno;
        /* The namespace is the host's, so CAP_NET_BIND_SERVICE inside would not count. Ping sockets are a comfort: without
         * them `ping` needs a capability that sandboxes do not have. */
        int r = fresh_proc(p);
        _cleanup_close_ int dir = r < 0 ? -1 : openat(p->proc, "sys/net/ipv4", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r == 0)
                r = dir < 0 ? -errno : write_sysctl(dir, "ip_unprivileged_port_start", "0");
        if (r == 0)
                (void)write_sysctl(dir, "ping_group_range", "0 2147483647");
        return r;
}

static int make(struct netns_pool *p, int *ret_fd) {
        if (unshare(CLONE_NEWNET) < 0)
                return -errno;
        int r = set_up(p);
        _cleanup_close_ int fd = r == 0 ? open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC) : -1;
        if (r == 0 && fd < 0)
                r = -errno;
        /* Not coming back would run the spawner in a namespace that is about to be a sandbox's. */
        ASSERT(setns(p->host, CLONE_NEWNET) == 0);
        if (r == 0)
                *ret_fd = TAKE_FD(fd);
        return r;
}

int netns_pool_fill(struct netns_pool *p, unsigned want, unsigned most) {
        want = MIN2(want, (unsigned)NETNS_POOL_MAX);
        for (; p->n < want && most > 0; most--) {
                int r = make(p, &p->fds[p->n]);
                if (r < 0)
                        return r;
                p->n++;
        }
        return p->n < want ? (int)(want - p->n) : 0;
}

int netns_take(struct netns_pool *p, int *ret_fd, struct error *e) {
        if (p->n > 0) {
                *ret_fd = p->fds[--p->n];
                return 0;
        }
        int r = make(p, ret_fd);
        return r < 0 ? error_set(e, r, "make a network namespace") : 0;
}

int netns_socket(struct netns_pool *p, int netns_fd, int family, int *ret_fd) {
        if (setns(netns_fd, CLONE_NEWNET) < 0)
                return -errno;
        int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r = fd < 0 ? -errno : 0;
        ASSERT(setns(p->host, CLONE_NEWNET) == 0);
        if (r == 0)
                *ret_fd = fd;
        return r;
}
