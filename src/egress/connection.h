/* Inside the two files of a connection: connection.c decides and connects, carry.c moves bytes and ends. See connection.c. */
#pragma once
#include "egress/internal.h"

#define HEAD_MAX 8192                  /* bytes of a CONNECT request; also of questions by TCP at a time */
#define READ_SIZE 65536u               /* bytes taken at a time, and the most that waits in one direction */

enum connection_state { CONNECTION_HEAD, CONNECTION_DNS, CONNECTION_RESOLVING, CONNECTION_CONNECTING, CONNECTION_CARRYING, CONNECTION_CLOSED };

struct side {                          /* one direction */
        struct connection *c;
        uv_stream_t *from, *to;
        uint64_t *bytes;               /* the net's counter */
        char *pending;                 /* what `to` has not taken; NULL = nothing */
        uv_write_t write;
        uv_shutdown_t shutdown;
        bool ended;                    /* end of file seen and passed on */
};

struct connection {
        struct connection *next, **prev;
        struct egress_net *net;
        enum connection_state state;
        unsigned handles;              /* not yet closed */
        uint64_t deadline_ms;
        uv_tcp_t inner;
        uv_tcp_t *outer;               /* the attempt, then the connection; freed when closed */
        struct lookup *lookup;
        char name[EGRESS_NAME_MAX + 1];        /* "" = the sandbox wrote an address */
        uint16_t port;
        struct dns_addresses to; size_t tried;
        uint64_t attempt_until_ms;
        int refused;                   /* reason of the last address that may not be reached, or -1 */
        bool failed;                   /* an address was tried in vain */
        bool proxy;                    /* it came by CONNECT and waits for an answer */
        char *head; size_t head_len, head_used;
        struct side up, down;
};

/* ---- connection.c ---- */
void connection_start(struct connection *c);           /* name or to.at[0], and port, are set */

/* ---- carry.c ---- */
void carry_start(struct connection *c);                /* connected */
void connection_reset(struct connection *c);           /* ends it so that both ends see an error */
void connection_finish(struct connection *c);          /* ends it in order */

/* ---- proxy.c ---- */
int proxy_listen(struct connection *c);                /* states HEAD and DNS: reads what it has to say */
void proxy_answer(struct connection *c, unsigned status, const char *text);
