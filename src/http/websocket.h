/* WebSocket (RFC 6455), server side, over wslay.
 *
 *     static const struct http_websocket_calls calls = { .message = message, .drain = drain, .closed = closed };
 *     r = http_websocket_accept(request, &options, &calls, user, &ws);      // from the handler of a GET route, or later
 *
 * On success the request is over and its pointer dead (`closed` of http_on_close() is not called); `closed` of the socket is, exactly
 * once, whoever ended it; then ws is dead. On failure the request has been answered (400, 426), and nothing of the user's will be
 * called. Callbacks run on the loop, never inside a function of this header. */
#pragma once
#include "http/server.h"

struct http_websocket;

#define HTTP_WEBSOCKET_MESSAGE_MAX (1024 * 1024)       /* default of message_max */
#define HTTP_WEBSOCKET_SEND_MAX (1024 * 1024)          /* bytes of one message sent */
#define HTTP_WEBSOCKET_HIGH_WATER (256 * 1024)         /* the tunnel's; unsent bytes: -EAGAIN; and nothing more is read, so pings cannot pile up answers */
#define HTTP_WEBSOCKET_IDLE_MS 30000                   /* default of idle_ms */
#define HTTP_WEBSOCKET_CLOSE_MS 5000                   /* for the peer's half of the closing handshake */
#define HTTP_WEBSOCKET_REASON_MAX 123                  /* bytes of a close reason; longer ones are cut */

enum {                     /* close codes of our own use */
        WEBSOCKET_NORMAL = 1000, WEBSOCKET_GOING_AWAY = 1001, WEBSOCKET_PROTOCOL_ERROR = 1002, WEBSOCKET_UNSUPPORTED = 1003,
        WEBSOCKET_NO_STATUS = 1005, WEBSOCKET_ABNORMAL = 1006, WEBSOCKET_POLICY = 1008, WEBSOCKET_TOO_BIG = 1009, WEBSOCKET_INTERNAL = 1011,
};

struct http_websocket_options {
        const char *const *protocols; size_t n_protocols;      /* sub-protocols by preference; the first that the client offers is chosen */
        bool need_protocol;        /* none in common: 400 (else none is chosen) */
        size_t message_max;        /* 0 = default; a longer message ends the connection with 1009 */
        uint64_t idle_ms;          /* 0 = default; after so long without a byte a ping is sent, after twice that the peer is gone (1006) */
};

struct http_websocket_calls {
        void (*message)(struct http_websocket *ws, bool text, const char *p, size_t n, void *user);    /* text is valid UTF-8; p lives as long as the call */
        void (*drain)(struct http_websocket *ws, void *user);  /* after -EAGAIN: there is room again; may be NULL */
        /* code and reason as the peer sent them; 1005: it gave none; 1006: the connection broke, or the peer did not answer; our own when we ended it. */
        void (*closed)(struct http_websocket *ws, int code, const char *reason, void *user);
};

int http_websocket_accept(struct http_request *r, const struct http_websocket_options *o, const struct http_websocket_calls *calls, void *user,
                          struct http_websocket **ret);
const char *http_websocket_protocol(const struct http_websocket *ws);  /* the one chosen; NULL when none */
/* 0: taken; -EAGAIN: too much is unsent, wait for drain; -EMSGSIZE; -EPIPE: closing. Text must be UTF-8. */
int http_websocket_send(struct http_websocket *ws, bool text, const char *p, size_t n);
void http_websocket_pause(struct http_websocket *ws);          /* no message comes until resume */
void http_websocket_resume(struct http_websocket *ws);
/* Begins the closing handshake; what was sent before still goes out. No message comes from then on. */
void http_websocket_close(struct http_websocket *ws, int code, const char *reason);
