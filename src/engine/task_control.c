/* Runs without the agent's patch, once for each instance.
 *
 *     a task with a gold patch ──nothing is known──> base ──> gold ──> known ──> its own run
 *                              ──under way───────> waits for it ─────────┘
 *                              ──known───────────────────────────────────> its own run, or infra_error where the environment is broken
 *
 * The first task of an instance makes both runs in its own place of the running set; others of it wait in theirs. Whoever leaves (deleted, a drain, a
 * fault) leaves the making to the next who waits. What is known is kept in memory, KNOWN_MAX instances of it, the least recently used go. */
#include <string.h>

#include "base/log.h"
#include "engine/tasks_internal.h"

#define KNOWN_MAX 4096

struct known {
        struct map_node node;
        char key[65];
        struct control *facts;             /* NULL: not known yet */
        struct score_record base;          /* while it is made */
        bool has_base;
        struct task *maker, *waiters;
        uint64_t last_use;
};

static const char *known_key(const struct map_node *n) { return container_of(n, struct known, node)->key; }

int tasks_known_init(struct tasks *ts) { return map_init(&ts->known, known_key); }

static void forget_base(struct known *k) {
        if (k->has_base)
                score_record_release(&k->base);
        k->has_base = false;
}

static void known_free(struct tasks *ts, struct known *k) {
        map_remove(&ts->known, &k->node);
        forget_base(k);
        control_unref(k->facts);
        free(k);
}

static void free_node(struct map_node *n, void *user) { known_free(user, container_of(n, struct known, node)); }

void tasks_known_free(struct tasks *ts) {
        map_each(&ts->known, free_node, ts);
        map_release(&ts->known);
}

static void older(struct map_node *n, void *user) {
        struct known *k = container_of(n, struct known, node), **oldest = user;
        if (k->facts && (!*oldest || k->last_use < (*oldest)->last_use))
                *oldest = k;
}

static struct known *find_or_add(struct tasks *ts, const char *key) {
        struct map_node *n = map_find(&ts->known, key);
        if (n)
                return container_of(n, struct known, node);
        if (ts->known.n >= KNOWN_MAX) {
                struct known *oldest = NULL;
                map_each(&ts->known, older, &oldest);
                if (oldest)
                        known_free(ts, oldest);
        }
        struct known *k = calloc(1, sizeof *k);
        if (!k)
                return NULL;
        memcpy(k->key, key, sizeof k->key);
        ASSERT(map_add(&ts->known, &k->node) == 0);
        return k;
}

/* ---- who waits ------------------------------------------------------------------------------------------------------------------- */

static void wait_for(struct known *k, struct task *t) {
        struct task **at = &k->waiters;
        while (*at)
                at = &(*at)->next_waiter;
        *at = t;
        t->next_waiter = NULL;
        t->known = k;
}

static struct task *next_waiter(struct known *k) {
        struct task *t = k->waiters;
        if (t) {
                k->waiters = t->next_waiter;
                t->next_waiter = NULL;
                t->known = NULL;
        }
        return t;
}

/* The next of them makes it. */
static void pass_on(struct tasks *ts, struct known *k) {
        k->maker = NULL;
        forget_base(k);
        struct task *t = next_waiter(k);
        if (t)
                task_begin(t);
        else if (!k->facts)
                known_free(ts, k);
}

bool task_control_leave(struct task *t) {
        struct known *k = TAKE_PTR(t->known);
        t->step = CONTROL_TASK;
        if (!k)
                return false;
        if (k->maker == t) {
                pass_on(t->ts, k);
                return false;
        }
        struct task **at = &k->waiters;
        while (*at != t)
                at = &(*at)->next_waiter;
        *at = t->next_waiter;
        t->next_waiter = NULL;
        return true;
}

/* ---- the runs ------------------------------------------------------------------------------------------------------------------------ */

static void keep(struct task *t, struct known *k, struct control *facts) {
        k->facts = facts;
        log_event(facts->broken ? LOG_WARN : LOG_INFO, "control.known", "task", t->id, "broken", facts->broken ? facts->broken : "", NULL);
        t->known = NULL;
        k->maker = NULL;
        t->step = CONTROL_TASK;
        forget_base(k);
        /* Their requests are read again: `known` may go while they are. */
        struct task *list = NULL, **end = &list;
        for (struct task *w; (w = next_waiter(k)); end = &w->next_waiter)
                *end = w;
        task_begin(t);
        for (struct task *w = list, *next; w; w = next) {
                next = w->next_waiter;
                w->next_waiter = NULL;
                task_begin(w);
        }
}

static void say_of_which(struct score_record *rec) {
        char *text;
        if (!rec->error_message || asprintf(&text, "control run: %s", rec->error_message) < 0)
                return;
        free(rec->error_message);
        rec->error_message = text;
}

/* Of BASE or GOLD. */
static void control_ran(struct score_record *rec, void *user) {
        struct task *t = user;
        struct known *k = t->known;
        if (t->ts->lost || t->deleting || t->requeue || rec->outcome == OUTCOME_INFRA_ERROR || rec->outcome == OUTCOME_CANCELLED) {
                if (!t->ts->lost)
                        (void)task_control_leave(t);
                say_of_which(rec);
                task_scored(rec, t);       /* it ends so itself */
                return;
        }
        t->run = NULL;
        t->log_dirfd = fd_close(t->log_dirfd);
        if (t->step == CONTROL_BASE) {
                k->base = *rec;
                k->has_base = true;
                score_record_init(rec);    /* it is ours now */
                t->step = CONTROL_GOLD;
                task_begin(t);
                return;
        }
        struct control *facts = control_new(&k->base, rec);
        if (!facts) {
                (void)task_control_leave(t);
                task_fault(t, "internal", "no memory to keep a control run");
                return;
        }
        keep(t, k, facts);
}

static int start_step(struct task *t, struct score_request *req, const char **ret_code, struct error *e) {
        int r = control_shape(req, t->step);
        if (r < 0) {
                score_request_release(req);
                return error_set(e, r, "read the request");
        }
        return task_start_run(t, req, t->step == CONTROL_TASK ? task_scored : control_ran, ret_code, e);
}

static int with_facts(struct task *t, struct known *k, struct score_request *req, const char **ret_code, struct error *e) {
        k->last_use = ++t->ts->known_uses;
        if (k->facts->broken) {
                score_request_release(req);
                *ret_code = "environment_broken";
                return error_say(e, -ENOEXEC, "control run: %s", k->facts->broken);
        }
        req->facts = control_ref(k->facts);
        return start_step(t, req, ret_code, e);
}

int task_control(struct task *t, struct score_request *req, const char *key, const char **ret_code, struct error *e) {
        if (t->step != CONTROL_TASK) {
                int r = start_step(t, req, ret_code, e);
                if (r < 0)
                        (void)task_control_leave(t);
                return r;
        }
        struct known *k = find_or_add(t->ts, key);
        if (k && k->facts)
                return with_facts(t, k, req, ret_code, e);
        if (!k) {
                score_request_release(req);
                return error_set(e, -ENOMEM, "control run");
        }
        if (k->maker) {
                score_request_release(req);
                wait_for(k, t);
                return 0;
        }
        k->maker = t;
        t->known = k;
        t->step = CONTROL_BASE;
        int r = start_step(t, req, ret_code, e);
        if (r < 0)
                (void)task_control_leave(t);
        return r;
}
