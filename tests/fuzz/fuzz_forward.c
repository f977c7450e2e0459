/* Any bytes that another server may answer a forwarded request with, cut in pieces (the first byte says how long, the second chooses
 * the request and whether the client is slow): no crash, the client gets well-formed answers and nothing else, every exchange has its one
 * end, and fields that would speak for us do not come through. */
#include <sys/socket.h>

#include "fuzz.h"
#include "http/forward.h"
#include "http/internal.h"

static struct { int server; unsigned begun, done, failed; struct http_forward_run *run; } now;

static void failed(struct http_request *r, int status, const char *why, void *user) {
        ASSERT(status == 502 || status == 504);
        now.failed++;
        http_respond_error(r, status, why);
}

static void done(void *user) {
        now.done++;
        now.run = NULL;
}

static void forward(struct http_request *r, void *user) {
        int fds[2];
        uv_tcp_t *tcp = malloc(sizeof *tcp);
        _cleanup_buf_ struct buf target = BUF_INIT(1000);
        if (now.begun++ > 0) {            /* one exchange a run */
                free(tcp);
                http_respond(r, 200, "text/plain", "more", 4);
                return;
        }
        ASSERT(tcp && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        ASSERT(uv_tcp_init(uv_default_loop(), tcp) == 0 && uv_tcp_open(tcp, fds[0]) == 0 && http_rest(r, &target) == 0);
        now.server = fds[1];
        now.run = http_forward(r, tcp, &(struct http_forward){ .target = target.data, .host = "localhost:1", .prefix = "/f", .fail = failed, .done = done });
}

static const struct http_route routes[] = { { "*", "/f/{*}", forward, true, NULL, .stream_body = true } };

static const char *const requests[] = {
        "GET /f/a?b HTTP/1.1\r\nHost: x\r\n\r\n",
        "HEAD /f/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "PUT /f/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        "GET /f/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n",
        "POST /f/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "GET /f/ HTTP/1.0\r\nHost: x\r\n\r\n",
};

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
        ssize_t n = read(fd, piece, sizeof piece);
        if (n > 0)
                ASSERT(buf_add(out, piece, (size_t)n) == 0);
        else if (n == 0 || errno != EAGAIN)
                *eof = true;
        if (now.server >= 0)
                (void)!read(now.server, piece, sizeof piece);
}

/* The head of the first answer: one status line, our own framing, nothing that is not for the client. */
static void check(const struct buf *out) {
        static const char *const never[] = { "\r\nStrict-Transport-Security:", "\r\nAlt-Svc:", "\r\nKeep-Alive:", "\r\nTrailer:" };
        if (out->len == 0)
                return;                 /* the connection broke before there was an answer */
        ASSERT(out->len > 13 && memcmp(out->data, "HTTP/1.1 ", 9) == 0);
        const char *end = memmem(out->data, out->len, "\r\n\r\n", 4);
        ASSERT(end);
        size_t n = (size_t)(end - out->data) + 2;
        for (size_t i = 0; i < ARRAY_SIZE(never); i++)
                ASSERT(!memmem(out->data, n, never[i], strlen(never[i])));
        const char *length = memmem(out->data, n, "\r\nContent-Length:", 17);
        ASSERT(!length || !memmem(length + 2, n - (size_t)(length + 2 - out->data), "\r\nContent-Length:", 17));
        ASSERT(!length || !memmem(out->data, n, "\r\nTransfer-Encoding:", 20));
        for (const char *p = out->data; p < end; p++)
                ASSERT(*p != '\n' || p[-1] == '\r');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static uv_loop_t *loop;
        static struct http_server *s;
        if (!s) {
                loop = uv_default_loop();
                s = start(loop);
        }
        if (size < 2 || size > 65536)
                return 0;
        int fds[2];
        bool eof = false, gone = false;
        size_t step = 1 + (size_t)data[0] * 64, at = 2;
        const char *request = requests[(data[1] & 0x7f) % ARRAY_SIZE(requests)];
        memset(&now, 0, sizeof now);
        now.server = -1;
        ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        ASSERT(server_adopt(s, fds[0]) == 0 && write(fds[1], request, strlen(request)) == (ssize_t)strlen(request));
        _cleanup_buf_ struct buf out = BUF_INIT(4u << 20);
        while (now.server < 0)
                turn(loop, fds[1], &out, &eof);
        while (at < size && !gone) {
                ssize_t w = write(now.server, data + at, MIN2(step, size - at));
                at += w > 0 ? (size_t)w : 0;
                gone = w < 0 && errno != EAGAIN;
                turn(loop, fds[1], &out, &eof);
        }
        now.server = fd_close(now.server);
        if (data[1] & 0x80)             /* the client leaves first */
                shutdown(fds[1], SHUT_RDWR);
        for (int i = 0; i < 10000 && now.done == 0; i++)
                turn(loop, fds[1], &out, &eof);
        shutdown(fds[1], SHUT_WR);
        while (!eof)
                turn(loop, fds[1], &out, &eof);
        close(fds[1]);
        while (http_server_connections(s) > 0 || now.done == 0)
                uv_run(loop, UV_RUN_ONCE);
        ASSERT(now.done == 1 && now.failed <= 1);
        check(&out);
        return 0;
}
