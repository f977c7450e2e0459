/* Server-sent events, and connections that leave HTTP for something else. */
#include "fixture.h"
#include "http/events.h"

static struct {
        struct http_request *r;
        struct http_tunnel *t;
        char last_id[64];
        struct buf got;
        size_t closes, drains;
        bool accept_later;
} seen;

static int setup(void **state) {
        buf_release(&seen.got);
        memset(&seen, 0, sizeof seen);
        seen.got.limit = 1u << 20;
        return 0;
}

static void gone(void *user) {
        seen.closes++;
        seen.r = NULL;
}

static void events(struct http_request *r, void *user) {
        const char *id = http_events_last_id(r);
        snprintf(seen.last_id, sizeof seen.last_id, "%s", id ? id : "none");
        seen.r = r;
        http_on_close(r, gone, NULL);
        http_events_start(r);
}

static void data(struct http_tunnel *t, const char *p, size_t n, void *user) {
        assert_int_equal(buf_add(&seen.got, p, n), 0);
}

static void drain(struct http_tunnel *t, void *user) {
        seen.drains++;
}

static void closed(struct http_tunnel *t, void *user) {
        seen.closes++;
        seen.t = NULL;
}

static void accept_it(struct http_request *r) {
        static const struct http_tunnel_calls calls = { data, drain, closed };
        http_respond_header(r, "X-More", "yes");
        assert_int_equal(http_tunnel_accept(r, "chess", &calls, NULL, &seen.t), 0);
}

static void raw(struct http_request *r, void *user) {
        const char *asked = http_upgrade_asked(r);
        if (!asked || strcmp(asked, "chess") != 0) {
                http_respond_error(r, 426, "chess only");
                return;
        }
        seen.r = r;
        if (seen.accept_later)
                http_on_close(r, gone, NULL);
        else
                accept_it(r);
}

static const struct http_route routes[] = {
        { "GET", "/events", events, false, NULL },
        { "GET", "/raw", raw, false, NULL },
};

static void start(struct fixture *f) {
        fixture_start(f, routes, ARRAY_SIZE(routes), NULL);
}

static void open_events(struct fixture *f, const char *query, const char *more) {
        char text[300];
        start(f);
        snprintf(text, sizeof text, "GET /events%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", query, more);
        fixture_say(f, text);
        fixture_until(f, fixture_has(f, "\r\n\r\n"));
        assert_true(fixture_has(f, "Content-Type: text/event-stream\r\n"));
        assert_true(fixture_has(f, "Cache-Control: no-cache\r\n"));
        buf_reset(&f->in);
}

static void events_are_lines(void **state) {
        static const struct { const char *event, *id, *data, *out; } cases[] = {
                { NULL, NULL, "x", "data: x\n\n" },
                { "stdout", "7", "x", "event: stdout\nid: 7\ndata: x\n\n" },
                { NULL, NULL, "", "data: \n\n" },
                { NULL, NULL, "a\nb", "data: a\ndata: b\n\n" },
                { NULL, NULL, "a\r\nb\rc\n", "data: a\ndata: b\ndata: c\ndata: \n\n" },
                { NULL, NULL, "\n\nevent: forged", "data: \ndata: \ndata: event: forged\n\n" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct fixture f;
                open_events(&f, "", "");
                assert_int_equal(http_events_send(seen.r, cases[i].event, cases[i].id, cases[i].data, strlen(cases[i].data)), 0);
                http_on_close(seen.r, NULL, NULL);
                http_events_end(seen.r);
                fixture_until(&f, fixture_has(&f, "\r\n0\r\n\r\n"));
                if (!fixture_has(&f, cases[i].out))
                        fail_msg("case %zu: %s", i, f.in.data);
                fixture_stop(&f);
        }
}

static void names_of_more_than_one_line_and_endless_data_are_refused(void **state) {
        struct fixture f;
        static char big[HTTP_EVENT_DATA_MAX + 1];
        open_events(&f, "", "");
        assert_int_equal(http_events_send(seen.r, "a\nb", NULL, "x", 1), -EINVAL);
        assert_int_equal(http_events_send(seen.r, NULL, "1\rdata: y", "x", 1), -EINVAL);
        assert_int_equal(http_events_send(seen.r, NULL, NULL, big, sizeof big), -EMSGSIZE);
        memset(big, '\n', sizeof big);
        assert_int_equal(http_events_send(seen.r, NULL, NULL, big, sizeof big - 1), -EMSGSIZE);
        assert_int_equal(http_events_send(seen.r, NULL, NULL, "x", 1), 0);
        fixture_until(&f, fixture_has(&f, "data: x\n\n"));
        fixture_stop(&f);
}

static void a_client_that_comes_again_says_where_it_was(void **state) {
        struct fixture f;
        open_events(&f, "", "");
        assert_string_equal(seen.last_id, "none");
        fixture_stop(&f);
        open_events(&f, "", "Last-Event-ID: 41\r\n");
        assert_string_equal(seen.last_id, "41");
        fixture_stop(&f);
        open_events(&f, "?last_event_id=42", "");
        assert_string_equal(seen.last_id, "42");
        fixture_stop(&f);
}

static void a_listener_that_shuts_its_side_has_left(void **state) {
        struct fixture f;
        open_events(&f, "", "");
        shutdown(f.fd, SHUT_WR);
        fixture_until(&f, seen.closes == 1);
        fixture_stop(&f);
}

static void a_quiet_stream_sends_comments(void **state) {
        struct fixture f;
        open_events(&f, "", "");
        struct conn *c = f.s->conns;
        assert_int_equal(c->phase, PHASE_EVENTS);
        assert_in_range(c->deadline - uv_now(&f.loop), HTTP_EVENTS_KEEP_ALIVE_MS - 1000, HTTP_EVENTS_KEEP_ALIVE_MS);
        conn_expired(c);
        fixture_until(&f, fixture_has(&f, "3\r\n:\n\n\r\n"));
        assert_true(c->deadline > 0);
        buf_reset(&f.in);
        http_events_send(seen.r, NULL, NULL, "x", 1);
        conn_expired(c);                        /* not quiet: no comment */
        fixture_until(&f, fixture_has(&f, "data: x"));
        fixture_some_turns(&f);
        assert_false(fixture_has(&f, ":\n\n"));
        fixture_hang_up(&f);
        conn_expired(c);                        /* and this is how a vanished peer is found */
        fixture_until(&f, seen.closes == 1);
        fixture_stop(&f);
}

#define RAW "GET /raw HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: chess\r\n\r\n"

static void open_raw(struct fixture *f, const char *more) {
        char text[300];
        start(f);
        snprintf(text, sizeof text, RAW "%s", more);
        fixture_say(f, text);
        fixture_until(f, fixture_has(f, "\r\n\r\n"));
        assert_true(fixture_has(f, "HTTP/1.1 101 Switching Protocols\r\n"));
        assert_true(fixture_has(f, "Upgrade: chess\r\n"));
        assert_true(fixture_has(f, "X-More: yes\r\n"));
        buf_reset(&f->in);
}

static void bytes_of_another_protocol_go_both_ways(void **state) {
        struct fixture f;
        open_raw(&f, "e4");
        fixture_until(&f, seen.got.len == 2);
        fixture_say(&f, " GET / HTTP/1.1\r\n\r\n");      /* is nothing to us */
        fixture_until(&f, seen.got.len == 22 - 1);
        assert_string_equal(seen.got.data, "e4 GET / HTTP/1.1\r\n\r\n");
        assert_int_equal(http_tunnel_write(seen.t, "e5", 2), 0);
        fixture_until(&f, fixture_has(&f, "e5"));
        assert_int_equal(http_tunnel_write(seen.t, "bye", 3), 0);
        http_tunnel_close(seen.t);
        assert_int_equal(seen.closes, 0);
        fixture_until(&f, f.eof && seen.closes == 1);
        assert_string_equal(f.in.data, "e5bye");
        fixture_stop(&f);
        assert_int_equal(seen.closes, 1);
}

static void an_upgrade_may_be_accepted_later(void **state) {
        struct fixture f;
        seen.accept_later = true;
        start(&f);
        fixture_say(&f, RAW "early");
        fixture_until(&f, seen.r);
        fixture_some_turns(&f);
        accept_it(seen.r);
        assert_int_equal(seen.got.len, 0);
        fixture_until(&f, seen.got.len == 5 && fixture_has(&f, "101"));
        fixture_stop(&f);
        assert_int_equal(seen.closes, 1);
}

static void a_paused_tunnel_does_not_read(void **state) {
        struct fixture f;
        open_raw(&f, "");
        http_tunnel_pause(seen.t);
        fixture_some_turns(&f);
        (void)!write(f.fd, "abc", 3);
        fixture_some_turns(&f);
        assert_int_equal(seen.got.len, 0);
        http_tunnel_resume(seen.t);
        fixture_until(&f, seen.got.len == 3);
        fixture_stop(&f);
}

static void a_full_tunnel_says_when_there_is_room(void **state) {
        struct fixture f;
        static char piece[60000];
        size_t n = 0;
        int e;
        open_raw(&f, "");
        while ((e = http_tunnel_write(seen.t, piece, sizeof piece)) == 0)
                n += sizeof piece;
        assert_int_equal(e, -EAGAIN);
        assert_int_equal(http_tunnel_write(seen.t, piece, HTTP_TUNNEL_WRITE_MAX + 1), -EMSGSIZE);
        fixture_until(&f, seen.drains == 1 && f.in.len == n);
        fixture_hang_up(&f);
        fixture_until(&f, seen.closes == 1);
        fixture_stop(&f);
}

static void without_an_upgrade_nothing_is_asked(void **state) {
        static const char *const heads[] = { "Upgrade: chess\r\n", "Connection: Upgrade\r\n", "Connection: upgrades\r\nUpgrade: chess\r\n", "" };
        for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
                struct fixture f;
                char text[300];
                start(&f);
                snprintf(text, sizeof text, "GET /raw HTTP/1.1\r\nHost: localhost\r\n%s\r\n", heads[i]);
                fixture_say(&f, text);
                fixture_until(&f, fixture_has(&f, "HTTP/1.1 426"));
                fixture_stop(&f);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, setup)
                TEST(events_are_lines),
                TEST(names_of_more_than_one_line_and_endless_data_are_refused),
                TEST(a_client_that_comes_again_says_where_it_was),
                TEST(a_listener_that_shuts_its_side_has_left),
                TEST(a_quiet_stream_sends_comments),
                TEST(bytes_of_another_protocol_go_both_ways),
                TEST(an_upgrade_may_be_accepted_later),
                TEST(a_paused_tunnel_does_not_read),
                TEST(a_full_tunnel_says_when_there_is_room),
                TEST(without_an_upgrade_nothing_is_asked),
        };
        return cmocka_run_group_tests_name("http/streams", tests, NULL, NULL);
}
