/* The first process of a sandbox, made when asked for or ahead of need. */
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "sandbox/child_private.h"
#include "sandbox/mounts.h"
#include "sandbox/seccomp.h"

#define STACK_SIZE (256 * 1024)

/* ---- mounts ---- */

static int mask_proc(int proc, int seed) {
        static const char *const read_only[] = { "sys", "irq", "bus", "fs" };
        static const char *const no_file[] = { "sysrq-trigger", "kcore", "keys", "timer_list", "timer_stats", "sched_debug", "latency_stats" };
        static const char *const no_dir[] = { "acpi", "scsi", "asound" };
        const uint64_t attrs = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
        struct { const char *const *names; size_t n; const char *source; } groups[] = {
                { read_only, ARRAY_SIZE(read_only), NULL }, { no_file, ARRAY_SIZE(no_file), "n" }, { no_dir, ARRAY_SIZE(no_dir), "e" },
        };
        for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
                for (size_t i = 0; i < groups[g].n; i++) {
                        const char *name = groups[g].names[i], *source = groups[g].source;
                        if (faccessat(proc, name, F_OK, 0) < 0)
                                continue;      /* this kernel has none */
                        _cleanup_close_ int cover = source ? mount_clone(seed, source, attrs, -1) : mount_clone(proc, name, attrs, -1);
                        if (cover < 0)
                                return cover;
                        if (move_mount(cover, "", proc, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                                return -errno;
                }
        }
        return 0;
}

static int attach_proc(int root, int seed, struct child_report *rep) {
        const uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
        _cleanup_close_ int proc = mount_new("proc", attrs, NULL);
        if (proc < 0)
                return child_fail(rep, "mount /proc", proc);
        int r = mount_attach(proc, root, "proc");
        if (r == 0)
                r = mask_proc(proc, seed);
        return r < 0 ? child_fail(rep, "attach /proc", r) : 0;
}

/* The root goes over the seed's own, and nothing is unmounted: a path that climbs to the seed's root comes down again in what
 * covers it. pivot_root looks at every task of the machine, and unmounting the seed waits for a grace period. */
static int attach_all(struct child_first *c) {
        struct child_report *rep = &c->report;
        int root = c->mounts[0].fd;
        _cleanup_close_ int seed = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        _cleanup_close_ int dev = mount_clone(AT_FDCWD, "/d", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, -1);
        if (seed < 0 || dev < 0)
                return child_fail(rep, "open the seed", -errno);
        if (move_mount(root, "", seed, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return child_fail(rep, "attach the root", -errno);
        int r = mount_attach(dev, root, "dev");
        if (r < 0)
                return child_fail(rep, "attach /dev", r);
        for (size_t i = 1; i < c->n_mounts; i++) {
                r = mount_attach(c->mounts[i].fd, root, c->mounts[i].target);
                if (r < 0)
                        return child_fail(rep, c->mounts[i].target, r);
        }
        r = attach_proc(root, seed, rep);
        if (r < 0)
                return r;
        if (fchdir(root) < 0 || chroot(".") < 0)
                return child_fail(rep, "change the root", -errno);
        return 0;
}

/* Everything but the user namespace. */
static int enter(struct child_first *c) {
        struct child_report *rep = &c->report;
        /* Before the cgroup namespace: or the host's paths would show inside. */
        int r = c->exec.cgroup ? cgroup_attach(c->exec.cgroup, c->exec.group, 0, c->exec.cloned_in) : 0;
        if (r < 0)
                return child_fail(rep, "join the cgroup", r);
        if (c->net_ns >= 0 && setns(c->net_ns, CLONE_NEWNET) < 0)
                return child_fail(rep, "join the network namespace", -errno);
        if (setns(c->seed_ns, CLONE_NEWNS) < 0)
                return child_fail(rep, "join the seed", -errno);
        if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
                return child_fail(rep, "make namespaces", -errno);
        if (sethostname(c->hostname, strlen(c->hostname)) < 0)
                return child_fail(rep, "set the host name", -errno);
        r = attach_all(c);
        if (r == 0)
                child_settle();
        return r;
}

static int first_main(void *arg) {
        struct child_first *c = arg;
        if (enter(c) == 0)
                child_finish(&c->exec, &c->report);
        return 1;
}

/* clone3 with a stack of the child's own, on which it calls fn(arg) and exits with what that returns. */
static long clone_call(struct clone_args *args, int (*fn)(void *), void *arg) {
        register long ret __asm__("rax") = SYS_clone3;
        register int (*r8)(void *) __asm__("r8") = fn;
        register void *r9 __asm__("r9") = arg;
        __asm__ volatile("syscall\n\t"
                         "test %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "xor %%ebp, %%ebp\n\t"
                         "mov %%r9, %%rdi\n\t"
                         "call *%%r8\n\t"
                         "mov %%eax, %%edi\n\t"
                         "mov %[exit], %%eax\n\t"
                         "syscall\n\t"
                         "hlt\n"
                         "1:"
                         : "+r"(ret)
                         : "D"(args), "S"(sizeof *args), "r"(r8), "r"(r9), [exit] "i"(SYS_exit)
                         : "rcx", "r11", "memory", "cc");
        return ret;
}

/* A child that executes never returns from its functions, so what AddressSanitizer marked around their variables stays
 * marked, in memory that the next child uses. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(WITH_ASAN)
void __asan_unpoison_memory_region(void const volatile *addr, size_t size);
static void forget_marks(char *stack, size_t size) { __asan_unpoison_memory_region(stack, size); }
#else
static void forget_marks(char *stack, size_t size) { }
#endif

int child_first(struct child_first *c, pid_t *ret_pid, int *ret_pidfd) {
        static char stack[STACK_SIZE] __attribute__((aligned(16)));    /* one child at a time: the spawner sleeps */
        int pidfd = -1;
        c->report = (struct child_report){ 0 };
        struct clone_args args = {
                .flags = CLONE_VM | CLONE_FILES | CLONE_VFORK | CLONE_PIDFD | CLONE_NEWPID, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD,
                .stack = (uint64_t)(uintptr_t)stack, .stack_size = sizeof stack,
        };
        child_born_in_group(&c->exec, &args);
        forget_marks(stack, sizeof stack);
        c->exec.shared_files = true;
        long pid = clone_call(&args, first_main, c);
        (void)child_slots_restore(c->exec.null_fd, c->exec.slots_used);
        if (pid < 0)
                return child_fail(&c->report, "clone", (int)pid);
        /* It changed its credentials while it shared our memory, and where fs.suid_dumpable is set that shows. */
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        *ret_pid = (pid_t)pid;
        *ret_pidfd = pidfd;
        return c->report.code;
}

/* ---- parking ----
 *
 * A parked child shares memory, descriptors and the thread's own variables (errno) with the spawner, so of the two only one
 * runs at a time: whoever hands over goes to sleep on `turn` with calls that touch none of them. The kernel writes 0 there,
 * and wakes, when the child has let go of the memory: by execve or by its death. */

enum { TURN_DONE, TURN_CHILD_MAKES, TURN_PARKED, TURN_CHILD_ENDS };

static long raw_futex(uint32_t *word, int op, uint32_t value) {
        long ret;
        register long timeout __asm__("r10") = 0;
        __asm__ volatile("syscall" : "=a"(ret) : "a"(SYS_futex), "D"(word), "S"(op), "d"(value), "r"(timeout) : "rcx", "r11", "memory");
        return ret;
}

static void turn_wait(uint32_t *turn, uint32_t while_it_is) {
        while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) == while_it_is)
                raw_futex(turn, FUTEX_WAIT, while_it_is);
}

static void turn_give(uint32_t *turn, uint32_t to) {
        __atomic_store_n(turn, to, __ATOMIC_RELEASE);
        raw_futex(turn, FUTEX_WAKE, 1);
}

static int parked_main(void *arg) {
        struct child_parked *p = arg;
        struct child_exec *c = &p->first.exec;
        struct child_report *rep = &p->first.report;
        prctl(PR_SET_NAME, "brig-blank", 0, 0, 0);
        if (enter(&p->first) < 0)
                return 1;
        int r = confine_rlimits(&c->confine);
        if (r < 0)
                return child_fail(rep, "set resource limits", r), 1;
        if (setns(c->user_ns, CLONE_NEWUSER) < 0)
                return child_fail(rep, "join the user namespace", -errno), 1;
        r = seccomp_install(c->filter);
        if (r < 0)
                return child_fail(rep, "install the system call filter", r), 1;
        turn_give(&p->turn, TURN_PARKED);
        turn_wait(&p->turn, TURN_PARKED);
        child_finish(c, rep);
        return 1;
}

int child_park(struct child_parked *p, pid_t *ret_pid, int *ret_pidfd) {
        int pidfd = -1;
        struct child_first *c = &p->first;
        c->report = (struct child_report){ 0 };
        p->turn = TURN_CHILD_MAKES;
        c->exec.shared_files = true;
        struct clone_args args = {
                .flags = CLONE_VM | CLONE_FILES | CLONE_PIDFD | CLONE_NEWPID | CLONE_CHILD_CLEARTID, .pidfd = (uint64_t)(uintptr_t)&pidfd,
                .exit_signal = SIGCHLD, .child_tid = (uint64_t)(uintptr_t)&p->turn,
                .stack = (uint64_t)(uintptr_t)p->stack, .stack_size = sizeof p->stack,
        };
        child_born_in_group(&c->exec, &args);
        long pid = clone_call(&args, parked_main, p);
        if (pid > 0)
                turn_wait(&p->turn, TURN_CHILD_MAKES);
        if (pid < 0)
                return child_fail(&c->report, "clone", (int)pid);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);    /* as below */
        *ret_pid = (pid_t)pid;
        *ret_pidfd = pidfd;
        if (__atomic_load_n(&p->turn, __ATOMIC_ACQUIRE) == TURN_DONE && c->report.code == 0)
                child_fail(&c->report, "park the first process", -ECHILD);
        c->exec.user_ns = -1;
        c->exec.filtered = true;
        return c->report.code;
}

bool child_is_parked(const struct child_parked *p) {
        return __atomic_load_n(&p->turn, __ATOMIC_ACQUIRE) == TURN_PARKED;
}

int child_unpark(struct child_parked *p) {
        uint32_t parked = TURN_PARKED;
        /* Dead: the turn would never come back. */
        if (!__atomic_compare_exchange_n(&p->turn, &parked, TURN_CHILD_ENDS, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                return child_fail(&p->first.report, "wake the first process", -ESRCH);
        raw_futex(&p->turn, FUTEX_WAKE, 1);
        turn_wait(&p->turn, TURN_CHILD_ENDS);
        (void)child_slots_restore(p->first.exec.null_fd, p->first.exec.slots_used);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        return p->first.report.code;
}
