/* Terminals of a session: a shell on a terminal of its own, which lives on while nobody looks, and which several may look at.
 *
 * What it printed last is kept (TERMINAL_KEEP bytes); every viewer has a place of its own in it, so one that comes late or comes
 * back sees what it missed as far as it is kept, and a slow one does not hold back the others. The program is held back when all
 * viewers are slow; while nobody looks it runs freely, and the oldest output goes.
 *
 * A terminal that nobody looks at does not keep its session from being idle; each viewer does. It is forgotten when it is
 * closed or with its session; one that has ended, also when there is no place for another.
 *
 * Loop thread only. Callbacks run from the loop, never from inside a function of this header. */
#pragma once
#include "session/process.h"

#define TERMINAL_KEEP (256u * 1024)            /* bytes of output kept, of each */
#define TERMINALS_MAX 16                       /* of one session */
#define TERMINAL_VIEWERS_MAX 16                /* of one terminal */
#define TERMINAL_INPUT_MAX (64u * 1024)        /* bytes of input that the program has not read yet */
#define TERMINAL_SIZE_MAX 1000                 /* rows, columns */

struct terminal;

/* Lies in the viewer's own object. */
struct terminal_viewer {
        void (*more)(struct terminal_viewer *v);       /* there is something to read, or the terminal has ended, or its size has changed */
        void (*room)(struct terminal_viewer *v);       /* input is taken again, after it was not */
        void (*closed)(struct terminal_viewer *v);     /* the terminal is forgotten or its session ends: it is detached already */
        struct terminal *terminal;                     /* NULL: not attached */
        struct terminal_viewer *next;
        struct session_use use;
        uint64_t at;                                   /* its place: bytes since the beginning */
        bool waits_for_room;
};

struct terminal_spec {                     /* read during the call */
        const char *const *argv;           /* NULL: a login shell, bash where there is one */
        const char *const *env;            /* over the session's and TERM=xterm-256color; may be NULL */
        const char *cwd;                   /* as process_spec.cwd */
        bool user_given;
        uint32_t uid, gid;
        uint16_t rows, cols;
};
/* As process_start(); -EUSERS: TERMINALS_MAX run. */
int terminal_open(struct sessions *ss, const char *session, const struct terminal_spec *spec, struct terminal **ret, struct error *e);
struct terminal *terminal_find(struct sessions *ss, const char *session, unsigned id);         /* NULL: no such session or terminal */

struct terminal_view {
        unsigned id;
        bool running;
        int exit_code;                     /* ended */
        uint16_t rows, cols;
        size_t viewers;
        uint64_t first, end;               /* what of its output is kept: bytes since the beginning */
        int64_t started_ms, ended_ms;      /* wall; 0 = not yet */
};
void terminal_view(const struct terminal *t, struct terminal_view *ret);
int terminals_list(struct sessions *ss, const char *session, int (*each)(const struct terminal_view *v, void *user), void *user);     /* -ENOENT */

/* `from`: where to begin; what is not kept any more is left out. -EUSERS: TERMINAL_VIEWERS_MAX; else as session_use_begin(). */
int terminal_attach(struct terminal *t, struct terminal_viewer *v, uint64_t from);
void terminal_detach(struct terminal_viewer *v);   /* fine on one that is not attached */
/* What comes next for this viewer: bytes that lie together; 0: none now. They stay there until the loop runs again. *ret_lost:
 * bytes before them that are not kept any more (v->at is behind them already). */
size_t terminal_peek(struct terminal_viewer *v, const char **ret, uint64_t *ret_lost);
void terminal_took(struct terminal_viewer *v, size_t n);

/* Bytes taken; with less than n, `room` follows. -EPIPE: it has ended. */
ssize_t terminal_input(struct terminal_viewer *v, const char *p, size_t n);
int terminal_resize(struct terminal *t, uint16_t rows, uint16_t cols);     /* -ERANGE, -EPIPE */
int terminal_signal(struct terminal *t, int sig);                          /* to its first process; -EPIPE */
void terminal_close(struct terminal *t);           /* kills it and what it started, and forgets it */
