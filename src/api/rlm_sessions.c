/* /v1/rlm/sessions and their turns; what all files of this surface share. */
#include <string.h>

#include "api/rlm_api.h"
#include "base/clock.h"
#include "base/hash.h"

#define KEY_MAX RLM_KEY_MAX

/* ---- answers -------------------------------------------------------------------------------------------------------------------------- */

struct rlm *rlm_of(struct http_request *r, void *user) {
        struct api *a = user;
        struct rlm *m = engine_rlm(a->engine);
        if (!m)
                v1_fault(r, -ESHUTDOWN, NULL, NULL);
        return m;
}

static const struct { int status; const char *message; } faults[] = {
        [RLM_OK] = { 500, "" }, [RLM_NO_SESSION] = { 404, "There is no such session" }, [RLM_NO_TURN] = { 404, "There is no such turn" },
        [RLM_STALE_GENERATION] = { 409, "stale generation" }, [RLM_TURN_ACTIVE] = { 409, "The session has a turn already" },
        [RLM_TURN_ENDED] = { 409, "The turn has ended" }, [RLM_EXECUTING] = { 409, "An action is executing already" },
        [RLM_NOT_READY] = { 409, "The turn has not begun yet" }, [RLM_CANCELLED] = { 409, "The turn was ended before it began" },
        [RLM_INVALID] = { 400, "The request is not valid" }, [RLM_CODE_TOO_LARGE] = { 400, "The code has more than 12000 characters" },
        [RLM_EMPTY_CODE] = { 400, "The code is blank" }, [RLM_ADMISSION_TIMEOUT] = { 503, "No sandbox was free in time" }, [RLM_TOO_MANY] = { 503, "Too many" },
        [RLM_DRAINING] = { 503, "The server is shutting down" }, [RLM_DISK_FULL] = { 503, "The disk is full" },
        [RLM_CONFLICT] = { 409, "The idempotency key belongs to another request" }, [RLM_START_FAILED] = { 502, "The turn could not be begun" },
        [RLM_TOO_MANY_CHILDREN] = { 429, "The turn may have no more children" }, [RLM_CHILD_DEPTH] = { 409, "A child has no children of its own" },
        [RLM_INTERNAL] = { 500, "Internal error" },
};
_Static_assert(ARRAY_SIZE(faults) == RLM_FAULT_MAX, "a fault has no answer");

void rlm_fault_answer(struct http_request *r, enum rlm_fault f, const char *text) {
        if (faults[f].status == 503)
                http_respond_header(r, "Retry-After", "1");
        v1_error(r, faults[f].status, rlm_fault_to_string((int)f), text && *text ? text : faults[f].message, NULL);
}

void rlm_lease_answer(struct http_request *r, enum lease_answer a) {
        static const struct { int status; const char *code; } words[] = {
                [LEASE_OK] = { 500, "internal" }, [LEASE_STALE] = { 409, "stale_lease" }, [LEASE_DUPLICATE_RESULT] = { 409, "duplicate_result" },
                [LEASE_DUPLICATE_CALL] = { 409, "duplicate_call" }, [LEASE_UNKNOWN_CALL] = { 404, "unknown_call" }, [LEASE_NOT_EXECUTING] = { 409, "not_executing" },
                [LEASE_TIMEOUT] = { 504, "timeout" }, [LEASE_BAD_ID] = { 400, "invalid" }, [LEASE_TOO_MANY_CALLS] = { 429, "too_many_calls" },
                [LEASE_TOO_MANY_PENDING] = { 429, "too_many_pending" }, [LEASE_TOO_MANY_PROMPTS] = { 429, "too_many_prompts" }, [LEASE_NO_MEMORY] = { 500, "internal" },
        };
        _Static_assert(ARRAY_SIZE(words) == LEASE_ANSWER_MAX, "a word of the lease machine has no answer");
        v1_error(r, words[a].status, words[a].code, lease_answer_to_string((int)a), NULL);
}

bool rlm_body(struct http_request *r, size_t max, struct json *ret) {
        struct error e;
        const char *body;
        size_t n;
        if (http_body_len(r) > max) {
                v1_fault(r, -E2BIG, NULL, NULL);
                return false;
        }
        if (http_body(r, &body, &n) < 0) {
                v1_fault(r, -EIO, NULL, NULL);
                return false;
        }
        if (n == 0) {
                body = "{}";
                n = 2;
        }
        int x = json_parse(body, n, ret, &e);
        if (x == 0 && ret->type == JSON_OBJECT)
                return true;
        v1_error(r, 400, "invalid", x == 0 ? "The body must be a JSON object" : e.text, NULL);
        return false;
}

struct rlm_turn *rlm_turn_of(struct http_request *r, void *user) {
        struct rlm *m = rlm_of(r, user);
        struct rlm_turn *t;
        if (!m)
                return NULL;
        enum rlm_fault f = rlm_turn_find(m, http_param(r, "id"), http_param(r, "tid"), &t);
        if (f == RLM_OK)
                return t;
        rlm_fault_answer(r, f, NULL);
        return NULL;
}

/* ---- idempotency -------------------------------------------------------------------------------------------------------------------------- */

/* The header, or the field; its hash is that of the body's canonical form. */
static int take_key(struct http_request *r, const struct json *o, char ret_key[static KEY_MAX + 1], char ret_hash[static SHA256_HEX], struct error *e) {
        struct json v;
        const char *header = http_header(r, "Idempotency-Key");
        _cleanup_buf_ struct buf b = BUF_INIT(KEY_MAX), canonical = BUF_INIT(2 * RLM_BODY_MAX);
        ret_key[0] = 0;
        if (json_get(o, "idempotency_key", &v) && v.type != JSON_NULL && (json_string(&v, &b) < 0 || b.len == 0 || strlen(b.data) != b.len))
                return error_say(e, -EINVAL, "Invalid value for 'idempotency_key': expected 1 to %u bytes", KEY_MAX);
        if (header && (strlen(header) > KEY_MAX || !*header || (b.len > 0 && strcmp(header, b.data) != 0)))
                return error_say(e, -EINVAL, "Invalid value for 'Idempotency-Key': expected 1 to %u bytes, and the same as the field", KEY_MAX);
        snprintf(ret_key, KEY_MAX + 1, "%s", header ? header : buf_str(&b));
        if (!ret_key[0])
                return 0;
        int x = json_canonical_buf(o, &canonical);
        if (x == 0)
                x = sha256_hex(buf_str(&canonical), canonical.len, ret_hash);
        return x < 0 ? error_set(e, x, "read the request") : 0;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------------------------------- */

struct session_body { char *workspace; char **labels; };

static int parse_key_field(const struct field *f, const struct json *v, void *target, struct error *e) { return 0; /* take_key reads it */ }

#define KEY_ROW { .name = "idempotency_key", .kind = FIELD_CUSTOM, .parse = parse_key_field, .type = "string", .doc = "also as the header `Idempotency-Key`: the same request again gets the same answer" }

static const struct field session_rows[] = {
        { .name = "workspace", .kind = FIELD_STRING, .at = offsetof(struct session_body, workspace), .max = RLM_WORKSPACE_MAX, .def = "one of its own",
          .doc = "name of the workspace: lower-case letters, digits and `._-`, at most 64" },
        KEY_ROW,
};
struct v1_body v1_rlm_session_body(void) { return (struct v1_body){ session_rows, ARRAY_SIZE(session_rows) }; }

struct creation { struct http_request *r; struct rlm *m; bool answered; };

static void put_session(struct json_writer *w, const struct rlm_session *s) {
        struct rlm_session_view v;
        rlm_session_look(s, &v);
        json_field_text(w, "session", v.id);
        json_field_text(w, "workspace", v.workspace);
        json_field_uint(w, "generation", v.generation);
        json_field_text(w, "turn", v.turn);
        json_field_text(w, "root", v.root_ready ? "ready" : v.root ? "starting" : NULL);
        json_field_text(w, "parent", v.parent);
        json_field_uint(w, "children", v.children);
}

static void answer_session(struct http_request *r, int status, const struct rlm_session *s) {
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        put_session(&w, s);
        json_end_object(&w);
        v1_reply(r, status, json_finish(&w), &b);
}

static void creation_closed(void *user) { ((struct creation *)user)->r = NULL; }

static void on_created(enum rlm_fault f, const char *id, void *user) {
        struct creation *c = user;
        struct http_request *r = c->r;
        struct rlm_session *s = f == RLM_OK ? rlm_session_find(c->m, id) : NULL;
        free(c);
        if (!r)
                return;
        http_on_close(r, NULL, NULL);
        if (s)
                answer_session(r, 201, s);
        else
                rlm_fault_answer(r, f == RLM_OK ? RLM_NO_SESSION : f, f == RLM_INVALID ? "Invalid value for 'workspace': expected lower-case letters, digits and ._-" : NULL);
}

void v1_post_rlm_session(struct http_request *r, void *user) {
        struct rlm *m = rlm_of(r, user);
        struct session_body body = { 0 };
        struct json o;
        struct error e = { 0 };
        char key[KEY_MAX + 1], hash[SHA256_HEX];
        if (!m || !rlm_body(r, RLM_BODY_MAX, &o))
                return;
        int x = fields_decode(session_rows, ARRAY_SIZE(session_rows), &o, 0, &body, &e);
        if (x == 0)
                x = take_key(r, &o, key, hash, &e);
        struct creation *c = x == 0 ? malloc(sizeof *c) : NULL;
        if (c) {
                const struct rlm_session_spec spec = { .workspace = body.workspace, .tenant = "", .key = key[0] ? key : NULL, .hash = hash };
                *c = (struct creation){ .r = r, .m = m };
                http_on_close(r, creation_closed, c);
                rlm_session_create(m, &spec, on_created, c);
        } else
                v1_fault(r, x < 0 ? x : -ENOMEM, e.text, NULL);
        free(body.workspace);
}

static void list_one(struct rlm_session *s, void *user) {
        struct json_writer *w = user;
        struct rlm_session_view v;
        rlm_session_look(s, &v);
        if (v.parent)
                return;
        json_begin_object(w);
        put_session(w, s);
        json_end_object(w);
}

void v1_list_rlm_sessions(struct http_request *r, void *user) {
        struct rlm *m = rlm_of(r, user);
        if (!m)
                return;
        struct rlm_stats st;
        _cleanup_buf_ struct buf b = BUF_INIT(16u << 20);
        struct json_writer w = JSON_WRITER(&b);
        rlm_stats(m, &st);
        json_begin_object(&w);
        json_put_key(&w, "sessions");
        json_begin_array(&w);
        rlm_each(m, list_one, &w);
        json_end_array(&w);
        json_field_uint(&w, "slots", st.slots);
        json_field_uint(&w, "slots_used", st.slots_used);
        json_field_uint(&w, "warm", st.warm);
        json_field_uint(&w, "roots", st.roots);
        json_field_uint(&w, "ending", st.ending);
        json_field_uint(&w, "waiting", st.waiting);
        json_end_object(&w);
        v1_reply(r, 200, json_finish(&w), &b);
}

void v1_get_rlm_session(struct http_request *r, void *user) {
        struct rlm *m = rlm_of(r, user);
        struct rlm_session *s = m ? rlm_session_find(m, http_param(r, "id")) : NULL;
        if (s)
                answer_session(r, 200, s);
        else if (m)
                rlm_fault_answer(r, RLM_NO_SESSION, NULL);
}

/* ---- ends of things: whoever asked may be gone when they have come ------------------------------------------------------------------------------- */

struct ending { struct http_request *r; const char *word; char id[RLM_TURN_ID_SIZE]; };

static void ending_closed(void *user) { ((struct ending *)user)->r = NULL; }

static void answer_ending(struct ending *en, bool fenced, uint64_t generation) {
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        struct http_request *r = en->r;
        if (r) {
                http_on_close(r, NULL, NULL);
                json_begin_object(&w);
                json_field_text(&w, fenced || strcmp(en->word, "ended") == 0 ? "turn" : "session", en->id);
                json_field_bool(&w, en->word, true);
                if (fenced)
                        json_field_uint(&w, "generation", generation);
                json_end_object(&w);
                v1_reply(r, 200, json_finish(&w), &b);
        }
        free(en);
}

static void on_end(void *user) { answer_ending(user, false, 0); }
static void on_fenced(uint64_t generation, void *user) { answer_ending(user, true, generation); }

static struct ending *ending_new(struct http_request *r, const char *word, const char *id) {
        struct ending *en = calloc(1, sizeof *en);
        if (!en) {
                rlm_fault_answer(r, RLM_INTERNAL, NULL);
                return NULL;
        }
        en->r = r;
        en->word = word;
        snprintf(en->id, sizeof en->id, "%s", id);
        http_on_close(r, ending_closed, en);
        return en;
}

static void ending_refused(struct ending *en, enum rlm_fault f) {
        struct http_request *r = en->r;
        free(en);
        http_on_close(r, NULL, NULL);
        rlm_fault_answer(r, f, NULL);
}

void v1_delete_rlm_session(struct http_request *r, void *user) {
        struct rlm *m = rlm_of(r, user);
        struct ending *en = m ? ending_new(r, "deleted", http_param(r, "id")) : NULL;
        if (!en)
                return;
        enum rlm_fault f = rlm_session_delete(m, http_param(r, "id"), on_end, en);
        if (f != RLM_OK)
                ending_refused(en, f);
}

void v1_delete_rlm_turn(struct http_request *r, void *user) {
        struct rlm_turn *t = rlm_turn_of(r, user);
        struct ending *en = t ? ending_new(r, "ended", rlm_turn_id(t)) : NULL;
        if (!en)
                return;
        enum rlm_fault f = rlm_turn_end(t, on_end, en);
        if (f != RLM_OK)
                ending_refused(en, f);
}

void v1_post_rlm_cancel(struct http_request *r, void *user) {
        struct rlm_turn *t = rlm_turn_of(r, user);
        struct ending *en = t ? ending_new(r, "cancelled", rlm_turn_id(t)) : NULL;
        if (!en)
                return;
        enum rlm_fault f = rlm_turn_cancel(t, on_fenced, en);
        if (f != RLM_OK)
                ending_refused(en, f);
}

/* ---- turns --------------------------------------------------------------------------------------------------------------------------------------- */

static int parse_span(const struct field *f, const struct json *v, void *target, struct error *e) {
        *(struct json *)((char *)target + f->at) = *v;
        return 0;
}

#define TURN(member) offsetof(struct rlm_turn_request, member)
static const struct field turn_rows[] = {
        { .name = "tools", .kind = FIELD_CUSTOM, .parse = parse_span, .at = TURN(tools), .type = "array of objects", .def = "[]",
          .doc = "what the code may call: `name`, `description`, `parameters` (a JSON schema); at most 128" },
        { .name = "outputs", .kind = FIELD_CUSTOM, .parse = parse_span, .at = TURN(outputs), .type = "array of objects", .def = "any",
          .doc = "what SUBMIT takes: `name`, `type`, `required`, `default`; at most 64" },
        { .name = "acquire_timeout_s", .kind = FIELD_NUMBER, .at = TURN(acquire_ms), .min = 0, .max = 3600, .scale = 1000, .def = "30",
          .doc = "how long to wait for a slot; a child waits 5 seconds at most" },
        KEY_ROW,
};
struct v1_body v1_rlm_turn_body(void) { return (struct v1_body){ turn_rows, ARRAY_SIZE(turn_rows) }; }

bool rlm_turn_request(struct http_request *r, struct rlm_turn_request *ret) {
        struct json o;
        struct error e = { 0 };
        *ret = (struct rlm_turn_request){ .acquire_ms = RLM_ACQUIRE_DEFAULT_S * 1000 };
        if (!rlm_body(r, RLM_BODY_MAX, &o))
                return false;
        int x = fields_decode(turn_rows, ARRAY_SIZE(turn_rows), &o, 0, ret, &e);
        if (x == 0)
                x = take_key(r, &o, ret->key, ret->hash, &e);
        if (x < 0) {
                v1_fault(r, x, e.text, NULL);
                return false;
        }
        ret->spec = (struct rlm_turn_spec){
                .tools = &ret->tools, .outputs = &ret->outputs, .acquire_ms = ret->acquire_ms, .key = ret->key[0] ? ret->key : NULL, .hash = ret->key[0] ? ret->hash : NULL,
        };
        return true;
}

struct beginning { struct http_request *r; struct rlm_begin *wait; };

static void beginning_closed(void *user) {
        struct beginning *b = user;
        rlm_begin_abandon(b->wait);
        free(b);
}

void rlm_begun_answer(struct http_request *r, enum rlm_fault f, const struct error *e, const struct rlm_turn *t, const char *child) {
        if (f != RLM_OK) {
                rlm_fault_answer(r, f, e ? e->text : NULL);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        if (child)
                json_field_text(&w, "child", child);
        json_field_text(&w, "turn", rlm_turn_id(t));
        json_field_uint(&w, "generation", rlm_turn_generation(t));
        json_end_object(&w);
        v1_reply(r, 201, json_finish(&w), &b);
}

static void on_begun(enum rlm_fault f, const struct error *e, struct rlm_turn *t, void *user) {
        struct beginning *bg = user;
        struct http_request *r = bg->r;
        free(bg);
        http_on_close(r, NULL, NULL);
        rlm_begun_answer(r, f, e, t, NULL);
}

void v1_post_rlm_turn(struct http_request *r, void *user) {
        struct rlm *m = rlm_of(r, user);
        struct rlm_turn_request q;
        struct error e = { 0 };
        if (!m || !rlm_turn_request(r, &q))
                return;
        struct rlm_session *s = rlm_session_find(m, http_param(r, "id"));
        struct beginning *b = s ? malloc(sizeof *b) : NULL;
        if (!b) {
                rlm_fault_answer(r, s ? RLM_INTERNAL : RLM_NO_SESSION, NULL);
                return;
        }
        *b = (struct beginning){ .r = r };
        enum rlm_fault f = rlm_turn_begin(s, &q.spec, on_begun, b, &b->wait, &e);
        if (f != RLM_OK) {
                free(b);
                rlm_fault_answer(r, f, e.text);
                return;
        }
        http_on_close(r, beginning_closed, b);
        http_close_on_eof(r);
}
