#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "sandbox/netlink.h"

struct netlink { int fd; uint32_t seq; };

struct request {
        struct nlmsghdr head;
        char body[1024 - sizeof(struct nlmsghdr)];
};

int netlink_open(struct netlink **ret) {
        struct netlink *nl = calloc(1, sizeof *nl);
        if (!nl)
                return -ENOMEM;
        nl->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
        if (nl->fd < 0) {
                int r = -errno;
                free(nl);
                return r;
        }
        *ret = nl;
        return 0;
}

void netlink_close(struct netlink *nl) {
        if (!nl)
                return;
        fd_close(nl->fd);
        free(nl);
}

/* ---- building ---- */

static void *request_add(struct request *r, const void *p, size_t n) {
        ASSERT(r->head.nlmsg_len + NLMSG_ALIGN(n) <= sizeof *r);
        char *at = (char *)r + r->head.nlmsg_len;
        memset(at, 0, NLMSG_ALIGN(n));
        if (p && n)
                memcpy(at, p, n);
        r->head.nlmsg_len += (uint32_t)NLMSG_ALIGN(n);
        return at;
}

static struct rtattr *attr_add(struct request *r, uint16_t type, const void *p, size_t n) {
        struct rtattr head = { .rta_len = (uint16_t)RTA_LENGTH(n), .rta_type = type };
        struct rtattr *at = request_add(r, &head, sizeof head);
        request_add(r, p, n);
        return at;
}

static void attr_end(struct request *r, struct rtattr *nest) {
        nest->rta_len = (uint16_t)((char *)r + r->head.nlmsg_len - (char *)nest);
}

static void request_init(struct request *r, uint16_t type, uint16_t flags, const void *p, size_t n) {
        r->head = (struct nlmsghdr){ .nlmsg_len = NLMSG_HDRLEN, .nlmsg_type = type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags) };
        request_add(r, p, n);
}

/* Sends, then reads until the acknowledgement; an answer before it is copied to `answer` (may be NULL). */
static int transact(struct netlink *nl, struct request *r, void *answer, size_t answer_size) {
        r->head.nlmsg_seq = ++nl->seq;
        while (send(nl->fd, r, r->head.nlmsg_len, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        char buf[8192] __attribute__((aligned(NLMSG_ALIGNTO)));
        for (;;) {
                ssize_t n = recv(nl->fd, buf, sizeof buf, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                size_t left = (size_t)n;
                for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
                        if (h->nlmsg_seq != nl->seq)
                                continue;
                        if (h->nlmsg_type == NLMSG_ERROR)
                                return ((struct nlmsgerr *)NLMSG_DATA(h))->error;
                        if (answer)
                                memcpy(answer, NLMSG_DATA(h), MIN2(answer_size, (size_t)h->nlmsg_len - NLMSG_HDRLEN));
                }
        }
}

/* ---- requests ---- */

int netlink_veth_make(struct netlink *nl, const char *name, const char *peer, int peer_netns) {
        struct request r;
        struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
        request_init(&r, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
        attr_add(&r, IFLA_IFNAME, name, strlen(name) + 1);
        struct rtattr *linkinfo = attr_add(&r, IFLA_LINKINFO, NULL, 0);
        attr_add(&r, IFLA_INFO_KIND, "veth", 4);
        struct rtattr *data = attr_add(&r, IFLA_INFO_DATA, NULL, 0);
        struct rtattr *other = attr_add(&r, VETH_INFO_PEER, NULL, 0);
        request_add(&r, &info, sizeof info);
        attr_add(&r, IFLA_IFNAME, peer, strlen(peer) + 1);
        if (peer_netns >= 0)
                attr_add(&r, IFLA_NET_NS_FD, &peer_netns, sizeof peer_netns);
        attr_end(&r, other);
        attr_end(&r, data);
        attr_end(&r, linkinfo);
        return transact(nl, &r, NULL, 0);
}

int netlink_link_index(struct netlink *nl, const char *name) {
        struct request r;
        struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
        request_init(&r, RTM_GETLINK, 0, &info, sizeof info);
        attr_add(&r, IFLA_IFNAME, name, strlen(name) + 1);
        struct ifinfomsg answer = { 0 };
        int e = transact(nl, &r, &answer, sizeof answer);
        return e < 0 ? e : answer.ifi_index;
}

int netlink_link_up(struct netlink *nl, int index) {
        struct request r;
        struct ifinfomsg info = { .ifi_family = AF_UNSPEC, .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
        request_init(&r, RTM_NEWLINK, 0, &info, sizeof info);
        return transact(nl, &r, NULL, 0);
}

int netlink_link_sync(struct netlink *nl, int index) {
        struct request r;
        struct ifinfomsg info = { .ifi_family = AF_UNSPEC, .ifi_index = index };
        request_init(&r, RTM_GETLINK, 0, &info, sizeof info);
        return transact(nl, &r, NULL, 0);
}

int netlink_link_delete(struct netlink *nl, int index) {
        struct request r;
        struct ifinfomsg info = { .ifi_family = AF_UNSPEC, .ifi_index = index };
        request_init(&r, RTM_DELLINK, 0, &info, sizeof info);
        return transact(nl, &r, NULL, 0);
}

int netlink_address_add(struct netlink *nl, int index, uint32_t address, uint32_t peer) {
        struct request r;
        struct ifaddrmsg info = { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_scope = RT_SCOPE_UNIVERSE, .ifa_index = (uint32_t)index };
        request_init(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
        attr_add(&r, IFA_LOCAL, &address, sizeof address);
        uint32_t far = peer ? peer : address;
        attr_add(&r, IFA_ADDRESS, &far, sizeof far);
        return transact(nl, &r, NULL, 0);
}

int netlink_default_route(struct netlink *nl, int index, uint32_t gateway) {
        struct request r;
        struct rtmsg info = {
                .rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_UNIVERSE,
                .rtm_type = RTN_UNICAST, .rtm_flags = RTNH_F_ONLINK,
        };
        request_init(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
        attr_add(&r, RTA_GATEWAY, &gateway, sizeof gateway);
        attr_add(&r, RTA_OIF, &index, sizeof index);
        return transact(nl, &r, NULL, 0);
}

static void local_route(struct request *r, uint8_t family, const int *index) {
        struct rtmsg info = {
                .rtm_family = family, .rtm_table = RT_TABLE_LOCAL, .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL,
        };
        request_init(r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
        attr_add(r, RTA_OIF, index, sizeof *index);
}

int netlink_all_local(struct netlink *nl, int index, uint32_t source) {
        struct request r;
        local_route(&r, AF_INET, &index);
        attr_add(&r, RTA_PREFSRC, &source, sizeof source);
        return transact(nl, &r, NULL, 0);
}

int netlink_all_local6(struct netlink *nl, int index) {
        struct request r;
        local_route(&r, AF_INET6, &index);
        return transact(nl, &r, NULL, 0);
}

int netlink_address6_add(struct netlink *nl, int index, const struct in6_addr *address) {
        struct request r;
        struct ifaddrmsg info = { .ifa_family = AF_INET6, .ifa_prefixlen = 128, .ifa_flags = IFA_F_NODAD, .ifa_scope = RT_SCOPE_UNIVERSE, .ifa_index = (uint32_t)index };
        request_init(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
        attr_add(&r, IFA_LOCAL, address, sizeof *address);
        return transact(nl, &r, NULL, 0);
}
