/* Frames of a turn's control socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

#include "rlm/frames.h"

static struct frames frames;

static int open_reader(void **state) {
        frames_init(&frames);
        return 0;
}

static int close_reader(void **state) {
        frames_release(&frames);
        return 0;
}

static int feed_head(uint32_t n, char kind) {
        char head[FRAME_HEAD];
        memcpy(head, &n, sizeof n);
        head[4] = kind;
        return frames_feed(&frames, head, sizeof head);
}

/* A DONE with these parts. */
static void put_done(struct buf *b, uint64_t action, unsigned char kind, const char *type, const char *text, const char *tool) {
        _cleanup_buf_ struct buf p = BUF_INIT(1 << 20);
        buf_add(&p, &action, sizeof action);
        buf_addc(&p, (char)kind);
        const char *const part[] = { type, text, tool };
        for (int i = 0; i < 3; i++) {
                uint32_t n = (uint32_t)strlen(part[i]);
                buf_add(&p, &n, sizeof n);
                buf_add(&p, part[i], n);
        }
        assert_int_equal(frame_put(b, FRAME_DONE, p.data, p.len), 0);
}

static int read_done(uint64_t action, unsigned char kind, const char *type, const char *text, const char *tool, struct turn_reply *ret) {
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        put_done(&b, action, kind, type, text, tool);
        struct frame f;
        uint64_t got;
        assert_int_equal(frames_feed(&frames, b.data, b.len), 0);
        assert_int_equal(frames_next(&frames, &f), 1);
        int r = frame_done_decode(&f, &got, ret);
        if (r == 0)
                assert_int_equal(got, action);
        return r;
}

static void frames_come_in_any_pieces(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct frame f;
        unsigned n = 0;
        frame_put(&b, FRAME_HELLO, NULL, 0);
        put_done(&b, 1, TURN_OK, "", "", "");
        frame_put(&b, FRAME_BEGUN, NULL, 0);
        static const enum frame_kind want[] = { FRAME_HELLO, FRAME_DONE, FRAME_BEGUN };
        for (size_t i = 0; i < b.len; i++) {
                assert_int_equal(frames_feed(&frames, b.data + i, 1), 0);
                while (frames_next(&frames, &f) > 0)
                        assert_int_equal(f.kind, want[n++]);
        }
        assert_int_equal(n, 3);
        assert_int_equal(frames_feed(&frames, b.data, b.len), 0);
        for (n = 0; n < 3; n++)
                assert_int_equal(frames_next(&frames, &f), 1);
        assert_int_equal(frames_next(&frames, &f), 0);
}

static void what_no_process_may_send_is_refused(void **state) { assert_int_equal(feed_head(0, 'Q'), -EPROTO); }
static void what_only_we_send_is_refused(void **state) { assert_int_equal(feed_head(0, FRAME_EXECUTE), -EPROTO); }
static void a_frame_of_its_limit_is_taken(void **state) { assert_int_equal(feed_head(TURN_SUBMIT_MAX + 12, FRAME_SUBMIT), 0); }
static void a_longer_one_is_refused_before_it_comes(void **state) { assert_int_equal(feed_head(TURN_SUBMIT_MAX + 13, FRAME_SUBMIT), -EPROTO); }
static void each_kind_has_its_own_limit(void **state) { assert_int_equal(feed_head(1, FRAME_HELLO), -EPROTO); }

static void the_second_frame_is_checked_too(void **state) {
        static const char bytes[] = "\0\0\0\0H\xff\xff\xff\xffS";
        struct frame f;
        assert_int_equal(frames_feed(&frames, bytes, sizeof bytes - 1), 0);
        assert_int_equal(frames_next(&frames, &f), 1);
        assert_int_equal(frames_next(&frames, &f), -EPROTO);
}

static void an_answer_is_read(void **state) {
        struct turn_reply d;
        assert_int_equal(read_done(7, TURN_ERROR_TOOL, "ToolError", "text \xc3\xa9", "{\"category\":\"x\"}", &d), 0);
        assert_int_equal(d.kind, TURN_ERROR_TOOL);
        assert_int_equal(d.error_type_len, 9);
        assert_memory_equal(d.error, "text \xc3\xa9", 7);
        assert_memory_equal(d.tool_error, "{\"category\":\"x\"}", d.tool_error_len);
}

static void an_answer_with_faults_is_none(void **state) {
        struct turn_reply d;
        assert_int_equal(read_done(1, TURN_ERROR_KIND_MAX, "", "", "", &d), -EPROTO);
        assert_int_equal(read_done(1, TURN_OK, "\xff", "", "", &d), -EPROTO);
        assert_int_equal(read_done(1, TURN_OK, "", "\xed\xa0\x80", "", &d), -EPROTO);
        assert_int_equal(read_done(1, TURN_OK, "", "", "{}", &d), -EPROTO);
        assert_int_equal(read_done(1, TURN_ERROR_TOOL, "", "", "", &d), -EPROTO);
        assert_int_equal(read_done(1, TURN_ERROR_TOOL, "", "", "[]", &d), -EPROTO);
        assert_int_equal(read_done(1, TURN_ERROR_TOOL, "", "", "{\"a\":NaN}", &d), -EPROTO);
}

static void lengths_within_a_frame_are_checked(void **state) {
        struct turn_reply d;
        uint64_t action;
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        put_done(&b, 1, TURN_OK, "a", "b", "");
        struct frame f = { .kind = FRAME_DONE, .p = b.data + FRAME_HEAD };
        for (f.n = 0; f.n < b.len - FRAME_HEAD; f.n++)
                assert_int_equal(frame_done_decode(&f, &action, &d), -EPROTO);
        assert_int_equal(frame_done_decode(&f, &action, &d), 0);
        buf_addc(&b, 'x');
        f = (struct frame){ .kind = FRAME_DONE, .p = b.data + FRAME_HEAD, .n = b.len - FRAME_HEAD };
        assert_int_equal(frame_done_decode(&f, &action, &d), -EPROTO);
        struct frame_submit s;
        f.kind = FRAME_SUBMIT;
        f.n = 11;
        assert_int_equal(frame_submit_decode(&f, &s), -EPROTO);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_reader, close_reader)
int main(void) {
        const struct CMUnitTest tests[] = {
                T(frames_come_in_any_pieces), T(what_no_process_may_send_is_refused), T(what_only_we_send_is_refused), T(a_frame_of_its_limit_is_taken),
                T(a_longer_one_is_refused_before_it_comes), T(each_kind_has_its_own_limit), T(the_second_frame_is_checked_too), T(an_answer_is_read),
                T(an_answer_with_faults_is_none), T(lengths_within_a_frame_are_checked),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
