/* The nft table of network `open`: written once, matches links by name. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/network_private.h"

#define RULES_MAX (64 * 1024)
#define FORWARDING_WAS_OFF "forwarding_was_off"        /* a chain without rules: a note for who removes the table, see network_rules_remove */

int network_cidr_parse(const char *s, uint32_t *ret_address, unsigned *ret_prefix) {
        char text[20];
        struct in_addr a;
        const char *slash = strchr(s, '/');
        size_t n = slash ? (size_t)(slash - s) : strlen(s);
        if (n >= sizeof text)
                return -EINVAL;
        memcpy(text, s, n);
        text[n] = 0;
        unsigned long prefix = 32;
        if (slash) {
                char *end;
                if (slash[1] < '0' || slash[1] > '9')
                        return -EINVAL;
                prefix = strtoul(slash + 1, &end, 10);
                if (*end || prefix > 32)
                        return -EINVAL;
        }
        if (inet_pton(AF_INET, text, &a) != 1)
                return -EINVAL;
        uint32_t mask = prefix == 0 ? 0 : htonl(~0u << (32 - prefix));
        if (a.s_addr & ~mask)
                return -EINVAL;   /* host bits: a typing mistake that would allow more than meant */
        *ret_address = a.s_addr;
        *ret_prefix = (unsigned)prefix;
        return 0;
}

bool network_is_loopback(uint32_t address) {
        return ntohl(address) >> 24 == 127;
}

/* ---- rules ---- */

/* What is nobody's business outside: this network, private, shared, loopback, link-local (metadata services), protocol
 * assignments, documentation, benchmarks, 6to4 relays, multicast, reserved. */
#define DENIED "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, " \
               "192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4, 240.0.0.0/4"

static void add_resolver_rules(struct network *n, struct buf *b, bool local) {
        for (unsigned i = 0; i < n->n_resolvers; i++) {
                struct in_addr a = { .s_addr = n->resolvers[i] };
                char text[INET_ADDRSTRLEN];
                inet_ntop(AF_INET, &a, text, sizeof text);
                if (local && network_is_loopback(a.s_addr))
                        buf_printf(b, "    ct status dnat ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n", text);
                else if (!network_is_loopback(a.s_addr))
                        buf_printf(b, "    ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n", text);
        }
}

static void add_allowed(struct network *n, struct buf *b) {
        for (unsigned i = 0; i < n->n_allow; i++)
                buf_printf(b, "    ip daddr %s accept\n", n->allow[i]);
}

/* Only the address that the sandbox was given may speak: the route back to it leads through its own link. */
static void add_source_rules(struct network *n, struct buf *b) {
        buf_adds(b, "    meta nfproto ipv6 drop\n"
                    "    fib saddr . iif oif missing drop\n");
}

static void add_translation(struct network *n, struct buf *b) {
        char pool[INET_ADDRSTRLEN], gateway[INET_ADDRSTRLEN];
        struct in_addr p = { .s_addr = n->pool }, g = { .s_addr = n->gateway };
        inet_ntop(AF_INET, &p, pool, sizeof pool);
        inet_ntop(AF_INET, &g, gateway, sizeof gateway);
        buf_printf(b, "  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n"
                      "    ip saddr %s/%u oifname != \"brig*\" masquerade\n  }\n", pool, n->prefix);
        for (unsigned i = 0; i < n->n_resolvers; i++) {
                if (!network_is_loopback(n->resolvers[i]))
                        continue;
                struct in_addr a = { .s_addr = n->resolvers[i] };
                char text[INET_ADDRSTRLEN];
                inet_ntop(AF_INET, &a, text, sizeof text);
                buf_printf(b, "  chain prerouting {\n    type nat hook prerouting priority dstnat; policy accept;\n"
                              "    iifname \"%s*\" ip daddr %s meta l4proto { tcp, udp } th dport 53 dnat ip to %s\n  }\n",
                           n->prefix_name, gateway, text);
                n->stub = true;
                return;   /* one gateway address, one stub */
        }
}

static void write_rules(struct network *n, struct buf *b) {
        const char *links = n->prefix_name;
        buf_printf(b, "table inet brig_%s {\n", n->instance);
        buf_printf(b, "  chain input {\n    type filter hook input priority filter - 10; policy accept;\n"
                      "    iifname \"%s*\" jump to_host\n  }\n"
                      "  chain to_host {\n", links);
        add_source_rules(n, b);
        buf_adds(b, "    ct state established,related ct direction reply accept\n");
        add_resolver_rules(n, b, true);
        add_allowed(n, b);
        buf_adds(b, "    drop\n  }\n");
        buf_printf(b, "  chain forward {\n    type filter hook forward priority filter - 10; policy accept;\n"
                      "    iifname \"%s*\" jump outward\n"
                      "    oifname \"%s*\" jump inward\n", links, links);
        /* We made a router of this machine; it routes for nobody else. */
        if (n->turned_forwarding_on)
                buf_adds(b, "    iifname != \"brig*\" oifname != \"brig*\" drop\n  }\n  chain " FORWARDING_WAS_OFF " {\n");
        buf_adds(b, "  }\n  chain inward {\n    ct state established,related ct direction reply accept\n    drop\n  }\n"
                    "  chain outward {\n");
        add_source_rules(n, b);
        buf_adds(b, "    oifname \"brig*\" drop\n    ct state invalid drop\n");
        add_resolver_rules(n, b, false);
        add_allowed(n, b);
        buf_adds(b, "    ip daddr { " DENIED " } drop\n    accept\n  }\n");
        add_translation(n, b);
        buf_adds(b, "}\n");
}

/* ---- running nft ---- */

/* `text` reaches it as standard input. 0, or -EIO with the first line of what it said. */
static int run_nft(const char *text, size_t n, struct error *e) {
        _cleanup_close_ int in = fs_memfd("brig-nft", text, n);
        _cleanup_close_ int said = memfd_create("brig-nft-says", MFD_CLOEXEC);
        if (in < 0 || said < 0)
                return error_set(e, in < 0 ? in : -errno, "memfd");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, said, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
        pid_t pid;
        int r = -posix_spawn(&pid, NFT_PATH, &actions, NULL, (char *[]){ (char *)"nft", (char *)"-f", (char *)"-", NULL }, (char *[]){ NULL });
        posix_spawn_file_actions_destroy(&actions);
        if (r < 0)
                return error_set(e, r, "run %s", NFT_PATH);
        int status = 0;
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return error_set(e, -errno, "wait for nft");
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        char what[256] = "";
        ssize_t got = pread(said, what, sizeof what - 1, 0);
        what[MAX2(got, 0)] = 0;
        what[strcspn(what, "\n")] = 0;
        return error_say(e, -EIO, "nft: %s", what[0] ? what : "failed");
}

int network_rules_add(struct network *n, struct error *e) {
        _cleanup_buf_ struct buf b = BUF_INIT(RULES_MAX);
        write_rules(n, &b);
        return run_nft(buf_str(&b), b.len, e);
}

/* ---- tables by netlink: asked at every start, so without starting a program ---- */

struct nft_head { struct nlmsghdr head; struct nfgenmsg gen; };
struct nft_names { struct nft_head h; char attrs[2 * (NLA_HDRLEN + 40)]; };    /* cut behind the last name */
#define NFT_MESSAGE(m) (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | (m))

static struct nft_head nft_message(uint16_t type, uint16_t flags, uint8_t family, uint32_t seq) {
        return (struct nft_head){
                .head = { .nlmsg_len = sizeof(struct nft_head), .nlmsg_type = type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags), .nlmsg_seq = seq },
                .gen = { .nfgen_family = family },
        };
}

static int read_ack(int fd, uint32_t seq) {
        char buf[8192] __attribute__((aligned(8)));
        for (;;) {
                ssize_t n = recv(fd, buf, sizeof buf, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                size_t left = (size_t)n;
                for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
                        if (h->nlmsg_type == NLMSG_ERROR && (h->nlmsg_seq == seq || ((struct nlmsgerr *)NLMSG_DATA(h))->error < 0))
                                return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
        }
}

static void add_name(struct nft_names *q, uint16_t type, const char *name) {
        size_t n = strlen(name) + 1, at = q->h.head.nlmsg_len;
        ASSERT(at + NLA_HDRLEN + NLA_ALIGN(n) <= sizeof *q);
        const struct nlattr attr = { .nla_len = (uint16_t)(NLA_HDRLEN + n), .nla_type = type };
        memcpy((char *)q + at, &attr, sizeof attr);
        memcpy((char *)q + at + NLA_HDRLEN, name, n);
        q->h.head.nlmsg_len += (uint32_t)(NLA_HDRLEN + NLA_ALIGN(n));
}

/* Did the process that made the table turn forwarding on? */
static bool forwarding_was_off(int fd, const char *table) {
        struct nft_names q = { .h = nft_message(NFT_MESSAGE(NFT_MSG_GETCHAIN), NLM_F_ACK, NFPROTO_INET, 4) };
        add_name(&q, NFTA_CHAIN_TABLE, table);
        add_name(&q, NFTA_CHAIN_NAME, FORWARDING_WAS_OFF);
        return send(fd, &q, q.h.head.nlmsg_len, 0) > 0 && read_ack(fd, 4) == 0;
}

int network_rules_remove(const char *instance, bool *ret_was_off) {
        char name[40];
        snprintf(name, sizeof name, "brig_%.32s", instance);
        *ret_was_off = false;
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
        if (fd < 0)
                return errno == EPROTONOSUPPORT ? 0 : -errno;   /* no netfilter: no table */
        struct nft_head begin = nft_message(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, 1), end = nft_message(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, 3);
        begin.gen.res_id = end.gen.res_id = htons(NFNL_SUBSYS_NFTABLES);
        struct nft_names q = { .h = nft_message(NFT_MESSAGE(NFT_MSG_DELTABLE), NLM_F_ACK, NFPROTO_INET, 2) };
        add_name(&q, NFTA_TABLE_NAME, name);
        bool was_off = forwarding_was_off(fd, name);
        struct iovec parts[] = { { &begin, sizeof begin }, { &q, q.h.head.nlmsg_len }, { &end, sizeof end } };
        if (writev(fd, parts, ARRAY_SIZE(parts)) < 0)
                return -errno;
        int r = read_ack(fd, 2);
        if (r == 0)
                *ret_was_off = was_off;
        return r == -ENOENT || r == -EOPNOTSUPP || r == -EAFNOSUPPORT ? 0 : r;
}

bool network_rules_others(void) {
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
        struct nft_head q = nft_message(NFT_MESSAGE(NFT_MSG_GETTABLE), NLM_F_DUMP, NFPROTO_INET, 1);
        if (fd < 0 || send(fd, &q, sizeof q, 0) < 0)
                return true;   /* unknown: leave the machine as it is */
        char buf[16384] __attribute__((aligned(8)));
        for (;;) {
                ssize_t n = recv(fd, buf, sizeof buf, 0);
                if (n < 0)
                        return true;
                size_t left = (size_t)n;
                for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
                        if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
                                return false;
                        if (memmem(h, h->nlmsg_len, "brig_", 5))
                                return true;
                }
        }
}
