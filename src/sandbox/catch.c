#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "egress/egress.h"
#include "sandbox/catch.h"
#include "sandbox/netlink.h"

#define BACKLOG 512
#define SELF_V6 "fd62:7269:6700::2"        /* never seen outside: the source of connections to IPv6 addresses */
#define DNS_BUFFER (256 * 1024)            /* bytes of questions that wait */

enum { SLOT_TCP, SLOT_UDP, SLOT_MAX };

/* ---- the program ---- */

static int bpf(int command, union bpf_attr *a) { return (int)syscall(SYS_bpf, command, a, sizeof *a); }

#define INSN(code_, dst, src, off_, imm_) { .code = (code_), .dst_reg = (dst), .src_reg = (src), .off = (off_), .imm = (imm_) }
#define MOVE(dst, src) INSN(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0)
#define MOVE_IMM(dst, imm_) INSN(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm_)
#define LOAD(dst, member) INSN(BPF_LDX | BPF_MEM | BPF_W, dst, BPF_REG_6, offsetof(struct bpf_sk_lookup, member), 0)
#define JUMP_IF(op, reg, imm_, off_) INSN(BPF_JMP | (op) | BPF_K, reg, 0, off_, imm_)
#define JUMP(off_) INSN(BPF_JMP | BPF_JA, 0, 0, off_, 0)
#define CALL(function) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, function)

/* In C:
 *
 *     if (ctx->family == AF_INET ? (ctx->local_ip4 & 0xff) == 127 : ctx->local_ip6 == ::1) return SK_PASS;
 *     if (ctx->protocol == IPPROTO_TCP) slot = SLOT_TCP;
 *     else if (ctx->protocol == IPPROTO_UDP && ctx->family == AF_INET && ctx->local_port == 53) slot = SLOT_UDP;
 *     else return SK_PASS;                                    // as ever: its own sockets, or nobody
 *     sk = bpf_map_lookup_elem(&map, &slot);
 *     if (!sk) return SK_DROP;
 *     bpf_sk_assign(ctx, sk, BPF_SK_LOOKUP_F_REPLACE);
 *     bpf_sk_release(sk);
 *     return SK_PASS;
 */
static int load(int map) {
        const struct bpf_insn code[] = {
                /*  0 */ MOVE(BPF_REG_6, BPF_REG_1),
                /*  1 */ LOAD(BPF_REG_8, family),
                /*  2 */ JUMP_IF(BPF_JNE, BPF_REG_8, AF_INET, 4),
                /*  3 */ LOAD(BPF_REG_2, local_ip4),
                /*  4 */ INSN(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_2, 0, 0, 0xff),
                /*  5 */ JUMP_IF(BPF_JEQ, BPF_REG_2, 127, 34),
                /*  6 */ JUMP(8),
                /*  7 */ LOAD(BPF_REG_2, local_ip6[0]),
                /*  8 */ JUMP_IF(BPF_JNE, BPF_REG_2, 0, 6),
                /*  9 */ LOAD(BPF_REG_2, local_ip6[1]),
                /* 10 */ JUMP_IF(BPF_JNE, BPF_REG_2, 0, 4),
                /* 11 */ LOAD(BPF_REG_2, local_ip6[2]),
                /* 12 */ JUMP_IF(BPF_JNE, BPF_REG_2, 0, 2),
                /* 13 */ LOAD(BPF_REG_2, local_ip6[3]),
                /* 14 */ JUMP_IF(BPF_JEQ, BPF_REG_2, 0x01000000, 25),      /* the bytes 0 0 0 1 */
                /* 15 */ LOAD(BPF_REG_2, protocol),
                /* 16 */ MOVE_IMM(BPF_REG_3, SLOT_TCP),
                /* 17 */ JUMP_IF(BPF_JEQ, BPF_REG_2, IPPROTO_TCP, 5),
                /* 18 */ JUMP_IF(BPF_JNE, BPF_REG_2, IPPROTO_UDP, 21),
                /* 19 */ JUMP_IF(BPF_JNE, BPF_REG_8, AF_INET, 20),
                /* 20 */ LOAD(BPF_REG_2, local_port),
                /* 21 */ JUMP_IF(BPF_JNE, BPF_REG_2, 53, 18),
                /* 22 */ MOVE_IMM(BPF_REG_3, SLOT_UDP),
                /* 23 */ INSN(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, BPF_REG_3, -4, 0),
                /* 24 */ INSN(BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
                /* 25 */ INSN(0, 0, 0, 0, 0),
                /* 26 */ MOVE(BPF_REG_2, BPF_REG_10),
                /* 27 */ INSN(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4),
                /* 28 */ CALL(BPF_FUNC_map_lookup_elem),
                /* 29 */ JUMP_IF(BPF_JNE, BPF_REG_0, 0, 2),
                /* 30 */ MOVE_IMM(BPF_REG_0, SK_DROP),
                /* 31 */ JUMP(9),
                /* 32 */ MOVE(BPF_REG_7, BPF_REG_0),
                /* 33 */ MOVE(BPF_REG_1, BPF_REG_6),
                /* 34 */ MOVE(BPF_REG_2, BPF_REG_7),
                /* 35 */ MOVE_IMM(BPF_REG_3, BPF_SK_LOOKUP_F_REPLACE),
                /* 36 */ CALL(BPF_FUNC_sk_assign),
                /* 37 */ MOVE(BPF_REG_1, BPF_REG_7),
                /* 38 */ CALL(BPF_FUNC_sk_release),
                /* 39 */ JUMP(0),
                /* 40 */ MOVE_IMM(BPF_REG_0, SK_PASS),
                /* 41 */ INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        };
        union bpf_attr a;
        memset(&a, 0, sizeof a);
        a.prog_type = BPF_PROG_TYPE_SK_LOOKUP;
        a.expected_attach_type = BPF_SK_LOOKUP;
        a.insns = (uint64_t)(uintptr_t)code;
        a.insn_cnt = ARRAY_SIZE(code);
        a.license = (uint64_t)(uintptr_t)"Apache-2.0";
        int fd = bpf(BPF_PROG_LOAD, &a);
        return fd < 0 ? -errno : fd;
}

static int make_map(void) {
        union bpf_attr a;
        memset(&a, 0, sizeof a);
        a.map_type = BPF_MAP_TYPE_SOCKMAP;
        a.key_size = sizeof(uint32_t);
        a.value_size = sizeof(uint64_t);
        a.max_entries = SLOT_MAX;
        int fd = bpf(BPF_MAP_CREATE, &a);
        return fd < 0 ? -errno : fd;
}

static int put_socket(int map, uint32_t slot, int socket) {
        uint64_t value = (uint64_t)socket;
        union bpf_attr a;
        memset(&a, 0, sizeof a);
        a.map_fd = (uint32_t)map;
        a.key = (uint64_t)(uintptr_t)&slot;
        a.value = (uint64_t)(uintptr_t)&value;
        return bpf(BPF_MAP_UPDATE_ELEM, &a) < 0 ? -errno : 0;
}

static int attach(struct catch *c, int netns_fd) {
        _cleanup_close_ int map = make_map();
        if (map < 0)
                return map;
        int r = put_socket(map, SLOT_TCP, c->tcp);
        if (r == 0)
                r = put_socket(map, SLOT_UDP, c->udp);
        if (r < 0)
                return r;
        _cleanup_close_ int program = load(map);
        if (program < 0)
                return program;
        union bpf_attr a;
        memset(&a, 0, sizeof a);
        a.link_create.prog_fd = (uint32_t)program;
        a.link_create.target_fd = (uint32_t)netns_fd;
        a.link_create.attach_type = BPF_SK_LOOKUP;
        c->link = bpf(BPF_LINK_CREATE, &a);
        return c->link < 0 ? -errno : 0;
}

int catch_probe(void) {
        _cleanup_close_ int map = make_map();
        if (map < 0)
                return map;
        _cleanup_close_ int program = load(map);
        return MIN2(program, 0);
}

/* ---- in the namespace ---- */

static int write_sysctl(const char *path, const char *value) {
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fs_write_all(fd, value, strlen(value));
}

static int make_all_local(bool *ret_v6) {
        struct netlink *nl = NULL;
        struct in_addr self;
        struct in6_addr self6;
        inet_pton(AF_INET, EGRESS_SELF, &self);
        inet_pton(AF_INET6, SELF_V6, &self6);
        int r = netlink_open(&nl);
        int lo = r < 0 ? r : netlink_link_index(nl, "lo");
        r = lo < 0 ? lo : netlink_address_add(nl, lo, self.s_addr, 0);
        if (r == 0)
                r = netlink_all_local(nl, lo, self.s_addr);
        *ret_v6 = false;
        if (r == 0 && netlink_address6_add(nl, lo, &self6) == 0)       /* else this kernel has no IPv6 */
                *ret_v6 = (r = netlink_all_local6(nl, lo)) == 0;
        netlink_close(nl);
        /* The kernel would answer for every address there is. */
        if (r == 0)
                r = write_sysctl("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
        if (r == 0 && *ret_v6)
                (void)write_sysctl("/proc/sys/net/ipv6/icmp/echo_ignore_all", "1");
        return r;
}

static int option(int fd, int level, int name, int value) {
        return setsockopt(fd, level, name, &value, sizeof value) < 0 ? -errno : 0;
}

/* Bound where programs inside have nothing to bind to: they keep all their ports at the addresses that they use. Datagrams leave
 * from the port that a socket is bound to, so that one is the port of DNS. */
static int open_socket(int type) {
        _cleanup_close_ int fd = socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(type == SOCK_STREAM ? 1 : 53) };
        inet_pton(AF_INET6, "::ffff:" EGRESS_RESOLVER, &at.sin6_addr);
        int r = option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        /* It answers as whoever was asked. */
        if (r == 0)
                r = option(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1);
        if (r == 0)
                r = option(fd, IPPROTO_IP, IP_TRANSPARENT, 1);
        if (r == 0 && type == SOCK_DGRAM)
                r = option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
        if (r == 0 && type == SOCK_DGRAM)
                r = option(fd, SOL_SOCKET, SO_RCVBUF, DNS_BUFFER);
        if (r == 0 && bind(fd, (struct sockaddr *)&at, sizeof at) < 0)
                r = -errno;
        if (r == 0 && type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
                r = -errno;
        return r < 0 ? r : TAKE_FD(fd);
}

static int open_inside(struct catch *c, struct error *e) {
        bool v6;
        int r = make_all_local(&v6);
        if (r < 0)
                return error_set(e, r, "make every address local");
        c->tcp = open_socket(SOCK_STREAM);
        c->udp = c->tcp < 0 ? -1 : open_socket(SOCK_DGRAM);
        r = c->tcp < 0 ? c->tcp : c->udp < 0 ? c->udp : 0;
        return r < 0 ? error_set(e, r, "open the sockets of a network") : 0;
}

int catch_open(int netns_fd, struct catch *ret, struct error *e) {
        struct catch c = { -1, -1, -1 };
        _cleanup_close_ int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        if (own < 0 || setns(netns_fd, CLONE_NEWNET) < 0)
                return error_set(e, -errno, "enter the network namespace");
        int r = open_inside(&c, e);
        ASSERT(setns(own, CLONE_NEWNET) == 0);     /* or the spawner would work on in a sandbox's namespace */
        if (r == 0) {
                r = attach(&c, netns_fd);
                if (r < 0)
                        error_set(e, r, "lead connections to the daemon");
        }
        if (r < 0) {
                catch_close(&c);
                return r;
        }
        *ret = c;
        return 0;
}

void catch_close(struct catch *c) {
        c->tcp = fd_close(c->tcp);
        c->udp = fd_close(c->udp);
        c->link = fd_close(c->link);
}
