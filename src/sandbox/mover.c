/* The mover: a process that puts other processes into control groups for the spawner.
 *
 * For that the kernel stops forks and exits everywhere, which takes it a grace period: 5 to 17 ms on a busy machine. The spawner, for which
 * all sandboxes wait, has it done here and is told when it is.
 *
 * It has no capability, no other descriptor and nothing to parse: the kernel asks whether whoever opened the group's file may move processes. Where it
 * asks the writer (before 5.16) the answer is -EACCES and the spawner does it by itself. It is started when first needed, and ends when the spawner
 * does. */
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/spawner.h"

#define NOBODY 65534

struct order { uint64_t handle; int32_t pid, r; };         /* and back, with what came of it */
union control { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int))]; };

static bool serve_one(int socket) {
        struct order o;
        union control control;
        struct iovec iov = { &o, sizeof o };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
        ssize_t n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
        if (n != sizeof o)
                return n < 0 && errno == EINTR;
        const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        int fd = -1;
        if (c && c->cmsg_len == CMSG_LEN(sizeof fd))
                memcpy(&fd, CMSG_DATA(c), sizeof fd);
        char text[16];
        int len = snprintf(text, sizeof text, "%d", (int)o.pid);
        o.r = fd < 0 ? -EBADF : write(fd, text, (size_t)len) == len ? 0 : -errno;
        fd_close(fd);
        return send(socket, &o, sizeof o, MSG_NOSIGNAL) == sizeof o;
}

NORETURN static void serve(int socket) {
        prctl(PR_SET_NAME, "brig-mover", 0, 0, 0);
        if (dup2(socket, 0) < 0 || close_range(1, ~0u, 0) < 0 || chdir("/") < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                _exit(1);
        while (serve_one(0))
                ;
        _exit(0);
}

static void on_moved(struct spawn *sp, struct watch *w, uint32_t events) {
        struct order o;
        ssize_t n = recv(w->fd, &o, sizeof o, MSG_DONTWAIT);
        if (n == sizeof o)
                adopted_moved(sp, o.handle, o.r);
        if (n != 0)
                return;
        watch_stop(sp, w);             /* it died: from now on the spawner moves by itself */
        w->fd = fd_close(w->fd);
        adopted_move_all(sp);
}

static int start(struct spawn *sp) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        sp->mover = fork();
        if (sp->mover == 0)
                serve(pair[1]);
        close(pair[1]);
        int r = sp->mover < 0 ? -errno : watch_start(sp, &sp->mover_watch, pair[0], EPOLLIN, on_moved);
        if (r < 0)
                sp->mover_watch.fd = fd_close(pair[0]);        /* one that was born ends by that */
        return r;
}

int mover_give(struct spawn *sp, uint64_t handle, int group, pid_t pid) {
        int r = sp->mover == 0 ? start(sp) : sp->mover_watch.fd < 0 ? -EPIPE : 0;
        if (r < 0)
                return r;
        _cleanup_close_ int fd = openat(group, "cgroup.procs", O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        struct order o = { .handle = handle, .pid = pid };
        union control control = { 0 };
        struct iovec iov = { &o, sizeof o };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
        control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd) };
        memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
        return sendmsg(sp->mover_watch.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

void mover_end(struct spawn *sp) {
        if (sp->mover <= 0)
                return;
        if (sp->mover_watch.fd >= 0)
                watch_stop(sp, &sp->mover_watch);
        fd_close(sp->mover_watch.fd);
        kill(sp->mover, SIGKILL);      /* somebody that was forked meanwhile may still have our end of its socket */
        while (waitpid(sp->mover, NULL, 0) < 0 && errno == EINTR)
                ;
}
