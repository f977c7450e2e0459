#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "sandbox/child.h"
#include "sandbox/facilities.h"
#include "sandbox/mounts.h"
#include "sandbox/seccomp.h"

#define STACK_SIZE (256 * 1024)
#define HIGH_FD 512            /* where descriptors are parked while their targets are filled */

static int fail(struct child_report *r, const char *step, int code) {
        r->code = code;
        r->step = step;
        return code;
}

/* ---- what both births end with ---- */

/* Descriptors that live on, moved out of the way in ascending order. */
struct parked { int fd[MESSAGE_FDS_MAX + 3]; size_t n; };

static int park(struct parked *p, int *fd) {
        if (*fd < 0)
                return 0;
        *fd = fcntl(*fd, F_DUPFD_CLOEXEC, p->n ? p->fd[p->n - 1] + 1 : HIGH_FD);
        if (*fd < 0)
                return -errno;
        p->fd[p->n++] = *fd;
        return 0;
}

/* Everything else is really closed, not only on execve: a link of the sandbox's to /proc/self/fd/N must find nothing of the
 * spawner's when the working directory or the program is looked up. */
static int close_others(const struct parked *p) {
        unsigned from = 0;
        for (size_t i = 0; i < p->n; i++) {
                unsigned fd = (unsigned)p->fd[i];
                if (fd > from && close_range(from, fd - 1, 0) < 0)
                        return -errno;
                from = fd + 1;
        }
        return close_range(from, ~0u, 0) < 0 ? -errno : 0;
}

static int place_fds(struct child_exec *c) {
        struct parked p = { .n = 0 };
        const struct exec_request *x = c->x;
        int source[MESSAGE_FDS_MAX];
        int r = park(&p, &c->user_ns);
        if (r == 0)
                r = park(&p, &c->program);
        if (r == 0)
                r = park(&p, &c->confine.landlock_fd);
        for (size_t i = 0; i < x->n_fds && r == 0; i++) {
                source[i] = x->fds[i].fd < 0 ? c->null_fd : x->fds[i].fd;
                r = park(&p, &source[i]);
        }
        if (r == 0)
                r = close_others(&p);
        for (size_t i = 0; i < x->n_fds && r == 0; i++) {
                if (dup2(source[i], x->fds[i].target) < 0)
                        r = -errno;
                close(source[i]);
        }
        return r;
}

static void reset_signals(void) {
        struct sigaction dfl = { .sa_handler = SIG_DFL };
        sigset_t none;
        sigemptyset(&none);
        sigaction(SIGPIPE, &dfl, NULL);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvp, but with the PATH of the new environment and within the sandbox. */
static int exec_lookup(const struct exec_request *x) {
        const char *path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        for (const char *const *v = x->env; v && *v; v++) {
                if (strncmp(*v, "PATH=", 5) == 0)
                        path = *v + 5;
        }
        size_t name = strlen(x->argv[0]);
        int r = -ENOENT;
        for (;;) {
                char full[4096];
                size_t n = strcspn(path, ":");
                if (n > 0 && n + name + 2 <= sizeof full) {
                        memcpy(full, path, n);
                        full[n] = '/';
                        memcpy(full + n + 1, x->argv[0], name + 1);
                        execve(full, (char *const *)x->argv, (char *const *)x->env);
                        if (errno == EACCES)
                                r = -EACCES;
                        else if (errno != ENOENT && errno != ENOTDIR)
                                return -errno;
                }
                if (path[n] == 0)
                        return r;
                path += n + 1;
        }
}

static int become(struct child_exec *c, struct child_report *rep) {
        const struct exec_request *x = c->x;
        const gid_t gid = x->gid;
        /* While it is still root inside, with all capabilities: dropping from the bounding set takes CAP_SETPCAP, and without
         * no_new_privs the others take CAP_SYS_ADMIN. */
        int r = confine_bounding(&c->confine);
        if (r < 0)
                return fail(rep, "drop capabilities", r);
        r = confine_landlock(&c->confine);
        if (r < 0)
                return fail(rep, "restrict by Landlock", r);
        r = c->filtered ? 0 : seccomp_install(c->filter);
        if (r < 0)
                return fail(rep, "install the system call filter", r);
        /* The ids go through plain system calls: the C library's own would try to change every thread's, which share
         * their memory with the spawner here. */
        if (syscall(SYS_setgroups, 1, &gid) < 0 || syscall(SYS_setresgid, gid, gid, gid) < 0)
                return fail(rep, "set group ids", -errno);
        if (syscall(SYS_setresuid, x->uid, x->uid, x->uid) < 0)
                return fail(rep, "set user ids", -errno);
        r = confine_privileges(&c->confine, x->uid);
        return r < 0 ? fail(rep, "set privileges", r) : 0;
}

static void settle(void) {
        setsid();
        umask(022);
        reset_signals();
}

/* Already in every namespace but the user's; or, with user_ns -1, in that too. */
static int finish(struct child_exec *c, struct child_report *rep) {
        const struct exec_request *x = c->x;
        static const char *const no_env[] = { NULL };
        int r = place_fds(c);
        if (r < 0)
                return fail(rep, "place descriptors", r);
        r = confine_rlimits(&c->confine);
        if (r < 0)
                return fail(rep, "set resource limits", r);
        if (c->user_ns >= 0 && setns(c->user_ns, CLONE_NEWUSER) < 0)
                return fail(rep, "join the user namespace", -errno);
        fd_close(c->user_ns);
        r = become(c, rep);
        if (r < 0)
                return r;
        /* Last, as nobody but the program's own user: the path is the sandbox's, links and all. */
        if (x->cwd && chdir(x->cwd) < 0)
                return fail(rep, "change to the working directory", -errno);
        char *const *argv = (char *const *)x->argv, *const *env = (char *const *)(x->env ? x->env : (const char **)no_env);
        if (c->program >= 0)
                r = syscall(SYS_execveat, c->program, "", argv, env, AT_EMPTY_PATH) < 0 ? -errno : 0;
        else if (strchr(x->argv[0], '/'))
                r = execve(x->argv[0], argv, env) < 0 ? -errno : 0;
        else
                r = exec_lookup(x);
        return fail(rep, "execute", r);
}

/* ---- the first process ---- */

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
                return fail(rep, "mount /proc", proc);
        int r = mount_attach(proc, root, "proc");
        if (r == 0)
                r = mask_proc(proc, seed);
        return r < 0 ? fail(rep, "attach /proc", r) : 0;
}

/* The root goes over the seed's own, and nothing is unmounted: a path that climbs to the seed's root comes down again in what
 * covers it. pivot_root looks at every task of the machine, and unmounting the seed waits for a grace period. */
static int attach_all(struct child_first *c) {
        struct child_report *rep = &c->report;
        int root = c->mounts[0].fd;
        _cleanup_close_ int seed = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        _cleanup_close_ int dev = mount_clone(AT_FDCWD, "/d", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, -1);
        if (seed < 0 || dev < 0)
                return fail(rep, "open the seed", -errno);
        if (move_mount(root, "", seed, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return fail(rep, "attach the root", -errno);
        int r = mount_attach(dev, root, "dev");
        if (r < 0)
                return fail(rep, "attach /dev", r);
        for (size_t i = 1; i < c->n_mounts; i++) {
                r = mount_attach(c->mounts[i].fd, root, c->mounts[i].target);
                if (r < 0)
                        return fail(rep, c->mounts[i].target, r);
        }
        r = attach_proc(root, seed, rep);
        if (r < 0)
                return r;
        if (fchdir(root) < 0 || chroot(".") < 0)
                return fail(rep, "change the root", -errno);
        return 0;
}

/* Everything but the user namespace. */
static int enter(struct child_first *c) {
        struct child_report *rep = &c->report;
        /* Before the cgroup namespace: or the host's paths would show inside. */
        int r = c->exec.cgroup ? cgroup_attach(c->exec.cgroup, c->exec.group, 0, c->exec.cloned_in) : 0;
        if (r < 0)
                return fail(rep, "join the cgroup", r);
        if (c->net_ns >= 0 && setns(c->net_ns, CLONE_NEWNET) < 0)
                return fail(rep, "join the network namespace", -errno);
        if (setns(c->seed_ns, CLONE_NEWNS) < 0)
                return fail(rep, "join the seed", -errno);
        if (unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
                return fail(rep, "make namespaces", -errno);
        if (sethostname(c->hostname, strlen(c->hostname)) < 0)
                return fail(rep, "set the host name", -errno);
        r = attach_all(c);
        if (r == 0)
                settle();
        return r;
}

static int first_main(void *arg) {
        struct child_first *c = arg;
        if (enter(c) == 0)
                finish(&c->exec, &c->report);
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

/* Being born in the group costs nothing; moving there takes a lock that waits for a grace period: up to 10 ms. */
static void born_in_group(struct child_exec *c, struct clone_args *args) {
        c->cloned_in = c->cgroup && c->group >= 0 && facility_ok(FACILITY_CLONE_INTO_CGROUP);
        if (c->cloned_in) {
                args->flags |= CLONE_INTO_CGROUP;
                args->cgroup = (uint64_t)c->group;
        }
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
                .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_NEWPID, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD,
                .stack = (uint64_t)(uintptr_t)stack, .stack_size = sizeof stack,
        };
        born_in_group(&c->exec, &args);
        forget_marks(stack, sizeof stack);
        long pid = clone_call(&args, first_main, c);
        if (pid < 0)
                return fail(&c->report, "clone", (int)pid);
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
                return fail(rep, "set resource limits", r), 1;
        if (setns(c->user_ns, CLONE_NEWUSER) < 0)
                return fail(rep, "join the user namespace", -errno), 1;
        r = seccomp_install(c->filter);
        if (r < 0)
                return fail(rep, "install the system call filter", r), 1;
        turn_give(&p->turn, TURN_PARKED);
        turn_wait(&p->turn, TURN_PARKED);
        /* Only now: what the spawner has opened meanwhile for this one is in the table. */
        if (unshare(CLONE_FILES) < 0)
                return fail(rep, "part the descriptors", -errno), 1;
        finish(c, rep);
        return 1;
}

int child_park(struct child_parked *p, pid_t *ret_pid, int *ret_pidfd) {
        int pidfd = -1;
        struct child_first *c = &p->first;
        c->report = (struct child_report){ 0 };
        p->turn = TURN_CHILD_MAKES;
        struct clone_args args = {
                .flags = CLONE_VM | CLONE_FILES | CLONE_PIDFD | CLONE_NEWPID | CLONE_CHILD_CLEARTID, .pidfd = (uint64_t)(uintptr_t)&pidfd,
                .exit_signal = SIGCHLD, .child_tid = (uint64_t)(uintptr_t)&p->turn,
                .stack = (uint64_t)(uintptr_t)p->stack, .stack_size = sizeof p->stack,
        };
        born_in_group(&c->exec, &args);
        long pid = clone_call(&args, parked_main, p);
        if (pid > 0)
                turn_wait(&p->turn, TURN_CHILD_MAKES);
        if (pid < 0)
                return fail(&c->report, "clone", (int)pid);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);    /* as below */
        *ret_pid = (pid_t)pid;
        *ret_pidfd = pidfd;
        if (__atomic_load_n(&p->turn, __ATOMIC_ACQUIRE) == TURN_DONE && c->report.code == 0)
                fail(&c->report, "park the first process", -ECHILD);
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
                return fail(&p->first.report, "wake the first process", -ESRCH);
        raw_futex(&p->turn, FUTEX_WAKE, 1);
        turn_wait(&p->turn, TURN_CHILD_ENDS);
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        return p->first.report.code;
}

/* ---- joining ---- */

static int open_helper_fds(struct child_join *c, struct exec_request *x) {
        int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return -errno;
        x->fds[x->n_fds++] = (struct exec_fd){ root, HELPER_ROOT_FD };
        static const int target[PLANE_MAX] = { [PLANE_ROOT] = HELPER_BASE_FD, [PLANE_USR] = HELPER_BASE_USR_FD, [PLANE_OPT] = HELPER_BASE_OPT_FD };
        for (int p = 0; c->base && p < PLANE_MAX; p++)
                if (c->base[p] >= 0)
                        x->fds[x->n_fds++] = (struct exec_fd){ c->base[p], target[p] };
        for (int p = 0; c->upper >= 0 && p < PLANE_MAX; p++) {
                int fd = openat(c->upper, plane_dir[p], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0 && errno != ENOENT)
                        return -errno;
                if (fd >= 0)
                        x->fds[x->n_fds++] = (struct exec_fd){ fd, HELPER_UPPER_FD + p };
        }
        return 0;
}

NORETURN static void join_main(struct child_join *c) {
        struct child_report *rep = c->report;
        int r = c->exec.cgroup ? cgroup_attach(c->exec.cgroup, c->exec.group, 0, c->exec.cloned_in) : 0;
        if (r < 0) {
                fail(rep, "join the cgroup", r);
                _exit(1);
        }
        int flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP;
        if (!c->helper)
                flags |= CLONE_NEWNET;
        if (setns(c->init_pidfd, flags) < 0 || (c->helper && setns(c->net_ns, CLONE_NEWNET) < 0)) {
                fail(rep, "join the sandbox", -errno);
                _exit(1);
        }
        settle();
        struct exec_request x = *c->exec.x;
        c->exec.x = &x;
        if (c->helper) {
                r = open_helper_fds(c, &x);
                if (r < 0) {
                        fail(rep, "open the root", r);
                        _exit(1);
                }
        }
        finish(&c->exec, rep);
        _exit(1);
}

int child_join(struct child_join *c, pid_t *ret_pid) {
        *c->report = (struct child_report){ 0 };
        struct clone_args args = { .exit_signal = SIGCHLD };
        born_in_group(&c->exec, &args);
        /* A PID namespace can only be given to a child: the spawner points at the sandbox's for one clone. */
        static int own_ns = -1;
        if (own_ns < 0)
                own_ns = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
        if (c->helper)
                args.flags |= CLONE_NEWPID;
        else if (setns(c->init_pidfd, CLONE_NEWPID) < 0)
                return fail(c->report, "join the PID namespace", -errno);
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0)
                join_main(c);
        int r = pid < 0 ? -errno : 0;
        if (!c->helper && setns(own_ns, CLONE_NEWPID) < 0)
                abort();       /* every later child would be born in somebody's sandbox */
        if (r < 0)
                return fail(c->report, "clone", r);
        *ret_pid = pid;
        return 0;
}
