/* From the queue to the record. The order matters: an attempt is counted on disk before anything runs, so that a crash at any
 * point leaves a row that says how often it was tried; the record is on disk before anybody is told; the place in the running
 * set is given away when the sandbox is gone, while the record is still being written. */
#include <string.h>

#include "base/log.h"
#include "base/metrics.h"
#include "store/rundir.h"
#include "engine/tasks_internal.h"
#include "base/fields.h"
#include "score/control.h"

#define BODY_MAX (1u << 30)
#define RECORD_MAX (256u << 20)

/* ---- the record ------------------------------------------------------------------------------------------------------- */

static void recorded(int r, void *user);

void task_write_record(struct task *t) {
        t->writing = true;
        int r = ledger_finish(t->ts->cfg.ledger, t->id, outcome_to_string((int)t->outcome), t->record, t->record_len, recorded, t);
        if (r < 0)
                t->ts->cfg.fatal("no memory to write a record", t->ts->cfg.user);
}

/* Takes what has been encoded. The place is free from here on. */
static void record_end(struct task *t, enum outcome outcome, struct buf *text) {
        t->outcome = outcome;
        free(t->record);
        t->record_len = text->len;
        t->record = buf_steal(text);
        task_phase(t, PHASE_RECORDING);
        task_write_record(t);
        task_place_free(t);
}

static int encode(struct task *t, const struct score_record *rec, struct buf *ret) {
        char url[80];
        snprintf(url, sizeof url, TASK_LOG_URL, t->id);
        return score_record_encode(rec, t->id, t->ts->cfg.log_urls ? url : NULL, ret);
}

/* A record of our own making: no verdict, but what was asked for is repeated if it can be read. */
static int fault_record(struct task *t, const char *code, const char *message, struct buf *ret) {
        struct score_record rec;
        struct score_request req;
        _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
        score_record_init(&rec);
        rec.outcome = OUTCOME_INFRA_ERROR;
        rec.exit_code = -1;
        rec.queued_ms = t->queued_ms;
        rec.error_code = strdup(code);
        rec.error_message = strdup(message);
        if (ledger_get_body(t->ts->cfg.ledger, t->id, &body) == 0 &&
            score_request_from_json(buf_str(&body), body.len, FIELDS_CHECK, t->ts->cfg.defaults, &req, NULL) == 0) {
                score_record_echo(&rec, &req);
                score_request_release(&req);
        }
        int r = rec.error_code && rec.error_message ? encode(t, &rec, ret) : -ENOMEM;
        score_record_release(&rec);
        return r;
}

void task_fault(struct task *t, const char *code, const char *message) {
        _cleanup_buf_ struct buf text = BUF_INIT(RECORD_MAX);
        int r = fault_record(t, code, message, &text);
        if (r < 0) {
                t->ts->cfg.fatal("no memory to make a record", t->ts->cfg.user);
                return;
        }
        metrics_add(METRIC_INFRA_ERRORS, code, 1);
        log_event(LOG_ERROR, "task.fault", "task", t->id, "code", code, "message", message, NULL);
        record_end(t, OUTCOME_INFRA_ERROR, &text);
}

/* The disk is so full that even the ballast did not make room, or the record is beyond what the ledger can hold: a small
 * record that says so. When there is no room even for that, the watch timer tries again until there is. */
static void record_failed(struct task *t, int r) {
        if (r != -ENOSPC && r != -EFBIG) {
                t->ts->cfg.fatal("the ledger cannot be written", t->ts->cfg.user);
                return;
        }
        if (t->shrunk)
                return;
        t->shrunk = true;
        task_fault(t, r == -ENOSPC ? "disk_full" : "internal", r == -ENOSPC ? "no space left to keep the result" : "the result is too large to keep");
}

static void recorded(int r, void *user) {
        struct task *t = user;
        struct tasks *ts = t->ts;
        t->writing = false;
        if (r < 0 && r != -ENOENT) {
                record_failed(t, r);
                return;
        }
        metrics_add(METRIC_TASKS_FINISHED, outcome_to_string((int)t->outcome), 1);
        log_event(LOG_INFO, "task.finished", "task", t->id, "outcome", outcome_to_string((int)t->outcome), NULL);
        free(t->record);
        t->record = NULL;
        tasks_recent_put(ts, t->id, outcome_is_failure(t->outcome) ? TASK_FAILED : TASK_COMPLETED);
        task_notify(t, 0);
        if (t->orphan)
                task_orphan(t);
        else if (t->deleting)
                task_remove(t);
        else
                task_free(t);
        tasks_check_drained(ts);
}

/* ---- removal ------------------------------------------------------------------------------------------------------------ */

static void deleted(int r, void *user) {
        struct task *t = user;
        struct tasks *ts = t->ts;
        if (r < 0 && r != -ENOENT)
                log_event(LOG_ERROR, "task.delete_failed", "task", t->id, "error", strerrordesc_np(-r), NULL);
        tasks_recent_forget(ts, t->id);
        task_notify(t, -ENOENT);
        for (struct removal_call *c = t->removals, *next; c; c = next) {
                next = c->next;
                c->done(r == -ENOENT ? 0 : r, c->user);
                free(c);
        }
        t->removals = NULL;
        task_free(t);
        tasks_check_drained(ts);
}

static void rundir_gone(int r, void *user) {
        struct task *t = user;
        if (r < 0)
                log_event(LOG_WARN, "task.rundir_left", "task", t->id, "error", strerrordesc_np(-r), NULL);
        if (ledger_delete(t->ts->cfg.ledger, t->id, deleted, t) < 0)
                deleted(-ENOMEM, t);
}

void task_remove(struct task *t) {
        task_phase(t, PHASE_REMOVING);
        const char *id = t->id;
        if (rundir_remove(t->ts->cfg.loop, t->ts->cfg.runs_dirfd, &id, 1, rundir_gone, t) < 0)
                rundir_gone(-ENOMEM, t);
}

/* ---- running ------------------------------------------------------------------------------------------------------------- */

static void requeued(int r, void *user) {
        struct task *t = user;
        struct tasks *ts = t->ts;
        if (r < 0)     /* then it stays `running` on disk and the next start runs it as an interrupted one */
                log_event(LOG_WARN, "task.requeue_failed", "task", t->id, "error", strerrordesc_np(-r), NULL);
        else
                log_event(LOG_INFO, "task.requeued", "task", t->id, NULL);
        task_notify(t, -ETIME);
        if (t->deleting)
                task_remove(t);
        else
                task_phase(t, PHASE_QUEUED);   /* not in the queue, which is over: it is pending until the next start */
        tasks_check_drained(ts);
}

void task_requeue(struct task *t) {
        task_phase(t, PHASE_REQUEUEING);
        task_place_free(t);
        if (ledger_requeue(t->ts->cfg.ledger, t->id, requeued, t) < 0)
                requeued(-ENOMEM, t);
}

static void measure(const struct score_record *rec) {
        metrics_observe(METRIC_QUEUE_WAIT, (double)rec->queued_ms / 1000);
        metrics_observe(METRIC_SCORE, (double)rec->execution_ms / 1000);
        if (rec->ran)
                metrics_observe(METRIC_EXEC, (double)rec->test_ms / 1000);
        if (rec->outcome == OUTCOME_INFRA_ERROR)
                metrics_add(METRIC_INFRA_ERRORS, rec->error_code, 1);
}

void task_scored(struct score_record *rec, void *user) {
        struct task *t = user;
        t->run = NULL;
        t->log_dirfd = fd_close(t->log_dirfd);
        if (t->ts->lost)
                return;                /* tasks_lost has recorded it */
        if (t->deleting) {
                task_place_free(t);
                task_remove(t);
                return;
        }
        if (t->requeue && rec->outcome == OUTCOME_CANCELLED) {
                task_requeue(t);
                return;
        }
        rec->queued_ms = t->queued_ms;
        measure(rec);
        _cleanup_buf_ struct buf text = BUF_INIT(RECORD_MAX);
        int r = encode(t, rec, &text);
        if (r < 0)
                task_fault(t, "internal", "the result could not be encoded");
        else
                record_end(t, rec->outcome, &text);
}

/* The credentials, which the stored body lacks. */
static int give_credentials(struct task *t, struct score_request *req, const char **ret_code, struct error *e) {
        if (!score_request_is_hidden(req))
                return 0;
        if (t->secret_url) {
                int r = score_request_unhide(req, t->secret_url);
                return r < 0 ? error_set(e, r, "read the request") : 0;
        }
        *ret_code = "repo_unreachable";
        return error_say(e, -EACCES, "the credentials of repo_url are kept in memory only, and the daemon was restarted before the task ran: submit it again");
}

int task_start_run(struct task *t, struct score_request *req, score_done done, const char **ret_code, struct error *e) {
        struct tasks *ts = t->ts;
        int r = give_credentials(t, req, ret_code, e);
        if (r == 0) {
                t->log_dirfd = rundir_open(ts->cfg.runs_dirfd, t->id);
                r = t->log_dirfd < 0 ? error_set(e, t->log_dirfd, "make the run directory") : 0;
        }
        if (r == 0)
                r = ts->cfg.runner.start(ts->cfg.runner.ctx, t->id, req, t->log_dirfd, done, t, &t->run, e);
        if (r < 0) {
                t->log_dirfd = fd_close(t->log_dirfd);
                score_request_release(req);
        }
        return r;
}

/* The attempt could not be counted for want of space: back to the queue, which stands still until there is some. */
static void put_back(struct task *t) {
        struct tasks *ts = t->ts;
        struct ledger_row row;
        t->attempts--;
        task_phase(t, PHASE_QUEUED);
        ts->low = true;
        tasks_regulate(ts);
        task_place_free(t);
        int r = ledger_get(ts->cfg.ledger, t->id, &row);
        if (r == 0) {
                r = queue_push(ts->queue, t->id, row.tenant, row.priority);
                ledger_row_release(&row);
        }
        if (r < 0)
                task_fault(t, "disk_full", "no space left to start the task");
}

bool task_may_go_on(struct task *t) {
        if (t->ts->lost)
                return false;          /* tasks_lost has recorded it */
        if (t->deleting || t->ts->draining)
                (void)task_control_leave(t);
        if (t->deleting) {
                task_place_free(t);
                task_remove(t);
                return false;
        }
        if (t->ts->draining)
                task_requeue(t);
        return !t->ts->draining;
}

/* The stored body becomes a request: in the pool where it is long. */
struct decoding { uv_work_t work; struct task *task; const struct score_defaults *defaults; struct buf body; struct score_request req; char key[65]; struct error e; int r; };

static void decode(uv_work_t *work) {
        struct decoding *d = container_of(work, struct decoding, work);
        d->r = score_request_from_json(buf_str(&d->body), d->body.len, 0, d->defaults, &d->req, &d->e);
        if (d->r < 0)
                error_prefix(&d->e, "stored request");
        else if (d->req.control != CONTROL_OFF && (d->r = control_key(buf_str(&d->body), d->body.len, d->key)) < 0) {
                error_set(&d->e, d->r, "read the request");
                score_request_release(&d->req);
        }
        buf_release(&d->body);         /* the request has its own copies by now */
}

/* Straight away, or after what is known of the instance without the agent's patch. */
static int begin(struct task *t, struct decoding *d, const char **ret_code) {
        if (d->r < 0)
                return d->r;
        if (d->req.control != CONTROL_OFF || t->step != CONTROL_TASK)
                return task_control(t, &d->req, d->key, ret_code, &d->e);
        return task_start_run(t, &d->req, task_scored, ret_code, &d->e);
}

static void decoded(uv_work_t *work, int status) {
        struct decoding *d = container_of(work, struct decoding, work);
        struct task *t = d->task;
        struct tasks *ts = t->ts;
        const char *code = "internal";
        char attempt[16];
        ts->decoding--;
        if (task_may_go_on(t)) {
                if (t->phase != PHASE_RUNNING) {
                        task_phase(t, PHASE_RUNNING);
                        snprintf(attempt, sizeof attempt, "%d", t->attempts);
                        log_event(LOG_INFO, "task.started", "task", t->id, "attempt", attempt, NULL);
                }
                if (begin(t, d, &code) < 0)
                        task_fault(t, code, d->e.text);
        } else if (d->r == 0)
                score_request_release(&d->req);
        buf_release(&d->body);
        free(d);
        tasks_check_drained(ts);
}

void task_begin(struct task *t) {
        struct decoding *d = calloc(1, sizeof *d);
        if (!d) {
                task_fault(t, "internal", "no memory to read the request");
                return;
        }
        *d = (struct decoding){ .task = t, .defaults = t->ts->cfg.defaults, .body = BUF_INIT(BODY_MAX) };
        t->ts->decoding++;
        d->r = ledger_get_body(t->ts->cfg.ledger, t->id, &d->body);
        if (d->r < 0)
                error_set(&d->e, d->r, "read the request");
        else if (d->body.len <= TASK_DECODE_INLINE_MAX || uv_queue_work(t->ts->cfg.loop, &d->work, decode, decoded) < 0)
                decode(&d->work);
        else
                return;
        decoded(&d->work, 0);
}

static void set_running(int r, void *user) {
        struct task *t = user;
        if (r == -ENOSPC && !t->ts->lost && !t->deleting) {
                put_back(t);
                return;
        }
        if (r < 0 && !t->ts->lost && !t->deleting) {
                t->ts->cfg.fatal("the ledger cannot be written", t->ts->cfg.user);
                return;
        }
        if (task_may_go_on(t))
                task_begin(t);
}

void task_start_cb(const char *id, uint64_t queued_ms, void *user) {
        struct tasks *ts = user;
        struct task *t = task_find(ts, id);
        ASSERT(t && t->phase == PHASE_QUEUED);
        t->placed = true;
        t->queued_ms += queued_ms;
        t->attempts++;
        task_phase(t, PHASE_STARTING);
        if (ledger_set_running(ts->cfg.ledger, id, set_running, t) < 0)
                ts->cfg.fatal("no memory to start a task", ts->cfg.user);
}
