/* Theory of operation. A job waits in a *lane*: the FIFO of one (tenant, priority). Lanes that have a job are in one binary
 * heap, ordered by what the header promises: priority, then the tenant's running jobs, then when the tenant was last served,
 * then the age of the lane's first job. Starting or finishing a job changes the order of all lanes of its tenant, and only
 * these, so they are moved in the heap at that moment; the top of the heap is always what runs next.
 *
 * A tenant is forgotten when it has nothing queued or running. */
#include <string.h>

#include "base/clock.h"
#include "base/map.h"
#include "fleet/queue.h"

struct entry {
        struct map_node node;
        struct entry *prev, *next;     /* in the lane; NULL while running */
        union { struct lane *lane; struct tenant *tenant; };   /* queued; running */
        uint64_t pushed_ms;
        bool running;
        char id[QUEUE_ID_MAX + 1];
};

struct lane {
        struct tenant *tenant;
        struct lane *sibling;          /* next lane of the tenant */
        int priority;
        size_t at;                     /* position in the heap */
        uint64_t age;                  /* serial of the push that made the lane non-empty */
        struct entry *first, *last;
};

struct tenant {
        struct map_node node;
        struct lane *lanes;            /* only those that have jobs */
        size_t running;
        uint64_t served;               /* serial of the last start, 0 never */
        char name[];
};

struct queue {
        struct queue_limits limits;
        void (*start)(const char *id, uint64_t queued_ms, void *user);
        void *user;
        struct map entries, tenants;
        struct lane **heap;
        size_t n_lanes, heap_alloc;
        size_t depth, running;
        uint64_t serial;
        bool paused, dispatching;
};

static const char *entry_key(const struct map_node *n) { return container_of(n, struct entry, node)->id; }
static const char *tenant_key(const struct map_node *n) { return container_of(n, struct tenant, node)->name; }

/* ---- the heap of lanes ----------------------------------------------------------------------------------------- */

static bool before(const struct lane *a, const struct lane *b) {
        if (a->priority != b->priority)
                return a->priority > b->priority;
        if (a->tenant->running != b->tenant->running)
                return a->tenant->running < b->tenant->running;
        if (a->tenant->served != b->tenant->served)
                return a->tenant->served < b->tenant->served;
        return a->age < b->age;
}

static void put(struct queue *q, size_t at, struct lane *l) {
        q->heap[at] = l;
        l->at = at;
}

static void settle(struct queue *q, struct lane *l) {
        size_t at = l->at;
        for (; at > 0 && before(l, q->heap[(at - 1) / 2]); at = (at - 1) / 2)
                put(q, at, q->heap[(at - 1) / 2]);
        for (size_t child; (child = 2 * at + 1) < q->n_lanes; at = child) {
                if (child + 1 < q->n_lanes && before(q->heap[child + 1], q->heap[child]))
                        child++;
                if (!before(q->heap[child], l))
                        break;
                put(q, at, q->heap[child]);
        }
        put(q, at, l);
}

static int heap_add(struct queue *q, struct lane *l) {
        if (q->n_lanes == q->heap_alloc) {
                size_t grown = q->heap_alloc ? q->heap_alloc * 2 : 16;
                struct lane **p = reallocarray(q->heap, grown, sizeof *p);
                if (!p)
                        return -ENOMEM;
                q->heap = p;
                q->heap_alloc = grown;
        }
        put(q, q->n_lanes++, l);
        settle(q, l);
        return 0;
}

static void heap_remove(struct queue *q, struct lane *l) {
        struct lane *moved = q->heap[--q->n_lanes];
        if (moved == l)
                return;
        put(q, l->at, moved);
        settle(q, moved);
}

/* The tenant's keys have changed: each of its lanes finds its new place. Lanes of one tenant differ in priority, which comes
 * first, so none of them passes another on its way, and settling them one after the other is enough. */
static void tenant_moved(struct queue *q, struct tenant *t) {
        for (struct lane *l = t->lanes; l; l = l->sibling)
                settle(q, l);
}

/* ---- tenants and lanes ------------------------------------------------------------------------------------------ */

static struct tenant *tenant_get(struct queue *q, const char *name) {
        struct map_node *n = map_find(&q->tenants, name);
        if (n)
                return container_of(n, struct tenant, node);
        size_t len = strlen(name);
        struct tenant *t = calloc(1, sizeof *t + len + 1);
        if (!t)
                return NULL;
        memcpy(t->name, name, len + 1);
        ASSERT(map_add(&q->tenants, &t->node) == 0);
        return t;
}

static void tenant_forget_if_idle(struct queue *q, struct tenant *t) {
        if (t->running > 0 || t->lanes)
                return;
        map_remove(&q->tenants, &t->node);
        free(t);
}

static struct lane *lane_get(struct queue *q, struct tenant *t, int priority) {
        for (struct lane *l = t->lanes; l; l = l->sibling)
                if (l->priority == priority)
                        return l;
        struct lane *l = calloc(1, sizeof *l);
        if (!l)
                return NULL;
        *l = (struct lane){ .tenant = t, .priority = priority, .age = ++q->serial };
        if (heap_add(q, l) < 0) {
                free(l);
                return NULL;
        }
        l->sibling = t->lanes;
        t->lanes = l;
        return l;
}

static void lane_free(struct queue *q, struct lane *l) {
        heap_remove(q, l);
        for (struct lane **at = &l->tenant->lanes; *at; at = &(*at)->sibling)
                if (*at == l) {
                        *at = l->sibling;
                        break;
                }
        free(l);
}

/* Takes a queued job out of its lane; the lane goes with its last job. */
static void unqueue(struct queue *q, struct entry *e) {
        struct lane *l = e->lane;
        if (e->prev)
                e->prev->next = e->next;
        else
                l->first = e->next;
        if (e->next)
                e->next->prev = e->prev;
        else
                l->last = e->prev;
        e->prev = e->next = NULL;
        q->depth--;
        if (!l->first)
                lane_free(q, l);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static void start_first(struct queue *q) {
        struct entry *e = q->heap[0]->first;
        struct tenant *t = e->lane->tenant;
        unqueue(q, e);                 /* before the tenant's keys change: the heap must be in order when it is touched */
        t->running++;
        q->running++;
        t->served = ++q->serial;
        e->running = true;
        e->tenant = t;
        tenant_moved(q, t);
        uint64_t now = now_ms();
        char id[QUEUE_ID_MAX + 1];     /* the callback may finish the job at once, and so free the entry */
        memcpy(id, e->id, sizeof id);
        q->start(id, now > e->pushed_ms ? now - e->pushed_ms : 0, q->user);
}

/* A `start` that finishes or pushes jobs comes back here; the outer call goes on for it, so the stack stays flat. */
static void dispatch(struct queue *q) {
        if (q->dispatching)
                return;
        q->dispatching = true;
        while (!q->paused && q->running < q->limits.max_running && q->n_lanes > 0)
                start_first(q);
        q->dispatching = false;
}

/* ---- the calls of the header --------------------------------------------------------------------------------------- */

struct queue *queue_new(const struct queue_limits *limits, void (*start)(const char *id, uint64_t queued_ms, void *user), void *user) {
        struct queue *q = calloc(1, sizeof *q);
        if (!q)
                return NULL;
        q->limits = *limits;
        q->start = start;
        q->user = user;
        if (map_init(&q->entries, entry_key) < 0 || map_init(&q->tenants, tenant_key) < 0) {
                queue_free(q);
                return NULL;
        }
        return q;
}

static void free_entry(struct map_node *n, void *user) { free(container_of(n, struct entry, node)); }

static void free_tenant(struct map_node *n, void *user) {
        struct tenant *t = container_of(n, struct tenant, node);
        for (struct lane *l = t->lanes, *next; l; l = next) {
                next = l->sibling;
                free(l);
        }
        free(t);
}

void queue_free(struct queue *q) {
        if (!q)
                return;
        map_each(&q->entries, free_entry, NULL);
        map_each(&q->tenants, free_tenant, NULL);
        map_release(&q->entries);
        map_release(&q->tenants);
        free(q->heap);
        free(q);
}

static int enqueue(struct queue *q, struct entry *e, const char *tenant, int priority) {
        struct tenant *t = tenant_get(q, tenant);
        if (!t)
                return -ENOMEM;
        priority = priority > QUEUE_PRIORITY_MAX ? QUEUE_PRIORITY_MAX : priority < -QUEUE_PRIORITY_MAX ? -QUEUE_PRIORITY_MAX : priority;
        struct lane *l = lane_get(q, t, priority);
        if (!l) {
                tenant_forget_if_idle(q, t);
                return -ENOMEM;
        }
        e->lane = l;
        e->prev = l->last;
        if (l->last)
                l->last->next = e;
        else
                l->first = e;
        l->last = e;
        q->depth++;
        return 0;
}

int queue_push(struct queue *q, const char *id, const char *tenant, int priority) {
        size_t n = strlen(id);
        if (n > QUEUE_ID_MAX)
                return -EINVAL;
        if (map_find(&q->entries, id))
                return -EEXIST;
        if (queue_full(q))
                return -EAGAIN;
        struct entry *e = calloc(1, sizeof *e);
        if (!e)
                return -ENOMEM;
        memcpy(e->id, id, n + 1);
        e->pushed_ms = now_ms();
        int r = enqueue(q, e, tenant, priority);
        if (r < 0) {
                free(e);
                return r;
        }
        ASSERT(map_add(&q->entries, &e->node) == 0);
        dispatch(q);
        return 0;
}

int queue_remove(struct queue *q, const char *id) {
        struct map_node *n = map_find(&q->entries, id);
        struct entry *e = n ? container_of(n, struct entry, node) : NULL;
        if (!e || e->running)
                return -ENOENT;
        struct tenant *t = e->lane->tenant;
        unqueue(q, e);
        map_remove(&q->entries, &e->node);
        free(e);
        tenant_forget_if_idle(q, t);
        return 0;
}

void queue_finished(struct queue *q, const char *id) {
        struct map_node *n = map_find(&q->entries, id);
        ASSERT(n);
        struct entry *e = container_of(n, struct entry, node);
        ASSERT(e->running);
        struct tenant *t = e->tenant;
        t->running--;
        q->running--;
        map_remove(&q->entries, &e->node);
        free(e);
        tenant_moved(q, t);
        tenant_forget_if_idle(q, t);
        dispatch(q);
}

void queue_pause(struct queue *q, bool paused) {
        q->paused = paused;
        dispatch(q);
}

bool queue_full(const struct queue *q) { return q->depth >= q->limits.max_queued; }
size_t queue_depth(const struct queue *q) { return q->depth; }
size_t queue_running(const struct queue *q) { return q->running; }
size_t queue_entry_bytes(void) { return sizeof(struct entry); }
