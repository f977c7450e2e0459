/* Between the files of this layer: sessions.c (the set), session.c (one life), record.c (what the ledger keeps), process*.c. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "session/process.h"
#include "store/image_store.h"

#define RECORD_MAX (160u << 20)            /* bytes of a session's record: the answer of finish is in it */
#define RECORD_HEAD_MAX (2u << 20)         /* bytes of it without that answer, which comes last */
#define RECORD_HEAD_FIRST 16384            /* bytes that are enough for most */
#define NETWORK_SAID_MAX (1u << 20)        /* bytes of what a network says of itself */

struct removal { struct removal *next; void (*done)(int r, void *user); void *user; };

struct session {
        struct map_node node;
        struct sessions *ss;
        struct session_spec spec;
        struct sandbox *sandbox;           /* from its creation until it is gone */
        struct image_acquisition *acquiring;
        struct image_lease *lease;         /* what the sandbox stands on; NULL: the host's image or a directory */
        struct session_use *uses;
        size_t n_uses, n_active;           /* all; those that keep it from being idle */
        struct process *processes;         /* all of them, newest first */
        size_t n_processes, n_background, n_exited;
        struct terminal *terminals;        /* newest first */
        size_t n_terminals;
        unsigned last_terminal;            /* id */
        unsigned next_process;             /* id of the next background command */
        struct shell *shells;
        unsigned last_shell;
        uv_timer_t timer;                  /* the nearest of ttl, idle, lease */
        int64_t created_ms, ready_ms, last_used_ms;            /* wall */
        uint64_t created_at, last_end_at, lease_at;            /* monotonic, ms; lease_at: the last heartbeat */
        session_created created;           /* while the row is on its way to disk */
        void *created_user;
        struct snapshot *snapshot;         /* being made */
        struct finish *finish;             /* from FINISHING on */
        struct process *startup;           /* the start-up command, until it is forgotten */
        struct session_wait *waits;        /* for the end of STARTING */
        struct removal *removals;          /* who asked for its deletion */
        char *error;                       /* why it failed or ended */
        char *record;                      /* while it is being written */
        char *network_said;                /* JSON, once the sandbox is gone; NULL without */
        unsigned pausing;                  /* freezes asked for */
        enum session_state state;
        bool inserting, ending, paused, recording, closed;
        bool quiet;                        /* a drain ends it: its row stays open for the next start */
        bool refused;                      /* its row could not be written: it leaves no trace */
        bool has_logs;
        char id[SESSION_ID_SIZE];
};

struct sessions {
        struct sessions_config cfg;
        struct map map;
        struct session *closing;           /* list by node.next: out of the map, still in use or its timer still closing */
        size_t starting, inflight;         /* inflight: commands that count for execs_max */
        struct process *waiting, **waiting_last;
        struct finish *finishes;           /* that wait for a place */
        size_t n_waiting;
        uint64_t last_lost;                /* seq of the newest that the last daemon left */
        bool draining, freed;
        size_t open_handles;
        uv_timer_t grace;
        void (*drained)(void *user);
        void *drained_user;
};

/* sessions.c */
void sessions_check_drained(struct sessions *ss);
/* session.c */
struct session *session_new(struct sessions *ss, struct session_spec *spec);       /* takes the spec's contents; in the map */
int session_start(struct session *s, struct error *e);
/* The end, once: `state` is FAILED, FINISHED or EXPIRED. Its sandbox goes; then the record is written. */
void session_end(struct session *s, enum session_state state, const char *why);
void session_inserted(struct session *s, int r);
void session_settle(struct session *s);
void session_rearm(struct session *s);
void session_waits_end(struct session *s);
void session_set_finishing(struct session *s);
struct session *session_any(struct sessions *ss, const char *id);  /* in the map, whatever its state */
/* record.c */
int record_summary(const struct session_spec *spec, struct buf *ret);              /* the row's body */
int record_final(const struct session *s, struct buf *ret);                        /* the row's record */
int record_of_lost(const char *summary, size_t n, const char *why, struct buf *ret);
/* A row with what its body or record says, but for the answer of finish: an object of at most RECORD_HEAD_MAX bytes. -ENOENT. */
int record_text(struct sessions *ss, const char *id, struct ledger_row *ret, struct buf *ret_text);
/* Fills the view from a body or record. */
int record_view(const char *text, size_t n, struct session_view *v);
void view_of_live(const struct session *s, struct session_view *v, int *ret_r);
/* process.c */
void processes_end_all(struct session *s);         /* the session is over: forgets the ended ones */
void processes_admit(struct sessions *ss);         /* starts what waits, as far as there is room */
int process_exit_code(const struct exec_end *end);
bool process_was_oom(const struct exec_end *end);
/* finish.c */
struct finish;
const char *finish_answer(const struct finish *f, size_t *ret_n);  /* JSON, once it is there; NULL before */
void finish_recorded(struct session *s);           /* the record is on disk, or never will be: answers */
void finish_free(struct finish *f);
void finishes_admit(struct sessions *ss);          /* after processes_admit: begins those that there is room for */
