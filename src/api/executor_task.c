/* A task by its id: state, record, deletion. GET /task/{id} is the call that pollers make thousands of times a second: one
 * look-up, a body built on the stack. */
#include <string.h>

#include "api/executor_internal.h"
#include "base/clock.h"
#include "base/log.h"

static void reply_status(struct http_request *r, const char *id, enum task_status st) {
        char body[128];
        int n = snprintf(body, sizeof body, "{\"task_id\":\"%s\",\"status\":\"%s\"}", id, task_status_to_string(st));
        ASSERT(n > 0 && (size_t)n < sizeof body);
        reply_json(r, 200, body, (size_t)n);
}

void executor_get_task(struct http_request *r, void *user) {
        struct api *a = user;
        const char *id = http_param(r, "id");
        enum task_status st;
        if (engine_task_status(a->engine, id, &st) < 0)
                reply_not_found(r);
        else
                reply_status(r, id, st);
}

/* ---- GET /task/{id}/result ----------------------------------------------------------------------------------------- */

static void reply_not_yet(struct api *a, struct http_request *r, const char *id) {
        char body[256];
        enum task_status st;
        if (engine_task_status(a->engine, id, &st) < 0) {
                reply_not_found(r);
                return;
        }
        int n = snprintf(body, sizeof body, "{\"task_id\":\"%s\",\"status\":\"%s\",\"message\":\"Task not yet complete \xe2\x80\x94 poll again shortly\"}",
                         id, task_status_to_string(st));
        ASSERT(n > 0 && (size_t)n < sizeof body);
        reply_json(r, 202, body, (size_t)n);
}

static void reply_result(struct api *a, struct http_request *r, const char *id) {
        _cleanup_buf_ struct buf record = BUF_INIT(TASK_RECORD_MAX);
        int x = engine_task_record(a->engine, id, &record);
        if (x == -ENOENT)
                reply_not_found(r);
        else if (x == -EAGAIN)
                reply_not_yet(a, r, id);
        else
                reply_buf(r, 200, x, &record);
}

struct wait { struct api *a; struct http_request *r; struct engine_wait *handle; char id[37]; };

static void wait_closed(void *user) {
        struct wait *w = user;
        engine_wait_cancel(w->handle);
        free(w);
}

static void wait_done(int r, void *user) {
        struct wait *w = user;
        http_on_close(w->r, NULL, NULL);
        if (r == -ENOENT)
                reply_not_found(w->r);
        else
                reply_result(w->a, w->r, w->id);   /* ended, or the time is up */
        free(w);
}

/* "1", "0.5": milliseconds, cut to the longest wait. -EINVAL for anything else. */
static int parse_wait(const char *s, uint64_t *ret_ms) {
        size_t whole = strspn(s, "0123456789");
        size_t fraction = s[whole] == '.' ? strspn(s + whole + 1, "0123456789") : 0;
        size_t used = whole + (s[whole] == '.' ? 1 + fraction : 0);
        if (whole == 0 || used > 20 || s[used] || (s[whole] == '.' && fraction == 0))
                return -EINVAL;
        double seconds = strtod(s, NULL);
        *ret_ms = seconds >= TASK_WAIT_MAX_S ? TASK_WAIT_MAX_S * MS_PER_S : (uint64_t)(seconds * (double)MS_PER_S);
        return 0;
}

static void start_wait(struct api *a, struct http_request *r, const char *id, uint64_t ms) {
        struct wait *w = calloc(1, sizeof *w);
        if (!w) {
                reply_error(r, fault_of_errno(-ENOMEM), fault_text(-ENOMEM));
                return;
        }
        w->a = a;
        w->r = r;
        snprintf(w->id, sizeof w->id, "%s", id);
        w->handle = engine_task_wait(a->engine, id, ms, wait_done, w);
        if (!w->handle) {              /* ended or deleted meanwhile, or no memory: say what is true now */
                reply_result(a, r, w->id);
                free(w);
                return;
        }
        http_on_close(r, wait_closed, w);
}

void executor_get_result(struct http_request *r, void *user) {
        struct api *a = user;
        const char *id = http_param(r, "id"), *wait = http_query(r, "wait");
        enum task_status st;
        uint64_t ms = 0;
        if (wait && parse_wait(wait, &ms) < 0) {
                reply_error(r, fault_of_errno(-EINVAL), "Invalid value for 'wait': expected seconds");
                return;
        }
        int x = engine_task_status(a->engine, id, &st);
        if (x < 0)
                reply_not_found(r);
        else if (ms > 0 && (st == TASK_PENDING || st == TASK_RUNNING))
                start_wait(a, r, id, ms);
        else
                reply_result(a, r, id);
}

/* ---- DELETE /task/{id} --------------------------------------------------------------------------------------------- */

struct deletion { struct http_request *r; char id[37]; };

static void deletion_closed(void *user) {
        ((struct deletion *)user)->r = NULL;
}

static void deletion_done(int r, void *user) {
        struct deletion *d = user;
        char body[128];
        if (r == 0)
                log_event(LOG_INFO, "task.deleted", "task", d->id, NULL);
        if (d->r) {
                http_on_close(d->r, NULL, NULL);
                int n = snprintf(body, sizeof body, "{\"task_id\":\"%s\",\"deleted\":true}", d->id);
                if (r == 0)
                        reply_json(d->r, 200, body, (size_t)n);
                else
                        reply_error(d->r, fault_of_errno(r), fault_text(r));
        }
        free(d);
}

void executor_delete_task(struct http_request *r, void *user) {
        struct api *a = user;
        struct deletion *d = calloc(1, sizeof *d);
        if (!d) {
                reply_error(r, fault_of_errno(-ENOMEM), fault_text(-ENOMEM));
                return;
        }
        d->r = r;
        snprintf(d->id, sizeof d->id, "%s", http_param(r, "id"));
        http_on_close(r, deletion_closed, d);
        int x = strlen(http_param(r, "id")) < sizeof d->id ? engine_task_delete(a->engine, d->id, deletion_done, d) : -ENOENT;
        if (x < 0)
                deletion_done(x, d);
}
