/* Control runs, with a runner that does what the test says: who makes them, who waits, and who goes on when one leaves. */
#include "engine/tasks_bench.h"

#define CONTROLLED "{\"gold_patch\":\"G\",\"patch\":\"P\",\"repo_url\":\"/r\",\"test_command\":\"true\"}"

static void submit_controlled(struct bench *b, char ret_id[static 37]) { assert_int_equal(submit_full(b, CONTROLLED, "", NULL, ret_id), 0); }

/* The patch of what runs, when `n` runs do. */
static const char *patch_of(struct bench *b, size_t n) {
        UNTIL(b, b->n_running == n);
        return b->running->req.patch;
}

static void end_with(struct bench *b, const char *patch, enum outcome outcome) {
        assert_string_equal(patch_of(b, 1), patch);
        assert_ptr_equal(b->running->req.gold_patch, NULL);
        end_run(b, b->running, outcome);
}

static void base_then_gold_then_the_task_itself(void **state) {
        BENCH(b, 2, 10);
        char id[37];
        submit_controlled(&b, id);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        assert_int_equal(status_of(&b, id), TASK_RUNNING);
        end_with(&b, "G", OUTCOME_RESOLVED);
        end_with(&b, "P", OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, id) == TASK_COMPLETED);
        assert_int_equal(b.started, 3);
}

static void what_is_known_is_not_made_again(void **state) {
        BENCH(b, 2, 10);
        char id[37];
        submit_controlled(&b, id);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        end_with(&b, "G", OUTCOME_RESOLVED);
        end_with(&b, "P", OUTCOME_RESOLVED);
        submit_controlled(&b, id);
        end_with(&b, "P", OUTCOME_RESOLVED);
        assert_int_equal(b.started, 4);
}

static void others_wait_for_who_makes_it(void **state) {
        BENCH(b, 3, 10);
        char one[37], two[37], three[37];
        submit_controlled(&b, one);
        submit_controlled(&b, two);
        submit_controlled(&b, three);
        UNTIL(&b, status_of(&b, three) == TASK_RUNNING);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        end_with(&b, "G", OUTCOME_RESOLVED);
        assert_string_equal(patch_of(&b, 3), "P");
        while (b.running)
                end_run(&b, b.running, OUTCOME_UNRESOLVED);
        UNTIL(&b, status_of(&b, one) == TASK_COMPLETED && status_of(&b, two) == TASK_COMPLETED && status_of(&b, three) == TASK_COMPLETED);
}

static void a_broken_environment_fails_all_of_them(void **state) {
        BENCH(b, 2, 10);
        char one[37], two[37];
        submit_controlled(&b, one);
        submit_controlled(&b, two);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        UNTIL(&b, status_of(&b, two) == TASK_RUNNING);
        end_with(&b, "G", OUTCOME_UNRESOLVED);
        UNTIL(&b, status_of(&b, one) == TASK_FAILED && status_of(&b, two) == TASK_FAILED);
        assert_true(has(&b, two, "environment_broken") && has(&b, two, "the gold patch is not resolved but unresolved"));
        assert_int_equal(b.started, 2);
}

static void the_next_goes_on_when_the_maker_is_deleted(void **state) {
        BENCH(b, 2, 10);
        char one[37], two[37];
        submit_controlled(&b, one);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        submit_controlled(&b, two);
        UNTIL(&b, status_of(&b, two) == TASK_RUNNING);
        assert_string_equal(patch_of(&b, 1), "G");
        assert_int_equal(delete_task(&b, one), 0);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        end_with(&b, "G", OUTCOME_RESOLVED);
        end_with(&b, "P", OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, two) == TASK_COMPLETED);
}

static void who_waits_can_be_deleted(void **state) {
        BENCH(b, 2, 10);
        char one[37], two[37];
        submit_controlled(&b, one);
        assert_string_equal(patch_of(&b, 1), "");
        submit_controlled(&b, two);
        UNTIL(&b, status_of(&b, two) == TASK_RUNNING);
        assert_int_equal(delete_task(&b, two), 0);
        assert_int_equal(status_of(&b, two), -ENOENT);
        submit(&b, two);               /* its place is free */
        UNTIL(&b, b.n_running == 2);
        while (b.running)
                end_run(&b, b.running, OUTCOME_UNRESOLVED);
}

static void our_fault_in_a_control_run_is_the_tasks_and_the_next_tries_again(void **state) {
        BENCH(b, 2, 10);
        char one[37], two[37];
        submit_controlled(&b, one);
        assert_string_equal(patch_of(&b, 1), "");
        submit_controlled(&b, two);
        UNTIL(&b, status_of(&b, two) == TASK_RUNNING);
        end_with(&b, "", OUTCOME_INFRA_ERROR);
        UNTIL(&b, status_of(&b, one) == TASK_FAILED);
        end_with(&b, "", OUTCOME_UNRESOLVED);
        end_with(&b, "G", OUTCOME_RESOLVED);
        end_with(&b, "P", OUTCOME_RESOLVED);
        UNTIL(&b, status_of(&b, two) == TASK_COMPLETED);
}

static void a_drain_puts_all_of_them_back(void **state) {
        BENCH(b, 2, 10);
        char one[37], two[37];
        submit_controlled(&b, one);
        assert_string_equal(patch_of(&b, 1), "");
        submit_controlled(&b, two);
        UNTIL(&b, status_of(&b, two) == TASK_RUNNING);
        drain(&b, 0);
        assert_int_equal(status_of(&b, one), TASK_PENDING);
        assert_int_equal(status_of(&b, two), TASK_PENDING);
        assert_int_equal(b.n_running, 0);
}

static void on_lost(void *user) { *(bool *)user = true; }

static void a_lost_spawner_interrupts_all_of_them(void **state) {
        BENCH(b, 2, 10);
        char one[37], two[37];
        bool lost = false;
        submit_controlled(&b, one);
        assert_string_equal(patch_of(&b, 1), "");
        submit_controlled(&b, two);
        UNTIL(&b, status_of(&b, two) == TASK_RUNNING);
        struct score_task *left = b.running;
        tasks_lost(b.ts, on_lost, &lost);
        UNTIL(&b, lost);
        assert_true(has(&b, one, "\"interrupted\"") && has(&b, two, "\"interrupted\""));
        assert_ptr_equal(b.running, left);
        end_run(&b, left, OUTCOME_CANCELLED);      /* it calls back all the same */
}

int main(void) {
        log_set_level(LOG_LEVEL_MAX);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(base_then_gold_then_the_task_itself),
                cmocka_unit_test(what_is_known_is_not_made_again),
                cmocka_unit_test(others_wait_for_who_makes_it),
                cmocka_unit_test(a_broken_environment_fails_all_of_them),
                cmocka_unit_test(the_next_goes_on_when_the_maker_is_deleted),
                cmocka_unit_test(who_waits_can_be_deleted),
                cmocka_unit_test(our_fault_in_a_control_run_is_the_tasks_and_the_next_tries_again),
                cmocka_unit_test(a_drain_puts_all_of_them_back),
                cmocka_unit_test(a_lost_spawner_interrupts_all_of_them),
        };
        return cmocka_run_group_tests_name("engine/task_control", tests, NULL, NULL);
}
