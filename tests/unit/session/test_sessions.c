/* The states of a session, its clocks, and who is let in. */
#include "session/fake_sandbox.h"

#include <string.h>

#include "base/clock.h"
#include "base/strv.h"

#define HOUR (3600 * 1000ull)

static void on_flag(int r, void *user) { *(int *)user = r; }

static void change(const char *id, struct session_patch *p) {
        int r = 1;
        assert_int_equal(session_change(fake.ss, id, p, on_flag, &r), 0);
        while (r == 1)
                fake_turn();
}

/* The clock has gone on: what changes nothing has the deadlines looked at. */
static void look_again(const char *id) { change(id, &(struct session_patch){ 0 }); }

static struct session_view view(const char *id) {
        struct session_view v;
        assert_int_equal(session_get(fake.ss, id, &v), 0);
        return v;
}

static void assert_error(const char *id, const char *want) {
        struct session_view v = view(id);
        if (!v.error || !strstr(v.error, want))
                fail_msg("'%s' is not in '%s'", want, v.error ? v.error : "(none)");
        session_view_release(&v);
}

static void set_flag(void *user) { *(bool *)user = true; }

/* ---- states ---- */

static void it_starts_with_its_row_and_is_ready_with_its_sandbox(void **state) {
        const char *id = fake_create(fake_spec());
        assert_int_equal(fake_state(id), SESSION_STARTING);
        assert_int_equal(session_state(session_find(fake.ss, id)), SESSION_STARTING);
        fake_ready(fake_sandbox(id));
        assert_int_equal(fake_state(id), SESSION_READY);
        struct session_view v = view(id);
        assert_true(v.ready_ms > 0);
        session_view_release(&v);
}

static void on_created(int r, const char *id, const struct error *e, void *user) { *(int *)user = r; }

static void it_is_not_seen_before_its_row_is_written(void **state) {
        struct session_spec spec = fake_spec();
        int r = 1;
        session_create(fake.ss, &spec, on_created, &r);
        const char *id = fake_sandbox_id(fake.sandboxes);      /* it is being made meanwhile */
        assert_int_equal(r, 1);
        assert_int_equal(fake_state(id), SESSION_STATE_MAX);
        assert_null(session_find(fake.ss, id));
        while (r == 1)
                fake_turn();
        assert_int_equal(fake_state(id), SESSION_STARTING);
}

static void a_sandbox_that_fails_fails_it_and_says_the_step(void **state) {
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create(fake_spec()), sizeof id);
        fake_failed(fake_sandbox(id), "mount", -EPERM);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_FAILED);
        assert_error(id, "mount: ");
}

static void a_sandbox_that_ends_by_itself_fails_it(void **state) {
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        fake_broken(fake_sandbox(id));
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_FAILED);
        assert_error(id, "by itself");
}

static void the_wall_limit_of_its_sandbox_expires_it(void **state) {
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        fake_limit(fake_sandbox(id), LIMIT_MEMORY);
        assert_int_equal(fake_state(id), SESSION_READY);
        fake_limit(fake_sandbox(id), LIMIT_WALL);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
}

static void deleting_leaves_nothing(void **state) {
        char id[SESSION_ID_SIZE];
        int r = 1;
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        assert_int_equal(session_delete(fake.ss, id, on_flag, &r), 0);
        assert_int_equal(r, 1);                /* not before its sandbox is gone */
        assert_int_equal(session_delete(fake.ss, id, on_flag, &r), -ENOENT);
        while (r == 1)
                fake_turn();
        assert_int_equal(r, 0);
        assert_null(fake_sandbox(id));
        assert_int_equal(fake_state(id), SESSION_STATE_MAX);
}

static void a_record_is_deleted_too(void **state) {
        char id[SESSION_ID_SIZE];
        int r = 1;
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        fake_broken(fake_sandbox(id));
        fake_wait_record(id);
        assert_int_equal(session_delete(fake.ss, id, on_flag, &r), 0);
        while (r == 1)
                fake_turn();
        assert_int_equal(r, 0);
        assert_int_equal(session_delete(fake.ss, id, on_flag, &r), -ENOENT);
}

static void the_next_daemon_finds_what_lived_failed(void **state) {
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        fake_reopen();
        assert_int_equal(fake_state(id), SESSION_FAILED);
        assert_error(id, "daemon restarted");
        fake_wait_record(id);
        assert_error(id, "daemon restarted");
}

static void who_waits_for_its_start_is_told_once(void **state) {
        char id[SESSION_ID_SIZE];
        bool told = false, never = false;
        memcpy(id, fake_create(fake_spec()), sizeof id);
        assert_non_null(session_wait_started(fake.ss, id, HOUR, set_flag, &told));
        struct session_wait *w = session_wait_started(fake.ss, id, HOUR, set_flag, &never);
        session_wait_cancel(w);
        assert_false(told);
        fake_ready(fake_sandbox(id));
        assert_true(told);
        assert_false(never);
        assert_null(session_wait_started(fake.ss, id, HOUR, set_flag, &never));
}

/* ---- clocks ---- */

static void its_time_to_live_runs_from_its_creation(void **state) {
        struct session_spec spec = fake_spec();
        char id[SESSION_ID_SIZE];
        spec.ttl_ms = 2 * HOUR;
        memcpy(id, fake_create_ready(spec), sizeof id);
        fake_forward(HOUR);
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_READY);
        fake_forward(HOUR);
        look_again(id);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
        assert_error(id, "time to live");
}

static void it_may_expire_before_it_is_ready(void **state) {
        struct session_spec spec = fake_spec();
        char id[SESSION_ID_SIZE];
        spec.ttl_ms = HOUR;
        memcpy(id, fake_create(spec), sizeof id);
        fake_forward(HOUR);
        look_again(id);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
}

static void it_is_not_idle_while_it_is_used(void **state) {
        struct session_spec spec = fake_spec();
        struct session_use u;
        char id[SESSION_ID_SIZE];
        spec.idle_ms = HOUR;
        memcpy(id, fake_create_ready(spec), sizeof id);
        assert_int_equal(session_use_begin(fake.ss, id, &u, NULL), 0);
        fake_forward(3 * HOUR);
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_READY);
        session_use_end(&u);                   /* the clock begins now */
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_READY);
        fake_forward(HOUR);
        look_again(id);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
        assert_error(id, "idle");
}

static void a_passive_use_does_not_keep_it_from_being_idle(void **state) {
        struct session_spec spec = fake_spec();
        struct session_use u;
        char id[SESSION_ID_SIZE];
        spec.idle_ms = HOUR;
        memcpy(id, fake_create_ready(spec), sizeof id);
        assert_int_equal(session_use_begin(fake.ss, id, &u, NULL), 0);
        session_use_passive(&u);
        fake_forward(HOUR);
        look_again(id);
        fake_turn();
        assert_null(session_find(fake.ss, id));
        session_use_end(&u);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
}

static void it_is_not_idle_while_it_starts(void **state) {
        struct session_spec spec = fake_spec();
        char id[SESSION_ID_SIZE];
        spec.idle_ms = HOUR;
        memcpy(id, fake_create(spec), sizeof id);
        fake_forward(2 * HOUR);
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_STARTING);
        fake_ready(fake_sandbox(id));          /* the clock begins now */
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_READY);
}

static void its_lease_ends_without_a_heartbeat(void **state) {
        struct session_spec spec = fake_spec();
        char id[SESSION_ID_SIZE];
        spec.owner_ttl_ms = 2 * HOUR;
        memcpy(id, fake_create_ready(spec), sizeof id);
        fake_forward(HOUR);
        assert_int_equal(session_heartbeat(fake.ss, id), 0);
        fake_forward(HOUR);
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_READY);
        fake_forward(HOUR);
        look_again(id);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
        assert_error(id, "lease");
        assert_int_equal(session_heartbeat(fake.ss, id), -ENOENT);
}

static void a_changed_time_counts_at_once(void **state) {
        struct session_patch p = { .ttl_ms = HOUR, .ttl_given = true };
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        fake_forward(2 * HOUR);
        look_again(id);
        assert_int_equal(fake_state(id), SESSION_READY);
        change(id, &p);
        fake_wait_record(id);
        assert_int_equal(fake_state(id), SESSION_EXPIRED);
}

/* ---- uses ---- */

struct teller { struct session_use use; unsigned told; };

static void on_ended(struct session_use *u) {
        container_of(u, struct teller, use)->told++;
        session_use_end(u);
}

static void uses_are_told_of_the_end_before_the_sandbox_goes(void **state) {
        struct teller a = { 0 }, b = { 0 };
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        assert_int_equal(session_use_begin(fake.ss, id, &a.use, on_ended), 0);
        assert_int_equal(session_use_begin(fake.ss, id, &b.use, on_ended), 0);
        fake_limit(fake_sandbox(id), LIMIT_WALL);
        assert_int_equal(a.told, 1);
        assert_int_equal(b.told, 1);
        assert_non_null(fake_sandbox(id));
        fake_wait_record(id);
}

static void a_use_begins_only_when_it_is_ready(void **state) {
        struct session_use u;
        char id[SESSION_ID_SIZE];
        memcpy(id, fake_create(fake_spec()), sizeof id);
        assert_int_equal(session_use_begin(fake.ss, id, &u, NULL), -EAGAIN);
        assert_int_equal(session_use_begin(fake.ss, "nobody", &u, NULL), -ENOENT);
}

static void ending_a_use_that_was_not_begun_is_fine(void **state) {
        struct session_use u = { 0 };
        session_use_end(&u);
        assert_null(u.session);
}

/* ---- who is let in ---- */

static void more_than_live_max_are_refused_until_one_has_gone(void **state) {
        char id[SESSION_ID_SIZE];
        for (int i = 0; i < 4; i++)
                memcpy(id, fake_create_ready(fake_spec()), sizeof id);
        assert_int_equal(fake_create_error(fake_spec()), -EAGAIN);
        fake_broken(fake_sandbox(id));
        fake_wait_record(id);
        assert_int_equal(fake_create_error(fake_spec()), 0);
}

static struct session_spec with_key(const char *key, const char *hash) {
        struct session_spec spec = fake_spec();
        spec.idempotency_key = strdup(key);
        snprintf(spec.hash, sizeof spec.hash, "%s", hash);
        return spec;
}

static void a_key_makes_one_session_and_tells_another_request(void **state) {
        assert_int_equal(fake_create_error(with_key("k", "same")), 0);
        assert_int_equal(fake_create_error(with_key("k", "same")), -EEXIST);
        assert_int_equal(fake_create_error(with_key("k", "other")), -EBUSY);
        assert_int_equal(fake_create_error(with_key("l", "same")), 0);
        struct sessions_stats st;
        sessions_stats(fake.ss, &st);
        assert_int_equal(st.live, 2);
}

static void a_drain_takes_nothing_new_and_waits_for_who_is_used(void **state) {
        struct session_use u;
        char used[SESSION_ID_SIZE], idle[SESSION_ID_SIZE];
        bool drained = false;
        memcpy(used, fake_create_ready(fake_spec()), sizeof used);
        memcpy(idle, fake_create_ready(fake_spec()), sizeof idle);
        assert_int_equal(session_use_begin(fake.ss, used, &u, NULL), 0);
        sessions_drain(fake.ss, HOUR, set_flag, &drained);
        assert_int_equal(fake_create_error(fake_spec()), -ESHUTDOWN);
        fake_turn();
        assert_null(fake_sandbox(idle));
        assert_non_null(fake_sandbox(used));
        assert_false(drained);
        session_use_end(&u);
        fake_until(&drained);
        assert_null(fake_sandbox(used));
}

/* ---- lists ---- */

struct found { size_t n; char ids[8][SESSION_ID_SIZE]; uint64_t seq; };

static int add(const struct session_view *v, void *user) {
        struct found *f = user;
        memcpy(f->ids[f->n++], v->id, SESSION_ID_SIZE);
        f->seq = v->seq;
        return 0;
}

static void lists_come_in_pages_in_order_of_creation(void **state) {
        char ids[3][SESSION_ID_SIZE];
        struct session_filter filter = { .limit = 2 };
        struct found f = { 0 };
        bool more;
        for (int i = 0; i < 3; i++)
                memcpy(ids[i], fake_create(fake_spec()), SESSION_ID_SIZE);
        assert_int_equal(sessions_list(fake.ss, &filter, add, &f, &more), 0);
        assert_int_equal(f.n, 2);
        assert_true(more);
        filter.after = f.seq;
        assert_int_equal(sessions_list(fake.ss, &filter, add, &f, &more), 0);
        assert_int_equal(f.n, 3);
        assert_false(more);
        for (int i = 0; i < 3; i++)
                assert_string_equal(f.ids[i], ids[i]);
}

static void lists_are_narrowed_by_labels_and_states(void **state) {
        char *wanted[] = { (char[]){ "a=1" }, NULL };
        struct session_filter filter = { .limit = 10, .labels = wanted };
        struct session_spec spec = fake_spec();
        struct found f = { 0 };
        char id[SESSION_ID_SIZE];
        bool more;
        assert_int_equal(strv_push(&spec.labels, "a=1"), 0);
        memcpy(id, fake_create_ready(spec), sizeof id);
        fake_create(fake_spec());
        assert_int_equal(sessions_list(fake.ss, &filter, add, &f, &more), 0);
        assert_int_equal(f.n, 1);
        assert_string_equal(f.ids[0], id);
        fake_broken(fake_sandbox(id));
        fake_wait_record(id);
        f = (struct found){ 0 };
        assert_int_equal(sessions_list(fake.ss, &filter, add, &f, &more), 0);
        assert_int_equal(f.n, 0);              /* only what lives, where nothing is said */
        filter.states = 1u << SESSION_FAILED;
        assert_int_equal(sessions_list(fake.ss, &filter, add, &f, &more), 0);
        assert_int_equal(f.n, 1);              /* a record has its labels */
}

#define T(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                T(it_starts_with_its_row_and_is_ready_with_its_sandbox), T(it_is_not_seen_before_its_row_is_written), T(a_sandbox_that_fails_fails_it_and_says_the_step),
                T(a_sandbox_that_ends_by_itself_fails_it), T(the_wall_limit_of_its_sandbox_expires_it), T(deleting_leaves_nothing), T(a_record_is_deleted_too),
                T(the_next_daemon_finds_what_lived_failed), T(who_waits_for_its_start_is_told_once), T(its_time_to_live_runs_from_its_creation),
                T(it_may_expire_before_it_is_ready), T(it_is_not_idle_while_it_is_used), T(a_passive_use_does_not_keep_it_from_being_idle), T(it_is_not_idle_while_it_starts),
                T(its_lease_ends_without_a_heartbeat), T(a_changed_time_counts_at_once), T(uses_are_told_of_the_end_before_the_sandbox_goes),
                T(a_use_begins_only_when_it_is_ready), T(ending_a_use_that_was_not_begun_is_fine), T(more_than_live_max_are_refused_until_one_has_gone),
                T(a_key_makes_one_session_and_tells_another_request), T(a_drain_takes_nothing_new_and_waits_for_who_is_used), T(lists_come_in_pages_in_order_of_creation),
                T(lists_are_narrowed_by_labels_and_states),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
