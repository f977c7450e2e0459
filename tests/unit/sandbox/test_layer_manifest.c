#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sandbox/layer_manifest.h"

static struct layer_manifest example(void) {
        return (struct layer_manifest){ .id = "ab12", .kind = LAYER_TREE, .range_base = 6553600, .parent = "", .commit = "0123abcd",
                                        .tree_hash = "ff00", .commit_time = -5, .opaque = "/testbed", .bytes = 1 << 20, .made_ms = 12345 };
}

static void what_was_written_is_read(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(LAYER_MANIFEST_MAX);
        struct layer_manifest m = example(), got;
        assert_int_equal(layer_manifest_encode(&m, &b), 0);
        assert_int_equal(layer_manifest_parse(buf_str(&b), b.len, &got), 0);
        assert_string_equal(got.id, m.id);
        assert_string_equal(got.opaque, m.opaque);
        assert_string_equal(got.parent, "");
        assert_int_equal(got.range_base, m.range_base);
        assert_int_equal(got.commit_time, -5);
        assert_int_equal(got.bytes, m.bytes);
}

static void values_that_could_forge_a_line_are_refused(void **state) {
        _cleanup_buf_ struct buf b = BUF_INIT(LAYER_MANIFEST_MAX);
        struct layer_manifest m = example();
        memcpy(m.opaque, "/a\nid 1", 8);
        assert_int_equal(layer_manifest_encode(&m, &b), -EINVAL);
        m = example();
        memcpy(m.commit, "ab\n", 4);
        assert_int_equal(layer_manifest_encode(&m, &b), -EINVAL);
        m = example();
        memcpy(m.id, "../x", 5);
        assert_int_equal(layer_manifest_encode(&m, &b), -EINVAL);
}

static void paths_that_leave_are_refused(void **state) {
        static const char *const bad[] = { "a", "/", "/a/", "/a//b", "/a/../b", "/..", "/.", "/a/.", "/a\tb" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_false(layer_opaque_valid(bad[i]));
        assert_true(layer_opaque_valid("/a/..b/.c"));
        assert_true(layer_opaque_valid(""));
}

static void another_format_or_shape_is_refused(void **state) {
        static const char *const bad[] = {
                "", "brig-layer 1\n", "brig-layer 2\nid ab\n", "brig-layer 1\nid ab\nkind tree\nrange_base -1\n",
        };
        struct layer_manifest got;
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(layer_manifest_parse(bad[i], strlen(bad[i]), &got), -EBADMSG);
        _cleanup_buf_ struct buf b = BUF_INIT(LAYER_MANIFEST_MAX);
        struct layer_manifest m = example();
        assert_int_equal(layer_manifest_encode(&m, &b), 0);
        for (size_t n = 0; n < b.len; n++)                       /* cut anywhere */
                assert_int_equal(layer_manifest_parse(b.data, n, &got), -EBADMSG);
        assert_int_equal(buf_adds(&b, "more\n"), 0);
        assert_int_equal(layer_manifest_parse(b.data, b.len, &got), -EBADMSG);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_was_written_is_read),
                cmocka_unit_test(values_that_could_forge_a_line_are_refused),
                cmocka_unit_test(paths_that_leave_are_refused),
                cmocka_unit_test(another_format_or_shape_is_refused),
        };
        return cmocka_run_group_tests_name("sandbox/layer_manifest", tests, NULL, NULL);
}
