/* Any bytes on a connection, in two pieces (the first byte says where they are cut): the server neither crashes nor hangs, and
 * everything it says is a sequence of well-formed answers. */
#include <fcntl.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "http/internal.h"

#define ANSWERS_MAX (4u * 1024 * 1024)

static void hello(struct http_request *r, void *user) {
        http_header(r, "x-test");
        http_query(r, "q");
        http_respond(r, 200, "text/plain", http_param(r, "id"), strlen(http_param(r, "id")));
}

static void echo(struct http_request *r, void *user) {
        const char *p;
        size_t n;
        ASSERT(http_body(r, &p, &n) == 0 && n == http_body_len(r));
        http_respond(r, 200, "text/plain", p, n);
}

static void stream(struct http_request *r, void *user) {
        http_stream_start(r, 200, "text/plain");
        if (http_stream_write(r, "hello", 5) == 0)
                http_stream_end(r);
}

static const struct http_route routes[] = {
        { "GET", "/h/{id}", hello, true, NULL },
        { "POST", "/e", echo, true, NULL },
        { "GET", "/s", stream, true, NULL },
        { "GET", "/closed", stream, false, NULL },
};

static struct http_server *start(uv_loop_t *loop) {
        struct http_config cfg = { .listen = "127.0.0.1:0", .routes = routes, .n_routes = ARRAY_SIZE(routes), .token = "t" };
        struct http_server *s = NULL;
        http_limits_default(&cfg.limits);
        cfg.limits.line_max = 200;
        cfg.limits.header_max = 500;
        cfg.limits.body_max = 3000;
        cfg.limits.body_memory_max = 64;
        ASSERT(http_server_start(loop, &cfg, &s, NULL) == 0);
        return s;
}

/* One answer at p: returns its length. HEAD answers have a length and no body, so a body is skipped only if it is there. */
static size_t answer(const char *p, size_t n) {
        ASSERT(n >= 12 && memcmp(p, "HTTP/1.1 ", 9) == 0 && p[9] >= '1' && p[9] <= '5');
        const char *end = memmem(p, n, "\r\n\r\n", 4);
        ASSERT(end);
        size_t head = (size_t)(end - p) + 4;
        const char *length = memmem(p, head, "Content-Length: ", 16);
        const char *chunked = memmem(p, head, "Transfer-Encoding: chunked", 26);
        bool next = head == n || (n - head >= 9 && memcmp(p + head, "HTTP/1.1 ", 9) == 0);
        if (next)
                return head;
        if (length) {
                size_t body = strtoul(length + 16, NULL, 10);
                ASSERT(body <= n - head);
                return head + body;
        }
        if (!chunked)
                return n;       /* a stream to an HTTP/1.0 peer: up to the end */
        const char *last = memmem(end, (size_t)(p + n - end), "0\r\n\r\n", 5);
        ASSERT(last);
        return (size_t)(last + 5 - p);
}

static void exchange(uv_loop_t *loop, int fd, struct buf *out) {
        for (unsigned idle = 0;;) {
                char piece[16384];
                uv_run(loop, idle ? UV_RUN_ONCE : UV_RUN_NOWAIT);
                ssize_t n = read(fd, piece, sizeof piece);
                if (n == 0 || (n < 0 && errno != EAGAIN))
                        return;
                idle = n < 0;
                if (n > 0)
                        ASSERT(buf_add(out, piece, (size_t)n) == 0);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static uv_loop_t *loop;
        static struct http_server *s;
        if (!s) {
                loop = uv_default_loop();
                s = start(loop);
        }
        if (size < 2 || size > 16384)
                return 0;
        size_t cut = MIN2((size_t)data[0], size - 1);
        int fds[2];
        ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        ASSERT(server_adopt(s, fds[0]) == 0);
        _cleanup_buf_ struct buf out = BUF_INIT(ANSWERS_MAX);
        if (write(fds[1], data + 1, cut) >= 0 && uv_run(loop, UV_RUN_NOWAIT) >= 0 && write(fds[1], data + 1 + cut, size - 1 - cut) >= 0)
                shutdown(fds[1], SHUT_WR);
        else
                shutdown(fds[1], SHUT_WR);
        exchange(loop, fds[1], &out);
        close(fds[1]);
        while (http_server_connections(s) > 0)
                uv_run(loop, UV_RUN_ONCE);
        for (size_t at = 0; at < out.len;)
                at += answer(out.data + at, out.len - at);
        return 0;
}
