#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/map.h"

struct thing { struct map_node node; char name[16]; };
static const char *thing_key(const struct map_node *n) { return container_of(n, struct thing, node)->name; }

static void finds_what_was_added_after_growing(void **state) {
        enum { N = 5000 };
        struct map m;
        assert_int_equal(map_init(&m, thing_key), 0);
        struct thing *t = calloc(N, sizeof *t);
        for (int i = 0; i < N; i++) {
                snprintf(t[i].name, sizeof t[i].name, "thing-%d", i);
                assert_int_equal(map_add(&m, &t[i].node), 0);
        }
        assert_true(m.n_buckets >= N);
        for (int i = 0; i < N; i++)
                assert_ptr_equal(map_find(&m, t[i].name), &t[i].node);
        assert_null(map_find(&m, "thing"));
        map_release(&m);
        free(t);
}

static void a_key_is_there_once_and_can_come_back(void **state) {
        struct map m;
        struct thing a = { .name = "same" }, b = { .name = "same" };
        assert_int_equal(map_init(&m, thing_key), 0);
        assert_int_equal(map_add(&m, &a.node), 0);
        assert_int_equal(map_add(&m, &b.node), -EEXIST);
        map_remove(&m, &a.node);
        assert_null(map_find(&m, "same"));
        assert_int_equal(map_add(&m, &b.node), 0);
        assert_int_equal(m.n, 1);
        map_release(&m);
}

static void drop(struct map_node *n, void *user) { map_remove(user, n); }

static void each_may_remove_what_it_is_given(void **state) {
        struct map m;
        struct thing t[100];
        assert_int_equal(map_init(&m, thing_key), 0);
        for (int i = 0; i < 100; i++) {
                snprintf(t[i].name, sizeof t[i].name, "%d", i);
                assert_int_equal(map_add(&m, &t[i].node), 0);
        }
        map_each(&m, drop, &m);
        assert_int_equal(m.n, 0);
        size_t hint = 0;
        assert_null(map_any(&m, &hint));
        map_release(&m);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(finds_what_was_added_after_growing),
                cmocka_unit_test(a_key_is_there_once_and_can_come_back),
                cmocka_unit_test(each_may_remove_what_it_is_given),
        };
        return cmocka_run_group_tests_name("base/map", tests, NULL, NULL);
}
