#include "base/base64.h"
#include "internal.h"

void brig_session_status_release(struct brig_session_status *s) {
        if (!s)
                return;
        free(s->session_id);
        free(s->status);
        free(s->image);
        free(s->error);
        *s = (struct brig_session_status){ 0 };
}

void brig_exec_result_release(struct brig_exec_result *r) {
        if (!r)
                return;
        free(r->out);
        free(r->err);
        *r = (struct brig_exec_result){ 0 };
}

void brig_finish_result_release(struct brig_finish_result *r) {
        if (!r)
                return;
        free(r->json);
        free(r->out);
        free(r->err);
        free(r->error);
        *r = (struct brig_finish_result){ 0 };
}

static int session_path(const char *session_id, const char *call, double wait, char *ret, size_t size, struct brig_error *e) {
        int r = check_id(session_id, e);
        if (r < 0)
                return r;
        size_t n = (size_t)snprintf(ret, size, "/session/%s%s%s", session_id, *call ? "/" : "", call);
        if (wait > 0)
                snprintf(ret + n, size - n, "?wait=%.3f", wait);
        return 0;
}

static int get_status(struct brig_client *c, const char *session_id, double wait, struct brig_session_status *ret, struct brig_error *e) {
        char path[320];
        int r = session_path(session_id, "", wait, path, sizeof path, e);
        if (r < 0)
                return r;
        struct exchange x = { .method = "GET", .path = path, .timeout = REQUEST_TIMEOUT_S + wait, .tries = TRIES };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json v;
        r = exchange(c, &x, &a, e);
        if (r == 0)
                r = expect(&a, 200, "session status", &v, e);
        struct brig_session_status s = { 0 };
        if (r == 0)
                r = member_text(&v, "session_id", &s.session_id, e);
        if (r == 0)
                r = member_text(&v, "status", &s.status, e);
        if (r == 0)
                r = member_text(&v, "image", &s.image, e);
        if (r == 0)
                r = member_text(&v, "error", &s.error, e);
        if (r < 0)
                brig_session_status_release(&s);
        else
                *ret = s;
        return r;
}

int brig_get_session_status(struct brig_client *c, const char *session_id, struct brig_session_status *ret, struct brig_error *e) {
        return get_status(c, session_id, 0, ret, e);
}

int brig_delete_session(struct brig_client *c, const char *session_id, struct brig_error *e) {
        char path[320];
        int r = session_path(session_id, "", 0, path, sizeof path, e);
        if (r < 0)
                return r;
        struct exchange x = { .method = "DELETE", .path = path, .timeout = REQUEST_TIMEOUT_S, .tries = TRIES };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json v;
        r = exchange(c, &x, &a, e);
        return r < 0 ? r : expect(&a, 200, "delete", &v, e);
}

/* ---- start --------------------------------------------------------------------------------------------------------- */

static int start(struct brig_client *c, const char *spec, const struct json *v, char **ret, struct brig_error *e) {
        char key[33];
        int r = idempotency_key(key, e);
        if (r < 0)
                return r;
        struct json own;
        bool keyed = json_get(v, "idempotency_key", &own) && own.type != JSON_NULL;
        struct exchange x = {
                .method = "POST", .path = "/session/start", .body = spec, .body_len = strlen(spec), .key = keyed ? NULL : key,
                .timeout = REQUEST_TIMEOUT_S, .tries = TRIES,
        };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json answer;
        r = exchange(c, &x, &a, e);
        if (r == 0)
                r = expect(&a, 202, "session start", &answer, e);
        return r < 0 ? r : member_id(&answer, "session_id", "session start", ret, e);
}

static int wait_ready(struct brig_client *c, const char *session_id, struct poll *p, struct brig_error *e) {
        for (;;) {
                struct brig_session_status s;
                int r = get_status(c, session_id, poll_ask(p), &s, e);
                if (r < 0)
                        return r;
                bool ready = strcmp(s.status, "ready") == 0;
                if (strcmp(s.status, "failed") == 0)
                        r = fail(e, BRIG_ERR_FAILED, "session %s failed to start: %s", session_id, s.error);
                brig_session_status_release(&s);
                if (ready || r < 0)
                        return r;
                poll_rest(p);
                if (now() >= p->deadline)
                        return fail(e, BRIG_ERR_TIMEOUT, "session %s was not ready in time", session_id);
        }
}

int brig_start_session(struct brig_client *c, const char *spec, const struct brig_wait *wait, char **ret_session_id, struct brig_error *e) {
        struct json v, mode;
        _cleanup_free_ char *id = NULL;
        int r = parse_object(spec, strlen(spec), "the spec", BRIG_ERR_ARGUMENT, &v, e);
        if (r == 0)
                r = start(c, spec, &v, &id, e);
        if (r < 0)
                return r;
        bool build = json_get(&v, "mode", &mode) && json_string_is(&mode, "build");
        struct poll p;
        poll_start(&p, wait, (double)member_int(&v, build ? "build_timeout" : "pull_timeout", 1800) + 120);
        r = wait_ready(c, id, &p, e);
        if (r < 0)
                brig_delete_session(c, id, NULL);
        else
                *ret_session_id = TAKE_PTR(id);
        return r;
}

/* ---- in a session --------------------------------------------------------------------------------------------------- */

/* Never sent twice: it may have begun. */
static int session_post(struct brig_client *c, const char *session_id, const char *call, const char *body, size_t n, double timeout,
                        struct answer *a, struct json *ret, struct brig_error *e) {
        char path[320];
        int r = session_path(session_id, call, 0, path, sizeof path, e);
        if (r < 0)
                return r;
        struct exchange x = { .method = "POST", .path = path, .body = body, .body_len = n, .timeout = timeout, .tries = 1 };
        r = exchange(c, &x, a, e);
        return r < 0 ? r : expect(a, 200, call, ret, e);
}

int brig_session_exec(struct brig_client *c, const char *session_id, const char *command, const struct brig_exec_options *options,
                      struct brig_exec_result *ret, struct brig_error *e) {
        struct brig_exec_options o = options ? *options : (struct brig_exec_options){ 0 };
        int timeout = o.timeout > 0 ? o.timeout : 60;
        _cleanup_buf_ struct buf b = BUF_INIT(ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "command", command);
        json_field_int(&w, "timeout", timeout);
        if (o.cwd)
                json_field_text(&w, "cwd", o.cwd);
        if (o.output_limit)
                json_field_int(&w, "output_limit", o.output_limit);
        json_end_object(&w);
        if (json_finish(&w) < 0)
                return fail_memory(e);
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json v;
        int r = session_post(c, session_id, "exec", b.data, b.len, timeout + REQUEST_TIMEOUT_S, &a, &v, e);
        struct brig_exec_result x = { 0 };
        if (r == 0)
                r = member_text(&v, "stdout", &x.out, e);
        if (r == 0)
                r = member_text(&v, "stderr", &x.err, e);
        if (r < 0) {
                brig_exec_result_release(&x);
                return r;
        }
        x.exit_code = (int)member_int(&v, "exit_code", -1);
        x.timed_out = member_bool(&v, "timed_out");
        *ret = x;
        return 0;
}

int brig_session_export(struct brig_client *c, const char *session_id, const char *path, int timeout, unsigned char **ret_tar, size_t *ret_len,
                        struct brig_error *e) {
        if (timeout <= 0)
                timeout = 300;
        _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "path", path ? path : "/workspace");
        json_field_int(&w, "timeout", timeout);
        json_end_object(&w);
        if (json_finish(&w) < 0)
                return fail_memory(e);
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json v;
        _cleanup_free_ char *text = NULL;
        int r = session_post(c, session_id, "export", b.data, b.len, timeout + REQUEST_TIMEOUT_S, &a, &v, e);
        if (r == 0)
                r = member_text(&v, "tar_b64", &text, e);
        if (r < 0)
                return r;
        _cleanup_buf_ struct buf tar = BUF_INIT(ANSWER_MAX);
        r = *text ? base64_decode(text, strlen(text), &tar) : -EINVAL;
        if (r == -ENOMEM)
                return fail_memory(e);
        if (r < 0)
                return fail(e, BRIG_ERR_ANSWER, "export: the answer has no tar_b64");
        *ret_len = tar.len;
        *ret_tar = (unsigned char *)buf_steal(&tar);
        return 0;
}

int brig_session_finish(struct brig_client *c, const char *session_id, const char *request, struct brig_finish_result *ret, struct brig_error *e) {
        const char *body = request ? request : "{}";
        struct json v;
        int r = parse_object(body, strlen(body), "the request", BRIG_ERR_ARGUMENT, &v, e);
        if (r < 0)
                return r;
        double timeout = (double)member_int(&v, "timeout", 600) + 2 * REQUEST_TIMEOUT_S;
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        r = session_post(c, session_id, "finish", body, strlen(body), timeout, &a, &v, e);
        struct brig_finish_result f = { 0 };
        if (r == 0)
                r = member_text(&v, "stdout", &f.out, e);
        if (r == 0)
                r = member_text(&v, "stderr", &f.err, e);
        if (r == 0)
                r = member_text(&v, "error", &f.error, e);
        if (r < 0) {
                brig_finish_result_release(&f);
                return r;
        }
        f.exit_code = (int)member_int(&v, "exit_code", -1);
        f.timed_out = member_bool(&v, "timed_out");
        f.json_len = a.body.len;
        f.json = buf_steal(&a.body);
        *ret = f;
        return 0;
}
