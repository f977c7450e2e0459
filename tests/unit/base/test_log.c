/* The log file: bounded, and nothing lost between two files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/log.h"

#define LIMIT 4096
static char dir[32], path[64], old[64];

static int setup(void **state) {
        snprintf(dir, sizeof dir, "/tmp/brig-log-XXXXXX");
        if (!mkdtemp(dir))
                return -1;
        snprintf(path, sizeof path, "%s/l", dir);
        snprintf(old, sizeof old, "%s/l.1", dir);
        log_limit_file(LIMIT);
        return log_open_file(path);
}

static int teardown(void **state) {
        unlink(path);
        unlink(old);
        return rmdir(dir);
}

static off_t size_of(const char *p) {
        struct stat st;
        return stat(p, &st) < 0 ? -1 : st.st_size;
}

static void write_lines(int n) {
        for (int i = 0; i < n; i++)
                log_event(LOG_ERROR, "test.line", "text", "0123456789012345678901234567890123456789", NULL);
}

static void a_full_file_becomes_the_old_one(void **state) {
        write_lines(10);
        assert_int_equal(size_of(old), -1);
        while (size_of(old) < 0 && size_of(path) < 2 * LIMIT)
                write_lines(1);
        assert_true(size_of(old) >= LIMIT && size_of(old) < LIMIT + 200);
        assert_int_equal(size_of(path), 0);
        write_lines(1);
        assert_true(size_of(path) > 0);
}

static void many_times_the_limit_is_at_most_two_files(void **state) {
        write_lines(1000);
        assert_true(size_of(old) <= LIMIT + 200);
        assert_true(size_of(path) <= LIMIT + 200);
}

static void what_is_there_at_the_start_counts(void **state) {
        write_lines(30);
        off_t before = size_of(path);
        assert_true(before > 0 && before < LIMIT);
        assert_int_equal(log_open_file(path), 0);
        while (size_of(old) < 0 && size_of(path) < 2 * LIMIT)
                write_lines(1);
        assert_true(size_of(old) < LIMIT + 200);
}

static void no_limit_is_no_limit(void **state) {
        log_limit_file(0);
        write_lines(200);
        assert_true(size_of(path) > 2 * LIMIT);
        assert_int_equal(size_of(old), -1);
}

static void *writer(void *arg) {
        write_lines(200);
        return NULL;
}

static void threads_may_log_while_it_turns_over(void **state) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&t[i], NULL, writer, NULL), 0);
        for (int i = 0; i < 4; i++)
                pthread_join(t[i], NULL);
        const char *const both[] = { path, old };
        for (int i = 0; i < 2; i++) {
                _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
                assert_int_equal(fs_read_file(AT_FDCWD, both[i], &b), 0);
                assert_true(b.len < LIMIT + 1000);
                assert_true(b.len == 0 || b.data[b.len - 1] == '\n');
        }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        const struct CMUnitTest tests[] = {
                TEST(a_full_file_becomes_the_old_one), TEST(many_times_the_limit_is_at_most_two_files), TEST(what_is_there_at_the_start_counts),
                TEST(no_limit_is_no_limit), TEST(threads_may_log_while_it_turns_over),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
