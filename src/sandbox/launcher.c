/* The launcher: a process of ours in a standing sandbox that starts commands there. Static, without a C library.
 *
 * Theory of operation. A process can be put into a sandbox from outside, but that costs a copy of the spawner's memory, six namespaces
 * to join, groups to attach and a filter to install. The launcher has all of that behind it: it lives in the sandbox's namespaces but the
 * user's, in its control groups and under the filter. For each request it clones a child that shares its memory till execve, is
 * born in the group the request brings, joins the user namespace, drops what it must and executes.
 *
 * Who knows what. The launcher is a child of the spawner, and its children are made siblings (CLONE_PARENT): the spawner itself reaps
 * every command, and status and usage are what the kernel tells it. Which process belongs to which request is said by
 * credentials that the kernel translates. So nothing that is reported can be made up in the sandbox, not even by this program.
 *
 * Why root inside cannot touch it. Its credentials stay those of the initial user namespace: no signal, no limit, no priority of it can
 * be set from inside. Its image is not readable by it, so it is never dumpable, from the first instruction on, and its memory belongs to
 * the initial user namespace: no ptrace, no /proc/PID/mem, no descriptor of it can be had by anybody inside, and neither can those of a
 * child before execve. It looks up no path, and reads nothing but the spawner's socket. A child becomes reachable for signals when it
 * has joined the user namespace; who kills or stops it there kills or stops that command.
 *
 * The launcher never waits for a child: one that is stopped keeps its slot, and nothing else. Nor does the spawner wait for the launcher. */
#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/launch.h"

#define EINTR 4
#define ENOENT 2
#define EACCES 13
#define ENOTDIR 20
#define EINVAL 22
#define ENAMETOOLONG 36
#define ENOSYS 38
#define EPERM 1
#define SIGCHLD 17
#define RLIMIT_NOFILE 7
#define F_DUPFD_CLOEXEC 1030
#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define SCM_CREDENTIALS 2
#define MSG_NOSIGNAL 0x4000
#define MSG_CMSG_CLOEXEC 0x40000000
#define FUTEX_WAIT 0
#define HIGH_FD 300u           /* above every target: there descriptors wait for their places */
#define PATH_SIZE 4096u
#define SLOT_WAIT_NS 1000000   /* all slots taken: look again */

static long call6(long nr, long a, long b, long c, long d, long e, long f) {
        long ret;
        register long r10 __asm__("r10") = d;
        register long r8 __asm__("r8") = e;
        register long r9 __asm__("r9") = f;
        __asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
        return ret;
}
#define CALL(nr, a, b, c, d) call6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

struct iovec { void *base; size_t len; };
struct msghdr { void *name; int namelen; struct iovec *iov; size_t iovlen; void *control; size_t controllen; int flags; };
struct cmsg { size_t len; int level, type; };
struct control_fds { struct cmsg head; int fd[LAUNCH_FDS_MAX + 2]; };
struct control_who { struct cmsg head; int pid; unsigned uid, gid, pad; };

struct slot {
        uint32_t busy;                     /* the kernel writes 0 when the child has let go of this memory */
        uint32_t n_fds;
        int fd[LAUNCH_FDS_MAX + 1];        /* the group, then the command's */
        union { struct launch_request r; char bytes[LAUNCH_BYTES_MAX]; } m;
        char path[PATH_SIZE];
        char stack[8192] __attribute__((aligned(16)));
} __attribute__((aligned(4096)));
static struct slot slots[LAUNCH_SLOTS];

static uint64_t *pointers(struct launch_request *r) { return (uint64_t *)(r + 1); }
static char *text(struct launch_request *r) { return (char *)(pointers(r) + r->n_argv + r->n_env + 2); }

/* ---- the child ---- */

static int place(const struct slot *s, int control) {
        const struct launch_request *r = &s->m.r;
        const int *from = s->fd + 1;
        int high[LAUNCH_FDS_MAX];
        int simple = 1;
        for (uint32_t i = 0; i < r->n_fds; i++)
                simple &= r->target[i] < 3;
        /* What arrived has numbers from 3 on, so it is in nobody's way when only 0, 1 and 2 are wanted. */
        for (uint32_t i = 0; i < r->n_fds && !simple; i++) {
                high[i] = (int)CALL(__NR_fcntl, from[i], F_DUPFD_CLOEXEC, HIGH_FD, 0);
                if (high[i] < 0)
                        return high[i];
        }
        if (!simple)
                from = high;
        for (uint32_t i = 0; i < r->n_fds; i++) {
                long n = CALL(__NR_dup2, from[i], r->target[i], 0, 0);
                if (n < 0)
                        return (int)n;
        }
        /* Really closed, and not only at execve: no link of the sandbox's may find anything of ours when paths are looked up. */
        uint32_t next = 0;
        for (;;) {
                uint32_t least = (uint32_t)control;
                for (uint32_t i = 0; i < r->n_fds; i++)
                        if (r->target[i] >= next && r->target[i] < least)
                                least = r->target[i];
                long n = least > next ? CALL(__NR_close_range, next, least - 1, 0, 0) : 0;
                if (n < 0)
                        return (int)n;
                next = least + 1;
                if (least == (uint32_t)control)
                        return (int)CALL(__NR_close_range, next, ~0u, 0, 0);
        }
}

static int drop_bounding(const struct launch_request *r) {
        for (uint32_t cap = 0; cap <= r->last_cap; cap++) {
                long n = r->caps >> cap & 1 ? 0 : CALL(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0);
                if (n < 0)
                        return (int)n;
        }
        return 0;
}

/* The launcher's filter is the sandbox's, but for two calls. These go now; adding a small filter costs a tenth of a whole one. */
static int close_filter(void) {
        static struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_setns, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        static struct { unsigned short len; struct sock_filter *filter; } program = { sizeof code / sizeof code[0], code };
        return (int)CALL(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program, 0);
}

static int set_ids(const struct launch_request *r) {
        long n = CALL(__NR_setgroups, 1, &r->gid, 0, 0);
        if (n == 0)
                n = CALL(__NR_setresgid, r->gid, r->gid, r->gid, 0);
        return (int)(n < 0 ? n : CALL(__NR_setresuid, r->uid, r->uid, r->uid, 0));
}

static int set_privileges(const struct launch_request *r) {
        const uint64_t keep = r->uid == 0 ? r->caps : 0;
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = {
                { .effective = (uint32_t)keep, .permitted = (uint32_t)keep },
                { .effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32) },
        };
        long n = r->securebits ? CALL(__NR_prctl, PR_SET_SECUREBITS, r->securebits, 0, 0) : 0;
        if (n == 0)
                n = CALL(__NR_capset, &head, data, 0, 0);
        return (int)(n < 0 || !r->no_new_privs ? n : CALL(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0));
}

static int execute(struct slot *s) {
        struct launch_request *r = &s->m.r;
        uint64_t *argv = pointers(r), *env = argv + r->n_argv + 1;
        const char *name = (const char *)argv[0];
        if (r->path == LAUNCH_NONE)
                return (int)CALL(__NR_execve, name, argv, env, 0);
        long result = -ENOENT;
        for (const char *list = text(r) + r->path;;) {
                uint32_t n = 0, k = 0;
                while (list[n] && list[n] != ':')
                        n++;
                while (name[k])
                        k++;
                if (n > 0 && n + k + 2 <= PATH_SIZE) {
                        for (uint32_t i = 0; i < n; i++)
                                s->path[i] = list[i];
                        s->path[n] = '/';
                        for (uint32_t i = 0; i <= k; i++)
                                s->path[n + 1 + i] = name[i];
                        long e = CALL(__NR_execve, s->path, argv, env, 0);
                        if (e == -EACCES)
                                result = e;
                        else if (e != -ENOENT && e != -ENOTDIR)
                                return (int)e;
                }
                if (!list[n])
                        return (int)result;
                list += n + 1;
        }
}

static long say(int socket, uint64_t handle, enum launch_step step, int code, int pid) {
        struct launch_answer a = { .handle = handle, .step = step, .code = code };
        struct iovec iov = { &a, sizeof a };
        struct control_who who = { .head = { sizeof who.head + 12, SOL_SOCKET, SCM_CREDENTIALS }, .pid = pid };
        struct msghdr msg = { .iov = &iov, .iovlen = 1 };
        if (pid > 0) {
                msg.control = &who;
                msg.controllen = sizeof who;
        }
        long n;
        do
                n = CALL(__NR_sendmsg, socket, &msg, MSG_NOSIGNAL, 0);
        while (n == -EINTR);
        return n;
}

static enum launch_step become(struct slot *s, int *control, int *ret_code) {
        const struct launch_request *r = &s->m.r;
        struct { uint64_t soft, hard; } files = { r->nofile_soft, r->nofile_hard };
        *ret_code = (int)CALL(__NR_setns, LAUNCH_USER_NS_FD, CLONE_NEWUSER, 0, 0);
        if (*ret_code < 0)
                return LAUNCH_USER_NS;
        *ret_code = (int)CALL(__NR_fcntl, LAUNCH_CONTROL_FD, F_DUPFD_CLOEXEC, HIGH_FD - 2, 0);
        if (*ret_code < 0)
                return LAUNCH_FDS;
        *control = *ret_code;
        *ret_code = place(s, *control);
        if (*ret_code < 0)
                return LAUNCH_FDS;
        *ret_code = (int)CALL(__NR_prlimit64, 0, RLIMIT_NOFILE, &files, 0);
        if (*ret_code < 0)
                return LAUNCH_LIMITS;
        *ret_code = drop_bounding(r);
        if (*ret_code < 0)
                return LAUNCH_BOUNDING;
        *ret_code = close_filter();
        if (*ret_code < 0)
                return LAUNCH_FILTER;
        *ret_code = set_ids(r);
        if (*ret_code < 0)
                return LAUNCH_IDS;
        *ret_code = set_privileges(r);
        if (*ret_code < 0)
                return LAUNCH_PRIVILEGES;
        *ret_code = r->cwd == LAUNCH_NONE ? 0 : (int)CALL(__NR_chdir, text(&s->m.r) + r->cwd, 0, 0, 0);
        if (*ret_code < 0)
                return LAUNCH_CWD;
        *ret_code = execute(s);
        return LAUNCH_EXECUTE;
}

__attribute__((noreturn, used)) static void child_main(struct slot *s) {
        int code, control = LAUNCH_CONTROL_FD;
        CALL(__NR_setsid, 0, 0, 0, 0);
        enum launch_step step = become(s, &control, &code);
        say(control, s->m.r.handle, step, code, 0);
        for (;;)
                CALL(__NR_exit_group, 1, 0, 0, 0);
}

/* ---- the launcher ---- */

static long clone_child(struct clone_args *args, struct slot *s) {
        register long ret __asm__("rax") = __NR_clone3;
        register struct slot *r8 __asm__("r8") = s;
        __asm__ volatile("syscall\n\t"
                         "test %%rax, %%rax\n\t"
                         "jnz 1f\n\t"
                         "xor %%ebp, %%ebp\n\t"
                         "mov %%r8, %%rdi\n\t"
                         "call child_main\n\t"
                         "1:"
                         : "+r"(ret)
                         : "D"(args), "S"(sizeof *args), "r"(r8)
                         : "rcx", "r11", "memory", "cc");
        return ret;
}

static struct slot *free_slot(void) {
        for (;;) {
                for (uint32_t i = 0; i < LAUNCH_SLOTS; i++)
                        if (__atomic_load_n(&slots[i].busy, __ATOMIC_ACQUIRE) == 0)
                                return &slots[i];
                struct { long s, ns; } wait = { 0, SLOT_WAIT_NS };
                CALL(__NR_futex, &slots[0].busy, FUTEX_WAIT, 1, &wait);
        }
}

/* The spawner is trusted; what is checked is that both sides mean the same. */
static int check(struct slot *s, size_t n) {
        struct launch_request *r = &s->m.r;
        if (n < sizeof *r || r->n_fds > LAUNCH_FDS_MAX || s->n_fds != r->n_fds + 1 || r->n_argv < 1 || r->n_argv > LAUNCH_BYTES_MAX || r->n_env > LAUNCH_BYTES_MAX)
                return -EINVAL;
        size_t lists = (r->n_argv + r->n_env + 2) * sizeof(uint64_t);
        if (n != sizeof *r + lists + r->n_text || r->n_text == 0 || text(r)[r->n_text - 1] != 0)
                return -EINVAL;
        if ((r->cwd != LAUNCH_NONE && r->cwd >= r->n_text) || (r->path != LAUNCH_NONE && r->path >= r->n_text))
                return -EINVAL;
        uint64_t *p = pointers(r);
        for (uint32_t i = 0; i < r->n_argv + r->n_env + 2; i++) {
                if (p[i] > r->n_text)
                        return -EINVAL;
                p[i] = p[i] ? (uint64_t)(uintptr_t)(text(r) + p[i] - 1) : 0;
        }
        return p[0] ? 0 : -EINVAL;
}

static void take_fds(struct slot *s, const struct control_fds *c, size_t controllen) {
        s->n_fds = 0;
        if (controllen < sizeof c->head || c->head.level != SOL_SOCKET || c->head.type != SCM_RIGHTS)
                return;
        size_t n = (c->head.len - sizeof c->head) / sizeof(int);
        for (size_t i = 0; i < n && i < LAUNCH_FDS_MAX + 1; i++)
                s->fd[s->n_fds++] = c->fd[i];
}

static void serve(struct slot *s, size_t n) {
        int r = check(s, n);
        if (r < 0) {
                say(LAUNCH_CONTROL_FD, n >= sizeof(uint64_t) ? s->m.r.handle : 0, LAUNCH_REQUEST, r, 0);
                return;
        }
        struct clone_args args = {
                .flags = CLONE_VM | CLONE_PARENT | CLONE_CHILD_CLEARTID | CLONE_INTO_CGROUP, .child_tid = (uint64_t)(uintptr_t)&s->busy,
                .stack = (uint64_t)(uintptr_t)s->stack, .stack_size = sizeof s->stack, .cgroup = (uint64_t)s->fd[0],
        };
        uint64_t handle = s->m.r.handle;
        s->busy = 1;
        long pid = clone_child(&args, s);
        if (pid < 0)
                s->busy = 0;
        /* It may have executed, ended and been reaped by now: then there is nobody to name, and the spawner knows how to find out. */
        if (pid < 0 || say(LAUNCH_CONTROL_FD, handle, LAUNCH_OK, 0, (int)pid) < 0)
                say(LAUNCH_CONTROL_FD, handle, LAUNCH_CLONE, pid < 0 ? (int)pid : 0, 0);
}

__attribute__((noreturn, used)) static void launcher_main(void) {
        CALL(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
        CALL(__NR_prctl, PR_SET_NAME, "launcher", 0, 0);
        say(LAUNCH_CONTROL_FD, 0, LAUNCH_OK, 0, 0);
        for (;;) {
                struct slot *s = free_slot();
                struct control_fds control;
                struct iovec iov = { &s->m, sizeof s->m };
                struct msghdr msg = { .iov = &iov, .iovlen = 1, .control = &control, .controllen = sizeof control };
                long n = CALL(__NR_recvmsg, LAUNCH_CONTROL_FD, &msg, MSG_CMSG_CLOEXEC, 0);
                if (n == -EINTR)
                        continue;
                if (n <= 0)
                        CALL(__NR_exit_group, 0, 0, 0, 0);
                take_fds(s, &control, msg.controllen);
                serve(s, (size_t)n);
                if (s->n_fds > 0)
                        CALL(__NR_close_range, LAUNCH_FIRST_FD, ~0u, 0, 0);
        }
}
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tand $-16, %rsp\n\tcall launcher_main\n");
