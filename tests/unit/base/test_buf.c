#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"

static void limit_is_an_error_and_keeps_the_contents(void **state) {
        struct buf b = BUF_INIT(4);
        assert_int_equal(buf_adds(&b, "abc"), 0);
        assert_int_equal(buf_adds(&b, "de"), -ENOSPC);
        assert_string_equal(buf_str(&b), "abc");
        assert_int_equal(buf_addc(&b, 'd'), 0);
        assert_int_equal(b.len, 4);
        buf_release(&b);
}

static void consume_keeps_the_rest(void **state) {
        struct buf b = BUF_INIT(100);
        assert_int_equal(buf_printf(&b, "%d-%s", 42, "rest"), 0);
        buf_consume(&b, 3);
        assert_string_equal(buf_str(&b), "rest");
        buf_release(&b);
}

static void stealing_an_empty_buffer_gives_an_empty_string(void **state) {
        struct buf b = BUF_INIT(10);
        char *s = buf_steal(&b);
        assert_string_equal(s, "");
        free(s);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(limit_is_an_error_and_keeps_the_contents),
                cmocka_unit_test(consume_keeps_the_rest),
                cmocka_unit_test(stealing_an_empty_buffer_gives_an_empty_string),
        };
        return cmocka_run_group_tests_name("base/buf", tests, NULL, NULL);
}
