/* The lease state machine of one turn: every call that the turn's code makes of its host's tools, from its arrival to the one answer
 * that it gets. Pure: no input or output, no clock, no randomness of its own; one thread.
 *
 *              call                claim               settle                taken
 *     (none) ────────> QUEUED ─────────────> CLAIMED ─────────────> SETTLED ─────────> TAKEN
 *                        │ its wait ends: TIMEOUT; the action ends: NOT_EXECUTING│ the caller is gone
 *                        └──────────────────────┴──────────────────────────────┴─────> ABANDONED
 *
 * What holds, whatever the order of events (tests/unit/rlm/test_lease.c tries every order up to a depth):
 * - A call that was taken in is answered exactly once, through `answer`, unless its caller is gone first; then never.
 * - A call is issued by at most one claim, with a lease that no other call ever had.
 * - A result is accepted only with the call's own lease, at most once, and only while somebody waits for it.
 * - An id is used once in a turn. All calls are remembered until the turn's end, so a late or repeated word about one gets its name.
 *
 * Who says the words: the broker calls leases_call for POST /tool_call, leases_claim for GET /pending, leases_settle for POST
 * /result; the turn says when actions begin and end. Which of several faults a result has is decided in this order: unknown call,
 * stale lease, duplicate result, duplicate call: whoever does not hold the call's lease never hears the benign answer. */
#pragma once
#include <stdbool.h>

#include "base/map.h"

#define LEASE_CALLS_MAX 256u           /* calls of a turn */
#define LEASE_PENDING_MAX 64u          /* that wait for a result */
#define LEASE_PROMPTS_MAX 32u          /* prompts of llm_query and llm_query_batched together */
#define LEASE_ID_MAX 128u              /* bytes of a call's id: of [A-Za-z0-9._:-] */
#define LEASE_TOKEN_SIZE 33            /* 32 hex digits and NUL */

enum call_state { CALL_QUEUED, CALL_CLAIMED, CALL_SETTLED, CALL_TAKEN, CALL_ABANDONED, CALL_STATE_MAX };
STRING_TABLE_DECLARE(call_state);      /* "queued", "claimed", ... */

enum lease_answer {
        LEASE_OK,                      /* taken in; accepted; or, to a caller: there is a result */
        LEASE_STALE,                   /* never claimed, or another lease */
        LEASE_DUPLICATE_RESULT,        /* settled already, the caller has not taken it yet */
        LEASE_DUPLICATE_CALL,          /* to a result: completed or abandoned; to a call: its id was used before */
        LEASE_UNKNOWN_CALL,
        LEASE_NOT_EXECUTING,           /* no action runs; to a caller: its action has ended */
        LEASE_TIMEOUT,                 /* to a caller: the wait is over */
        LEASE_BAD_ID,                  /* not 1 to LEASE_ID_MAX bytes of the set */
        LEASE_TOO_MANY_CALLS, LEASE_TOO_MANY_PENDING, LEASE_TOO_MANY_PROMPTS,
        LEASE_NO_MEMORY,
        LEASE_ANSWER_MAX
};
/* "ok", "stale lease", "duplicate result", "duplicate call", "unknown call", "invocation is not executing", ... as on the wire. */
STRING_TABLE_DECLARE(lease_answer);

struct leases_limits { unsigned calls, pending, prompts; };
void leases_limits_default(struct leases_limits *ret);

struct lease_call {
        struct map_node node;
        struct lease_call *next, **at;         /* in the list of those that wait, oldest first; at NULL: in none */
        struct lease_call *older;              /* of all */
        enum call_state state;
        uint64_t ends_at_ms;                   /* when its wait ends, by the clock that the caller of leases_expire goes by */
        void *user;                            /* the broker's; leave it alone once the call is answered or gone */
        char lease[LEASE_TOKEN_SIZE];          /* "" until claimed */
        char id[];
};

struct leases {
        struct leases_limits limits;
        struct map calls;                      /* all of the turn's */
        struct lease_call *newest;
        struct lease_call *waiting, **waiting_last;    /* QUEUED and CLAIMED */
        unsigned n_calls, n_waiting, n_queued, n_prompts;
        unsigned next_id;
        bool executing, closed;
        void (*token)(char ret[static LEASE_TOKEN_SIZE], void *user);
        void (*answer)(struct lease_call *c, enum lease_answer a, void *user);
        void *user;
};

/* `token` makes an unguessable lease; `answer` gives a caller its answer: LEASE_OK, LEASE_NOT_EXECUTING or LEASE_TIMEOUT. It runs from
 * inside the functions below and may call lease_taken and lease_gone for the call it is given, nothing else. -ENOMEM. */
int leases_init(struct leases *l, const struct leases_limits *limits, void (*token)(char ret[static LEASE_TOKEN_SIZE], void *user),
                void (*answer)(struct lease_call *c, enum lease_answer a, void *user), void *user);
/* Nobody waits any more (see leases_close), or their requests are gone with the turn. */
void leases_release(struct leases *l);

void leases_begin_action(struct leases *l);    /* from now on calls are taken in */
void leases_end_action(struct leases *l);      /* who waits is answered LEASE_NOT_EXECUTING */
void leases_close(struct leases *l);           /* as leases_end_action, for good: a cancelled or ended turn */

/* A call arrives. id NULL: one is made ("c1", "c2", ...). `prompts` of it count for the turn's share. OK: *ret waits until ends_at_ms. */
enum lease_answer leases_call(struct leases *l, const char *id, size_t id_len, unsigned prompts, uint64_t ends_at_ms, void *user,
                              struct lease_call **ret);
/* Issues a lease for every unclaimed call, oldest first; how many. */
size_t leases_claim(struct leases *l, void (*each)(struct lease_call *c, void *user), void *user);
/* What would be said to a result; LEASE_OK: it would be accepted, and *ret_call is the call. */
enum lease_answer leases_check(struct leases *l, const char *id, const char *lease, struct lease_call **ret_call);
/* A result for a call. LEASE_OK: accepted, and `answer` has run with LEASE_OK: the broker keeps the bytes by then. */
enum lease_answer leases_settle(struct leases *l, const char *id, const char *lease);
/* Ends the waits that are over: LEASE_TIMEOUT. */
void leases_expire(struct leases *l, uint64_t now_ms);
uint64_t leases_next_end(const struct leases *l);      /* of the nearest wait; UINT64_MAX: nobody waits */

/* The caller has its answer; or it will never have it, for its connection is gone. Fine on what is over already. */
void lease_taken(struct leases *l, struct lease_call *c);
void lease_gone(struct leases *l, struct lease_call *c);
struct lease_call *leases_find(const struct leases *l, const char *id);
