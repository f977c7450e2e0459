/* Background commands: their ids and places, their logs, their standard input. */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "session/process_internal.h"
#include "store/rundir.h"

/* ---- places ------------------------------------------------------------------------------------------------------------------- */

static struct process *oldest_exited(struct session *s) {
        struct process *oldest = NULL;
        for (struct process *p = s->processes; p; p = p->next)
                if (p->id > 0 && p->state == PROCESS_EXITED)
                        oldest = p;            /* the list is newest first */
        return oldest;
}

static char *shown_text(const struct process_spec *spec) {
        _cleanup_buf_ struct buf b = BUF_INIT(PROCESS_SHOWN_MAX);
        int r = 0;
        if (spec->shell)
                r = buf_add(&b, spec->shell, strnlen(spec->shell, PROCESS_SHOWN_MAX - 1));
        for (const char *const *w = spec->shell ? NULL : spec->argv; r == 0 && w && *w; w++)
                r = buf_printf(&b, "%s%s", b.len ? " " : "", *w);
        return r == -ENOMEM ? NULL : buf_steal(&b);
}

int process_take_place(struct process *p, const struct process_spec *spec, struct error *e) {
        struct session *s = p->session;
        if (s->n_background >= PROCESSES_KEPT_MAX) {
                struct process *old = oldest_exited(s);
                if (!old)
                        return error_say(e, -EUSERS, "%u background commands run in this session", PROCESSES_KEPT_MAX);
                process_forget(old);
        }
        p->text = shown_text(spec);
        return p->text ? 0 : error_set(e, -ENOMEM, "start a command");
}

struct process *process_find(struct sessions *ss, const char *session, unsigned id) {
        struct session *s = session_find(ss, session);
        for (struct process *p = s && id > 0 ? s->processes : NULL; p; p = p->next)
                if (p->id == id)
                        return p;
        return NULL;
}

void process_view(const struct process *p, struct process_view *ret) {
        *ret = (struct process_view){
                .id = p->id, .state = p->state, .text = p->text, .exit_code = p->end.exit_code, .timed_out = p->end.timed_out,
                .output_limit = p->end.output_limit, .oom = p->end.oom, .session_ended = p->end.session_ended, .merged = p->merge, .started_ms = p->started_ms, .ended_ms = p->ended_ms,
                .out_bytes = p->out.total, .err_bytes = p->err.total,
        };
}

int processes_list(struct sessions *ss, const char *session, int (*each)(const struct process_view *v, void *user), void *user) {
        struct session *s = session_find(ss, session);
        int r = s ? 0 : -ENOENT;
        for (struct process *p = s ? s->processes : NULL; p && r == 0; p = p->next) {
                struct process_view v;
                if (p->id == 0)
                        continue;
                process_view(p, &v);
                r = each(&v, user);
        }
        return r;
}

/* ---- logs ----------------------------------------------------------------------------------------------------------------------- */

static int log_fd(struct process *p, int stream, int flags) {
        char name[SESSION_ID_SIZE + 32];
        snprintf(name, sizeof name, "%s/%u.%s", p->session->id, p->id, stream == 2 ? "err" : "out");
        int fd = openat(p->ss->cfg.runs_dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
        return fd < 0 ? -errno : fd;
}

static void remove_logs(struct process *p) {
        char name[SESSION_ID_SIZE + 32];
        for (int stream = 1; stream <= 2; stream++) {
                snprintf(name, sizeof name, "%s/%u.%s", p->session->id, p->id, stream == 2 ? "err" : "out");
                (void)unlinkat(p->ss->cfg.runs_dirfd, name, 0);
        }
}

/* Nothing is kept in memory: who wants the output reads the logs. */
int process_open_logs(struct process *p) {
        _cleanup_close_ int dir = rundir_open(p->ss->cfg.runs_dirfd, p->session->id);
        if (dir < 0)
                return dir;
        p->session->has_logs = true;
        p->id = p->session->next_process++;
        struct output_capture *all[] = { &p->out, &p->err };
        for (int i = 0; i < 2; i++) {
                int fd = p->merge && i == 1 ? -1 : log_fd(p, i + 1, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
                if (fd < 0 && !(p->merge && i == 1)) {
                        p->id = 0;
                        return fd;
                }
                capture_init(all[i], 0, 0, PROCESS_LOG_MAX, fd);
        }
        return 0;
}

int process_log(struct process *p, int stream) { return log_fd(p, p->merge ? 1 : stream, O_RDONLY); }

/* ---- followers -------------------------------------------------------------------------------------------------------------------- */

static void on_notice(uv_idle_t *h) {
        struct process *p = h->data;
        uv_idle_stop(h);
        p->to_tell = p->followers;
        while (p->to_tell) {                   /* each may unfollow, itself or another */
                struct process_follower *f = p->to_tell;
                p->to_tell = f->next;
                f->more(f);
        }
}

void process_notify(struct process *p) {
        if (p->followers && !uv_is_active((uv_handle_t *)&p->notice))
                uv_idle_start(&p->notice, on_notice);
}

int process_follow(struct process *p, struct process_follower *f) {
        if (p->n_followers >= PROCESS_FOLLOWERS_MAX)
                return -EUSERS;
        if (!p->notice_made) {
                uv_idle_init(p->ss->cfg.loop, &p->notice);
                p->notice.data = p;
                p->notice_made = true;
        }
        f->process = p;
        f->next = p->followers;
        f->at = &p->followers;
        if (f->next)
                f->next->at = &f->next;
        p->followers = f;
        p->n_followers++;
        return 0;
}

void process_unfollow(struct process_follower *f) {
        struct process *p = f->process;
        if (!p)
                return;
        if (p->to_tell == f)
                p->to_tell = f->next;
        *f->at = f->next;
        if (f->next)
                f->next->at = f->at;
        f->process = NULL;
        p->n_followers--;
}

void process_lose_followers(struct process *p) {
        struct process_view end;
        process_view(p, &end);
        end.state = PROCESS_EXITED;
        while (p->followers) {
                struct process_follower *f = p->followers;
                process_unfollow(f);
                f->gone(f, &end);
        }
}

/* ---- forgetting ------------------------------------------------------------------------------------------------------------------- */

void process_forget(struct process *p) {
        if (p->forgotten)
                return;
        if (p->state == PROCESS_EXITED) {
                remove_logs(p);
                process_unlink(p);
                process_dispose(p);
                return;
        }
        p->forgotten = true;                   /* it goes when it has ended */
        remove_logs(p);
        process_kill(p);
}

void processes_end_all(struct session *s) {
        for (struct process *p = s->processes, *next; p; p = next) {
                next = p->next;
                if (p->state != PROCESS_EXITED)
                        continue;              /* it holds the session's object, and disposes of itself */
                process_unlink(p);
                process_dispose(p);
        }
}

/* ---- standard input ---------------------------------------------------------------------------------------------------------------- */

struct process_input { char *bytes; size_t at, n; bool close_after; void (*done)(int r, void *user); void *user; };

unsigned process_input_id(const struct process *p) { return p->input_id; }

struct process *process_with_input(struct sessions *ss, const char *session, unsigned id) {
        struct session *s = session_find(ss, session);
        for (struct process *p = s && id > 0 ? s->processes : NULL; p; p = p->next)
                if (p->input_id == id)
                        return p;
        return NULL;
}

void process_input_end(struct process *p, int r) {
        struct process_input *in = TAKE_PTR(p->input);
        if (!in)
                return;
        in->done(r, in->user);
        free(in->bytes);
        free(in);
}

void process_input_go_on(struct sandbox_exec *x, void *user) {
        struct process *p = user;
        struct process_input *in = p->input;
        if (!in)
                return;
        while (in->at < in->n) {
                ssize_t n = exec_write(x, in->bytes + in->at, in->n - in->at);
                if (n < 0) {
                        process_input_end(p, (int)n);
                        return;
                }
                in->at += (size_t)n;
                if (n == 0 || in->at < in->n)
                        return;                /* `writable` comes when there is room */
        }
        if (in->close_after)
                exec_close_input(x);
        process_input_end(p, 0);
}

int process_write(struct process *p, const void *bytes, size_t n, bool close_after, void (*done)(int r, void *user), void *user) {
        if (!p->keep_input)
                return -ENOTCONN;
        if (!p->exec && p->state != PROCESS_WAITING)
                return -EPIPE;
        if (p->input)
                return -EBUSY;
        struct process_input *in = calloc(1, sizeof *in);
        char *copy = malloc(n + 1);
        if (!in || !copy) {
                free(in);
                free(copy);
                return -ENOMEM;
        }
        memcpy(copy, bytes, n);
        *in = (struct process_input){ .bytes = copy, .n = n, .close_after = close_after, .done = done, .user = user };
        p->input = in;
        if (p->exec)
                process_input_go_on(p->exec, p);
        return 0;
}
