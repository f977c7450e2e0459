/* The life of a turn's process: see interpreter.h.
 *
 *     FORKING ──first word──> ADOPTING ──it has a group──> SPARE ──a turn──> BEGINNING ──> IDLE <──> BUSY
 *         └───────────────┴──────────── anything wrong, or killed ─────────┴──────────────┴──> ENDING ──> finished
 *
 * It is finished when two things are known: that nothing of it is left (the spawner says so when it has removed the group; one that never got a group
 * has run nothing that could leave anything), and how its main process ended (the zygote is its parent). */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"
#include "rlm/interpreter_internal.h"

static const char *const reason_names[] = { "killed", "exited", "protocol", "submit", "start", "sandbox" };
STRING_TABLE(turn_end_reason, reason_names, TURN_END_MAX)
static const char *const kind_names[] = { "ok", "syntax", "exception", "interrupted", "tool" };
STRING_TABLE(turn_error_kind, kind_names, TURN_ERROR_KIND_MAX)

#define HANGUP_MS 200          /* whoever closes its socket is about to end, and may say how; else it is killed */
#define EXIT_DRIVER_FIRST 70   /* with which driver.py ends where it cannot go on */
#define EXIT_DRIVER_LAST 73

/* ---- the object ---- */

static void turn_free(struct turn_process *t) {
        turn_io_release(t);
        fd_close(t->pidfd);
        buf_release(&t->begin);
        buf_release(&t->next);
        free(t);
}

static void on_closed(uv_handle_t *h) {
        struct turn_process *t = h->data;
        if (--t->closing == 0)
                turn_free(t);
}

void turn_close_handle(struct turn_process *t, uv_handle_t *h) {
        h->data = t;
        t->closing++;
        uv_close(h, on_closed);
}

static void close_all(struct turn_process *t) {
        t->closing++;
        turn_io_close(t);
        if (t->death_polled)
                turn_close_handle(t, (uv_handle_t *)&t->death);
        if (t->grace_made)
                turn_close_handle(t, (uv_handle_t *)&t->grace);
        t->death_polled = t->grace_made = false;
        if (--t->closing == 0)
                turn_free(t);
}

int turn_new(struct interpreter *in, struct turn_process **ret) {
        int far[3];
        struct turn_process *t = calloc(1, sizeof *t);
        if (!t)
                return -ENOMEM;
        *t = (struct turn_process){ .interpreter = in, .loop = in->loop, .ref = ++in->last_ref, .control = -1, .pidfd = -1, .output = { { .fd = -1 }, { .fd = -1 } },
                                    .begin = BUF_INIT(BEGIN_MAX + FRAME_HEAD), .out = BUF_INIT(BEGIN_MAX + TURN_VARIABLES_MAX + TURN_CODE_MAX + 65536),
                                    .next = BUF_INIT(TURN_VARIABLES_MAX + TURN_CODE_MAX + 1024), .end.status = -1, .end.cpu_us = -1 };
        frames_init(&t->frames);
        int r = turn_io_open(t, far);
        if (r < 0) {
                turn_free(t);
                return r;
        }
        r = interpreter_fork(in, t, far);
        for (int i = 0; i < 3; i++)
                fd_close(far[i]);
        if (r == 0)
                r = turn_io_start(t);
        if (r < 0) {
                close_all(t);          /* should the process be born: its socket is closed, and it ends */
                return r;
        }
        uv_timer_init(t->loop, &t->grace);
        t->grace.data = t;
        t->grace_made = true;
        t->at = &in->processes;
        t->next_in = in->processes;
        if (t->next_in)
                t->next_in->at = &t->next_in;
        in->processes = t;
        *ret = t;
        return 0;
}

static void unlink_turn(struct turn_process *t) {
        if (!t->at)
                return;
        *t->at = t->next_in;
        if (t->next_in)
                t->next_in->at = t->at;
        t->at = NULL;
}

/* ---- the end ---- */

static void say_status(struct turn_process *t) {
        struct turn_end *end = &t->end;
        int status = end->status;
        if (WIFEXITED(status) && WEXITSTATUS(status) >= EXIT_DRIVER_FIRST && WEXITSTATUS(status) <= EXIT_DRIVER_LAST)
                error_say(&end->error, -EPIPE, "the turn's descriptors were closed or misused: its process ended (status %d)", WEXITSTATUS(status));
        else if (WIFEXITED(status))
                error_say(&end->error, -EPIPE, "the turn's process exited with status %d", WEXITSTATUS(status));
        else
                error_say(&end->error, -EPIPE, "the turn's process was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

/* Its socket was closed: because it ended, or by its code, whereupon we killed it? */
static void settle_reason(struct turn_process *t) {
        struct turn_end *end = &t->end;
        if (end->reason == TURN_END_PROTOCOL && end->error.code == -EPIPE && end->status >= 0 && !(WIFSIGNALED(end->status) && WTERMSIG(end->status) == SIGKILL))
                end->reason = TURN_END_EXITED;
        if (end->reason == TURN_END_EXITED && end->status >= 0)
                say_status(t);
}

static void check_finished(struct turn_process *t) {
        if (t->finished || !t->empty || !t->status_known)
                return;
        struct interpreter *in = t->interpreter;
        turn_io_drain(t);
        if (t->finished)
                return;                /* the interpreter was freed by who got the output */
        t->finished = true;
        settle_reason(t);
        t->end.wall_ms = t->started_ms ? now_ms() - t->started_ms : 0;
        unlink_turn(t);
        bool tell = t->claimed;
        interpreter_gone(in, t);
        t->closing++;                  /* until the callback is back */
        close_all(t);
        in->telling = t;
        if (tell)
                t->cb.ended(t, &t->end, t->user);
        if (t->interpreter) {
                in->telling = NULL;
                interpreter_check_lost(in);
        }
        if (--t->closing == 0)
                turn_free(t);
}

static void set_reason(struct turn_process *t, enum turn_end_reason reason, int code, const char *text) {
        if (t->reason_set)
                return;
        t->reason_set = true;
        t->end.reason = reason;
        error_say(&t->end.error, code, "%s", text ? text : "the turn's process closed its control socket, or was killed");
}

static void stop(struct turn_process *t) {
        if (t->state == TURN_ENDING)
                return;
        t->state = TURN_ENDING;
        turn_io_stop(t);
        if (t->grace_made)
                uv_timer_stop(&t->grace);
}

void turn_fail(struct turn_process *t, enum turn_end_reason reason, int code, const char *text) {
        if (t->finished)
                return;
        set_reason(t, reason, code, text);
        stop(t);
        if (t->adopted && t->adopted_done)
                adopted_kill(t->adopted);
}

static void on_hangup_time(uv_timer_t *h) { turn_fail(h->data, TURN_END_PROTOCOL, -EPIPE, NULL); }

void turn_hung_up(struct turn_process *t) {
        if (t->finished || t->state == TURN_ENDING)
                return;
        set_reason(t, TURN_END_PROTOCOL, -EPIPE, NULL);
        stop(t);
        uv_timer_start(&t->grace, on_hangup_time, HANGUP_MS, 0);
}

void turn_forked(struct turn_process *t, int r) {
        if (r == 0 || t->finished)
                return;
        t->empty = t->status_known = true;
        struct error e = { 0 };
        error_set(&e, r, "fork the turn's process");
        turn_fail(t, TURN_END_START, r, e.text);
        check_finished(t);
}

void turn_reaped(struct turn_process *t, int status) {
        t->end.status = status;
        t->status_known = true;
        bool before = t->state < TURN_BEGINNING;
        turn_fail(t, before ? TURN_END_START : TURN_END_EXITED, -EPIPE, before ? "the turn's process ended before it began" : "the turn's process ended");
        if (!t->adopted)
                t->empty = true;       /* it had run nothing */
        check_finished(t);
}

void turn_lost(struct turn_process *t, const struct error *e) {
        bool vague = t->end.reason == TURN_END_EXITED || (t->end.reason == TURN_END_PROTOCOL && t->end.error.code == -EPIPE);
        if (!t->status_known && vague)
                t->reason_set = false;         /* all died at once, and its own death was seen first */
        t->status_known = true;
        set_reason(t, TURN_END_SANDBOX, e->code, e->text);
        turn_fail(t, TURN_END_SANDBOX, e->code, e->text);
        if (!t->adopted)
                t->empty = true;
        check_finished(t);
}

void turn_abandon(struct turn_process *t) {
        t->finished = true;
        t->interpreter = NULL;
        unlink_turn(t);
        if (t->adopted)
                adopted_forget(t->adopted);
        turn_io_stop(t);
        close_all(t);
}

/* ---- the beginning ---- */

static void on_death(uv_poll_t *p, int status, int events) {
        struct turn_process *t = p->data;
        uv_poll_stop(p);
        /* What it wrote last comes before its end is told; its status comes from its parent. */
        turn_fail(t, t->state < TURN_BEGINNING ? TURN_END_START : TURN_END_EXITED, -EPIPE, "the turn's process ended");
}

static void send_begin(struct turn_process *t) {
        t->state = TURN_BEGINNING;
        int r = frame_put(&t->out, FRAME_BEGIN, t->begin.data, t->begin.len);
        buf_release(&t->begin);
        if (r == 0)
                r = turn_io_send(t);
        if (r < 0)
                turn_fail(t, TURN_END_START, r, "the turn's process could not be told to begin");
}

static void on_adopted(struct sandbox_adopted *a, void *user) {
        struct turn_process *t = user;
        t->adopted_done = true;
        if (t->state == TURN_ENDING) {
                adopted_kill(a);
                return;
        }
        t->state = TURN_SPARE;
        if (t->interpreter)
                t->interpreter->deaths = 0;
        if (t->claimed)
                send_begin(t);
}

static void on_empty(struct sandbox_adopted *a, int r, int64_t cpu_us, void *user) {
        struct turn_process *t = user;
        t->adopted = NULL;
        t->end.cpu_us = cpu_us;
        if (r == -ESHUTDOWN) {
                turn_fail(t, TURN_END_SANDBOX, r, "the sandbox has ended");
                /* Its end is the end of all in it; the zygote's follows. */
        } else if (r < 0) {
                struct error e = { 0 };
                error_set(&e, r, "give the turn's process a control group");
                turn_fail(t, TURN_END_START, r, e.text);
        } else
                turn_fail(t, TURN_END_EXITED, -EPIPE, "the turn's process ended");
        t->empty = true;
        check_finished(t);
}

void turn_said_who(struct turn_process *t, int pid, uint32_t uid) {
        if (t->pid == 0) {
                t->pid = pid;
                t->uid = uid;
        } else if (t->state == TURN_BEGINNING && (pid != t->pid || uid != t->uid + TURN_UID))
                turn_fail(t, TURN_END_START, -EPERM, "the turn's process has not become the user that it must be");
}

static const struct adopted_callbacks adopted_callbacks = { .adopted = on_adopted, .empty = on_empty };

/* Its number stays its own while it lives, and that it lived when this descriptor was open is known when it says that it has begun. */
static void hello(struct turn_process *t) {
        t->pidfd = t->pid > 0 ? (int)syscall(SYS_pidfd_open, t->pid, 0) : -1;
        int r = t->pidfd < 0 ? -errno : uv_poll_init(t->loop, &t->death, t->pidfd);
        if (r == 0) {
                t->death.data = t;
                t->death_polled = true;
                uv_poll_start(&t->death, UV_READABLE, on_death);
                r = sandbox_adopt(t->interpreter->sandbox, t->pidfd, &adopted_callbacks, t, &t->adopted);
        }
        if (r < 0)
                turn_fail(t, TURN_END_START, r, "the turn's process could not be taken over");
        else
                t->state = TURN_ADOPTING;
}

/* ---- what it says ---- */

static void send_next(struct turn_process *t) {
        if (!t->next_waits || t->state != TURN_IDLE || t->interrupting)
                return;
        t->next_waits = false;
        t->state = TURN_BUSY;
        t->action = t->next_action;
        t->submits = 0;
        t->accepted = t->graced = false;
        int r = buf_add(&t->out, t->next.data, t->next.len);
        buf_release(&t->next);
        if (r == 0)
                r = turn_io_send(t);
        if (r < 0)
                turn_fail(t, TURN_END_PROTOCOL, r == -EPIPE ? r : -EPROTO, r == -EPIPE ? NULL : "the code could not be sent");
}

static void on_grace(uv_timer_t *h) {
        struct turn_process *t = h->data;
        if (t->graced) {
                turn_fail(t, TURN_END_SUBMIT, -ETIMEDOUT, "the code went on after its SUBMIT was accepted, and was killed");
                return;
        }
        t->graced = true;
        turn_process_interrupt(t);
        uv_timer_start(&t->grace, on_grace, TURN_SUBMIT_GRACE_MS, 0);
}

static int judge_submit(struct turn_process *t, const struct frame_submit *s, struct error *why) {
        struct json v;
        if (t->accepted)
                return error_say(why, -EALREADY, "SUBMIT was accepted already");
        int r = json_parse(s->json, s->n, &v, why);
        if (r < 0)
                return error_prefix(why, "the outputs are not valid JSON");
        if (v.type != JSON_OBJECT)
                return error_say(why, -EINVAL, "the outputs are not an object");
        return t->cb.submit(t, s->action, v.p, v.n, why, t->user);
}

static void on_submit(struct turn_process *t, const struct frame *f) {
        struct frame_submit s;
        if (t->state != TURN_BUSY || frame_submit_decode(f, &s) < 0 || s.action != t->action || ++t->submits > TURN_SUBMITS_MAX) {
                turn_fail(t, TURN_END_PROTOCOL, -EPROTO, "it submitted what no driver submits, or too often");
                return;
        }
        struct error why = { 0 };
        int r = judge_submit(t, &s, &why);
        if (t->finished || t->state != TURN_BUSY)
                return;
        if (r == 0) {
                t->accepted = true;
                uv_timer_start(&t->grace, on_grace, TURN_SUBMIT_GRACE_MS, 0);
        }
        if (frame_put_answer(&t->out, s.sequence, r == 0, why.text) < 0 || turn_io_send(t) < 0)
                turn_fail(t, TURN_END_PROTOCOL, -EPIPE, NULL);
}

static void on_done(struct turn_process *t, const struct frame *f) {
        struct turn_reply reply;
        uint64_t action;
        if (t->state != TURN_BUSY || frame_done_decode(f, &action, &reply) < 0 || action != t->action) {
                turn_fail(t, TURN_END_PROTOCOL, -EPROTO, "it answered what no driver answers");
                return;
        }
        uv_timer_stop(&t->grace);
        turn_io_drain(t);
        if (t->finished || t->state != TURN_BUSY)
                return;
        t->state = TURN_IDLE;
        t->cb.done(t, action, &reply, t->user);
}

static void on_begun(struct turn_process *t) {
        t->state = TURN_IDLE;
        if (t->cb.begun)
                t->cb.begun(t, t->user);
        if (t->finished)
                return;
        interpreter_think(t->interpreter);
        send_next(t);
}

void turn_frame(struct turn_process *t, const struct frame *f) {
        if (f->kind == FRAME_HELLO && t->state == TURN_FORKING)
                hello(t);
        else if (f->kind == FRAME_BEGUN && t->state == TURN_BEGINNING)
                on_begun(t);
        else if (f->kind == FRAME_FAILED && t->state == TURN_BEGINNING) {
                char text[FRAME_FAILED_MAX + 32];
                bool fine = utf8_valid(f->p, f->n);
                snprintf(text, sizeof text, "the turn cannot begin: %.*s", fine ? (int)f->n : 0, f->p);
                turn_fail(t, TURN_END_START, -EINVAL, text);
        } else if (f->kind == FRAME_SUBMIT)
                on_submit(t, f);
        else if (f->kind == FRAME_DONE)
                on_done(t, f);
        else
                turn_fail(t, TURN_END_PROTOCOL, -EPROTO, "it wrote what no driver writes to its control socket");
}

/* ---- what the daemon asks ---- */

static bool secret_ok(const char *s) {
        size_t n = s ? strlen(s) : 0;
        for (size_t i = 0; i < n; i++)
                if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z') || s[i] == '_' || s[i] == '-'))
                        return false;
        return n >= 1 && n <= 128;
}

static int put_begin(struct buf *b, const struct turn_spec *spec) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_field_text(&w, "cwd", spec->cwd);
        json_field_text(&w, "broker", spec->broker);
        json_field_text(&w, "secret", spec->secret);
        if (spec->setup)
                json_field_raw(&w, "setup", spec->setup, spec->setup_len);
        json_end_object(&w);
        return json_finish(&w);
}

int turn_process_start(struct interpreter *in, const struct turn_spec *spec, const struct turn_callbacks *cb, void *user,
                       struct turn_process **ret, struct error *e) {
        if (!in->ready || in->lost || in->ended_exec)
                return error_say(e, in->ready ? -ESHUTDOWN : -EAGAIN, "the interpreter is not ready");
        if (in->turn)
                return error_say(e, -EBUSY, "the interpreter has a turn");
        if (!secret_ok(spec->secret) || !spec->broker || !spec->cwd || spec->cwd[0] != '/' || spec->setup_len > TURN_SETUP_MAX)
                return error_say(e, -EINVAL, "the turn's specification is not valid");
        _cleanup_buf_ struct buf begin = BUF_INIT(BEGIN_MAX);
        int r = put_begin(&begin, spec);
        if (r < 0)
                return error_set(e, r, "begin a turn");
        struct turn_process *t = in->spare;
        if (!t)
                r = turn_new(in, &t);
        if (r < 0)
                return error_set(e, r, "begin a turn");
        in->spare = NULL;
        in->turn = t;
        t->begin = begin;
        begin = (struct buf)BUF_INIT(0);
        t->claimed = true;
        t->cb = *cb;
        t->user = user;
        t->started_ms = now_ms();
        *ret = t;
        if (t->state == TURN_SPARE)
                send_begin(t);
        return 0;
}

int turn_process_execute(struct turn_process *t, uint64_t action, const char *code, size_t code_len, const char *variables, size_t variables_len,
                         struct error *e) {
        if (t->state == TURN_ENDING || t->finished)
                return error_say(e, -ESHUTDOWN, "the turn has ended");
        if (t->state == TURN_BUSY || t->next_waits)
                return error_say(e, -EBUSY, "an action is executing");
        if (code_len == 0)
                return error_say(e, -ENODATA, "there is no code");
        if (code_len > TURN_CODE_MAX || variables_len > TURN_VARIABLES_MAX)
                return error_say(e, -EFBIG, "the code or its variables are too long");
        if (memchr(code, 0, code_len) || !utf8_valid(code, code_len))
                return error_say(e, -EINVAL, "the code holds a NUL, or is not UTF-8");
        int r = frame_put_execute(&t->next, action, code, code_len, variables ? variables : "", variables ? variables_len : 0);
        if (r < 0) {
                buf_release(&t->next);
                return error_set(e, r, "execute");
        }
        t->next_action = action;
        t->next_waits = true;
        send_next(t);
        return 0;
}

static void on_signalled(struct sandbox_adopted *a, void *user) {
        struct turn_process *t = user;
        t->interrupting = false;
        send_next(t);
}

int turn_process_interrupt(struct turn_process *t) {
        if (t->state != TURN_BUSY || t->interrupting || !t->adopted)
                return 0;
        int r = adopted_signal(t->adopted, SIGINT, on_signalled);
        t->interrupting = r == 0;
        return r;
}

void turn_process_kill(struct turn_process *t) { turn_fail(t, TURN_END_KILLED, -ECANCELED, "the turn was ended"); }

static void on_counted(struct sandbox_adopted *a, int64_t cpu_us, void *user) {
        struct turn_process *t = user;
        if (t->counted)
                t->counted(t, cpu_us, t->user_counted);
}

int turn_process_usage(struct turn_process *t, void (*done)(struct turn_process *t, int64_t cpu_us, void *user), void *user) {
        if (!t->adopted || !t->adopted_done)
                return -EAGAIN;
        int r = adopted_usage(t->adopted, on_counted);
        if (r == 0) {
                t->counted = done;
                t->user_counted = user;
        }
        return r;
}
