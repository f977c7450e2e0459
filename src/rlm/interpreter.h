/* The Python side of a turn, as the daemon sees it.
 *
 * An *interpreter* is a python3 that runs in a sandbox from before any untrusted code on (the zygote): root inside, not dumpable, and it
 * holds nothing but its control socket. A *turn process* is forked from it for one turn. It lives in a control group of its own, becomes uid
 * and gid 1000 without a capability, and only then hears of the turn's tools and secret.
 *
 *     interpreter_start ──> STARTING ──ready──> READY ──(python or its sandbox ends)──> lost
 *     turn_process_start ──> WAITING ──> BEGINNING ──begun──> IDLE ──execute──> BUSY ──done──> IDLE
 *                                any ──kill, protocol violation, death──> ENDING ──(its group is empty)──> ended
 *
 * One turn at a time: the next one is begun only after `ended` of the one before, which means that the kernel has confirmed that no process of
 * it is left. A process for the next turn is forked ahead of need, from the zygote, which untrusted code never reaches; it is root
 * inside and knows nothing until its turn begins.
 *
 * What can be relied on whatever the code does: `ended` and its reason, usage, that a submit was offered before it was accepted, that bytes
 * reported as output were written, that nothing outlives `ended`. What the code may forge: everything in a reply. Everything that arrives from a turn is
 * parsed as hostile bytes with limits; what does not parse ends the turn (TURN_END_PROTOCOL).
 *
 * Loop thread only. Callbacks run from the loop, never from inside the call that started the work. */
#pragma once
#include "sandbox/sandbox.h"

struct interpreter;
struct turn_process;

#define TURN_UID 1000u
#define TURN_CODE_MAX 49152u               /* bytes of code: 12,000 characters of at most 4 bytes, rounded up */
#define TURN_SETUP_MAX (4u << 20)          /* bytes of turn_spec.setup */
#define TURN_VARIABLES_MAX (8u << 20)      /* bytes of variables of one action */
#define TURN_SUBMIT_MAX ((2u << 20) + 65536u)      /* bytes of the arguments of a SUBMIT that are read at all; what is accepted is the caller's to say */
#define TURN_ERROR_MAX 65536u              /* bytes of turn_reply.error */
#define TURN_NAME_MAX 256u                 /* bytes of turn_reply.error_type */
#define TURN_TOOL_ERROR_MAX 65536u         /* bytes of turn_reply.tool_error */
#define TURN_SUBMITS_MAX 1000u             /* offered in one action; beyond, the turn ends (TURN_END_PROTOCOL) */
#define TURN_SUBMIT_GRACE_MS 2000u         /* an action that goes on after an accepted SUBMIT is interrupted then, and killed after as long again */
#define INTERPRETER_START_MS 30000u        /* until python answers, else `lost` */

/* ---- the interpreter ------------------------------------------------------------------------------------------------------- */

struct interpreter_spec {                  /* read during the call */
        const char *python;                /* NULL: "python3", looked up in the sandbox's PATH */
        /* Names what python is made of (image and layers), and nothing else may have this name: what one such interpreter has compiled of the
         * driver, before any untrusted code, is given to the next. NULL: nothing is. */
        const char *cache;
        const char *const *env;            /* what turns see as their environment, exactly; NULL: PATH, HOME, LANG, USER alone */
};
struct interpreter_callbacks {
        void (*ready)(struct interpreter *in, void *user);
        /* Once, and nothing after it: python could not be started, or has ended (with its sandbox, or by itself). `ended` of its turn ran
         * before. No turn can begin any more: destroy the sandbox. The object is still to be freed. */
        void (*lost)(struct interpreter *in, const struct error *e, void *user);
};
/* In a sandbox that is READY, with PROFILE_RLM, before anything untrusted has run in it. */
int interpreter_start(struct sandbox *s, const struct interpreter_spec *spec, const struct interpreter_callbacks *cb, void *user,
                      struct interpreter **ret, struct error *e);
/* At any moment, also before the sandbox is destroyed: no callback runs any more, of its turn neither. What it holds ends with it or with
 * the sandbox. Does not end the processes of a turn: kill it first, or destroy the sandbox. NULL is fine. */
void interpreter_free(struct interpreter *in);
/* From `ready` on: "3.11.2", as python says. */
const char *interpreter_version(const struct interpreter *in);
/* A process for a turn waits: it can begin at once. */
bool interpreter_is_warm(const struct interpreter *in);

/* ---- a turn ------------------------------------------------------------------------------------------------------------------- */

enum turn_end_reason {
        TURN_END_KILLED,                   /* turn_process_kill */
        TURN_END_EXITED,                   /* its main process ended by itself: status */
        TURN_END_PROTOCOL,                 /* it wrote what no driver writes, or closed its socket */
        TURN_END_SUBMIT,                   /* it went on after an accepted SUBMIT and an interrupt */
        TURN_END_START,                    /* it could not be begun: `error` says why; our fault or the machine's */
        TURN_END_SANDBOX,                  /* the sandbox ended (a limit, or destroyed), or python did */
        TURN_END_MAX,
};
STRING_TABLE_DECLARE(turn_end_reason);     /* "killed", "exited", "protocol", "submit", "start", "sandbox" */

struct turn_end {
        enum turn_end_reason reason;
        struct error error;                /* one line: what happened */
        int status;                        /* wait status of its main process; -1 = not known */
        int64_t cpu_us;                    /* of all processes of the turn, by the kernel; -1 = not known */
        uint64_t wall_ms;                  /* from turn_process_start */
};

enum turn_error_kind {
        TURN_OK, TURN_ERROR_SYNTAX, TURN_ERROR_EXCEPTION,
        TURN_ERROR_INTERRUPTED,            /* turn_process_interrupt reached it */
        TURN_ERROR_TOOL,                   /* a tool's error that the code did not catch */
        TURN_ERROR_KIND_MAX,
};
STRING_TABLE_DECLARE(turn_error_kind);     /* "ok", "syntax", "exception", "interrupted", "tool" */

/* Spans are valid during the callback. Text is valid UTF-8. */
struct turn_reply {
        enum turn_error_kind kind;
        const char *error_type; size_t error_type_len;     /* "ValueError"; empty when TURN_OK */
        const char *error; size_t error_len;               /* the traceback with the code's own lines */
        const char *tool_error; size_t tool_error_len;     /* TURN_ERROR_TOOL: a JSON object (parsed, not understood), else empty */
};

struct turn_callbacks {
        void (*begun)(struct turn_process *t, void *user);
        /* As it comes, of everything that writes to descriptor 1 or 2; also between actions, if something in the background writes. What an
         * action wrote comes before its `done`. */
        void (*output)(struct turn_process *t, int stream /* 1, 2 */, const char *p, size_t n, void *user);
        /* SUBMIT(**outputs) was called: `outputs` is a JSON object, strictly parsed. 0: accepted, the action is about to end, `done`
         * follows. -errno with a text: the code sees it as an exception of that text, and may try again. At most one is accepted an action:
         * after that it is refused before it comes here. */
        int (*submit)(struct turn_process *t, uint64_t action, const char *outputs, size_t n, struct error *why, void *user);
        void (*done)(struct turn_process *t, uint64_t action, const struct turn_reply *reply, void *user);
        /* Once; every process of the turn is dead. An action that was executing has ended without `done`. The object is gone when it returns. */
        void (*ended)(struct turn_process *t, const struct turn_end *end, void *user);
};

struct turn_spec {                         /* read during the call */
        /* A JSON object, checked by the caller; what the driver does not know in it is ignored:
         *   "tools":   [{"name", "description"?, "parameters"?: a JSON schema whose "properties" are the arguments in order, with "default" and
         *              "description" of their own, and "required"}]. Each becomes a function; llm_query(prompt) and
         *              llm_query_batched(prompts) are there always.
         *   "outputs": [{"name", "type"?, "description"?, "required"?, "default"?}]: SUBMIT's signature and help. Nothing is checked by it. */
        const char *setup; size_t setup_len;
        const char *secret;                /* X-Broker-Secret, [0-9A-Za-z_-]{1,128} */
        const char *broker;                /* "unix:/path", "unix:@abstract" or "tcp:127.0.0.1:8765", as seen from inside */
        const char *cwd;                   /* "/workspace"; where it cannot be entered, the turn ends (TURN_END_START) */
};
/* The interpreter is READY and has no turn: else -EAGAIN or -EBUSY. */
int turn_process_start(struct interpreter *in, const struct turn_spec *spec, const struct turn_callbacks *cb, void *user,
                       struct turn_process **ret, struct error *e);
/* One action at a time: -EBUSY. Before `begun` too: it waits. `action` comes back in `submit` and `done`. `variables` is a JSON object, or
 * NULL. -ENODATA: code is empty; -EFBIG; -EINVAL: NUL or no UTF-8 in code; -ESHUTDOWN: it is ending. */
int turn_process_execute(struct turn_process *t, uint64_t action, const char *code, size_t code_len, const char *variables, size_t variables_len,
                         struct error *e);
/* Raises an exception in the code of the executing action (SIGINT to the main process, from outside). `done` follows if the code yields; when to
 * kill is the caller's decision. Without an executing action: no effect, 0. */
int turn_process_interrupt(struct turn_process *t);
/* SIGKILL to every process of the turn; `ended` follows. Idempotent, at any moment until `ended`. */
void turn_process_kill(struct turn_process *t);
/* CPU time of all its processes so far: `done` runs once with -1 where it is not known. Not after `ended`. */
int turn_process_usage(struct turn_process *t, void (*done)(struct turn_process *t, int64_t cpu_us, void *user), void *user);
/* Stops or resumes reading its output: whoever cannot take more lets the code wait. */
void turn_process_hold(struct turn_process *t, bool hold);
