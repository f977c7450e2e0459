/* Sockets of a sandbox's network namespace, handed to the daemon. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/macros.h"
#include "sandbox/fixture.h"

struct answer { bool done; int r, fd; };

static void answered(struct sandbox *s, int r, int fd, void *user) {
        *(struct answer *)user = (struct answer){ true, r, fd };
}

static int socket_of(struct box *b, enum sandbox_socket_kind kind) {
        struct answer a = { 0 };
        assert_int_equal(sandbox_socket(b->sandbox, kind, answered, &a), 0);
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
        _cleanup_close_ int fd = socket_of(&b, ipv6 ? SOCKET_IPV6 : SOCKET_IPV4);
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
        _cleanup_close_ int fd = socket_of(&b, SOCKET_IPV4);
        assert_int_equal(connect_to(fd, false, ntohs(at.sin_port)), ECONNREFUSED);
        box_destroy(&b);
}

#define CLIENT "import socket\n" \
               "c = socket.create_connection(('127.0.0.1', 8765)); print(c.recv(10))\n" \
               "c = socket.socket(socket.AF_UNIX); c.connect('\\0brig-test'); print(c.recv(10))\n"

static void accept_one(int listener, const char *word) {
        struct pollfd p = { .fd = listener, .events = POLLIN };
        assert_int_equal(poll(&p, 1, 30000), 1);
        _cleanup_close_ int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, word, strlen(word)), strlen(word));
}

/* Bound here, reached inside, and by nobody else who looks for the same name. */
static void the_daemon_serves_inside(void **state) {
        struct box b;
        struct run r;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        _cleanup_close_ int tcp = socket_of(&b, SOCKET_IPV4), local = socket_of(&b, SOCKET_UNIX);
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(8765), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0brig-test" };
        socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof "brig-test");
        assert_int_equal(bind(tcp, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(bind(local, (struct sockaddr *)&name, n), 0);
        assert_int_equal(listen(tcp, 4), 0);
        assert_int_equal(listen(local, 4), 0);
        _cleanup_close_ int outside = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(outside, (struct sockaddr *)&name, n), -1);
        assert_int_equal(errno, ECONNREFUSED);
        const char *const argv[] = { "/usr/bin/python3", "-c", CLIENT, NULL };
        const struct exec_spec x = run_spec(&r, argv);
        run_start(&b, &r, &x);
        accept_one(tcp, "tcp");
        accept_one(local, "unix");
        run_wait(&b, &r);
        assert_string_equal(run_out(&r), "b'tcp'\nb'unix'");
        run_release(&r);
        box_destroy(&b);
}

static void a_sandbox_goes_although_somebody_holds_a_socket(void **state) {
        struct box b;
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        int fd = socket_of(&b, SOCKET_IPV4);
        box_destroy(&b);
        fd_close(fd);
}

static void asked_and_destroyed_is_answered(void **state) {
        struct box b;
        struct answer a = { 0 };
        const struct sandbox_spec spec = box_spec();
        box_create(*state, &b, &spec);
        assert_int_equal(sandbox_socket(b.sandbox, SOCKET_IPV4, answered, &a), 0);
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
                cmocka_unit_test(the_daemon_serves_inside),
                cmocka_unit_test(a_sandbox_goes_although_somebody_holds_a_socket),
                cmocka_unit_test(asked_and_destroyed_is_answered),
        };
        return cmocka_run_group_tests_name("sandbox/socket", tests, fixture_setup, fixture_teardown);
}
