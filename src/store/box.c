#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/strv.h"
#include "sandbox/capture.h"
#include "store/box.h"
#include "store/image_user.h"

struct box {
        struct sandbox *sandbox;
        char **argv, **env, *cwd, *user;
        bool both, helper, helper_upper, decided;
        int stdin_fd, fd;                  /* -1 without */
        uint64_t timeout_ms;
        uint32_t uid, gid;
        struct output_capture out, err;
        struct box_result result;
        void (*output)(const char *p, size_t n, void *user);
        box_done done;
        void *done_user;
};

static void box_free(struct box *b) {
        strv_free(b->argv);
        strv_free(b->env);
        free(b->cwd);
        free(b->user);
        fd_close(b->stdin_fd);
        fd_close(b->fd);
        capture_release(&b->out);
        capture_release(&b->err);
        free(b);
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

/* The first word counts: what happens to a sandbox that is being taken down is not news. */
static void decide(struct box *b, enum box_end end) {
        if (!b->decided)
                b->result.end = end;
        b->decided = true;
}

static void fail(struct box *b, const struct error *e) {
        if (!b->decided)
                b->result.error = *e;
        decide(b, BOX_FAILED);
}

static void fail_now(struct box *b, const struct error *e) {
        fail(b, e);
        sandbox_destroy(b->sandbox);
}

static void exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct box *b = user;
        b->result.status = end->status;
        b->result.hit[LIMIT_OUTPUT] |= end->output_limit;
        if (!end->started && !end->sandbox_ended) {
                b->result.not_started = !b->decided;
                fail(b, &end->error);
        } else if (end->timed_out)
                decide(b, BOX_TIMED_OUT);
        else
                decide(b, end->sandbox_ended || end->output_limit ? BOX_LIMIT : BOX_EXITED);
        sandbox_destroy(b->sandbox);
}

static void gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct box *b = user;
        struct buf out = BUF_INIT(BOX_OUT_MAX), err = BUF_INIT(BOX_TAIL_MAX + 256);
        for (int k = 0; end && k < LIMIT_KIND_MAX; k++)
                b->result.hit[k] |= end->hit[k];
        decide(b, BOX_LIMIT);                    /* it went without a word from the command */
        buf_add(&out, b->out.head.data, b->out.head.len);
        capture_text(&b->err, &err);
        b->result.out = buf_str(&out);
        b->result.out_len = out.len;
        b->result.err = buf_str(&err);
        b->done(&b->result, b->done_user);
        buf_release(&out);
        buf_release(&err);
        box_free(b);
}

/* ---- the command ---------------------------------------------------------------------------------------------------------- */

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct box *b = user;
        if (stream == 1 || !b->helper)
                b->output(p, n, b->done_user);
}

static void run(struct box *b) {
        struct error e = { 0 };
        struct sandbox_exec *exec;
        const struct exec_fd given = { .fd = b->fd, .target = HELPER_FIRST_FREE_FD };
        const struct exec_spec x = {
                .argv = (const char *const *)b->argv, .env = (const char *const *)b->env, .cwd = b->cwd, .uid = b->uid, .gid = b->gid,
                .stdin_fd = b->stdin_fd, .out = b->both ? &b->err : &b->out, .err = &b->err, .output = b->output ? on_output : NULL,
                .timeout_ms = b->timeout_ms, .helper = b->helper, .helper_upper = b->helper_upper, .fds = &given, .n_fds = b->fd >= 0,
        };
        if (sandbox_exec(b->sandbox, &x, exited, b, &exec, &e) < 0)
                fail_now(b, &e);
        b->stdin_fd = fd_close(b->stdin_fd);     /* theirs now: an end of file must be one */
        b->fd = fd_close(b->fd);
}

static void user_found(int r, const struct image_user *u, const struct error *e, void *user) {
        struct box *b = user;
        if (b->decided)
                return;                          /* cancelled meanwhile */
        if (r < 0) {
                fail_now(b, e);
                return;
        }
        b->uid = u->uid;
        b->gid = u->gid;
        run(b);
}

static void ready(struct sandbox *s, void *user) {
        struct box *b = user;
        struct image_user_lookup *lookup;
        struct error e = { 0 };
        if (b->decided)
                return;                          /* cancelled meanwhile: it is being destroyed */
        if (!b->user)
                run(b);
        else if (image_user_find(s, b->user, user_found, b, &lookup, &e) < 0)
                fail_now(b, &e);
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

/* ---- the beginning ------------------------------------------------------------------------------------------------------------ */

static int copy_list(const char *const *from, char ***to) {
        int r = strv_ensure(to);
        for (size_t i = 0; r == 0 && from && from[i]; i++)
                r = strv_push(to, from[i]);
        return r;
}

static int fill(struct box *b, const struct box_spec *spec) {
        int r = copy_list(spec->argv, &b->argv);
        r = r ? r : copy_list(spec->env, &b->env);
        r = r ? r : (b->cwd = strdup(spec->cwd ? spec->cwd : "/")) ? 0 : -ENOMEM;
        if (r == 0 && spec->user && spec->user[0])
                r = (b->user = strdup(spec->user)) ? 0 : -ENOMEM;
        if (r == 0 && spec->fd >= 0 && (b->fd = fcntl(spec->fd, F_DUPFD_CLOEXEC, 0)) < 0)
                r = -errno;
        r = r ? r : capture_init(&b->out, BOX_OUT_MAX, 0, BOX_OUTPUT_LIMIT, -1);
        return r ? r : capture_init(&b->err, 0, BOX_TAIL_MAX, BOX_OUTPUT_LIMIT, -1);
}

int box_start(struct spawner *sp, const struct box_spec *spec, box_done done, void *user, struct box **ret, struct error *e) {
        static const struct sandbox_callbacks callbacks = { .ready = ready, .failed = failed, .limit = limit, .gone = gone };
        struct box *b = calloc(1, sizeof *b);
        if (!b) {
                fd_close(spec->stdin_fd);
                return error_set(e, -ENOMEM, "start a command");
        }
        *b = (struct box){
                .both = spec->both, .helper = spec->helper, .helper_upper = spec->helper_upper, .stdin_fd = spec->stdin_fd, .fd = -1,
                .timeout_ms = spec->timeout_ms, .output = spec->output, .done = done, .done_user = user,
        };
        int r = fill(b, spec);
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
