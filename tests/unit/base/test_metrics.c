#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/metrics.h"

static struct buf text;

static int setup(void **state) {
        metrics_reset();
        buf_init(&text, 1u << 20);
        return 0;
}

static int teardown(void **state) {
        buf_release(&text);
        return 0;
}

static void assert_line(const char *line) {
        buf_reset(&text);
        assert_int_equal(metrics_write(&text), 0);
        char want[200];
        snprintf(want, sizeof want, "\n%s\n", line);
        if (!strstr(buf_str(&text), want))
                fail_msg("no line '%s' in:\n%s", line, buf_str(&text));
}

static void gauges_keep_the_last_value(void **state) {
        metrics_set(METRIC_TASKS_QUEUED, 7);
        metrics_set(METRIC_TASKS_QUEUED, 3);
        assert_line("brig_tasks_queued 3");
}

static void counters_add_by_label(void **state) {
        metrics_add(METRIC_TASKS_SUBMITTED, NULL, 2);
        metrics_add(METRIC_TASKS_SUBMITTED, NULL, 1);
        metrics_add(METRIC_TASKS_FINISHED, "resolved", 1);
        metrics_add(METRIC_TASKS_FINISHED, "timeout", 1);
        metrics_add(METRIC_TASKS_FINISHED, "resolved", 1);
        assert_line("brig_tasks_submitted_total 3");
        assert_line("brig_tasks_finished_total{outcome=\"resolved\"} 2");
        assert_line("brig_tasks_finished_total{outcome=\"timeout\"} 1");
}

static void buckets_are_cumulative_and_bounds_belong_to_them(void **state) {
        metrics_observe(METRIC_CREATE, 0.001);
        metrics_observe(METRIC_CREATE, 0.0011);
        metrics_observe(METRIC_CREATE, -5);
        metrics_observe(METRIC_CREATE, 1000);
        assert_line("brig_sandbox_create_seconds_bucket{le=\"0.001\"} 2");
        assert_line("brig_sandbox_create_seconds_bucket{le=\"0.0025\"} 3");
        assert_line("brig_sandbox_create_seconds_bucket{le=\"30\"} 3");
        assert_line("brig_sandbox_create_seconds_bucket{le=\"+Inf\"} 4");
        assert_line("brig_sandbox_create_seconds_count 4");
        assert_line("brig_sandbox_create_seconds_sum 1000.0021");
}

static void label_values_are_escaped(void **state) {
        metrics_add(METRIC_INFRA_ERRORS, "a\"b\\c\nd", 1);
        assert_line("brig_infra_errors_total{code=\"a\\\"b\\\\c\\nd\"} 1");
}

static void values_without_a_place_count_as_other(void **state) {
        char name[METRIC_VALUE_MAX + 1];
        for (int i = 0; i < METRIC_VALUES_MAX + 10; i++) {
                snprintf(name, sizeof name, "v%d", i);
                metrics_add(METRIC_INFRA_ERRORS, name, 1);
        }
        assert_line("brig_infra_errors_total{code=\"v30\"} 1");
        assert_line("brig_infra_errors_total{code=\"other\"} 11");
        memset(name, 'x', METRIC_VALUE_MAX);
        name[METRIC_VALUE_MAX] = 0;
        metrics_add(METRIC_TASKS_FINISHED, name, 1);
        assert_line("brig_tasks_finished_total{outcome=\"other\"} 1");
}

static void a_full_buffer_is_an_error(void **state) {
        struct buf small = BUF_INIT(100);
        assert_int_equal(metrics_write(&small), -ENOSPC);
        buf_release(&small);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(gauges_keep_the_last_value, setup, teardown),
                cmocka_unit_test_setup_teardown(counters_add_by_label, setup, teardown),
                cmocka_unit_test_setup_teardown(buckets_are_cumulative_and_bounds_belong_to_them, setup, teardown),
                cmocka_unit_test_setup_teardown(label_values_are_escaped, setup, teardown),
                cmocka_unit_test_setup_teardown(values_without_a_place_count_as_other, setup, teardown),
                cmocka_unit_test_setup_teardown(a_full_buffer_is_an_error, setup, teardown),
        };
        return cmocka_run_group_tests_name("base/metrics", tests, NULL, NULL);
}
