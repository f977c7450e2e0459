/* The broker's face inside a sandbox: POST /tool_call, GET /health. One small server for each root, on sockets of the sandbox's own network
 * namespace. Its peers are hostile: they may know the secret of their turn and no more, and all that a server holds for them has
 * limits of its own. Loop thread only. */
#include <string.h>

#include "api/rlm_api.h"

#define TOOL_CALL_WORDS 4096u              /* bytes of an answer besides the result */

struct face { struct rlm_root *root; struct http_server *http; unsigned prompts_max; };

struct call {
        struct rlm_call call;
        struct http_request *r;
        struct http_body_hold *hold;           /* what the call's spans lie in */
};

/* ---- answers ------------------------------------------------------------------------------------------------------------------------------- */

static void respond_error(struct http_request *r, const char *category, const char *message, const char *id) {
        _cleanup_buf_ struct buf b = BUF_INIT(TOOL_CALL_WORDS);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "tool_error");
        json_begin_object(&w);
        json_field_text(&w, "category", category);
        json_field_text(&w, "message", message);
        json_field_text(&w, "call_id", id);
        json_end_object(&w);
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
}

/* The host's object, with the call's id in it. */
static void put_tool_error(struct json_writer *w, const struct rlm_result *res, const char *id) {
        struct json o, key, value;
        bool category = false;
        json_begin_object(w);
        if (json_parse(res->p, res->n, &o, NULL) == 0)
                for (struct json_iter it = json_iter(&o); json_next_member(&it, &key, &value);) {
                        _cleanup_buf_ struct buf name = BUF_INIT(256);
                        if (json_string_is(&key, "call_id") || json_string(&key, &name) < 0)
                                continue;
                        category |= json_string_is(&key, "category");
                        json_field_raw(w, buf_str(&name), value.p, value.n);
                }
        if (!category)
                json_field_text(w, "category", "tool_error");
        json_field_text(w, "call_id", id);
        json_end_object(w);
}

static void respond_result(struct http_request *r, const struct rlm_result *res, const char *id) {
        struct buf b = BUF_INIT(RLM_BODY_MAX + TOOL_CALL_WORDS);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        if (res->is_error) {
                json_put_key(&w, "tool_error");
                put_tool_error(&w, res, id);
        } else
                json_field_raw(&w, "result", res->p, res->n);
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
        buf_release(&b);
}

/* Taken is what the kernel has taken over: until then another result is a duplicate of one that may still be lost. */
static void on_sent(bool whole, void *user) {
        struct call *c = user;
        if (whole)
                rlm_call_taken(&c->call);
        else
                rlm_call_gone(&c->call);
        free(c);
}

static void on_answer(struct rlm_call *rc, enum lease_answer a, const struct rlm_result *res) {
        struct call *c = container_of(rc, struct call, call);
        struct http_request *r = c->r;
        http_on_close(r, NULL, NULL);
        c->hold = http_body_release(c->hold);
        if (a != LEASE_OK) {
                rlm_lease_answer(r, a);
                free(c);
                return;
        }
        http_on_sent(r, on_sent, c);
        respond_result(r, res, rc->lease->id);
}

static void caller_gone(void *user) {
        struct call *c = user;
        rlm_call_gone(&c->call);
        http_body_release(c->hold);
        free(c);
}

/* ---- calls --------------------------------------------------------------------------------------------------------------------------------- */

static const struct json no_args = { JSON_ARRAY, "[]", 2 }, no_kwargs = { JSON_OBJECT, "{}", 2 };

/* 0, or -EINVAL. */
static int decode(const struct json *o, struct rlm_call *c, struct json *ret_id, struct error *e) {
        c->args = no_args;
        c->kwargs = no_kwargs;
        *ret_id = (struct json){ JSON_NULL, "null", 4 };
        (void)json_get(o, "id", ret_id);
        if (ret_id->type != JSON_NULL && ret_id->type != JSON_STRING)
                return error_say(e, -EINVAL, "id: expected a string");
        if (!json_get(o, "tool_name", &c->tool_name) || c->tool_name.type != JSON_STRING)
                return error_say(e, -EINVAL, "tool_name: expected a string");
        if (json_get(o, "args", &c->args) && c->args.type != JSON_ARRAY)
                return error_say(e, -EINVAL, "args: expected an array");
        if (json_get(o, "kwargs", &c->kwargs) && c->kwargs.type != JSON_OBJECT)
                return error_say(e, -EINVAL, "kwargs: expected an object");
        return 0;
}

/* How many prompts it asks for; -1: these are not its arguments. */
static int64_t prompts_of(const struct rlm_call *c) {
        struct json v;
        struct json_iter it = json_iter(&c->args);
        bool one = json_string_is(&c->tool_name, "llm_query"), many = json_string_is(&c->tool_name, "llm_query_batched");
        if (!one && !many)
                return 0;
        if (!json_next_item(&it, &v) && !json_get(&c->kwargs, one ? "prompt" : "prompts", &v))
                return -1;
        return one ? 1 : v.type == JSON_ARRAY ? (int64_t)json_count(&v) : -1;
}

static void refuse(struct face *f, struct http_request *r, enum lease_answer a, int64_t prompts, const char *id) {
        char text[256];
        switch (a) {
        case LEASE_TOO_MANY_PROMPTS:
                snprintf(text, sizeof text, "a turn has %u prompts, and %lld more are too many: put more into each prompt, and aggregate in Python", f->prompts_max, (long long)prompts);
                respond_error(r, "too_many_prompts", text, id);
                break;
        case LEASE_TOO_MANY_CALLS: respond_error(r, "too_many_calls", lease_answer_to_string((int)a), id); break;
        case LEASE_TOO_MANY_PENDING: respond_error(r, "too_many_pending", lease_answer_to_string((int)a), id); break;
        default: rlm_lease_answer(r, a);
        }
}

static void forget(struct call *c) {
        http_on_close(c->r, NULL, NULL);
        http_body_release(c->hold);
        free(c);
}

static void begin(struct face *f, struct call *c, const struct json *id) {
        struct http_request *r = c->r;
        _cleanup_buf_ struct buf name = BUF_INIT(LEASE_ID_MAX);
        enum lease_answer a = LEASE_OK;
        int64_t prompts = prompts_of(&c->call);
        if (id->type == JSON_STRING && json_string(id, &name) < 0)
                a = LEASE_BAD_ID;
        else if (rlm_is_executing(f->root) && !rlm_tool_known(f->root, &c->call.tool_name)) {
                forget(c);
                respond_error(r, "unknown_tool", "there is no such tool in this turn", name.len ? name.data : NULL);
                return;
        } else if (prompts < 0) {
                forget(c);
                respond_error(r, "invalid_arguments", "llm_query takes a prompt, llm_query_batched a list of prompts", name.len ? name.data : NULL);
                return;
        }
        if (a == LEASE_OK)
                a = rlm_call_begin(f->root, &c->call, id->type == JSON_STRING ? buf_str(&name) : NULL, name.len, (unsigned)MIN2(prompts, (int64_t)UINT32_MAX));
        if (a == LEASE_OK)
                return;
        forget(c);
        refuse(f, r, a, prompts, name.len ? name.data : NULL);
}

static void post_tool_call(struct http_request *r, void *user) {
        struct face *f = user;
        struct json o, id;
        struct error e = { 0 };
        const char *body;
        size_t n;
        struct call *c = calloc(1, sizeof *c);
        if (!c || http_body_hold(r, &c->hold, &body, &n) < 0) {
                free(c);
                v1_fault(r, -ENOMEM, NULL, NULL);
                return;
        }
        c->r = r;
        c->call.answer = on_answer;
        int x = json_parse(body, n, &o, &e);
        if (x == 0 && o.type != JSON_OBJECT)
                x = error_say(&e, -EINVAL, "expected a JSON object");
        if (x == 0)
                x = decode(&o, &c->call, &id, &e);
        if (x < 0) {
                http_body_release(c->hold);
                free(c);
                v1_error(r, 400, "invalid", e.text, NULL);
                return;
        }
        http_on_close(r, caller_gone, c);
        http_close_on_eof(r);
        begin(f, c, &id);
}

static void get_health(struct http_request *r, void *user) {
        struct face *f = user;
        char text[64];
        int n = snprintf(text, sizeof text, "{\"status\":\"ok\",\"executing\":%s}", rlm_is_executing(f->root) ? "true" : "false");
        http_respond(r, 200, "application/json", text, (size_t)n);
}

/* ---- the server ------------------------------------------------------------------------------------------------------------------------------ */

static bool authorize(const struct http_request *r, void *user) {
        struct face *f = user;
        const char *secret = http_header(r, "X-Broker-Secret");
        return secret && rlm_secret_ok(f->root, secret);
}

static int error_body(int status, const char *path, const char *message, struct buf *b) {
        static const struct { int status; const char *code; } codes[] = {
                { 400, "invalid" }, { 401, "unauthorized" }, { 404, "not_found" }, { 405, "method_not_allowed" }, { 408, "request_timeout" }, { 413, "ToolResultTooLarge" },
                { 414, "too_large" }, { 431, "too_large" }, { 503, "too_many_connections" },
        };
        const char *code = "refused";
        struct json_writer w = JSON_WRITER(b);
        for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
                if (codes[i].status == status)
                        code = codes[i].code;
        json_begin_object(&w);
        json_put_key(&w, "error");
        json_begin_object(&w);
        json_field_text(&w, "code", code);
        json_field_text(&w, "message", status == 413 ? "ToolResultTooLarge: the body has more than 2097152 bytes" : message);
        json_field_null(&w, "hint");
        json_end_object(&w);
        json_end_object(&w);
        return json_finish(&w);
}

static int face_open(struct rlm_root *root, const int *fds, size_t n, void *user, void **ret, struct error *e) {
        static const struct http_route routes[] = {
                { .method = "POST", .pattern = "/tool_call", .handler = post_tool_call }, { .method = "GET", .pattern = "/health", .handler = get_health },
        };
        struct api *a = user;
        struct face *f = calloc(1, sizeof *f);
        if (!f)
                return error_set(e, -ENOMEM, "serve the broker");
        f->root = root;
        f->prompts_max = rlm_settings(engine_rlm(a->engine))->limits.prompts;
        struct http_config hc = {
                .listen_fds = fds, .n_listen_fds = n, .routes = routes, .n_routes = ARRAY_SIZE(routes), .authorize = authorize, .error_body = error_body,
                .spool_dir = a->spool_dir, .user = f,
        };
        http_limits_default(&hc.limits);
        hc.limits.header_max = 8 * 1024;
        hc.limits.body_max = RLM_BODY_MAX;
        hc.limits.idle_timeout_ms = 3600 * 1000;       /* connections wait between calls; they end with their turn's processes */
        hc.limits.connections_max = RLM_BROKER_CONNECTIONS_MAX;
        int x = http_server_start(a->loop, &hc, &f->http, e);
        if (x < 0)
                free(f);
        else
                *ret = f;
        return x;
}

static void face_closed(void *user) { free(user); }

static void face_close(void *face, void *user) {
        struct face *f = face;
        http_server_stop(f->http, 0, face_closed, f);
}

const struct rlm_face rlm_broker_face = { .open = face_open, .close = face_close };
