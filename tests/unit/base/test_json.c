#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"

static int parse(const char *s) {
        struct json v;
        return json_parse(s, strlen(s), &v, NULL);
}

static struct json doc(const char *s) {
        struct json v;
        assert_int_equal(json_parse(s, strlen(s), &v, NULL), 0);
        return v;
}

static void assert_canonical(const char *in, const char *want) {
        struct json v = doc(in);
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        assert_int_equal(json_canonical_buf(&v, &b), 0);
        assert_string_equal(buf_str(&b), want);
}

static void valid_texts_are_accepted(void **state) {
        static const char *const good[] = {
                "null", " true ", "false", "0", "-0", "-1.5e+10", "1E5", "0.1", "\"\"", "[]", "{}", "[ ]", "{ }", "[1,2]",
                "{\"a\":{\"b\":[null]}}", "\t\r\n[1 ,\n2 ]\n", "\"\\u00e9\\n\\/\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\"",
                "\"\\ud800\"", "\"\x7f\"", "\"12345678\\\"\"", "{\"\":1}", "\"\\u0000\"",
        };
        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (parse(good[i]) != 0)
                        fail_msg("refused: %s", good[i]);
}

static void broken_texts_are_refused(void **state) {
        static const char *const bad[] = {
                "", " ", "nul", "nulll", "True", "NaN", "Infinity", "-Infinity", "+1", "01", "-", "1.", ".5", "1e", "1e+", "0x10", "--1", "- 1",
                "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "{", "}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:1}", "{\"a\" 1}",
                "{,}", "{\"a\":1 \"b\":2}", "\"", "\"\\\"", "\"\\x41\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"", "\"\t\"", "'a'", "1 2", "{} x", "/**/1",
                "\xef\xbb\xbf{}", "\v1", "\"abcdefg\x01hijklmnop\"", "[\"a\",\n]", "\"\\U0041\"", "\"\\", "\"\\u", "tru", "[true,fals]",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (parse(bad[i]) != -EBADMSG)
                        fail_msg("accepted: %s", bad[i]);
}

static void bytes_that_are_not_utf8_are_refused(void **state) {
        static const char *const bad[] = {
                "\"\x80\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xc1\xbf\"", "\"\xe0\x80\xaf\"", "\"\xed\xa0\x80\"", "\"\xed\xbf\xbf\"",
                "\"\xf0\x80\x80\xaf\"", "\"\xf4\x90\x80\x80\"", "\"\xf5\x80\x80\x80\"", "\"\xff\"", "\"\xe2\x82\"", "\"12345678\xe2\x28\xa1\"",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (parse(bad[i]) != -EBADMSG)
                        fail_msg("accepted number %zu", i);
}

static void a_nul_byte_is_refused_in_and_outside_strings(void **state) {
        struct json v;
        assert_int_equal(json_parse("\"a\0b\"", 5, &v, NULL), -EBADMSG);
        assert_int_equal(json_parse("1\0", 2, &v, NULL), -EBADMSG);
        assert_int_equal(json_parse("\"\\\0\"", 4, &v, NULL), -EBADMSG);
        assert_int_equal(json_parse(NULL, 0, &v, NULL), -EBADMSG);
}

static void depth_has_a_limit(void **state) {
        char s[2 * (JSON_DEPTH_MAX + 1)];
        struct json v;
        memset(s, '[', JSON_DEPTH_MAX);
        memset(s + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
        assert_int_equal(json_parse(s, 2 * JSON_DEPTH_MAX, &v, NULL), 0);
        memset(s, '[', JSON_DEPTH_MAX + 1);
        memset(s + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
        assert_int_equal(json_parse(s, sizeof s, &v, NULL), -E2BIG);
}

static void numbers_have_a_limit(void **state) {
        char s[JSON_NUMBER_MAX + 1];
        struct json v;
        memset(s, '1', sizeof s);
        assert_int_equal(json_parse(s, JSON_NUMBER_MAX, &v, NULL), 0);
        assert_int_equal(json_parse(s, sizeof s, &v, NULL), -E2BIG);
}

static void the_error_names_the_byte(void **state) {
        struct error e;
        struct json v;
        assert_int_equal(json_parse("[1, x]", 6, &v, &e), -EBADMSG);
        assert_string_equal(e.text, "JSON, byte 4: value expected");
}

static void members_come_in_order_with_their_spans(void **state) {
        struct json v = doc(" {\"a\" : 1 , \"b\\\\\":[2,{\"}\":\"]\"}],\"c\":\"x\\\"y\"} "), k, m;
        struct json_iter it = json_iter(&v);
        assert_true(json_next_member(&it, &k, &m));
        assert_true(json_string_is(&k, "a"));
        assert_int_equal(m.type, JSON_NUMBER);
        assert_int_equal(m.n, 1);
        assert_true(json_next_member(&it, &k, &m));
        assert_true(json_string_is(&k, "b\\"));
        assert_int_equal(m.type, JSON_ARRAY);
        assert_memory_equal(m.p, "[2,{\"}\":\"]\"}]", m.n);
        assert_int_equal(json_count(&m), 2);
        assert_true(json_next_member(&it, &k, &m));
        assert_true(json_string_is(&m, "x\"y"));
        assert_false(json_next_member(&it, &k, &m));
        assert_int_equal(json_count(&v), 3);
}

static void items_of_every_type_are_seen(void **state) {
        struct json v = doc("[null,true , -1e2,\"s\",[ ],{ }]"), m;
        enum json_type want[] = { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };
        struct json_iter it = json_iter(&v);
        for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
                assert_true(json_next_item(&it, &m));
                assert_int_equal(m.type, want[i]);
        }
        assert_false(json_next_item(&it, &m));
}

static void the_last_of_two_equal_keys_wins(void **state) {
        struct json v = doc("{\"a\":1,\"b\":2,\"\\u0061\":3}"), m;
        int64_t n = 0;
        assert_true(json_get(&v, "a", &m));
        assert_int_equal(json_int(&m, &n), 0);
        assert_int_equal(n, 3);
        assert_false(json_get(&v, "c", &m));
        assert_false(json_get(&m, "a", &m));
}

static void strings_decode(void **state) {
        struct json v = doc("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\ud800x\\udc00\\u0000z\"");
        _cleanup_buf_ struct buf b = BUF_INIT(100);
        static const char want[] = "a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbdx\xef\xbf\xbd\0z";
        assert_int_equal(json_string(&v, &b), 0);
        assert_int_equal(b.len, sizeof want - 1);
        assert_memory_equal(b.data, want, b.len);
}

static void a_string_over_the_limit_leaves_the_buffer_as_it_was(void **state) {
        struct json v = doc("\"abc\\ndef\"");
        _cleanup_buf_ struct buf b = BUF_INIT(6);
        assert_int_equal(buf_adds(&b, "x"), 0);
        assert_int_equal(json_string(&v, &b), -ENOSPC);
        assert_string_equal(buf_str(&b), "x");
}

static void integers_may_be_written_as_floats(void **state) {
        static const struct { const char *text; int r; int64_t v; } cases[] = {
                { "3", 0, 3 }, { "3.0", 0, 3 }, { "3e2", 0, 300 }, { "-0", 0, 0 }, { "3.5", -EINVAL, 0 }, { "1e400", -ERANGE, 0 },
                { "9223372036854775807", 0, INT64_MAX }, { "9223372036854775808", -ERANGE, 0 }, { "-9223372036854775808", 0, INT64_MIN },
                { "1e19", -ERANGE, 0 }, { "\"3\"", -EINVAL, 0 }, { "true", -EINVAL, 0 }, { "null", -EINVAL, 0 },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct json v = doc(cases[i].text);
                int64_t n = 0;
                assert_int_equal(json_int(&v, &n), cases[i].r);
                assert_int_equal(n, cases[i].v);
        }
}

static void loose_integers_may_be_decimal_strings(void **state) {
        static const struct { const char *text; int r; int64_t v; } cases[] = {
                { "\"12\"", 0, 12 }, { "\"-3\"", 0, -3 }, { "7", 0, 7 }, { "\"\"", -EINVAL, 0 }, { "\"-\"", -EINVAL, 0 }, { "\" 1\"", -EINVAL, 0 },
                { "\"1x\"", -EINVAL, 0 }, { "\"1.0\"", -EINVAL, 0 }, { "\"99999999999999999999999999\"", -ERANGE, 0 },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct json v = doc(cases[i].text);
                int64_t n = 0;
                assert_int_equal(json_int_loose(&v, &n), cases[i].r);
                assert_int_equal(n, cases[i].v);
        }
}

static void the_writer_places_commas(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        struct json_writer w = JSON_WRITER(&b);
        char x[] = "x", y[] = "y", *list[] = { x, y, NULL };
        json_begin_object(&w);
        json_field_int(&w, "a", -1);
        json_put_key(&w, "b");
        json_begin_array(&w);
        json_put_bool(&w, true);
        json_begin_object(&w);
        json_end_object(&w);
        json_put_double(&w, 0.5);
        json_end_array(&w);
        json_field_text(&w, "c", NULL);
        json_field_raw(&w, "d", "[1]", 3);
        json_put_key(&w, "e");
        json_put_texts(&w, list);
        json_field_uint(&w, "f", UINT64_MAX);
        json_end_object(&w);
        assert_int_equal(json_finish(&w), 0);
        assert_string_equal(buf_str(&b), "{\"a\":-1,\"b\":[true,{},0.5],\"c\":null,\"d\":[1],\"e\":[\"x\",\"y\"],\"f\":18446744073709551615}");
}

static void the_writer_replaces_bytes_that_are_not_utf8(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        struct json_writer w = JSON_WRITER(&b);
        json_put_string(&w, "a\xff\x80z\xe2\x82q\xc3\xa9\"\\\n\x01\0", 14);
        assert_int_equal(json_finish(&w), 0);
        assert_string_equal(buf_str(&b), "\"a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbdq\xc3\xa9\\\"\\\\\\n\\u0001\\u0000\"");
        assert_int_equal(parse(buf_str(&b)), 0);
}

static void a_full_buffer_is_the_writers_error(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(4);
        struct json_writer w = JSON_WRITER(&b);
        json_put_text(&w, "too long");
        assert_int_equal(json_finish(&w), -ENOSPC);
}

static void doubles_are_written_as_ecmascript_does(void **state) {
        static const struct { double v; const char *text; } cases[] = {
                { 0, "0" }, { -0.0, "0" }, { 1, "1" }, { -1.5, "-1.5" }, { 4.5, "4.5" }, { 2e-3, "0.002" }, { 1e-6, "0.000001" }, { 1e-7, "1e-7" },
                { 1e20, "100000000000000000000" }, { 1e21, "1e+21" }, { 1e-27, "1e-27" }, { 1.5e300, "1.5e+300" }, { 333333333.33333329, "333333333.3333333" },
                { 5e-324, "5e-324" }, { 1.7976931348623157e308, "1.7976931348623157e+308" }, { 9007199254740992.0, "9007199254740992" },
                { 295147905179352830000.0, "295147905179352830000" }, { 9.999999999999997e22, "9.999999999999997e+22" }, { 1e23, "1e+23" },
                { 0.1, "0.1" }, { 123456.789, "123456.789" }, { 999999999999999700000.0, "999999999999999700000" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char text[JSON_DOUBLE_TEXT];
                assert_int_equal(json_format_double(cases[i].v, text), strlen(cases[i].text));
                assert_string_equal(text, cases[i].text);
        }
}

static void canonical_form_sorts_by_utf16(void **state) {
        /* The example of RFC 8785, section 3.2.3. */
        assert_canonical("{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\\ufb33\":\"Hebrew Letter Dalet With Dagesh\",\"1\":\"One\","
                         "\"\\ud83d\\ude00\":\"Emoji: Grinning Face\",\"\\u0080\":\"Control\",\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}",
                         "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xc2\x80\":\"Control\",\"\xc3\xb6\":\"Latin Small Letter O With Diaeresis\","
                         "\"\xe2\x82\xac\":\"Euro Sign\",\"\xf0\x9f\x98\x80\":\"Emoji: Grinning Face\",\"\xef\xac\xb3\":\"Hebrew Letter Dalet With Dagesh\"}");
}

static void canonical_form_has_one_spelling_of_everything(void **state) {
        assert_canonical(" { \"b\" : [ 1.0 , 1e0, \"\\u0041\\/\\u001F\\u00e9\" ], \"a\": {\"y\":null,\"x\":true} } ",
                         "{\"a\":{\"x\":true,\"y\":null},\"b\":[1,1,\"A/\\u001f\xc3\xa9\"]}");
        assert_canonical("{\"a\":1,\"\\u0061\":2}", "{\"a\":2}");
        assert_canonical("{\"ab\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"ab\":1}");
}

static void canonical_form_refuses_what_no_double_holds(void **state) {
        struct json v = doc("[1e999]");
        _cleanup_buf_ struct buf b = BUF_INIT(100);
        assert_int_equal(json_canonical_buf(&v, &b), -ERANGE);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(valid_texts_are_accepted),
                cmocka_unit_test(broken_texts_are_refused),
                cmocka_unit_test(bytes_that_are_not_utf8_are_refused),
                cmocka_unit_test(a_nul_byte_is_refused_in_and_outside_strings),
                cmocka_unit_test(depth_has_a_limit),
                cmocka_unit_test(numbers_have_a_limit),
                cmocka_unit_test(the_error_names_the_byte),
                cmocka_unit_test(members_come_in_order_with_their_spans),
                cmocka_unit_test(items_of_every_type_are_seen),
                cmocka_unit_test(the_last_of_two_equal_keys_wins),
                cmocka_unit_test(strings_decode),
                cmocka_unit_test(a_string_over_the_limit_leaves_the_buffer_as_it_was),
                cmocka_unit_test(integers_may_be_written_as_floats),
                cmocka_unit_test(loose_integers_may_be_decimal_strings),
                cmocka_unit_test(the_writer_places_commas),
                cmocka_unit_test(the_writer_replaces_bytes_that_are_not_utf8),
                cmocka_unit_test(a_full_buffer_is_the_writers_error),
                cmocka_unit_test(doubles_are_written_as_ecmascript_does),
                cmocka_unit_test(canonical_form_sorts_by_utf16),
                cmocka_unit_test(canonical_form_has_one_spelling_of_everything),
                cmocka_unit_test(canonical_form_refuses_what_no_double_holds),
        };
        return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
