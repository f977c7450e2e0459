/* Sandboxes without a process, for tests of sessions: what happens in them is what the test says, when it says it. A loop, a ledger in a
 * fresh directory, and a clock that the test can put forward. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "session/process.h"
#include "store/ledger.h"

/* Defined here, and nowhere else in such a program. */
struct sandbox_exec {
        struct sandbox_exec *next;         /* newest first */
        struct sandbox *sandbox;
        char argv[256], cwd[256];          /* words with a space between */
        uint32_t uid, gid;
        uint64_t timeout_ms;
        struct output_capture *out, *err;
        void (*output)(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user);
        void (*writable)(struct sandbox_exec *x, void *user);
        void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user);
        void *user;
        bool killed, held, input_closed;
        int signal;                        /* the last one */
        size_t room;                       /* bytes of input that it takes now */
        char input[256]; size_t input_len; /* the last ones that it has read */
};

struct fake {
        uv_loop_t loop;
        char home[64];
        int runs_dirfd;
        struct ledger *ledger;
        struct sessions *ss;
        struct sessions_config cfg;
        struct sandbox *sandboxes;         /* newest first */
        int exec_error, freeze_error;      /* -errno for the next ones */
        unsigned freezes, thaws;
};
extern struct fake fake;

int fake_setup(void **state);              /* sessions are open; live_max 4, everything else is without a bound */
int fake_teardown(void **state);           /* deletes what lives, and closes all */
void fake_reopen(void);                    /* as a daemon that died and starts again: sandboxes and sessions are lost, the ledger stays */
/* Runs the loop until *flag; and once. Sandboxes that were destroyed go, their commands first. */
void fake_until(const bool *flag);
void fake_turn(void);
void fake_forward(uint64_t ms);            /* the monotonic clock; who holds a deadline finds out when he looks */

/* ---- what happens in them ---- */

struct sandbox *fake_sandbox(const char *session);         /* NULL: gone */
const char *fake_sandbox_id(const struct sandbox *s);       /* the session's */
void fake_ready(struct sandbox *s);
void fake_failed(struct sandbox *s, const char *step, int r);
void fake_limit(struct sandbox *s, enum limit_kind kind);
void fake_broken(struct sandbox *s);                       /* it ends by itself */
struct sandbox_exec *fake_exec(void);                      /* the newest that runs; fails the test without one */
size_t fake_execs(void);
void fake_output(struct sandbox_exec *x, int stream, const char *text);
void fake_exit(struct sandbox_exec *x, int status);        /* a wait status */
void fake_not_started(struct sandbox_exec *x, int r, const char *why);

/* ---- what tests do all the time ---- */

struct session_spec fake_spec(void);
/* Creates one and waits for its row; "" is not an id. */
const char *fake_create(struct session_spec spec);         /* the id; valid until the next call */
const char *fake_create_ready(struct session_spec spec);
int fake_create_error(struct session_spec spec);           /* what `created` was told */
enum session_state fake_state(const char *id);             /* of a session or a record; SESSION_STATE_MAX: there is none */
void fake_wait_record(const char *id);                     /* until it has ended and its record is written */
