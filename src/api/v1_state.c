/* What a session uses, and whether it stands still. */
#include <string.h>

#include "api/v1_internal.h"

struct question { struct session_use use; struct http_request *r; bool pause; char id[SESSION_ID_SIZE]; };

static void question_closed(void *user) { ((struct question *)user)->r = NULL; }

/* A use for the time of the question, so that the session is there when the answer comes. */
static struct question *ask(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        if (!ss)
                return NULL;
        struct question *q = calloc(1, sizeof *q);
        int x = q ? session_use_begin(ss, id, &q->use, NULL) : -ENOMEM;
        if (x < 0) {
                free(q);
                if (x == -ENOENT || x == -EAGAIN)
                        v1_unready(ss, r, id);
                else
                        v1_fault(r, x, NULL, NULL);
                return NULL;
        }
        q->r = r;
        snprintf(q->id, sizeof q->id, "%s", id);
        session_use_passive(&q->use);  /* to be looked at is not to be used */
        http_on_close(r, question_closed, q);
        return q;
}

static void answered(struct question *q, int x, struct buf *b) {
        if (x < 0 && session_is_ending(q->use.session))
                x = -ESHUTDOWN;
        session_use_end(&q->use);
        if (q->r) {
                http_on_close(q->r, NULL, NULL);
                if (x < 0)
                        v1_fault(q->r, x == -ESHUTDOWN ? -ENOENT : x, NULL, "session");
                else
                        v1_reply(q->r, 200, 0, b);
        }
        free(q);
}

static void put_number(struct json_writer *w, const char *key, int64_t v) {
        json_put_key(w, key);
        if (v < 0)
                json_put_null(w);
        else
                json_put_int(w, v);
}

static void on_usage(struct sandbox *sb, int x, const struct sandbox_now *now, void *user) {
        struct question *q = user;
        _cleanup_buf_ struct buf b = BUF_INIT(4096);
        if (x == 0 && now) {
                struct json_writer w = JSON_WRITER(&b);
                json_begin_object(&w);
                json_field_text(&w, "id", q->id);
                put_number(&w, "cpu_ms", now->cpu_us < 0 ? -1 : now->cpu_us / 1000);
                put_number(&w, "memory_bytes", now->memory_bytes);
                put_number(&w, "memory_peak_bytes", now->memory_peak_bytes);
                put_number(&w, "pids", now->pids);
                put_number(&w, "pids_peak", now->pids_peak);
                put_number(&w, "disk_bytes", now->disk_bytes);
                put_number(&w, "disk_free_bytes", now->disk_free_bytes);
                put_number(&w, "inodes", now->inodes);
                put_number(&w, "inodes_free", now->inodes_free);
                json_field_bool(&w, "paused", now->frozen);
                json_end_object(&w);
                x = json_finish(&w);
        }
        answered(q, x, &b);
}

void v1_get_usage(struct http_request *r, void *user) {
        struct question *q = ask(r, user);
        struct sandbox *sb = q ? session_sandbox(q->use.session) : NULL;
        if (!q)
                return;
        int x = sb ? sandbox_usage_now(sb, on_usage, q) : -ESHUTDOWN;
        if (x < 0)
                answered(q, x, NULL);
}

static void on_frozen(struct sandbox *sb, int x, void *user) {
        struct question *q = user;
        _cleanup_buf_ struct buf b = BUF_INIT(256);
        if (q->pause)
                session_pause_ends(q->use.session, x);
        else if (x == 0)
                session_resumed(q->use.session);
        if (x == 0) {
                x = buf_printf(&b, "{\"id\":\"%s\",\"paused\":%s}", q->id, q->pause ? "true" : "false");
        }
        answered(q, x, &b);
}

static void freeze(struct http_request *r, void *user, bool pause) {
        struct question *q = ask(r, user);
        struct sandbox *sb = q ? session_sandbox(q->use.session) : NULL;
        if (!q)
                return;
        q->pause = pause;
        if (sb && !pause && session_snapshotting(q->use.session)) {
                on_frozen(sb, 0, q);           /* it goes on when the snapshot is made */
                return;
        }
        if (pause)
                session_pause_begins(q->use.session);
        int x = !sb ? -ESHUTDOWN : pause ? sandbox_freeze(sb, on_frozen, q) : sandbox_thaw(sb, on_frozen, q);
        if (x < 0) {
                if (pause)
                        session_pause_ends(q->use.session, x);
                answered(q, x, NULL);
        }
}

void v1_post_pause(struct http_request *r, void *user) { freeze(r, user, true); }
void v1_post_resume(struct http_request *r, void *user) { freeze(r, user, false); }
