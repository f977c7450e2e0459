#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "sandbox/netns.h"

static struct netns_pool *pool;

static int setup(void **state) { return netns_pool_open(&pool, NULL); }
static int teardown(void **state) { netns_pool_close(pool); return 0; }

static ino_t identity(int fd) {
        struct stat st;
        assert_int_equal(fd < 0 ? stat("/proc/self/ns/net", &st) : fstat(fd, &st), 0);
        return st.st_ino;
}

/* In a child that joined the namespace and is an ordinary user. */
static int look(int ns) {
        if (setns(ns, CLONE_NEWNET) < 0 || setresuid(65000, 65000, 65000) < 0)
                return 1;
        struct if_nameindex *links = if_nameindex();
        if (!links || strcmp(links[0].if_name, "lo") != 0 || links[1].if_index != 0)
                return 2;
        int s = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        if (bind(s, (void *)&a, sizeof a) < 0 || listen(s, 1) < 0)
                return 3;
        if (connect(c, (void *)&a, sizeof a) < 0)
                return 4;
        a.sin_addr.s_addr = htonl(0xcb007101);   /* 203.0.113.1: no way out */
        if (connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&a, sizeof a) == 0 || errno != ENETUNREACH)
                return 5;
        return socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP) < 0 ? 6 : 0;
}

static void a_fresh_one_has_loopback_up_low_ports_and_no_way_out(void **state) {
        int ns = -1;
        assert_int_equal(netns_take(pool, &ns, NULL), 0);
        pid_t pid = fork();
        if (pid == 0)
                _exit(look(ns));
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        fd_close(ns);
}

static void making_them_leaves_the_caller_where_it_was(void **state) {
        ino_t before = identity(-1);
        int ns = -1;
        assert_int_equal(netns_pool_fill(pool, 2, 2), 0);
        assert_int_equal(netns_take(pool, &ns, NULL), 0);
        assert_int_equal(identity(-1), before);
        assert_int_not_equal(identity(ns), before);
        fd_close(ns);
}

static void the_pool_fills_in_steps_and_gives_each_once(void **state) {
        int a = -1, b = -1, c = -1;
        assert_int_equal(netns_pool_fill(pool, 2, 1), 1);
        assert_int_equal(netns_pool_fill(pool, 2, 5), 0);
        assert_int_equal(netns_take(pool, &a, NULL), 0);
        assert_int_equal(netns_take(pool, &b, NULL), 0);
        assert_int_equal(netns_take(pool, &c, NULL), 0);   /* the pool is empty: made now */
        assert_int_not_equal(identity(a), identity(b));
        assert_int_not_equal(identity(b), identity(c));
        fd_close(a);
        fd_close(b);
        fd_close(c);
}

static void descriptors_do_not_pass_execve(void **state) {
        int ns = -1;
        assert_int_equal(netns_take(pool, &ns, NULL), 0);
        assert_true(fcntl(ns, F_GETFD) & FD_CLOEXEC);
        fd_close(ns);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
        const struct CMUnitTest tests[] = {
                T(a_fresh_one_has_loopback_up_low_ports_and_no_way_out),
                T(making_them_leaves_the_caller_where_it_was),
                T(the_pool_fills_in_steps_and_gives_each_once),
                T(descriptors_do_not_pass_execve),
        };
        return cmocka_run_group_tests_name("sandbox/netns", tests, NULL, NULL);
}
