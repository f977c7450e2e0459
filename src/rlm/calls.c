/* Both faces of the broker, over one state machine (lease.h); who waits for calls; events. */
#include <string.h>

#include "base/hash.h"
#include "rlm/rlm_internal.h"

struct rlm_poll {
        uv_timer_t timer;                  /* first: freed through its handle */
        struct rlm_poll *next, **at;
        struct rlm_turn *turn;
        void (*done)(void *user);
        void *user;
};

static void make_token(char ret[static LEASE_TOKEN_SIZE], void *user) {
        unsigned char bytes[(LEASE_TOKEN_SIZE - 1) / 2];
        random_bytes(bytes, sizeof bytes);
        hex_encode(bytes, sizeof bytes, ret);
}

static void on_answer(struct lease_call *lc, enum lease_answer a, void *user) {
        struct rlm_turn *t = user;
        struct rlm_call *c = lc->user;
        if (a != LEASE_OK)
                c->turn = NULL;                /* over: the face does not come back to it */
        c->answer(c, a, a == LEASE_OK ? t->result : NULL);
}

int calls_open(struct rlm_turn *t) { return leases_init(&t->leases, &t->m->cfg.limits, make_token, on_answer, t); }

/* Answers may still be on their way: who waits for them to be out finds no turn then. */
void calls_release(struct rlm_turn *t) {
        for (struct lease_call *lc = t->leases.newest; lc; lc = lc->older)
                if (lc->state == CALL_SETTLED)
                        ((struct rlm_call *)lc->user)->turn = NULL;
        leases_release(&t->leases);
}

void calls_changed(struct rlm_turn *t) {
        action_clock_wait(&t->clock, now_ms(), t->leases.n_waiting > 0);
        action_rearm(t);
}

/* ---- polls ------------------------------------------------------------------------------------------------------------------------------ */

static void free_poll(uv_handle_t *h) { free(h); }

void rlm_poll_cancel(struct rlm_poll *p) {
        if (p->at) {
                *p->at = p->next;
                if (p->next)
                        p->next->at = p->at;
                p->at = NULL;
                p->turn->n_polls--;
        }
        uv_close((uv_handle_t *)&p->timer, free_poll);
}

static void poll_end(uv_timer_t *timer) {
        struct rlm_poll *p = container_of(timer, struct rlm_poll, timer);
        void (*done)(void *) = p->done;
        void *user = p->user;
        rlm_poll_cancel(p);
        done(user);
}

struct rlm_poll *rlm_poll_begin(struct rlm_turn *t, uint64_t wait_ms, void (*done)(void *user), void *user) {
        struct rlm_poll **last = &t->polls, *p = t->n_polls < RLM_POLLS_MAX ? calloc(1, sizeof *p) : NULL;
        if (!p)
                return NULL;
        p->turn = t;
        p->done = done;
        p->user = user;
        while (*last)
                last = &(*last)->next;
        p->at = last;
        *last = p;
        t->n_polls++;
        uv_timer_init(t->m->cfg.loop, &p->timer);
        uv_timer_start(&p->timer, poll_end, wait_ms, 0);
        return p;
}

bool rlm_has_unclaimed(const struct rlm_turn *t) { return t->leases.n_queued > 0; }

/* Whoever came first takes all there is. */
static void wake(struct rlm_turn *t) {
        turn_event(t, "tools_pending", "{}", 2);
        if (t->polls)
                poll_end(&t->polls->timer);
}

struct claim { void (*each)(const struct rlm_call *c, void *user); void *user; };

static void claimed(struct lease_call *lc, void *user) {
        struct claim *cl = user;
        cl->each(lc->user, cl->user);
}

size_t rlm_claim(struct rlm_turn *t, void (*each)(const struct rlm_call *c, void *user), void *user) {
        struct claim cl = { each, user };
        return leases_claim(&t->leases, claimed, &cl);
}

int64_t rlm_remaining_ms(struct rlm_turn *t) {
        uint64_t now = now_ms();
        if (!t->leases.executing)
                return -1;
        uint64_t at = action_clock_deadline(&t->clock, now);
        return at > now ? (int64_t)(at - now) : 0;
}

enum lease_answer rlm_settle(struct rlm_turn *t, const char *id, const char *lease, const struct rlm_result *res) {
        t->result = res;
        enum lease_answer a = leases_settle(&t->leases, id, lease);
        t->result = NULL;
        if (a == LEASE_OK)
                calls_changed(t);
        return a;
}

/* ---- events ----------------------------------------------------------------------------------------------------------------------------- */

bool rlm_may_subscribe(const struct rlm_turn *t) { return t->n_subscribers < RLM_SUBSCRIBERS_MAX && !rlm_turn_is_over(t); }

enum rlm_fault rlm_subscribe(struct rlm_turn *t, struct rlm_subscriber *s) {
        if (t->n_subscribers >= RLM_SUBSCRIBERS_MAX)
                return RLM_TOO_MANY;
        s->turn = t;
        s->next = t->subscribers;
        s->at = &t->subscribers;
        if (s->next)
                s->next->at = &s->next;
        t->subscribers = s;
        t->n_subscribers++;
        if (t->leases.n_queued > 0)
                s->event(s, "tools_pending", "{}", 2);
        return RLM_OK;
}

void rlm_unsubscribe(struct rlm_subscriber *s) {
        if (!s->at)
                return;
        *s->at = s->next;
        if (s->next)
                s->next->at = s->at;
        s->at = NULL;
        s->turn->n_subscribers--;
}

void turn_event(struct rlm_turn *t, const char *event, const char *data, size_t n) {
        for (struct rlm_subscriber *s = t->subscribers, *next; s; s = next) {
                next = s->next;
                s->event(s, event, data, n);   /* may leave, itself alone */
        }
}

void calls_close(struct rlm_turn *t) {
        leases_close(&t->leases);
        while (t->polls)
                poll_end(&t->polls->timer);
        while (t->subscribers) {
                struct rlm_subscriber *s = t->subscribers;
                rlm_unsubscribe(s);
                s->ended(s);
        }
}

/* ---- the sandbox face ------------------------------------------------------------------------------------------------------------------- */

bool rlm_secret_ok(const struct rlm_root *root, const char *secret) {
        const struct rlm_turn *t = root->turn;
        if (!t || (t->state != TURN_OPEN && t->state != TURN_BEGINNING) || strlen(secret) != RLM_SECRET_SIZE - 1)
                return false;
        return secret_equal(secret, t->secret, RLM_SECRET_SIZE - 1);
}

bool rlm_is_executing(const struct rlm_root *root) { return root->turn && root->turn->leases.executing; }

bool rlm_tool_known(const struct rlm_root *root, const struct json *name) {
        return json_string_is(name, "llm_query") || json_string_is(name, "llm_query_batched") || (root->turn && tools_have(&root->turn->tools, name));
}

enum lease_answer rlm_call_begin(struct rlm_root *root, struct rlm_call *c, const char *id, size_t id_len, unsigned prompts) {
        struct rlm_turn *t = root->turn;
        uint64_t now = now_ms();
        if (!t || t->state != TURN_OPEN)
                return LEASE_NOT_EXECUTING;
        enum lease_answer a = leases_call(&t->leases, id, id_len, prompts, action_clock_wait_deadline(&t->clock, now), c, &c->lease);
        if (a != LEASE_OK)
                return a;
        c->turn = t;
        calls_changed(t);
        wake(t);
        return LEASE_OK;
}

void rlm_call_taken(struct rlm_call *c) {
        if (c->turn)
                lease_taken(&c->turn->leases, c->lease);
        c->turn = NULL;
}

void rlm_call_gone(struct rlm_call *c) {
        struct rlm_turn *t = c->turn;
        if (!t)
                return;
        c->turn = NULL;
        lease_gone(&t->leases, c->lease);
        calls_changed(t);
}
