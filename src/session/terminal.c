/* See terminal.h. The object is in its session's list until it is forgotten; its memory stays until its exec has ended, and holds the
 * session by a passive use as long. Viewers are told from an idle handle, once a turn, so nobody is called from inside a call. */
#include <string.h>

#include "base/strv.h"
#include "session/process_internal.h"
#include "session/terminal.h"

struct terminal {
        struct terminal *next;             /* in the session's list, newest first */
        struct session *session;
        struct session_use use;
        struct sandbox_exec *exec;         /* while it runs */
        struct terminal_viewer *viewers;
        size_t n_viewers;
        char *ring;                        /* TERMINAL_KEEP bytes; byte n of the output is at n modulo that */
        uint64_t end;                      /* bytes of output so far */
        struct buf input;                  /* what the program has not read */
        uv_idle_t notice;
        int64_t started_ms, ended_ms;
        int exit_code;
        uint16_t rows, cols;
        unsigned id;
        bool held, forgotten, room_wanted;
};

static uint64_t first_kept(const struct terminal *t) { return t->end > TERMINAL_KEEP ? t->end - TERMINAL_KEEP : 0; }

/* ---- the end ------------------------------------------------------------------------------------------------------------------- */

static void free_terminal(uv_handle_t *h) {
        struct terminal *t = h->data;
        buf_release(&t->input);
        free(t->ring);
        free(t);
}

static void dispose(struct terminal *t) {
        session_use_end(&t->use);
        uv_close((uv_handle_t *)&t->notice, free_terminal);
}

static void unlink_terminal(struct terminal *t) {
        for (struct terminal **at = &t->session->terminals; *at; at = &(*at)->next) {
                if (*at == t) {
                        *at = t->next;
                        t->session->n_terminals--;
                        return;
                }
        }
}

void terminal_detach(struct terminal_viewer *v) {
        struct terminal *t = TAKE_PTR(v->terminal);
        if (!t)
                return;
        for (struct terminal_viewer **at = &t->viewers; *at; at = &(*at)->next) {
                if (*at == v) {
                        *at = v->next;
                        t->n_viewers--;
                        break;
                }
        }
        session_use_end(&v->use);
        if (t->exec && t->held && !t->viewers) {       /* nobody is slow any more */
                t->held = false;
                exec_hold(t->exec, false);
        }
}

static void forget(struct terminal *t) {
        if (t->forgotten)
                return;
        t->forgotten = true;
        unlink_terminal(t);
        while (t->viewers) {
                struct terminal_viewer *v = t->viewers;
                terminal_detach(v);
                v->closed(v);
        }
        if (!t->exec)
                dispose(t);
}

static void on_session_ends(struct session_use *u) { forget(container_of(u, struct terminal, use)); }

void terminal_close(struct terminal *t) {
        if (t->exec)
                (void)exec_kill(t->exec);
        forget(t);
}

/* ---- output ---------------------------------------------------------------------------------------------------------------------- */

/* Are all that look more than half of what is kept behind? */
static bool all_are_slow(const struct terminal *t) {
        for (const struct terminal_viewer *v = t->viewers; v; v = v->next)
                if (t->end - v->at <= TERMINAL_KEEP / 2)
                        return false;
        return t->viewers != NULL;
}

static void hold_or_go(struct terminal *t) {
        bool hold = all_are_slow(t);
        if (t->exec && hold != t->held) {
                t->held = hold;
                exec_hold(t->exec, hold);
        }
}

static void tell(uv_idle_t *h) {
        struct terminal *t = h->data;
        bool room = t->room_wanted && t->input.len < TERMINAL_INPUT_MAX / 2;
        uv_idle_stop(h);
        t->room_wanted = t->room_wanted && !room;
        /* A viewer may detach itself in its callback; no other. */
        for (struct terminal_viewer *v = t->viewers, *next; v; v = next) {
                next = v->next;
                if (room && v->waits_for_room) {
                        v->waits_for_room = false;
                        v->room(v);
                        if (v->terminal != t)
                                continue;
                }
                v->more(v);
        }
        if (!t->forgotten)
                hold_or_go(t);
}

static void notify(struct terminal *t) {
        if (!t->forgotten)
                uv_idle_start(&t->notice, tell);
}

static void on_output(struct sandbox_exec *x, int stream, const void *bytes, size_t n, void *user) {
        struct terminal *t = user;
        const char *p = bytes;
        while (n > 0) {
                size_t at = (size_t)(t->end % TERMINAL_KEEP), piece = MIN2(n, TERMINAL_KEEP - at);
                memcpy(t->ring + at, p, piece);
                t->end += piece;
                p += piece;
                n -= piece;
        }
        hold_or_go(t);
        notify(t);
}

size_t terminal_peek(struct terminal_viewer *v, const char **ret, uint64_t *ret_lost) {
        const struct terminal *t = v->terminal;
        uint64_t first = first_kept(t);
        *ret_lost = v->at < first ? first - v->at : 0;
        v->at += *ret_lost;
        size_t at = (size_t)(v->at % TERMINAL_KEEP);
        *ret = t->ring + at;
        return (size_t)MIN2(t->end - v->at, (uint64_t)(TERMINAL_KEEP - at));
}

void terminal_took(struct terminal_viewer *v, size_t n) {
        v->at += n;
        ASSERT(v->at <= v->terminal->end);
        hold_or_go(v->terminal);
}

/* ---- input ----------------------------------------------------------------------------------------------------------------------- */

static void feed(struct terminal *t) {
        while (t->exec && t->input.len > 0) {
                ssize_t n = exec_write(t->exec, t->input.data, t->input.len);
                if (n <= 0) {
                        if (n < 0)
                                buf_reset(&t->input);  /* nobody will read it */
                        break;
                }
                buf_consume(&t->input, (size_t)n);
        }
        if (t->room_wanted && t->input.len < TERMINAL_INPUT_MAX / 2)
                notify(t);
}

static void on_writable(struct sandbox_exec *x, void *user) { feed(user); }

ssize_t terminal_input(struct terminal_viewer *v, const char *p, size_t n) {
        struct terminal *t = v->terminal;
        if (!t->exec)
                return -EPIPE;
        size_t take = MIN2(n, TERMINAL_INPUT_MAX - t->input.len);
        int r = take ? buf_add(&t->input, p, take) : 0;
        if (r < 0)
                return r;
        v->waits_for_room = take < n;
        t->room_wanted |= take < n;
        feed(t);
        return (ssize_t)take;
}

int terminal_resize(struct terminal *t, uint16_t rows, uint16_t cols) {
        if (rows < 1 || rows > TERMINAL_SIZE_MAX || cols < 1 || cols > TERMINAL_SIZE_MAX)
                return -ERANGE;
        if (!t->exec)
                return -EPIPE;
        int r = exec_tty_resize(t->exec, rows, cols);
        if (r < 0)
                return r;
        t->rows = rows;
        t->cols = cols;
        notify(t);
        return 0;
}

int terminal_signal(struct terminal *t, int sig) { return t->exec ? exec_signal(t->exec, sig) : -EPIPE; }

/* ---- the beginning ----------------------------------------------------------------------------------------------------------------- */

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct terminal *t = user;
        t->exec = NULL;
        t->exit_code = process_exit_code(end);
        t->ended_ms = wall_ms();
        if (t->forgotten)
                dispose(t);
        else
                notify(t);
}

static int start(struct terminal *t, const struct terminal_spec *spec, struct error *e) {
        static const char *const shell[] = { "/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l", NULL };
        static const char term[] = "TERM=xterm-256color";
        struct session *s = t->session;
        struct sandbox *sb = session_sandbox(s);
        struct exec_tty tty = { .rows = t->rows, .cols = t->cols };
        const char *base = session_workdir(s);
        _cleanup_free_ char *cwd = NULL;
        char **env = NULL, **more = NULL;
        struct exec_spec x = {
                .argv = spec->argv ? spec->argv : shell, .tty = &tty, .stdin_fd = -1, .output = on_output, .writable = on_writable, .output_bytes = UINT64_MAX,
        };
        session_user(s, &x.uid, &x.gid);
        if (spec->user_given) {
                x.uid = spec->uid;
                x.gid = spec->gid;
        }
        int r = strv_push(&more, term);
        for (const char *const *v = spec->env; r == 0 && v && *v; v++)
                r = strv_push(&more, *v);
        if (r == 0 && !(env = session_environment(s, x.uid, (const char *const *)more)))
                r = -ENOMEM;
        bool relative = spec->cwd && spec->cwd[0] && spec->cwd[0] != '/';
        if (r == 0 && asprintf(&cwd, "%s%s%s", relative ? base : "", relative ? "/" : "", spec->cwd && spec->cwd[0] ? spec->cwd : base) < 0) {
                cwd = NULL;
                r = -ENOMEM;
        }
        x.env = (const char *const *)env;
        x.cwd = cwd;
        const char *still = session_stands_still(s);
        if (r < 0)
                error_set(e, r, "open a terminal");
        else if (still)
                r = error_say(e, -EBUSY, "%s", still);
        else
                r = sb ? sandbox_exec(sb, &x, on_exited, t, &t->exec, e) : error_say(e, -ESHUTDOWN, "the session has ended");
        strv_free(more);
        strv_free(env);
        return r;
}

static int take_place(struct session *s, struct error *e) {
        struct terminal *oldest = NULL;
        if (s->n_terminals < TERMINALS_MAX)
                return 0;
        for (struct terminal *t = s->terminals; t; t = t->next)
                if (!t->exec && !t->viewers)
                        oldest = t;
        if (!oldest)
                return error_say(e, -EUSERS, "%d terminals are open in this session", TERMINALS_MAX);
        forget(oldest);
        return 0;
}

int terminal_open(struct sessions *ss, const char *session, const struct terminal_spec *spec, struct terminal **ret, struct error *e) {
        struct terminal *t = calloc(1, sizeof *t);
        if (t)
                t->ring = malloc(TERMINAL_KEEP);
        if (!t || !t->ring) {
                free(t);
                return error_set(e, -ENOMEM, "open a terminal");
        }
        int r = session_use_begin(ss, session, &t->use, on_session_ends);
        if (r < 0) {
                free(t->ring);
                free(t);
                return error_say(e, r, "the session is not there to be used");
        }
        struct session *s = t->session = t->use.session;
        t->rows = spec->rows;
        t->cols = spec->cols;
        t->started_ms = wall_ms();
        buf_init(&t->input, TERMINAL_INPUT_MAX);
        uv_idle_init(ss->cfg.loop, &t->notice);
        t->notice.data = t;
        r = take_place(s, e);
        if (r == 0)
                r = start(t, spec, e);
        if (r < 0) {
                dispose(t);
                return r;
        }
        session_use_passive(&t->use);
        t->id = ++s->last_terminal;
        t->next = s->terminals;
        s->terminals = t;
        s->n_terminals++;
        *ret = t;
        return 0;
}

/* ---- looking ----------------------------------------------------------------------------------------------------------------------- */

struct terminal *terminal_find(struct sessions *ss, const char *session, unsigned id) {
        struct session *s = session_find(ss, session);
        for (struct terminal *t = s ? s->terminals : NULL; t; t = t->next)
                if (t->id == id)
                        return t;
        return NULL;
}

void terminal_view(const struct terminal *t, struct terminal_view *ret) {
        *ret = (struct terminal_view){
                .id = t->id, .running = t->exec != NULL, .exit_code = t->exit_code, .rows = t->rows, .cols = t->cols, .viewers = t->n_viewers,
                .first = first_kept(t), .end = t->end, .started_ms = t->started_ms, .ended_ms = t->ended_ms,
        };
}

int terminals_list(struct sessions *ss, const char *session, int (*each)(const struct terminal_view *v, void *user), void *user) {
        struct session *s = session_find(ss, session);
        int r = s ? 0 : -ENOENT;
        for (struct terminal *t = s ? s->terminals : NULL; t && r == 0; t = t->next) {
                struct terminal_view v;
                terminal_view(t, &v);
                r = each(&v, user);
        }
        return r;
}

int terminal_attach(struct terminal *t, struct terminal_viewer *v, uint64_t from) {
        if (t->n_viewers >= TERMINAL_VIEWERS_MAX)
                return -EUSERS;
        int r = session_use_begin(t->session->ss, t->session->id, &v->use, NULL);
        if (r < 0)
                return r;
        v->terminal = t;
        v->at = MIN2(from, t->end);
        v->waits_for_room = false;
        v->next = t->viewers;
        t->viewers = v;
        t->n_viewers++;
        notify(t);
        return 0;
}
