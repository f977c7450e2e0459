#include "cmd/websocket.h"

#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <wslay/wslay.h>

#include "base/base64.h"
#include "cmd/remote.h"

#define OPEN_MS 30000
#define ABNORMAL 1006

struct websocket {
        struct client *client;
        wslay_event_context_ptr ctx;
        struct buf early;                  /* came with the head of the answer */
        int (*each)(bool text, const char *p, size_t n, void *user); void *user; int each_r;
        bool broken;
};

static ssize_t receive(wslay_event_context_ptr ctx, uint8_t *p, size_t n, int flags, void *user) {
        struct websocket *w = user;
        ssize_t r;
        if (w->early.len > 0) {
                r = (ssize_t)MIN2(n, w->early.len);
                memcpy(p, w->early.data, (size_t)r);
                buf_consume(&w->early, (size_t)r);
                return r;
        }
        r = client_read(w->client, p, n);
        if (r > 0)
                return r;
        wslay_event_set_error(ctx, r == -EAGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
        w->broken = w->broken || r != -EAGAIN;
        return -1;
}

static ssize_t transmit(wslay_event_context_ptr ctx, const uint8_t *p, size_t n, int flags, void *user) {
        struct websocket *w = user;
        ssize_t r = client_write(w->client, p, n);
        if (r >= 0)
                return r;
        wslay_event_set_error(ctx, r == -EAGAIN ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
        w->broken = w->broken || r != -EAGAIN;
        return -1;
}

static int mask(wslay_event_context_ptr ctx, uint8_t *p, size_t n, void *user) { return getrandom(p, n, 0) == (ssize_t)n ? 0 : -1; }

static void message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m, void *user) {
        struct websocket *w = user;
        if (!wslay_is_ctrl_frame(m->opcode) && w->each_r == 0)
                w->each_r = w->each(m->opcode == WSLAY_TEXT_FRAME, (const char *)m->msg, m->msg_length, w->user);
}

int websocket_open(struct client *c, const char *path, const char *protocol, struct websocket **ret, struct error *e) {
        static const struct wslay_event_callbacks calls = { .recv_callback = receive, .send_callback = transmit, .genmask_callback = mask, .on_msg_recv_callback = message };
        _cleanup_buf_ struct buf key = BUF_INIT(64);
        unsigned char bytes[16];
        char head[400];
        int status;
        if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes || base64_encode(bytes, sizeof bytes, &key) < 0)
                return error_set(e, -EIO, "make a key");
        snprintf(head, sizeof head, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: %s\r\n",
                 buf_str(&key), protocol);
        struct websocket *w = calloc(1, sizeof *w);
        if (!w)
                return error_set(e, -ENOMEM, "open the connection");
        *w = (struct websocket){ .client = c, .early = BUF_INIT(CLIENT_HEAD_MAX) };
        int r = client_upgrade(c, path, head, OPEN_MS, &w->early, &status, e);
        if (r < 0 && status >= 400)
                r = remote_refusal(status, buf_str(&w->early), w->early.len, e);
        if (r == 0 && wslay_event_context_client_init(&w->ctx, &calls, w) != 0)
                r = error_set(e, -ENOMEM, "open the connection");
        if (r < 0) {
                websocket_free(w);
                return r;
        }
        wslay_event_config_set_max_recv_msg_length(w->ctx, WEBSOCKET_MESSAGE_MAX);
        *ret = w;
        return 0;
}

void websocket_free(struct websocket *w) {
        if (!w)
                return;
        if (w->ctx)
                wslay_event_context_free(w->ctx);
        buf_release(&w->early);
        free(w);
}

int websocket_fd(const struct websocket *w) { return client_fd(w->client); }
short websocket_events(const struct websocket *w) { return (short)(POLLIN | (wslay_event_want_write(w->ctx) ? POLLOUT : 0)); }
size_t websocket_unsent(const struct websocket *w) { return wslay_event_get_queued_msg_length(w->ctx); }

int websocket_send(struct websocket *w, bool text, const void *p, size_t n) {
        struct wslay_event_msg m = { .opcode = text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, .msg = p, .msg_length = n };
        int r = wslay_event_queue_msg(w->ctx, &m);
        return r == 0 ? 0 : r == WSLAY_ERR_NOMEM ? -ENOMEM : -EPIPE;
}

void websocket_close(struct websocket *w) { (void)wslay_event_queue_close(w->ctx, WSLAY_CODE_NORMAL_CLOSURE, NULL, 0); }

int websocket_work(struct websocket *w, int (*each)(bool text, const char *p, size_t n, void *user), void *user, int *ret_code) {
        w->each = each;
        w->user = user;
        w->each_r = 0;
        int r = wslay_event_want_write(w->ctx) ? wslay_event_send(w->ctx) : 0;
        if (r == 0 && !w->broken)
                r = wslay_event_recv(w->ctx);
        if (r == 0 && !w->broken && wslay_event_want_write(w->ctx))
                r = wslay_event_send(w->ctx);          /* the answer to a ping */
        if (w->each_r != 0)
                return w->each_r;
        bool over = wslay_event_get_close_received(w->ctx) && !wslay_event_want_write(w->ctx);
        if (!over && !w->broken)
                return r == 0 ? 0 : -EPROTO;
        *ret_code = wslay_event_get_close_received(w->ctx) ? wslay_event_get_status_code_received(w->ctx) : ABNORMAL;
        return -EPIPE;
}
