/* Sessions of model-written Python, turn by turn. docs/rlm.md is the reference; this is the engine below both HTTP faces.
 *
 * Theory of operation. A *session* is a row of the ledger and an object in memory; it outlives sandboxes and the daemon. A *root* is a sandbox with an
 * interpreter up in it and a broker listening inside; a session has one at most, and keeps it from turn to turn while it is clean. A *turn* is a
 * fresh process in the root with tools, outputs, a budget and a secret of its own. An *action* is one execute within it.
 *
 *     session ──begin──> turn WAITING ──(generation on disk, old root gone, slot)──> root made ──> BEGINNING ──begun──> OPEN ──end──> ENDING ──> over
 *                                                                                                          └─(it ends by itself)──> ENDED
 *     cancel (fence): authority is gone at once, the generation rises, the root is destroyed
 *
 * Order of things that others rely on: a turn's process is confirmed dead before the next one begins; a root's sandbox is confirmed gone before
 * its slot is free and before its session gets another; a generation is on disk before anybody hears of it.
 *
 * Files: session.c (set, ledger, drain), root.c (sandboxes), warm.c (those that stand ready), turn.c (begin, end, fence), action.c (execute, clocks), calls.c (both faces of the
 * broker), child.c (sub-agents of a turn), child_quota.c (how many), lease.c (the state machine of calls), admission.c (slots), contract.c (tools and outputs).
 *
 * Loop thread only. Callbacks may run from inside the call that starts the work. */
#pragma once
#include "rlm/lease.h"
#include "base/json.h"
#include "sandbox/sandbox.h"
#include "store/ledger.h"

#define RLM_KIND "rlm"
#define RLM_ID_SIZE 37
#define RLM_TURN_ID_SIZE 64                /* "g3-<32 hex digits>" */
#define RLM_WORKSPACE_MAX 64u              /* bytes of a workspace's name: [a-z0-9][a-z0-9._-]* */
#define RLM_SESSIONS_MAX 10000u
#define RLM_BODY_MAX (2u << 20)            /* bytes of a call, a result, and of what begins a turn: so many are taken, one more is refused */
#define RLM_CODE_CHARS_MAX 12000u
#define RLM_TIMEOUT_DEFAULT_S 120u         /* of an action that does not say */
#define RLM_TIMEOUT_MAX_S 86400u
#define RLM_ACQUIRE_DEFAULT_S 30u          /* waiting for a slot, where the request does not say */
#define RLM_CHILD_WAIT_MS 5000u            /* the most that a child waits for a slot */
#define RLM_INPUT_FILES_MAX 256u           /* of a child, in one request; bytes of all */
#define RLM_INPUT_BYTES_MAX (64u << 20)
#define RLM_RESULT_FILES_MAX 16u
#define RLM_RESULT_BYTES_MAX (16u << 20)
#define RLM_INTERRUPT_GRACE_MS 2000u       /* from the interrupt of an action whose time is up to the kill */
#define RLM_USAGE_MIN_MS 20u                /* an action that took less has no cpu_ms of its own: it counts with the next that has */
#define RLM_POLLS_MAX 16u                  /* of a turn at a time */
#define RLM_SUBSCRIBERS_MAX 8u             /* to a turn's events */
#define RLM_WAIT_MAX_S 60u                 /* of a long poll */
#define RLM_WARM_MAX 64u
#define RLM_BROKER_PORT 8765
#define RLM_BROKER_NAME "brig-broker"      /* abstract Unix socket of the sandbox's network namespace */
#define RLM_BROKER_CONNECTIONS_MAX 16u
#define RLM_SECRET_SIZE 65                 /* 64 hex digits and NUL */

struct rlm;
struct rlm_session;
struct rlm_root;
struct rlm_turn;

enum rlm_fault {
        RLM_OK,
        RLM_NO_SESSION, RLM_NO_TURN,       /* 404 */
        RLM_STALE_GENERATION,              /* the turn is of a generation that a fence or a restart has ended */
        RLM_TURN_ACTIVE,                   /* one turn at a time */
        RLM_TURN_ENDED,                    /* it is over, or ended by itself */
        RLM_EXECUTING,                     /* one action at a time */
        RLM_NOT_READY,                     /* it has not begun yet */
        RLM_CANCELLED,                     /* a fence came while it waited */
        RLM_INVALID, RLM_CODE_TOO_LARGE, RLM_EMPTY_CODE,
        RLM_ADMISSION_TIMEOUT, RLM_TOO_MANY, RLM_DRAINING, RLM_DISK_FULL,
        RLM_CONFLICT,                      /* the idempotency key belongs to another request */
        RLM_START_FAILED,                  /* the sandbox or its Python could not be started */
        RLM_TOO_MANY_CHILDREN,             /* in the turn, or at a time */
        RLM_CHILD_DEPTH,                   /* a child has none of its own */
        RLM_INTERNAL,
        RLM_FAULT_MAX
};
STRING_TABLE_DECLARE(rlm_fault);           /* codes as on the wire: "not_found", "stale_generation", ... */

/* The sandbox face of the broker, which another layer serves. */
struct rlm_face {
        /* Serves these bound sockets for a root; they become the face's on success. */
        int (*open)(struct rlm_root *root, const int *fds, size_t n, void *user, void **ret, struct error *e);
        void (*close)(void *face, void *user);     /* every request of it is over when this returns, or answered */
};

struct rlm_config {
        uv_loop_t *loop;
        struct spawner *spawner;
        struct ledger *ledger;
        unsigned slots;
        uint64_t idle_ms;                  /* a root that no turn has used for so long is stopped; the warm ones, when none was wanted for so long */
        unsigned warm_roots;               /* how many are made ahead, up to RLM_WARM_MAX */
        struct leases_limits limits;
        struct sandbox_limits root_limits, child_limits;
        unsigned children_max;             /* of a turn */
        enum sandbox_network network;
};
int rlm_open(const struct rlm_config *cfg, struct rlm **ret, struct error *e);     /* generations rise for what the last daemon left */
void rlm_set_face(struct rlm *m, const struct rlm_face *face, void *user);         /* before the first turn */
/* Refuses new work; ends turns and stops roots. `done` when nothing is owned any more. May be called again. */
void rlm_drain(struct rlm *m, void (*done)(void *user), void *user);
void rlm_free(struct rlm *m);              /* after a drain, or when the spawner is lost; NULL is fine */
const struct rlm_config *rlm_settings(const struct rlm *m);
struct rlm_stats { size_t sessions, turns, roots, waiting; unsigned slots, slots_used, warm, ending; };   /* roots: children's too; ending: of them, those that are being deleted */
void rlm_stats(const struct rlm *m, struct rlm_stats *ret);

/* ---- sessions ------------------------------------------------------------------------------------------------------------------------ */

struct rlm_session_spec { const char *workspace, *tenant, *key, *hash; };  /* workspace "" or NULL: one of its own; key NULL without. Copied */
/* `error` is a text with RLM_INVALID, else "". RLM_OK: on disk; also for a repeat with the same key. */
typedef void (*rlm_created)(enum rlm_fault f, const char *id, void *user);
void rlm_session_create(struct rlm *m, const struct rlm_session_spec *spec, rlm_created done, void *user);
struct rlm_session *rlm_session_find(struct rlm *m, const char *id);       /* NULL also while it is being deleted */
struct rlm_session_view { const char *id, *workspace, *turn /* NULL without */; uint64_t generation; bool root, root_ready;
        const char *parent; unsigned children; };   /* of a child: the turn that it belongs to, else NULL; how many it has that are not gone */
void rlm_session_look(const struct rlm_session *s, struct rlm_session_view *ret);
/* Fences and forgets it; `done` once nothing of it is left. */
enum rlm_fault rlm_session_delete(struct rlm *m, const char *id, void (*done)(void *user), void *user);
int rlm_each(struct rlm *m, void (*each)(struct rlm_session *s, void *user), void *user);

/* ---- turns --------------------------------------------------------------------------------------------------------------------------- */

struct rlm_turn_spec {
        const struct json *tools, *outputs;        /* spans of the request, or NULL; read during the call */
        uint64_t acquire_ms;
        const char *key, *hash;                    /* idempotency; NULL without */
};
struct rlm_begin;                          /* somebody who waits for a turn to begin */
typedef void (*rlm_begun)(enum rlm_fault f, const struct error *e, struct rlm_turn *t, void *user);
/* RLM_OK: `done` runs later, *ret_wait is set. Else a fault, with a text for RLM_INVALID. */
enum rlm_fault rlm_turn_begin(struct rlm_session *s, const struct rlm_turn_spec *spec, rlm_begun done, void *user, struct rlm_begin **ret_wait, struct error *e);
void rlm_begin_abandon(struct rlm_begin *b);       /* the client is gone; a turn that nobody waits for any more is ended */
/* RLM_OK, or why not. A turn that ended by itself is found until the next one begins. */
enum rlm_fault rlm_turn_find(struct rlm *m, const char *session, const char *turn, struct rlm_turn **ret);
const char *rlm_turn_id(const struct rlm_turn *t);
uint64_t rlm_turn_generation(const struct rlm_turn *t);
bool rlm_turn_is_over(const struct rlm_turn *t);   /* ended by itself */
/* Ends it; `done` once all its processes are confirmed dead (and, where the root had to go, that too). */
enum rlm_fault rlm_turn_end(struct rlm_turn *t, void (*done)(void *user), void *user);
/* Fence: at once its authority is gone and the session's generation higher; `done` once that is on disk and the root is gone. */
enum rlm_fault rlm_turn_cancel(struct rlm_turn *t, void (*done)(uint64_t generation, void *user), void *user);

/* ---- children (child.c) ----------------------------------------------------------------------------------------------------------------- */

/* A child of an open turn: a session of its own, whose one turn begins as in rlm_turn_begin, after RLM_CHILD_WAIT_MS at most. Its turns are found, used and
 * ended as others; rlm_session_delete deletes it. It goes with its parent's turn, which is not over before. */
struct rlm_child_wait;
enum rlm_fault rlm_child_begin(struct rlm_turn *parent, const struct rlm_turn_spec *spec, rlm_begun done, void *user, struct rlm_child_wait **ret_wait, struct error *e);
void rlm_child_abandon(struct rlm_child_wait *w);  /* as rlm_begin_abandon */
/* A child of the turn, by its id, and the turn that it has. */
enum rlm_fault rlm_child_find(struct rlm_turn *parent, const char *child, struct rlm_turn **ret);
/* Where its process runs; NULL while there is none. Valid until the next turn of the loop. */
struct sandbox *rlm_turn_sandbox(const struct rlm_turn *t);
const char *rlm_turn_session(const struct rlm_turn *t);    /* its session's id; NULL once it is in none */
/* Those that are not confirmed gone. `ending`: it is being deleted. */
void rlm_children(const struct rlm_turn *parent, void (*each)(const struct rlm_session *c, bool ending, void *user), void *user);

/* ---- actions ------------------------------------------------------------------------------------------------------------------------- */

struct rlm_execute {
        const char *code; size_t code_len;
        const char *variables; size_t variables_len;       /* a JSON object, or NULL */
        uint64_t timeout_ms, host_wait_ms;
};
/* The answer, JSON, is the callee's to take. */
typedef void (*rlm_executed)(struct buf *answer, int r, void *user);
enum rlm_fault rlm_execute(struct rlm_turn *t, const struct rlm_execute *x, rlm_executed done, void *user, struct error *e);

/* ---- the broker, host face --------------------------------------------------------------------------------------------------------------- */

struct rlm_poll;
/* Runs `done` once there is a call to claim, or after wait_ms, or when the turn is over. NULL: no memory, or RLM_POLLS_MAX. The turn may
 * be gone when it runs: find it again. */
struct rlm_poll *rlm_poll_begin(struct rlm_turn *t, uint64_t wait_ms, void (*done)(void *user), void *user);
void rlm_poll_cancel(struct rlm_poll *p);
bool rlm_has_unclaimed(const struct rlm_turn *t);
struct rlm_call;
size_t rlm_claim(struct rlm_turn *t, void (*each)(const struct rlm_call *c, void *user), void *user);
/* Of the executing action, ms; -1 without one. */
int64_t rlm_remaining_ms(struct rlm_turn *t);
struct rlm_result { bool is_error; const char *p; size_t n; };     /* a JSON value: `result`, or `tool_error` (an object) */
enum lease_answer rlm_settle(struct rlm_turn *t, const char *id, const char *lease, const struct rlm_result *res);

struct rlm_subscriber {                    /* in its owner's object */
        struct rlm_subscriber *next, **at;
        struct rlm_turn *turn;
        /* "stdout", "stderr", "tools_pending", "execution_done"; data is JSON */
        void (*event)(struct rlm_subscriber *s, const char *event, const char *data, size_t n);
        void (*ended)(struct rlm_subscriber *s);   /* the turn is over: it is in no list any more */
};
bool rlm_may_subscribe(const struct rlm_turn *t);
enum rlm_fault rlm_subscribe(struct rlm_turn *t, struct rlm_subscriber *s);
void rlm_unsubscribe(struct rlm_subscriber *s);    /* fine on what is in no list */

/* ---- the broker, sandbox face ------------------------------------------------------------------------------------------------------------- */

struct rlm_call {                          /* in the face's object; the spans stay until it is over */
        struct rlm_turn *turn;             /* NULL: over */
        struct lease_call *lease;
        struct json tool_name, args, kwargs;
        /* Once, unless rlm_call_gone came before. LEASE_OK: `res` is the result, valid during the call. */
        void (*answer)(struct rlm_call *c, enum lease_answer a, const struct rlm_result *res);
};
bool rlm_secret_ok(const struct rlm_root *root, const char *secret);       /* of the turn that the root has now; constant time */
bool rlm_is_executing(const struct rlm_root *root);
bool rlm_tool_known(const struct rlm_root *root, const struct json *name);
/* LEASE_OK: it waits. `prompts`: how many of the turn's share it takes. */
enum lease_answer rlm_call_begin(struct rlm_root *root, struct rlm_call *c, const char *id, size_t id_len, unsigned prompts);
void rlm_call_taken(struct rlm_call *c);   /* after `answer` with a result: the caller has it; this, or rlm_call_gone, must follow */
void rlm_call_gone(struct rlm_call *c);    /* its caller is; idempotent */
