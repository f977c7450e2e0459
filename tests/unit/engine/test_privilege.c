#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "engine/privilege.h"

/* What the kernel says of a process that has dropped its privileges: its /proc/self/status, or why it could not. */
static void status_after_drop(struct buf *ret) {
        int p[2];
        assert_int_equal(geteuid(), 0);
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        pid_t child = fork();
        if (child == 0) {
                struct error e = { 0 };
                struct buf b = BUF_INIT(1 << 16);
                if (setgroups(2, (gid_t[]){ 4, 27 }) < 0 || privilege_drop(64321, 64322, &e) < 0)
                        buf_adds(&b, e.text);
                else
                        fs_read_file(AT_FDCWD, "/proc/self/status", &b);
                fs_write_all(p[1], buf_str(&b), b.len);
                _exit(setuid(0) == 0 || open("/etc/shadow", O_RDONLY | O_CLOEXEC) >= 0);
        }
        close(p[1]);
        assert_int_equal(fs_read_fd(p[0], ret), 0);
        close(p[0]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
}

static void no_privilege_is_left(void **state) {
        static const char *const lines[] = {
                "Uid:\t64321\t64321\t64321\t64321\n", "Gid:\t64322\t64322\t64322\t64322\n", "Groups:\t \n", "CapInh:\t0000000000000000\n",
                "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n",
                "NoNewPrivs:\t1\n",
        };
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 16);
        status_after_drop(&b);
        for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
                if (!strstr(buf_str(&b), lines[i]))
                        fail_msg("no '%s' in: %s", lines[i], buf_str(&b));
}

static void a_user_that_is_not_there_has_the_fallback_ids(void **state) {
        uid_t uid;
        gid_t gid;
        privilege_user("no-such-user-here", 7, 8, &uid, &gid);
        assert_int_equal(uid, 7);
        assert_int_equal(gid, 8);
        privilege_user("nobody", 7, 8, &uid, &gid);
        assert_int_equal(uid, 65534);
}

static void root_is_never_the_daemons_user(void **state) {
        uid_t uid;
        gid_t gid;
        privilege_user("root", 7, 8, &uid, &gid);
        assert_int_equal(uid, 7);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(no_privilege_is_left),
                cmocka_unit_test(a_user_that_is_not_there_has_the_fallback_ids),
                cmocka_unit_test(root_is_never_the_daemons_user),
        };
        return cmocka_run_group_tests_name("engine/privilege", tests, NULL, NULL);
}
