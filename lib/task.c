#include "internal.h"

void brig_task_result_release(struct brig_task_result *r) {
        if (!r)
                return;
        free(r->json);
        free(r->task_id);
        free(r->status);
        free(r->outcome);
        free(r->error_code);
        free(r->out);
        free(r->err);
        *r = (struct brig_task_result){ 0 };
}

static int result_read(struct answer *a, const char *what, struct brig_task_result *ret, struct brig_error *e) {
        struct json v, error;
        int r = expect(a, 200, what, &v, e);
        if (r < 0)
                return r;
        struct brig_task_result t = {
                .exit_code = (int)member_int(&v, "exit_code", -1), .resolved = member_bool(&v, "resolved"),
                .tests_passed = (long)member_int(&v, "tests_passed", -1), .tests_failed = (long)member_int(&v, "tests_failed", -1),
        };
        if (!json_get(&v, "error", &error))
                error = (struct json){ .type = JSON_NULL };
        struct { const struct json *from; const char *name; char **to; } texts[] = {
                { &v, "task_id", &t.task_id }, { &v, "status", &t.status }, { &v, "outcome", &t.outcome },
                { &error, "code", &t.error_code }, { &v, "stdout", &t.out }, { &v, "stderr", &t.err },
        };
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(texts); i++)
                r = member_text(texts[i].from, texts[i].name, texts[i].to, e);
        if (r < 0) {
                brig_task_result_release(&t);
                return r;
        }
        t.json_len = a->body.len;
        t.json = buf_steal(&a->body);
        *ret = t;
        return 0;
}

int brig_submit_task(struct brig_client *c, const char *spec, char **ret_task_id, struct brig_error *e) {
        struct json v;
        char key[33];
        int r = parse_object(spec, strlen(spec), "the spec", BRIG_ERR_ARGUMENT, &v, e);
        if (r == 0)
                r = idempotency_key(key, e);
        if (r < 0)
                return r;
        struct json own;
        bool keyed = json_get(&v, "idempotency_key", &own) && own.type != JSON_NULL;
        struct exchange x = {
                .method = "POST", .path = "/task/submit", .body = spec, .body_len = strlen(spec), .key = keyed ? NULL : key,
                .timeout = REQUEST_TIMEOUT_S, .tries = TRIES,
        };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        r = exchange(c, &x, &a, e);
        if (r == 0)
                r = expect(&a, 202, "submit", &v, e);
        return r < 0 ? r : member_id(&v, "task_id", "submit", ret_task_id, e);
}

static int get_result(struct brig_client *c, const char *task_id, double wait, struct brig_task_result *ret, struct brig_error *e) {
        int r = check_id(task_id, e);
        if (r < 0)
                return r;
        char path[320];
        size_t n = (size_t)snprintf(path, sizeof path, "/task/%s/result", task_id);
        if (wait > 0)
                snprintf(path + n, sizeof path - n, "?wait=%.3f", wait);
        struct exchange x = { .method = "GET", .path = path, .timeout = REQUEST_TIMEOUT_S + wait, .tries = 1 };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        r = exchange(c, &x, &a, e);
        if (r < 0)
                return r;
        return a.status == 202 ? BRIG_PENDING : result_read(&a, "result", ret, e);
}

int brig_get_result(struct brig_client *c, const char *task_id, struct brig_task_result *ret, struct brig_error *e) {
        return get_result(c, task_id, 0, ret, e);
}

int brig_delete_task(struct brig_client *c, const char *task_id, struct brig_error *e) {
        int r = check_id(task_id, e);
        if (r < 0)
                return r;
        char path[320];
        snprintf(path, sizeof path, "/task/%s", task_id);
        struct exchange x = { .method = "DELETE", .path = path, .timeout = REQUEST_TIMEOUT_S, .tries = TRIES };
        _cleanup_answer_ struct answer a = ANSWER_INIT;
        struct json v;
        r = exchange(c, &x, &a, e);
        return r < 0 ? r : expect(&a, 200, "delete", &v, e);
}

double task_timeout(const struct json *spec) {
        struct json v;
        double seconds = (double)member_int(spec, "timeout", 300) + 120;
        if ((json_get(spec, "mode", &v) && json_string_is(&v, "image")) || (json_get(spec, "image", &v) && v.type == JSON_STRING))
                seconds += (double)member_int(spec, "pull_timeout", 1800);
        if (json_get(spec, "setup_command", &v) && v.type == JSON_STRING)
                seconds += (double)member_int(spec, "setup_timeout", 1800);
        return seconds;
}

static bool passing(int r, const struct brig_error *e) {
        return r == BRIG_ERR_TRANSPORT || (r == BRIG_ERR_STATUS && e->http_status == 503);
}

static int wait_result(struct brig_client *c, const char *task_id, struct poll *p, double grace, struct brig_task_result *ret, struct brig_error *e) {
        for (;;) {
                int r = get_result(c, task_id, poll_ask(p), ret, e);
                if (r == BRIG_OK)
                        return r;
                if (r == BRIG_PENDING)
                        poll_rest(p);
                else if (!passing(r, e) || now() - p->answered > grace)
                        return r;
                else
                        rest(e->retry_after > 0 ? MIN2(e->retry_after, 5) : 0.5);
                if (now() >= p->deadline)
                        return r == BRIG_PENDING ? fail(e, BRIG_ERR_TIMEOUT, "task %s did not finish in time", task_id) : r;
        }
}

int run_task(struct brig_client *c, const char *spec, const struct brig_wait *w, double grace, struct brig_task_result *ret, struct brig_error *e) {
        struct json v;
        _cleanup_free_ char *task_id = NULL;
        struct brig_error own;
        if (!e)
                e = &own;
        int r = parse_object(spec, strlen(spec), "the spec", BRIG_ERR_ARGUMENT, &v, e);
        if (r == 0)
                r = brig_submit_task(c, spec, &task_id, e);
        if (r < 0)
                return r;
        struct poll p;
        poll_start(&p, w, task_timeout(&v));
        r = wait_result(c, task_id, &p, grace, ret, e);
        if (!w || !w->keep)
                brig_delete_task(c, task_id, NULL);
        return r;
}

int brig_run_task(struct brig_client *c, const char *spec, const struct brig_wait *wait, struct brig_task_result *ret, struct brig_error *e) {
        return run_task(c, spec, wait, UNREACHABLE_MAX_S, ret, e);
}
