#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "rlm/child_quota.h"

static struct child_quota q;

static int fresh(void **state) {
        q = (struct child_quota){ .most = 4, .most_alive = 2 };
        return 0;
}

static void so_many_at_a_time(void **state) {
        assert_int_equal(child_quota_take(&q), CHILD_OK);
        assert_int_equal(child_quota_take(&q), CHILD_OK);
        assert_int_equal(child_quota_take(&q), CHILD_TOO_MANY_ALIVE);
        child_quota_gone(&q);
        assert_int_equal(child_quota_take(&q), CHILD_OK);
}

static void so_many_in_all_whether_gone_or_not(void **state) {
        for (int i = 0; i < 4; i++) {
                assert_int_equal(child_quota_take(&q), CHILD_OK);
                child_quota_gone(&q);
        }
        assert_int_equal(child_quota_take(&q), CHILD_TOO_MANY);
}

static void one_that_did_not_start_gives_its_place_back_but_is_alive_until_it_is_gone(void **state) {
        q.most = 1;
        q.most_alive = 1;
        assert_int_equal(child_quota_take(&q), CHILD_OK);
        child_quota_not_started(&q);
        assert_int_equal(child_quota_take(&q), CHILD_TOO_MANY_ALIVE);
        child_quota_gone(&q);
        assert_int_equal(child_quota_take(&q), CHILD_OK);
}

static void none_once_it_is_closed(void **state) {
        q.closed = true;
        assert_int_equal(child_quota_take(&q), CHILD_CLOSED);
        assert_int_equal(q.alive, 0);
}

static void none_where_none_is_allowed(void **state) {
        q.most = 0;
        assert_int_equal(child_quota_take(&q), CHILD_TOO_MANY);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(so_many_at_a_time, fresh),
                cmocka_unit_test_setup(so_many_in_all_whether_gone_or_not, fresh),
                cmocka_unit_test_setup(one_that_did_not_start_gives_its_place_back_but_is_alive_until_it_is_gone, fresh),
                cmocka_unit_test_setup(none_once_it_is_closed, fresh),
                cmocka_unit_test_setup(none_where_none_is_allowed, fresh),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
