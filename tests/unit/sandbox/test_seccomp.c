#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <sched.h>
#include <string.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sandbox/seccomp.h"
#include "sandbox/seccomp_table.h"

static const struct sock_fprog *standard, *nested;

static int setup(void **state) {
        struct error e;
        if (seccomp_prepare(&e) < 0)
                return -1;
        standard = seccomp_program(SECCOMP_STANDARD);
        nested = seccomp_program(SECCOMP_NESTED);
        return 0;
}

static int ask(const struct sock_fprog *p, int nr, uint64_t a0, uint64_t a1, uint64_t a2) {
        const uint64_t args[6] = { a0, a1, a2 };
        return seccomp_evaluate(p, AUDIT_ARCH_X86_64, nr, args);
}

static int number(const char *name) {
        int nr = seccomp_syscall_resolve_name(name);
        if (nr < 0)
                fail_msg("no such call: %s", name);
        return nr;
}

static void expect(const char *const *names, int answer) {
        for (; *names; names++)
                if (ask(standard, number(*names), 0, 0, 0) != answer)
                        fail_msg("%s: %d, not %d", *names, ask(standard, number(*names), 0, 0, 0), answer);
}

/* The compiled tree gives for every number what the table says. */
static void every_number_gets_the_answer_of_the_table(void **state) {
        static int wanted[4096];
        for (int i = 0; i < 4096; i++)
                wanted[i] = ENOSYS;
        for (unsigned i = 0; i < seccomp_rules_n; i++) {
                const struct seccomp_rule *r = &seccomp_rules[i];
                int nr = r->number >= 0 ? r->number : seccomp_syscall_resolve_name(r->name);
                if (nr >= 0)
                        wanted[nr] = r->action;
        }
        for (int i = 0; i < 4096; i++)
                if (wanted[i] < ACTION_CHECK_CLONE)
                        assert_int_equal(ask(standard, i, ~0ull, ~0ull, ~0ull), wanted[i]);
}

static void no_call_is_named_twice(void **state) {
        for (unsigned i = 0; i < seccomp_rules_n; i++)
                for (unsigned k = 0; k < i; k++)
                        if (strcmp(seccomp_rules[i].name, seccomp_rules[k].name) == 0)
                                fail_msg("%s", seccomp_rules[i].name);
}

static void what_ordinary_programs_need_is_allowed(void **state) {
        expect((const char *const[]){
                "read", "openat", "openat2", "execve", "execveat", "fork", "vfork", "clone", "wait4", "waitid", "mmap", "futex", "rseq", "getrandom",
                "statx", "epoll_pwait2", "ptrace", "process_vm_readv", "pidfd_open", "close_range", "memfd_create", "inotify_init1", "timerfd_create",
                "set_robust_list", "membarrier", "sched_setaffinity", "prlimit64", "chown", "setuid", "setgroups", "capset", "mq_open", "shmget",
                "copy_file_range", "io_setup", "mbind", "seccomp", "landlock_create_ruleset", "arch_prctl", "kill", "mknodat", "chroot", NULL }, 0);
}

static void what_reaches_the_machine_is_refused(void **state) {
        expect((const char *const[]){
                "mount", "umount2", "pivot_root", "setns", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "mount_setattr", "bpf",
                "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module", "kexec_load",
                "kexec_file_load", "reboot", "swapon", "settimeofday", "clock_settime", "acct", "quotactl", "iopl", "ioperm", "syslog",
                "open_by_handle_at", "sethostname", NULL }, EPERM);
}

static void what_has_an_older_form_is_unknown(void **state) {
        expect((const char *const[]){ "clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "modify_ldt", "uselib", "lookup_dcookie", NULL }, ENOSYS);
}

static void foreign_abis_are_unknown(void **state) {
        const uint64_t args[6] = { 0 };
        assert_int_equal(seccomp_evaluate(standard, AUDIT_ARCH_I386, 3, args), ENOSYS);
        assert_int_equal(seccomp_evaluate(standard, AUDIT_ARCH_AARCH64, SYS_read, args), ENOSYS);
        assert_int_equal(ask(standard, 0x40000000 | SYS_read, 0, 0, 0), ENOSYS);
        assert_int_equal(ask(standard, -1, 0, 0, 0), ENOSYS);
}

static void clone_makes_threads_but_no_namespaces(void **state) {
        assert_int_equal(ask(standard, SYS_clone, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS, 0, 0), 0);
        assert_int_equal(ask(standard, SYS_clone, SIGCHLD | CLONE_VM | CLONE_VFORK, 0, 0), 0);
        const int flags[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP };
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
                assert_int_equal(ask(standard, SYS_clone, (uint64_t)flags[i] | SIGCHLD, 0, 0), EPERM);
                assert_int_equal(ask(standard, SYS_unshare, (uint64_t)flags[i], 0, 0), EPERM);
                assert_int_equal(ask(nested, SYS_clone, (uint64_t)flags[i] | SIGCHLD, 0, 0), 0);
        }
        assert_int_equal(ask(standard, SYS_unshare, 0x80, 0, 0), EPERM);
        assert_int_equal(ask(standard, SYS_unshare, CLONE_FS | CLONE_FILES, 0, 0), 0);
}

static void only_ordinary_sockets_are_made(void **state) {
        const uint64_t fine[] = { AF_UNIX, AF_INET, AF_INET6 };
        for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
                assert_int_equal(ask(standard, SYS_socket, fine[i], SOCK_STREAM, 0), 0);
        const uint64_t refused[] = { AF_VSOCK, AF_ALG, AF_PACKET, AF_KEY, AF_BLUETOOTH, AF_TIPC, AF_RDS, AF_XDP, 0, 1000 };
        for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
                assert_int_equal(ask(standard, SYS_socket, refused[i], SOCK_STREAM, 0), EAFNOSUPPORT);
        assert_int_equal(ask(standard, SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), 0);
        assert_int_equal(ask(standard, SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG), 0);
        assert_int_equal(ask(standard, SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), EPROTONOSUPPORT);
        assert_int_equal(ask(standard, SYS_socketpair, AF_UNIX, SOCK_STREAM, 0), 0);
        assert_int_equal(ask(standard, SYS_socketpair, AF_TIPC, SOCK_STREAM, 0), EAFNOSUPPORT);
}

static void terminals_cannot_be_fed(void **state) {
        assert_int_equal(ask(standard, SYS_ioctl, 0, TIOCSTI, 0), EPERM);
        assert_int_equal(ask(standard, SYS_ioctl, 0, TIOCSTI | 1ull << 32, 0), EPERM);   /* the kernel cuts it to 32 bits too */
        assert_int_equal(ask(standard, SYS_ioctl, 0, TIOCLINUX, 0), EPERM);
        assert_int_equal(ask(standard, SYS_ioctl, 0, TIOCSETD, 0), EPERM);
        assert_int_equal(ask(standard, SYS_ioctl, 0, TIOCGWINSZ, 0), 0);
        assert_int_equal(ask(standard, SYS_ioctl, 0, FIONREAD, 0), 0);
}

static void personality_turns_off_randomisation_and_no_more(void **state) {
        assert_int_equal(ask(standard, SYS_personality, 0xffffffff, 0, 0), 0);
        assert_int_equal(ask(standard, SYS_personality, ADDR_NO_RANDOMIZE, 0, 0), 0);
        assert_int_equal(ask(standard, SYS_personality, READ_IMPLIES_EXEC, 0, 0), EPERM);
        assert_int_equal(ask(standard, SYS_personality, MMAP_PAGE_ZERO, 0, 0), EPERM);
}

/* The kernel takes the program and does what the evaluation says; only in a child. */
static int in_child(int (*fn)(void)) {
        pid_t pid = fork();
        if (pid == 0) {
                if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_install(standard) < 0)
                        _exit(90);
                _exit(fn());
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#define REFUSES(call, code) ((call) < 0 && errno == (code))
static int live(void) {
        if (!REFUSES(unshare(CLONE_NEWUSER), EPERM)) return 1;
        if (!REFUSES(syscall(SYS_clone3, NULL, 0), ENOSYS)) return 2;
        if (!REFUSES(syscall(SYS_mount, "x", "/", "tmpfs", 0, NULL), EPERM)) return 3;
        if (!REFUSES(socket(AF_VSOCK, SOCK_STREAM, 0), EAFNOSUPPORT)) return 4;
        if (!REFUSES(syscall(SYS_keyctl, 0, 0), EPERM)) return 5;
        if (!REFUSES(syscall(SYS_io_uring_setup, 1, NULL), ENOSYS)) return 6;
        pid_t pid = fork();
        if (pid == 0) {
                ptrace(PTRACE_TRACEME, 0, 0, 0);
                raise(SIGSTOP);
                _exit(0);
        }
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 7;
        if (ptrace(PTRACE_CONT, pid, 0, 0) < 0 || waitpid(pid, &status, 0) != pid || status != 0) return 8;
        return 0;
}

static void the_kernel_does_what_the_evaluation_says(void **state) {
        assert_int_equal(in_child(live), 0);
}

#ifdef __x86_64__
/* An int 0x80 from a 64-bit program enters by the i386 table: number 20 is getpid there and writev here. */
static int foreign(void) {
        long r;
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");
        return r == -ENOSYS ? 0 : 1;
}
static void the_i386_door_is_shut(void **state) {
        assert_int_equal(in_child(foreign), 0);
}
#endif

static void turns_get_nothing_that_outlives_them_and_all_else(void **state) {
        const struct sock_fprog *turn = seccomp_program(SECCOMP_TURN), *launcher = seccomp_program(SECCOMP_TURN_LAUNCHER);
        for (unsigned i = 0; i < seccomp_rules_n; i++) {
                const struct seccomp_rule *r = &seccomp_rules[i];
                int nr = r->number >= 0 ? r->number : seccomp_syscall_resolve_name(r->name);
                if (nr < 0)
                        continue;
                bool lasts = strncmp(r->name, "shm", 3) == 0 || strncmp(r->name, "sem", 3) == 0 || strncmp(r->name, "msgget", 6) == 0 || strncmp(r->name, "mq_", 3) == 0;
                if (lasts)
                        assert_int_equal(ask(standard, nr, 0, 0, 0), 0);
                if (lasts || strncmp(r->name, "msg", 3) == 0) {
                        assert_int_equal(ask(turn, nr, 0, 0, 0), ENOSYS);
                        assert_int_equal(ask(launcher, nr, 0, 0, 0), ENOSYS);
                } else
                        assert_int_equal(ask(turn, nr, 0, 0, 0), ask(standard, nr, 0, 0, 0));
        }
        assert_int_equal(ask(launcher, number("setns"), 0, 0, 0), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(turns_get_nothing_that_outlives_them_and_all_else),
                cmocka_unit_test(every_number_gets_the_answer_of_the_table),
                cmocka_unit_test(no_call_is_named_twice),
                cmocka_unit_test(what_ordinary_programs_need_is_allowed),
                cmocka_unit_test(what_reaches_the_machine_is_refused),
                cmocka_unit_test(what_has_an_older_form_is_unknown),
                cmocka_unit_test(foreign_abis_are_unknown),
                cmocka_unit_test(clone_makes_threads_but_no_namespaces),
                cmocka_unit_test(only_ordinary_sockets_are_made),
                cmocka_unit_test(terminals_cannot_be_fed),
                cmocka_unit_test(personality_turns_off_randomisation_and_no_more),
                cmocka_unit_test(the_kernel_does_what_the_evaluation_says),
#ifdef __x86_64__
                cmocka_unit_test(the_i386_door_is_shut),
#endif
        };
        return cmocka_run_group_tests_name("sandbox/seccomp", tests, setup, NULL);
}
