#include "fixture.h"
#include "http/upload.h"

#define SMALL_MAX 1000

/* What the handler of the test saw and is told to do. */
static struct {
        struct http_request *r;
        struct buf got;
        size_t pieces, ends, closes, biggest;
        bool hold_start;           /* do not take the body yet */
        bool pause_each;           /* pause after each piece */
        size_t answer_at;          /* answer once so many bytes have come */
        bool answer_at_end;
} seen;

static int setup(void **state) {
        buf_release(&seen.got);
        memset(&seen, 0, sizeof seen);
        seen.got.limit = 16u << 20;
        seen.answer_at_end = true;
        return 0;
}

static void answer(const char *text) {
        struct http_request *r = TAKE_PTR(seen.r);
        http_on_close(r, NULL, NULL);
        http_respond(r, 200, "text/plain", text, strlen(text));
}

static void data(const char *p, size_t n, void *user) {
        assert_non_null(seen.r);
        assert_int_equal(seen.ends, 0);
        assert_int_equal(buf_add(&seen.got, p, n), 0);
        seen.pieces++;
        seen.biggest = MAX2(seen.biggest, n);
        if (seen.pause_each)
                http_upload_pause(seen.r);
        if (seen.answer_at && seen.got.len >= seen.answer_at)
                answer("early");
}

static void end(void *user) {
        seen.ends++;
        if (seen.answer_at_end)
                answer("whole");
}

static void closed(void *user) {
        seen.closes++;
        seen.r = NULL;
}

static void take(struct http_request *r) {
        http_upload_start(r, &(struct http_upload){ data, end }, NULL);
}

static void upload(struct http_request *r, void *user) {
        seen.r = r;
        http_on_close(r, closed, NULL);
        if (!seen.hold_start)
                take(r);
}

static void refuse(struct http_request *r, void *user) {
        http_respond(r, 409, "text/plain", "no", 2);
}

static void hello(struct http_request *r, void *user) {
        http_respond(r, 200, "text/plain", "hello", 5);
}

static const struct http_route routes[] = {
        { "PUT", "/up", upload, false, NULL, .stream_body = true, .body_max = HTTP_BODY_ANY },
        { "PUT", "/small", upload, false, NULL, .stream_body = true, .body_max = SMALL_MAX },
        { "PUT", "/no", refuse, false, NULL, .stream_body = true },
        { "GET", "/hello", hello, false, NULL },
};

#define SILENCE_MS 500         /* longer than a busy machine lets this program stand still */

static void tight(struct http_config *cfg) {
        cfg->limits.body_max = 10;      /* of routes without their own */
}

static void impatient(struct http_config *cfg) {
        cfg->limits.body_timeout_ms = SILENCE_MS;
}

static void start(struct fixture *f) {
        fixture_start(f, routes, ARRAY_SIZE(routes), tight);
}

#define HELLO "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"

static void head(struct fixture *f, const char *path, const char *framing) {
        char text[300];
        snprintf(text, sizeof text, "PUT %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", path, framing);
        fixture_say(f, text);
}

static void a_large_body_comes_in_order_and_in_small_pieces(void **state) {
        struct fixture f;
        size_t n = 3u << 20;
        char *body = malloc(n);
        start(&f);
        for (size_t i = 0; i < n; i++)
                body[i] = (char)(i * 31 + (i >> 12));
        head(&f, "/up", "Content-Length: 3145728");
        fixture_send(&f, body, n);
        fixture_until(&f, fixture_has(&f, "whole"));
        assert_int_equal(seen.got.len, n);
        assert_memory_equal(seen.got.data, body, n);
        assert_in_range(seen.biggest, 1, HTTP_UPLOAD_PIECE_MAX);
        assert_int_equal(seen.closes, 0);
        free(body);
        fixture_say(&f, HELLO);          /* the connection goes on */
        fixture_until(&f, fixture_has(&f, "hello"));
        fixture_stop(&f);
}

static void the_next_request_may_stand_behind_the_body(void **state) {
        struct fixture f;
        start(&f);
        fixture_say(&f, "PUT /up HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345" HELLO);
        fixture_until(&f, fixture_has(&f, "hello"));
        assert_string_equal(buf_str(&seen.got), "12345");
        /* and also when it came in one read with a body's last bytes */
        buf_reset(&f.in);
        buf_reset(&seen.got);
        seen.ends = 0;
        head(&f, "/up", "Transfer-Encoding: chunked");
        fixture_some_turns(&f);
        fixture_say(&f, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" HELLO HELLO);
        fixture_until(&f, fixture_has(&f, "hello"));
        assert_string_equal(buf_str(&seen.got), "abcde");
        fixture_stop(&f);
}

static void a_paused_body_stays_where_it_is(void **state) {
        struct fixture f;
        start(&f);
        seen.pause_each = true;
        head(&f, "/up", "Transfer-Encoding: chunked");
        fixture_say(&f, "3\r\nabc\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n");
        fixture_until(&f, seen.pieces == 1);
        fixture_some_turns(&f);
        assert_string_equal(buf_str(&seen.got), "abc");
        http_upload_resume(seen.r);
        assert_int_equal(seen.pieces, 1);               /* never from inside */
        fixture_until(&f, seen.pieces == 2);
        fixture_some_turns(&f);
        assert_string_equal(buf_str(&seen.got), "abcde");
        http_upload_resume(seen.r);
        fixture_until(&f, seen.pieces == 3);
        fixture_some_turns(&f);
        assert_int_equal(seen.ends, 0);                 /* the end waits, too */
        http_upload_resume(seen.r);
        fixture_until(&f, fixture_has(&f, "whole"));
        fixture_stop(&f);
}

static void a_pause_stops_a_fast_sender(void **state) {
        struct fixture f;
        char piece[4096] = { 0 };
        size_t sent = 0;
        start(&f);
        seen.pause_each = true;
        head(&f, "/up", "Content-Length: 104857600");
        for (int idle = 0; idle < 100; idle++) {
                ssize_t n = write(f.fd, piece, sizeof piece);
                if (n > 0) {
                        sent += (size_t)n;
                        idle = 0;
                }
                fixture_turn(&f);
        }
        assert_int_equal(seen.pieces, 1);
        assert_in_range(sent, 1, 1u << 20);             /* socket buffers and one read, not 100 MiB */
        assert_in_range(seen.r->up.left.len, 0, READ_CHUNK);
        fixture_stop(&f);
        assert_int_equal(seen.closes, 1);
}

static void the_client_is_told_to_go_on_when_the_handler_takes_the_body(void **state) {
        struct fixture f;
        start(&f);
        seen.hold_start = true;
        head(&f, "/up", "Content-Length: 2\r\nExpect: 100-continue");
        fixture_until(&f, seen.r);
        fixture_some_turns(&f);
        assert_int_equal(f.in.len, 0);
        take(seen.r);
        fixture_until(&f, fixture_has(&f, "HTTP/1.1 100 Continue\r\n\r\n"));
        fixture_say(&f, "ok");
        fixture_until(&f, fixture_has(&f, "whole"));
        fixture_stop(&f);
}

static void a_refusal_before_the_body_spares_the_client_sending_it(void **state) {
        struct fixture f;
        start(&f);
        head(&f, "/no", "Content-Length: 5\r\nExpect: 100-continue");
        fixture_until(&f, f.in.len && fixture_has(&f, "\r\n\r\nno"));
        assert_true(fixture_has(&f, "HTTP/1.1 409"));
        assert_true(fixture_has(&f, "Connection: close"));
        assert_false(fixture_has(&f, "100 Continue"));
        fixture_stop(&f);
}

static void a_refused_body_that_is_here_already_leaves_the_connection_open(void **state) {
        struct fixture f;
        start(&f);
        fixture_say(&f, "PUT /no HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345" HELLO);
        fixture_until(&f, fixture_has(&f, "hello"));
        assert_true(fixture_has(&f, "HTTP/1.1 409"));
        assert_false(fixture_has(&f, "Connection: close"));
        fixture_stop(&f);
}

static void an_early_answer_ends_the_connection_and_is_still_read(void **state) {
        struct fixture f;
        start(&f);
        seen.answer_at = 3;
        head(&f, "/up", "Content-Length: 1000000");
        fixture_say(&f, "abcdef");
        fixture_until(&f, f.eof);
        assert_true(fixture_has(&f, "early"));
        assert_true(fixture_has(&f, "Connection: close"));
        assert_int_equal(seen.ends + seen.closes, 0);
        fixture_stop(&f);
}

static void a_route_has_its_own_limit(void **state) {
        struct fixture f;
        start(&f);
        head(&f, "/small", "Content-Length: 1001");
        fixture_until(&f, fixture_has(&f, "HTTP/1.1 413"));
        assert_null(seen.r);                            /* known from the head: the handler never ran */
        fixture_hang_up(&f);
        fixture_peer(&f);
        head(&f, "/small", "Transfer-Encoding: chunked");
        fixture_say(&f, "1f4\r\n");
        char zeros[501] = { 0 };
        fixture_send(&f, zeros, 500);
        fixture_until(&f, seen.got.len == 500);
        fixture_say(&f, "\r\n1f5\r\n");
        fixture_send(&f, zeros, 501);
        fixture_until(&f, fixture_has(&f, "HTTP/1.1 413"));
        assert_int_equal(seen.closes, 1);
        assert_int_equal(seen.ends, 0);
        fixture_stop(&f);
}

static void a_body_that_is_not_http_is_told_to_the_peer_and_ends_the_request(void **state) {
        struct fixture f;
        start(&f);
        head(&f, "/up", "Transfer-Encoding: chunked");
        fixture_say(&f, "3\r\nabc\r\nzz\r\n");
        fixture_until(&f, fixture_has(&f, "HTTP/1.1 400"));
        assert_int_equal(seen.closes, 1);
        assert_int_equal(seen.ends, 0);
        fixture_stop(&f);
}

static void a_peer_that_vanishes_ends_the_request_once(void **state) {
        struct fixture f;
        start(&f);
        head(&f, "/up", "Content-Length: 10");
        fixture_say(&f, "abc");
        fixture_until(&f, seen.got.len == 3);
        fixture_hang_up(&f);
        fixture_until(&f, seen.closes == 1);
        fixture_some_turns(&f);
        assert_int_equal(seen.closes, 1);
        assert_int_equal(seen.ends, 0);
        fixture_stop(&f);
}

static void a_peer_that_vanished_during_a_pause_is_found_after_it(void **state) {
        struct fixture f;
        start(&f);
        seen.pause_each = true;
        head(&f, "/up", "Content-Length: 10");
        fixture_say(&f, "abc");
        fixture_until(&f, seen.pieces == 1);
        fixture_hang_up(&f);
        fixture_some_turns(&f);
        if (seen.r)
                http_upload_resume(seen.r);
        fixture_until(&f, seen.closes == 1);
        fixture_stop(&f);
}

static void a_silent_peer_is_timed_out_unless_the_handler_pauses(void **state) {
        struct fixture f;
        fixture_start(&f, routes, ARRAY_SIZE(routes), impatient);
        seen.pause_each = true;
        head(&f, "/up", "Content-Length: 10");
        fixture_say(&f, "abc");
        fixture_until(&f, seen.pieces == 1);
        uint64_t paused_at = uv_now(&f.loop);
        fixture_until(&f, uv_now(&f.loop) > paused_at + 2 * SILENCE_MS);
        assert_int_equal(seen.closes, 0);
        http_upload_resume(seen.r);
        fixture_until(&f, fixture_has(&f, "HTTP/1.1 408"));
        assert_int_equal(seen.closes, 1);
        fixture_stop(&f);
}

static void a_request_without_a_body_has_an_end(void **state) {
        struct fixture f;
        start(&f);
        fixture_say(&f, "PUT /up HTTP/1.1\r\nHost: localhost\r\n\r\n" HELLO);
        fixture_until(&f, fixture_has(&f, "hello"));
        assert_true(fixture_has(&f, "whole"));
        assert_int_equal(seen.pieces, 0);
        fixture_stop(&f);
}

static void an_answer_may_be_given_after_the_end(void **state) {
        struct fixture f;
        start(&f);
        seen.answer_at_end = false;
        fixture_say(&f, "PUT /up HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok" HELLO);
        fixture_until(&f, seen.ends == 1);
        fixture_some_turns(&f);
        assert_int_equal(f.in.len, 0);
        answer("later");
        fixture_until(&f, fixture_has(&f, "hello"));
        fixture_stop(&f);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_large_body_comes_in_order_and_in_small_pieces, setup),
                cmocka_unit_test_setup(the_next_request_may_stand_behind_the_body, setup),
                cmocka_unit_test_setup(a_paused_body_stays_where_it_is, setup),
                cmocka_unit_test_setup(a_pause_stops_a_fast_sender, setup),
                cmocka_unit_test_setup(the_client_is_told_to_go_on_when_the_handler_takes_the_body, setup),
                cmocka_unit_test_setup(a_refusal_before_the_body_spares_the_client_sending_it, setup),
                cmocka_unit_test_setup(a_refused_body_that_is_here_already_leaves_the_connection_open, setup),
                cmocka_unit_test_setup(an_early_answer_ends_the_connection_and_is_still_read, setup),
                cmocka_unit_test_setup(a_route_has_its_own_limit, setup),
                cmocka_unit_test_setup(a_body_that_is_not_http_is_told_to_the_peer_and_ends_the_request, setup),
                cmocka_unit_test_setup(a_peer_that_vanishes_ends_the_request_once, setup),
                cmocka_unit_test_setup(a_peer_that_vanished_during_a_pause_is_found_after_it, setup),
                cmocka_unit_test_setup(a_silent_peer_is_timed_out_unless_the_handler_pauses, setup),
                cmocka_unit_test_setup(a_request_without_a_body_has_an_end, setup),
                cmocka_unit_test_setup(an_answer_may_be_given_after_the_end, setup),
        };
        return cmocka_run_group_tests_name("http/upload", tests, NULL, NULL);
}
