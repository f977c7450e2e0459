#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strv.h"
#include "cmd/score_options.h"

/* The ids of a JSON value, joined by '|'; "!" when it is refused. */
static void assert_ids(const char *json, const char *want) {
        struct json v;
        struct error e;
        _cleanup_strv_ char **list = NULL;
        _cleanup_buf_ struct buf got = BUF_INIT(4096);
        assert_int_equal(json_parse(json, strlen(json), &v, NULL), 0);
        int r = score_ids_parse(&v, &list, &e);
        if (r < 0) {
                assert_int_equal(r, -EINVAL);
                buf_adds(&got, "!");
        }
        for (size_t i = 0; r == 0 && list[i]; i++) {
                buf_adds(&got, i ? "|" : "");
                buf_adds(&got, list[i]);
        }
        assert_string_equal(buf_str(&got), want);
}

static void lists_and_json_in_strings(void **state) {
        assert_ids("[]", "");
        assert_ids("[\"a\",\"b c\"]", "a|b c");
        assert_ids("\"[]\"", "");
        assert_ids("\"[\\\"t.py::x[a b]\\\", \\\"y\\\"]\"", "t.py::x[a b]|y");
}

static void pythons_repr_in_strings(void **state) {
        assert_ids("\"['a', 'b']\"", "a|b");
        assert_ids("\" [ 'a' , ] \"", "a");
        assert_ids("\"('a', \\\"it's\\\")\"", "a|it's");
        assert_ids("\"['a\\\\'b', 'c\\\\\\\\d', 'e\\\\nf', '\\\\x41\\\\u00e9\\\\U0001f600']\"", "a'b|c\\d|e\nf|A\xc3\xa9\xf0\x9f\x98\x80");
}

static void what_is_no_list_of_strings_is_refused(void **state) {
        static const char *const bad[] = {
                "7", "null", "{}", "[1]", "[\"a\",null]", "\"\"", "\"a\"", "\"[1]\"", "\"['a'\"", "\"['a\"", "\"['a' 'b']\"", "\"['a',,'b']\"", "\"['a']x\"",
                "\"['a')\"", "\"['\\\\q']\"", "\"['\\\\x4']\"", "\"['\\\\0']\"", "\"[b'a']\"", "\"['a\\\\']\"", "\"['a\\u0000']\"", "\"{'a'}\"",
                "[\"a\\u0000b\"]", "\"['\\\\x00']\"",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_ids(bad[i], "!");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lists_and_json_in_strings),
                cmocka_unit_test(pythons_repr_in_strings),
                cmocka_unit_test(what_is_no_list_of_strings_is_refused),
        };
        return cmocka_run_group_tests_name("cmd/instance", tests, NULL, NULL);
}
