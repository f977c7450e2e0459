/* The policy of network `open`, in namespaces of the test's own:
 *
 *     sandbox a, b  ── veth ──  "host" (this process)  ── wan: 203.0.113.1 | 203.0.113.2 ──  "internet"
 *                                lan 10.9.0.1 and lo                                        also 10.1.0.1, 169.254.169.254, 100.64.0.1
 *
 * Reachable means that a UDP datagram comes back from an echo server: every server answers everything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/netlink.h"
#include "sandbox/netns.h"
#include "sandbox/network_private.h"

#define INSTANCE "test"
#define ECHO_PORT 7007
#define SILENCE_MS 150          /* a refused packet never comes back: the only way to see that is to wait */
#define PATIENCE_MS 20000       /* for one that does come back */
#define AGAIN_MS 50             /* and one that is lost while a link comes up is sent again */

/* Emulated machines are slower: BRIG_TEST_SLOW multiplies the wait. */
static int silence_ms(void) {
        const char *slow = getenv("BRIG_TEST_SLOW");
        long n = slow ? strtol(slow, NULL, 10) : 1;
        return SILENCE_MS * (int)(n >= 1 && n <= 100 ? n : 1);
}

static int host_ns = -1, internet_ns = -1;
static pid_t servers[8];
static unsigned n_servers;
static struct netns_pool *pool;
static struct network *network;

static uint32_t ip(const char *s) {
        struct in_addr a;
        assert_int_equal(inet_pton(AF_INET, s, &a), 1);
        return a.s_addr;
}

static int own_ns(void) {
        return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

static void enter(int ns) {
        assert_int_equal(setns(ns, CLONE_NEWNET), 0);
}

static void add_address(const char *link, const char *address) {
        struct netlink *nl = NULL;
        assert_int_equal(netlink_open(&nl), 0);
        int index = netlink_link_index(nl, link);
        assert_true(index > 0);
        assert_int_equal(netlink_address_add(nl, index, ip(address), 0), 0);
        netlink_close(nl);
}

/* Answers datagrams on `port` of every address of the namespace. */
static void serve(int ns, uint16_t port) {
        int ready[2];
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
                struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
                int s = setns(ns, CLONE_NEWNET) == 0 ? socket(AF_INET, SOCK_DGRAM, 0) : -1, on = 1;
                setsockopt(s, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
                if (bind(s, (void *)&a, sizeof a) < 0 || write(ready[1], "r", 1) != 1)
                        _exit(1);
                for (;;) {   /* the answer leaves from the address that was asked */
                        struct sockaddr_in from;
                        char data[64], control[64];
                        struct iovec v = { data, sizeof data };
                        struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
                        ssize_t n = recvmsg(s, &m, 0);
                        if (n < 0)
                                continue;
                        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
                        if (h)
                                ((struct in_pktinfo *)(void *)CMSG_DATA(h))->ipi_ifindex = 0;
                        v.iov_len = (size_t)n;
                        sendmsg(s, &m, 0);
                }
        }
        char c;
        fd_close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        fd_close(ready[0]);
        servers[n_servers++] = pid;
}

static bool comes_back(int ns, const char *address, uint16_t port, const char *source, int patience_ms) {
        enter(ns);
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = ip(address) };
        bool back = false;
        if (source) {
                struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr.s_addr = ip(source) };
                assert_int_equal(bind(s, (void *)&from, sizeof from), 0);
        }
        for (int left = connect(s, (void *)&to, sizeof to) == 0 ? patience_ms : 0; left > 0 && !back; left -= AGAIN_MS) {
                struct pollfd p = { .fd = s, .events = POLLIN };
                char c[8];
                back = send(s, "hello", 5, 0) == 5 && poll(&p, 1, AGAIN_MS) == 1 && recv(s, c, sizeof c, MSG_DONTWAIT) == 5;
        }
        fd_close(s);
        enter(host_ns);
        return back;
}

static bool reaches_from(int ns, const char *address, uint16_t port, const char *source) {
        return comes_back(ns, address, port, source, PATIENCE_MS);
}

static bool refused_from(int ns, const char *address, uint16_t port, const char *source) {
        return !comes_back(ns, address, port, source, silence_ms());
}

static bool refused(int ns, const char *address) {
        return refused_from(ns, address, ECHO_PORT, NULL);
}

static bool reaches(int ns, const char *address) {
        return reaches_from(ns, address, ECHO_PORT, NULL);
}

static void make_internet(void) {
        struct netlink *nl = NULL;
        assert_int_equal(netns_take(pool, &internet_ns, NULL), 0);
        assert_int_equal(netlink_open(&nl), 0);
        assert_int_equal(netlink_veth_make(nl, "wan", "wan", internet_ns), 0);
        int index = netlink_link_index(nl, "wan");
        assert_int_equal(netlink_address_add(nl, index, ip("203.0.113.1"), ip("203.0.113.2")), 0);
        assert_int_equal(netlink_link_up(nl, index), 0);
        assert_int_equal(netlink_default_route(nl, index, ip("203.0.113.2")), 0);
        netlink_close(nl);
        enter(internet_ns);
        assert_int_equal(netlink_open(&nl), 0);
        index = netlink_link_index(nl, "wan");
        assert_int_equal(netlink_address_add(nl, index, ip("203.0.113.2"), ip("203.0.113.1")), 0);
        assert_int_equal(netlink_link_up(nl, index), 0);
        netlink_close(nl);
        enter(host_ns);
        assert_int_equal(netlink_open(&nl), 0);
        assert_int_equal(netlink_link_sync(nl, netlink_link_index(nl, "wan")), 0);
        netlink_close(nl);
        enter(internet_ns);
        const char *const more[] = { "198.51.100.7", "10.1.0.1", "172.16.5.5", "192.168.3.3", "169.254.169.254", "100.64.0.1", "198.18.0.1", "10.2.0.53" };
        for (size_t i = 0; i < ARRAY_SIZE(more); i++)
                add_address("lo", more[i]);
        enter(host_ns);
}

static int setup_group(void **state) {
        /* A mount namespace too: /proc/sys/net follows the process, but resolv.conf is a file. */
        if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return -1;
        host_ns = own_ns();
        struct netlink *nl = NULL;
        if (netns_pool_open(&pool, NULL) < 0 || netlink_open(&nl) < 0)
                return -1;
        netlink_link_up(nl, netlink_link_index(nl, "lo"));
        netlink_close(nl);
        add_address("lo", "10.9.0.1");
        make_internet();
        serve(internet_ns, ECHO_PORT);
        serve(internet_ns, 53);
        serve(host_ns, ECHO_PORT);
        serve(host_ns, 53);
        return 0;
}

static int teardown_group(void **state) {
        for (unsigned i = 0; i < n_servers; i++) {
                kill(servers[i], SIGKILL);
                waitpid(servers[i], NULL, 0);
        }
        netns_pool_close(pool);
        fd_close(internet_ns);
        fd_close(host_ns);
        return 0;
}

static void open_with(const char *resolv, const char *const *allow) {
        char path[] = "/tmp/brig-resolv-XXXXXX";
        int fd = mkstemp(path);
        assert_int_equal(fs_write_all(fd, resolv, strlen(resolv)), 0);
        fd_close(fd);
        const struct network_config cfg = { .instance = INSTANCE, .allow = allow, .resolv_conf = path };
        struct error e = { 0 };
        if (network_open(&cfg, &network, &e) < 0)
                fail_msg("%s", e.text);
        unlink(path);
}

static int open_sandbox(struct network_link *ret) {
        int ns = -1;
        struct error e = { 0 };
        assert_int_equal(netns_take(pool, &ns, NULL), 0);
        if (network_attach(network, ns, ret, &e) < 0)
                fail_msg("%s", e.text);
        return ns;
}

static void detach(const struct network_link *l) {
        int r = -EBUSY;
        for (uint64_t end = now_ms() + 60000; r == -EBUSY && now_ms() < end; sched_yield())
                r = network_detach(network, l);
        assert_int_equal(r, 0);
}

static void close_sandbox(int ns, const struct network_link *l) {
        detach(l);
        fd_close(ns);
}

static bool link_exists(int index) {
        char name[IF_NAMESIZE];
        return if_indextoname((unsigned)index, name) != NULL;
}

static void the_internet_is_reached_and_the_rest_is_not(void **state) {
        struct network_link l;
        open_with("nameserver 203.0.113.2\n", NULL);
        int ns = open_sandbox(&l);
        assert_true(reaches(ns, "203.0.113.2"));
        assert_true(reaches(ns, "198.51.100.7"));
        const char *const denied[] = {
                "203.0.113.1" /* the host itself */, "10.9.0.1" /* and its other address */, "100.96.0.1" /* the gateway */,
                "10.1.0.1", "172.16.5.5", "192.168.3.3", "169.254.169.254", "100.64.0.1", "198.18.0.1",
        };
        for (size_t i = 0; i < ARRAY_SIZE(denied); i++) {
                if (!reaches(host_ns, denied[i]))
                        fail_msg("the test itself cannot reach %s", denied[i]);
                if (!refused(ns, denied[i]))
                        fail_msg("%s was reached", denied[i]);
        }
        close_sandbox(ns, &l);
        network_close(network);
}

static void the_hosts_loopback_is_not_reached(void **state) {
        struct network_link l;
        open_with("", NULL);
        int ns = open_sandbox(&l);
        assert_true(reaches(host_ns, "127.0.0.1"));
        assert_true(refused(ns, "127.0.0.1"));
        close_sandbox(ns, &l);
        network_close(network);
}

static void sandboxes_do_not_reach_each_other(void **state) {
        struct network_link a, b;
        open_with("", NULL);
        int ns_a = open_sandbox(&a), ns_b = open_sandbox(&b);
        assert_int_not_equal(a.address, b.address);
        serve(ns_b, ECHO_PORT);
        char address[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &b.address, address, sizeof address);
        assert_true(reaches(host_ns, address));
        assert_true(refused(ns_a, address));
        kill(servers[--n_servers], SIGKILL);
        waitpid(servers[n_servers], NULL, 0);
        close_sandbox(ns_a, &a);
        close_sandbox(ns_b, &b);
        network_close(network);
}

static void what_the_operator_names_is_reached(void **state) {
        struct network_link l;
        open_with("", (const char *const[]){ "10.1.0.0/16", "10.9.0.1", NULL });
        int ns = open_sandbox(&l);
        assert_true(reaches(ns, "10.1.0.1"));
        assert_true(reaches(ns, "10.9.0.1"));
        assert_true(refused(ns, "172.16.5.5"));
        close_sandbox(ns, &l);
        network_close(network);
}

static void a_private_resolver_is_reached_on_its_port_alone(void **state) {
        struct network_link l;
        open_with("nameserver 10.2.0.53\n", NULL);
        int ns = open_sandbox(&l);
        assert_true(reaches_from(ns, "10.2.0.53", 53, NULL));
        assert_true(refused(ns, "10.2.0.53"));
        assert_true(refused_from(ns, "10.1.0.1", 53, NULL));
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        assert_int_equal(network_resolv_conf(network, &b), 0);
        assert_string_equal(buf_str(&b), "nameserver 10.2.0.53\n");
        close_sandbox(ns, &l);
        network_close(network);
}

static void a_loopback_resolver_is_reached_through_the_gateway(void **state) {
        struct network_link l;
        open_with("options edns0\nnameserver 127.0.0.53\nnameserver ::1\n", NULL);
        int ns = open_sandbox(&l);
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        assert_int_equal(network_resolv_conf(network, &b), 0);
        assert_string_equal(buf_str(&b), "nameserver 100.96.0.1\n");
        assert_true(reaches_from(ns, "100.96.0.1", 53, NULL));
        assert_true(refused(ns, "100.96.0.1"));
        assert_true(refused_from(ns, "203.0.113.1", 53, NULL));
        close_sandbox(ns, &l);
        network_close(network);
}

/* Root inside cannot configure links; were that to fail, a stolen address must still be of no use. */
static void a_false_source_address_is_dropped(void **state) {
        struct network_link l;
        open_with("", NULL);
        int ns = open_sandbox(&l);
        enter(ns);
        add_address("eth0", "203.0.113.77");
        enter(host_ns);
        assert_true(refused_from(ns, "203.0.113.2", ECHO_PORT, "203.0.113.77"));
        assert_true(reaches(ns, "203.0.113.2"));
        close_sandbox(ns, &l);
        network_close(network);
}

static void ipv6_is_off_on_the_link_and_on_for_loopback(void **state) {
        struct network_link l;
        open_with("", NULL);
        int ns = open_sandbox(&l);
        enter(ns);
        char c = 0;
        int fd = open("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", O_RDONLY | O_CLOEXEC);
        assert_true(read(fd, &c, 1) == 1 && c == '1');
        fd_close(fd);
        int s = socket(AF_INET6, SOCK_DGRAM, 0);
        struct sockaddr_in6 lo = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        assert_int_equal(bind(s, (void *)&lo, sizeof lo), 0);
        fd_close(s);
        enter(host_ns);
        close_sandbox(ns, &l);
        network_close(network);
}

static char forwarding(void) {
        char c = 0;
        int fd = open(FORWARD_PATH, O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, &c, 1), 1);
        fd_close(fd);
        return c;
}

static void set_forwarding(const char *to) {
        int fd = open(FORWARD_PATH, O_WRONLY | O_CLOEXEC);
        assert_int_equal(write(fd, to, 1), 1);
        fd_close(fd);
}

static void closing_leaves_the_host_as_it_was(void **state) {
        struct network_link l;
        /* Another instance may be at work on this machine. */
        const char before = forwarding();
        const bool others = network_rules_others();
        open_with("", NULL);
        assert_int_equal(forwarding(), '1');
        assert_true(network_rules_others());
        int ns = open_sandbox(&l);
        assert_true(link_exists(l.index));
        assert_int_equal(network_detach(network, &l), -EBUSY);
        detach(&l);
        assert_false(link_exists(l.index));
        assert_int_equal(network_detach(network, &l), 0);
        fd_close(ns);
        network_close(network);
        assert_int_equal(forwarding(), before);
        assert_int_equal(network_rules_others(), others);
}

static void the_sweep_takes_links_and_table_of_its_instance_only(void **state) {
        struct network_link l;
        open_with("", NULL);
        int ns = open_sandbox(&l);
        assert_int_equal(network_sweep("other", NULL), 0);
        assert_true(link_exists(l.index));
        assert_true(network_rules_others());
        assert_int_equal(network_sweep(INSTANCE, NULL), 1);
        assert_false(link_exists(l.index));
        assert_false(network_rules_others());
        assert_int_equal(forwarding(), '0');       /* it was this instance that had turned it on */
        fd_close(ns);
        network_close(network);
}

static void forwarding_that_was_on_stays_on(void **state) {
        set_forwarding("1");
        open_with("", NULL);
        assert_int_equal(network_sweep(INSTANCE, NULL), 0);
        assert_int_equal(forwarding(), '1');
        network_close(network);
        assert_int_equal(forwarding(), '1');
        set_forwarding("0");
}

/* An instance that begins alike is another one, and so is a link that somebody else named alike. */
static void the_sweep_looks_at_the_whole_name(void **state) {
        struct netlink *nl = NULL;
        struct network_link l;
        open_with("", NULL);
        int ns = open_sandbox(&l);
        assert_int_equal(netlink_open(&nl), 0);
        assert_int_equal(netlink_veth_make(nl, "brig" INSTANCE "xy12", "one", -1), 0);
        assert_int_equal(netlink_veth_make(nl, "brig" INSTANCE "-12", "two", -1), 0);
        assert_int_equal(network_sweep("tes", NULL), 0);
        assert_int_equal(network_sweep("testxxxx", NULL), 0);
        assert_true(link_exists(l.index));
        assert_int_equal(network_sweep(INSTANCE, NULL), 1);
        static const char *const others[] = { "brig" INSTANCE "xy12", "brig" INSTANCE "-12" };
        for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
                int index = netlink_link_index(nl, others[i]);
                assert_true(index > 0);
                assert_int_equal(netlink_link_delete(nl, index), 0);
        }
        netlink_close(nl);
        fd_close(ns);
        network_close(network);
}

static void ranges_are_parsed_strictly(void **state) {
        uint32_t a;
        unsigned prefix;
        assert_int_equal(network_cidr_parse("10.1.0.0/16", &a, &prefix), 0);
        assert_int_equal(prefix, 16);
        assert_int_equal(network_cidr_parse("10.1.2.3", &a, &prefix), 0);
        assert_int_equal(prefix, 32);
        const char *const bad[] = { "", "10.1.0.0/33", "10.1.0.1/16", "10.1.0.0/", "10.1.0.0/+8", "::1", "10.1/16", "10.1.0.0/16;drop", "a.b.c.d" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(network_cidr_parse(bad[i], &a, &prefix), -EINVAL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_internet_is_reached_and_the_rest_is_not),
                cmocka_unit_test(the_hosts_loopback_is_not_reached),
                cmocka_unit_test(sandboxes_do_not_reach_each_other),
                cmocka_unit_test(what_the_operator_names_is_reached),
                cmocka_unit_test(a_private_resolver_is_reached_on_its_port_alone),
                cmocka_unit_test(a_loopback_resolver_is_reached_through_the_gateway),
                cmocka_unit_test(a_false_source_address_is_dropped),
                cmocka_unit_test(ipv6_is_off_on_the_link_and_on_for_loopback),
                cmocka_unit_test(closing_leaves_the_host_as_it_was),
                cmocka_unit_test(forwarding_that_was_on_stays_on),
                cmocka_unit_test(the_sweep_looks_at_the_whole_name),
                cmocka_unit_test(the_sweep_takes_links_and_table_of_its_instance_only),
                cmocka_unit_test(ranges_are_parsed_strictly),
        };
        return cmocka_run_group_tests_name("sandbox/network", tests, setup_group, teardown_group);
}
