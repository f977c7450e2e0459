/* PID 1 of a sandbox: static, without a C library, 8 KiB of memory.
 *
 * It holds no authority, no secret and no environment. Children that are left to it are reaped by the kernel, because it
 * ignores SIGCHLD. Its only descriptor, 0, is a socket to the spawner:
 *
 *     'K'          kill every other process, wait for those that are ours, answer 'k'
 *     end of file  the spawner is gone: exit, and the kernel kills the whole namespace
 *
 * It is not dumpable, so nobody inside may attach to it: from its birth, because its image cannot be read (spawner.c), and by its own word where
 * fs.suid_dumpable is 1. Built with -nostdlib: nothing of Brig's headers is used. */
#include <asm/unistd.h>

#define SIGKILL 9
#define SIGCHLD 17
#define PR_SET_DUMPABLE 4
#define PR_SET_NAME 15
#define EINTR 4
#define ECHILD 10

static long call4(long nr, long a, long b, long c, long d) {
        long ret;
        register long r10 __asm__("r10") = d;
        __asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
        return ret;
}

struct kernel_sigaction { void *handler; unsigned long flags; void *restorer; unsigned long mask; };

__attribute__((noreturn)) void start_init(void);
__attribute__((noreturn)) void start_init(void) {
        struct kernel_sigaction ignore = { (void *)1, 0, 0, 0 };
        call4(__NR_rt_sigaction, SIGCHLD, (long)&ignore, 0, 8);
        call4(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
        call4(__NR_prctl, PR_SET_NAME, (long)"init", 0, 0);
        for (;;) {
                char c = 0;
                long n = call4(__NR_read, 0, (long)&c, 1, 0);
                if (n == -EINTR)
                        continue;
                if (n <= 0)
                        call4(__NR_exit_group, 0, 0, 0, 0);
                if (c != 'K')
                        continue;
                call4(__NR_kill, -1, SIGKILL, 0, 0);
                do
                        n = call4(__NR_wait4, -1, 0, 0, 0);
                while (n != -ECHILD);
                c = 'k';
                call4(__NR_write, 0, (long)&c, 1, 0);
        }
}
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tand $-16, %rsp\n\tcall start_init\n");
