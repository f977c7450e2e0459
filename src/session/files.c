/* See files.h. One exec of the helper a call; what it says is collected, or passed on as a descriptor. */
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/json.h"
#include "sandbox/capture.h"
#include "session/files.h"

enum kind { KIND_ASK, KIND_PUT, KIND_GET };

struct files_call {
        enum kind kind;
        struct sandbox_exec *exec;
        files_done done; void *user;
        void (*opened)(int64_t size, void *user);
        struct buf out;
        struct output_capture err;     /* GET: why it failed in the middle */
        int commit;                    /* PUT: write end; the helper waits for a byte */
        int content;                   /* GET: read end, until it is taken */
        uv_poll_t poll; bool polling;
        char head[FILES_HEAD_SIZE]; size_t head_len;
        bool unpack, sized;            /* the verb has answers of its own; the content waits for an order */
        bool too_much, cancelled, exited;
        struct exec_end end;
};

static unsigned n_calls;               /* the loop's thread alone */

static void dispose(struct files_call *c) {
        buf_release(&c->out);
        capture_release(&c->err);
        fd_close(c->commit);
        fd_close(c->content);
        free(c);
        n_calls--;
}

/* ---- the end ---- */

static bool take_text(const struct json *v, const char *key, char *to, size_t size) {
        struct json text;
        _cleanup_buf_ struct buf b = BUF_INIT(8192);
        if (!json_get(v, key, &text) || json_string(&text, &b) < 0)
                return false;
        snprintf(to, size, "%s", buf_str(&b));
        return true;
}

static bool read_refusal(const char *p, size_t n, struct files_result *res) {
        struct json v;
        if (json_parse(p, n, &v, NULL) < 0 || v.type != JSON_OBJECT || !take_text(&v, "error", res->code, sizeof res->code))
                return false;
        take_text(&v, "message", res->message, sizeof res->message);
        res->x = -EREMOTEIO;
        return true;
}

/* "failed CLASS TEXT", the last line of unpack. */
static void read_unpack(struct files_call *c, int status, struct files_result *res) {
        static const struct { const char *class, *code; } classes[] = { { "invalid ", "bad_archive" }, { "large ", "too_large" }, { "full ", "disk_full" } };
        const char *text = buf_str(&c->out), *line = text;
        for (const char *p = text; *p; p++)
                if (p[0] == '\n' && p[1])
                        line = p + 1;
        if (status == 0 && strncmp(line, "done ", 5) == 0) {
                res->json = line;
                res->n = strcspn(line, "\n");
                return;
        }
        res->x = -EREMOTEIO;
        snprintf(res->code, sizeof res->code, "internal");
        if (strncmp(line, "failed ", 7) != 0)
                return;
        line += 7;
        for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
                if (strncmp(line, classes[i].class, strlen(classes[i].class)) == 0)
                        snprintf(res->code, sizeof res->code, "%s", classes[i].code);
        line += strcspn(line, " ");
        snprintf(res->message, sizeof res->message, "%.*s", (int)strcspn(line + (*line == ' '), "\n"), line + (*line == ' '));
}

static void judge(struct files_call *c, struct files_result *res) {
        const struct exec_end *end = &c->end;
        int status = WIFEXITED(end->status) ? WEXITSTATUS(end->status) : -1;
        struct json v;
        if (end->sandbox_ended)
                res->x = -ESHUTDOWN;
        else if (!end->started)
                res->x = end->error.code < 0 ? end->error.code : -EIO;
        else if (end->timed_out)
                res->x = -ETIME;
        else if (c->too_much)
                res->x = -EFBIG;
        else if (c->unpack)
                read_unpack(c, status, res);
        else if (status == FILES_EXIT_FAILED && c->kind == KIND_GET && read_refusal(c->head, c->head_len, res))
                ;
        else if (status == FILES_EXIT_FAILED && c->err.head.len > 0) {
                res->x = -EREMOTEIO;
                snprintf(res->code, sizeof res->code, strstr(buf_str(&c->err.head), "too ") ? "too_large" : "internal");
                snprintf(res->message, sizeof res->message, "%.*s", (int)strcspn(buf_str(&c->err.head), "\n"), buf_str(&c->err.head));
        } else if (status == FILES_EXIT_FAILED && read_refusal(buf_str(&c->out), c->out.len, res))
                ;
        else if (status != 0)
                res->x = -EIO;
        else if (c->kind == KIND_ASK || c->kind == KIND_PUT) {
                if (json_parse(buf_str(&c->out), c->out.len, &v, NULL) < 0 || v.type != JSON_OBJECT) {
                        res->x = -EBADMSG;
                        return;
                }
                res->json = v.p;
                res->n = v.n;
        }
}

static void finish(struct files_call *c) {
        struct files_result res = { 0 };
        if (!c->cancelled) {
                judge(c, &res);
                c->done(&res, c->user);
        }
        dispose(c);
}

static void on_poll_closed(uv_handle_t *h) {
        struct files_call *c = h->data;
        c->polling = false;
        if (c->exited)
                finish(c);
}

static void stop_polling(struct files_call *c) {
        if (c->polling && !uv_is_closing((uv_handle_t *)&c->poll))
                uv_close((uv_handle_t *)&c->poll, on_poll_closed);
}

static void read_head(struct files_call *c);

static void on_exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct files_call *c = user;
        c->exec = NULL;
        c->exited = true;
        c->end = *end;
        /* What it said before it ended may not have been read yet; once it is read, the handle closes. */
        if (c->polling && !c->cancelled && !uv_is_closing((uv_handle_t *)&c->poll))
                read_head(c);
        stop_polling(c);
        if (!c->polling)
                finish(c);
}

static void on_output(struct sandbox_exec *x, int stream, const void *p, size_t n, void *user) {
        struct files_call *c = user;
        if (stream == 2)
                return;
        /* Of unpack only the last lines count. */
        if (c->unpack && c->out.len > 4096)
                buf_consume(&c->out, c->out.len - 2048);
        if (buf_add(&c->out, p, n) < 0) {
                c->too_much = true;
                exec_kill(x);
        }
}

/* ---- content that comes out ---- */

static void judge_head(struct files_call *c) {
        struct json v, size;
        int64_t bytes = -1;
        stop_polling(c);
        if (json_parse(c->head, c->head_len, &v, NULL) < 0 || json_get(&v, "error", &size) || c->cancelled)
                return;                        /* its end says the same */
        if (c->sized && json_get(&v, "size", &size) && json_int(&size, &bytes) < 0)
                return;
        c->opened(c->sized ? bytes : -1, c->user);
}

static void read_head(struct files_call *c) {
        while (c->head_len < sizeof c->head) {
                ssize_t n = read(c->content, c->head + c->head_len, sizeof c->head - c->head_len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n <= 0) {
                        stop_polling(c);       /* it ended before it said anything */
                        return;
                }
                c->head_len += (size_t)n;
        }
        judge_head(c);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
        struct files_call *c = poll->data;
        if (!c->cancelled && !uv_is_closing((uv_handle_t *)poll))
                read_head(c);
}

int files_content(struct files_call *c, uint64_t from, uint64_t count) {
        char order[64];
        int n = snprintf(order, sizeof order, "%llu %llu\n", (unsigned long long)from, (unsigned long long)count);
        if (c->exec && c->sized) {
                (void)exec_write(c->exec, order, (size_t)n);
                exec_close_input(c->exec);
        }
        return TAKE_FD(c->content);
}

/* ---- start ---- */

static int make_pipe(int ret[2], bool we_write) {
        if (pipe2(ret, O_CLOEXEC) < 0)
                return -errno;
        (void)fcntl(ret[0], F_SETPIPE_SZ, FILES_PIPE_SIZE);
        int ours = ret[we_write ? 1 : 0];
        return fcntl(ours, F_SETFL, fcntl(ours, F_GETFL) | O_NONBLOCK) < 0 ? -errno : 0;
}

static struct files_call *call_new(enum kind kind, const char *const *argv, files_done done, void *user) {
        struct files_call *c = n_calls < FILES_CALLS_MAX ? calloc(1, sizeof *c) : NULL;
        if (!c)
                return NULL;
        *c = (struct files_call){ .kind = kind, .done = done, .user = user, .out = BUF_INIT(FILES_ANSWER_MAX), .commit = -1, .content = -1 };
        capture_init(&c->err, 4096, 0, UINT64_MAX, -1);
        c->unpack = strcmp(argv[0], "unpack") == 0;
        c->sized = argv[1] && strcmp(argv[1], "read") == 0;
        n_calls++;
        return c;
}

static int start(struct files_call *c, struct sandbox *sb, const char *const *argv, struct exec_spec *x, struct files_call **ret) {
        struct error e;
        static const char *const no_env[] = { NULL };
        x->argv = argv;
        x->env = no_env;
        x->helper = true;
        x->output_bytes = UINT64_MAX;
        int r = sandbox_exec(sb, x, on_exited, c, &c->exec, &e);
        if (r == 0)
                *ret = c;
        return r;
}

static int no_call(void) { return n_calls < FILES_CALLS_MAX ? -ENOMEM : -EUSERS; }

int files_ask(struct sandbox *sb, const char *const *argv, files_done done, void *user, struct files_call **ret) {
        struct files_call *c = call_new(KIND_ASK, argv, done, user);
        if (!c)
                return no_call();
        struct exec_spec x = { .stdin_fd = -1, .output = on_output, .timeout_ms = FILES_ASK_MS };
        int r = start(c, sb, argv, &x, ret);
        if (r < 0)
                dispose(c);
        return r;
}

int files_put(struct sandbox *sb, const char *const *argv, files_done done, void *user, struct files_call **ret, int *ret_fd) {
        struct files_call *c = call_new(KIND_PUT, argv, done, user);
        int in[2] = { -1, -1 }, commit[2] = { -1, -1 };
        if (!c)
                return no_call();
        int r = make_pipe(in, true);
        if (r == 0)
                r = make_pipe(commit, true);
        const struct exec_fd fd = { .fd = commit[0], .target = FILES_COMMIT_FD };
        struct exec_spec x = { .stdin_fd = in[0], .output = on_output, .fds = &fd, .n_fds = 1 };
        if (r == 0)
                r = start(c, sb, argv, &x, ret);
        fd_close(in[0]);
        fd_close(commit[0]);
        c->commit = commit[1];
        if (r < 0) {
                fd_close(in[1]);
                dispose(c);
                return r;
        }
        *ret_fd = in[1];
        return 0;
}

void files_commit(struct files_call *c) {
        ssize_t w = write(c->commit, ".", 1);
        (void)w;                       /* it has ended: its end says why */
        c->commit = fd_close(c->commit);
}

void files_abort(struct files_call *c) { c->commit = fd_close(c->commit); }

int files_get(uv_loop_t *loop, struct sandbox *sb, const char *const *argv, void (*opened)(int64_t size, void *user), files_done done, void *user, struct files_call **ret) {
        struct files_call *c = call_new(KIND_GET, argv, done, user);
        int out[2] = { -1, -1 };
        if (!c)
                return no_call();
        c->opened = opened;
        int r = make_pipe(out, false);
        const struct exec_fd fds[] = { { .fd = out[1], .target = 1 } };
        struct exec_spec x = { .stdin_fd = -1, .stdin_pipe = c->sized, .err = &c->err, .fds = fds, .n_fds = 1 };
        c->content = out[0];
        if (r == 0)
                r = uv_poll_init(loop, &c->poll, c->content);
        if (r == 0) {
                c->poll.data = c;
                c->polling = true;
                uv_poll_start(&c->poll, UV_READABLE, on_readable);
                r = start(c, sb, argv, &x, ret);
        }
        fd_close(out[1]);
        if (r < 0 && c->polling) {
                c->cancelled = c->exited = true;       /* freed when the handle is closed */
                stop_polling(c);
        } else if (r < 0)
                dispose(c);
        return r;
}

void files_cancel(struct files_call *c) {
        c->cancelled = true;
        c->commit = fd_close(c->commit);
        if (c->exec)
                exec_kill(c->exec);
        stop_polling(c);
}
