#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/strv.h"
#include "sandbox/capture.h"
#include "store/box.h"

struct box {
        struct sandbox *sandbox;
        char **argv, **env, *cwd;
        uint64_t timeout_ms;
        bool both, helper, decided;
        int fd;                            /* -1 without */
        struct output_capture out, err;
        struct box_result result;
        box_done done;
        void *user;
};

static void box_free(struct box *b) {
        if (!b)
                return;
        strv_free(b->argv);
        strv_free(b->env);
        free(b->cwd);
        fd_close(b->fd);
        capture_release(&b->out);
        capture_release(&b->err);
        free(b);
}

static int copy_list(const char *const *from, char ***to) {
        int r = strv_ensure(to);
        for (size_t i = 0; r == 0 && from && from[i]; i++)
                r = strv_push(to, from[i]);
        return r;
}

/* The first word counts: what happens to a sandbox that is being taken down is not news. */
static void decide(struct box *b, enum box_end end) {
        if (b->decided)
                return;
        b->decided = true;
        b->result.end = end;
}

static void fail(struct box *b, const struct error *e) {
        if (!b->decided)
                b->result.error = *e;
        decide(b, BOX_FAILED);
}

static void exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct box *b = user;
        b->result.status = end->status;
        if (!end->started && !end->sandbox_ended) {
                b->result.not_started = !b->decided;
                fail(b, &end->error);
        } else if (end->timed_out)
                decide(b, BOX_TIMED_OUT);
        else if (end->output_limit) {
                b->result.hit[LIMIT_OUTPUT] = true;
                decide(b, BOX_LIMIT);
        } else
                decide(b, end->sandbox_ended ? BOX_LIMIT : BOX_EXITED);
        sandbox_destroy(b->sandbox);
}

static void ready(struct sandbox *s, void *user) {
        struct box *b = user;
        struct error e = { 0 };
        struct exec_spec x = { .argv = (const char *const *)b->argv, .env = (const char *const *)b->env, .cwd = b->cwd, .stdin_fd = -1,
                               .out = b->both ? &b->err : &b->out, .err = &b->err, .timeout_ms = b->timeout_ms, .helper = b->helper };
        const struct exec_fd given = { .fd = b->fd, .target = HELPER_FIRST_FREE_FD };
        struct sandbox_exec *exec;
        if (b->decided)
                return;                          /* cancelled meanwhile: it is being destroyed */
        if (b->fd >= 0) {
                x.fds = &given;
                x.n_fds = 1;
        }
        if (sandbox_exec(s, &x, exited, b, &exec, &e) < 0) {
                fail(b, &e);
                sandbox_destroy(s);
        }
}

static void failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        struct box *b = user;
        struct error with_step = *e;
        error_prefix(&with_step, "%s", step);
        b->result.no_image = strcmp(step, SANDBOX_STEP_IMAGE) == 0;
        fail(b, &with_step);
}

static void limit(struct sandbox *s, enum limit_kind kind, void *user) {
        struct box *b = user;
        b->result.hit[kind] = true;
}

static void gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct box *b = user;
        struct buf out = BUF_INIT(BOX_OUT_MAX), err = BUF_INIT(BOX_TAIL_MAX + 256);
        if (end)
                for (int k = 0; k < LIMIT_KIND_MAX; k++)
                        b->result.hit[k] |= end->hit[k];
        decide(b, BOX_LIMIT);                    /* it went without a word from the command */
        buf_add(&out, b->out.head.data, b->out.head.len);
        capture_text(&b->err, &err);
        b->result.out = buf_str(&out);
        b->result.out_len = out.len;
        b->result.err = buf_str(&err);
        b->done(&b->result, b->user);
        buf_release(&out);
        buf_release(&err);
        box_free(b);
}

int box_start(struct spawner *sp, const struct box_spec *spec, box_done done, void *user, struct box **ret, struct error *e) {
        static const struct sandbox_callbacks callbacks = { .ready = ready, .failed = failed, .limit = limit, .gone = gone };
        struct box *b = calloc(1, sizeof *b);
        if (!b)
                return error_set(e, -ENOMEM, "start a command");
        b->timeout_ms = spec->timeout_ms;
        b->both = spec->both;
        b->helper = spec->helper;
        b->fd = -1;
        b->done = done;
        b->user = user;
        int r = copy_list(spec->argv, &b->argv);
        r = r ? r : copy_list(spec->env, &b->env);
        r = r ? r : (b->cwd = strdup(spec->cwd)) ? 0 : -ENOMEM;
        if (r == 0 && spec->helper && spec->fd >= 0 && (b->fd = fcntl(spec->fd, F_DUPFD_CLOEXEC, 0)) < 0)
                r = -errno;
        r = r ? r : capture_init(&b->out, BOX_OUT_MAX, 0, BOX_OUTPUT_LIMIT, -1);
        r = r ? r : capture_init(&b->err, 0, BOX_TAIL_MAX, BOX_OUTPUT_LIMIT, -1);
        if (r < 0)
                error_set(e, r, "start a command");
        else
                r = sandbox_create(sp, spec->sandbox, &callbacks, b, &b->sandbox, e);
        if (r < 0) {
                box_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

void box_cancel(struct box *b) {
        decide(b, BOX_CANCELLED);
        sandbox_destroy(b->sandbox);
}
