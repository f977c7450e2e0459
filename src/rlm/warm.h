/* Sandboxes with an interpreter already up, kept per kind: what the start of a turn need not wait for.
 *
 * A *box* is a sandbox (PROFILE_RLM), its interpreter, and where its kind says so the two listening sockets of a broker inside. Nothing untrusted runs
 * in a box that nobody has taken: secrets, mounts and what answers on the sockets are given to it when it is taken. The pool keeps `want` of each
 * kind, `most` in all, and makes new ones in the background, one at a time and only WARM_PAUSE_MS after the last was taken: whoever took it goes
 * first. Where making them fails, it is tried again after WARM_RETRY_MS, then twice that, up to WARM_RETRY_MAX_MS.
 *
 *     warm_take ──there is one──> READY ──────────────────────────────> warm_box_destroy ──> gone, freed
 *         └──there is none──> MAKING ──ready──> READY ──(sandbox or python end)──> lost ──────^
 *                               └──failed────────────────────────────────────────────────────> gone, freed
 *
 * A box is used by one owner, once. Loop thread only; callbacks run from the loop. */
#pragma once
#include "rlm/interpreter.h"

#define WARM_KINDS_MAX 16
#define WARM_NAME_MAX 128          /* bytes of a kind's name */
#define WARM_WANT_DEFAULT 2
#define WARM_MOST_DEFAULT 8
#define WARM_BOXES_MAX 64          /* unclaimed ones, whatever is configured */
#define WARM_PAUSE_MS 100
#define WARM_RETRY_MS 1000
#define WARM_RETRY_MAX_MS 60000
#define WARM_BROKER_BACKLOG 64

struct warm;
struct warm_box;

struct warm_callbacks {
        void (*ready)(struct warm_box *b, void *user);         /* not for one that warm_take gave ready */
        /* `gone` follows by itself. */
        void (*failed)(struct warm_box *b, const char *step, const struct error *e, void *user);
        void (*limit)(struct warm_box *b, enum limit_kind kind, void *user);   /* as of the sandbox; may be NULL */
        void (*lost)(struct warm_box *b, const struct error *e, void *user);   /* no turn can begin in it any more: destroy it */
        void (*gone)(struct warm_box *b, const struct sandbox_end *end, void *user);   /* once, last; the object is gone when it returns */
};

int warm_new(struct spawner *sp, uv_loop_t *loop, unsigned want, unsigned most, struct warm **ret);
struct warm_kind {                 /* copied */
        const char *name;
        const struct sandbox_spec *sandbox;        /* PROFILE_RLM, without mounts, files and rules */
        const char *python;                        /* as of interpreter_spec */
        const char *const *env;                    /* of turns, as of interpreter_spec; NULL-terminated, or NULL */
        /* Has two sockets that listen in its network namespace from before python runs: TCP 127.0.0.1:`broker_port` and the abstract name
         * `broker_name`. Connections wait, unanswered, until somebody serves them. 0: none. */
        uint16_t broker_port;
        const char *broker_name;
        bool keep;                                 /* some are made ahead */
};
/* -EINVAL: it is not such a kind. -EEXIST, -ENOSPC. */
int warm_add_kind(struct warm *w, const struct warm_kind *kind);
/* A box that is nobody else's: 1 and it is ready; 0 and `ready` or `failed` follow; -ENOENT: there is no such kind; -ESHUTDOWN. */
int warm_take(struct warm *w, const char *kind, const struct warm_callbacks *cb, void *user, struct warm_box **ret, struct error *e);
struct sandbox *warm_box_sandbox(struct warm_box *b);          /* while READY */
struct interpreter *warm_box_interpreter(struct warm_box *b);  /* while READY */
/* Once, READY, of a kind with a broker: TCP, then local. They become the caller's. */
void warm_box_broker(struct warm_box *b, int ret_fds[static 2]);
/* Kills and removes all of it; `gone` follows. At any moment, idempotent. */
void warm_box_destroy(struct warm_box *b);
/* How many are ready and nobody's, of one kind or (NULL) of all. */
unsigned warm_ready(const struct warm *w, const char *kind);
/* Memory is short: removes the unclaimed ones, and makes none while `on`. */
void warm_hold_back(struct warm *w, bool on);
/* Removes the unclaimed ones; `done` runs once they are gone. None is made any more. */
void warm_stop(struct warm *w, void (*done)(void *user), void *user);
/* After `done`, and when all boxes are gone; or at the end of the process, when no callback of a box runs any more. NULL is fine. */
void warm_free(struct warm *w);
