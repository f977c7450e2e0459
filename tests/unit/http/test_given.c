/* A server on sockets that were bound before it, its own judge of who is heard, and when an answer is out. */
#include <sys/un.h>

#include "fixture.h"

static struct { unsigned whole, lost, asked; } seen;

static void on_sent(bool whole, void *user) { *(whole ? &seen.whole : &seen.lost) += 1; }

#define BIG (32u << 20)        /* more than a socket takes unread */

static void answer(struct http_request *r, bool big) {
        struct buf b = BUF_INIT(BIG);
        http_on_sent(r, on_sent, NULL);
        assert_int_equal(buf_reserve(&b, BIG), 0);
        memset(b.data, 'x', BIG);
        b.len = big ? BIG : 5;
        http_respond_buf(r, 200, "text/plain", &b);
}

static void small(struct http_request *r, void *user) { answer(r, false); }
static void big(struct http_request *r, void *user) { answer(r, true); }

static const struct http_route routes[] = { { .method = "GET", .pattern = "/small", .handler = small }, { .method = "GET", .pattern = "/big", .handler = big } };

static int setup(void **state) {
        memset(&seen, 0, sizeof seen);
        return 0;
}

static void a_small_answer_is_out_at_once(void **state) {
        struct fixture f;
        fixture_start(&f, routes, ARRAY_SIZE(routes), NULL);
        fixture_say(&f, "GET /small HTTP/1.1\r\nHost: localhost\r\n\r\nGET /small HTTP/1.1\r\nHost: localhost\r\n\r\n");
        fixture_until(&f, seen.whole == 2);
        assert_int_equal(seen.lost, 0);
        fixture_stop(&f);
        assert_int_equal(seen.whole + seen.lost, 2);
}

static void a_big_answer_is_out_when_its_last_byte_is(void **state) {
        struct fixture f;
        fixture_start(&f, routes, ARRAY_SIZE(routes), NULL);
        fixture_say(&f, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
        fixture_until(&f, f.in.len > 0);
        assert_int_equal(seen.whole, 0);
        fixture_until(&f, f.in.len > BIG);
        fixture_until(&f, seen.whole == 1);
        fixture_stop(&f);
        assert_int_equal(seen.lost, 0);
}

static void an_answer_that_its_peer_does_not_wait_for_is_lost(void **state) {
        struct fixture f;
        fixture_start(&f, routes, ARRAY_SIZE(routes), NULL);
        fixture_say(&f, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
        fixture_until(&f, f.in.len > 0);
        fixture_hang_up(&f);
        fixture_until(&f, seen.lost == 1);
        fixture_stop(&f);
        assert_int_equal(seen.whole, 0);
}

static bool judge(const struct http_request *r, void *user) {
        const char *word = http_header(r, "X-Word");
        seen.asked++;
        return word && strcmp(word, "open") == 0;
}

static int listener(struct sockaddr_un *ret, socklen_t *ret_len) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
        *ret_len = sizeof *ret;
        assert_int_equal(bind(fd, (struct sockaddr *)ret, sizeof(sa_family_t)), 0);    /* a name of the kernel's choice */
        assert_int_equal(getsockname(fd, (struct sockaddr *)ret, ret_len), 0);
        return fd;
}

static void say_to(struct fixture *f, const struct sockaddr_un *at, socklen_t len, const char *request, const char *want) {
        fixture_hang_up(f);
        f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(f->fd, (const struct sockaddr *)at, len), 0);
        assert_int_equal(fcntl(f->fd, F_SETFL, O_NONBLOCK), 0);
        f->eof = false;
        buf_reset(&f->in);
        fixture_say(f, request);
        fixture_until(f, fixture_has(f, want));
}

static void it_listens_where_it_is_told_and_hears_whom_it_is_told(void **state) {
        struct sockaddr_un at[2];
        socklen_t len[2];
        const int fds[2] = { listener(&at[0], &len[0]), listener(&at[1], &len[1]) };
        struct fixture f = { .fd = -1, .in = BUF_INIT(1u << 20) };
        struct http_config cfg = { .listen_fds = fds, .n_listen_fds = 2, .routes = routes, .n_routes = ARRAY_SIZE(routes), .authorize = judge };
        struct error e;
        http_limits_default(&cfg.limits);
        uv_loop_init(&f.loop);
        assert_int_equal(http_server_start(&f.loop, &cfg, &f.s, &e), 0);
        for (int i = 0; i < 2; i++) {
                say_to(&f, &at[i], len[i], "GET /small HTTP/1.1\r\nHost: anything.example\r\nX-Word: open\r\n\r\n", "HTTP/1.1 200");
                say_to(&f, &at[i], len[i], "GET /small HTTP/1.1\r\nHost: localhost\r\nX-Word: shut\r\n\r\n", "HTTP/1.1 401");
                say_to(&f, &at[i], len[i], "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 401");
                say_to(&f, &at[i], len[i], "GET /nothing HTTP/1.1\r\nHost: localhost\r\nX-Word: open\r\n\r\n", "HTTP/1.1 404");
        }
        assert_int_equal(seen.asked, 8);
        fixture_stop(&f);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)
int main(void) {
        const struct CMUnitTest tests[] = {
                TEST(a_small_answer_is_out_at_once),
                TEST(a_big_answer_is_out_when_its_last_byte_is),
                TEST(an_answer_that_its_peer_does_not_wait_for_is_lost),
                TEST(it_listens_where_it_is_told_and_hears_whom_it_is_told),
        };
        return cmocka_run_group_tests_name("http/given", tests, NULL, NULL);
}
