#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/redact.h"
#include "store/rundir.h"
#include "engine/tasks_internal.h"

#define WATCH_MS 2000              /* disk space comes back without an event */
#define KEEP_MAX_MS 60000

static const char *const task_status_names[] = { "pending", "running", "completed", "failed" };
STRING_TABLE(task_status, task_status_names, TASK_STATUS_MAX)

static const char *task_key(const struct map_node *n) { return container_of(n, struct task, node)->id; }

/* ---- one task ------------------------------------------------------------------------------------------------------------- */

struct task *task_new(struct tasks *ts, const char *id) {
        struct task *t = calloc(1, sizeof *t);
        if (!t)
                return NULL;
        t->ts = ts;
        t->log_dirfd = -1;
        snprintf(t->id, sizeof t->id, "%s", id);
        return t;
}

struct task *task_find(struct tasks *ts, const char *id) {
        struct map_node *n = map_find(&ts->map, id);
        return n ? container_of(n, struct task, node) : NULL;
}

void task_phase(struct task *t, enum phase phase) {
        t->ts->busy += (phase != PHASE_QUEUED) - (t->phase != PHASE_QUEUED);
        t->phase = phase;
}

void task_place_free(struct task *t) {
        if (!t->placed)
                return;
        t->placed = false;
        queue_finished(t->ts->queue, t->id);
}

void task_free(struct task *t) {
        task_phase(t, PHASE_QUEUED);
        (void)task_control_leave(t);
        map_remove(&t->ts->map, &t->node);
        fd_close(t->log_dirfd);
        secret_free(t->secret_url);
        free(t->record);
        free(t);
}

void task_orphan(struct task *t) {
        task_phase(t, PHASE_QUEUED);
        map_remove(&t->ts->map, &t->node);
        t->node.next = t->ts->orphans;
        t->ts->orphans = &t->node;
}

static void free_orphans(struct tasks *ts) {
        for (struct map_node *n = ts->orphans, *next; n; n = next) {
                next = n->next;
                struct task *t = container_of(n, struct task, node);
                fd_close(t->log_dirfd);
                secret_free(t->secret_url);
                free(t);
        }
}

/* ---- opening and closing ------------------------------------------------------------------------------------------------- */

void tasks_regulate(struct tasks *ts) {
        queue_pause(ts->queue, !ts->started || ts->draining || ts->low || ts->lost);
}

static void retry_record(struct map_node *n, void *user) {
        struct task *t = container_of(n, struct task, node);
        if (t->phase == PHASE_RECORDING && !t->writing && t->record)
                task_write_record(t);
}

static void on_watch(uv_timer_t *timer) {
        struct tasks *ts = timer->data;
        tasks_relieve(ts);
        bool low = ledger_disk_low(ts->cfg.ledger);
        if (low != ts->low)
                log_event(low ? LOG_WARN : LOG_INFO, low ? "disk.low" : "disk.enough", NULL);
        if (ts->low && !low)
                map_each(&ts->map, retry_record, NULL);
        ts->low = low;
        tasks_regulate(ts);
}

static void on_keep(uv_timer_t *timer) {
        struct tasks *ts = timer->data;
        if (!ts->draining)
                tasks_expire(ts);
}

static void free_entry(struct map_node *n, void *user) {
        struct task *t = container_of(n, struct task, node);
        task_notify(t, -ETIME);
        task_free(t);
}

static void tasks_destroy(struct tasks *ts) {
        map_each(&ts->map, free_entry, NULL);
        tasks_known_free(ts);
        map_release(&ts->map);
        queue_free(ts->queue);
        free(ts);
}

static void on_closed(uv_handle_t *h) {
        struct tasks *ts = h->data;
        if (--ts->open_handles == 0)
                free(ts);
}

static void start_timers(struct tasks *ts) {
        uv_timer_t *all[] = { &ts->grace, &ts->keep, &ts->watch };
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                uv_timer_init(ts->cfg.loop, all[i]);
                all[i]->data = ts;
                uv_unref((uv_handle_t *)all[i]);
        }
        ts->open_handles = ARRAY_SIZE(all);
        uint64_t every = MIN2((uint64_t)KEEP_MAX_MS, MAX2((uint64_t)500, ts->cfg.max_age_ms / 4));
        uv_timer_start(&ts->keep, on_keep, every, every);
        uv_timer_start(&ts->watch, on_watch, WATCH_MS, WATCH_MS);
}

static int count_row(const struct ledger_row *row, void *user) { ++*(size_t *)user; return 0; }

int tasks_open(const struct tasks_config *cfg, struct tasks **ret, struct error *e) {
        size_t left = 0;
        int r = ledger_each_open(cfg->ledger, count_row, &left);
        if (r < 0)
                return error_set(e, r, "count the tasks of the last start");
        struct tasks *ts = calloc(1, sizeof *ts);
        if (!ts)
                return error_set(e, -ENOMEM, "open the tasks");
        ts->cfg = *cfg;
        unsigned char epoch[4];
        random_bytes(ts->secret_key, sizeof ts->secret_key);
        random_bytes(epoch, sizeof epoch);
        hex_encode(epoch, sizeof epoch, ts->secret_epoch);
        /* What was accepted must fit, even if the bound has been lowered since; new work is bounded in tasks_submit. */
        struct queue_limits limits = { .max_running = cfg->running_max, .max_queued = cfg->queued_max + left + cfg->running_max };
        ts->queue = queue_new(&limits, task_start_cb, ts);
        r = ts->queue ? map_init(&ts->map, task_key) : -ENOMEM;
        if (r == 0)
                r = tasks_known_init(ts);
        if (r < 0) {
                tasks_destroy(ts);
                return error_set(e, r, "open the tasks");
        }
        tasks_regulate(ts);
        r = tasks_recover(ts, e);
        if (r < 0) {
                tasks_destroy(ts);
                return r;
        }
        start_timers(ts);
        *ret = ts;
        return 0;
}

void tasks_start(struct tasks *ts) {
        ts->started = true;
        ts->low = ledger_disk_low(ts->cfg.ledger);
        tasks_expire(ts);
        tasks_regulate(ts);
}

void tasks_free(struct tasks *ts) {
        if (!ts)
                return;
        map_each(&ts->map, free_entry, NULL);
        tasks_known_free(ts);
        map_release(&ts->map);
        queue_free(ts->queue);
        free_orphans(ts);
        uv_close((uv_handle_t *)&ts->grace, on_closed);
        uv_close((uv_handle_t *)&ts->keep, on_closed);
        uv_close((uv_handle_t *)&ts->watch, on_closed);
}

/* ---- drain ----------------------------------------------------------------------------------------------------------------- */

/* Who still waits for a queued task hears that it has not ended. */
static void tell_waits(struct map_node *n, void *user) { task_notify(container_of(n, struct task, node), -ETIME); }

void tasks_check_drained(struct tasks *ts) {
        if (!ts->drained || ts->busy > 0 || ts->admitting > 0 || ts->decoding > 0 || ts->keeping || ts->relieving)
                return;
        void (*done)(void *) = ts->drained;
        ts->drained = NULL;
        uv_timer_stop(&ts->grace);
        map_each(&ts->map, tell_waits, NULL);
        done(ts->drained_user);
}

static void stop_running(struct map_node *n, void *user) {
        struct task *t = container_of(n, struct task, node);
        if (t->phase != PHASE_RUNNING || t->deleting || t->requeue)
                return;
        t->requeue = true;
        if (t->run)
                t->ts->cfg.runner.cancel(t->ts->cfg.runner.ctx, t->run);
        else if (task_control_leave(t))
                task_requeue(t);
}

static void on_grace_over(uv_timer_t *timer) {
        struct tasks *ts = timer->data;
        map_each(&ts->map, stop_running, NULL);
        tasks_check_drained(ts);
}

void tasks_drain(struct tasks *ts, uint64_t grace_ms, void (*done)(void *user), void *user) {
        ts->draining = true;
        tasks_regulate(ts);
        ts->drained = done;
        ts->drained_user = user;
        /* Always from the loop, and referenced: the timer keeps it alive until then. */
        uv_timer_start(&ts->grace, on_grace_over, ts->busy + ts->admitting > 0 ? grace_ms : 0, 0);
        uv_ref((uv_handle_t *)&ts->grace);
}

static void record_lost(struct map_node *n, void *user) {
        struct task *t = container_of(n, struct task, node);
        if (t->phase != PHASE_STARTING && t->phase != PHASE_RUNNING)
                return;
        (void)task_control_leave(t);
        t->run = NULL;
        t->orphan = true;
        t->placed = false;             /* the running set is over */
        task_fault(t, "interrupted", "the spawner died while this task ran");
}

void tasks_lost(struct tasks *ts, void (*done)(void *user), void *user) {
        ts->lost = ts->draining = true;
        tasks_regulate(ts);
        map_each(&ts->map, record_lost, NULL);
        tasks_drain(ts, 0, done, user);
}

/* ---- submission -------------------------------------------------------------------------------------------------------------- */

struct submission {
        struct tasks *ts;
        struct task *task;
        engine_submitted done;
        void *user;
        char *tenant, *key;
        int priority;
        char hash[SHA256_HEX];
};

static void submission_free(struct submission *s) {
        free(s->tenant);
        free(s->key);
        if (s->task)
                secret_free(s->task->secret_url);
        free(s->task);
        free(s);
}

/* What tells a repeat from a conflict. Of a body whose credentials are kept apart: 40 digits of the stored body's hash, 8 that name
 * this start, 16 over the credentials with a key that only this start knows. So nothing on disk lets a weak password be guessed;
 * the price is that after a restart the same request with other credentials passes for the same. */
#define HASH_BODY 40
#define HASH_EPOCH 8
static int hash_request(const struct tasks *ts, const struct engine_submission *sub, char ret[static SHA256_HEX]) {
        char url_hash[SHA256_HEX];
        struct sha256 h;
        int r = 0;
        if (sub->body_hash)
                memcpy(ret, sub->body_hash, SHA256_HEX);
        else
                r = sha256_hex(sub->body, sub->body_len, ret);
        if (r < 0 || !sub->secret_url)
                return r;
        r = sha256_init(&h);
        if (r < 0)
                return r;
        sha256_update(&h, ts->secret_key, sizeof ts->secret_key);
        sha256_update_str(&h, sub->secret_url);
        sha256_finish(&h, url_hash);
        memcpy(ret + HASH_BODY, ts->secret_epoch, HASH_EPOCH);
        memcpy(ret + HASH_BODY + HASH_EPOCH, url_hash, SHA256_HEX - 1 - HASH_BODY - HASH_EPOCH);
        return 0;
}

static bool same_request(const struct submission *s, const char *hash) {
        if (strcmp(hash, s->hash) == 0)
                return true;
        return s->task->secret_url && memcmp(hash, s->hash, HASH_BODY) == 0 && memcmp(hash + HASH_BODY, s->ts->secret_epoch, HASH_EPOCH) != 0;
}

/* The first with this key: its id if it asked for the same. */
static int first_with_key(const struct submission *s, char ret_id[static 37]) {
        char hash[65];
        int r = ledger_find_key(s->ts->cfg.ledger, TASK_KIND, s->tenant, s->key, ret_id, hash);
        if (r < 0)
                return r;
        return same_request(s, hash) ? -EEXIST : -EBUSY;
}

static void answer(struct submission *s, int r, const char *id) {
        engine_submitted done = s->done;
        void *user = s->user;
        struct tasks *ts = s->ts;
        char copy[37] = "";
        if (id)
                snprintf(copy, sizeof copy, "%s", id);
        submission_free(s);
        done(r, id ? copy : NULL, user);
        tasks_check_drained(ts);
}

static void accept_task(struct submission *s) {
        struct tasks *ts = s->ts;
        struct task *t = TAKE_PTR(s->task);
        char id[37];
        memcpy(id, t->id, sizeof id);
        metrics_add(METRIC_TASKS_SUBMITTED, NULL, 1);
        ASSERT(map_add(&ts->map, &t->node) == 0);
        int r = queue_push(ts->queue, t->id, s->tenant, s->priority);
        if (r < 0)
                task_fault(t, "internal", "no memory to queue the task");
        answer(s, 0, id);
}

static void inserted(int r, void *user) {
        struct submission *s = user;
        char id[37];
        s->ts->admitting--;
        if (r == 0) {
                accept_task(s);
                return;
        }
        if (r == -EEXIST && s->key)
                r = first_with_key(s, id);
        if (r == -ENOENT)              /* its owner has just expired: another try will do */
                r = -EAGAIN;
        answer(s, r, r == -EEXIST ? id : NULL);
}

static struct submission *submission_new(struct tasks *ts, const struct engine_submission *sub, engine_submitted done, void *user) {
        struct submission *s = calloc(1, sizeof *s);
        if (!s)
                return NULL;
        *s = (struct submission){ .ts = ts, .done = done, .user = user, .priority = sub->priority };
        char id[37];
        uuid_make(id);
        s->task = task_new(ts, id);
        s->tenant = strdup(sub->tenant ? sub->tenant : "");
        s->key = sub->idempotency_key ? strdup(sub->idempotency_key) : NULL;
        if (s->task && sub->secret_url)
                s->task->secret_url = strdup(sub->secret_url);
        if (s->task && s->tenant && (s->key || !sub->idempotency_key) && (s->task->secret_url || !sub->secret_url) && hash_request(ts, sub, s->hash) == 0)
                return s;
        submission_free(s);
        return NULL;
}

static int refusal(struct tasks *ts) {
        if (ts->draining || ts->lost)
                return -ESHUTDOWN;
        if (ledger_disk_low(ts->cfg.ledger)) {
                tasks_relieve(ts);
                return -ENOSPC;
        }
        return queue_depth(ts->queue) + ts->admitting >= ts->cfg.queued_max ? -EAGAIN : 0;
}

int tasks_submit(struct tasks *ts, const struct engine_submission *sub, engine_submitted done, void *user) {
        struct submission *s = submission_new(ts, sub, done, user);
        if (!s)
                return -ENOMEM;
        /* A repeat is answered whatever the state of the queue: it asks for nothing new. */
        char id[37];
        int r = s->key ? first_with_key(s, id) : -ENOENT;
        if (r == -ENOENT)
                r = refusal(ts);
        if (r == 0) {
                struct ledger_job job = {
                        .id = s->task->id, .kind = TASK_KIND, .tenant = s->tenant, .priority = s->priority, .body = sub->body,
                        .body_len = sub->body_len, .body_stays = true, .idempotency_key = s->key, .body_hash = s->hash, .created_ms = wall_ms(),
                };
                r = ledger_insert(ts->cfg.ledger, &job, 1, inserted, s);
        }
        if (r < 0)
                answer(s, r, r == -EEXIST ? id : NULL);
        else
                ts->admitting++;
        return 0;
}

/* ---- questions --------------------------------------------------------------------------------------------------------------- */

int tasks_status(struct tasks *ts, const char *id, enum task_status *ret) {
        struct task *t = task_find(ts, id);
        if (t && t->phase == PHASE_REMOVING)
                return -ENOENT;
        /* RECORDING without a record: it is on disk, and whoever waited is being told from within that call. */
        if (t && !(t->phase == PHASE_RECORDING && !t->record)) {
                /* Who has seen `running` may rely on that attempt's being counted: STARTING, until it is on disk, is pending. */
                *ret = t->phase == PHASE_QUEUED || t->phase == PHASE_STARTING ? TASK_PENDING : TASK_RUNNING;
                return 0;
        }
        if (tasks_recent_get(ts, id, ret))
                return 0;
        struct ledger_row row;
        int r = ledger_get(ts->cfg.ledger, id, &row);
        if (r < 0)
                return r;
        int o = outcome_from_string(row.outcome);
        bool ours = row.state == JOB_FINISHED && o >= 0 && strcmp(row.kind, TASK_KIND) == 0;
        ledger_row_release(&row);
        if (!ours)
                return -ENOENT;
        *ret = outcome_is_failure((enum outcome)o) ? TASK_FAILED : TASK_COMPLETED;
        tasks_recent_put(ts, id, *ret);
        return 0;
}

int tasks_record(struct tasks *ts, const char *id, struct buf *ret) {
        enum task_status st;
        int r = tasks_status(ts, id, &st);
        if (r < 0)
                return r;
        return st == TASK_PENDING || st == TASK_RUNNING ? -EAGAIN : ledger_get_record(ts->cfg.ledger, id, ret);
}

void tasks_stats(const struct tasks *ts, struct tasks_stats *ret) {
        *ret = (struct tasks_stats){ .queued = queue_depth(ts->queue), .running = queue_running(ts->queue) };
}

/* ---- deletion ------------------------------------------------------------------------------------------------------------------ */

/* A finished task has nothing in memory: it gets an entry again while it is being removed. */
static int revive(struct tasks *ts, const char *id, struct task **ret) {
        enum task_status st;
        int r = tasks_status(ts, id, &st);
        if (r < 0)
                return r;
        struct task *t = task_new(ts, id);
        if (!t)
                return -ENOMEM;
        ASSERT(map_add(&ts->map, &t->node) == 0);
        *ret = t;
        return 0;
}

int tasks_delete(struct tasks *ts, const char *id, void (*done)(int r, void *user), void *user) {
        struct task *t = task_find(ts, id);
        bool finished = !t;
        int r = 0;
        if (!t)
                r = revive(ts, id, &t);
        else if (t->phase == PHASE_REMOVING)
                r = -ENOENT;
        if (r < 0)
                return r;
        struct removal_call *c = calloc(1, sizeof *c);
        if (!c) {
                if (finished)
                        task_free(t);
                return -ENOMEM;
        }
        *c = (struct removal_call){ .next = t->removals, .done = done, .user = user };
        t->removals = c;
        if (t->deleting)
                return 0;
        t->deleting = true;
        if (finished || t->phase == PHASE_QUEUED) {
                queue_remove(ts->queue, id);       /* -ENOENT: put back by a drain */
                task_remove(t);
        } else if (t->phase == PHASE_RUNNING && t->run)
                ts->cfg.runner.cancel(ts->cfg.runner.ctx, t->run);
        else if (t->phase == PHASE_RUNNING && task_control_leave(t)) {
                task_place_free(t);
                task_remove(t);
        }
        /* else a write of it is under way, and its callback sees `deleting` */
        return 0;
}
