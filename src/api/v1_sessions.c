/* /v1/sessions: a session by itself. */
#include <string.h>

#include "api/v1_internal.h"
#include "base/fields_forms.h"
#include "base/strv.h"

/* ---- a session as JSON ------------------------------------------------------------------------------------------------------------ */

static void put_labels(struct json_writer *w, char *const *labels) {
        json_put_key(w, "labels");
        json_begin_object(w);
        for (; labels && *labels; labels++) {
                const char *eq = strchr(*labels, '=');
                char name[FIELD_LABEL_TEXT_MAX + 1];
                snprintf(name, sizeof name, "%.*s", (int)(eq - *labels), *labels);
                json_field_text(w, name, eq + 1);
        }
        json_end_object(w);
}

static void put_session(struct json_writer *w, const struct session_view *v) {
        json_begin_object(w);
        json_field_text(w, "id", v->id);
        json_field_text(w, "state", session_state_to_string((int)v->state));
        json_field_text(w, "image", v->image);
        json_field_text(w, "network", sandbox_network_to_string(v->network));
        put_labels(w, v->labels);
        json_field_text(w, "error", v->error);
        json_field_bool(w, "paused", v->paused);
        json_field_uint(w, "uses", v->uses);
        v1_put_time(w, "created_at", v->created_ms);
        v1_put_time(w, "ready_at", v->ready_ms);
        v1_put_time(w, "last_used_at", v->last_used_ms);
        v1_put_time(w, "ended_at", v->ended_ms);
        v1_put_time(w, "lease_until", v->lease_until_ms);
        v1_put_seconds(w, "ttl_s", v->ttl_ms);
        v1_put_seconds(w, "idle_timeout_s", v->idle_ms);
        v1_put_seconds(w, "owner_ttl_s", v->owner_ttl_ms);
        json_end_object(w);
}

static void reply_session(struct sessions *ss, struct http_request *r, int status, const char *id) {
        struct session_view v;
        _cleanup_buf_ struct buf b = BUF_INIT(256 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        int x = session_get(ss, id, &v);
        if (x < 0) {
                v1_fault(r, x, NULL, "session");
                return;
        }
        put_session(&w, &v);
        session_view_release(&v);
        v1_reply(r, status, json_finish(&w), &b);
}

/* ---- waiting until it has started --------------------------------------------------------------------------------------------------- */

struct waiting { struct http_request *r; struct sessions *ss; struct session_wait *wait; int status; char id[SESSION_ID_SIZE]; };

static void waiting_closed(void *user) {
        struct waiting *w = user;
        session_wait_cancel(w->wait);
        free(w);
}

static void waited(void *user) {
        struct waiting *w = user;
        http_on_close(w->r, NULL, NULL);
        reply_session(w->ss, w->r, w->status, w->id);
        free(w);
}

static void reply_when_started(struct sessions *ss, struct http_request *r, int status, const char *id, uint64_t wait_s) {
        struct waiting *w = wait_s > 0 ? calloc(1, sizeof *w) : NULL;
        if (w) {
                *w = (struct waiting){ .r = r, .ss = ss, .status = status };
                snprintf(w->id, sizeof w->id, "%s", id);
                w->wait = session_wait_started(ss, id, wait_s * 1000, waited, w);
        }
        if (w && w->wait) {
                http_on_close(r, waiting_closed, w);
                return;
        }
        free(w);
        reply_session(ss, r, status, id);
}

/* ---- POST --------------------------------------------------------------------------------------------------------------------------- */

struct creation { struct http_request *r; struct sessions *ss; uint64_t wait_s; };

static void creation_closed(void *user) { ((struct creation *)user)->r = NULL; }

static void created(int x, const char *id, const struct error *e, void *user) {
        struct creation *c = user;
        if (c->r) {
                http_on_close(c->r, NULL, NULL);
                if (x == 0 || x == -EEXIST)
                        reply_when_started(c->ss, c->r, 201, id, c->wait_s);
                else if (x == -EBUSY)
                        v1_error(c->r, 409, "idempotency_conflict", "The idempotency key belongs to a session with another body", NULL);
                else
                        v1_fault(c->r, x, e && x == -EINVAL ? e->text : NULL, NULL);
        }
        free(c);
}

void v1_post_session(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct json object;
        struct session_start q;
        struct error e = { 0 };
        uint64_t wait;
        if (!ss || !v1_query_uint(r, "wait", 0, V1_WAIT_MAX_S, &wait) || !v1_body(r, true, &object))
                return;
        int x = v1_start_decode(ss, &object, http_header(r, "Idempotency-Key"), &q, &e);
        if (x < 0) {
                v1_fault(r, x, e.text, NULL);
                return;
        }
        struct creation *c = calloc(1, sizeof *c);
        if (!c) {
                session_start_release(&q);
                v1_fault(r, -ENOMEM, NULL, NULL);
                return;
        }
        *c = (struct creation){ .r = r, .ss = ss, .wait_s = wait };
        http_on_close(r, creation_closed, c);
        session_create(ss, &q.spec, created, c);
}

/* ---- GET ---------------------------------------------------------------------------------------------------------------------------- */

void v1_get_session(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        uint64_t wait;
        if (ss && v1_query_uint(r, "wait", 0, V1_WAIT_MAX_S, &wait))
                reply_when_started(ss, r, 200, http_param(r, "id"), wait);
}

static int parse_states(const char *s, unsigned *ret) {
        *ret = 0;
        while (s && *s) {
                char name[32];
                size_t n = strcspn(s, ",");
                snprintf(name, sizeof name, "%.*s", (int)MIN2(n, sizeof name - 1), s);
                int st = session_state_from_string(name);
                if (strcmp(name, "all") == 0)
                        *ret |= (1u << SESSION_STATE_MAX) - 1;
                else if (st >= 0)
                        *ret |= 1u << st;
                else
                        return -EINVAL;
                s += n + (s[n] == ',');
        }
        return 0;
}

static int parse_labels(const char *s, char ***ret) {
        int r = 0;
        while (s && *s && r == 0) {
                size_t n = strcspn(s, ",");
                if (!memchr(s, '=', n))
                        return -EINVAL;
                r = strv_push_n(ret, s, n);
                s += n + (s[n] == ',');
        }
        return r;
}

struct page { struct json_writer *w; uint64_t last; };

static int put_item(const struct session_view *v, void *user) {
        struct page *p = user;
        put_session(p->w, v);
        p->last = v->seq;
        return 0;
}

void v1_list_sessions(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct session_filter f = { 0 };
        _cleanup_strv_ char **labels = NULL;
        uint64_t limit;
        if (!ss || !v1_query_uint(r, "limit", V1_PAGE_DEFAULT, V1_PAGE_MAX, &limit) || !v1_query_uint(r, "after", 0, INT64_MAX, &f.after))
                return;
        if (parse_states(http_query(r, "state"), &f.states) < 0) {
                v1_error(r, 400, "invalid", "Invalid value for 'state': expected starting, ready, finishing, failed, finished, expired or all", NULL);
                return;
        }
        if (parse_labels(http_query(r, "label"), &labels) < 0) {
                v1_error(r, 400, "invalid", "Invalid value for 'label': expected name=value", NULL);
                return;
        }
        f.labels = labels;
        f.limit = MAX2((size_t)limit, (size_t)1);
        _cleanup_buf_ struct buf b = BUF_INIT(64u << 20);
        struct json_writer w = JSON_WRITER(&b);
        struct page p = { .w = &w };
        bool more;
        json_begin_object(&w);
        json_put_key(&w, "sessions");
        json_begin_array(&w);
        int x = sessions_list(ss, &f, put_item, &p, &more);
        json_end_array(&w);
        char next[24];
        snprintf(next, sizeof next, "%llu", (unsigned long long)p.last);
        json_field_text(&w, "next", more ? next : NULL);
        json_end_object(&w);
        int y = json_finish(&w);
        v1_reply(r, 200, x < 0 ? x : y, &b);
}

/* ---- PATCH, heartbeat ----------------------------------------------------------------------------------------------------------------- */

#define AT(member) .at = offsetof(struct session_patch, member)
#define SECONDS(name_, member, given) .name = name_, .kind = FIELD_NUMBER, AT(member), .given_at = offsetof(struct session_patch, given), .min = 0, .max = SESSION_TIME_MAX_S, .scale = 1000

static int parse_patch_labels(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct session_patch *p = target;
        char **labels;
        int r = field_labels(f, v, &labels, e);
        if (r < 0)
                return r;
        strv_free(p->labels);
        p->labels = labels;
        p->labels_given = true;
        return 0;
}

static const struct field patch_fields[] = {
        { .name = "labels", .kind = FIELD_CUSTOM, .parse = parse_patch_labels, .type = "object of strings", .doc = "takes the place of all labels" },
        { SECONDS("ttl_s", ttl_ms, ttl_given), .doc = "from its creation; 0 = no end" },
        { SECONDS("idle_timeout_s", idle_ms, idle_given), .doc = "after the end of the last use; 0 = no end" },
        { SECONDS("owner_ttl_s", owner_ttl_ms, owner_ttl_given), .doc = "from now on; 0 = no lease" },
};

struct v1_body v1_patch_body(void) { return (struct v1_body){ patch_fields, ARRAY_SIZE(patch_fields) }; }

struct change { struct http_request *r; struct sessions *ss; char id[SESSION_ID_SIZE]; };

static void change_closed(void *user) { ((struct change *)user)->r = NULL; }

static void changed(int x, void *user) {
        struct change *c = user;
        if (c->r) {
                http_on_close(c->r, NULL, NULL);
                if (x == 0)
                        reply_session(c->ss, c->r, 200, c->id);
                else if (x == -ENOENT)
                        v1_unready(c->ss, c->r, c->id);
                else
                        v1_fault(c->r, x, NULL, NULL);
        }
        free(c);
}

void v1_patch_session(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct session_patch p = { 0 };
        struct json object;
        struct error e = { 0 };
        if (!ss || !v1_body(r, false, &object))
                return;
        int x = fields_decode(patch_fields, ARRAY_SIZE(patch_fields), &object, 0, &p, &e);
        const char *text = x < 0 ? e.text : NULL;
        struct change *c = x == 0 ? calloc(1, sizeof *c) : NULL;
        if (x == 0 && !c)
                x = -ENOMEM;
        if (c) {
                *c = (struct change){ .r = r, .ss = ss };
                snprintf(c->id, sizeof c->id, "%s", http_param(r, "id"));
                x = session_change(ss, c->id, &p, changed, c);
        }
        strv_free(p.labels);
        if (x == 0) {
                http_on_close(r, change_closed, c);
                return;
        }
        free(c);
        if (x == -ENOENT)
                v1_unready(ss, r, http_param(r, "id"));
        else
                v1_fault(r, x, text, NULL);
}

void v1_post_heartbeat(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        struct session_view v;
        if (!ss)
                return;
        if (session_heartbeat(ss, id) < 0 || session_get(ss, id, &v) < 0) {
                v1_unready(ss, r, id);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "id", v.id);
        v1_put_time(&w, "lease_until", v.lease_until_ms);
        json_end_object(&w);
        session_view_release(&v);
        v1_reply(r, 200, json_finish(&w), &b);
}

/* ---- DELETE --------------------------------------------------------------------------------------------------------------------------- */

struct deletion { struct http_request *r; char id[SESSION_ID_SIZE]; };

static void deletion_closed(void *user) { ((struct deletion *)user)->r = NULL; }

static void deleted(int x, void *user) {
        struct deletion *d = user;
        char body[128];
        if (d->r) {
                http_on_close(d->r, NULL, NULL);
                if (x == 0)
                        http_respond(d->r, 200, "application/json", body, (size_t)snprintf(body, sizeof body, "{\"id\":\"%s\",\"deleted\":true}", d->id));
                else
                        v1_fault(d->r, x, NULL, "session");
        }
        free(d);
}

void v1_delete_session(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        struct deletion *d = ss ? calloc(1, sizeof *d) : NULL;
        if (!d) {
                if (ss)
                        v1_fault(r, -ENOMEM, NULL, NULL);
                return;
        }
        d->r = r;
        snprintf(d->id, sizeof d->id, "%s", http_param(r, "id"));
        http_on_close(r, deletion_closed, d);
        int x = strlen(http_param(r, "id")) < sizeof d->id ? session_delete(ss, d->id, deleted, d) : -ENOENT;
        if (x < 0)
                deleted(x, d);
}
