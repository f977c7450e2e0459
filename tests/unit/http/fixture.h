/* A server on a loop of its own, and a peer on the other end of a socket pair. Nothing here waits for time: the loop runs until
 * what the test looks for has come, or WAIT_NS have passed without. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "http/internal.h"

#define WAIT_NS (120ull * 1000 * 1000 * 1000)

struct fixture {
        uv_loop_t loop;
        struct http_server *s;
        int fd;                /* the peer's, non-blocking; -1 = gone */
        struct buf in;         /* what it has read */
        bool eof;
};

static inline void fixture_peer(struct fixture *f) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        assert_int_equal(server_adopt(f->s, fds[0]), 0);
        f->fd = fds[1];
        f->eof = false;
        buf_reset(&f->in);
}

static inline void fixture_start(struct fixture *f, const struct http_route *routes, size_t n, void (*change)(struct http_config *cfg)) {
        struct http_config cfg = { .listen = "127.0.0.1:0", .routes = routes, .n_routes = n, .user = f };
        struct error e;
        http_limits_default(&cfg.limits);
        if (change)
                change(&cfg);
        *f = (struct fixture){ .fd = -1, .in = BUF_INIT(64u * 1024 * 1024) };
        uv_loop_init(&f->loop);
        assert_int_equal(http_server_start(&f->loop, &cfg, &f->s, &e), 0);
        fixture_peer(f);
}

/* One turn: the server's, then what the peer can read now. */
static inline void fixture_turn(struct fixture *f) {
        char piece[65536];
        uv_run(&f->loop, UV_RUN_NOWAIT);
        if (f->fd < 0 || f->eof)
                return;
        ssize_t n = read(f->fd, piece, sizeof piece);
        if (n > 0)
                assert_int_equal(buf_add(&f->in, piece, (size_t)n), 0);
        else if (n == 0 || errno != EAGAIN)
                f->eof = true;
}

#define fixture_until(f, condition) do { \
                uint64_t end_ = uv_hrtime() + WAIT_NS; \
                while (!(condition) && uv_hrtime() < end_) \
                        fixture_turn(f); \
                if (!(condition)) \
                        fail_msg("%s:%d: never: %s; peer has: %.300s", __FILE__, __LINE__, #condition, buf_str(&(f)->in)); \
        } while (0)

static inline void fixture_some_turns(struct fixture *f) {
        for (int i = 0; i < 50; i++)
                fixture_turn(f);
}

static inline bool fixture_has(struct fixture *f, const char *text) {
        return f->in.len && memmem(f->in.data, f->in.len, text, strlen(text));
}

/* Sends all of it, however often the server has to take some first. */
static inline void fixture_send(struct fixture *f, const char *p, size_t n) {
        for (size_t at = 0; at < n;) {
                ssize_t w = write(f->fd, p + at, n - at);
                if (w > 0)
                        at += (size_t)w;
                else
                        assert_int_equal(errno, EAGAIN);
                fixture_turn(f);
        }
}

static inline void fixture_say(struct fixture *f, const char *text) {
        fixture_send(f, text, strlen(text));
}

static inline void fixture_hang_up(struct fixture *f) {
        f->fd = fd_close(f->fd);
}

static inline void fixture_stopped(void *user) {
        *(bool *)user = true;
}

static inline void fixture_stop(struct fixture *f) {
        bool done = false;
        fixture_hang_up(f);
        http_server_stop(f->s, 0, fixture_stopped, &done);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_true(done);
        assert_int_equal(uv_loop_close(&f->loop), 0);
        buf_release(&f->in);
}
