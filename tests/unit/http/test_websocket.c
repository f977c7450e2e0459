#include "fixture.h"
#include "http/websocket.h"

#define MESSAGE_MAX 70000

static struct {
        struct http_websocket *ws;
        struct buf log;            /* "T:text|B:...|" of what came */
        size_t messages, drains, closes, last_len;
        int code; char reason[200];
        bool echo, pause_each;
        int accepted;
} seen;

static struct http_websocket_options options;

static int setup(void **state) {
        static const char *const protocols[] = { "brig.two", "brig.one" };
        buf_release(&seen.log);
        memset(&seen, 0, sizeof seen);
        seen.log.limit = 1u << 20;
        options = (struct http_websocket_options){ .protocols = protocols, .n_protocols = 2, .message_max = MESSAGE_MAX };
        return 0;
}

static void message(struct http_websocket *ws, bool text, const char *p, size_t n, void *user) {
        seen.messages++;
        seen.last_len = n;
        assert_int_equal(buf_printf(&seen.log, "%s:%.*s|", text ? "T" : "B", (int)MIN2(n, 40), p), 0);
        if (seen.echo)
                http_websocket_send(ws, text, p, n);
        if (seen.pause_each)
                http_websocket_pause(ws);
}

static void drain(struct http_websocket *ws, void *user) {
        seen.drains++;
}

static void closed(struct http_websocket *ws, int code, const char *reason, void *user) {
        seen.closes++;
        seen.ws = NULL;
        seen.code = code;
        snprintf(seen.reason, sizeof seen.reason, "%s", reason);
}

static void accept_ws(struct http_request *r, void *user) {
        static const struct http_websocket_calls calls = { message, drain, closed };
        seen.accepted = http_websocket_accept(r, &options, &calls, NULL, &seen.ws);
}

static const struct http_route routes[] = { { "GET", "/ws", accept_ws, false, NULL } };

static void start(struct fixture *f) {
        fixture_start(f, routes, 1, NULL);
}

#define SHAKE "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static void open_ws(struct fixture *f) {
        start(f);
        fixture_say(f, SHAKE "\r\n");
        fixture_until(f, fixture_has(f, "\r\n\r\n"));
        assert_true(fixture_has(f, "HTTP/1.1 101 "));
        buf_reset(&f->in);
}

/* A client's frame, masked unless told. */
static size_t frame(char *out, unsigned first, const char *p, size_t n, bool mask) {
        size_t at = 0;
        out[at++] = (char)first;
        unsigned bit = mask ? 0x80 : 0;
        if (n < 126)
                out[at++] = (char)(bit | n);
        else if (n < 65536) {
                out[at++] = (char)(bit | 126);
                out[at++] = (char)(n >> 8);
                out[at++] = (char)n;
        } else {
                out[at++] = (char)(bit | 127);
                for (int i = 7; i >= 0; i--)
                        out[at++] = (char)((uint64_t)n >> (8 * i));
        }
        static const char key[4] = { 0x11, 0x22, 0x33, 0x44 };
        if (mask)
                for (size_t i = 0; i < 4; i++)
                        out[at++] = key[i];
        for (size_t i = 0; i < n; i++)
                out[at++] = mask ? p[i] ^ key[i % 4] : p[i];
        return at;
}

static void say(struct fixture *f, unsigned first, const char *p, size_t n) {
        char *out = malloc(n + 20);
        fixture_send(f, out, frame(out, first, p, n, true));
        free(out);
}

#define TEXT 0x81
#define BINARY 0x82
#define PING 0x89
#define CLOSE 0x88

static bool got(struct fixture *f, const char *bytes, size_t n) {
        return f->in.len >= n && memmem(f->in.data, f->in.len, bytes, n);
}

static void the_handshake_of_the_rfc(void **state) {
        struct fixture f;
        start(&f);
        fixture_say(&f, SHAKE "Sec-WebSocket-Protocol: other, brig.one\r\nSec-WebSocket-Protocol: brig.two\r\n\r\n");
        fixture_until(&f, fixture_has(&f, "\r\n\r\n"));
        assert_true(fixture_has(&f, "HTTP/1.1 101 Switching Protocols\r\n"));
        assert_true(fixture_has(&f, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        assert_true(fixture_has(&f, "Upgrade: websocket\r\n"));
        assert_true(fixture_has(&f, "Connection: Upgrade\r\n"));
        assert_true(fixture_has(&f, "Sec-WebSocket-Protocol: brig.two\r\n"));    /* our preference, not the client's */
        assert_false(fixture_has(&f, "Content-Length"));
        assert_string_equal(http_websocket_protocol(seen.ws), "brig.two");
        fixture_stop(&f);
}

static void what_is_not_a_handshake_is_refused(void **state) {
        static const struct { const char *text; int status; } cases[] = {
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n", 426 },
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 426 },
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 426 },
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 426 },
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", 400 },
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n\r\n", 400 },
                { "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                  "Sec-WebSocket-Key: !GhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 400 },
                { SHAKE "Content-Length: 0\r\n\r\n", 400 },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct fixture f;
                char line[32];
                setup(state);
                start(&f);
                snprintf(line, sizeof line, "HTTP/1.1 %d ", cases[i].status);
                fixture_say(&f, cases[i].text);
                fixture_until(&f, fixture_has(&f, "error"));
                if (!fixture_has(&f, line) || seen.accepted != -EBADMSG)
                        fail_msg("case %zu: %s", i, f.in.data);
                if (cases[i].status == 426)
                        assert_true(fixture_has(&f, "Sec-WebSocket-Version: 13\r\n"));
                fixture_stop(&f);
                assert_int_equal(seen.closes, 0);
        }
}

static void a_needed_protocol_that_is_not_offered_is_refused(void **state) {
        struct fixture f;
        options.need_protocol = true;
        start(&f);
        fixture_say(&f, SHAKE "Sec-WebSocket-Protocol: brig.three\r\n\r\n");
        fixture_until(&f, fixture_has(&f, "HTTP/1.1 400"));
        fixture_stop(&f);
}

static void frames_that_come_with_the_handshake_are_read(void **state) {
        struct fixture f;
        char text[400];
        int n = snprintf(text, sizeof text, SHAKE "\r\n");
        start(&f);
        n += (int)frame(text + n, TEXT, "early", 5, true);
        fixture_send(&f, text, (size_t)n);
        fixture_until(&f, seen.messages == 1);
        assert_string_equal(seen.log.data, "T:early|");
        fixture_stop(&f);
}

static void messages_go_both_ways(void **state) {
        struct fixture f;
        open_ws(&f);
        seen.echo = true;
        say(&f, TEXT, "h\xc3\xa9llo", 6);
        fixture_until(&f, got(&f, "\x81\x06h\xc3\xa9llo", 8));
        say(&f, BINARY, "\0\xff", 2);
        fixture_until(&f, got(&f, "\x82\x02\0\xff", 4));
        char big[MESSAGE_MAX], head[10] = "\x82\x7f\0\0\0\0\0\x01\x11\x70";
        memset(big, 'b', sizeof big);
        say(&f, BINARY, big, sizeof big);
        fixture_until(&f, f.in.len >= sizeof big && got(&f, head, 10));
        say(&f, BINARY, big, 300);
        fixture_until(&f, got(&f, "\x82\x7e\x01\x2c" "bbb", 7));
        say(&f, TEXT, "", 0);
        fixture_until(&f, seen.messages == 5);
        assert_int_equal(seen.last_len, 0);
        fixture_stop(&f);
        assert_int_equal(seen.closes, 1);
}

static void fragments_make_one_message_and_control_frames_stand_between(void **state) {
        struct fixture f;
        open_ws(&f);
        say(&f, 0x01, "a\xc3", 2);               /* cut within a character */
        say(&f, PING, "p", 1);
        say(&f, 0x00, "\xa9", 1);
        say(&f, 0x00, "", 0);
        say(&f, 0x80, "b", 1);
        fixture_until(&f, seen.messages == 1 && got(&f, "\x8a\x01p", 3));
        assert_string_equal(seen.log.data, "T:a\xc3\xa9" "b|");
        fixture_stop(&f);
}

static void one_byte_fragments_cost_no_more_than_the_message(void **state) {
        struct fixture f;
        open_ws(&f);
        char *all = malloc(MESSAGE_MAX * 8u);
        size_t n = 0;
        for (size_t i = 0; i < MESSAGE_MAX; i++)
                n += frame(all + n, (i ? 0 : 2) | (i == MESSAGE_MAX - 1 ? 0x80 : 0), "x", 1, true);
        fixture_send(&f, all, n);
        fixture_until(&f, seen.messages == 1);
        assert_int_equal(seen.last_len, MESSAGE_MAX);
        free(all);
        fixture_stop(&f);
}

/* The connection must end with this close frame's code. */
static void ends_with(struct fixture *f, int code) {
        char bytes[2] = { (char)(code >> 8), (char)code };
        fixture_until(f, f->eof && seen.closes == 1);
        assert_true(f->in.len >= 4);
        assert_int_equal((unsigned char)f->in.data[0], CLOSE);
        assert_memory_equal(f->in.data + 2, bytes, 2);
        assert_int_equal(seen.code, code);
}

static void broken_rules_end_the_connection_and_say_which(void **state) {
        static const struct { int code; unsigned first; const char *p; size_t n; unsigned second; } cases[] = {
                { 1002, 0x83, "x", 1, 0 },               /* unknown opcode */
                { 1002, 0x8b, "x", 1, 0 },
                { 1002, 0xc1, "x", 1, 0 },               /* reserved bit */
                { 1002, 0x80, "x", 1, 0 },               /* continuation of nothing */
                { 1002, 0x01, "x", 1, TEXT },            /* a message within a message */
                { 1002, 0x09, "x", 1, 0 },               /* fragmented ping */
                { 1007, TEXT, "\xff", 1, 0 },
                { 1007, TEXT, "\xc3", 1, 0 },            /* ends within a character */
                { 1007, TEXT, "\xed\xa0\x80", 3, 0 },    /* surrogate */
                { 1002, CLOSE, "x", 1, 0 },              /* half a code */
                { 1002, CLOSE, "\x03\xed", 2, 0 },       /* 1005 is never sent */
                { 1002, CLOSE, "\x03\xe7", 2, 0 },       /* 999 */
                { 1002, CLOSE, "\x07\xd0", 2, 0 },       /* 2000 */
                { 1007, CLOSE, "\x03\xe8\xff", 3, 0 },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct fixture f;
                setup(state);
                open_ws(&f);
                say(&f, cases[i].first, cases[i].p, cases[i].n);
                if (cases[i].second)
                        say(&f, cases[i].second, "x", 1);
                fixture_until(&f, seen.closes == 1);
                if (seen.code != cases[i].code)
                        fail_msg("case %zu: %d %s", i, seen.code, seen.reason);
                assert_int_equal(seen.messages, 0);
                ends_with(&f, cases[i].code);
                fixture_stop(&f);
        }
}

static void frames_of_the_wrong_shape_end_the_connection(void **state) {
        static const struct { const char *p; size_t n; } cases[] = {
                { "\x81\x01x", 3 },                                     /* not masked */
                { "\x89\xfe\x00\x7e" "abcd", 8 },                       /* a long ping */
                { "\x82\xfe\x00\x01" "abcdx", 9 },                      /* a length that is not the shortest form */
                { "\x82\xff\x80\0\0\0\0\0\0\0" "abcd", 14 },            /* the top bit of a length */
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct fixture f;
                setup(state);
                open_ws(&f);
                fixture_send(&f, cases[i].p, cases[i].n);
                ends_with(&f, 1002);
                fixture_stop(&f);
        }
}

static void a_message_over_the_limit_is_refused_before_it_has_come(void **state) {
        struct fixture f;
        open_ws(&f);
        fixture_send(&f, "\x82\xff\0\0\0\0\0\x01\x11\x71" "abcd" "x", 15);
        ends_with(&f, 1009);
        fixture_stop(&f);
        setup(state);
        open_ws(&f);                            /* and so is the sum of fragments */
        char big[MESSAGE_MAX] = { 0 };
        say(&f, 0x02, big, sizeof big - 5);
        say(&f, 0x80, big, 6);
        ends_with(&f, 1009);
        fixture_stop(&f);
}

static void the_peers_close_is_answered_and_heard(void **state) {
        struct fixture f;
        open_ws(&f);
        say(&f, CLOSE, "\x0f\xa1" "bye", 5);    /* 4001 */
        say(&f, TEXT, "late", 4);
        fixture_until(&f, f.eof && seen.closes == 1);
        assert_int_equal(seen.code, 4001);
        assert_string_equal(seen.reason, "bye");
        assert_int_equal(f.in.len, 4);
        assert_memory_equal(f.in.data, "\x88\x02\x0f\xa1", 4);
        assert_int_equal(seen.messages, 0);
        fixture_stop(&f);
        setup(state);
        open_ws(&f);
        say(&f, CLOSE, "", 0);
        fixture_until(&f, f.eof && seen.closes == 1);
        assert_int_equal(seen.code, 1005);
        assert_int_equal(f.in.len, 2);
        fixture_stop(&f);
}

static void our_close_waits_for_the_peers(void **state) {
        struct fixture f;
        open_ws(&f);
        http_websocket_send(seen.ws, true, "last", 4);
        http_websocket_close(seen.ws, 4000, "done");
        assert_int_equal(http_websocket_send(seen.ws, true, "x", 1), -EPIPE);
        assert_int_equal(seen.closes, 0);
        fixture_until(&f, got(&f, "\x81\x04last\x88\x06\x0f\xa0" "done", 14));
        say(&f, TEXT, "on its way", 10);
        fixture_some_turns(&f);
        assert_int_equal(seen.closes, 0);
        assert_false(f.eof);
        say(&f, CLOSE, "\x0f\xa0", 2);
        fixture_until(&f, f.eof && seen.closes == 1);
        assert_int_equal(seen.code, 4000);
        assert_string_equal(seen.reason, "done");
        assert_int_equal(seen.messages, 0);
        fixture_stop(&f);
}

static void a_long_reason_is_cut_between_characters(void **state) {
        struct fixture f;
        char reason[200];
        memset(reason, 'r', sizeof reason);
        memcpy(reason + 122, "\xc3\xa9", 3);
        open_ws(&f);
        http_websocket_close(seen.ws, 1000, reason);
        fixture_until(&f, f.in.len >= 2);
        assert_int_equal((unsigned char)f.in.data[1], 2 + 122);
        fixture_stop(&f);
}

static void a_vanished_peer_is_heard_of_once(void **state) {
        struct fixture f;
        open_ws(&f);
        fixture_hang_up(&f);
        fixture_until(&f, seen.closes == 1);
        assert_int_equal(seen.code, 1006);
        fixture_stop(&f);
        assert_int_equal(seen.closes, 1);
}

static void a_silent_peer_is_asked_and_then_given_up(void **state) {
        struct fixture f;
        options.idle_ms = 500;         /* longer than a busy machine lets this program stand still */
        open_ws(&f);
        fixture_until(&f, got(&f, "\x89\0", 2));
        say(&f, 0x8a, "", 0);                   /* it answers the first */
        buf_reset(&f.in);
        fixture_until(&f, got(&f, "\x89\0", 2));
        fixture_until(&f, seen.closes == 1);
        assert_int_equal(seen.code, 1006);
        assert_string_equal(seen.reason, "The peer does not answer");
        fixture_stop(&f);
}

static void a_pause_holds_at_that_very_message(void **state) {
        struct fixture f;
        char all[2000];
        size_t n = 0;
        open_ws(&f);
        seen.pause_each = true;
        for (int i = 0; i < 100; i++) {
                char text[8];
                n += frame(all + n, TEXT, text, (size_t)snprintf(text, sizeof text, "%d", i), true);
        }
        fixture_send(&f, all, n);
        for (size_t i = 1; i <= 100; i++) {
                fixture_until(&f, seen.messages == i);
                fixture_some_turns(&f);
                assert_int_equal(seen.messages, i);
                http_websocket_resume(seen.ws);
        }
        assert_int_equal(strncmp(seen.log.data, "T:0|T:1|T:2|", 12), 0);
        fixture_stop(&f);
}

static void a_pause_stops_a_fast_sender(void **state) {
        struct fixture f;
        char piece[4100], body[4000] = { 0 };
        size_t sent = 0, n = frame(piece, BINARY, body, sizeof body, true);
        open_ws(&f);
        seen.pause_each = true;
        for (int idle = 0; idle < 100; idle++) {
                ssize_t w = write(f.fd, piece, n);
                if (w > 0) {
                        assert_int_equal(w, n);
                        sent += n;
                        idle = 0;
                }
                fixture_turn(&f);
        }
        assert_int_equal(seen.messages, 1);
        assert_in_range(sent, n, 1u << 20);
        fixture_stop(&f);
}

static void a_peer_that_does_not_read_holds_us_back(void **state) {
        struct fixture f;
        static char piece[50000];
        size_t n = 0;
        open_ws(&f);
        int fd = f.fd, e;
        f.fd = -1;
        while ((e = http_websocket_send(seen.ws, false, piece, sizeof piece)) == 0) {
                n += sizeof piece;
                uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        assert_int_equal(e, -EAGAIN);
        assert_in_range(n, HTTP_WEBSOCKET_HIGH_WATER, 4u << 20);
        assert_int_equal(seen.drains, 0);
        f.fd = fd;
        fixture_until(&f, seen.drains == 1 && f.in.len >= n);
        assert_int_equal(http_websocket_send(seen.ws, false, piece, sizeof piece), 0);
        fixture_stop(&f);
}

static void sends_of_one_turn_over_the_mark_are_heard_of_again(void **state) {
        struct fixture f;
        static char piece[50000];
        open_ws(&f);
        while (http_websocket_send(seen.ws, false, piece, sizeof piece) == 0)
                ;
        fixture_until(&f, seen.drains == 1);
        fixture_stop(&f);
}

static void pings_of_a_peer_that_does_not_read_pile_up_nothing(void **state) {
        struct fixture f;
        char piece[4000], body[125] = { 0 };
        size_t n = 0, sent = 0;
        while (n + 131 <= sizeof piece)
                n += frame(piece + n, PING, body, sizeof body, true);
        open_ws(&f);
        int fd = f.fd;
        f.fd = -1;
        for (int idle = 0; idle < 200; idle++) {
                ssize_t w = write(fd, piece, n);
                if (w > 0 && w < (ssize_t)n)
                        break;                  /* full */
                if (w > 0) {
                        sent += n;
                        idle = 0;
                }
                uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        assert_in_range(sent, 1, 4u << 20);
        assert_in_range(response_unsent(f.s->conns), 1, HTTP_WEBSOCKET_HIGH_WATER + READ_CHUNK + 200);
        f.fd = fd;
        fixture_until(&f, f.in.len > sent / 2); /* and once it reads, all goes on */
        fixture_stop(&f);
}

static void a_server_that_stops_says_goodbye(void **state) {
        struct fixture f;
        bool done = false;
        open_ws(&f);
        http_server_stop(f.s, 5000, fixture_stopped, &done);
        fixture_until(&f, got(&f, "\x88\x14\x03\xe9Server is stopping", 22));
        say(&f, CLOSE, "\x03\xe9", 2);
        fixture_until(&f, f.eof && seen.closes == 1);
        fixture_hang_up(&f);
        uv_run(&f.loop, UV_RUN_DEFAULT);
        assert_true(done);
        assert_int_equal(uv_loop_close(&f.loop), 0);
        buf_release(&f.in);
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, setup)
                TEST(the_handshake_of_the_rfc),
                TEST(what_is_not_a_handshake_is_refused),
                TEST(a_needed_protocol_that_is_not_offered_is_refused),
                TEST(frames_that_come_with_the_handshake_are_read),
                TEST(messages_go_both_ways),
                TEST(fragments_make_one_message_and_control_frames_stand_between),
                TEST(one_byte_fragments_cost_no_more_than_the_message),
                TEST(broken_rules_end_the_connection_and_say_which),
                TEST(frames_of_the_wrong_shape_end_the_connection),
                TEST(a_message_over_the_limit_is_refused_before_it_has_come),
                TEST(the_peers_close_is_answered_and_heard),
                TEST(our_close_waits_for_the_peers),
                TEST(a_long_reason_is_cut_between_characters),
                TEST(a_vanished_peer_is_heard_of_once),
                TEST(a_silent_peer_is_asked_and_then_given_up),
                TEST(a_pause_holds_at_that_very_message),
                TEST(a_pause_stops_a_fast_sender),
                TEST(a_peer_that_does_not_read_holds_us_back),
                TEST(sends_of_one_turn_over_the_mark_are_heard_of_again),
                TEST(pings_of_a_peer_that_does_not_read_pile_up_nothing),
                TEST(a_server_that_stops_says_goodbye),
        };
        return cmocka_run_group_tests_name("http/websocket", tests, NULL, NULL);
}
