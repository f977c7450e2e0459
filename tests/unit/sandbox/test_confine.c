/* Each case runs in a child that entered a user namespace with all ids mapped, as a sandbox's process does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "sandbox/confine.h"
#include "sandbox/facilities.h"
#include "sandbox/seccomp.h"

#define OPEN_FILES 256
#define CAP(c) (1ull << CAP_##c)

struct sets { uint64_t effective, permitted, inheritable, bounding, ambient; };

static struct sets read_sets(void) {
        struct sets s = { 0 };
        FILE *f = fopen("/proc/self/status", "re");
        char line[256];
        while (f && fgets(line, sizeof line, f)) {
                unsigned long long v;
                if (sscanf(line, "CapEff: %llx", &v) == 1) s.effective = v;
                if (sscanf(line, "CapPrm: %llx", &v) == 1) s.permitted = v;
                if (sscanf(line, "CapInh: %llx", &v) == 1) s.inheritable = v;
                if (sscanf(line, "CapBnd: %llx", &v) == 1) s.bounding = v;
                if (sscanf(line, "CapAmb: %llx", &v) == 1) s.ambient = v;
        }
        if (f)
                fclose(f);
        return s;
}

static void write_map(pid_t pid, const char *file) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_int_equal(write(fd, "0 1073807360 65536", 18), 18);
        fd_close(fd);
}

/* Runs fn in a user namespace of its own, where it is root with all capabilities. */
static int inside(int (*fn)(void)) {
        int ready[2], go[2];
        char c;
        assert_int_equal(pipe2(ready, O_CLOEXEC) | pipe2(go, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
                struct confine_plan p;
                bool capped;
                confine_plan_init(PROFILE_SCORE, false, OPEN_FILES, &p, &capped);
                if (confine_rlimits(&p) < 0)
                        _exit(90);
                if (unshare(CLONE_NEWUSER) < 0 || write(ready[1], "r", 1) != 1 || read(go[0], &c, 1) != 1)
                        _exit(91);
                if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
                        _exit(92);
                _exit(fn());
        }
        assert_int_equal(read(ready[0], &c, 1), 1);
        write_map(pid, "uid_map");
        write_map(pid, "gid_map");
        assert_int_equal(write(go[1], "g", 1), 1);
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        for (int i = 0; i < 2; i++) {
                fd_close(ready[i]);
                fd_close(go[i]);
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As the spawner's child does it. */
static int confine(enum sandbox_profile profile, bool helper, uint32_t uid) {
        struct confine_plan p;
        bool capped;
        confine_plan_init(profile, helper, OPEN_FILES, &p, &capped);
        int r = confine_bounding(&p);
        if (r == 0)
                r = confine_landlock(&p);
        if (r == 0)
                r = seccomp_install(seccomp_program(SECCOMP_STANDARD));
        if (r == 0 && syscall(SYS_setresuid, uid, uid, uid) < 0)
                r = -errno;
        return r == 0 ? confine_privileges(&p, uid) : r;
}

static int sets_are(uint64_t caps, uint64_t bounding) {
        struct sets s = read_sets();
        return s.effective == caps && s.permitted == caps && s.inheritable == 0 && s.ambient == 0 && s.bounding == bounding ? 0 : 1;
}

#define SCORE (CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(SETUID) | CAP(SETGID) | CAP(KILL))
#define CONTAINER (SCORE | CAP(FSETID) | CAP(SETPCAP) | CAP(NET_BIND_SERVICE) | CAP(SYS_CHROOT) | CAP(SETFCAP))

static int score_root(void) {
        return confine(PROFILE_SCORE, false, 0) < 0 ? 50 : sets_are(SCORE, SCORE) ? 1 : prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 2;
}
static int session_root(void) {
        return confine(PROFILE_SESSION, false, 0) < 0 ? 50 : sets_are(CONTAINER, CONTAINER) ? 1 : prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : 2;
}
static int session_user(void) {
        return confine(PROFILE_SESSION, false, 1000) < 0 ? 50 : sets_are(0, CONTAINER) ? 1 : getuid() == 1000 ? 0 : 2;
}
static int helper_root(void) {
        return confine(PROFILE_SCORE, true, 0) < 0 ? 50 : sets_are(CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(SETFCAP), CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(SETFCAP));
}

static void root_of_a_score_has_six_capabilities_for_good(void **state) { assert_int_equal(inside(score_root), 0); }
static void root_of_a_session_has_what_a_container_has(void **state) { assert_int_equal(inside(session_root), 0); }
static void another_user_has_none(void **state) { assert_int_equal(inside(session_user), 0); }
static void a_helper_has_four(void **state) { assert_int_equal(inside(helper_root), 0); }

static void no_profile_keeps_a_capability_that_reaches_the_kernel(void **state) {
        const uint64_t never = CAP(SYS_ADMIN) | CAP(SYS_MODULE) | CAP(SYS_RAWIO) | CAP(SYS_PTRACE) | CAP(NET_ADMIN) | CAP(NET_RAW) | CAP(MKNOD) |
                               CAP(SYS_TIME) | CAP(SYS_BOOT) | CAP(SYS_RESOURCE) | CAP(DAC_READ_SEARCH) | CAP(BPF) | CAP(PERFMON);
        for (int p = 0; p < PROFILE_MAX; p++)
                assert_int_equal(confine_profile_caps(p) & never, 0);
        assert_int_equal(confine_profile_caps(PROFILE_FETCH), 0);
}

static int limits_in_force(void) {
        struct rlimit files, core;
        if (confine(PROFILE_SCORE, false, 0) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0 || getrlimit(RLIMIT_CORE, &core) < 0)
                return 50;
        struct rlimit more = { 1024, 1024 };
        return files.rlim_cur == 256 && files.rlim_max == 256 && core.rlim_max == 0 && setrlimit(RLIMIT_NOFILE, &more) < 0 ? 0 : 1;
}
static void limits_are_set_and_cannot_be_raised(void **state) { assert_int_equal(inside(limits_in_force), 0); }

static void without_sys_resource_limits_stop_at_the_present_ones_and_say_so(void **state) {
        struct confine_plan p;
        struct rlimit now;
        bool capped;
        getrlimit(RLIMIT_NOFILE, &now);
        setenv("BRIG_FORCE_MISSING", "sys-resource", 1);
        facilities_forget();
        confine_plan_init(PROFILE_SCORE, false, now.rlim_max + 1, &p, &capped);
        assert_true(capped);
        assert_int_equal(p.nofile.rlim_max, now.rlim_max);
        confine_plan_init(PROFILE_SCORE, false, 64, &p, &capped);
        assert_false(capped);
        assert_int_equal(p.nofile.rlim_max, 64);
        unsetenv("BRIG_FORCE_MISSING");
        facilities_forget();
}

static struct sockaddr_un outside_socket;
static int reach_outside(void) {
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(s, (void *)&outside_socket, sizeof(sa_family_t) + 20) < 0)
                return 60;   /* the test's own socket must be reachable before */
        fd_close(s);
        if (confine(PROFILE_FETCH, false, 0) < 0)
                return 50;
        s = socket(AF_UNIX, SOCK_STREAM, 0);
        bool refused = connect(s, (void *)&outside_socket, sizeof(sa_family_t) + 20) < 0 && errno == EPERM;
        return refused ? 0 : 1;
}
static void landlock_keeps_a_fetch_from_abstract_sockets_of_the_host(void **state) {
        if (facility_value(FACILITY_LANDLOCK) < 6)
                return;
        outside_socket.sun_family = AF_UNIX;
        snprintf(outside_socket.sun_path + 1, 20, "brig-test-%08d", (int)getpid());
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s, (void *)&outside_socket, sizeof(sa_family_t) + 20), 0);
        assert_int_equal(listen(s, 8), 0);
        assert_int_equal(inside(reach_outside), 0);
        fd_close(s);
}

static int forced_landlock(void) {
        struct confine_plan p;
        bool capped;
        setenv("BRIG_FORCE_MISSING", "landlock", 1);
        facilities_forget();
        confine_plan_init(PROFILE_FETCH, false, 64, &p, &capped);
        return p.landlock_fd == -1 && confine_landlock(&p) == 0 ? 0 : 1;
}
static void without_landlock_the_rest_still_holds(void **state) {
        pid_t pid = fork();
        if (pid == 0)
                _exit(forced_landlock());
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static int setup(void **state) {
        struct error e;
        facilities_get();
        return seccomp_prepare(&e);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_landlock_the_rest_still_holds),
                cmocka_unit_test(root_of_a_score_has_six_capabilities_for_good),
                cmocka_unit_test(root_of_a_session_has_what_a_container_has),
                cmocka_unit_test(another_user_has_none),
                cmocka_unit_test(a_helper_has_four),
                cmocka_unit_test(no_profile_keeps_a_capability_that_reaches_the_kernel),
                cmocka_unit_test(limits_are_set_and_cannot_be_raised),
                cmocka_unit_test(without_sys_resource_limits_stop_at_the_present_ones_and_say_so),
                cmocka_unit_test(landlock_keeps_a_fetch_from_abstract_sockets_of_the_host),
        };
        return cmocka_run_group_tests_name("sandbox/confine", tests, setup, NULL);
}
