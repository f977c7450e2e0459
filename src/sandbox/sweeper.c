/* The sweeper: a process that closes descriptors for the spawner.
 *
 * Dropping the last reference to an overlay waits for a grace period of the kernel's, each overlay for its own: some hundred
 * microseconds on an idle machine, milliseconds on a busy one, in which neither a dying first process nor the spawner should
 * stand. So the spawner keeps a sandbox's planes and gives them here once its processes and its mount namespace are gone. It is
 * told when they are closed, removes the cgroups meanwhile, and calls the sandbox gone after both (spawner_sandbox.c).
 *
 * It has no capability, no other descriptor and nothing to parse, and it ends when the spawner does. */
#include <linux/close_range.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "sandbox/spawner.h"

#define NOBODY 65534

union control { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int) * SWEEP_FDS_MAX)]; };

static bool serve_one(int socket) {
        uint64_t handle;
        union control control;
        struct iovec iov = { &handle, sizeof handle };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
        ssize_t n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
        if (n != sizeof handle)
                return n < 0 && errno == EINTR;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        for (size_t i = 0; c && i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                fd_close(fd);
        }
        /* 0: nobody waits for it. */
        return handle == 0 || send(socket, &handle, sizeof handle, MSG_NOSIGNAL) == sizeof handle;
}

NORETURN static void sweep(int socket) {
        prctl(PR_SET_NAME, "brig-sweeper", 0, 0, 0);
        if (dup2(socket, 0) < 0 || close_range(1, ~0u, 0) < 0 || chdir("/") < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
                _exit(1);
        while (serve_one(0))
                ;
        _exit(0);
}

static void on_swept(struct spawn *sp, struct watch *w, uint32_t events) {
        uint64_t handle;
        ssize_t n = recv(w->fd, &handle, sizeof handle, MSG_DONTWAIT);
        if (n == sizeof handle)
                cell_swept(sp, handle);
        if (n != 0)
                return;
        /* It died, and so what it had is closed; from now on the spawner closes by itself. */
        watch_stop(sp, w);
        for (size_t i = 0; i < sp->cells.alloc; i++) {
                struct cell *c = sp->cells.object[i];
                if (c && c->sweeping)
                        cell_swept(sp, c->handle);
        }
}

int sweeper_start(struct spawn *sp, struct error *e) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return error_set(e, -errno, "socketpair");
        sp->sweeper = fork();
        if (sp->sweeper == 0)
                sweep(pair[1]);
        int r = sp->sweeper < 0 ? -errno : 0;
        close(pair[1]);
        if (r == 0)
                r = watch_start(sp, &sp->sweeper_watch, pair[0], EPOLLIN, on_swept);
        return r < 0 ? error_set(e, r, "start the sweeper") : 0;
}

int sweeper_give(struct spawn *sp, uint64_t handle, const int *fds, size_t n) {
        ASSERT(n > 0 && n <= SWEEP_FDS_MAX);
        union control control;
        struct iovec iov = { &handle, sizeof handle };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_SPACE(sizeof(int) * n) };
        memset(&control, 0, sizeof control);
        control.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * n) };
        memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * n);
        return sendmsg(sp->sweeper_watch.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

void sweeper_end(struct spawn *sp) {
        if (sp->sweeper <= 0)
                return;
        watch_stop(sp, &sp->sweeper_watch);
        fd_close(sp->sweeper_watch.fd);
        /* It first closes what it was given. */
        while (waitpid(sp->sweeper, NULL, 0) < 0 && errno == EINTR)
                ;
}
