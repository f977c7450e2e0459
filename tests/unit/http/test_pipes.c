/* Bodies into pipes, answers from descriptors, bodies that outlive their request. */
#include "fixture.h"
#include "http/send.h"
#include "http/upload.h"

#define BIG (1u << 20)

static struct {
        struct http_request *r;
        int result, dones, closes;
        int fds[2];                /* the pipe: [0] is read, [1] written */
        int file;
        bool manual;               /* the test ends the answer */
        struct http_body_hold *hold;
        const char *held; size_t held_len;
} seen;

static int setup(void **state) {
        memset(&seen, 0, sizeof seen);
        assert_int_equal(pipe2(seen.fds, O_CLOEXEC | O_NONBLOCK), 0);
        seen.file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        assert_true(seen.file >= 0);
        seen.result = 99;
        return 0;
}

static int teardown(void **state) {
        fd_close(seen.fds[0]);
        fd_close(seen.fds[1]);
        fd_close(seen.file);
        return 0;
}

static void uploaded(int r, void *user) {
        seen.dones++;
        seen.result = r;
        seen.fds[1] = fd_close(seen.fds[1]);
        if (r == -ECANCELED)
                return;
        const char *text = r == 0 ? "stored" : "reader gone";
        http_respond(seen.r, r == 0 ? 200 : 507, "text/plain", text, strlen(text));
}

static void to_pipe(struct http_request *r, void *user) {
        seen.r = r;
        assert_int_equal(http_upload_to_pipe(r, seen.fds[1], uploaded, NULL), 0);
}

static void sent(int r, void *user) {
        seen.dones++;
        seen.result = r;
}

static void from_file(struct http_request *r, void *user) {
        http_send_file(r, TAKE_FD(seen.file), 26, "text/plain", sent, NULL);
}

static void big_file(struct http_request *r, void *user) {
        http_send_file(r, TAKE_FD(seen.file), BIG, "text/plain", sent, NULL);
}

static void from_pipe(struct http_request *r, void *user) {
        const char *n = http_query(r, "n");
        seen.r = r;
        http_send_pipe(r, 200, TAKE_FD(seen.fds[0]), n ? (int64_t)strtoul(n, NULL, 10) : -1, "text/plain", seen.manual ? sent : NULL, NULL);
}

static void hold(struct http_request *r, void *user) {
        assert_int_equal(http_body_hold(r, &seen.hold, &seen.held, &seen.held_len), 0);
        assert_int_equal(http_body_len(r), 0);
        http_respond(r, 200, "text/plain", "held", 4);
}

static const struct http_route routes[] = {
        { "PUT", "/pipe", to_pipe, false, NULL, .stream_body = true, .body_max = HTTP_BODY_ANY },
        { "GET", "/file", from_file, false, NULL },
        { "GET", "/big", big_file, false, NULL },
        { "GET", "/pipe", from_pipe, false, NULL },
        { "POST", "/hold", hold, false, NULL },
};

static void little_memory(struct http_config *cfg) {
        cfg->limits.body_memory_max = 1000;
}

static void start(struct fixture *f) {
        fixture_start(f, routes, ARRAY_SIZE(routes), little_memory);
}

static void get(struct fixture *f, const char *path, const char *more) {
        char text[300];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, more);
        fixture_say(f, text);
}

static void put_head(struct fixture *f, size_t n) {
        char text[200];
        snprintf(text, sizeof text, "PUT /pipe HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", n);
        fixture_say(f, text);
}

static void fill_file(size_t n) {
        char *p = malloc(n);
        for (size_t i = 0; i < n; i++)
                p[i] = (char)('a' + i % 26);
        assert_int_equal(pwrite(seen.file, p, n, 0), n);
        free(p);
}

/* ---- into a pipe ---- */

static void a_body_goes_through_a_pipe_as_fast_as_it_is_read(void **state) {
        struct fixture f;
        static char body[BIG], got[BIG];
        size_t sent_n = 0, got_n = 0;
        start(&f);
        for (size_t i = 0; i < BIG; i++)
                body[i] = (char)(i * 7 + (i >> 10));
        put_head(&f, BIG);
        for (int idle = 0; idle < 50; idle++) {         /* nobody reads the pipe */
                ssize_t n = write(f.fd, body + sent_n, BIG - sent_n);
                if (n > 0) {
                        sent_n += (size_t)n;
                        idle = 0;
                }
                fixture_turn(&f);
        }
        assert_in_range(sent_n, 1, BIG - 1);
        while (got_n < BIG) {
                ssize_t n = read(seen.fds[0], got + got_n, BIG - got_n);
                got_n += n > 0 ? (size_t)n : 0;
                n = write(f.fd, body + sent_n, BIG - sent_n);
                sent_n += n > 0 ? (size_t)n : 0;
                fixture_turn(&f);
        }
        assert_memory_equal(got, body, BIG);
        fixture_until(&f, fixture_has(&f, "stored"));
        assert_int_equal(seen.dones, 1);
        assert_int_equal(read(seen.fds[0], got, 1), 0);
        fixture_stop(&f);
}

static void a_reader_that_ends_early_is_noticed_without_a_further_byte(void **state) {
        struct fixture f;
        start(&f);
        put_head(&f, BIG);
        fixture_say(&f, "abc");
        fixture_some_turns(&f);
        assert_int_equal(seen.dones, 0);
        seen.fds[0] = fd_close(seen.fds[0]);
        fixture_until(&f, fixture_has(&f, "reader gone"));
        assert_int_equal(seen.result, -EPIPE);
        fixture_until(&f, f.eof);
        fixture_stop(&f);
        assert_int_equal(seen.dones, 1);
}

static void a_reader_that_ends_while_its_pipe_is_full_is_noticed(void **state) {
        struct fixture f;
        static char body[256 * 1024];
        start(&f);
        put_head(&f, BIG);
        fixture_send(&f, body, sizeof body / 2);
        fixture_some_turns(&f);
        seen.fds[0] = fd_close(seen.fds[0]);
        fixture_until(&f, fixture_has(&f, "reader gone"));
        fixture_stop(&f);
        assert_int_equal(seen.dones, 1);
}

static void a_client_that_breaks_off_is_told_before_the_pipe_ends(void **state) {
        struct fixture f;
        start(&f);
        put_head(&f, 100);
        fixture_say(&f, "abc");
        fixture_some_turns(&f);
        fixture_hang_up(&f);
        fixture_until(&f, seen.dones == 1);
        assert_int_equal(seen.result, -ECANCELED);
        fixture_stop(&f);
        assert_int_equal(seen.dones, 1);
}

/* ---- from a file ---- */

static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz";

static void ranges_of_a_file(void **state) {
        static const struct { const char *header; int status; const char *body, *range; } cases[] = {
                { "", 200, alphabet, NULL },
                { "Range: bytes=0-0\r\n", 206, "a", "bytes 0-0/26" },
                { "Range: bytes=3-5\r\n", 206, "def", "bytes 3-5/26" },
                { "Range: bytes=20-\r\n", 206, "uvwxyz", "bytes 20-25/26" },
                { "Range: bytes=20-99999999999999999999\r\n", 200, alphabet, NULL },  /* not a number that we know */
                { "Range: bytes=20-9999\r\n", 206, "uvwxyz", "bytes 20-25/26" },
                { "Range: bytes=-2\r\n", 206, "yz", "bytes 24-25/26" },
                { "Range: bytes=-200\r\n", 206, alphabet, "bytes 0-25/26" },
                { "Range: bytes=26-\r\n", 416, "Range not satisfiable", "bytes */26" },
                { "Range: bytes=-0\r\n", 416, "Range not satisfiable", "bytes */26" },
                { "Range: bytes=5-3\r\n", 200, alphabet, NULL },
                { "Range: bytes=1-2,4-5\r\n", 200, alphabet, NULL },
                { "Range: bytes=1-2x\r\n", 200, alphabet, NULL },
                { "Range: bytes=-\r\n", 200, alphabet, NULL },
                { "Range: lines=1-2\r\n", 200, alphabet, NULL },
                { "Range: bytes=3-5\r\nIf-Range: \"x\"\r\n", 200, alphabet, NULL },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct fixture f;
                char line[40];
                teardown(state);
                setup(state);
                fill_file(26);
                start(&f);
                get(&f, "/file", cases[i].header);
                snprintf(line, sizeof line, "HTTP/1.1 %d ", cases[i].status);
                fixture_until(&f, fixture_has(&f, cases[i].body) && seen.dones == 1);
                if (!fixture_has(&f, line))
                        fail_msg("%s: %s", cases[i].header, f.in.data);
                if (cases[i].status != 416) {
                        snprintf(line, sizeof line, "Content-Length: %zu\r\n", strlen(cases[i].body));
                        if (!fixture_has(&f, line) || !fixture_has(&f, "Accept-Ranges: bytes\r\n"))
                                fail_msg("%s: %s", cases[i].header, f.in.data);
                        assert_string_equal(strstr(f.in.data, "\r\n\r\n") + 4, cases[i].body);
                }
                if (cases[i].range && !fixture_has(&f, cases[i].range))
                        fail_msg("%s: %s", cases[i].header, f.in.data);
                if (!cases[i].range)
                        assert_false(fixture_has(&f, "Content-Range"));
                fixture_stop(&f);
        }
}

static void head_of_a_file_has_its_length(void **state) {
        struct fixture f;
        fill_file(26);
        start(&f);
        fixture_say(&f, "HEAD /file HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
        fixture_until(&f, fixture_has(&f, "404"));
        assert_true(fixture_has(&f, "Content-Length: 26"));
        assert_false(fixture_has(&f, "abc"));
        fixture_stop(&f);
}

static void a_large_file_waits_for_its_reader(void **state) {
        struct fixture f;
        fill_file(BIG);
        start(&f);
        get(&f, "/big", "");
        int fd = f.fd;
        f.fd = -1;                      /* the peer does not read */
        fixture_until(&f, response_unsent(f.s->conns) > HTTP_STREAM_HIGH_WATER);
        fixture_some_turns(&f);
        assert_int_equal(seen.dones, 0);
        assert_in_range(response_unsent(f.s->conns), HTTP_STREAM_HIGH_WATER, HTTP_STREAM_HIGH_WATER + HTTP_SEND_PIECE);
        f.fd = fd;
        fixture_until(&f, f.in.len > BIG && seen.dones == 1);
        assert_int_equal(seen.result, 0);
        fixture_stop(&f);
}

static void a_peer_that_stops_reading_a_file_ends_it(void **state) {
        struct fixture f;
        fill_file(BIG);
        start(&f);
        get(&f, "/big", "");
        fixture_until(&f, fixture_has(&f, "200 OK"));
        fixture_hang_up(&f);
        fixture_until(&f, seen.dones == 1);
        assert_int_equal(seen.result, -ECANCELED);
        fixture_stop(&f);
}

static void a_file_that_is_shorter_than_said_breaks_the_connection(void **state) {
        struct fixture f;
        fill_file(1000);
        start(&f);
        get(&f, "/big", "");
        fixture_until(&f, f.eof);
        assert_int_equal(seen.result, -EIO);
        fixture_stop(&f);
}

/* ---- from a pipe ---- */

static void put(const char *text) {
        assert_int_equal(write(seen.fds[1], text, strlen(text)), strlen(text));
}

static void a_pipe_is_sent_in_chunks_as_it_comes(void **state) {
        struct fixture f;
        start(&f);
        get(&f, "/pipe", "");
        fixture_until(&f, fixture_has(&f, "Transfer-Encoding: chunked"));
        put("abc");
        fixture_until(&f, fixture_has(&f, "3\r\nabc\r\n"));
        put("defg");
        fixture_until(&f, fixture_has(&f, "4\r\ndefg\r\n"));
        seen.fds[1] = fd_close(seen.fds[1]);
        fixture_until(&f, fixture_has(&f, "\r\n0\r\n\r\n"));
        get(&f, "/nothing", "");        /* the connection goes on */
        fixture_until(&f, fixture_has(&f, "404"));
        fixture_stop(&f);
}

static void a_pipe_of_known_length_is_not_chunked(void **state) {
        struct fixture f;
        start(&f);
        get(&f, "/pipe?n=6", "");
        put("abcdef");
        seen.fds[1] = fd_close(seen.fds[1]);
        fixture_until(&f, fixture_has(&f, "\r\n\r\nabcdef"));
        assert_true(fixture_has(&f, "Content-Length: 6\r\n"));
        assert_false(fixture_has(&f, "chunked"));
        get(&f, "/nothing", "");
        fixture_until(&f, fixture_has(&f, "404"));
        fixture_stop(&f);
}

static void a_pipe_that_brings_too_little_breaks_the_connection(void **state) {
        struct fixture f;
        start(&f);
        get(&f, "/pipe?n=7", "");
        put("abcdef");
        seen.fds[1] = fd_close(seen.fds[1]);
        fixture_until(&f, f.eof);
        assert_true(fixture_has(&f, "abcdef"));
        fixture_stop(&f);
}

static void a_pipe_that_brings_too_much_breaks_the_connection(void **state) {
        struct fixture f;
        start(&f);
        get(&f, "/pipe?n=5", "");
        put("abcdef");
        fixture_until(&f, f.eof);
        fixture_stop(&f);
}

static void how_a_pipe_ended_is_for_the_caller_to_say(void **state) {
        struct fixture f;
        start(&f);
        seen.manual = true;
        get(&f, "/pipe", "");
        put("abc");
        seen.fds[1] = fd_close(seen.fds[1]);
        fixture_until(&f, seen.dones == 1);
        assert_int_equal(seen.result, 0);
        fixture_some_turns(&f);
        assert_false(fixture_has(&f, "\r\n0\r\n\r\n"));
        http_stream_abort(seen.r);
        fixture_until(&f, f.eof);
        assert_false(fixture_has(&f, "\r\n0\r\n\r\n"));
        fixture_stop(&f);
}

static void a_full_peer_holds_the_pipe_back(void **state) {
        struct fixture f;
        static char piece[4096];
        size_t n = 0;
        start(&f);
        memset(piece, 'x', sizeof piece);
        get(&f, "/pipe", "");
        int fd = f.fd;
        f.fd = -1;
        for (int idle = 0; idle < 50; idle++) {
                ssize_t w = write(seen.fds[1], piece, sizeof piece);
                if (w > 0) {
                        n += (size_t)w;
                        idle = 0;
                }
                uv_run(&f.loop, UV_RUN_NOWAIT);
        }
        assert_in_range(n, 1, 2u << 20);
        seen.fds[1] = fd_close(seen.fds[1]);
        f.fd = fd;
        fixture_until(&f, fixture_has(&f, "\r\n0\r\n\r\n"));
        assert_true(f.in.len > n);
        fixture_stop(&f);
}

static void a_peer_that_vanishes_ends_its_pipe(void **state) {
        struct fixture f;
        start(&f);
        seen.manual = true;
        get(&f, "/pipe", "");
        fixture_until(&f, fixture_has(&f, "200 OK"));
        fixture_hang_up(&f);
        for (int i = 0; i < 1000000 && seen.dones == 0; i++) {
                (void)!write(seen.fds[1], "x", 1);
                fixture_turn(&f);
        }
        assert_int_equal(seen.result, -ECANCELED);
        fixture_stop(&f);
        assert_int_equal(seen.dones, 1);
}

/* ---- held bodies ---- */

static void a_held_body_outlives_request_peer_and_server(void **state) {
        static const size_t sizes[] = { 0, 10, 100000 };        /* nothing, in memory, spooled */
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                struct fixture f;
                char head[100], *body = malloc(sizes[i] + 1);
                memset(body, 'b', sizes[i]);
                start(&f);
                snprintf(head, sizeof head, "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", sizes[i]);
                fixture_say(&f, head);
                fixture_send(&f, body, sizes[i]);
                fixture_until(&f, fixture_has(&f, "held"));
                fixture_stop(&f);
                assert_int_equal(seen.held_len, sizes[i]);
                assert_memory_equal(seen.held, body, sizes[i]);
                seen.hold = http_body_release(seen.hold);
                free(body);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
                TEST(a_body_goes_through_a_pipe_as_fast_as_it_is_read),
                TEST(a_reader_that_ends_early_is_noticed_without_a_further_byte),
                TEST(a_reader_that_ends_while_its_pipe_is_full_is_noticed),
                TEST(a_client_that_breaks_off_is_told_before_the_pipe_ends),
                TEST(ranges_of_a_file),
                TEST(head_of_a_file_has_its_length),
                TEST(a_large_file_waits_for_its_reader),
                TEST(a_peer_that_stops_reading_a_file_ends_it),
                TEST(a_file_that_is_shorter_than_said_breaks_the_connection),
                TEST(a_pipe_is_sent_in_chunks_as_it_comes),
                TEST(a_pipe_of_known_length_is_not_chunked),
                TEST(a_pipe_that_brings_too_little_breaks_the_connection),
                TEST(a_pipe_that_brings_too_much_breaks_the_connection),
                TEST(how_a_pipe_ended_is_for_the_caller_to_say),
                TEST(a_full_peer_holds_the_pipe_back),
                TEST(a_peer_that_vanishes_ends_its_pipe),
                TEST(a_held_body_outlives_request_peer_and_server),
        };
        return cmocka_run_group_tests_name("http/pipes", tests, NULL, NULL);
}
