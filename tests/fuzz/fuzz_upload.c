/* Any bytes behind the head of a streamed upload (the first byte chooses its framing, pauses and an early answer, the second where
 * the bytes are cut): what the handler was given is what a plain route is given of the same bytes, in the same order; the request ends exactly
 * once, and nothing comes after. */
#include <sys/socket.h>

#include "fuzz.h"
#include "http/internal.h"
#include "http/upload.h"

#define BODY_MAX 2000

static struct {
        struct http_request *r;
        struct buf got;
        unsigned ends, closes, paused;
        bool pause, early, whole;
} now;

static void answer(void) {
        struct http_request *r = TAKE_PTR(now.r);
        http_on_close(r, NULL, NULL);
        http_respond(r, 200, "text/plain", "ok", 2);
}

static void data_came(const char *p, size_t n, void *user) {
        ASSERT(now.r && now.paused == 0 && n > 0 && n <= HTTP_UPLOAD_PIECE_MAX);
        ASSERT(buf_add(&now.got, p, n) == 0);
        if (now.pause) {
                now.paused++;
                http_upload_pause(now.r);
        }
        if (now.early && now.got.len > 20)
                answer();
}

static void end(void *user) {
        ASSERT(now.r && now.paused == 0);
        now.ends++;
        answer();
}

static void closed(void *user) {
        ASSERT(now.r);
        now.closes++;
        now.r = NULL;
}

static void streamed(struct http_request *r, void *user) {
        if (now.r || now.ends || now.closes || now.got.len) {    /* a further request of the same bytes */
                http_respond(r, 200, "text/plain", "more", 4);
                return;
        }
        now.r = r;
        http_on_close(r, closed, NULL);
        http_upload_start(r, &(struct http_upload){ data_came, end }, NULL);
}

static void plain(struct http_request *r, void *user) {
        const char *p;
        size_t n;
        ASSERT(http_body(r, &p, &n) == 0);
        if (!now.whole) {
                now.whole = true;
                ASSERT(buf_add(&now.got, p, n) == 0);
        }
        http_respond(r, 200, "text/plain", "ok", 2);
}

static const struct http_route routes[] = {
        { "PUT", "/u", streamed, true, NULL, .stream_body = true, .body_max = BODY_MAX },
        { "PUT", "/p", plain, true, NULL, .body_max = BODY_MAX },
};

static void turn(uv_loop_t *loop, int fd, bool *eof) {
        char piece[16384];
        uv_run(loop, UV_RUN_NOWAIT);
        if (now.r && now.paused) {
                now.paused--;
                http_upload_resume(now.r);
        }
        ssize_t n = read(fd, piece, sizeof piece);
        if (n == 0 || (n < 0 && errno != EAGAIN))
                *eof = true;
}

static void exchange(uv_loop_t *loop, struct http_server *s, char path, bool chunked, const uint8_t *p, size_t n, size_t cut) {
        int fds[2];
        char head[120];
        bool eof = false;
        int len = snprintf(head, sizeof head, "PUT /%c HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", path, chunked ? "Transfer-Encoding: chunked" : "Content-Length: 100");
        ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        ASSERT(server_adopt(s, fds[0]) == 0 && write(fds[1], head, (size_t)len) == len);
        for (size_t at = 0; at < n && !eof;) {
                size_t step = MIN2(cut, n - at);
                at += write(fds[1], p + at, step) == (ssize_t)step ? step : 0;
                turn(loop, fds[1], &eof);
        }
        shutdown(fds[1], SHUT_WR);
        while (!eof)
                turn(loop, fds[1], &eof);
        close(fds[1]);
        while (http_server_connections(s) > 0)
                uv_run(loop, UV_RUN_ONCE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static uv_loop_t *loop;
        static struct http_server *s;
        if (!s) {
                struct http_config cfg = { .listen = "127.0.0.1:0", .routes = routes, .n_routes = ARRAY_SIZE(routes), .any_host = true };
                http_limits_default(&cfg.limits);
                loop = uv_default_loop();
                ASSERT(http_server_start(loop, &cfg, &s, NULL) == 0);
        }
        if (size < 2 || size > 16384)
                return 0;
        bool chunked = data[0] & 1;
        size_t cut = 1 + (size_t)data[1] * 4;
        buf_release(&now.got);
        memset(&now, 0, sizeof now);
        now.got.limit = BODY_MAX;
        now.pause = data[0] & 2;
        now.early = data[0] & 4;
        exchange(loop, s, 'u', chunked, data + 2, size - 2, cut);
        ASSERT(!now.r && now.ends + now.closes <= 1);
        if (now.early || now.ends == 0)
                return 0;
        _cleanup_buf_ struct buf streamed_bytes = now.got;
        memset(&now, 0, sizeof now);
        now.got.limit = BODY_MAX;
        exchange(loop, s, 'p', chunked, data + 2, size - 2, cut);
        ASSERT(now.whole && now.got.len == streamed_bytes.len && memcmp(buf_str(&now.got), buf_str(&streamed_bytes), now.got.len) == 0);
        return 0;
}
