#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fs.h"
#include "cmd/records.h"

static struct buf said = BUF_INIT(65536);

static void on_problem(const char *path, size_t line, const char *text, void *user) { buf_printf(&said, "%zu %s|", line, text); }

/* What a file gives: "id@line" for each record, and what was said. */
static void assert_file(const char *text, size_t n, const char *want, const char *problems) {
        char path[] = "/tmp/brig-test-records-XXXXXX";
        struct records r = { 0 };
        struct error e = { 0 };
        _cleanup_buf_ struct buf got = BUF_INIT(65536);
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(fs_write_all(fd, text, n), 0);
        close(fd);
        buf_reset(&said);
        int x = records_read(path, on_problem, NULL, &r, &e);
        unlink(path);
        if (x < 0) {
                assert_int_equal(x, -EINVAL);
                assert_non_null(strstr(e.text, path));
                buf_adds(&got, "!");
        }
        for (size_t i = 0; x == 0 && i < r.n; i++) {
                buf_printf(&got, "%s%s@%zu", i ? " " : "", r.v[i].id, r.v[i].line);
                assert_ptr_equal(records_find(&r, r.v[i].id), &r.v[i]);
        }
        if (x == 0) {
                assert_null(records_find(&r, "nobody"));
                records_release(&r);
        }
        assert_string_equal(buf_str(&got), want);
        assert_string_equal(buf_str(&said), problems);
}

#define FILE_IS(text, want, problems) assert_file(text, sizeof text - 1, want, problems)

static void documents_and_lines(void **state) {
        FILE_IS("[{\"instance_id\":\"a\"},\n{\"instance_id\":\"b\"}]", "a@1 b@2", "");
        FILE_IS("{\"instance_id\":\"a\"}\n\n{\"instance_id\":\"b\"}\n", "a@1 b@3", "");
        FILE_IS("{\"instance_id\":\"a\"}", "a@1", "");
        FILE_IS("\xef\xbb\xbf{\"instance_id\":\"a\"}\r\n{\"instance_id\":\"b\"}\r\n", "a@1 b@2", "");
        FILE_IS("{\"a\":{\"model_patch\":\"\"},\n\"b\":\"diff\",\"c\":null}", "a@1 b@2 c@2", "");
}

static void ids_of_other_shapes(void **state) {
        FILE_IS("{\"org\":\"o\",\"repo\":\"r\",\"number\":7}", "o__r-7@1", "");
        FILE_IS("{\"key\":{\"instance_id\":\"inner\"}}", "inner@1", "");
        FILE_IS("[{\"instance_id\":\"\"},{\"instance_id\":null},{\"instance_id\":\"a\\u0000\"},{\"instance_id\":\"x\"}]", "x@1",
                "1 no usable 'instance_id'|1 no usable 'instance_id'|1 no usable 'instance_id'|");
}

static void the_first_of_an_id_counts(void **state) {
        FILE_IS("{\"instance_id\":\"a\",\"n\":1}\n{\"instance_id\":\"b\"}\n{\"instance_id\":\"a\"}\n{\"instance_id\":\"a\"}\n", "a@1 b@2",
                "3 a second record of a (the first: line 1)|4 a second record of a (the first: line 1)|");
}

static void a_broken_line_is_told(void **state) {
        FILE_IS("{\"instance_id\":\"a\"}\n7\n{\"instance_id\":\"b\"}\n", "a@1 b@3", "2 not an object|");
        FILE_IS("[{\"instance_id\":\"a\"},\n7]", "a@1", "2 not an object|");
        buf_reset(&said);
}

static void what_is_no_file_of_records(void **state) {
        FILE_IS("", "!", "");
        FILE_IS("[]", "!", "");
        FILE_IS("[{\"instance_id\":\"a\"}", "!", "");
        FILE_IS("\xff\xfe{\0", "!", "");
        FILE_IS("hello\nworld\n", "!", "");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(documents_and_lines),
                cmocka_unit_test(ids_of_other_shapes),
                cmocka_unit_test(the_first_of_an_id_counts),
                cmocka_unit_test(a_broken_line_is_told),
                cmocka_unit_test(what_is_no_file_of_records),
        };
        int r = cmocka_run_group_tests_name("cmd/records", tests, NULL, NULL);
        buf_release(&said);
        return r;
}
