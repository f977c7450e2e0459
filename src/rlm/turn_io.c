/* The descriptors of a turn's process: its control socket, both ways, and its two output pipes. */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "rlm/interpreter_internal.h"

#define READ_SIZE 65536

/* ---- making ---- */

static int make_control(struct turn_process *t, int *ret_far) {
        int pair[2], on = 1;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        t->control = pair[0];
        *ret_far = pair[1];
        /* Only our end may not block: the process waits for what it is told. */
        if (fcntl(pair[0], F_SETFL, O_RDWR | O_NONBLOCK) < 0 || setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
                return -errno;
        return 0;
}

static int make_output(struct turn_process *t, int i, int *ret_far) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        fcntl(p[0], F_SETFL, O_NONBLOCK);
        t->output[i] = (struct turn_output){ .fd = p[0], .number = i + 1, .turn = t };
        *ret_far = p[1];
        return 0;
}

int turn_io_open(struct turn_process *t, int ret_far[3]) {
        ret_far[0] = ret_far[1] = ret_far[2] = -1;
        int r = make_control(t, &ret_far[0]);
        for (int i = 0; i < 2 && r == 0; i++)
                r = make_output(t, i, &ret_far[1 + i]);
        if (r < 0)
                for (int i = 0; i < 3; i++)
                        ret_far[i] = fd_close(ret_far[i]);
        return r;
}

/* ---- the socket ---- */

static void update_poll(struct turn_process *t);

/* Until it has begun each word carries who says it. There is no room for descriptors: the kernel drops those that come. */
static ssize_t receive(struct turn_process *t, char *space, size_t size) {
        if (t->state >= TURN_IDLE)
                return recv(t->control, space, size, 0);
        union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(struct ucred))]; } control;
        struct iovec iov = { space, size };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
        ssize_t n = recvmsg(t->control, &msg, MSG_CMSG_CLOEXEC);
        const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
                struct ucred who;
                memcpy(&who, CMSG_DATA(c), sizeof who);
                turn_said_who(t, who.pid, who.uid);
        }
        return n;
}

static void read_frames(struct turn_process *t) {
        static char space[READ_SIZE];      /* one loop thread */
        ssize_t n = receive(t, space, sizeof space);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                turn_hung_up(t);
                return;
        }
        int r = frames_feed(&t->frames, space, (size_t)n);
        struct frame f;
        while (r >= 0 && t->state != TURN_ENDING && !t->finished && (r = frames_next(&t->frames, &f)) > 0)
                turn_frame(t, &f);
        if (r < 0)
                turn_fail(t, TURN_END_PROTOCOL, r, "it wrote what no driver writes to its control socket");
}

static void on_control(uv_poll_t *p, int status, int events) {
        struct turn_process *t = p->data;
        if (events & UV_WRITABLE && turn_io_send(t) < 0)
                return;
        if (status < 0 || events & (UV_READABLE | UV_DISCONNECT))
                read_frames(t);
        if (!t->finished && t->state != TURN_ENDING)
                update_poll(t);
}

static void update_poll(struct turn_process *t) {
        if (t->polled)
                uv_poll_start(&t->poll, UV_READABLE | (t->out.len > t->out_at ? UV_WRITABLE : 0), on_control);
}

int turn_io_send(struct turn_process *t) {
        while (t->out.len > t->out_at) {
                ssize_t n = send(t->control, t->out.data + t->out_at, t->out.len - t->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN) {
                        update_poll(t);
                        return 0;
                }
                if (n < 0)
                        return -errno;         /* its end of file follows */
                t->out_at += (size_t)n;
        }
        buf_release(&t->out);                  /* a turn's set-up may have been megabytes */
        t->out_at = 0;
        return 0;
}

/* ---- output ---- */

static ssize_t read_output(struct turn_output *o, size_t most) {
        static char space[READ_SIZE];
        struct turn_process *t = o->turn;
        ssize_t n = read(o->fd, space, MIN2(most, sizeof space));
        if (n > 0 && t->claimed && t->interpreter && t->cb.output)
                t->cb.output(t, o->number, space, (size_t)n, t->user);
        return n > 0 ? n : n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static void on_output(uv_poll_t *p, int status, int events) {
        struct turn_output *o = p->data;
        if (status < 0 || read_output(o, READ_SIZE) < 0)
                uv_poll_stop(p);
}

static void drain(struct turn_output *o) {
        int n = 0;
        if (o->fd < 0 || ioctl(o->fd, FIONREAD, &n) < 0)
                return;
        for (ssize_t got; n > 0 && !o->turn->finished && (got = read_output(o, (size_t)n)) > 0;)
                n -= (int)got;
}

void turn_io_drain(struct turn_process *t) {
        for (int i = 0; i < 2; i++)
                drain(&t->output[i]);
}

void turn_process_hold(struct turn_process *t, bool hold) {
        if (t->held == hold || t->finished)
                return;
        t->held = hold;
        for (int i = 0; i < 2; i++) {
                if (!t->output[i].polled)
                        continue;
                if (hold)
                        uv_poll_stop(&t->output[i].poll);
                else
                        uv_poll_start(&t->output[i].poll, UV_READABLE, on_output);
        }
}

/* ---- beginning and end ---- */

int turn_io_start(struct turn_process *t) {
        int r = uv_poll_init(t->loop, &t->poll, t->control);
        if (r < 0)
                return r;
        t->poll.data = t;
        t->polled = true;
        update_poll(t);
        for (int i = 0; i < 2; i++) {
                struct turn_output *o = &t->output[i];
                r = uv_poll_init(t->loop, &o->poll, o->fd);
                if (r < 0)
                        return r;
                o->poll.data = o;
                o->polled = true;
                uv_poll_start(&o->poll, UV_READABLE, on_output);
        }
        return 0;
}

/* A process that has not begun ends by this alone. */
void turn_io_stop(struct turn_process *t) {
        if (t->polled)
                uv_poll_stop(&t->poll);
        if (t->control >= 0)
                shutdown(t->control, SHUT_RDWR);
}

void turn_io_close(struct turn_process *t) {
        if (t->polled)
                turn_close_handle(t, (uv_handle_t *)&t->poll);
        t->polled = false;
        for (int i = 0; i < 2; i++) {
                if (t->output[i].polled)
                        turn_close_handle(t, (uv_handle_t *)&t->output[i].poll);
                t->output[i].polled = false;
        }
}

void turn_io_release(struct turn_process *t) {
        t->control = fd_close(t->control);
        for (int i = 0; i < 2; i++)
                t->output[i].fd = fd_close(t->output[i].fd);
        frames_release(&t->frames);
        buf_release(&t->out);
}
