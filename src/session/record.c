/* What the ledger keeps of a session: a summary while it lives, a record when it has ended. No environment and no command is in
 * either: those may hold secrets. */
#include <string.h>

#include "base/json.h"
#include "base/strv.h"
#include "session/session_internal.h"

static void put_labels(struct json_writer *w, char *const *labels) {
        json_put_key(w, "labels");
        json_begin_object(w);
        for (; labels && *labels; labels++) {
                const char *eq = strchr(*labels, '=');
                char name[SESSION_ERROR_MAX];
                snprintf(name, sizeof name, "%.*s", (int)(eq - *labels), *labels);
                json_field_text(w, name, eq + 1);
        }
        json_end_object(w);
}

static void put_spec(struct json_writer *w, const struct session_spec *spec) {
        json_field_text(w, "image", spec->image);
        put_labels(w, spec->labels);
        json_field_text(w, "network", sandbox_network_to_string((int)spec->network));
        json_field_uint(w, "ttl_ms", spec->ttl_ms);
        json_field_uint(w, "idle_ms", spec->idle_ms);
        json_field_uint(w, "owner_ttl_ms", spec->owner_ttl_ms);
}

int record_summary(const struct session_spec *spec, struct buf *ret) {
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        put_spec(&w, spec);
        json_end_object(&w);
        return json_finish(&w);
}

int record_final(const struct session *s, struct buf *ret) {
        struct json_writer w = JSON_WRITER(ret);
        size_t n;
        const char *answer = s->finish ? finish_answer(s->finish, &n) : NULL;
        json_begin_object(&w);
        put_spec(&w, &s->spec);
        json_field_text(&w, "error", s->error);
        json_field_int(&w, "ready_ms", s->ready_ms);
        json_field_int(&w, "last_used_ms", s->last_used_ms);
        if (s->network_said)
                json_field_raw(&w, "egress", s->network_said, strlen(s->network_said));
        if (answer)                            /* last: see record_head() */
                json_field_raw(&w, "finish", answer, n);
        json_end_object(&w);
        return json_finish(&w);
}

int record_of_lost(const char *summary, size_t n, const char *why, struct buf *ret) {
        struct json v, key, value;
        struct json_writer w = JSON_WRITER(ret);
        json_begin_object(&w);
        if (json_parse(summary, n, &v, NULL) == 0) {
                for (struct json_iter it = json_iter(&v); json_next_member(&it, &key, &value);) {
                        _cleanup_buf_ struct buf name = BUF_INIT(64);
                        if (json_string(&key, &name) == 0)
                                json_field_raw(&w, buf_str(&name), value.p, value.n);
                }
        }
        json_field_text(&w, "error", why);
        json_end_object(&w);
        return json_finish(&w);
}

/* Within a string the mark would have backslashes, and no other member of that name is an object. */
static bool cut_answer(struct buf *text) {
        static const char mark[] = ",\"finish\":{";
        char *at = memmem(buf_str(text), text->len, mark, strlen(mark));
        if (!at)
                return false;
        at[0] = '}';
        at[1] = 0;
        text->len = (size_t)(at - text->data) + 1;
        return true;
}

int record_text(struct sessions *ss, const char *id, struct ledger_row *ret, struct buf *ret_text) {
        int r = ledger_get_text(ss->cfg.ledger, id, RECORD_HEAD_FIRST, ret, ret_text);
        if (r < 0 || cut_answer(ret_text) || ret_text->len < RECORD_HEAD_FIRST)
                return r;
        ledger_row_release(ret);
        buf_reset(ret_text);
        r = ledger_get_text(ss->cfg.ledger, id, RECORD_HEAD_MAX, ret, ret_text);
        if (r == 0)
                (void)cut_answer(ret_text);
        return r;
}

/* ---- back --------------------------------------------------------------------------------------------------------------------- */

static int take_text(const struct json *o, const char *key, size_t max, char **ret) {
        struct json v;
        _cleanup_buf_ struct buf b = BUF_INIT(max);
        if (!json_get(o, key, &v) || v.type != JSON_STRING)
                return 0;
        int r = json_string(&v, &b);
        if (r == 0 && !(*ret = buf_steal(&b)))
                r = -ENOMEM;
        return r;
}

static int64_t take_int(const struct json *o, const char *key) {
        struct json v;
        int64_t n = 0;
        if (json_get(o, key, &v))
                (void)json_int(&v, &n);
        return n;
}

static int take_labels(const struct json *o, char ***ret) {
        struct json labels, key, value;
        int r = strv_ensure(ret);
        if (!json_get(o, "labels", &labels))
                return r;
        for (struct json_iter it = json_iter(&labels); r == 0 && json_next_member(&it, &key, &value);) {
                _cleanup_buf_ struct buf b = BUF_INIT(1024);
                r = json_string(&key, &b);
                if (r == 0)
                        r = buf_addc(&b, '=');
                if (r == 0)
                        r = json_string(&value, &b);
                if (r == 0)
                        r = strv_push(ret, buf_str(&b));
        }
        return r;
}

int record_view(const char *text, size_t n, struct session_view *v) {
        struct json o;
        _cleanup_free_ char *network = NULL;
        int r = json_parse(text, n, &o, NULL);
        if (r == 0)
                r = take_text(&o, "image", 8192, &v->image);
        if (r == 0)
                r = take_text(&o, "error", 8192, &v->error);
        if (r == 0)
                r = take_text(&o, "network", 64, &network);
        if (r == 0)
                r = take_labels(&o, &v->labels);
        int net = network ? sandbox_network_from_string(network) : -1;
        v->network = net < 0 ? NETWORK_NONE : net;
        v->ready_ms = take_int(&o, "ready_ms");
        v->last_used_ms = take_int(&o, "last_used_ms");
        v->ttl_ms = (uint64_t)take_int(&o, "ttl_ms");
        v->idle_ms = (uint64_t)take_int(&o, "idle_ms");
        v->owner_ttl_ms = (uint64_t)take_int(&o, "owner_ttl_ms");
        return r;
}

static int copy_labels(char *const *labels, char ***ret) {
        int r = strv_ensure(ret);
        for (; r == 0 && labels && *labels; labels++)
                r = strv_push(ret, *labels);
        return r;
}

void view_of_live(const struct session *s, struct session_view *ret, int *ret_r) {
        struct session_view v = {
                .state = s->state, .network = (int)s->spec.network, .paused = s->paused, .created_ms = s->created_ms, .ready_ms = s->ready_ms,
                .last_used_ms = s->last_used_ms, .ttl_ms = s->spec.ttl_ms, .idle_ms = s->spec.idle_ms, .owner_ttl_ms = s->spec.owner_ttl_ms, .uses = s->n_uses,
        };
        memcpy(v.id, s->id, sizeof v.id);
        if (s->spec.owner_ttl_ms > 0)
                v.lease_until_ms = wall_ms() + (int64_t)(s->lease_at + s->spec.owner_ttl_ms) - (int64_t)now_ms();
        v.image = strdup(s->spec.image);
        v.error = s->error ? strdup(s->error) : NULL;
        if (!v.image || (s->error && !v.error) || copy_labels(s->spec.labels, &v.labels) < 0) {
                session_view_release(&v);
                *ret_r = -ENOMEM;
                return;
        }
        *ret = v;
        *ret_r = 0;
}
