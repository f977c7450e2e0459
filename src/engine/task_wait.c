/* Waiting for the end of a task: thousands at a time, so a wait is one timer and one link. */
#include "engine/tasks_internal.h"

struct engine_wait {
        uv_timer_t timer;              /* first: freed through its handle */
        struct engine_wait *next, **at;    /* in the task's list; at NULL: in none */
        void (*done)(int r, void *user);
        void *user;
        int r;                         /* what the timer reports */
};

static void free_wait(uv_handle_t *h) { free(h); }

static void unlink_wait(struct engine_wait *w) {
        if (!w->at)
                return;
        *w->at = w->next;
        if (w->next)
                w->next->at = w->at;
        w->at = NULL;
}

void engine_wait_cancel(struct engine_wait *w) {
        unlink_wait(w);
        uv_close((uv_handle_t *)&w->timer, free_wait);
}

static void finish(struct engine_wait *w, int r) {
        void (*done)(int, void *) = w->done;
        void *user = w->user;
        engine_wait_cancel(w);
        done(r, user);
}

static void on_time(uv_timer_t *timer) {
        struct engine_wait *w = container_of(timer, struct engine_wait, timer);
        finish(w, w->r);
}

void task_notify(struct task *t, int r) {
        while (t->waits)
                finish(t->waits, r);
}

struct engine_wait *tasks_wait(struct tasks *ts, const char *id, uint64_t wait_ms, void (*done)(int r, void *user), void *user) {
        struct engine_wait *w = calloc(1, sizeof *w);
        if (!w)
                return NULL;
        w->done = done;
        w->user = user;
        uv_timer_init(ts->cfg.loop, &w->timer);
        struct task *t = task_find(ts, id);
        enum task_status st;
        if (t && t->phase != PHASE_REMOVING) {
                w->r = -ETIME;
                w->next = t->waits;
                w->at = &t->waits;
                if (w->next)
                        w->next->at = &w->next;
                t->waits = w;
        } else {
                w->r = tasks_status(ts, id, &st);
                wait_ms = 0;           /* it has ended or is unknown: said from the loop, like every other answer */
        }
        uv_timer_start(&w->timer, on_time, wait_ms, 0);
        return w;
}
