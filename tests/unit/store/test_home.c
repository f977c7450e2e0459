#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "store/home.h"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

static int make_dir(void **state) {
        char *dir = strdup("/tmp/brig-home-XXXXXX");
        *state = mkdtemp(dir);
        return *state ? 0 : -1;
}

static int remove_dir(void **state) {
        nftw(*state, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        free(*state);
        return 0;
}

static void a_second_daemon_is_told_who_holds_it(void **state) {
        struct home a = HOME_INIT, b = HOME_INIT;
        struct error e = { 0 };
        char pid[32];
        assert_int_equal(home_open(*state, &a, &e), 0);
        assert_int_equal(home_open(*state, &b, &e), -EWOULDBLOCK);
        snprintf(pid, sizeof pid, "process %ld", (long)getpid());
        assert_non_null(strstr(e.text, pid));
        home_release(&a);
        assert_int_equal(home_open(*state, &b, &e), 0);
        home_release(&b);
}

static void the_lock_goes_with_its_process(void **state) {
        struct error e = { 0 };
        pid_t child = fork();
        if (child == 0) {
                struct home h = HOME_INIT;
                _exit(home_open(*state, &h, NULL) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        struct home h = HOME_INIT;
        assert_int_equal(home_open(*state, &h, &e), 0);
        home_release(&h);
}

static void the_instance_id_is_made_once(void **state) {
        struct home a = HOME_INIT, b = HOME_INIT;
        assert_int_equal(home_open(*state, &a, NULL), 0);
        assert_int_equal(strlen(a.instance), HOME_INSTANCE_LEN);
        home_release(&a);
        assert_int_equal(home_open(*state, &b, NULL), 0);
        assert_string_equal(a.instance, b.instance);
        home_release(&b);
}

static void a_broken_instance_id_is_an_error_not_a_new_one(void **state) {
        struct home h = HOME_INIT;
        struct error e = { 0 };
        char path[128];
        snprintf(path, sizeof path, "%s/" HOME_INSTANCE_FILE, (char *)*state);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, "xyz\n", 4), 4);
        close(fd);
        assert_int_equal(home_open(*state, &h, &e), -EBADMSG);
}

static void the_lock_is_not_followed_through_a_link(void **state) {
        struct home h = HOME_INIT;
        char path[128];
        snprintf(path, sizeof path, "%s/" HOME_LOCK_FILE, (char *)*state);
        assert_int_equal(symlink("/tmp/brig-elsewhere", path), 0);
        assert_int_equal(home_open(*state, &h, NULL), -ELOOP);
}

static void the_layout_belongs_to_the_daemons_user(void **state) {
        struct home h = HOME_INIT;
        struct stat st;
        assert_int_equal(home_open(*state, &h, NULL), 0);
        assert_int_equal(home_layout(&h, 12345, 12346, NULL), 0);
        assert_int_equal(fstatat(h.dirfd, "runs", &st, 0), 0);
        assert_int_equal(st.st_uid, 12345);
        assert_int_equal(st.st_gid, 12346);
        assert_int_equal(fstat(h.dirfd, &st), 0);
        assert_int_equal(st.st_uid, 12345);
        home_release(&h);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_second_daemon_is_told_who_holds_it, make_dir, remove_dir),
                cmocka_unit_test_setup_teardown(the_lock_goes_with_its_process, make_dir, remove_dir),
                cmocka_unit_test_setup_teardown(the_instance_id_is_made_once, make_dir, remove_dir),
                cmocka_unit_test_setup_teardown(a_broken_instance_id_is_an_error_not_a_new_one, make_dir, remove_dir),
                cmocka_unit_test_setup_teardown(the_lock_is_not_followed_through_a_link, make_dir, remove_dir),
                cmocka_unit_test_setup_teardown(the_layout_belongs_to_the_daemons_user, make_dir, remove_dir),
        };
        return cmocka_run_group_tests_name("store/home", tests, NULL, NULL);
}
