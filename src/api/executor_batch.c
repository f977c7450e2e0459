/* POST /task/batch: many submissions in one body, each accepted or refused by itself, answered in their order once the last
 * one is on disk. */
#include <string.h>

#include "api/executor_internal.h"

struct item {
        struct batch *batch;
        struct prepared p;
        bool done;
        char id[37];                   /* accepted */
        const char *code;              /* refused */
        char *error;
};
struct batch {
        struct http_request *r;        /* NULL: the client is gone */
        size_t n, waiting;
        struct item items[];
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

/* One of the things that the batch waits for has ended; the last one answers. */
static void batch_step(struct batch *b) {
        if (--b->waiting > 0)
                return;
        if (b->r)
                batch_answer(b);
        for (size_t i = 0; i < b->n; i++) {
                prepared_release(&b->items[i].p);
                free(b->items[i].error);
        }
        free(b);
}

static void item_refused(struct item *it, int r, const char *text) {
        it->code = fault_of_errno(r).code;
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

static void batch_add(struct api *a, struct batch *b, const struct json *task) {
        struct item *it = &b->items[b->n++];
        struct error e;
        it->batch = b;
        int r = executor_prepare(a, task, NULL, &it->p, &e);
        if (r < 0) {
                item_refused(it, r, e.text);
                return;
        }
        b->waiting++;
        r = executor_submit(a, &it->p, item_done, it);
        if (r < 0)
                item_done(r, NULL, it);
}

/* The list of tasks, or the answer is given and false returned. */
static bool batch_tasks(struct http_request *r, const struct json *object, struct json *ret) {
        struct json v;
        if (!json_get(object, "tasks", &v) || v.type == JSON_NULL)
                reply_error(r, fault_of_errno(-EINVAL), "Missing required fields: ['tasks']");
        else if (v.type != JSON_ARRAY)
                reply_error(r, fault_of_errno(-EINVAL), "Invalid value for 'tasks': expected a list of objects");
        else if (json_count(&v) > TASK_BATCH_MAX)
                reply_error(r, fault_of_errno(-EINVAL), "Invalid value for 'tasks': too many items");
        else {
                *ret = v;
                return true;
        }
        return false;
}

void executor_post_batch(struct http_request *r, void *user) {
        struct api *a = user;
        struct json object, tasks, task;
        if (!executor_body(r, &object) || !batch_tasks(r, &object, &tasks))
                return;
        struct batch *b = calloc(1, sizeof *b + json_count(&tasks) * sizeof b->items[0]);
        if (!b) {
                reply_error(r, fault_of_errno(-ENOMEM), fault_text(-ENOMEM));
                return;
        }
        b->r = r;
        b->waiting = 1;                /* this function itself: nothing answers before all are handed over */
        http_on_close(r, batch_closed, b);
        for (struct json_iter it = json_iter(&tasks); json_next_item(&it, &task);)
                batch_add(a, b, &task);
        batch_step(b);
}
