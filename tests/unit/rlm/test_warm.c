/* The pool of warm boxes. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "rlm/stage.h"
#include "rlm/warm.h"

static struct warm *warm;
static struct fixture *fixture;

struct guest {                     /* who has taken a box */
        struct warm_box *box;
        bool ready, failed, lost, gone;
        char step[64];
};

static void on_ready(struct warm_box *b, void *user) { ((struct guest *)user)->ready = true; }
static void on_failed(struct warm_box *b, const char *step, const struct error *e, void *user) {
        struct guest *g = user;
        g->failed = true;
        snprintf(g->step, sizeof g->step, "%s", step);
}
static void on_lost(struct warm_box *b, const struct error *e, void *user) { ((struct guest *)user)->lost = true; }
static void on_gone(struct warm_box *b, const struct sandbox_end *end, void *user) { ((struct guest *)user)->gone = true; }
static const struct warm_callbacks callbacks = { .ready = on_ready, .failed = on_failed, .lost = on_lost, .gone = on_gone };

static void set(void *flag) { *(bool *)flag = true; }

/* Turns the loop until so many are ready, or (most) none is too many. */
static uv_timer_t ticker;
static bool tick, full;
static unsigned wanted;
static void on_tick(uv_timer_t *t) {
        full = warm_ready(warm, NULL) == wanted;
        tick = true;
}
static void until_ready(unsigned n) {
        full = false;
        wanted = n;
        uv_timer_start(&ticker, on_tick, 1, 5);
        fixture_until(fixture, &full);
        uv_timer_stop(&ticker);
}

static int add(const char *name, const struct sandbox_spec *spec, const char *python, bool keep) {
        static const char *const env[] = { "PATH=/usr/bin:/bin", "HOME=/workspace", NULL };
        return warm_add_kind(warm, &(struct warm_kind){ .name = name, .sandbox = spec, .python = python, .env = env, .broker_port = 8765, .broker_name = "brig-test", .keep = keep });
}

static int open_pool(void **state) {
        int r = fixture_setup(state);
        if (r < 0)
                return r;
        fixture = *state;
        uv_timer_init(&fixture->loop, &ticker);
        struct sandbox_spec spec = stage_spec();
        assert_int_equal(warm_new(fixture->spawner, &fixture->loop, 2, 8, &warm), 0);
        spec.user_dir = "/workspace";
        assert_int_equal(add("host", &spec, NULL, true), 0);
        assert_int_equal(add("cold", &spec, NULL, false), 0);
        assert_int_equal(add("broken", &spec, "/no/python", false), 0);
        return 0;
}

static int close_pool(void **state) {
        bool done = false;
        warm_stop(warm, set, &done);
        fixture_until(fixture, &done);
        warm_free(warm);
        uv_close((uv_handle_t *)&ticker, NULL);
        return fixture_teardown(state);
}

static int take(const char *kind, struct guest *g) {
        struct error e = { 0 };
        *g = (struct guest){ 0 };
        int r = warm_take(warm, kind, &callbacks, g, &g->box, &e);
        if (r < 0)
                fail_msg("%s", e.text);
        return r;
}

static void leave(struct guest *g) {
        warm_box_destroy(g->box);
        fixture_until(fixture, &g->gone);
}

static void works(struct guest *g) {
        struct stage s = { .box = { .f = fixture }, .interpreter = warm_box_interpreter(g->box) };
        struct act a;
        act_begin(&s, &a, STAGE_SETUP);
        act_run(&a, "print(1)");
        assert_string_equal(a.out, "1\n");
        act_end(&a);
}

static void some_are_kept(void **state) { until_ready(2); }

static void one_that_is_taken_is_ready_and_replaced(void **state) {
        struct guest g;
        until_ready(2);
        assert_int_equal(take("host", &g), 1);
        assert_int_equal(warm_ready(warm, "host"), 1);
        works(&g);
        until_ready(2);
        leave(&g);
        assert_int_equal(warm_ready(warm, "host"), 2);
}

static void each_is_somebodys_own(void **state) {
        struct guest g[4];
        until_ready(2);
        for (int i = 0; i < 4; i++)
                take("host", &g[i]);
        for (int i = 0; i < 4; i++)
                for (int j = 0; j < i; j++)
                        assert_ptr_not_equal(g[i].box, g[j].box);
        for (int i = 2; i < 4; i++)
                fixture_until(fixture, &g[i].ready);
        for (int i = 0; i < 4; i++)
                works(&g[i]);
        for (int i = 0; i < 4; i++)
                leave(&g[i]);
}

static void where_there_is_none_one_is_made(void **state) {
        struct guest g;
        assert_int_equal(take("cold", &g), 0);
        fixture_until(fixture, &g.ready);
        works(&g);
        leave(&g);
        assert_int_equal(warm_ready(warm, "cold"), 0);
}

static void python_that_is_not_there_is_said(void **state) {
        struct guest g;
        assert_int_equal(take("broken", &g), 0);
        fixture_until(fixture, &g.gone);
        assert_true(g.failed);
        assert_string_equal(g.step, "start python");
}

static void one_that_dies_is_replaced(void **state) {
        until_ready(2);
        struct guest g;
        take("host", &g);
        until_ready(2);
        /* Its init with all the rest: as a limit on memory would. */
        assert_int_equal(sandbox_kill_all(warm_box_sandbox(g.box), NULL, NULL), 0);
        fixture_until(fixture, &g.lost);
        leave(&g);
}

static void memory_that_is_short_empties_it(void **state) {
        until_ready(2);
        warm_hold_back(warm, true);
        until_ready(0);
        struct guest g;
        assert_int_equal(take("host", &g), 0);
        fixture_until(fixture, &g.ready);
        leave(&g);
        assert_int_equal(warm_ready(warm, NULL), 0);
        warm_hold_back(warm, false);
        until_ready(2);
}

/* What a turn prints of `code`, in a box that listens. */
static void prints(struct guest *g, const char *code, const char *expected) {
        struct stage s = { .box = { .f = fixture }, .interpreter = warm_box_interpreter(g->box) };
        struct act a;
        act_begin(&s, &a, STAGE_SETUP);
        act_run(&a, code);
        assert_string_equal(a.error, "");
        assert_string_equal(a.out, expected);
        act_end(&a);
}

static void the_brokers_sockets_listen_before_anybody_serves_them(void **state) {
        static const char code[] =
                "import socket\n"
                "a = socket.create_connection(('127.0.0.1', 8765))\n"
                "b = socket.socket(socket.AF_UNIX)\n"
                "b.connect('\\0brig-test')\n"
                "for family, at in (socket.AF_INET, ('127.0.0.1', 8765)), (socket.AF_UNIX, '\\0brig-test'):\n"
                "    try:\n"
                "        socket.socket(family).bind(at)\n"
                "    except OSError as e:\n"
                "        print(e.errno)\n";
        static const char *const kinds[] = { "host", "cold" };
        until_ready(2);
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                struct guest g;
                int fds[2];
                if (take(kinds[i], &g) == 0)
                        fixture_until(fixture, &g.ready);
                prints(&g, code, "98\n98\n");
                warm_box_broker(g.box, fds);
                for (int k = 0; k < 2; k++) {
                        int fd = accept4(fds[k], NULL, NULL, SOCK_CLOEXEC);
                        assert_true(fd >= 0);
                        close(fd);
                        close(fds[k]);
                }
                leave(&g);
        }
}

static void the_directory_is_the_users_and_the_environment_as_given(void **state) {
        struct guest g;
        until_ready(2);
        take("host", &g);
        prints(&g, "import os\ns = os.stat('/workspace')\nopen('/workspace/f', 'w').close()\nprint(s.st_uid, s.st_gid, os.environ['PATH'])", "1000 1000 /usr/bin:/bin\n");
        leave(&g);
}

static void what_cannot_be_kept_is_refused(void **state) {
        struct sandbox_spec spec = stage_spec();
        struct error e;
        struct guest g;
        assert_int_equal(add("host", &spec, NULL, true), -EEXIST);
        spec.profile = PROFILE_SESSION;
        assert_int_equal(add("other", &spec, NULL, true), -EINVAL);
        assert_int_equal(warm_take(warm, "other", &callbacks, &g, &g.box, &e), -ENOENT);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(some_are_kept), cmocka_unit_test(one_that_is_taken_is_ready_and_replaced), cmocka_unit_test(each_is_somebodys_own),
                cmocka_unit_test(where_there_is_none_one_is_made), cmocka_unit_test(python_that_is_not_there_is_said), cmocka_unit_test(one_that_dies_is_replaced),
                cmocka_unit_test(memory_that_is_short_empties_it), cmocka_unit_test(what_cannot_be_kept_is_refused),
                cmocka_unit_test(the_brokers_sockets_listen_before_anybody_serves_them), cmocka_unit_test(the_directory_is_the_users_and_the_environment_as_given),
        };
        return cmocka_run_group_tests(tests, open_pool, close_pool);
}
