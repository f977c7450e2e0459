/* Head, tail and the bytes between. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fs.h"
#include "sandbox/fixture.h"

static const char *text(const struct output_capture *c) {
        static struct buf b = BUF_INIT(4096);
        buf_reset(&b);
        assert_int_equal(capture_text(c, &b), 0);
        return buf_str(&b);
}

static void what_fits_is_whole(void **state) {
        struct output_capture c;
        capture_init(&c, 4, 4, 100, -1);
        capture_feed(&c, "abc", 3);
        capture_feed(&c, "defgh", 5);
        assert_string_equal(text(&c), "abcdefgh");
        capture_release(&c);
}

static void the_middle_is_left_out_and_counted(void **state) {
        struct output_capture c;
        capture_init(&c, 4, 4, 100, -1);
        for (int i = 0; i < 26; i++) {
                char ch = (char)('a' + i);
                capture_feed(&c, &ch, 1);
        }
        assert_string_equal(text(&c), "abcd\n[... 18 bytes left out ...]\nwxyz");
        capture_release(&c);
        capture_init(&c, 4, 4, 100, -1);
        capture_feed(&c, "abcdefghijklmnopqrstuvwxyz", 26);
        assert_string_equal(text(&c), "abcd\n[... 18 bytes left out ...]\nwxyz");
        assert_int_equal(c.total, 26);
        capture_release(&c);
}

static void a_tail_of_nothing_is_allowed(void **state) {
        struct output_capture c;
        capture_init(&c, 2, 0, 100, -1);
        capture_feed(&c, "abcdef", 6);
        assert_string_equal(text(&c), "ab\n[... 4 bytes left out ...]\n");
        capture_release(&c);
}

static void the_log_has_all_up_to_its_limit(void **state) {
        struct output_capture c;
        int log = memfd_create("log", MFD_CLOEXEC), keep = fcntl(log, F_DUPFD_CLOEXEC, 3);
        capture_init(&c, 2, 2, 10, log);
        capture_feed(&c, "0123456", 7);
        assert_false(c.over);
        capture_feed(&c, "789", 3);
        assert_false(c.over);
        capture_feed(&c, "abc", 3);
        assert_true(c.over);
        capture_feed(&c, "def", 3);
        char got[32] = "";
        assert_int_equal(pread(keep, got, sizeof got, 0), 10);
        assert_string_equal(got, "0123456789");
        assert_int_equal(c.total, 16);
        close(keep);
        capture_release(&c);
}

static void a_log_that_fails_does_not_stop_the_capture(void **state) {
        struct output_capture c;
        capture_init(&c, 8, 8, 100, open("/dev/full", O_WRONLY | O_CLOEXEC));
        capture_feed(&c, "abc", 3);
        capture_feed(&c, "def", 3);
        assert_int_equal(c.log_errno, ENOSPC);
        assert_string_equal(text(&c), "abcdef");
        capture_release(&c);
}

/* Descriptor 0 may by then be anybody's. */
static void releasing_what_was_never_opened_closes_nothing(void **state) {
        struct output_capture c = { 0 };
        int zero = fcntl(0, F_GETFD) < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : 0;
        capture_release(&c);
        capture_release(&c);
        assert_true(fcntl(zero, F_GETFD) >= 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(releasing_what_was_never_opened_closes_nothing),
                cmocka_unit_test(what_fits_is_whole),
                cmocka_unit_test(the_middle_is_left_out_and_counted),
                cmocka_unit_test(a_tail_of_nothing_is_allowed),
                cmocka_unit_test(the_log_has_all_up_to_its_limit),
                cmocka_unit_test(a_log_that_fails_does_not_stop_the_capture),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
