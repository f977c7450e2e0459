/* The policy. What is not named here is ENOSYS: new calls stay unknown until somebody has read them.
 *
 * Refused with EPERM is what a program may ask for and must be told no; ENOSYS (clone3, io_uring: not named) is for what a
 * library replaces by something older. clone3 hides its flags behind a pointer that a filter cannot follow. */
#include <errno.h>
#include <stddef.h>

#include "sandbox/seccomp_table.h"

#define A(n) { #n, -1, ACTION_ALLOW, ACTION_ALLOW }
#define NEWER(n, number) { #n, number, ACTION_ALLOW, ACTION_ALLOW }
#define MAKES_NAMESPACES(n) { #n, -1, EPERM, ACTION_ALLOW }
#define LASTS(n) { #n, -1, ACTION_ALLOW, ACTION_ALLOW, ENOSYS }
#define REFUSED(n) { #n, -1, EPERM, EPERM }

const struct seccomp_rule seccomp_rules[] = {
        A(read), A(write), A(open), A(close), A(stat), A(fstat), A(lstat), A(poll), A(lseek), A(mmap), A(mprotect), A(munmap),
        A(brk), A(rt_sigaction), A(rt_sigprocmask), A(rt_sigreturn), A(pread64), A(pwrite64), A(readv), A(writev), A(access),
        A(pipe), A(select), A(sched_yield), A(mremap), A(msync), A(mincore), A(madvise),
        A(dup), A(dup2), A(pause), A(nanosleep), A(getitimer), A(alarm), A(setitimer), A(getpid), A(sendfile), A(connect),
        A(accept), A(sendto), A(recvfrom), A(sendmsg), A(recvmsg), A(shutdown), A(bind), A(listen), A(getsockname),
        A(getpeername), A(setsockopt), A(getsockopt), A(fork), A(vfork), A(execve), A(exit), A(wait4), A(kill), A(uname),
        A(fcntl), A(flock), A(fsync),
        A(fdatasync), A(truncate), A(ftruncate), A(getdents), A(getcwd), A(chdir), A(fchdir), A(rename), A(mkdir), A(rmdir),
        A(creat), A(link), A(unlink), A(symlink), A(readlink), A(chmod), A(fchmod), A(chown), A(fchown), A(lchown), A(umask),
        A(gettimeofday), A(getrlimit), A(getrusage), A(sysinfo), A(times), A(ptrace), A(getuid), A(getgid), A(setuid),
        A(setgid), A(geteuid), A(getegid), A(setpgid), A(getppid), A(getpgrp), A(setsid), A(setreuid), A(setregid),
        A(getgroups), A(setgroups), A(setresuid), A(getresuid), A(setresgid), A(getresgid), A(getpgid), A(setfsuid),
        A(setfsgid), A(getsid), A(capget), A(capset), A(rt_sigpending), A(rt_sigtimedwait), A(rt_sigqueueinfo),
        A(rt_sigsuspend), A(sigaltstack), A(utime), A(mknod), A(statfs), A(fstatfs), A(getpriority), A(setpriority),
        A(sched_setparam), A(sched_getparam), A(sched_setscheduler), A(sched_getscheduler), A(sched_get_priority_max),
        A(sched_get_priority_min), A(sched_rr_get_interval), A(mlock), A(munlock), A(mlockall), A(munlockall), A(prctl),
        A(arch_prctl), A(adjtimex), A(setrlimit), A(chroot), A(sync), A(gettid), A(readahead), A(setxattr), A(lsetxattr),
        A(fsetxattr), A(getxattr), A(lgetxattr), A(fgetxattr), A(listxattr), A(llistxattr), A(flistxattr), A(removexattr),
        A(lremovexattr), A(fremovexattr), A(tkill), A(time), A(futex), A(sched_setaffinity), A(sched_getaffinity),
        A(set_thread_area), A(get_thread_area), A(io_setup), A(io_destroy), A(io_getevents), A(io_submit), A(io_cancel),
        A(epoll_create), A(remap_file_pages), A(getdents64), A(set_tid_address), A(restart_syscall),
        A(fadvise64), A(timer_create), A(timer_settime), A(timer_gettime), A(timer_getoverrun), A(timer_delete),
        A(clock_gettime), A(clock_getres), A(clock_nanosleep), A(exit_group), A(epoll_wait), A(epoll_ctl), A(tgkill),
        A(utimes), A(mbind), A(set_mempolicy), A(get_mempolicy),
        A(waitid), A(ioprio_set), A(ioprio_get), A(inotify_init),
        A(inotify_add_watch), A(inotify_rm_watch), A(openat), A(mkdirat), A(mknodat), A(fchownat), A(futimesat),
        A(newfstatat), A(unlinkat), A(renameat), A(linkat), A(symlinkat), A(readlinkat), A(fchmodat), A(faccessat),
        A(pselect6), A(ppoll), A(set_robust_list), A(get_robust_list), A(splice), A(tee), A(sync_file_range), A(vmsplice),
        A(utimensat), A(epoll_pwait), A(signalfd), A(timerfd_create), A(eventfd), A(fallocate), A(timerfd_settime),
        A(timerfd_gettime), A(accept4), A(signalfd4), A(eventfd2), A(epoll_create1), A(dup3), A(pipe2), A(inotify_init1),
        A(preadv), A(pwritev), A(rt_tgsigqueueinfo), A(recvmmsg), A(fanotify_mark), A(prlimit64), A(name_to_handle_at),
        A(clock_adjtime), A(syncfs), A(sendmmsg), A(getcpu), A(process_vm_readv), A(process_vm_writev), A(kcmp),
        A(sched_setattr), A(sched_getattr), A(renameat2), A(seccomp), A(getrandom), A(memfd_create), A(execveat),
        A(membarrier), A(mlock2), A(copy_file_range), A(preadv2), A(pwritev2), A(pkey_mprotect), A(pkey_alloc), A(pkey_free),
        A(statx), A(io_pgetevents), A(rseq), A(pidfd_send_signal), A(pidfd_open), A(close_range), A(openat2), A(pidfd_getfd),
        A(faccessat2), A(process_madvise), A(epoll_pwait2), A(landlock_create_ruleset), A(landlock_add_rule),
        A(landlock_restrict_self), A(memfd_secret), A(process_mrelease), A(futex_waitv),

        /* What they make belongs to no process. */
        LASTS(shmget), LASTS(shmat), LASTS(shmctl), LASTS(shmdt), LASTS(semget), LASTS(semop), LASTS(semtimedop), LASTS(semctl),
        LASTS(msgget), LASTS(msgsnd), LASTS(msgrcv), LASTS(msgctl), LASTS(mq_open), LASTS(mq_unlink), LASTS(mq_timedsend),
        LASTS(mq_timedreceive), LASTS(mq_notify), LASTS(mq_getsetattr),

        /* Newer than the library: numbers are the same everywhere from 424 on. */
        NEWER(cachestat, 451),
        NEWER(fchmodat2, 452),
        NEWER(map_shadow_stack, 453),
        NEWER(futex_wake, 454),
        NEWER(futex_wait, 455),
        NEWER(futex_requeue, 456),
        NEWER(mseal, 462),
        NEWER(setxattrat, 463),
        NEWER(getxattrat, 464),
        NEWER(listxattrat, 465),
        NEWER(removexattrat, 466),
        NEWER(file_getattr, 468),
        NEWER(file_setattr, 469),

        /* Mounts and namespaces. */
        MAKES_NAMESPACES(mount), MAKES_NAMESPACES(umount2), MAKES_NAMESPACES(pivot_root), MAKES_NAMESPACES(setns),
        MAKES_NAMESPACES(sethostname), MAKES_NAMESPACES(setdomainname), MAKES_NAMESPACES(open_tree),
        MAKES_NAMESPACES(move_mount), MAKES_NAMESPACES(fsopen), MAKES_NAMESPACES(fsconfig), MAKES_NAMESPACES(fsmount),
        MAKES_NAMESPACES(fspick), MAKES_NAMESPACES(mount_setattr),

        { "clone3", -1, ENOSYS, ACTION_ALLOW },
        { "clone", -1, ACTION_CHECK_CLONE, ACTION_ALLOW },
        { "unshare", -1, ACTION_CHECK_UNSHARE, ACTION_ALLOW },

        /* The machine: modules, clocks, swap, keys, tracing of the kernel, files by handle, ports. */
        REFUSED(open_by_handle_at), REFUSED(keyctl), REFUSED(add_key), REFUSED(request_key), REFUSED(bpf),
        REFUSED(perf_event_open), REFUSED(userfaultfd), REFUSED(fanotify_init), REFUSED(kexec_load), REFUSED(kexec_file_load),
        REFUSED(init_module), REFUSED(finit_module), REFUSED(delete_module), REFUSED(swapon), REFUSED(swapoff),
        REFUSED(reboot), REFUSED(settimeofday), REFUSED(clock_settime), REFUSED(acct), REFUSED(quotactl),
        REFUSED(quotactl_fd), REFUSED(iopl), REFUSED(ioperm), REFUSED(syslog), REFUSED(vhangup), REFUSED(move_pages),
        REFUSED(migrate_pages),

        { "socket", -1, ACTION_CHECK_SOCKET, ACTION_CHECK_SOCKET },
        { "socketpair", -1, ACTION_CHECK_SOCKETPAIR, ACTION_CHECK_SOCKETPAIR },
        { "personality", -1, ACTION_CHECK_PERSONALITY, ACTION_CHECK_PERSONALITY },
        { "ioctl", -1, ACTION_CHECK_IOCTL, ACTION_CHECK_IOCTL },
};
const unsigned seccomp_rules_n = sizeof seccomp_rules / sizeof seccomp_rules[0];
