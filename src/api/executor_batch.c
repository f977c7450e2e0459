/* POST /task/batch: many submissions in one body, each accepted or refused by itself, answered in their order once the last
 * one is on disk. */
#include <string.h>

#include "api/executor_internal.h"
#include "score/request.h"

struct item {
        struct batch *batch;
        struct prepared p;
        int x;                         /* what came of decoding */
        char id[37];                   /* accepted */
        const char *code;              /* refused */
        char *error;
};
struct batch {
        uv_work_t work;
        struct api *a;
        struct http_request *r;        /* NULL: the client is gone */
        const struct score_defaults *defaults;
        struct http_body_hold *hold;   /* while the pool decodes it */
        const char *body; size_t body_len;
        int x; struct error e;         /* what came of decoding the whole */
        size_t n, waiting;
        struct item *items;
};

static void put_item(struct json_writer *w, const struct item *it) {
        json_begin_object(w);
        if (it->id[0]) {
                json_field_text(w, "task_id", it->id);
                json_field_text(w, "status", "pending");
        } else {
                json_field_text(w, "error", it->error ? it->error : fault_text(-EIO));
                if (it->code)
                        json_field_text(w, "code", it->code);
        }
        json_end_object(w);
}

static void batch_answer(struct batch *b) {
        _cleanup_buf_ struct buf body = BUF_INIT(8u << 20);
        struct json_writer w = JSON_WRITER(&body);
        json_begin_object(&w);
        json_put_key(&w, "tasks");
        json_begin_array(&w);
        for (size_t i = 0; i < b->n; i++)
                put_item(&w, &b->items[i]);
        json_end_array(&w);
        json_end_object(&w);
        http_on_close(b->r, NULL, NULL);
        reply_buf(b->r, 202, json_finish(&w), &body);
}

static void batch_free(struct batch *b) {
        for (size_t i = 0; i < b->n; i++) {
                prepared_release(&b->items[i].p);
                free(b->items[i].error);
        }
        free(b->items);
        free(b);
}

/* One of the things that the batch waits for has ended; the last one answers. */
static void batch_step(struct batch *b) {
        if (--b->waiting > 0)
                return;
        if (b->r)
                batch_answer(b);
        batch_free(b);
}

static void item_refused(struct item *it, int r, const char *text) {
        it->code = fault_of_errno(r).code;
        if (!it->error)
                it->error = strdup(text);
}

static void item_done(int r, const char *id, void *user) {
        struct item *it = user;
        if (r == 0 || r == -EEXIST) {
                snprintf(it->id, sizeof it->id, "%s", id);
                executor_log_accepted(id, &it->p, r == -EEXIST);
        } else {
                item_refused(it, r, fault_text(r));
        }
        prepared_release(&it->p);
        batch_step(it->batch);
}

static void batch_closed(void *user) {
        ((struct batch *)user)->r = NULL;
}

static void item_go_on(struct batch *b, struct item *it) {
        struct error e;
        int r = it->x < 0 ? it->x : executor_check(b->a, &it->p, &e);
        if (r < 0) {
                item_refused(it, r, it->x < 0 ? fault_text(r) : e.text);
                return;
        }
        b->waiting++;
        r = executor_submit(b->a, &it->p, item_done, it);
        if (r < 0)
                item_done(r, NULL, it);
}

/* Decoded. Whoever has gone by now was promised nothing, and the engine may be gone with him. */
static void batch_go_on(struct batch *b) {
        if (!b->r || b->x < 0) {
                if (b->r) {
                        http_on_close(b->r, NULL, NULL);
                        reply_error(b->r, fault_of_errno(b->x), b->x == -ENOMEM ? fault_text(b->x) : b->e.text);
                }
                batch_free(b);
                return;
        }
        b->waiting = 1;                /* this function itself: nothing answers before all are handed over */
        for (size_t i = 0; i < b->n; i++)
                item_go_on(b, &b->items[i]);
        batch_step(b);
}

/* ---- decoding: any thread -------------------------------------------------------------------------------------------------- */

static int batch_tasks(const struct json *object, struct json *ret, struct error *e) {
        struct json v;
        if (!json_get(object, "tasks", &v) || v.type == JSON_NULL)
                return error_say(e, -EINVAL, "Missing required fields: ['tasks']");
        if (v.type != JSON_ARRAY)
                return error_say(e, -EINVAL, "Invalid value for 'tasks': expected a list of objects");
        if (json_count(&v) > TASK_BATCH_MAX)
                return error_say(e, -EINVAL, "Invalid value for 'tasks': too many items");
        *ret = v;
        return 0;
}

static void batch_decode(struct batch *b) {
        struct json object, tasks, task;
        struct error e;
        if (json_parse(b->body, b->body_len, &object, NULL) < 0 || object.type != JSON_OBJECT)
                b->x = error_say(&b->e, -EINVAL, SCORE_BODY_NOT_JSON);
        else
                b->x = batch_tasks(&object, &tasks, &b->e);
        if (b->x == 0 && !(b->items = calloc(json_count(&tasks) + 1, sizeof b->items[0])))
                b->x = -ENOMEM;
        if (b->x < 0)
                return;
        for (struct json_iter it = json_iter(&tasks); json_next_item(&it, &task);) {
                struct item *item = &b->items[b->n++];
                item->batch = b;
                item->x = executor_decode(b->defaults, &task, NULL, &item->p, &e);
                if (item->x < 0)
                        item->error = strdup(e.text);
        }
}

static void batch_work(uv_work_t *w) {
        struct batch *b = container_of(w, struct batch, work);
        batch_decode(b);
        b->hold = http_body_release(b->hold);
}

static void batch_worked(uv_work_t *w, int status) { batch_go_on(container_of(w, struct batch, work)); }

void executor_post_batch(struct http_request *r, void *user) {
        struct api *a = user;
        struct batch *b = calloc(1, sizeof *b);
        if (!b) {
                reply_error(r, fault_of_errno(-ENOMEM), fault_text(-ENOMEM));
                return;
        }
        *b = (struct batch){ .a = a, .r = r, .defaults = engine_defaults(a->engine) };
        http_on_close(r, batch_closed, b);
        bool big = http_body_len(r) > TASK_INLINE_MAX;
        int x = big ? http_body_hold(r, &b->hold, &b->body, &b->body_len) : http_body(r, &b->body, &b->body_len);
        if (x < 0) {
                b->x = x == -ENOMEM ? x : error_say(&b->e, -EIO, "%s", fault_text(-EIO));
                batch_go_on(b);
        } else if (big) {
                ASSERT(uv_queue_work(a->loop, &b->work, batch_work, batch_worked) == 0);
        } else {
                batch_decode(b);
                batch_go_on(b);
        }
}
