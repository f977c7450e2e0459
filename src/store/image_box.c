#include <string.h>
#include <sys/wait.h>

#include "base/strv.h"
#include "sandbox/capture.h"
#include "store/image_box.h"
#include "store/image_user.h"

struct image_box {
        struct sandbox *sandbox;
        struct image_user_lookup *lookup;
        char **argv, **env, *cwd, *user;
        bool helper, helper_upper, decided;
        int stdin_fd, out_fd;
        uint64_t timeout_ms;
        uint32_t uid, gid;
        struct output_capture out, err;
        struct box_result result;
        void (*output)(const char *p, size_t n, void *user);
        box_done done;
        void *done_user;
};

static void box_free(struct image_box *b) {
        strv_free(b->argv);
        strv_free(b->env);
        free(b->cwd);
        free(b->user);
        fd_close(b->stdin_fd);
        fd_close(b->out_fd);
        capture_release(&b->out);
        capture_release(&b->err);
        free(b);
}

/* The first word counts. */
static void decide(struct image_box *b, enum box_end end) {
        if (!b->decided)
                b->result.end = end;
        b->decided = true;
}

static void fail(struct image_box *b, const struct error *e) {
        if (!b->decided)
                b->result.error = *e;
        decide(b, BOX_FAILED);
}

static void exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct image_box *b = user;
        b->result.status = end->status;
        if (!end->started && !end->sandbox_ended)
                fail(b, &end->error);
        else if (end->timed_out)
                decide(b, BOX_TIMED_OUT);
        else
                decide(b, end->sandbox_ended || end->output_limit ? BOX_LIMIT : BOX_EXITED);
        b->result.hit[LIMIT_OUTPUT] |= end->output_limit;
        sandbox_destroy(b->sandbox);
}

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct image_box *b = user;
        if (b->output && (stream == 1 || !b->helper))
                b->output(p, n, b->done_user);
}

static void start(struct image_box *b) {
        struct error e = { 0 };
        struct sandbox_exec *exec;
        const struct exec_fd fd = { b->out_fd, HELPER_FIRST_FREE_FD };
        const struct exec_spec x = {
                .argv = (const char *const *)b->argv, .env = (const char *const *)b->env, .cwd = b->cwd, .uid = b->uid, .gid = b->gid,
                .stdin_fd = b->stdin_fd, .out = b->helper ? &b->out : &b->err, .err = &b->err, .output = on_output, .timeout_ms = b->timeout_ms,
                .helper = b->helper, .helper_upper = b->helper_upper, .fds = &fd, .n_fds = b->out_fd >= 0,
        };
        if (sandbox_exec(b->sandbox, &x, exited, b, &exec, &e) < 0) {
                fail(b, &e);
                sandbox_destroy(b->sandbox);
        }
        b->stdin_fd = fd_close(b->stdin_fd);   /* theirs now: an end of file must be one */
        b->out_fd = fd_close(b->out_fd);
}

static void user_found(int r, const struct image_user *u, const struct error *e, void *user) {
        struct image_box *b = user;
        b->lookup = NULL;
        if (b->decided)
                return;
        if (r < 0) {
                fail(b, e);
                sandbox_destroy(b->sandbox);
                return;
        }
        b->uid = u->uid;
        b->gid = u->gid;
        start(b);
}

static void ready(struct sandbox *s, void *user) {
        struct image_box *b = user;
        struct error e = { 0 };
        if (b->decided)
                return;
        if (!b->user) {
                start(b);
                return;
        }
        if (image_user_find(s, b->user, user_found, b, &b->lookup, &e) < 0) {
                fail(b, &e);
                sandbox_destroy(s);
        }
}

static void failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        struct error with_step = *e;
        error_prefix(&with_step, "%s", step);
        fail(user, &with_step);
}

static void limit(struct sandbox *s, enum limit_kind kind, void *user) { ((struct image_box *)user)->result.hit[kind] = true; }

static void gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct image_box *b = user;
        struct buf out = BUF_INIT(BOX_OUT_MAX), err = BUF_INIT(BOX_TAIL_MAX + 256);
        for (int k = 0; end && k < LIMIT_KIND_MAX; k++)
                b->result.hit[k] |= end->hit[k];
        decide(b, BOX_LIMIT);
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

static int copy_list(const char *const *from, char ***to) {
        int r = strv_ensure(to);
        for (size_t i = 0; r == 0 && from && from[i]; i++)
                r = strv_push(to, from[i]);
        return r;
}

static int fill(struct image_box *b, const struct image_box_spec *spec) {
        int r = copy_list(spec->argv, &b->argv);
        r = r ? r : copy_list(spec->env, &b->env);
        r = r ? r : (b->cwd = strdup(spec->cwd ? spec->cwd : "/")) ? 0 : -ENOMEM;
        if (r == 0 && spec->user && spec->user[0])
                r = (b->user = strdup(spec->user)) ? 0 : -ENOMEM;
        r = r ? r : capture_init(&b->out, BOX_OUT_MAX, 0, BOX_OUTPUT_LIMIT, -1);
        return r ? r : capture_init(&b->err, 0, BOX_TAIL_MAX, BOX_OUTPUT_LIMIT, -1);
}

int image_box_start(struct spawner *sp, const struct image_box_spec *spec, box_done done, void *user, struct image_box **ret, struct error *e) {
        static const struct sandbox_callbacks callbacks = { .ready = ready, .failed = failed, .limit = limit, .gone = gone };
        struct image_box *b = calloc(1, sizeof *b);
        if (!b) {
                fd_close(spec->stdin_fd);
                fd_close(spec->out_fd);
                return error_set(e, -ENOMEM, "start a command");
        }
        *b = (struct image_box){
                .helper = spec->helper, .helper_upper = spec->helper_upper, .stdin_fd = spec->stdin_fd, .out_fd = spec->out_fd,
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

void image_box_cancel(struct image_box *b) {
        decide(b, BOX_CANCELLED);
        sandbox_destroy(b->sandbox);
}
