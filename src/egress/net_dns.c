/* Questions of sandboxes: read from the socket that was opened in the namespace, answered at once and from nowhere else. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "egress/internal.h"

#define TTL_S 30               /* of an address that means a name: programs ask again, and see new rules */
#define PER_TURN 32            /* questions answered before others of the loop have their turn */
#define PAUSE_MS 20            /* of a sandbox that asks too much */

size_t net_dns_answer(struct egress_net *n, const uint8_t *question, size_t len, uint8_t *out) {
        struct dns_question q;
        struct egress_address a;
        int rcode = DNS_OK, r = dns_read_question(question, len, &q, &rcode);
        if (r == -EBADMSG)
                return 0;
        n->counters.questions++;
        if (r < 0)
                return dns_write_answer(question, &q, rcode, NULL, 0, out);
        int reason = q.name[0] ? policy_name(&n->egress->policy, n->rules, q.name, 0) : REASON_NOT_ALLOWED;
        if (reason >= 0) {
                net_denied(n, (enum egress_reason)reason, q.name[0] ? q.name : "?", 0, NULL);
                return dns_write_answer(question, &q, DNS_NXDOMAIN, NULL, 0, out);
        }
        /* Of an allowed name everything but its IPv4 address is said not to exist: then programs take that. */
        if (q.type != DNS_TYPE_A && q.type != DNS_TYPE_ANY)
                return dns_write_answer(question, &q, DNS_OK, NULL, 0, out);
        if (names_address(&n->names, q.name, &a) < 0)
                return dns_write_answer(question, &q, DNS_SERVFAIL, NULL, 0, out);
        return dns_write_answer(question, &q, DNS_OK, a.b, TTL_S, out);
}

/* The answer leaves from the address that was asked, whichever that was. */
static void reply(struct egress_net *n, struct msghdr *m, const uint8_t *out, size_t len) {
        struct iovec v = { .iov_base = (void *)(uintptr_t)out, .iov_len = len };
        m->msg_iov = &v;
        m->msg_flags = 0;
        (void)sendmsg(n->dns_fd, m, MSG_DONTWAIT | MSG_NOSIGNAL);      /* a full socket is the asker's own */
}

/* 1: answered or passed over; 0: nothing there. */
static int answer_one(struct egress_net *n) {
        uint8_t question[DNS_QUERY_MAX + 1], out[DNS_QUERY_MAX + 16];
        char control[256] __attribute__((aligned(8)));
        struct sockaddr_in6 from;
        struct iovec v = { .iov_base = question, .iov_len = sizeof question };
        struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        ssize_t got = recvmsg(n->dns_fd, &m, MSG_DONTWAIT);
        if (got < 0)
                return errno == EINTR || errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH;
        size_t len = net_dns_answer(n, question, (size_t)got, out);
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
                if (c->cmsg_level != IPPROTO_IPV6 || c->cmsg_type != IPV6_PKTINFO)
                        continue;
                struct in6_pktinfo info;
                memcpy(&info, CMSG_DATA(c), sizeof info);
                info.ipi6_ifindex = 0;
                m.msg_control = control;
                m.msg_controllen = CMSG_SPACE(sizeof info);
                struct cmsghdr *first = CMSG_FIRSTHDR(&m);
                *first = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO };
                memcpy(CMSG_DATA(first), &info, sizeof info);
                if (len > 0)
                        reply(n, &m, out, len);
                return 1;
        }
        return 1;
}

static void on_dns(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *t) {
        struct egress_net *n = t->data;
        uv_poll_start(&n->dns, UV_READABLE, on_dns);
}

bool net_dns_may_ask(struct egress_net *n) {
        uint64_t now = now_ms();
        if (now >= n->questions_since + 1000) {
                n->questions_since = now;
                n->questions = 0;
        }
        return n->questions < EGRESS_QUESTIONS_PER_S;
}

static void on_dns(uv_poll_t *poll, int status, int events) {
        struct egress_net *n = poll->data;
        (void)net_dns_may_ask(n);
        for (int i = 0; i < PER_TURN && n->questions < EGRESS_QUESTIONS_PER_S && answer_one(n); i++)
                n->questions++;
        if (n->questions < EGRESS_QUESTIONS_PER_S && status == 0)
                return;
        uv_poll_stop(&n->dns);
        uv_timer_start(&n->dns_pause, on_pause_over, PAUSE_MS, 0);
}

int net_dns_start(struct egress_net *n) { return uv_poll_start(&n->dns, UV_READABLE, on_dns); }
