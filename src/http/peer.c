/* Which user is at the other end of a local connection: the second line against code that runs in a sandbox and yet reaches the
 * listener. The kernel is asked by NETLINK_SOCK_DIAG for exactly the peer's socket. An answer that cannot be trusted is a refusal:
 * a socket whose owner has closed it (no inode) is shown as root's. */
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "http/internal.h"

union address { struct sockaddr sa; struct sockaddr_in v4; struct sockaddr_in6 v6; struct sockaddr_storage any; };

static int ask(int fd, const union address *peer, const union address *local, uint32_t *ret_uid) {
        struct { struct nlmsghdr h; struct inet_diag_req_v2 q; } m = {
                .h = { .nlmsg_len = sizeof m, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
                .q = { .sdiag_family = (uint8_t)peer->sa.sa_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u,
                       .id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } },
        };
        if (peer->sa.sa_family == AF_INET) {
                m.q.id.idiag_sport = peer->v4.sin_port;
                m.q.id.idiag_dport = local->v4.sin_port;
                m.q.id.idiag_src[0] = peer->v4.sin_addr.s_addr;
                m.q.id.idiag_dst[0] = local->v4.sin_addr.s_addr;
        } else {
                m.q.id.idiag_sport = peer->v6.sin6_port;
                m.q.id.idiag_dport = local->v6.sin6_port;
                memcpy(m.q.id.idiag_src, &peer->v6.sin6_addr, 16);
                memcpy(m.q.id.idiag_dst, &local->v6.sin6_addr, 16);
        }
        struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
        if (sendto(fd, &m, sizeof m, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
                return -errno;
        union { struct nlmsghdr h; char room[4096]; } a;
        ssize_t n = recv(fd, &a, sizeof a, MSG_DONTWAIT);      /* the kernel answers within sendto */
        if (n < 0)
                return -errno;
        if ((size_t)n >= NLMSG_LENGTH(sizeof(struct nlmsgerr)) && a.h.nlmsg_type == NLMSG_ERROR)
                return ((struct nlmsgerr *)NLMSG_DATA(&a.h))->error;
        if ((size_t)n < NLMSG_LENGTH(sizeof(struct inet_diag_msg)) || a.h.nlmsg_type != SOCK_DIAG_BY_FAMILY)
                return -EBADMSG;
        const struct inet_diag_msg *found = NLMSG_DATA(&a.h);
        if (found->idiag_inode == 0)
                return -ENOENT;
        *ret_uid = found->idiag_uid;
        return 0;
}

int peer_open(void) {
        _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
        if (fd < 0)
                return -errno;
        /* A question with a known answer: no such connection exists. */
        union address nobody = { .v4 = { .sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
        uint32_t uid;
        int r = ask(fd, &nobody, &nobody, &uid);
        if (r != -ENOENT)
                return r < 0 ? r : -EBADMSG;
        return TAKE_FD(fd);
}

static bool in_range(const struct http_server *s, uint32_t uid) {
        return uid - s->cfg.deny_uid_first < s->cfg.deny_uid_count;
}

static bool same_machine(const union address *peer, const union address *local) {
        if (peer->sa.sa_family == AF_INET)
                return ntohl(peer->v4.sin_addr.s_addr) >> 24 == 127 || peer->v4.sin_addr.s_addr == local->v4.sin_addr.s_addr;
        return memcmp(&peer->v6.sin6_addr, &local->v6.sin6_addr, 16) == 0;      /* ::1 speaks to ::1 */
}

bool peer_denied(const struct http_server *s, const struct conn *c) {
        uv_os_fd_t fd;
        uint32_t uid;
        if (s->cfg.deny_uid_count == 0 || uv_fileno(&c->h.handle, &fd) < 0)
                return false;
        if (s->unix_path) {
                struct ucred who;
                socklen_t n = sizeof who;
                return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || in_range(s, who.uid);
        }
        if (s->diag_fd < 0)
                return false;
        union address peer, local;
        socklen_t n = sizeof peer, m = sizeof local;
        if (getpeername(fd, &peer.sa, &n) < 0 || getsockname(fd, &local.sa, &m) < 0)
                return true;    /* gone already */
        if (!same_machine(&peer, &local))
                return false;
        return ask(s->diag_fd, &peer, &local, &uid) < 0 || in_range(s, uid);
}
