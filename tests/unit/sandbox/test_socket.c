/* Sockets of a sandbox's network namespace, handed to the daemon. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "sandbox/fixture.h"

struct answer { bool done; int r, fd; };

static void answered(struct sandbox *s, int r, int fd, void *user) {
        *(struct answer *)user = (struct answer){ true, r, fd };
}

static int socket_of(struct box *b, bool ipv6) {
        struct answer a = { 0 };
        assert_int_equal(sandbox_socket(b->sandbox, ipv6, answered, &a), 0);
        fixture_until(b->f, &a.done);
        assert_int_equal(a.r, 0);
        assert_true(a.fd >= 0);
        return a.fd;
}

/* 0, or the errno of the connection. */
static int connect_to(int fd, bool ipv6, uint16_t port) {
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        int r = ipv6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6) : connect(fd, (struct sockaddr *)&v4, sizeof v4), e = 0;
        socklen_t n = sizeof e;
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        if (r < 0 && errno != EINPROGRESS)
                return errno;
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n), 0);
        return e;
}

#define SERVER "import socket, sys\n" \
               "s = socket.create_server((sys.argv[1], 8000), family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)\n" \
               "print('up', flush=True)\n" \
               "c, a = s.accept()\n" \
               "c.sendall(b'from inside')\n"

static bool *listening;
static void heard(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) { *listening = true; }

static void reaches(void **state, enum sandbox_network network, const char *address) {
        struct fixture *f = *state;
        struct box b;
        struct run r;
        bool up = false;
        struct sandbox_spec spec = box_spec();
        spec.network = network;
        box_create(f, &b, &spec);
        const char *const argv[] = { "/usr/bin/python3", "-c", SERVER, address, NULL };
        struct exec_spec x = run_spec(&r, argv);
        x.output = heard;
        listening = &up;
        run_start(&b, &r, &x);
        fixture_until(f, &up);
        char text[32] = { 0 };
        bool ipv6 = strchr(address, ':');
        _cleanup_close_ int fd = socket_of(&b, ipv6);
        assert_int_equal(connect_to(fd, ipv6, 8000), 0);
        struct pollfd p = { .fd = fd, .events = POLLIN };
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_int_equal(read(fd, text, sizeof text), 11);
        assert_string_equal(text, "from inside");
        run_wait(&b, &r);
        run_release(&r);
        box_destroy(&b);
}

static void a_server_inside_is_reached_where_there_is_no_network(void **state) { reaches(state, NETWORK_NONE, "127.0.0.1"); }
static void a_server_inside_is_reached_by_ipv6(void **state) { reaches(state, NETWORK_NONE, "::1"); }
static void a_server_inside_is_reached_with_a_network(void **state) { reaches(state, NETWORK_OPEN, "127.0.0.1"); }

static void the_hosts_own_servers_are_not_reached(void **state) {
        struct box b;
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof at;
        _cleanup_close_ int host = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(host, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(listen(host, 1), 0);
        assert_int_equal(getsockname(host, (struct sockaddr *)&at, &n), 0);
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        _cleanup_close_ int fd = socket_of(&b, false);
        assert_int_equal(connect_to(fd, false, ntohs(at.sin_port)), ECONNREFUSED);
        box_destroy(&b);
}

static void a_sandbox_goes_although_somebody_holds_a_socket(void **state) {
        struct box b;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        int fd = socket_of(&b, false);
        box_destroy(&b);
        fd_close(fd);
}

static void asked_and_destroyed_is_answered(void **state) {
        struct box b;
        struct answer a = { 0 };
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        assert_int_equal(sandbox_socket(b.sandbox, false, answered, &a), 0);
        box_destroy(&b);
        assert_true(a.done);
        if (a.r == 0)
                fd_close(a.fd);
        else
                assert_int_equal(a.fd, -1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_server_inside_is_reached_where_there_is_no_network),
                cmocka_unit_test(a_server_inside_is_reached_by_ipv6),
                cmocka_unit_test(a_server_inside_is_reached_with_a_network),
                cmocka_unit_test(the_hosts_own_servers_are_not_reached),
                cmocka_unit_test(a_sandbox_goes_although_somebody_holds_a_socket),
                cmocka_unit_test(asked_and_destroyed_is_answered),
        };
        return cmocka_run_group_tests_name("sandbox/socket", tests, fixture_setup, fixture_teardown);
}
