#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/strv.h"

static void grows_and_ends_with_null(void **state) {
        char **v = NULL;
        size_t n = 0;
        char text[16];
        for (int i = 0; i < 100; i++) {
                snprintf(text, sizeof text, "%d", i);
                assert_int_equal(strv_append_take(&v, &n, strdup(text)), 0);
                assert_null(v[n]);
        }
        assert_int_equal(n, 100);
        assert_int_equal(strv_len((const char *const *)v), 100);
        assert_string_equal(v[99], "99");
        assert_int_equal(strv_push(&v, "end"), 0);
        assert_int_equal(strv_push_n(&v, "cut here", 3), 0);
        assert_string_equal(v[100], "end");
        assert_string_equal(v[101], "cut");
        v = strv_free(v);
        assert_null(v);
}

static void null_is_the_empty_list(void **state) {
        char **v = NULL;
        assert_int_equal(strv_len(NULL), 0);
        assert_false(strv_contains(NULL, "x"));
        strv_sort(NULL);
        assert_int_equal(strv_ensure(&v), 0);
        assert_non_null(v);
        assert_null(v[0]);
        assert_int_equal(strv_push(&v, "x"), 0);
        assert_true(strv_contains((const char *const *)v, "x"));
        strv_free(v);
}

static void sorts_by_bytes(void **state) {
        char **v = NULL;
        strv_push(&v, "b"); strv_push(&v, "B"); strv_push(&v, "\xc3\xa4"); strv_push(&v, "a");
        strv_sort(v);
        assert_string_equal(v[0], "B"); assert_string_equal(v[1], "a"); assert_string_equal(v[2], "b"); assert_string_equal(v[3], "\xc3\xa4");
        strv_free(v);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(grows_and_ends_with_null), cmocka_unit_test(null_is_the_empty_list), cmocka_unit_test(sorts_by_bytes),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
