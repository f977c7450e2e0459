/* Any bytes of a WebSocket's peer, behind a good handshake, cut in pieces (the first byte says how long each is): no crash, no message over
 * the limit, no text that is not UTF-8, exactly one end, and everything the server says is a frame. With the second byte odd the
 * messages are echoed, with its next bit set each is paused for a turn. */
#include <sys/socket.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "http/internal.h"
#include "http/websocket.h"

#define MESSAGE_MAX 1000
#define ANSWERS_MAX (4u * 1024 * 1024)

static struct { struct http_websocket *ws; bool echo, pause; unsigned paused, closes; } now;

static void message(struct http_websocket *ws, bool text, const char *p, size_t n, void *user) {
        ASSERT(n <= MESSAGE_MAX && now.paused == 0);
        ASSERT(!text || utf8_valid(p, n));
        if (now.echo)
                http_websocket_send(ws, text, p, n);
        if (now.pause) {
                http_websocket_pause(ws);
                now.paused++;
        }
}

static void closed(struct http_websocket *ws, int code, const char *reason, void *user) {
        ASSERT(code >= 1000 && code <= 4999 && utf8_valid(reason, strlen(reason)));
        now.closes++;
        now.ws = NULL;
}

static void accept_ws(struct http_request *r, void *user) {
        static const struct http_websocket_options o = { .message_max = MESSAGE_MAX };
        static const struct http_websocket_calls calls = { message, NULL, closed };
        ASSERT(http_websocket_accept(r, &o, &calls, NULL, &now.ws) == 0);
}

static const struct http_route routes[] = { { "GET", "/w", accept_ws, true, NULL } };

static struct http_server *start(uv_loop_t *loop) {
        struct http_config cfg = { .listen = "127.0.0.1:0", .routes = routes, .n_routes = ARRAY_SIZE(routes), .any_host = true };
        struct http_server *s = NULL;
        http_limits_default(&cfg.limits);
        ASSERT(http_server_start(loop, &cfg, &s, NULL) == 0);
        return s;
}

static void turn(uv_loop_t *loop, int fd, struct buf *out, bool *eof) {
        char piece[16384];
        uv_run(loop, UV_RUN_NOWAIT);
        if (now.ws && now.paused) {
                now.paused--;
                http_websocket_resume(now.ws);
        }
        ssize_t n = read(fd, piece, sizeof piece);
        if (n > 0)
                ASSERT(buf_add(out, piece, (size_t)n) == 0);
        else if (n == 0 || errno != EAGAIN)
                *eof = true;
}

/* Whole unmasked frames, one after the other, with the shortest lengths and codes that exist. */
static void check(const struct buf *out) {
        const unsigned char *p = (const unsigned char *)out->data, *end = p + out->len;
        while (p < end) {
                ASSERT(end - p >= 2 && (p[0] == 0x81 || p[0] == 0x82 || p[0] == 0x88 || p[0] == 0x89 || p[0] == 0x8a) && !(p[1] & 0x80));
                size_t n = p[1], head = 2;
                if (n == 126) {
                        ASSERT(end - p >= 4);
                        n = (size_t)p[2] << 8 | p[3];
                        head = 4;
                        ASSERT(n >= 126);
                }
                ASSERT(n <= MESSAGE_MAX && (size_t)(end - p) >= head + n);
                ASSERT(p[0] < 0x88 || n <= 125);
                p += head + n;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static const char shake[] = "GET /w HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        static uv_loop_t *loop;
        static struct http_server *s;
        if (!s) {
                loop = uv_default_loop();
                s = start(loop);
        }
        if (size < 3 || size > 16384)
                return 0;
        int fds[2];
        ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        memset(&now, 0, sizeof now);
        now.echo = data[1] & 1;
        now.pause = data[1] & 2;
        ASSERT(server_adopt(s, fds[0]) == 0 && write(fds[1], shake, sizeof shake - 1) == sizeof shake - 1);
        _cleanup_buf_ struct buf out = BUF_INIT(ANSWERS_MAX);
        bool eof = false;
        size_t step = 1 + (size_t)data[0] * 8, at = 2;
        while (at < size && !eof) {
                size_t n = MIN2(step, size - at);
                at += write(fds[1], data + at, n) == (ssize_t)n ? n : 0;
                turn(loop, fds[1], &out, &eof);
        }
        for (int i = 0; i < 20 && !eof; i++)    /* pauses end, answers come */
                turn(loop, fds[1], &out, &eof);
        shutdown(fds[1], SHUT_WR);
        while (!eof)
                turn(loop, fds[1], &out, &eof);
        close(fds[1]);
        while (http_server_connections(s) > 0)
                uv_run(loop, UV_RUN_ONCE);
        ASSERT(now.closes == 1 && !now.ws);
        const char *end = memmem(buf_str(&out), out.len, "\r\n\r\n", 4);
        ASSERT(end && memcmp(out.data, "HTTP/1.1 101 ", 13) == 0);
        buf_consume(&out, (size_t)(end + 4 - out.data));
        check(&out);
        return 0;
}
