#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base64.h"

static void check_both(const char *plain, const char *text) {
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        assert_int_equal(base64_encode(plain, strlen(plain), &b), 0);
        assert_string_equal(buf_str(&b), text);
        buf_reset(&b);
        assert_int_equal(base64_decode(text, strlen(text), &b), 0);
        assert_string_equal(buf_str(&b), plain);
}

static void the_vectors_of_the_standard_hold(void **state) {
        check_both("", "");
        check_both("f", "Zg==");
        check_both("fo", "Zm8=");
        check_both("foo", "Zm9v");
        check_both("foob", "Zm9vYg==");
        check_both("fooba", "Zm9vYmE=");
        check_both("foobar", "Zm9vYmFy");
}

static void every_byte_comes_back(void **state) {
        unsigned char all[256];
        for (size_t i = 0; i < sizeof all; i++)
                all[i] = (unsigned char)i;
        _cleanup_buf_ struct buf text = BUF_INIT(1024), back = BUF_INIT(1024);
        assert_int_equal(base64_encode(all, sizeof all, &text), 0);
        assert_int_equal(text.len, base64_encoded(sizeof all));
        assert_int_equal(base64_decode(text.data, text.len, &back), 0);
        assert_int_equal(back.len, sizeof all);
        assert_memory_equal(back.data, all, sizeof all);
}

static void white_space_is_skipped(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        assert_int_equal(base64_decode(" Zm\r\n9v\tYg=\n= ", 14, &b), 0);
        assert_string_equal(buf_str(&b), "foob");
}

static void what_is_not_base64_is_refused_and_nothing_is_added(void **state) {
        static const char *const bad[] = { "Z", "Zg", "Zg=", "Zg===", "Z===", "====", "=", "Zm9v=", "Zh==", "Zm9=", "Zm-v", "Zg==Zg==", "Zm9v\x80", "Zm\0v" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                _cleanup_buf_ struct buf b = BUF_INIT(64);
                assert_int_equal(buf_adds(&b, "kept"), 0);
                size_t n = i + 1 == ARRAY_SIZE(bad) ? 4 : strlen(bad[i]);
                if (base64_decode(bad[i], n, &b) != -EINVAL)
                        fail_msg("taken: %s", bad[i]);
                assert_string_equal(buf_str(&b), "kept");
        }
}

static void the_limit_of_the_buffer_holds(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(7);
        assert_int_equal(base64_encode("foobar", 6, &b), -ENOSPC);
        assert_int_equal(b.len, 0);
        assert_int_equal(base64_decode("Zm9vYmFyZg==", 12, &b), 0);
        assert_int_equal(base64_decode("Zg==", 4, &b), -ENOSPC);
        assert_string_equal(buf_str(&b), "foobarf");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_vectors_of_the_standard_hold),
                cmocka_unit_test(every_byte_comes_back),
                cmocka_unit_test(white_space_is_skipped),
                cmocka_unit_test(what_is_not_base64_is_refused_and_nothing_is_added),
                cmocka_unit_test(the_limit_of_the_buffer_holds),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
