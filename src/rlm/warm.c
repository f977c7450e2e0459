/* The pool of warm boxes: see warm.h. */
#include <string.h>

#include "base/buf.h"
#include "base/strv.h"
#include "rlm/warm.h"

enum box_state { BOX_MAKING, BOX_READY, BOX_ENDING };

struct kind {
        char name[WARM_NAME_MAX + 1];
        struct sandbox_spec spec;          /* strings owned */
        char **layers;
        char *python, *cache;              /* what python is made of */
        bool keep;
};

struct warm_box {
        struct warm_box *next, **at;
        struct warm *pool;
        const struct kind *kind;
        enum box_state state;
        bool claimed, lost;
        struct warm_callbacks cb; void *user;
        struct sandbox *sandbox;           /* NULL once gone */
        struct interpreter *interpreter;
};

struct warm {
        struct spawner *spawner;
        uv_loop_t *loop;
        unsigned want, most;
        struct kind kinds[WARM_KINDS_MAX]; unsigned n_kinds;
        struct warm_box *boxes;            /* list, claimed ones too */
        uv_timer_t timer;
        uint64_t retry_ms;                 /* 0: the last one could be made */
        bool held, stopping, freed;
        void (*stopped)(void *user); void *stopped_user;
};

static void arrange(struct warm *w, uint64_t ms);

/* ---- the end of a box ---- */

static void unlink_box(struct warm_box *b) {
        *b->at = b->next;
        if (b->next)
                b->next->at = b->at;
}

static bool unclaimed_left(const struct warm *w) {
        for (const struct warm_box *b = w->boxes; b; b = b->next)
                if (!b->claimed)
                        return true;
        return false;
}

static void check_stopped(struct warm *w) {
        if (!w->stopping || !w->stopped || unclaimed_left(w))
                return;
        void (*done)(void *) = w->stopped;
        w->stopped = NULL;
        done(w->stopped_user);
}

static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct warm_box *b = user;
        struct warm *w = b->pool;
        b->sandbox = NULL;
        interpreter_free(TAKE_PTR(b->interpreter));
        unlink_box(b);
        if (b->claimed)
                b->cb.gone(b, end, b->user);
        free(b);
        if (!w->stopping)
                arrange(w, WARM_PAUSE_MS);
        check_stopped(w);
}

void warm_box_destroy(struct warm_box *b) {
        b->state = BOX_ENDING;
        if (b->sandbox)
                sandbox_destroy(b->sandbox);
}

static void made_badly(struct warm *w) {
        w->retry_ms = w->retry_ms ? MIN2(w->retry_ms * 2, (uint64_t)WARM_RETRY_MAX_MS) : WARM_RETRY_MS;
}

static void fail(struct warm_box *b, const char *step, const struct error *e) {
        if (b->state != BOX_MAKING)
                return;
        if (b->claimed)
                b->cb.failed(b, step, e, b->user);
        else
                made_badly(b->pool);
        warm_box_destroy(b);
}

/* ---- making ---- */

static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) { fail(user, step, e); }

static void on_limit(struct sandbox *s, enum limit_kind kind, void *user) {
        struct warm_box *b = user;
        if (!b->claimed)
                warm_box_destroy(b);
        else if (b->cb.limit)
                b->cb.limit(b, kind, b->user);
}

static void on_python(struct interpreter *in, void *user) {
        struct warm_box *b = user;
        if (b->state != BOX_MAKING)
                return;
        b->state = BOX_READY;
        if (b->claimed)
                b->cb.ready(b, b->user);
        else {
                b->pool->retry_ms = 0;
                arrange(b->pool, 0);
        }
}

static void on_lost(struct interpreter *in, const struct error *e, void *user) {
        struct warm_box *b = user;
        if (b->state == BOX_MAKING)
                fail(b, "start python", e);
        else if (b->state == BOX_READY && !b->claimed)
                warm_box_destroy(b);
        else if (b->state == BOX_READY && !b->lost) {
                b->lost = true;
                b->cb.lost(b, e, b->user);
        }
}

static void on_sandbox(struct sandbox *s, void *user) {
        struct warm_box *b = user;
        struct error e = { 0 };
        static const struct interpreter_callbacks cb = { .ready = on_python, .lost = on_lost };
        const struct interpreter_spec spec = { .python = b->kind->python, .cache = b->kind->cache };
        if (b->state == BOX_MAKING && interpreter_start(s, &spec, &cb, b, &b->interpreter, &e) < 0)
                fail(b, "start python", &e);
}

static int make(struct warm *w, const struct kind *k, struct warm_box **ret, struct error *e) {
        static const struct sandbox_callbacks cb = { .ready = on_sandbox, .failed = on_failed, .limit = on_limit, .gone = on_gone };
        struct warm_box *b = calloc(1, sizeof *b);
        if (!b)
                return error_set(e, -ENOMEM, "make a sandbox");
        *b = (struct warm_box){ .pool = w, .kind = k };
        int r = sandbox_create(w->spawner, &k->spec, &cb, b, &b->sandbox, e);
        if (r < 0) {
                free(b);
                return r;
        }
        b->next = w->boxes;
        b->at = &w->boxes;
        if (b->next)
                b->next->at = &b->next;
        w->boxes = b;
        *ret = b;
        return 0;
}

/* ---- keeping some ---- */

static unsigned count(const struct warm *w, const struct kind *k, bool ready_only) {
        unsigned n = 0;
        for (const struct warm_box *b = w->boxes; b; b = b->next)
                n += !b->claimed && (!k || b->kind == k) && (b->state == BOX_READY || (!ready_only && b->state == BOX_MAKING));
        return n;
}

static bool is_making(const struct warm *w) { return count(w, NULL, false) > count(w, NULL, true); }

static void on_time(uv_timer_t *t) {
        struct warm *w = t->data;
        struct warm_box *b;
        if (w->held || w->stopping || is_making(w) || count(w, NULL, false) >= w->most)
                return;
        for (unsigned i = 0; i < w->n_kinds; i++) {
                const struct kind *k = &w->kinds[i];
                if (!k->keep || count(w, k, false) >= w->want)
                        continue;
                if (make(w, k, &b, NULL) < 0) {
                        made_badly(w);
                        arrange(w, 0);
                }
                return;
        }
}

/* In so long, or when the next attempt is due. */
static void arrange(struct warm *w, uint64_t ms) {
        if (!w->stopping && !w->held)
                uv_timer_start(&w->timer, on_time, MAX2(ms, w->retry_ms), 0);
}

/* ---- for those who use it ---- */

int warm_new(struct spawner *sp, uv_loop_t *loop, unsigned want, unsigned most, struct warm **ret) {
        struct warm *w = calloc(1, sizeof *w);
        if (!w)
                return -ENOMEM;
        *w = (struct warm){ .spawner = sp, .loop = loop, .want = want, .most = MIN2(most, WARM_BOXES_MAX) };
        uv_timer_init(loop, &w->timer);
        w->timer.data = w;
        uv_unref((uv_handle_t *)&w->timer);
        *ret = w;
        return 0;
}

static const struct kind *find(const struct warm *w, const char *name) {
        for (unsigned i = 0; i < w->n_kinds; i++)
                if (strcmp(w->kinds[i].name, name) == 0)
                        return &w->kinds[i];
        return NULL;
}

static void kind_release(struct kind *k) {
        free((char *)k->spec.image);
        free((char *)k->spec.hostname);
        strv_free(k->layers);
        free(k->python);
        free(k->cache);
        *k = (struct kind){ 0 };
}

static int copy(const char *s, const char **ret) {
        *ret = s ? strdup(s) : NULL;
        return s && !*ret ? -ENOMEM : 0;
}

static int name_cache(struct kind *k) {
        _cleanup_buf_ struct buf b = BUF_INIT(65536);
        int r = buf_printf(&b, "%s\n%s", k->python ? k->python : "", k->spec.image ? k->spec.image : "");
        for (size_t i = 0; r == 0 && k->layers && k->layers[i]; i++)
                r = buf_printf(&b, "\n%s", k->layers[i]);
        k->cache = r == 0 ? buf_steal(&b) : NULL;
        return k->cache ? 0 : r < 0 ? r : -ENOMEM;
}

int warm_add_kind(struct warm *w, const char *name, const struct sandbox_spec *spec, const char *python, bool keep) {
        if (spec->profile != PROFILE_RLM || spec->n_mounts > 0 || spec->n_files > 0 || spec->allow || spec->upper == UPPER_LAYER || strlen(name) > WARM_NAME_MAX)
                return -EINVAL;
        if (find(w, name))
                return -EEXIST;
        if (w->n_kinds >= WARM_KINDS_MAX)
                return -ENOSPC;
        struct kind *k = &w->kinds[w->n_kinds];
        const char *program = NULL;
        *k = (struct kind){ .spec = *spec, .keep = keep };
        k->spec.id = "rlm-box";
        snprintf(k->name, sizeof k->name, "%s", name);
        k->spec.image = k->spec.hostname = NULL;
        k->spec.layers = NULL;
        int r = copy(spec->image, &k->spec.image);
        if (r == 0)
                r = copy(spec->hostname, &k->spec.hostname);
        if (r == 0)
                r = copy(python, &program);
        k->python = (char *)program;
        for (size_t i = 0; r == 0 && spec->layers && spec->layers[i]; i++)
                r = strv_push(&k->layers, spec->layers[i]);
        k->spec.layers = (const char *const *)k->layers;
        if (r == 0)
                r = name_cache(k);
        if (r < 0) {
                kind_release(k);
                return r;
        }
        w->n_kinds++;
        arrange(w, 0);
        return 0;
}

/* The one whose next process is forked already, if there is one. */
static struct warm_box *best(struct warm *w, const struct kind *k) {
        struct warm_box *found = NULL;
        for (struct warm_box *b = w->boxes; b; b = b->next)
                if (!b->claimed && b->kind == k && b->state == BOX_READY && (!found || interpreter_is_warm(b->interpreter)))
                        found = b;
        return found;
}

int warm_take(struct warm *w, const char *kind, const struct warm_callbacks *cb, void *user, struct warm_box **ret, struct error *e) {
        const struct kind *k = find(w, kind);
        if (w->stopping)
                return error_say(e, -ESHUTDOWN, "no sandbox is made any more");
        if (!k)
                return error_say(e, -ENOENT, "there is no kind of sandbox called %.100s", kind);
        struct warm_box *b = best(w, k);
        bool ready = b != NULL;
        /* One that is on its way for nobody is sooner there than a new one. */
        for (struct warm_box *i = w->boxes; i && !b; i = i->next)
                if (!i->claimed && i->kind == k && i->state == BOX_MAKING)
                        b = i;
        int r = b ? 0 : make(w, k, &b, e);
        if (r < 0)
                return r;
        b->claimed = true;
        b->cb = *cb;
        b->user = user;
        *ret = b;
        arrange(w, WARM_PAUSE_MS);
        return ready;
}

struct sandbox *warm_box_sandbox(struct warm_box *b) { return b->sandbox; }
struct interpreter *warm_box_interpreter(struct warm_box *b) { return b->interpreter; }

unsigned warm_ready(const struct warm *w, const char *kind) {
        const struct kind *k = kind ? find(w, kind) : NULL;
        return kind && !k ? 0 : count(w, k, true);
}

static void drop_unclaimed(struct warm *w) {
        for (struct warm_box *b = w->boxes; b; b = b->next)
                if (!b->claimed && b->state != BOX_ENDING)
                        warm_box_destroy(b);
}

void warm_hold_back(struct warm *w, bool on) {
        w->held = on;
        if (on) {
                uv_timer_stop(&w->timer);
                drop_unclaimed(w);
        } else
                arrange(w, 0);
}

static void on_stop(uv_timer_t *t) { check_stopped(t->data); }

void warm_stop(struct warm *w, void (*done)(void *user), void *user) {
        w->stopping = true;
        w->stopped = done;
        w->stopped_user = user;
        drop_unclaimed(w);
        uv_ref((uv_handle_t *)&w->timer);
        uv_timer_start(&w->timer, on_stop, 0, 0);      /* from the loop, also where there is none */
}

static void on_closed(uv_handle_t *h) { free(h->data); }

void warm_free(struct warm *w) {
        if (!w)
                return;
        ASSERT(!w->boxes);
        for (unsigned i = 0; i < w->n_kinds; i++)
                kind_release(&w->kinds[i]);
        uv_close((uv_handle_t *)&w->timer, on_closed);
}
