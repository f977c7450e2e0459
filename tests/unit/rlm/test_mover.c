/* Who puts the processes of turns into their groups. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/macros.h"
#include "rlm/stage.h"

static struct stage stage;

/* The number behind `key` in its /proc/PID/status; -1. */
static long status_of(long pid, const char *key, int base) {
        _cleanup_buf_ struct buf b = BUF_INIT(16384);
        char path[32];
        snprintf(path, sizeof path, "/proc/%ld/status", pid);
        if (fs_read_file(AT_FDCWD, path, &b) < 0)
                return -1;
        const char *at = strstr(buf_str(&b), key);
        return at ? strtol(at + strlen(key), NULL, base) : -1;
}

static long mover(struct fixture *f) {
        long found = -1;
        DIR *d = opendir("/proc");
        for (struct dirent *e; found < 0 && (e = readdir(d));) {
                char path[300], name[32] = "";
                snprintf(path, sizeof path, "/proc/%.20s/comm", e->d_name);
                int fd = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
                if (fd < 0)
                        continue;
                if (read(fd, name, sizeof name - 1) > 0 && strcmp(name, "brig-mover\n") == 0 && status_of(strtol(e->d_name, NULL, 10), "PPid:\t", 10) == spawner_pid(f->spawner))
                        found = strtol(e->d_name, NULL, 10);
                close(fd);
        }
        closedir(d);
        return found;
}

static void turn_works(void) {
        struct act a;
        act_begin(&stage, &a, STAGE_SETUP);
        act_run(&a, "import subprocess\np = subprocess.Popen(['/bin/sleep', '1000'])\nprint(1)");
        assert_string_equal(a.out, "1\n");
        act_end(&a);
        assert_int_equal(a.end.reason, TURN_END_KILLED);
}

static void it_may_do_nothing_else(void **state) {
        turn_works();
        long pid = mover(*state);
        assert_true(pid > 0);
        assert_int_equal(status_of(pid, "Uid:\t", 10), 65534);
        assert_int_equal(status_of(pid, "CapEff:\t", 16), 0);
        assert_int_equal(status_of(pid, "CapPrm:\t", 16), 0);
}

static void without_it_turns_begin_all_the_same(void **state) {
        turn_works();
        long pid = mover(*state);
        assert_true(pid > 0);
        assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
        for (int i = 0; i < 3; i++)
                turn_works();
        assert_int_equal(mover(*state), -1);
}

/* CPU time of the spawner, in ticks. */
static long spawner_ticks(struct fixture *f) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        char path[32];
        long user = 0, kernel = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)spawner_pid(f->spawner));
        assert_int_equal(fs_read_file(AT_FDCWD, path, &b), 0);
        const char *at = strrchr(buf_str(&b), ')');
        assert_non_null(at);
        for (int i = 0; i < 12 && at; i++)
                at = strchr(at + 1, ' ');
        assert_int_equal(sscanf(at, " %ld %ld", &user, &kernel), 2);
        return user + kernel;
}

static bool rested;
static long ticks;
static unsigned same;
static void on_tick(uv_timer_t *t) {
        long now = spawner_ticks(t->data);
        same = now == ticks ? same + 1 : 0;
        ticks = now;
        rested = same >= 50;           /* half a second without a hundredth of one */
}

static void the_spawner_sleeps_while_a_turn_does_nothing(void **state) {
        struct fixture *f = *state;
        struct act a;
        uv_timer_t timer;
        act_begin(&stage, &a, STAGE_SETUP);
        act_run(&a, "x = 1");
        uv_timer_init(&f->loop, &timer);
        timer.data = f;
        rested = false;
        uv_timer_start(&timer, on_tick, 1, 10);
        fixture_until(f, &rested);
        uv_close((uv_handle_t *)&timer, NULL);
        act_end(&a);
}

static int open_all(void **state) {
        int r = fixture_setup(state);
        if (r == 0)
                stage_open(*state, &stage);
        return r;
}

static int close_all(void **state) {
        stage_close(&stage);
        return fixture_teardown(state);
}

int main(void) {
        const struct CMUnitTest tests[] = { cmocka_unit_test(the_spawner_sleeps_while_a_turn_does_nothing), cmocka_unit_test(it_may_do_nothing_else),
                                            cmocka_unit_test(without_it_turns_begin_all_the_same) };
        return cmocka_run_group_tests(tests, open_all, close_all);
}
