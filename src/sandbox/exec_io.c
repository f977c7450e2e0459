/* What goes in and comes out of an exec: pipes, captures, the terminal.
 *
 * The end of an exec is the death of its main process, not the end of its output: what it left behind may hold the pipes open
 * for ever, and fill them for ever. So when the status arrives, exactly the bytes that are in the pipes at that moment are
 * taken, and the pipes are closed.
 *
 * A terminal is made inside, in the sandbox's own devpts, by the process that becomes the program; its other side comes to us over
 * a socket that was the process's stdin till then. It is one descriptor for both directions, so input uses a duplicate: libuv
 * watches a descriptor once. */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "sandbox/capture.h"
#include "sandbox/exec.h"

#define READ_SIZE 65536
#define TTY_DRAIN_MAX (256 * 1024)     /* a terminal does not say how much there is: what a living writer adds meanwhile is bounded */

/* ---- output ---- */

static void check_limit(struct exec_stream *s) {
        struct sandbox_exec *x = s->exec;
        bool over = s->capture ? s->capture->over || s->capture->total > x->output_bytes : s->total > x->output_bytes;
        if (x->end.output_limit || !over || x->output_bytes == UINT64_MAX)
                return;
        x->end.output_limit = true;
        x->sandbox->hit[LIMIT_OUTPUT] = true;
        exec_kill(x);
}

static void feed(struct exec_stream *s, const char *p, size_t n) {
        struct sandbox_exec *x = s->exec;
        s->total += n;
        if (s->capture)
                capture_feed(s->capture, p, n);
        if (x->output)
                x->output(x, s->number, p, n, x->user);
        check_limit(s);
}

/* Bytes read; 0 nothing there; -1 end of file or an error. */
static ssize_t read_some(struct exec_stream *s, size_t most) {
        static char space[READ_SIZE];      /* one loop thread */
        ssize_t n = read(s->fd, space, MIN2(most, sizeof space));
        if (n > 0)
                feed(s, space, (size_t)n);
        return n > 0 ? n : n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static void on_readable(uv_poll_t *p, int status, int events) {
        struct exec_stream *s = p->data;
        if (status < 0 || read_some(s, READ_SIZE) < 0) {
                s->ended = true;
                uv_poll_stop(p);
        }
}

static void stream_watch(struct exec_stream *s) {
        struct sandbox_exec *x = s->exec;
        if (s->fd < 0 || s->polled || uv_poll_init(x->sandbox->spawner->loop, &s->poll, s->fd) < 0)
                return;
        s->poll.data = s;
        s->polled = true;
        if (!x->held)
                uv_poll_start(&s->poll, UV_READABLE, on_readable);
}

void exec_hold(struct sandbox_exec *x, bool hold) {
        if (x->held == hold || x->ended)
                return;
        x->held = hold;
        for (int i = 0; i < 2; i++) {
                if (!x->stream[i].polled || x->stream[i].ended)
                        continue;
                if (hold)
                        uv_poll_stop(&x->stream[i].poll);
                else
                        uv_poll_start(&x->stream[i].poll, UV_READABLE, on_readable);
        }
}

/* ---- terminal ---- */

static int set_size(const struct sandbox_exec *x) {
        const struct winsize w = { .ws_row = x->size.rows, .ws_col = x->size.cols };
        return ioctl(x->stream[0].fd, TIOCSWINSZ, &w) < 0 ? -errno : 0;
}

static int receive_fd(int socket) {
        union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int))]; } control;
        char byte;
        struct iovec iov = { &byte, 1 };
        struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control };
        int fd = -1;
        if (recvmsg(socket, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
                return -1;
        const struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                memcpy(&fd, CMSG_DATA(c), sizeof fd);
        return fd;
}

/* The program has not run yet when it sends this, so it is a terminal's other side and nothing else. */
static void take_terminal(struct sandbox_exec *x) {
        if (x->arrival.fd < 0 || x->stream[0].fd >= 0)
                return;
        int fd = receive_fd(x->arrival.fd);
        if (fd < 0)
                return;
        fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
        x->stream[0].fd = fd;
        x->input.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        (void)set_size(x);
}

static void on_arrival(uv_poll_t *p, int status, int events) {
        struct sandbox_exec *x = p->data;
        uv_poll_stop(p);
        take_terminal(x);
        stream_watch(&x->stream[0]);
        if (x->input.wanted && x->input.fd >= 0) {
                x->input.wanted = false;
                if (x->writable)
                        x->writable(x, x->user);
        }
}

int exec_tty_resize(struct sandbox_exec *x, uint16_t rows, uint16_t cols) {
        if (!x->tty)
                return -ENOTTY;
        x->size = (struct exec_tty){ rows, cols };
        return x->stream[0].fd < 0 ? 0 : set_size(x);
}

/* ---- input ---- */

static void on_writable(uv_poll_t *p, int status, int events) {
        struct sandbox_exec *x = p->data;
        uv_poll_stop(p);
        x->input.wanted = false;
        if (x->writable)
                x->writable(x, x->user);
}

static void want_room(struct sandbox_exec *x) {
        struct exec_input *in = &x->input;
        if (in->wanted)
                return;
        in->wanted = true;
        if (in->fd < 0)
                return;        /* a terminal that is still to come: on_arrival tells */
        if (!in->polled) {
                if (uv_poll_init(x->sandbox->spawner->loop, &in->poll, in->fd) < 0)
                        return;
                in->poll.data = x;
                in->polled = true;
        }
        uv_poll_start(&in->poll, UV_WRITABLE, on_writable);
}

ssize_t exec_write(struct sandbox_exec *x, const void *p, size_t n) {
        if (x->ended)
                return -EPIPE;
        if (x->input.fd < 0) {
                if (!x->tty)
                        return -ENOTCONN;
                want_room(x);
                return 0;
        }
        size_t done = 0;
        while (done < n) {
                ssize_t w = write(x->input.fd, (const char *)p + done, n - done);
                if (w < 0 && errno == EINTR)
                        continue;
                if (w < 0 && errno != EAGAIN)
                        return done > 0 ? (ssize_t)done : errno == EIO ? -EPIPE : -errno;
                if (w <= 0) {
                        want_room(x);
                        break;
                }
                done += (size_t)w;
        }
        return (ssize_t)done;
}

void exec_close_input(struct sandbox_exec *x) {
        struct exec_input *in = &x->input;
        if (x->tty || in->fd < 0 || x->ended)
                return;
        if (in->polled) {
                uv_poll_stop(&in->poll);
                exec_close_handle(x, (uv_handle_t *)&in->poll);
                in->polled = false;
        }
        in->wanted = false;
        in->fd = fd_close(in->fd);
}

/* ---- making and unmaking ---- */

static int make_output(struct sandbox_exec *x, int i, struct output_capture *c) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        fcntl(p[0], F_SETFL, O_NONBLOCK);
        x->stream[i] = (struct exec_stream){ .fd = p[0], .capture = c, .exec = x, .number = i + 1 };
        x->far[i + 1] = p[1];
        return 0;
}

static int make_input(struct sandbox_exec *x) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return -errno;
        fcntl(p[1], F_SETFL, O_WRONLY | O_NONBLOCK);
        x->input.fd = p[1];
        x->far[0] = p[0];
        return 0;
}

static int make_terminal(struct sandbox_exec *x, const struct exec_spec *spec) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        x->tty = true;
        x->size = *spec->tty;
        x->arrival.fd = pair[0];
        x->far[0] = pair[1];
        x->stream[0].capture = spec->out;
        return 0;
}

int exec_io_prepare(struct sandbox_exec *x, const struct exec_spec *spec) {
        for (int i = 0; i < 2; i++)
                x->stream[i] = (struct exec_stream){ .fd = -1, .exec = x, .number = i + 1 };
        x->input = x->arrival = (struct exec_input){ .fd = -1 };
        x->far[0] = x->far[1] = x->far[2] = -1;
        x->output = spec->output;
        x->writable = spec->writable;
        if (spec->tty)
                return make_terminal(x, spec);
        int r = spec->stdin_pipe ? make_input(x) : 0;
        if (r == 0 && (spec->out || spec->output))
                r = make_output(x, 0, spec->out);
        if (r < 0 || !(spec->err || spec->output))
                return r;
        if (spec->err && spec->err == spec->out) {
                x->far[2] = fcntl(x->far[1], F_DUPFD_CLOEXEC, 3);
                return x->far[2] < 0 ? -errno : 0;
        }
        return make_output(x, 1, spec->err);
}

void exec_io_start(struct sandbox_exec *x) {
        for (int i = 0; i < 3; i++)
                x->far[i] = fd_close(x->far[i]);
        for (int i = 0; i < 2; i++)
                stream_watch(&x->stream[i]);
        if (x->arrival.fd < 0 || uv_poll_init(x->sandbox->spawner->loop, &x->arrival.poll, x->arrival.fd) < 0)
                return;
        x->arrival.poll.data = x;
        x->arrival.polled = true;
        uv_poll_start(&x->arrival.poll, UV_READABLE | UV_DISCONNECT, on_arrival);
}

void exec_io_drain(struct sandbox_exec *x) {
        take_terminal(x);
        for (int i = 0; i < 2; i++) {
                struct exec_stream *s = &x->stream[i];
                int left = 0;
                if (s->fd < 0 || s->ended)
                        continue;
                if (x->tty)
                        left = TTY_DRAIN_MAX;
                else if (ioctl(s->fd, FIONREAD, &left) < 0)
                        continue;
                while (left > 0) {
                        ssize_t n = read_some(s, (size_t)MIN2(left, READ_SIZE));
                        if (n <= 0)
                                break;
                        left -= (int)n;
                }
        }
}

void exec_io_close(struct sandbox_exec *x) {
        for (int i = 0; i < 2; i++) {
                if (x->stream[i].polled)
                        exec_close_handle(x, (uv_handle_t *)&x->stream[i].poll);
        }
        if (x->input.polled)
                exec_close_handle(x, (uv_handle_t *)&x->input.poll);
        if (x->arrival.polled)
                exec_close_handle(x, (uv_handle_t *)&x->arrival.poll);
}

void exec_io_release(struct sandbox_exec *x) {
        for (int i = 0; i < 2; i++)
                fd_close(x->stream[i].fd);
        for (int i = 0; i < 3; i++)
                fd_close(x->far[i]);
        fd_close(x->input.fd);
        fd_close(x->arrival.fd);
}

void exec_drain(struct sandbox_exec *x) {
        if (!x->ended)
                exec_io_drain(x);
}
