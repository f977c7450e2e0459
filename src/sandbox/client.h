/* Inside the daemon's side: what client.c, sandbox.c, exec.c and layers.c share. Loop thread only. */
#pragma once
#include "sandbox/protocol.h"
#include "sandbox/sandbox.h"

/* Something that waits for an answer or for events. Requests carry the address of nothing: `ref` is a number that is found
 * in a table, so an answer to what is no longer there is dropped. */
struct client_ref { uint64_t ref; void (*answer)(struct spawner *sp, struct message *m, void *user); void *user; };

struct spawner {
        uv_loop_t *loop;
        struct channel channel;
        uv_poll_t poll;
        uv_process_t *unused;
        pid_t pid;
        int pidfd;
        struct egress *egress;
        char fingerprint[65];
        char description[256];
        void (*lost)(void *user); void *lost_user;
        void (*stopped)(void *user); void *stopped_user;
        bool dead, stopping, freed;
        int handles_open;
        uint64_t next_ref;
        struct client_ref *refs; size_t n_refs, alloc_refs;    /* open addressing by ref */
        struct sandbox *sandboxes;                             /* list */
};

/* Registers who gets what comes back under the returned number: answers by ref, events by handle (client_bind). */
int client_ref_new(struct spawner *sp, void (*answer)(struct spawner *, struct message *, void *), void *user, uint64_t *ret);
void client_ref_drop(struct spawner *sp, uint64_t ref);
int client_send(struct spawner *sp, uint32_t type, uint64_t ref, uint64_t handle, const struct buf *body, const int *fds, size_t n_fds);
/* Events that carry a handle. */
void sandbox_event(struct spawner *sp, struct message *m);
/* The spawner is dead: every sandbox and exec of it ends now. */
void sandbox_all_lost(struct spawner *sp);
/* Frees the requests of layers.c that no answer will come to any more. Nobody is called. */
void layers_forget(struct spawner *sp);

/* ---- sandbox.c and exec.c ---- */

enum sandbox_state { SANDBOX_CREATING, SANDBOX_READY, SANDBOX_FAILED, SANDBOX_DESTROYING, SANDBOX_GONE };

struct sandbox {
        struct sandbox *next, **prev;
        struct spawner *spawner;
        uint64_t ref, handle;
        enum sandbox_state state;
        bool destroy_wanted;
        struct sandbox_callbacks cb; void *user;
        struct sandbox_limits limits;
        struct egress_rules *allow;        /* until it is created; NETWORK_ALLOW */
        struct egress_net *egress;
        struct sandbox_exec *execs;        /* list */
        struct sandbox_exec *first;        /* direct */
        void (*killed)(struct sandbox *s, void *user); void *killed_user;
        uv_timer_t wall;
        uint64_t asked_ns;             /* when its creation was asked for */
        uint64_t started_ms;
        struct sandbox_ask *asks; unsigned n_asks;     /* questions without an answer yet */
        struct sandbox_adopted *adopted;               /* list */
        bool hit[LIMIT_KIND_MAX];
        bool has_end;
        struct sandbox_end end;
};

int exec_prepare(struct sandbox *s, const struct exec_spec *spec,
                 void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user), void *user,
                 struct buf *body, int *fds, size_t *n_fds, struct sandbox_exec **ret, struct error *e);
void exec_request_sent(struct sandbox_exec *x);
void exec_abandon(struct sandbox_exec *x);             /* never sent: no callback */
void exec_started(struct sandbox_exec *x, struct message *m);
void exec_failed(struct sandbox_exec *x, const char *step, int code, const char *text);
void exec_end_all(struct sandbox *s);                  /* the sandbox is gone: those that have not ended end now */
void exec_exited(struct sandbox_exec *x, struct message *m);
void exec_mark_limit(struct sandbox *s);
uint64_t exec_handle(const struct sandbox_exec *x);    /* 0: it has not started */
/* ---- sandbox_ask.c ---- */
void sandbox_asks_end(struct sandbox *s);
/* ---- adopted.c ---- */
void adopted_end_all(struct sandbox *s);
