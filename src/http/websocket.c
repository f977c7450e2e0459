/* WebSocket over a tunnel. wslay cuts the bytes into frames and makes ours; messages, the order of frames and the closing handshake are
 * here, one frame at a time, so that a pause takes effect at that very message and a message costs its own size, however many
 * fragments it comes in.
 *
 *     OPEN ──we close──> CLOSING ──the peer's close, or HTTP_WEBSOCKET_CLOSE_MS──> OVER
 *       └──the peer's close (answered), or it broke the rules (told why)───────────^
 *
 * What arrived and was not looked at (a pause) is given back to the tunnel, at most one read, and the tunnel is paused as well. A peer
 * that does not read is not read from either: else its pings would pile up our pongs. */
#include <openssl/evp.h>
#include <wslay/wslay.h>

#include "base/utf8.h"
#include "http/internal.h"
#include "http/websocket.h"

#define CONTROL_MAX 125
#define FRAME_MAX 14                   /* bytes around a payload */
#define MESSAGE_KEEP (16u * 1024)      /* of an assembled message's room, kept for the next */

_Static_assert(HTTP_WEBSOCKET_HIGH_WATER == HTTP_TUNNEL_HIGH_WATER, "the header's promise");

enum ws_state { WS_OPEN, WS_CLOSING, WS_OVER };

struct http_websocket {
        struct http_tunnel *t;
        struct http_websocket_calls calls; void *user;
        wslay_frame_context_ptr wslay;
        const char *protocol;
        enum ws_state state;
        bool pinged;
        bool held;                     /* the tunnel is paused by us */
        unsigned paused;
        size_t message_max;
        uint8_t opcode;                /* of the message that is coming; 0 = none */
        struct buf message;
        char control[CONTROL_MAX];
        uint64_t frame_at;             /* of the frame that is coming: payload bytes so far */
        bool frame_open;
        const char *span; size_t span_len;     /* what wslay may read now */
        int code; char reason[HTTP_WEBSOCKET_REASON_MAX + 1];
};

/* ---- sending ---- */

static ssize_t put(const uint8_t *data, size_t n, int flags, void *user) {
        struct http_websocket *ws = user;
        return tunnel_put(ws->t, (const char *)data, n) < 0 ? -1 : (ssize_t)n;
}

static int send_frame(struct http_websocket *ws, uint8_t opcode, const char *p, size_t n) {
        struct conn *c = ws->t->c;
        struct wslay_frame_iocb f = { .fin = 1, .opcode = opcode, .payload_length = n, .data = (const uint8_t *)p, .data_length = n };
        /* Room for all of it first: half a frame could not be taken back. */
        if (c->state != CONN_TUNNEL || buf_reserve(&c->out, n + FRAME_MAX) < 0 || wslay_frame_send(ws->wslay, &f) != (ssize_t)n)
                return -EPIPE;
        server_later(c);
        return 0;
}

static void set_end(struct http_websocket *ws, int code, const char *reason, size_t n) {
        if (ws->code)
                return;         /* the first reason is the reason */
        n = MIN2(n, sizeof ws->reason - 1);
        ws->code = code;
        memcpy(ws->reason, reason, n);
        ws->reason[n] = 0;
}

static void send_close(struct http_websocket *ws, int code, const char *reason, size_t n) {
        char payload[CONTROL_MAX];
        size_t len = 0;
        if (code != WEBSOCKET_NO_STATUS) {
                n = MIN2(n, (size_t)HTTP_WEBSOCKET_REASON_MAX);
                while (n > 0 && !utf8_valid(reason, n))
                        n--;    /* cut within a character */
                payload[0] = (char)(code >> 8);
                payload[1] = (char)code;
                memcpy(payload + 2, reason, n);
                len = n + 2;
        }
        (void)send_frame(ws, WSLAY_CONNECTION_CLOSE, payload, len);      /* no memory: the connection's end says it, too */
}

static void over(struct http_websocket *ws) {
        ws->state = WS_OVER;
        http_tunnel_close(ws->t);
}

/* The peer broke a rule. It is told, and not listened to any more. */
static void fail(struct http_websocket *ws, int code, const char *reason) {
        if (ws->state == WS_OPEN)
                send_close(ws, code, reason, strlen(reason));
        set_end(ws, code, reason, strlen(reason));
        over(ws);
}

/* ---- receiving ---- */

static bool code_is_allowed(int code) {
        return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

static void close_came(struct http_websocket *ws, const char *p, size_t n) {
        int code = n >= 2 ? ((unsigned char)p[0] << 8) | (unsigned char)p[1] : WEBSOCKET_NO_STATUS;
        if (n == 1 || (n >= 2 && !code_is_allowed(code))) {
                fail(ws, WEBSOCKET_PROTOCOL_ERROR, "Invalid close code");
                return;
        }
        p += MIN2(n, 2u);
        n -= MIN2(n, 2u);
        if (!utf8_valid(p, n)) {
                fail(ws, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA, "Close reason is not UTF-8");
                return;
        }
        if (ws->state == WS_OPEN)
                send_close(ws, code, "", 0);
        set_end(ws, code, p, n);
        over(ws);
}

static void message_came(struct http_websocket *ws) {
        bool text = ws->opcode == WSLAY_TEXT_FRAME;
        ws->opcode = 0;
        if (text && !utf8_valid(buf_str(&ws->message), ws->message.len)) {
                fail(ws, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA, "Text is not UTF-8");
                return;
        }
        if (ws->state == WS_OPEN)
                ws->calls.message(ws, text, buf_str(&ws->message), ws->message.len, ws->user);
        if (ws->message.alloc > MESSAGE_KEEP)
                buf_release(&ws->message);
        else
                buf_reset(&ws->message);
}

/* The first look at a frame. NULL: it may come. */
static const char *check_frame(const struct http_websocket *ws, const struct wslay_frame_iocb *f) {
        if (!f->mask)
                return "Frame is not masked";
        if (f->rsv)
                return "Reserved bits are set";
        switch (f->opcode) {
        case WSLAY_CONTINUATION_FRAME:
                return ws->opcode ? NULL : "Continuation of nothing";
        case WSLAY_TEXT_FRAME:
        case WSLAY_BINARY_FRAME:
                return ws->opcode ? "Message within a message" : NULL;
        case WSLAY_CONNECTION_CLOSE:
        case WSLAY_PING:
        case WSLAY_PONG:
                return f->fin && f->payload_length <= CONTROL_MAX ? NULL : "Malformed control frame";
        default:
                return "Unknown opcode";
        }
}

static void begin_frame(struct http_websocket *ws, const struct wslay_frame_iocb *f) {
        const char *why = check_frame(ws, f);
        ws->frame_open = true;
        ws->frame_at = 0;
        if (why) {
                fail(ws, WEBSOCKET_PROTOCOL_ERROR, why);
                return;
        }
        if (wslay_is_ctrl_frame(f->opcode))
                return;
        if (f->opcode != WSLAY_CONTINUATION_FRAME)
                ws->opcode = f->opcode;
        if (f->payload_length > ws->message_max - ws->message.len)
                fail(ws, WEBSOCKET_TOO_BIG, "Message is too large");
}

static void end_frame(struct http_websocket *ws, const struct wslay_frame_iocb *f) {
        ws->frame_open = false;
        switch (f->opcode) {
        case WSLAY_CONNECTION_CLOSE:
                close_came(ws, ws->control, (size_t)f->payload_length);
                return;
        case WSLAY_PING:
                if (ws->state == WS_OPEN && send_frame(ws, WSLAY_PONG, ws->control, (size_t)f->payload_length) < 0)
                        fail(ws, WEBSOCKET_INTERNAL, "Out of memory");
                return;
        case WSLAY_PONG:
                return;
        default:
                if (f->fin)
                        message_came(ws);
        }
}

static void take(struct http_websocket *ws, const struct wslay_frame_iocb *f) {
        if (!ws->frame_open)
                begin_frame(ws, f);
        if (ws->state == WS_OVER)
                return;
        if (wslay_is_ctrl_frame(f->opcode))
                memcpy(ws->control + ws->frame_at, f->data, f->data_length);
        else if (ws->state == WS_OPEN && buf_add(&ws->message, f->data, f->data_length) < 0) {
                fail(ws, WEBSOCKET_INTERNAL, "Out of memory");
                return;
        }
        ws->frame_at += f->data_length;
        if (ws->frame_at == f->payload_length)
                end_frame(ws, f);
}

static ssize_t get(uint8_t *to, size_t n, int flags, void *user) {
        struct http_websocket *ws = user;
        n = MIN2(n, ws->span_len);
        if (n == 0)
                return -1;
        memcpy(to, ws->span, n);
        ws->span += n;
        ws->span_len -= n;
        return (ssize_t)n;
}

static bool may_parse(struct http_websocket *ws) {
        if (ws->state == WS_OVER || (ws->state == WS_OPEN && ws->paused))
                return false;
        return !tunnel_full(ws->t);
}

/* Frames out of the span, as long as nothing says stop. */
static void parse(struct http_websocket *ws) {
        while (may_parse(ws)) {
                struct wslay_frame_iocb f;
                memset(&f, 0, sizeof f);
                ssize_t n = wslay_frame_recv(ws->wslay, &f);
                if (n == WSLAY_ERR_WANT_READ)
                        break;
                if (n < 0)
                        fail(ws, WEBSOCKET_PROTOCOL_ERROR, "Malformed frame");
                else
                        take(ws, &f);
        }
}

/* The tunnel gives us bytes as long as we may look at them. wslay may have read some ahead, so it gives even none. */
static void hold(struct http_websocket *ws, bool on) {
        if (ws->held == on || ws->state == WS_OVER)
                return;
        ws->held = on;
        if (on) {
                ws->t->again = true;
                http_tunnel_pause(ws->t);
        } else
                http_tunnel_resume(ws->t);
}

static void data(struct http_tunnel *t, const char *p, size_t n, void *user) {
        struct http_websocket *ws = user;
        if (n > 0)
                ws->pinged = false;
        ws->span = p;
        ws->span_len = n;
        parse(ws);
        if (ws->state == WS_OVER || t->c->state != CONN_TUNNEL)
                return;
        t->left.limit = READ_CHUNK;
        if (buf_add(&t->left, ws->span, ws->span_len) < 0)
                fail(ws, WEBSOCKET_INTERNAL, "Out of memory");
        ws->span_len = 0;
        hold(ws, !may_parse(ws));
}

static void drained(struct http_tunnel *t, void *user) {
        struct http_websocket *ws = user;
        if (ws->calls.drain && ws->state == WS_OPEN)
                ws->calls.drain(ws, ws->user);
        hold(ws, !may_parse(ws));
}

/* ---- the end ---- */

static void idle(struct http_tunnel *t, void *user) {
        struct http_websocket *ws = user;
        if (ws->state == WS_CLOSING)
                over(ws);
        else if (ws->held)
                return;         /* it is us who do not read */
        else if (!ws->pinged) {
                ws->pinged = true;
                (void)send_frame(ws, WSLAY_PING, NULL, 0);
        } else {
                static const char why[] = "The peer does not answer";
                set_end(ws, WEBSOCKET_ABNORMAL, why, strlen(why));
                conn_close(t->c);
        }
}

static void stopping(struct http_tunnel *t, void *user) {
        http_websocket_close(user, WEBSOCKET_GOING_AWAY, "Server is stopping");
}

static struct http_websocket *websocket_free(struct http_websocket *ws) {
        if (ws->wslay)
                wslay_frame_context_free(ws->wslay);
        buf_release(&ws->message);
        free(ws);
        return NULL;
}

static void closed(struct http_tunnel *t, void *user) {
        static const char why[] = "Connection lost";
        struct http_websocket *ws = user;
        ws->state = WS_OVER;
        set_end(ws, WEBSOCKET_ABNORMAL, why, strlen(why));
        ws->calls.closed(ws, ws->code, ws->reason, ws->user);
        websocket_free(ws);
}

void http_websocket_close(struct http_websocket *ws, int code, const char *reason) {
        struct http_tunnel *t = ws->t;
        if (ws->state != WS_OPEN)
                return;
        send_close(ws, code, reason, strlen(reason));
        set_end(ws, code, reason, strlen(reason));
        ws->state = WS_CLOSING;
        t->idle_ms = HTTP_WEBSOCKET_CLOSE_MS;
        t->strict = true;
        if (t->c->state != CONN_TUNNEL)
                return;
        if (!t->c->writing)
                conn_arm(t->c, PHASE_TUNNEL);
        if (!tunnel_full(t))
                hold(ws, false);
}

int http_websocket_send(struct http_websocket *ws, bool text, const char *p, size_t n) {
        if (ws->state != WS_OPEN || ws->t->c->state != CONN_TUNNEL)
                return -EPIPE;
        if (n > HTTP_WEBSOCKET_SEND_MAX)
                return -EMSGSIZE;
        if (tunnel_full(ws->t))
                return ws->t->c->state == CONN_TUNNEL ? -EAGAIN : -EPIPE;
        return send_frame(ws, text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, p, n);
}

void http_websocket_pause(struct http_websocket *ws) {
        ws->paused++;
        if (ws->state == WS_OPEN)
                hold(ws, true);
}

void http_websocket_resume(struct http_websocket *ws) {
        ASSERT(ws->paused > 0);
        if (--ws->paused == 0 && !tunnel_full(ws->t))
                hold(ws, false);
}

const char *http_websocket_protocol(const struct http_websocket *ws) {
        return ws->protocol;
}

/* ---- the opening handshake ---- */

static const char *choose_protocol(const struct http_request *r, const struct http_websocket_options *o) {
        for (size_t i = 0; i < o->n_protocols; i++)
                if (request_lists(r, "Sec-WebSocket-Protocol", o->protocols[i]))
                        return o->protocols[i];
        return NULL;
}

/* base64 of 16 bytes */
static bool key_is_sane(const char *key) {
        unsigned char bytes[19];
        return key && strlen(key) == 24 && key[22] == '=' && key[23] == '=' && key[21] != '=' &&
               EVP_DecodeBlock(bytes, (const unsigned char *)key, 24) == 18;
}

static int accept_of(const char *key, char ret[static 29]) {
        static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
        unsigned char text[24 + sizeof guid - 1], digest[EVP_MAX_MD_SIZE];
        memcpy(text, key, 24);
        memcpy(text + 24, guid, sizeof guid - 1);
        if (EVP_Digest(text, sizeof text, digest, NULL, EVP_sha1(), NULL) != 1)
                return -EIO;
        EVP_EncodeBlock((unsigned char *)ret, digest, 20);
        return 0;
}

/* NULL: it is a handshake. */
static const char *check_handshake(const struct http_request *r, int *ret_status) {
        const char *version = http_header(r, "Sec-WebSocket-Version");
        *ret_status = 426;
        if (strcmp(r->method, "GET") != 0 || !http_upgrade_asked(r) || !request_lists(r, "Upgrade", "websocket"))
                return "A WebSocket is expected here";
        if (!version || strcmp(version, "13") != 0)
                return "WebSocket version 13 is expected here";
        *ret_status = 400;
        if (!key_is_sane(http_header(r, "Sec-WebSocket-Key")))
                return "Malformed Sec-WebSocket-Key";
        if (r->has_length || r->chunked)
                return "A WebSocket handshake has no body";
        return NULL;
}

static int refuse(struct http_request *r, int status, const char *why) {
        if (status == 426) {
                http_respond_header(r, "Upgrade", "websocket");
                http_respond_header(r, "Sec-WebSocket-Version", "13");
        }
        http_respond_error(r, status, why);
        return -EBADMSG;
}

static struct http_websocket *websocket_new(const struct http_websocket_options *o, const struct http_websocket_calls *calls, void *user) {
        static const struct wslay_frame_callbacks io = { .send_callback = put, .recv_callback = get };
        struct http_websocket *ws = calloc(1, sizeof *ws);
        if (!ws)
                return NULL;
        ws->calls = *calls;
        ws->user = user;
        ws->message_max = o->message_max ? o->message_max : HTTP_WEBSOCKET_MESSAGE_MAX;
        buf_init(&ws->message, ws->message_max);
        return wslay_frame_context_init(&ws->wslay, &io, ws) == 0 ? ws : websocket_free(ws);
}

int http_websocket_accept(struct http_request *r, const struct http_websocket_options *o, const struct http_websocket_calls *calls, void *user,
                          struct http_websocket **ret) {
        char accept[29];
        int status;
        const char *why = check_handshake(r, &status), *protocol = choose_protocol(r, o);
        if (!why && o->need_protocol && !protocol)
                why = "None of the sub-protocols offered is known here";
        if (why)
                return refuse(r, status, why);
        struct http_websocket *ws = websocket_new(o, calls, user);
        int e = ws ? accept_of(http_header(r, "Sec-WebSocket-Key"), accept) : -ENOMEM;
        if (e == 0) {
                struct http_tunnel like = { .calls = { data, drained, closed }, .idle = idle, .stopping = stopping, .user = ws,
                                            .idle_ms = o->idle_ms ? o->idle_ms : HTTP_WEBSOCKET_IDLE_MS };
                http_respond_header(r, "Upgrade", "websocket");
                http_respond_header(r, "Connection", "Upgrade");
                http_respond_header(r, "Sec-WebSocket-Accept", accept);
                if (protocol)
                        http_respond_header(r, "Sec-WebSocket-Protocol", protocol);
                ws->protocol = protocol;
                e = tunnel_open(r, &like, &ws->t);
        }
        if (e < 0) {
                if (ws)
                        websocket_free(ws);
                tunnel_no_memory(r);
                return e;
        }
        *ret = ws;
        return 0;
}
