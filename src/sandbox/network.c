/* Network `open`; theory of operation in network.h. This file is the life of links; the rules are in network_rules.c. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/network_private.h"

#define RESOLV_MAX 4096

/* ---- configuration ---- */

static int parse_pool(struct network *n, const char *cidr) {
        int r = network_cidr_parse(cidr, &n->pool, &n->prefix);
        if (r < 0 || n->prefix < 12 || n->prefix > 24)
                return -EINVAL;
        n->gateway = htonl(ntohl(n->pool) + 1);
        n->count = MIN2((1u << (32 - n->prefix)) - 3, (uint32_t)LINKS_MAX);   /* without network, gateway, broadcast */
        return 0;
}

static int parse_allow(struct network *n, const char *const *allow, struct error *e) {
        for (; allow && *allow; allow++) {
                uint32_t address;
                unsigned prefix;
                if (n->n_allow == NETWORK_ALLOW_MAX)
                        return error_say(e, -E2BIG, "network: at most %d ranges may be allowed", NETWORK_ALLOW_MAX);
                if (network_cidr_parse(*allow, &address, &prefix) < 0)
                        return error_say(e, -EINVAL, "network: '%.60s' is not an IPv4 range such as 10.1.0.0/16", *allow);
                snprintf(n->allow[n->n_allow++], sizeof n->allow[0], "%.31s", *allow);
        }
        return 0;
}

int network_allow_check(const char *cidr) {
        uint32_t address;
        unsigned prefix;
        return network_cidr_parse(cidr, &address, &prefix);
}

/* Name servers of a resolv.conf; IPv6 ones cannot be reached from a sandbox. */
static void read_resolvers(struct network *n, const char *path) {
        _cleanup_buf_ struct buf b = BUF_INIT(RESOLV_MAX);
        n->n_resolvers = 0;
        if (fs_read_file(AT_FDCWD, path, &b) < 0)
                return;
        char *save = NULL, *text = b.data;
        for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
                char name[32];
                struct in_addr a;
                if (sscanf(line, " nameserver %31s", name) != 1 || inet_pton(AF_INET, name, &a) != 1)
                        continue;
                if (n->n_resolvers < NETWORK_RESOLVERS_MAX)
                        n->resolvers[n->n_resolvers++] = a.s_addr;
        }
}

static bool all_loopback(const struct network *n) {
        for (unsigned i = 0; i < n->n_resolvers; i++)
                if (!network_is_loopback(n->resolvers[i]))
                        return false;
        return true;
}

/* systemd-resolved shows programs a stub on the loopback address and keeps the servers it asks in a file of its own. */
static void find_resolvers(struct network *n, const char *path) {
        read_resolvers(n, path ? path : "/etc/resolv.conf");
        if (path || n->n_resolvers == 0 || !all_loopback(n))
                return;
        const struct network stub = *n;
        read_resolvers(n, "/run/systemd/resolve/resolv.conf");
        if (n->n_resolvers == 0 || all_loopback(n))
                *n = stub;
}

/* ---- sysctls of the host ---- */

static int sysctl_write(const char *path, const char *value) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fs_write_all(fd, value, strlen(value));
}

static int sysctl_link(const char *family, const char *link, const char *key, const char *value) {
        char path[128];
        snprintf(path, sizeof path, "/proc/sys/net/%s/conf/%s/%s", family, link, key);
        return sysctl_write(path, value);
}

static int forwarding_on(struct network *n) {
        char now = 0;
        _cleanup_close_ int fd = open(FORWARD_PATH, O_RDWR | O_CLOEXEC);
        if (fd < 0 || pread(fd, &now, 1, 0) != 1)
                return -errno;
        n->turned_forwarding_on = now == '0';
        return now == '0' && pwrite(fd, "1", 1, 0) < 0 ? -errno : 0;
}

/* ---- names ---- */

static void link_prefix(const char *instance, char ret[static 13]) { snprintf(ret, 13, "brig%.8s", instance); }

static void link_name(const struct network *n, uint32_t number, char ret[static IFNAMSIZ]) {
        static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
        char text[LINK_DIGITS + 1] = "";
        for (int i = LINK_DIGITS; i-- > 0; number /= 36)
                text[i] = digits[number % 36];
        snprintf(ret, IFNAMSIZ, "%s%s", n->prefix_name, text);
}

static bool is_link_of(const char *name, const char *prefix) {
        size_t n = strlen(prefix);
        return strncmp(name, prefix, n) == 0 && strlen(name) == n + LINK_DIGITS && strspn(name + n, "0123456789abcdefghijklmnopqrstuvwxyz") == LINK_DIGITS;
}

/* ---- life ---- */

int network_open(const struct network_config *cfg, struct network **ret, struct error *e) {
        struct network *n = calloc(1, sizeof *n);
        if (!n)
                return error_set(e, -ENOMEM, "open the network");
        snprintf(n->instance, sizeof n->instance, "%s", cfg->instance);
        link_prefix(cfg->instance, n->prefix_name);
        int r = parse_pool(n, cfg->pool ? cfg->pool : NETWORK_POOL);
        if (r < 0)
                error_say(e, r, "network: the pool must be an IPv4 range from /12 to /24");
        if (r == 0)
                r = parse_allow(n, cfg->allow, e);
        if (r == 0) {
                find_resolvers(n, cfg->resolv_conf);
                r = network_sweep(cfg->instance, e);
        }
        if (r >= 0) {
                r = netlink_open(&n->netlink);
                if (r < 0)
                        error_set(e, r, "open rtnetlink");
        }
        if (r == 0) {
                r = forwarding_on(n);
                if (r < 0)
                        error_set(e, r, "turn IPv4 forwarding on");
        }
        if (r == 0)
                r = network_rules_add(n, e);
        if (r < 0) {
                network_close(n);
                return r;
        }
        *ret = n;
        return 0;
}

void network_close(struct network *n) {
        if (!n)
                return;
        if (n->remover > 0)
                (void)waitpid(n->remover, NULL, 0);
        if (n->netlink)
                (void)network_sweep(n->instance, NULL);
        netlink_close(n->netlink);
        free(n);
}

/* ---- links ---- */

struct inside { uint32_t address, gateway; };

/* In the sandbox's namespace. */
static int set_up_inside(const struct inside *in) {
        struct netlink *nl = NULL;
        int r = netlink_open(&nl);
        if (r < 0)
                return r;
        int index = netlink_link_index(nl, "eth0");
        r = index < 0 ? index : netlink_address_add(nl, index, in->address, 0);
        /* Only IPv4 is carried; with IPv6 on the link programs would try it first and wait. */
        if (r == 0)
                (void)sysctl_link("ipv6", "eth0", "disable_ipv6", "1");
        if (r == 0)
                r = netlink_link_up(nl, index);
        if (r == 0)
                r = netlink_default_route(nl, index, in->gateway);
        netlink_close(nl);
        return r;
}

static int in_namespace(int netns_fd, const struct inside *in) {
        _cleanup_close_ int host = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        if (host < 0 || setns(netns_fd, CLONE_NEWNET) < 0)
                return -errno;
        int r = set_up_inside(in);
        ASSERT(setns(host, CLONE_NEWNET) == 0);   /* or the spawner would work on in a sandbox's namespace */
        return r;
}

static int set_up_host_end(struct network *n, const char *name, int index, uint32_t address) {
        int r = sysctl_link("ipv6", name, "disable_ipv6", "1");
        if (r == -ENOENT)
                r = 0;   /* no IPv6 in this kernel */
        /* Replies to loopback resolvers are translated; everything else for 127/8 is dropped by the rules. */
        if (r == 0 && n->stub)
                r = sysctl_link("ipv4", name, "route_localnet", "1");
        if (r == 0)
                r = netlink_address_add(n->netlink, index, n->gateway, address);
        return r == 0 ? netlink_link_up(n->netlink, index) : r;
}

static uint32_t next_address(struct network *n, uint32_t *ret_number) {
        uint32_t number = n->next++ % n->count;
        *ret_number = number;
        return htonl(ntohl(n->pool) + 2 + number);
}

int network_attach(struct network *n, int netns_fd, struct network_link *ret, struct error *e) {
        struct network_link l = { 0 };
        char name[IFNAMSIZ];
        int r = -EEXIST;
        /* Numbers go round; one that a living sandbox still has is passed over. */
        for (uint32_t tries = 0; r == -EEXIST && tries < n->count; tries++) {
                l.address = next_address(n, &l.number);
                link_name(n, l.number, name);
                r = netlink_veth_make(n->netlink, name, "eth0", netns_fd);
        }
        if (r < 0)
                return error_set(e, r, "make the link of a sandbox");
        l.index = netlink_link_index(n->netlink, name);
        r = l.index < 0 ? l.index : set_up_host_end(n, name, l.index, l.address);
        if (r == 0) {
                const struct inside in = { .address = l.address, .gateway = n->gateway };
                r = in_namespace(netns_fd, &in);
        }
        if (r == 0)
                r = netlink_link_sync(n->netlink, l.index);
        if (r < 0) {
                (void)netlink_link_delete(n->netlink, l.index);
                return error_set(e, r, "set up the link %s", name);
        }
        *ret = l;
        return 0;
}

/* Removing a link waits for grace periods (33 ms measured), so a short-lived process does it, one at a time. */
static int start_remover(struct network *n, int index) {
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0) {
                /* Nothing of the spawner may live longer because of this: not a mount, not a lock. */
                (void)close_range(3, ~0u, 0);
                struct netlink *nl = NULL;
                int r = netlink_open(&nl);
                _exit(r == 0 && netlink_link_delete(nl, index) == 0 ? 0 : 1);
        }
        n->remover = pid;
        return 0;
}

int network_detach(struct network *n, const struct network_link *l) {
        if (n->remover > 0 && waitpid(n->remover, NULL, WNOHANG) != 0)
                n->remover = 0;
        if (l->index <= 0)
                return 0;
        int r = netlink_link_sync(n->netlink, l->index);
        if (r == -ENODEV)
                return 0;
        if (r == 0 && n->remover == 0)
                r = start_remover(n, l->index);
        return r < 0 ? r : -EBUSY;
}

int network_resolv_conf(const struct network *n, struct buf *b) {
        bool gateway_named = false;
        int r = 0;
        for (unsigned i = 0; i < n->n_resolvers && r == 0; i++) {
                bool local = network_is_loopback(n->resolvers[i]);
                if (local && gateway_named)
                        continue;
                gateway_named |= local;
                struct in_addr a = { .s_addr = local ? n->gateway : n->resolvers[i] };
                char text[INET_ADDRSTRLEN];
                r = buf_printf(b, "nameserver %s\n", inet_ntop(AF_INET, &a, text, sizeof text));
        }
        return r;
}

int network_sweep(const char *instance, struct error *e) {
        char prefix[13];
        link_prefix(instance, prefix);
        struct if_nameindex *all = if_nameindex();
        if (!all)
                return error_set(e, -errno, "list the links");
        struct netlink *nl = NULL;
        int n = 0, r = netlink_open(&nl);
        for (struct if_nameindex *i = all; r == 0 && i->if_index; i++) {
                if (!is_link_of(i->if_name, prefix))
                        continue;
                r = netlink_link_delete(nl, (int)i->if_index);
                r = r == -ENODEV ? 0 : r;
                n++;
        }
        netlink_close(nl);
        if_freenameindex(all);
        if (r < 0)
                return error_set(e, r, "remove left-over links %s*", prefix);
        /* Without a table there is nothing to remove, and no program to run for it. */
        bool was_off;
        r = network_rules_remove(instance, &was_off);
        /* Another instance may have come to rely on forwarding: then it stays on. */
        if (r == 0 && was_off && !network_rules_others())
                (void)sysctl_write(FORWARD_PATH, "0");
        return r < 0 ? error_set(e, r, "remove the left-over nft table") : n;
}
