#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sandbox/layer_job.h"

struct job_report { int r; int has_fd; uint64_t value; struct error error; };

static void report_send(int sock, const struct job_report *rep, int fd) {
        union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = { 0 };
        struct iovec iov = { .iov_base = (void *)(uintptr_t)rep, .iov_len = sizeof *rep };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
        if (fd >= 0) {
                msg.msg_control = control.bytes;
                msg.msg_controllen = sizeof control.bytes;
                struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(int));
                memcpy(CMSG_DATA(c), &fd, sizeof fd);
        }
        while (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR)
                ;
}

NORETURN static void child_main(int sock, pid_t parent, job_run run, void *arg) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(1);
        struct job_report rep = { 0 };
        int fd = -1;
        rep.r = run(arg, &fd, &rep.value, &rep.error);
        rep.has_fd = fd >= 0;
        report_send(sock, &rep, fd);
        _exit(0);
}

int job_start(job_run run, void *arg, struct job_child *ret) {
        int pair[2];
        pid_t self = getpid();
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        /* Without an exit signal: the spawner's loop, which reaps whatever ends with SIGCHLD, leaves it to us. */
        struct clone_args args = { 0 };
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0)
                child_main(pair[1], self, run, arg);
        int r = pid < 0 ? -errno : 0;
        fd_close(pair[1]);
        if (r < 0) {
                fd_close(pair[0]);
                return r;
        }
        *ret = (struct job_child){ .pid = pid, .fd = pair[0] };
        return 0;
}

static int report_receive(int sock, struct job_report *rep, int *ret_fd) {
        union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
        struct iovec iov = { .iov_base = rep, .iov_len = sizeof *rep };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes };
        ssize_t got;
        while ((got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
                ;
        *ret_fd = -1;
        struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
        return got == (ssize_t)sizeof *rep ? 0 : -EIO;
}

static void reap(pid_t pid) {
        while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
                ;
}

int job_finish(struct job_child *c, int *ret_fd, uint64_t *ret_value, struct error *e) {
        struct job_report rep;
        int fd, r = report_receive(c->fd, &rep, &fd);
        reap(c->pid);
        c->fd = fd_close(c->fd);
        if (r < 0) {
                fd_close(fd);
                return error_say(e, -EIO, "a child of the spawner died before it reported");
        }
        rep.error.text[ERROR_TEXT_MAX - 1] = 0;
        if (rep.r < 0) {
                fd_close(fd);
                if (e)
                        *e = rep.error;
                return rep.r;
        }
        *ret_value = rep.value;
        *ret_fd = fd;
        return 0;
}

void job_kill(struct job_child *c) {
        kill(c->pid, SIGKILL);
        reap(c->pid);
        c->fd = fd_close(c->fd);
}
