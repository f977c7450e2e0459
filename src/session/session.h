/* Sessions: standing sandboxes in which commands run, one after the other or many at once, until a verifier is run or nobody
 * wants them any more.
 *
 * Theory of operation. A session is a row of the ledger (kind SESSION_KIND), an object in memory while it lives, and one sandbox
 * (PROFILE_SESSION).
 *
 *     create ──ledger──> STARTING ──sandbox ready──> READY ──finish──> FINISHING ──> FINISHED (record kept)
 *                           └────── sandbox failed, or ended by itself ──────> FAILED (record kept)
 *        ttl, idle or owner's lease over ──> EXPIRED (record kept);   delete, at any moment ──> nothing left
 *
 * Only the first three have an object and a sandbox; the rest are records of the ledger, which go after the time that tasks'
 * records are kept. A sandbox does not outlive the daemon: what lived when it stopped is FAILED, "daemon restarted", after the
 * next start.
 *
 * Commands (session/process.h) hold the session in use; so does whoever else works in it (session_use_begin). The idle clock runs
 * from the last END of a use, and not while there is one.
 *
 * Loop thread only. Callbacks may run from inside the call that starts the work only where it is said. */
#pragma once
#include <stdbool.h>

#include "base/map.h"
#include "sandbox/sandbox.h"
#include "store/ledger.h"

#define SESSION_KIND "session"
#define SESSION_ID_SIZE 37                 /* a UUID and NUL */
#define SESSION_LABELS_MAX 64
#define SESSION_LIST_MAX 1000              /* sessions of one page of a list */
#define SESSION_ERROR_MAX 512              /* bytes of a reason */

struct sessions;
struct session;

enum session_state {
        SESSION_STARTING, SESSION_READY, SESSION_FINISHING,    /* live */
        SESSION_FAILED, SESSION_FINISHED, SESSION_EXPIRED,     /* a record, nothing else */
        SESSION_STATE_MAX
};
STRING_TABLE_DECLARE(session_state);       /* "starting", "ready", "finishing", "failed", "finished", "expired" */
static inline bool session_state_is_live(enum session_state st) { return st <= SESSION_FINISHING; }

/* What a session is made from. Owned strings; x_init gives the operator's defaults. */
struct session_spec {
        char *image;                   /* IMAGE_HOST, a directory, or a reference of the image store */
        uint64_t pull_timeout_ms;      /* for getting, or building, the image; 0 = the store's */
        char **env;                    /* "K=V", sorted: over the image's own */
        char *workdir;                 /* NULL: the image's, else "/" */
        bool user_given;
        uint32_t uid, gid;             /* else the image's USER, else root inside */
        enum sandbox_network network;
        struct egress_rules *allow;    /* NETWORK_ALLOW; else NULL */
        struct sandbox_limits limits;
        uint64_t cap_drop;             /* 1 << CAP_x: of the profile's capabilities */
        char *startup_command;         /* NULL without: /bin/bash -lc, in the background, best effort */
        char **labels;                 /* "name=value", sorted by name */
        char *tenant;                  /* labels.tenant, "" without */
        uint64_t ttl_ms;               /* from creation; 0 = none */
        uint64_t idle_ms;              /* from the end of the last use; 0 = none */
        uint64_t owner_ttl_ms;         /* from the last heartbeat; 0 = no lease */
        char *idempotency_key;         /* NULL without */
        char hash[65];                 /* of the request's canonical form; tells a repeat from a conflict */
};
int session_spec_init(const struct sessions *ss, struct session_spec *ret);    /* -ENOMEM */
/* As that of a live session but on another image, without its key and its lease. -ENOMEM. */
int session_spec_like(const struct session *s, const char *image, struct session_spec *ret);
void session_spec_release(struct session_spec *spec);

/* ---- the set of all ------------------------------------------------------------------------------------------------------ */

struct sessions_config {
        uv_loop_t *loop;
        struct spawner *spawner;
        struct ledger *ledger;
        struct image_store *images;    /* NULL: the host's image and directories only */
        int runs_dirfd;                /* logs of background commands: <id>/<command>.out; stays the caller's */
        size_t live_max;               /* sessions that live at a time */
        size_t execs_max;              /* commands in flight that somebody waits for; 0 = only each session's own bound */
        uint64_t idle_ms, ttl_ms;      /* defaults */
        uint64_t exec_timeout_ms, output_max;      /* defaults of commands */
        enum sandbox_network network;  /* where nothing is said */
        struct sandbox_limits limits;
};
/* Reads what the last daemon left. */
int sessions_open(const struct sessions_config *cfg, struct sessions **ret, struct error *e);
/* Nothing new is taken; idle sessions end at once, used ones when nobody uses them, all after grace_ms. Their rows stay open, so
 * that the next start reports them. `done` when no sandbox is left. */
void sessions_drain(struct sessions *ss, uint64_t grace_ms, void (*done)(void *user), void *user);
void sessions_free(struct sessions *ss);   /* after a drain, or when the spawner is lost; the loop must run once more. NULL is fine */
const struct sessions_config *sessions_settings(const struct sessions *ss);
struct sessions_stats { size_t live, starting, processes; };
void sessions_stats(const struct sessions *ss, struct sessions_stats *ret);

/* ---- one ------------------------------------------------------------------------------------------------------------------ */

/* Takes the spec's contents, also on failure. `done` once it is on disk; it may run from inside the call.
 * r: 0 accepted (id), -EEXIST same key and same request (id of the first), -EBUSY key with another request, -EAGAIN too many
 * live, -ENOSPC disk, -ESHUTDOWN draining, -ENOMEM, -EIO, or -EINVAL with a text. */
typedef void (*session_created)(int r, const char *id, const struct error *e, void *user);
void session_create(struct sessions *ss, struct session_spec *spec, session_created done, void *user);

/* A live session, or NULL. Valid until the loop runs again, or for as long as a use of it is held. */
struct session *session_find(struct sessions *ss, const char *id);
const char *session_id(const struct session *s);
enum session_state session_state(const struct session *s);
struct sandbox *session_sandbox(struct session *s);        /* NULL unless READY or FINISHING */
struct sessions *session_set(struct session *s);
/* The environment of its processes, with `more` over it, for a user (whose HOME and USER are his where nobody says): a new list, "K=V",
 * sorted. NULL: no memory. */
char **session_environment(const struct session *s, uint32_t uid, const char *const *more);
/* Working directory, user and group of commands that do not say. */
const char *session_workdir(const struct session *s);
void session_user(const struct session *s, uint32_t *ret_uid, uint32_t *ret_gid);

/* What is known of one, live or a record. Owned. */
struct session_view {
        char id[SESSION_ID_SIZE];
        enum session_state state;
        char *image, *error;           /* error: NULL without */
        char **labels;                 /* "name=value" */
        int network;                   /* enum sandbox_network */
        bool paused;
        int64_t created_ms, ready_ms, ended_ms, last_used_ms, lease_until_ms;  /* wall; 0 = not yet, or no lease */
        uint64_t ttl_ms, idle_ms, owner_ttl_ms;
        size_t uses;                   /* commands and others that work in it now */
        uint64_t seq;                  /* order of creation, for paging */
};
void session_view_release(struct session_view *v);
int session_get(struct sessions *ss, const char *id, struct session_view *ret);    /* -ENOENT, -ENOMEM, -EIO */

struct session_filter {
        unsigned states;               /* 1 << state; 0 = the live ones */
        char **labels;                 /* all of "name=value" must be there; NULL = any */
        uint64_t after;                /* seq of the last one of the page before; 0 = from the beginning */
        size_t limit;                  /* 1..SESSION_LIST_MAX */
};
/* In order of creation. each() != 0 ends it and is returned. *ret_more: there is another page. */
int sessions_list(struct sessions *ss, const struct session_filter *f, int (*each)(const struct session_view *v, void *user), void *user,
                  bool *ret_more);

struct session_patch {
        char **labels; bool labels_given;          /* replace all */
        uint64_t ttl_ms, idle_ms, owner_ttl_ms; bool ttl_given, idle_given, owner_ttl_given;
};
/* Takes the labels, at once; `done` when it is on disk, so that a record after a restart has it. -ENOENT unless live, -ENOMEM: nothing was changed,
 * `done` does not run. r as of ledger_set_body(): it is changed for as long as the daemon lives. */
int session_change(struct sessions *ss, const char *id, struct session_patch *p, void (*done)(int r, void *user), void *user);
int session_heartbeat(struct sessions *ss, const char *id);                        /* -ENOENT unless live */

/* What egress_net_write_json() says of a session with NETWORK_ALLOW, now or at its end: appended. -ENOENT: no such session; -EAGAIN: it is starting;
 * -ENODATA: another network, or it ended before there was one. */
int session_network(struct sessions *ss, const char *id, struct buf *ret);
/* Other rules for it, and for forks of it, from now on. -ENOENT, -EAGAIN, -ENODATA as above; -ESHUTDOWN: it has ended. */
int session_set_rules(struct sessions *ss, const char *id, struct egress_rules *rules);

/* Runs `done` once when it is not STARTING any more (or gone), or after wait_ms. NULL: it is not STARTING, or no memory. */
struct session_wait;
struct session_wait *session_wait_started(struct sessions *ss, const char *id, uint64_t wait_ms, void (*done)(void *user), void *user);
void session_wait_cancel(struct session_wait *w);
const char *session_stands_still(const struct session *s); /* why nothing can be started in it now: it is paused, or a snapshot is being made; NULL: it goes */
bool session_is_ending(const struct session *s);          /* what fails in it now may fail because it ends */
bool session_snapshotting(const struct session *s);        /* stands still for a snapshot, and goes on by itself unless it is paused */
/* A freeze is asked for: from now on nothing is started in it. Each is ended by one session_pause_ends(); r as sandbox_freeze() gave it. */
void session_pause_begins(struct session *s);
void session_pause_ends(struct session *s, int r);
void session_resumed(struct session *s);

/* At any moment; forgets a record too. `done(0)` once nothing of it is left; -ENOENT at once as the call's answer. */
int session_delete(struct sessions *ss, const char *id, void (*done)(int r, void *user), void *user);

/* ---- uses ------------------------------------------------------------------------------------------------------------------ */

/* Whoever works in a session: keeps it from being idle, and its object in memory. Lies in the caller's own object. */
struct session_use {
        struct session_use *next, **at;        /* at NULL: not in use */
        struct session *session;
        void (*ended)(struct session_use *u);  /* the session ends, its sandbox is being destroyed: let go soon. May be NULL */
        bool told, passive;                    /* session.c's */
};
/* -ENOENT; -EAGAIN: not READY; -ESHUTDOWN draining. */
int session_use_begin(struct sessions *ss, const char *id, struct session_use *u, void (*ended)(struct session_use *u));
void session_use_passive(struct session_use *u);       /* it does not keep the session from being idle any more */
void session_use_end(struct session_use *u);   /* once; fine on what is not in use */
