/* Collection runs: see collect.h. An entry is the key's run or its kept list; the task that came first lends it what it needs (tree,
 * request, command) and so waits until the sandbox of the run is gone; others only wait for the list. */
#include "score/collect.h"

#include "base/hash.h"
#include "score/run.h"

struct entry {
        struct entry *next;                     /* most recently used first */
        struct collections *owner;
        char key[SHA256_HEX];
        struct collection_wait *waits;
        struct collection_request q;            /* while it runs */
        struct sandbox *sandbox;
        struct run_files files;
        struct run *run;
        bool busy, applying, testing, stopping, listed;
        struct report report; bool have_report;
};
struct collection_wait {
        struct collection_wait *next;
        struct entry *entry;
        collection_done done;
        void *user;
        bool lends, cancelled;
        uv_timer_t soon;                        /* its close callback delivers */
};
struct collections { uv_loop_t *loop; struct spawner *sp; struct entry *entries; size_t n; };

/* ---- entries --------------------------------------------------------------------------------------------------------- */

static void entry_free(struct entry *x) {
        run_files_release(&x->files);
        run_free(x->run);
        if (x->have_report)
                report_release(&x->report);
        free(x);
}

static void unlink_entry(struct entry *x) {
        for (struct entry **at = &x->owner->entries; *at; at = &(*at)->next)
                if (*at == x) {
                        *at = x->next;
                        x->owner->n--;
                        x->listed = false;
                        return;
                }
}

static void push_entry(struct collections *c, struct entry *x) {
        x->next = c->entries;
        c->entries = x;
        c->n++;
        x->listed = true;
}

/* Drops the least recently used list that nobody waits for. */
static void trim(struct collections *c) {
        while (c->n > COLLECTIONS_MAX) {
                struct entry *last = NULL;
                for (struct entry *x = c->entries; x; x = x->next)
                        if (!x->busy && !x->waits)
                                last = x;
                if (!last)
                        return;
                unlink_entry(last);
                entry_free(last);
        }
}

static struct entry *find(struct collections *c, const char *key) {
        for (struct entry *x = c->entries; x; x = x->next)
                if (strcmp(x->key, key) == 0)
                        return x;
        return NULL;
}

static int make_key(const struct collection_request *q, char ret[static SHA256_HEX]) {
        struct sha256 h;
        const struct score_request *r = q->request;
        int x = sha256_init(&h);
        if (x < 0)
                return x;
        sha256_update_str(&h, q->tree->image_digest);
        sha256_update_str(&h, q->tree->commit);
        for (const char *const *l = q->tree->layers; l && *l; l++)
                sha256_update_str(&h, *l);
        sha256_update_str(&h, r->repo_path);
        sha256_update(&h, r->test_patch, r->test_patch_len);
        char numbers[128];
        snprintf(numbers, sizeof(numbers), "|%zu|%d|%d|%u|%u", r->test_patch_len, (int)r->run, (int)r->network, r->uid, r->gid);
        sha256_update_str(&h, numbers);
        for (size_t i = 0; r->allow && i < egress_rules_count(r->allow); i++)
                sha256_update_str(&h, egress_rules_text(r->allow, i));
        char **const lists[] = {q->command->argv, r->env, q->command->kind == COMMAND_BUILT ? r->fail_to_pass : NULL,
                                q->command->kind == COMMAND_BUILT ? r->pass_to_pass : NULL};
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
                for (char **s = lists[i]; s && *s; s++)
                        sha256_update_str(&h, *s);
                sha256_update_str(&h, "");
        }
        sha256_finish(&h, ret);
        return 0;
}

/* ---- answers ---------------------------------------------------------------------------------------------------------- */

static void on_soon(uv_handle_t *h) {
        struct collection_wait *w = h->data;
        struct entry *x = w->entry;
        for (struct collection_wait **at = &x->waits; *at; at = &(*at)->next)
                if (*at == w) {
                        *at = w->next;
                        break;
                }
        w->done(x->have_report && !w->cancelled ? &x->report : NULL, w->user);
        free(w);
        if (x->waits || x->busy)
                return;
        bool keep = x->have_report && x->report.id_bytes <= COLLECTION_BYTES_MAX;
        if (x->listed && keep)
                trim(x->owner);
        else {
                if (x->listed)
                        unlink_entry(x);
                entry_free(x);
        }
}

static void answer(struct collection_wait *w) {
        if (!uv_is_closing((uv_handle_t *)&w->soon))
                uv_close((uv_handle_t *)&w->soon, on_soon);
}

/* ---- the run ------------------------------------------------------------------------------------------------------------ */

static void stop(struct entry *x) {
        x->stopping = true;
        if (x->sandbox)
                sandbox_destroy(x->sandbox);
}

static void check_over(struct entry *x) {
        if (x->sandbox || x->applying || x->testing)
                return;
        x->busy = false;
        run_files_release(&x->files);
        if (!x->have_report && x->listed)
                unlink_entry(x);        /* the next task tries again */
        for (struct collection_wait *w = x->waits; w; w = w->next)
                answer(w);
}

static void on_listed(struct run *run, const struct exec_end *end, void *user) {
        struct entry *x = user;
        struct report *r = run_report(run);
        x->testing = false;
        if (!x->stopping && end->started && !end->timed_out && !end->sandbox_ended && r && r->collected && r->ended) {
                x->report = *r;
                x->have_report = true;
                report_init(r, r->nonce);       /* its contents have moved */
                buf_release(&x->report.line);
        }
        run_free(TAKE_PTR(x->run));
        stop(x);
        check_over(x);
}

static int list(struct entry *x, const struct apply_result *applied) {
        struct run_spec spec = {
                .loop = x->owner->loop, .sandbox = x->sandbox, .command = x->q.command, .request = x->q.request, .apply = applied, .collect = true,
                .timeout_ms = MIN2(x->q.request->timeout_ms, (uint64_t)COLLECTION_TIMEOUT_MS),
        };
        int r = run_start(&spec, on_listed, x, &x->run, NULL);
        x->testing = r == 0;
        return r;
}

static void on_applied(int r, struct apply_result *res, const struct error *e, void *user) {
        struct entry *x = user;
        x->applying = false;
        if (r < 0 || x->stopping || !res->test_patch_applied || list(x, res) < 0)
                stop(x);
        check_over(x);
}

static void on_ready(struct sandbox *s, void *user) {
        struct entry *x = user;
        const struct score_request *q = x->q.request;
        struct apply_spec spec = {
                .sandbox = s, .repo_path = q->repo_path, .patch = "", .test_patch = q->test_patch, .test_patch_len = q->test_patch_len, .mode = q->patch_mode,
                .seal_fd = -1, .watch_fd = -1,
        };
        if (x->stopping)
                return;
        int r;
        if (q->test_patch_len == 0)
                r = list(x, NULL);
        else
                x->applying = (r = score_apply(&spec, on_applied, x, NULL)) == 0;
        if (r < 0)
                stop(x);
}

static void on_failed(struct sandbox *s, const char *step, const struct error *e, void *user) { stop(user); }

static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct entry *x = user;
        x->sandbox = NULL;
        x->stopping = true;
        check_over(x);
}

static int start(struct entry *x) {
        static const struct sandbox_callbacks callbacks = {.ready = on_ready, .failed = on_failed, .gone = on_gone};
        char id[65];
        snprintf(id, sizeof(id), "%.56s-collect", x->q.id);
        int r = run_files_make(x->q.command, &x->files, NULL);
        if (r < 0)
                return r;
        struct sandbox_spec spec = {
                .id = id, .profile = PROFILE_SCORE, .image = x->q.image, .layers = x->q.layers, .upper = UPPER_TMPFS,
                .network = x->q.request->network, .allow = x->q.request->allow, .limits = x->q.request->limits, .files = x->files.at, .n_files = x->files.n,
        };
        r = sandbox_create(x->owner->sp, &spec, &callbacks, x, &x->sandbox, NULL);
        x->busy = r == 0;
        return r;
}

/* ---- the interface --------------------------------------------------------------------------------------------------------- */

struct collections *collections_new(uv_loop_t *loop, struct spawner *sp) {
        struct collections *c = calloc(1, sizeof(*c));
        if (c)
                *c = (struct collections){.loop = loop, .sp = sp};
        return c;
}

void collections_free(struct collections *c) {
        if (!c)
                return;
        while (c->entries) {
                struct entry *x = c->entries;
                ASSERT(!x->busy && !x->waits);
                unlink_entry(x);
                entry_free(x);
        }
        free(c);
}

static struct entry *new_entry(struct collections *c, const char *key, const struct collection_request *q) {
        struct entry *x = calloc(1, sizeof(*x));
        if (!x)
                return NULL;
        x->owner = c;
        x->q = *q;
        memcpy(x->key, key, sizeof(x->key));
        if (start(x) < 0) {
                entry_free(x);
                return NULL;
        }
        push_entry(c, x);
        return x;
}

int collection_get(struct collections *c, const struct collection_request *q, collection_done done, void *user, struct collection_wait **ret) {
        char key[SHA256_HEX];
        int r = make_key(q, key);
        if (r < 0)
                return r;
        struct collection_wait *w = calloc(1, sizeof(*w));
        if (!w)
                return -ENOMEM;
        struct entry *x = find(c, key);
        if (x) {
                unlink_entry(x);
                push_entry(c, x);
        } else {
                x = new_entry(c, key, q);
                w->lends = true;
        }
        if (!x) {
                free(w);
                return -ENOMEM;
        }
        uv_timer_init(c->loop, &w->soon);
        w->soon.data = w;
        w->entry = x;
        w->done = done;
        w->user = user;
        w->next = x->waits;
        x->waits = w;
        if (!x->busy)
                answer(w);
        *ret = w;
        return 0;
}

void collection_cancel(struct collection_wait *w) {
        w->cancelled = true;
        if (w->lends && w->entry->busy)
                stop(w->entry);         /* answered when its sandbox is gone */
        else
                answer(w);
}
