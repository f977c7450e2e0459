/* Waiting until a session has started: one timer and one link each. */
#include "session/session_internal.h"

struct session_wait {
        uv_timer_t timer;              /* first: freed through its handle */
        struct session_wait *next, **at;   /* in the session's list; at NULL: in none */
        void (*done)(void *user);
        void *user;
};

static void free_wait(uv_handle_t *h) { free(h); }

void session_wait_cancel(struct session_wait *w) {
        if (w->at) {
                *w->at = w->next;
                if (w->next)
                        w->next->at = w->at;
                w->at = NULL;
        }
        uv_close((uv_handle_t *)&w->timer, free_wait);
}

static void on_time(uv_timer_t *timer) {
        struct session_wait *w = container_of(timer, struct session_wait, timer);
        void (*done)(void *) = w->done;
        void *user = w->user;
        session_wait_cancel(w);
        done(user);
}

void session_waits_end(struct session *s) {
        while (s->waits)
                on_time(&s->waits->timer);
}

struct session_wait *session_wait_started(struct sessions *ss, const char *id, uint64_t wait_ms, void (*done)(void *user), void *user) {
        struct session *s = session_find(ss, id);
        struct session_wait *w = s && s->state == SESSION_STARTING ? calloc(1, sizeof *w) : NULL;
        if (!w)
                return NULL;
        w->done = done;
        w->user = user;
        w->next = s->waits;
        w->at = &s->waits;
        if (w->next)
                w->next->at = &w->next;
        s->waits = w;
        uv_timer_init(ss->cfg.loop, &w->timer);
        uv_timer_start(&w->timer, on_time, wait_ms, 0);
        return w;
}
