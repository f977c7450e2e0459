#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/apply_report.h"
#include "score/apply_wire.h"

static int read_report(const struct buf *b, enum patch_mode mode, struct apply_result *ret, struct error *e) {
        return apply_report_read(b->data, b->len, mode, ret, e);
}

static void add_end(struct buf *b) {
        assert_int_equal(frame_adds(b, FRAME_TEST_OK, ""), 0);
        assert_int_equal(frame_adds(b, FRAME_END, ""), 0);
}

static void a_rung_beyond_the_mode_is_no_report(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        struct apply_result res;
        struct error e;
        frame_adds(&b, FRAME_RUNG, "5");
        add_end(&b);
        assert_int_equal(read_report(&b, PATCH_STRICT, &res, &e), -EBADMSG);
        assert_int_equal(read_report(&b, PATCH_REPAIR, &res, &e), -EBADMSG);
        assert_int_equal(read_report(&b, PATCH_LADDER, &res, &e), 0);
        assert_int_equal(res.rung, RUNG_FUZZY);
        apply_result_release(&res);
}

static void a_path_out_of_the_tree_is_no_report(void **state) {
        static const char *const bad[] = { "/etc/passwd", "../x", ".git/config", "" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                for (enum apply_frame type = FRAME_TOUCHED; type <= FRAME_RESTORED; type++) {
                        _cleanup_buf_ struct buf b = BUF_INIT(1000);
                        struct apply_result res;
                        frame_adds(&b, FRAME_RUNG, "1");
                        frame_adds(&b, type, bad[i]);
                        add_end(&b);
                        assert_int_equal(read_report(&b, PATCH_REPAIR, &res, NULL), -EBADMSG);
                }
}

static void a_report_that_stops_is_none(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        struct apply_result res;
        frame_adds(&b, FRAME_RUNG, "1");
        frame_adds(&b, FRAME_TOUCHED, "a");
        add_end(&b);
        size_t whole = b.len;
        for (b.len = 0; b.len < whole; b.len++)
                assert_int_equal(read_report(&b, PATCH_REPAIR, &res, NULL), -EBADMSG);
        assert_int_equal(read_report(&b, PATCH_REPAIR, &res, NULL), 0);
        apply_result_release(&res);
}

static void a_reason_is_one_line_of_bounded_length(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(100000);
        struct apply_result res;
        char reason[5000];
        memset(reason, 'x', sizeof reason);
        reason[1] = '\n';
        reason[2] = 27;
        frame_add(&b, FRAME_REFUSED, reason, sizeof reason);
        add_end(&b);
        assert_int_equal(read_report(&b, PATCH_REPAIR, &res, NULL), 0);
        assert_true(res.patch_refused);
        assert_int_equal(strlen(res.patch_reason), 1024);
        assert_int_equal(strncmp(res.patch_reason, "x  x", 4), 0);
        apply_result_release(&res);
}

static void a_fault_is_said(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        struct apply_result res;
        struct error e;
        frame_adds(&b, FRAME_FAULT, "open the tree at /x");
        frame_adds(&b, FRAME_END, "");
        assert_int_equal(read_report(&b, PATCH_REPAIR, &res, &e), -EREMOTEIO);
        assert_string_equal(e.text, "applying failed: open the tree at /x");
}

static void a_missing_tree_is_told_from_a_fault(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(1000);
        struct apply_result res;
        struct error e;
        frame_adds(&b, FRAME_NO_TREE, "open the tree at /x");
        frame_adds(&b, FRAME_END, "");
        assert_int_equal(read_report(&b, PATCH_REPAIR, &res, &e), APPLY_NO_TREE);
        assert_string_equal(e.text, "open the tree at /x");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_rung_beyond_the_mode_is_no_report), cmocka_unit_test(a_path_out_of_the_tree_is_no_report),
                cmocka_unit_test(a_report_that_stops_is_none), cmocka_unit_test(a_reason_is_one_line_of_bounded_length), cmocka_unit_test(a_fault_is_said),
                cmocka_unit_test(a_missing_tree_is_told_from_a_fault),
        };
        return cmocka_run_group_tests_name("score/apply_report", tests, NULL, NULL);
}
