/* The parts of an action that need no process: its clocks, what it wrote, what it may submit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "rlm/action_clock.h"
#include "rlm/contract.h"
#include "rlm/transcript.h"

/* ---- clocks --------------------------------------------------------------------------------------------------------------------- */

static void without_a_host_share_waiting_is_the_codes_time(void **state) {
        struct action_clock c;
        action_clock_start(&c, 1000, 500, 0);
        assert_int_equal(action_clock_deadline(&c, 1000), 1500);
        action_clock_wait(&c, 1100, true);
        assert_int_equal(action_clock_deadline(&c, 1200), 1500);
        action_clock_wait(&c, 1300, false);
        assert_int_equal(action_clock_deadline(&c, 1300), 1500);
}

static void the_codes_clock_stands_while_the_host_works(void **state) {
        struct action_clock c;
        action_clock_start(&c, 0, 500, 1000);
        action_clock_wait(&c, 100, true);
        assert_int_equal(action_clock_deadline(&c, 100), 100 + 1000 + 400);
        action_clock_wait(&c, 700, false);     /* 600 of the host's are used */
        assert_int_equal(action_clock_deadline(&c, 700), 700 + 400);
        action_clock_wait(&c, 800, true);
        assert_int_equal(action_clock_deadline(&c, 800), 800 + 400 + 300);
        assert_int_equal(c.host_used_ms, 600);
}

static void beyond_the_ceiling_waiting_is_the_codes_time(void **state) {
        struct action_clock c;
        action_clock_start(&c, 0, 500, 100);
        action_clock_wait(&c, 0, true);
        action_clock_wait(&c, 400, false);     /* 100 the host's, 300 the code's */
        assert_int_equal(action_clock_deadline(&c, 400), 600);
        assert_int_equal(c.host_used_ms, 100);
}

static void a_deadline_stays_while_nothing_changes(void **state) {
        struct action_clock c;
        action_clock_start(&c, 0, 500, 300);
        action_clock_wait(&c, 50, true);
        uint64_t at = action_clock_deadline(&c, 50);
        for (uint64_t now = 50; now < 800; now += 7)
                assert_int_equal(action_clock_deadline(&c, now), at);
        assert_int_equal(action_clock_wait_deadline(&c, 60), at);
}

static void the_total_is_never_more_than_both(void **state) {
        struct action_clock c;
        uint32_t x = 7;
        for (int round = 0; round < 1000; round++) {
                uint64_t now = 0;
                action_clock_start(&c, 0, 500, 300);
                while (action_clock_deadline(&c, now) > now) {
                        x = x * 1664525 + 1013904223;
                        now += (x >> 16) % 20 + 1;
                        action_clock_wait(&c, now, (x >> 30) & 1);
                }
                assert_true(now < 500 + 300 + 20);
        }
}

/* ---- transcripts ----------------------------------------------------------------------------------------------------------------- */

static size_t characters(const struct buf *b) {
        size_t n = 0;
        for (size_t i = 0; i < b->len; i++)
                n += ((unsigned char)b->data[i] & 0xc0) != 0x80;
        return n;
}

static void text_of(struct transcript *t, struct buf *b) {
        buf_release(b);
        buf_init(b, 1u << 20);
        assert_int_equal(transcript_text(t, b), 0);
        transcript_release(t);
}

static void exactly_the_limit_is_kept_whole(void **state) {
        struct transcript t;
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        transcript_init(&t);
        for (unsigned i = 0; i < TRANSCRIPT_MAX; i++)
                assert_int_equal(transcript_feed(&t, "x", 1), 0);
        assert_false(transcript_truncated(&t));
        text_of(&t, &b);
        assert_int_equal(b.len, TRANSCRIPT_MAX);
        assert_null(strchr(b.data, '['));
}

static void one_more_leaves_the_middle_out(void **state) {
        struct transcript t;
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        transcript_init(&t);
        transcript_feed(&t, "BEGIN", 5);
        for (unsigned i = 0; i < TRANSCRIPT_MAX - 7; i++)
                transcript_feed(&t, "x", 1);
        transcript_feed(&t, "END", 3);
        assert_true(transcript_truncated(&t));
        text_of(&t, &b);
        assert_true(characters(&b) <= TRANSCRIPT_MAX);
        assert_memory_equal(b.data, "BEGIN", 5);
        assert_memory_equal(b.data + b.len - 3, "END", 3);
        assert_non_null(strstr(b.data, "\n[... 65 characters left out ...]\n"));
}

static void the_limit_counts_characters_not_bytes(void **state) {
        struct transcript t;
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        transcript_init(&t);
        for (unsigned i = 0; i < TRANSCRIPT_MAX; i++)
                transcript_feed(&t, "\xf0\x9f\x9a\x80", 4);
        assert_false(transcript_truncated(&t));
        text_of(&t, &b);
        assert_int_equal(b.len, 4 * TRANSCRIPT_MAX);
}

static void much_output_costs_little_memory(void **state) {
        struct transcript t;
        static char piece[65536];
        _cleanup_buf_ struct buf b = BUF_INIT(0);
        memset(piece, 'y', sizeof piece);
        transcript_init(&t);
        for (int i = 0; i < 2000; i++)
                assert_int_equal(transcript_feed(&t, piece, sizeof piece), 0);
        for (int i = 0; i < 1000; i++)
                assert_int_equal(transcript_feed(&t, "\xc3\xa4z", 3), 0);
        assert_true(t.head.alloc + t.tail.alloc < 1u << 20);
        text_of(&t, &b);
        assert_true(characters(&b) <= TRANSCRIPT_MAX);
        assert_memory_equal(b.data + b.len - 6, "\xc3\xa4z\xc3\xa4z", 6);
}

/* However the bytes come, the same text. */
static void characters_in_pieces_are_put_together(void **state) {
        static const char bytes[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80\xff" "b\xe2\x82" "c\xf0\x9f";
        static const char want[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x9a\x80\xef\xbf\xbd" "b\xef\xbf\xbd" "c\xef\xbf\xbd";
        for (size_t step = 1; step < sizeof bytes; step++) {
                struct transcript t;
                _cleanup_buf_ struct buf b = BUF_INIT(0);
                transcript_init(&t);
                for (size_t at = 0; at < sizeof bytes - 1; at += step)
                        transcript_feed(&t, bytes + at, MIN2(step, sizeof bytes - 1 - at));
                text_of(&t, &b);
                assert_string_equal(b.data, want);
        }
}

/* ---- tools and outputs ---------------------------------------------------------------------------------------------------------------- */

static struct json parsed(const char *text) {
        struct json v;
        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return v;
}

static int tools_of(const char *text, struct error *e) {
        struct json v = parsed(text);
        struct tools t;
        int r = tools_parse(&v, &t, e);
        if (r == 0) {
                r = (int)t.n;
                tools_release(&t);
        }
        return r;
}

static void tools_have_names_that_python_takes(void **state) {
        struct error e;
        assert_int_equal(tools_of("[{\"name\":\"search\"},{\"name\":\"_x9\",\"parameters\":{}}]", &e), 2);
        static const char *const bad[] = {
                "[{\"name\":\"9x\"}]", "[{\"name\":\"a-b\"}]", "[{\"name\":\"\"}]", "[{\"name\":\"class\"}]", "[{\"name\":\"a\\u0000b\"}]", "[{\"name\":\"\xc3\xa4\"}]",
                "[{\"name\":\"llm_query\"}]", "[{\"name\":\"llm_query_batched\"}]", "[{\"name\":\"SUBMIT\"}]", "[{\"name\":\"print\"}]", "[{\"name\":7}]", "[{}]", "[7]", "{}", "\"x\"",
                "[{\"name\":\"a\"},{\"name\":\"a\"}]", "[{\"name\":\"a\",\"parameters\":[]}]",
                "[{\"name\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(tools_of(bad[i], &e), -EINVAL);
}

static int submit(const char *spec, const char *given, struct buf *ret, struct error *e) {
        struct json s = parsed(spec), g = parsed(given);
        struct outputs o;
        assert_int_equal(outputs_parse(&s, &o, e), 0);
        buf_reset(ret);
        int r = outputs_check(&o, &g, ret, e);
        outputs_release(&o);
        return r;
}

static void outputs_are_checked_by_their_types(void **state) {
        static const struct { const char *type, *right, *wrong; } cases[] = {
                { "str", "\"x\"", "7" }, { "int", "7", "7.5" }, { "int", "123456789012345678901234567890", "\"7\"" }, { "int", "-0", "true" }, { "float", "1e300", "\"1\"" }, { "bool", "true", "1" },
                { "list", "[1,\"a\"]", "{}" }, { "dict", "{\"a\":1}", "[]" }, { "list[str]", "[\"a\"]", "[\"a\",1]" }, { "dict[str, float]", "{\"a\":1.5}", "{\"a\":\"b\"}" },
                { "Optional[int]", "null", "\"a\"" }, { "str | None", "null", "1" }, { "string", "\"\"", "null" }, { "number", "0", "null" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char spec[128], given[128];
                struct error e;
                _cleanup_buf_ struct buf b = BUF_INIT(1024);
                snprintf(spec, sizeof spec, "[{\"name\":\"x\",\"type\":\"%s\"}]", cases[i].type);
                snprintf(given, sizeof given, "{\"x\":%s}", cases[i].right);
                assert_int_equal(submit(spec, given, &b, &e), 0);
                assert_string_equal(b.data, given);
                snprintf(given, sizeof given, "{\"x\":%s}", cases[i].wrong);
                assert_int_equal(submit(spec, given, &b, &e), -EINVAL);
                assert_non_null(strstr(e.text, "x"));
        }
}

static void what_is_missing_gets_its_default_or_is_named(void **state) {
        static const char spec[] = "[{\"name\":\"a\",\"type\":\"str\"},{\"name\":\"b\",\"type\":\"int\",\"default\":3},{\"name\":\"c\",\"required\":false}]";
        struct error e;
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        assert_int_equal(submit(spec, "{\"a\":\"x\"}", &b, &e), 0);
        assert_string_equal(b.data, "{\"a\":\"x\",\"b\":3}");
        assert_int_equal(submit(spec, "{\"b\":4}", &b, &e), -EINVAL);
        assert_non_null(strstr(e.text, "a is missing"));
        assert_int_equal(submit(spec, "{\"a\":\"x\",\"d\":1}", &b, &e), -EINVAL);
        assert_non_null(strstr(e.text, "\"d\""));
}

static void without_outputs_anything_with_names_is_taken(void **state) {
        struct error e;
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        assert_int_equal(submit("[]", "{\"whatever\":[1,2]}", &b, &e), 0);
        assert_string_equal(b.data, "{\"whatever\":[1,2]}");
        assert_int_equal(submit("[]", "[1]", &b, &e), -EINVAL);
}

static void a_submit_has_a_size(void **state) {
        _cleanup_free_ char *text = malloc(SUBMIT_BYTES_MAX + 16);
        _cleanup_buf_ struct buf b = BUF_INIT(SUBMIT_BYTES_MAX + 64);
        struct error e;
        for (int over = 0; over < 2; over++) {
                size_t n = SUBMIT_BYTES_MAX - 8 + (size_t)over;        /* {"x":"..."} has eight bytes around it */
                memcpy(text, "{\"x\":\"", 6);
                memset(text + 6, 'a', n);
                memcpy(text + 6 + n, "\"}", 3);
                assert_int_equal(submit("[{\"name\":\"x\",\"type\":\"str\"}]", text, &b, &e), over ? -EFBIG : 0);
        }
}

static void outputs_that_cannot_be_are_refused(void **state) {
        static const char *const bad[] = {
                "[{\"name\":\"x\",\"type\":\"widget\"}]", "[{\"name\":\"x\",\"type\":\"list[widget]\"}]", "[{\"name\":\"x\",\"type\":\"dict[int, str]\"}]", "[{\"name\":\"x\",\"type\":\"str[int]\"}]",
                "[{\"name\":\"x\",\"type\":\"list[\"}]", "[{\"name\":\"x\",\"type\":\"\"}]", "[{\"name\":\"x\",\"type\":7}]", "[{\"name\":\"x\"},{\"name\":\"x\"}]", "[{\"name\":\"SUBMIT\"}]",
                "[{\"name\":\"x\",\"type\":\"int\",\"default\":\"a\"}]", "[{\"name\":\"x\",\"required\":1}]", "7", "[7]", "{\"x\":7}", "[{\"name\":\"x\",\"type\":\"Optional[]\"}]",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct json v = parsed(bad[i]);
                struct outputs o;
                struct error e;
                assert_int_equal(outputs_parse(&v, &o, &e), -EINVAL);
        }
}

static void outputs_may_be_an_object_of_types(void **state) {
        struct error e;
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        assert_int_equal(submit("{\"answer\":\"str\",\"n\":{\"type\":\"int\",\"default\":1}}", "{\"answer\":\"yes\"}", &b, &e), 0);
        assert_string_equal(b.data, "{\"answer\":\"yes\",\"n\":1}");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_a_host_share_waiting_is_the_codes_time),
                cmocka_unit_test(the_codes_clock_stands_while_the_host_works),
                cmocka_unit_test(beyond_the_ceiling_waiting_is_the_codes_time),
                cmocka_unit_test(a_deadline_stays_while_nothing_changes),
                cmocka_unit_test(the_total_is_never_more_than_both),
                cmocka_unit_test(exactly_the_limit_is_kept_whole),
                cmocka_unit_test(one_more_leaves_the_middle_out),
                cmocka_unit_test(the_limit_counts_characters_not_bytes),
                cmocka_unit_test(much_output_costs_little_memory),
                cmocka_unit_test(characters_in_pieces_are_put_together),
                cmocka_unit_test(tools_have_names_that_python_takes),
                cmocka_unit_test(outputs_are_checked_by_their_types),
                cmocka_unit_test(what_is_missing_gets_its_default_or_is_named),
                cmocka_unit_test(without_outputs_anything_with_names_is_taken),
                cmocka_unit_test(a_submit_has_a_size),
                cmocka_unit_test(outputs_that_cannot_be_are_refused),
                cmocka_unit_test(outputs_may_be_an_object_of_types),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
