#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "fleet/queue.h"

/* Everything started, in order, "a b c ". */
struct log { struct queue *q; struct buf started; bool finish_at_once; };

static void on_start(const char *id, uint64_t queued_ms, void *user) {
        struct log *l = user;
        buf_printf(&l->started, "%s ", id);
        if (l->finish_at_once)
                queue_finished(l->q, id);
}

static void log_init(struct log *l, size_t max_running, size_t max_queued) {
        *l = (struct log){ .started = BUF_INIT(8u << 20) };
        l->q = queue_new(&(struct queue_limits){ .max_running = max_running, .max_queued = max_queued }, on_start, l);
        assert_non_null(l->q);
}

static void log_release(struct log *l) {
        queue_free(l->q);
        buf_release(&l->started);
}

static void push(struct log *l, const char *id, const char *tenant, int priority) {
        assert_int_equal(queue_push(l->q, id, tenant, priority), 0);
}

/* Lets everything that is queued run, one after the other, and says in which order. */
static const char *order(struct log *l) {
        l->finish_at_once = true;
        queue_pause(l->q, false);
        return buf_str(&l->started);
}

static void one_tenant_is_first_in_first_out(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        queue_pause(l.q, true);
        push(&l, "a", "t", 0);
        push(&l, "b", "t", 0);
        push(&l, "c", "t", 0);
        assert_string_equal(order(&l), "a b c ");
        log_release(&l);
}

static void higher_priority_runs_first_whoever_asks(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        queue_pause(l.q, true);
        push(&l, "low", "t", -5);
        push(&l, "mid", "u", 0);
        push(&l, "high", "t", 7);
        push(&l, "mid2", "t", 0);
        assert_string_equal(order(&l), "high mid mid2 low ");
        log_release(&l);
}

static void priorities_out_of_range_count_as_the_nearest(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        queue_pause(l.q, true);
        push(&l, "a", "t", QUEUE_PRIORITY_MAX);
        push(&l, "b", "t", 2000000000);
        assert_string_equal(order(&l), "a b ");
        log_release(&l);
}

static void tenants_take_turns_however_much_one_asks_for(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        queue_pause(l.q, true);
        push(&l, "a1", "a", 0);
        push(&l, "a2", "a", 0);
        push(&l, "a3", "a", 0);
        push(&l, "b1", "b", 0);
        push(&l, "b2", "b", 0);
        push(&l, "c1", "c", 0);
        assert_string_equal(order(&l), "a1 b1 c1 a2 b2 a3 ");
        log_release(&l);
}

static void the_tenant_with_fewest_running_is_next(void **state) {
        struct log l;
        log_init(&l, 3, 100);
        push(&l, "a1", "a", 0);        /* a runs two, b one; all places are taken */
        push(&l, "a2", "a", 0);
        push(&l, "b1", "b", 0);
        push(&l, "a3", "a", 0);
        push(&l, "b2", "b", 0);
        assert_int_equal(queue_running(l.q), 3);
        queue_finished(l.q, "b1");     /* now b runs none: b2 goes before the older a3 */
        assert_string_equal(buf_str(&l.started), "a1 a2 b1 b2 ");
        log_release(&l);
}

static void never_runs_more_than_the_limit(void **state) {
        struct log l;
        log_init(&l, 2, 100);
        push(&l, "a", "", 0);
        push(&l, "b", "", 0);
        push(&l, "c", "", 0);
        assert_int_equal(queue_running(l.q), 2);
        assert_int_equal(queue_depth(l.q), 1);
        queue_finished(l.q, "a");
        assert_string_equal(buf_str(&l.started), "a b c ");
        log_release(&l);
}

static void a_full_queue_refuses_and_takes_again_later(void **state) {
        struct log l;
        log_init(&l, 1, 2);
        push(&l, "running", "", 0);
        push(&l, "q1", "", 0);
        push(&l, "q2", "", 0);
        assert_true(queue_full(l.q));
        assert_int_equal(queue_push(l.q, "q3", "", 0), -EAGAIN);
        queue_finished(l.q, "running");
        assert_int_equal(queue_push(l.q, "q3", "", 0), 0);
        log_release(&l);
}

static void an_id_is_in_it_once_queued_or_running(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        push(&l, "a", "", 0);
        push(&l, "b", "", 0);
        assert_int_equal(queue_push(l.q, "a", "", 0), -EEXIST);
        assert_int_equal(queue_push(l.q, "b", "", 0), -EEXIST);
        log_release(&l);
}

static void paused_starts_nothing_and_goes_on_afterwards(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        push(&l, "a", "", 0);
        queue_pause(l.q, true);
        push(&l, "b", "", 0);
        queue_finished(l.q, "a");
        assert_string_equal(buf_str(&l.started), "a ");
        queue_pause(l.q, false);
        assert_string_equal(buf_str(&l.started), "a b ");
        log_release(&l);
}

static void removes_first_middle_and_last_but_not_a_running_one(void **state) {
        struct log l;
        log_init(&l, 1, 100);
        push(&l, "running", "", 0);
        const char *ids[] = { "a", "b", "c", "d" };
        for (size_t i = 0; i < 4; i++)
                push(&l, ids[i], "", 0);
        assert_int_equal(queue_remove(l.q, "running"), -ENOENT);
        assert_int_equal(queue_remove(l.q, "nobody"), -ENOENT);
        assert_int_equal(queue_remove(l.q, "a"), 0);
        assert_int_equal(queue_remove(l.q, "d"), 0);
        assert_int_equal(queue_remove(l.q, "b"), 0);
        l.finish_at_once = true;
        queue_finished(l.q, "running");
        assert_string_equal(buf_str(&l.started), "running c ");
        assert_int_equal(queue_depth(l.q) + queue_running(l.q), 0);
        log_release(&l);
}

/* The order must be the header's for any history: compared with a plain search over everything queued. */
struct model { char tenant; int priority; uint64_t seq; bool queued; };

static void any_history_has_the_order_of_a_plain_search(void **state) {
        enum { N = 600, TENANTS = 5, PLACES = 4 };
        struct log l;
        log_init(&l, PLACES, N);
        struct model m[N] = { 0 };
        size_t running[TENANTS] = { 0 }, served[TENANTS] = { 0 }, clock = 0, at = 0, in_flight[PLACES], n_flight = 0;
        uint32_t rnd = 12345;
        for (int step = 0; step < N; step++) {
                rnd = rnd * 1664525u + 1013904223u;
                m[step] = (struct model){ .tenant = (char)((rnd >> 8) % TENANTS), .priority = (int)((rnd >> 16) % 3), .seq = (uint64_t)step, .queued = true };
        }
        queue_pause(l.q, true);
        for (int i = 0; i < N; i++) {
                char id[16], tenant[2] = { (char)('a' + m[i].tenant), 0 };
                snprintf(id, sizeof id, "%d", i);
                push(&l, id, tenant, m[i].priority);
        }
        queue_pause(l.q, false);
        for (int done = 0; done < N; done++) {
                while (n_flight < PLACES) {
                        int best = -1;
                        for (int i = 0; i < N; i++) {
                                if (!m[i].queued)
                                        continue;
                                struct model *x = &m[i], *b = best < 0 ? NULL : &m[best];
                                int xt = x->tenant, bt = b ? b->tenant : 0;
                                if (!b || x->priority > b->priority ||
                                    (x->priority == b->priority && xt != bt &&
                                     (running[xt] < running[bt] || (running[xt] == running[bt] && served[xt] < served[bt]))))
                                        best = i;
                        }
                        if (best < 0)
                                break;
                        m[best].queued = false;
                        running[(int)m[best].tenant]++;
                        served[(int)m[best].tenant] = ++clock;
                        in_flight[n_flight++] = (size_t)best;
                        char expect[16];
                        int n = snprintf(expect, sizeof expect, "%d ", best);
                        assert_true(l.started.len >= at + (size_t)n);
                        assert_memory_equal(l.started.data + at, expect, (size_t)n);
                        at += (size_t)n;
                }
                rnd = rnd * 1664525u + 1013904223u;
                size_t which = (rnd >> 8) % n_flight;
                char id[16];
                snprintf(id, sizeof id, "%zu", in_flight[which]);
                running[(int)m[in_flight[which]].tenant]--;
                in_flight[which] = in_flight[--n_flight];
                queue_finished(l.q, id);
        }
        assert_int_equal(queue_running(l.q), 0);
        log_release(&l);
}

static void a_hundred_thousand_cost_a_hundred_bytes_each(void **state) {
        enum { N = 100000 };
        assert_true(queue_entry_bytes() <= 100 + QUEUE_ID_MAX + 1);
        struct log l;
        log_init(&l, 1, N);
        queue_pause(l.q, true);
        size_t before = mallinfo2().uordblks;
        for (int i = 0; i < N; i++) {
                char id[QUEUE_ID_MAX + 1], tenant[16];
                snprintf(id, sizeof id, "00000000-0000-4000-8000-%012d", i);
                snprintf(tenant, sizeof tenant, "tenant-%d", i % 100);
                push(&l, id, tenant, i % 7);
        }
        size_t each = (mallinfo2().uordblks - before) / N;
        assert_true(each <= 100 + QUEUE_ID_MAX + 1);
        assert_int_equal(queue_push(l.q, "one more", "", 0), -EAGAIN);
        order(&l);
        assert_int_equal(queue_depth(l.q) + queue_running(l.q), 0);
        log_release(&l);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(one_tenant_is_first_in_first_out),
                cmocka_unit_test(higher_priority_runs_first_whoever_asks),
                cmocka_unit_test(priorities_out_of_range_count_as_the_nearest),
                cmocka_unit_test(tenants_take_turns_however_much_one_asks_for),
                cmocka_unit_test(the_tenant_with_fewest_running_is_next),
                cmocka_unit_test(never_runs_more_than_the_limit),
                cmocka_unit_test(a_full_queue_refuses_and_takes_again_later),
                cmocka_unit_test(an_id_is_in_it_once_queued_or_running),
                cmocka_unit_test(paused_starts_nothing_and_goes_on_afterwards),
                cmocka_unit_test(removes_first_middle_and_last_but_not_a_running_one),
                cmocka_unit_test(any_history_has_the_order_of_a_plain_search),
                cmocka_unit_test(a_hundred_thousand_cost_a_hundred_bytes_each),
        };
        return cmocka_run_group_tests_name("fleet/queue", tests, NULL, NULL);
}
