/* What daemon and spawner say to each other: typed messages on a SOCK_SEQPACKET.
 *
 * A message is a head, a body of fields (wire.h order is fixed per type and written beside each type below), and
 * descriptors. A body over MESSAGE_INLINE_MAX travels in a sealed memfd, whose seals and size the receiver checks. Both
 * ends are the same program, so fields are host-endian and there is no version.
 *
 * Trust: the spawner treats every message as hostile. A short body, a string without end, a number out of range, a missing
 * descriptor: the reader turns `bad` and the operation is refused as a whole. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"

#define MESSAGE_MAX 65536u                 /* bytes of one datagram */
#define MESSAGE_INLINE_MAX 60000u          /* of body in it */
#define MESSAGE_BODY_MAX (8u << 20)        /* of body in all */
#define MESSAGE_FDS_MAX 64u

enum message_type {
        /* requests. `ref` is the sender's own number and comes back in the answer */
        REQ_HELLO,         /* spawner_config -> EV_HELLO */
        REQ_CREATE,        /* sandbox_spec [+ exec_spec when direct] -> EV_CREATED or EV_FAILED, then EV_GONE */
        REQ_EXEC,          /* handle, exec_spec -> EV_STARTED or EV_FAILED; later EV_EXITED */
        REQ_EXEC_KILL,     /* exec handle: SIGKILL to it and what it started */
        REQ_EXEC_SIGNAL,   /* exec handle, u32 signal: to its main process */
        REQ_KILL_ALL,      /* handle -> EV_KILLED */
        REQ_KILL_OTHERS,   /* handle, u64 exec handle: all but what that one runs -> EV_DONE */
        REQ_FREEZE,        /* handle, u32 on -> EV_DONE */
        REQ_NOW,           /* handle -> EV_NOW */
        REQ_SOCKET,        /* handle, u32 sandbox_socket_kind: a socket of its network namespace -> EV_SOCKET */
        REQ_MOUNT,         /* handle, str path below the workspaces, str target, u32 writable -> EV_DONE */
        REQ_ADOPT,         /* handle; a pidfd -> EV_STARTED (its own handle) or EV_FAILED; later EV_EMPTY */
        REQ_ADOPTED,       /* its handle, u32 adopted_op, u32 signal -> EV_ADOPTED */
        REQ_DESTROY,       /* handle -> EV_GONE */
        REQ_STOP,          /* -> EV_STOPPED, then exit */
        REQ_LAYER,         /* the layer group: first field is its own operation number */
        REQ_MAX,
        /* answers and events */
        EV_HELLO = 64,     /* i32 0 or -errno, str text */
        EV_CREATED,        /* handle */
        EV_FAILED,         /* str step, i32 -errno, str text; handle if a sandbox exists and EV_GONE follows */
        EV_STARTED,        /* exec handle */
        EV_EXITED,         /* exec handle; u8 started, str step, i32 -errno, i32 status, bytes rusage, u32 frozen */
        EV_KILLED,         /* handle */
        EV_DONE,           /* handle; i32 0 or -errno */
        EV_NOW,            /* handle; sandbox_now */
        EV_SOCKET,         /* handle; the descriptor */
        EV_ADOPTED,        /* handle; i32 0 or -errno, i64 microseconds of CPU or -1 */
        EV_EMPTY,          /* handle; i64 microseconds of CPU or -1: no process of it is left, and neither is its group */
        EV_LIMIT,          /* handle; u32 limit_kind */
        EV_GONE,           /* handle; usage, hits */
        EV_STOPPED,
        EV_LAYER,
        EV_MAX,
};

enum adopted_op { ADOPTED_SIGNAL, ADOPTED_KILL, ADOPTED_USAGE, ADOPTED_OP_MAX };

/* ---- bodies ---- */

int wire_put(struct buf *b, const void *p, size_t n);
int wire_put_u32(struct buf *b, uint32_t v);
int wire_put_u64(struct buf *b, uint64_t v);
int wire_put_str(struct buf *b, const char *s);                    /* NULL travels as NULL */
int wire_put_strv(struct buf *b, const char *const *v);            /* NULL travels as NULL */

struct wire { const char *at; size_t left; bool bad; };
void wire_get(struct wire *w, void *p, size_t n);                  /* zeroes p when bad */
uint32_t wire_get_u32(struct wire *w);
uint64_t wire_get_u64(struct wire *w);
const char *wire_get_str(struct wire *w);                          /* points into the body; "" when bad */
/* A list of at most `max` strings: *ret is an allocated array (the caller frees it), its strings point into the body. */
void wire_get_strv(struct wire *w, size_t max, const char ***ret);

/* ---- messages ---- */

struct message {
        uint32_t type;
        uint64_t ref, handle;
        char *body;                /* owned */
        size_t body_len;
        struct wire wire;          /* reads the body */
        int fds[MESSAGE_FDS_MAX];  /* owned; TAKE_FD what is kept */
        size_t n_fds;
};
void message_free(struct message *m);
void message_close_fds(struct message *m);
static inline void cleanup_message(struct message **m) { message_free(*m); }
/* Descriptor number i, still owned by the message, or -1 (and the reader is bad). */
int message_fd(struct message *m, uint32_t i);

/* One end. Sending never blocks: what the socket does not take waits in a queue of CHANNEL_QUEUE_MAX messages. */
#define CHANNEL_QUEUE_MAX 65536u
struct channel_item;
struct channel { int fd; struct channel_item *first, **last; size_t queued; };
void channel_init(struct channel *c, int fd);      /* takes fd, makes it non-blocking */
void channel_release(struct channel *c);
/* Descriptors stay the caller's. 0, or -errno (-EPIPE: the other end is gone; -ENOBUFS: queue full). */
int channel_send(struct channel *c, uint32_t type, uint64_t ref, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds);
int channel_flush(struct channel *c);
static inline bool channel_pending(const struct channel *c) { return c->first != NULL; }
/* 1 and a message; 0 nothing there; -EPIPE end of file; -errno. */
int channel_recv(struct channel *c, struct message **ret);
