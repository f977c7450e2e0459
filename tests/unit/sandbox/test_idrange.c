#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "sandbox/idrange.h"

#define BASE 0x70000000u
#define SMALL_BASE (UINT32_MAX - 5 * 65536u + 1 - 65536u)   /* leaves room for four ranges, the store's included */

static char lock_file[] = "/tmp/brig-ids-XXXXXX";

static int setup(void **state) {
        int fd = mkstemp(lock_file);
        return fd < 0 ? -1 : (fd_close(fd), 0);
}
static int teardown(void **state) { return unlink(lock_file); }

static struct idrange_allocator *allocator(uint32_t base) {
        struct idrange_allocator *a = NULL;
        assert_int_equal(idrange_allocator_open(base, lock_file, &a, NULL), 0);
        return a;
}

static uint32_t take(struct idrange_allocator *a) {
        uint32_t first = 0;
        assert_int_equal(idrange_take(a, &first, NULL), 0);
        return first;
}

static void ranges_are_aligned_distinct_and_never_the_stores(void **state) {
        struct idrange_allocator *a = allocator(BASE);
        uint32_t x = take(a), y = take(a);
        assert_int_equal(idrange_store(a), BASE);
        assert_int_not_equal(x, y);
        assert_int_not_equal(x, BASE);
        assert_int_not_equal(y, BASE);
        assert_int_equal(x % 65536, 0);
        idrange_allocator_close(a);
}

/* Two allocators are two open file descriptions: as two processes, also of other instances and bases. */
static void allocators_never_share_a_range(void **state) {
        struct idrange_allocator *a = allocator(BASE), *b = allocator(BASE), *c = allocator(BASE + 65536);
        uint32_t got[60];
        for (int i = 0; i < 60; i += 3) {
                got[i] = take(a);
                got[i + 1] = take(b);
                got[i + 2] = take(c);
        }
        for (int i = 0; i < 60; i++)
                for (int k = 0; k < i; k++)
                        assert_int_not_equal(got[i], got[k]);
        idrange_allocator_close(a);
        idrange_allocator_close(b);
        idrange_allocator_close(c);
}

static void a_dead_process_frees_its_ranges(void **state) {
        int said[2];
        uint32_t theirs[3];
        assert_int_equal(pipe2(said, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
                struct idrange_allocator *a = NULL;
                idrange_allocator_open(SMALL_BASE, lock_file, &a, NULL);
                for (int i = 0; i < 3; i++)
                        if (idrange_take(a, &theirs[i], NULL) < 0)
                                _exit(1);
                if (write(said[1], theirs, sizeof theirs) == sizeof theirs)
                        pause();
                _exit(1);
        }
        assert_int_equal(read(said[0], theirs, sizeof theirs), sizeof theirs);
        struct idrange_allocator *a = allocator(SMALL_BASE);
        uint32_t first;
        struct error e;
        assert_int_equal(idrange_take(a, &first, &e), -EUSERS);
        assert_string_equal(e.text, "no id range is free: 3 are in use");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(take(a), theirs[0]);
        idrange_allocator_close(a);
        fd_close(said[0]);
        fd_close(said[1]);
}

static void what_was_freed_last_comes_last(void **state) {
        struct idrange_allocator *a = allocator(SMALL_BASE);
        uint32_t x = take(a);
        idrange_give(a, x);
        assert_int_not_equal(take(a), x);
        assert_int_not_equal(take(a), x);
        assert_int_equal(take(a), x);
        idrange_allocator_close(a);
}

static void a_given_range_is_free_for_others(void **state) {
        struct idrange_allocator *a = allocator(SMALL_BASE), *b = allocator(SMALL_BASE);
        uint32_t x = take(a), first;
        take(a);
        take(a);
        assert_int_equal(idrange_take(b, &first, NULL), -EUSERS);
        idrange_give(a, x);
        assert_int_equal(take(b), x);
        idrange_allocator_close(a);
        idrange_allocator_close(b);
}

static void bases_are_checked(void **state) {
        struct idrange_allocator *a = NULL;
        const uint32_t bad[] = { 0, 1, 65535, 65537, BASE + 1, UINT32_MAX - 65535, UINT32_MAX };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(idrange_allocator_open(bad[i], lock_file, &a, NULL), -EINVAL);
        assert_null(a);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ranges_are_aligned_distinct_and_never_the_stores),
                cmocka_unit_test(allocators_never_share_a_range),
                cmocka_unit_test(a_dead_process_frees_its_ranges),
                cmocka_unit_test(what_was_freed_last_comes_last),
                cmocka_unit_test(a_given_range_is_free_for_others),
                cmocka_unit_test(bases_are_checked),
        };
        return cmocka_run_group_tests_name("sandbox/idrange", tests, setup, teardown);
}
