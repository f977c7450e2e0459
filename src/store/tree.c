/* Tickets and builds. A ticket goes through
 *
 *     LOADING ─> RESOLVE (mirror) ─> TREE (layer) ─> SETUP (layer, if a setup_command is given) ─> OPEN ─> answered
 *
 * and leaves out what is there already: with a full hash, a repository that needs no proof of access and both layers in the
 * cache, nothing is asked of anybody. A build makes one layer; tickets that need the same key wait for the same build. A
 * build without tickets is cancelled; one that failed is remembered for TREE_FAILURE_MEMORY_MS, so that a thousand rollouts
 * of a broken set-up cost one. Work of builds is in tree_build.c. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/strv.h"
#include "store/tree_private.h"

static const char *const tree_failure_names[TREE_FAILURE_MAX] = {
        "ok", "repo_unreachable", "commit_not_found", "image_not_found", "setup_failed", "setup_timeout", "disk_full", "internal",
};
STRING_TABLE(tree_failure, tree_failure_names, TREE_FAILURE_MAX)

static void ticket_step(struct tree_ticket *t);

/* ---- tickets ---- */

static void unuse_layers(struct tree_ticket *t) {
        if (t->setup)
                cached_layer_unuse(t->setup);
        if (t->tree)
                cached_layer_unuse(t->tree);
        t->setup = t->tree = NULL;
}

static void ticket_free(struct tree_ticket *t) {
        struct tree_ticket **at = &t->store->tickets;
        while (*at && *at != t)
                at = &(*at)->next;
        if (*at)
                *at = t->next;
        unuse_layers(t);
        repo_url_release(&t->url);
        fd_close(t->source_fd);
        free(t->wanted);
        image_chain_unref(t->image);
        free(t->repo_path);
        free(t->setup_command);
        egress_rules_unref(t->setup_allow);
        strv_free(t->setup_env);
        free(t);
}

void tree_ticket_fail(struct tree_ticket *t, enum tree_failure failure, const struct error *e) {
        tree_done done = t->done;
        void *user = t->user;
        struct error kept = *e;
        ticket_free(t);
        done(NULL, failure, &kept, user);
}

struct tree_answer {                   /* what a struct tree is the face of */
        struct tree tree;
        struct cached_layer *layers[2];
        const char *ids[3];
        char image_digest[SHA256_HEX];
        char tree_hash[LAYER_ID_SIZE];
};

static void ticket_answer(struct tree_ticket *t) {
        struct tree_answer *a = calloc(1, sizeof *a);
        struct error e;
        if (!a) {
                error_set(&e, -ENOMEM, "answer");
                tree_ticket_fail(t, TREE_INTERNAL, &e);
                return;
        }
        const struct layer_manifest *m = cached_layer_manifest(t->tree);
        a->layers[0] = TAKE_PTR(t->tree);
        a->layers[1] = TAKE_PTR(t->setup);
        a->ids[0] = m->id;
        a->ids[1] = a->layers[1] ? cached_layer_manifest(a->layers[1])->id : NULL;
        memcpy(a->image_digest, t->image_digest, sizeof a->image_digest);
        memcpy(a->tree_hash, m->tree_hash, sizeof a->tree_hash);
        memcpy(a->tree.commit, t->commit, sizeof a->tree.commit);
        a->tree.image_digest = a->image_digest;
        a->tree.tree_hash = a->tree_hash;
        a->tree.layers = a->ids;
        a->tree.commit_time = m->commit_time;
        a->tree.cached = !t->made_something;
        a->tree.prepare_ms = now_ms() - t->began_ms;
        tree_done done = t->done;
        void *user = t->user;
        t->store->answers++;
        ticket_free(t);
        done(&a->tree, TREE_OK, NULL, user);
}

void tree_release(struct tree_store *ts, struct tree *tree) {
        if (!tree)
                return;
        struct tree_answer *a = container_of(tree, struct tree_answer, tree);
        for (size_t i = ARRAY_SIZE(a->layers); i-- > 0;)
                if (a->layers[i])
                        cached_layer_unuse(a->layers[i]);
        free(a);
        ts->answers--;
}

/* ---- keys ---- */

static int tree_key(const struct tree_ticket *t, char ret[static SHA256_HEX]) {
        struct sha256 h;
        char text[32];
        int r = sha256_init(&h);
        if (r < 0)
                return r;
        snprintf(text, sizeof text, "brig tree %d", LAYER_FORMAT);
        sha256_update_str(&h, text);
        sha256_update_str(&h, t->url.canonical);
        sha256_update_str(&h, t->commit);
        sha256_update_str(&h, t->repo_path);
        if (t->uid) {
                snprintf(text, sizeof text, "%u:%u", t->uid, t->gid);
                sha256_update_str(&h, text);
        }
        sha256_finish(&h, ret);
        return 0;
}

static int setup_key(const struct tree_ticket *t, const char *below, char ret[static SHA256_HEX]) {
        struct sha256 h;
        char text[32];
        int r = sha256_init(&h);
        if (r < 0)
                return r;
        snprintf(text, sizeof text, "brig setup %d", LAYER_FORMAT);
        sha256_update_str(&h, text);
        sha256_update_str(&h, below);
        sha256_update_str(&h, t->image_digest);
        sha256_update_str(&h, t->setup_command);
        sha256_update_str(&h, sandbox_network_to_string((int)t->setup_network));
        for (size_t i = 0; t->setup_allow && i < egress_rules_count(t->setup_allow); i++)
                sha256_update_str(&h, egress_rules_text(t->setup_allow, i));
        for (size_t i = 0; t->setup_env && t->setup_env[i]; i++)
                sha256_update_str(&h, t->setup_env[i]);
        sha256_finish(&h, ret);
        return 0;
}

/* ---- steps ---- */

static void fail_text(struct tree_ticket *t, enum tree_failure failure, int r, const char *what) {
        struct error e;
        error_set(&e, r, "%s", what);
        tree_ticket_fail(t, failure, &e);
}

static void resolved(enum mirror_end end, const char *commit, const struct error *e, void *user) {
        static const enum tree_failure failures[] = {
                [MIRROR_OK] = TREE_OK, [MIRROR_UNREACHABLE] = TREE_REPO_UNREACHABLE, [MIRROR_NO_COMMIT] = TREE_COMMIT_NOT_FOUND,
                [MIRROR_DISK_FULL] = TREE_DISK_FULL, [MIRROR_FAILED] = TREE_INTERNAL,
        };
        struct tree_ticket *t = user;
        t->mirror = NULL;
        if (end != MIRROR_OK) {
                tree_ticket_fail(t, failures[end], e);
                return;
        }
        snprintf(t->commit, sizeof t->commit, "%s", commit);
        t->step = STEP_TREE;
        ticket_step(t);
}

/* A repository that needs no proof of access, asked by hash: the cache may know the answer. */
static bool known_by_hash(struct tree_ticket *t) {
        enum commit_kind kind;
        char key[SHA256_HEX];
        if (repo_commit_check(t->wanted, &kind, NULL) < 0 || kind != COMMIT_HASH || mirror_is_private(t->store->mirrors, &t->url))
                return false;
        size_t n = strlen(t->wanted);
        for (size_t i = 0; i <= n; i++)
                t->commit[i] = (char)(t->wanted[i] >= 'A' && t->wanted[i] <= 'F' ? t->wanted[i] - 'A' + 'a' : t->wanted[i]);
        return tree_key(t, key) == 0 && layer_cache_find(t->store->cache, key);
}

static void step_resolve(struct tree_ticket *t) {
        struct error e;
        if (known_by_hash(t)) {
                t->step = STEP_TREE;
                ticket_step(t);
                return;
        }
        int r = mirror_ensure(t->store->mirrors, &t->url, t->source_fd, t->wanted, resolved, t, &t->mirror, &e);
        if (r < 0)
                tree_ticket_fail(t, TREE_INTERNAL, &e);
}

/* The layer for `key`: 1 and it is in use by the ticket, or 0 and the ticket waits for a build (or has failed). */
static int need_layer(struct tree_ticket *t, enum layer_kind kind, const char *key, struct cached_layer **slot) {
        struct cached_layer *l = layer_cache_find(t->store->cache, key);
        if (l) {
                cached_layer_use(l);
                *slot = l;
                return 1;
        }
        t->made_something = true;
        tree_build_join(t, kind, key);
        return 0;
}

static void step_tree(struct tree_ticket *t) {
        int r = tree_key(t, t->tree_key);
        if (r < 0)
                fail_text(t, TREE_INTERNAL, r, "key");
        else if (need_layer(t, LAYER_TREE, t->tree_key, &t->tree)) {
                t->step = t->setup_command[0] ? STEP_SETUP : STEP_OPEN;
                ticket_step(t);
        }
}

static void step_setup(struct tree_ticket *t) {
        char key[SHA256_HEX];
        int r = setup_key(t, t->tree_key, key);
        if (r < 0)
                fail_text(t, TREE_INTERNAL, r, "key");
        else if (need_layer(t, LAYER_SETUP, key, &t->setup)) {
                t->step = STEP_OPEN;
                ticket_step(t);
        }
}

static void opened(int r, const struct error *e, void *user) {
        struct tree_ticket *t = user;
        struct cached_layer *l = TAKE_PTR(t->opening);
        if (r < 0) {
                /* What cannot be mounted is made again, by whoever asks next. */
                log_event(LOG_WARN, "layer.unusable", "layer", cached_layer_manifest(l)->id, "error", e->text, NULL);
                cached_layer_discard(l);
                tree_ticket_fail(t, TREE_INTERNAL, e);
                return;
        }
        ticket_step(t);
}

static void step_open(struct tree_ticket *t) {
        for (;;) {
                struct cached_layer *l = !t->opened_tree ? t->tree : t->setup;
                if (!l)
                        break;
                t->opening = l;
                int r = cached_layer_open(l, opened, t);
                if (r == 0)
                        return;
                t->opening = NULL;
                if (r < 0) {
                        fail_text(t, TREE_INTERNAL, r, "open a layer");
                        return;
                }
                if (t->opened_tree)
                        break;
                t->opened_tree = true;
        }
        ticket_answer(t);
}

static void ticket_step(struct tree_ticket *t) {
        switch (t->step) {
        case STEP_LOADING: return;
        case STEP_RESOLVE: step_resolve(t); return;
        case STEP_TREE: step_tree(t); return;
        case STEP_SETUP: step_setup(t); return;
        case STEP_OPEN: step_open(t); return;
        }
}

/* The layer that the ticket waited for was made. */
void tree_ticket_go_on(struct tree_ticket *t) {
        ticket_step(t);
}

/* Answers never come from inside tree_acquire: the first step runs from the loop. */
static void begin(uv_idle_t *idle) {
        struct tree_store *ts = idle->data;
        struct tree_ticket *t;
        do {
                for (t = ts->tickets; t && (t->step != STEP_LOADING || !ts->loaded); t = t->next)
                        ;
                if (t) {
                        t->step = STEP_RESOLVE;
                        ticket_step(t);
                }
        } while (t);
        uv_idle_stop(idle);
}

static char *copy(const char *s, int *r) {
        char *c = strdup(s ? s : "");
        if (!c)
                *r = -ENOMEM;
        return c;
}

static int ticket_fill(struct tree_ticket *t, const struct tree_request *req) {
        int r = 0;
        t->wanted = copy(req->commit, &r);
        t->image = req->image ? image_chain_ref(req->image) : NULL;
        snprintf(t->image_digest, sizeof t->image_digest, "%s", req->image ? req->image_digest : spawner_image_digest(t->store->spawner));
        t->repo_path = copy(req->repo_path, &r);
        t->setup_command = copy(req->setup_command, &r);
        t->setup_network = req->setup_network;
        t->setup_allow = req->setup_allow ? egress_rules_ref(req->setup_allow) : NULL;
        t->setup_timeout_ms = req->setup_timeout_ms;
        t->limits = req->limits;
        t->uid = req->uid;
        t->gid = req->uid ? req->gid : 0;
        for (size_t i = 0; r == 0 && req->setup_env && req->setup_env[i]; i++)
                r = strv_push(&t->setup_env, req->setup_env[i]);
        return r;
}

int tree_acquire(struct tree_store *ts, const struct tree_request *req, tree_done done, void *user, struct tree_ticket **ret, struct error *e) {
        struct tree_ticket *t = calloc(1, sizeof *t);
        if (!t)
                return error_set(e, -ENOMEM, "prepare a tree");
        *t = (struct tree_ticket){ .store = ts, .source_fd = -1, .done = done, .user = user, .began_ms = now_ms() };
        int r = repo_path_check(req->repo_path, e);
        if (r == 0)
                r = tree_address(ts, req->repo_url, req->commit, &t->url, &t->source_fd, e);
        if (r == 0 && (r = ticket_fill(t, req)) < 0)
                error_set(e, r, "prepare a tree");
        if (r < 0) {
                ticket_free(t);
                return r;
        }
        t->next = ts->tickets;
        ts->tickets = t;
        uv_idle_start(&ts->idle, begin);
        *ret = t;
        return 0;
}

static int image_tree_hash(const char *digest, const char *repo_path, char ret[static SHA256_HEX]) {
        struct sha256 h;
        int r = sha256_init(&h);
        if (r < 0)
                return r;
        sha256_update_str(&h, "brig image tree 1");
        sha256_update_str(&h, digest);
        sha256_update_str(&h, repo_path);
        sha256_finish(&h, ret);
        return 0;
}

int tree_of_image(struct tree_store *ts, const char *image_digest, const char *repo_path, struct tree **ret) {
        _cleanup_free_ struct tree_answer *a = calloc(1, sizeof *a);
        int r = a ? image_tree_hash(image_digest, repo_path, a->tree_hash) : -ENOMEM;
        if (r < 0)
                return r;
        snprintf(a->image_digest, sizeof a->image_digest, "%s", image_digest);
        a->tree.image_digest = a->image_digest;
        a->tree.tree_hash = a->tree_hash;
        a->tree.layers = a->ids;
        a->tree.cached = true;
        ts->answers++;
        *ret = &TAKE_PTR(a)->tree;
        return 0;
}

void tree_cancel(struct tree_ticket *t) {
        if (t->mirror)
                mirror_cancel(t->mirror);
        if (t->build || t->settling)
                tree_build_leave(t);
        if (t->opening)
                cached_layer_open_cancel(t->opening, t);
        ticket_free(t);
}

/* ---- the store ---- */

static void loaded(int r, const struct error *e, void *user) {
        struct tree_store *ts = user;
        if (r < 0)
                log_event(LOG_ERROR, "layers.not_listed", "error", e ? e->text : "", NULL);
        ts->loaded = true;
        if (ts->tickets)
                uv_idle_start(&ts->idle, begin);
}

int tree_store_open(uv_loop_t *loop, struct spawner *sp, const struct tree_store_config *cfg, struct tree_store **ret, struct error *e) {
        struct tree_store *ts = calloc(1, sizeof *ts);
        const struct mirror_store_config mc = { .home = cfg->home, .fetch_env = cfg->fetch_env, .ssh = cfg->ssh, .max_bytes = cfg->mirror_max_bytes };
        if (!ts)
                return error_set(e, -ENOMEM, "trees");
        ts->spawner = sp;
        ts->any_readable_path = cfg->any_readable_path;
        int r = tree_policy_init(ts, cfg, e);
        if (r == 0)
                r = mirror_store_open(sp, &mc, &ts->mirrors, e);
        if (r == 0) {
                ts->cache = layer_cache_new(sp, cfg->max_bytes, 1u << LAYER_TREE | 1u << LAYER_SETUP);
                r = ts->cache ? map_init(&ts->builds, tree_build_key) : -ENOMEM;
                r = r ? r : uv_idle_init(loop, &ts->idle);
                ts->idle.data = ts;
                r = r ? r : layer_cache_load(ts->cache, loaded, ts);
                if (r < 0)
                        error_set(e, r, "open the tree store");
        }
        if (r < 0) {
                tree_policy_release(ts);
                free(ts);                        /* the daemon does not start: what else was made goes with the process */
                return r;
        }
        *ret = ts;
        return 0;
}

uint64_t tree_store_shed(struct tree_store *ts, uint64_t bytes) { return ts->closing ? 0 : layer_cache_shed(ts->cache, bytes); }

static void idle_closed(uv_handle_t *h) {
        struct tree_store *ts = h->data;
        void (*closed)(void *) = ts->closed;
        void *user = ts->closed_user;
        map_release(&ts->builds);
        tree_policy_release(ts);
        free(ts);
        closed(user);
}

void tree_store_maybe_free(struct tree_store *ts) {
        if (!ts->closing || !ts->mirrors_closed || ts->running > 0 || ts->freed)
                return;
        ts->freed = true;
        tree_builds_forget(ts);
        layer_cache_free(ts->cache);
        uv_close((uv_handle_t *)&ts->idle, idle_closed);
}

static void mirrors_closed(void *user) {
        struct tree_store *ts = user;
        ts->mirrors_closed = true;
        tree_store_maybe_free(ts);
}

void tree_store_close(struct tree_store *ts, void (*done)(void *user), void *user) {
        ts->closing = true;
        ts->closed = done;
        ts->closed_user = user;
        while (ts->tickets)
                tree_cancel(ts->tickets);
        mirror_store_close(ts->mirrors, mirrors_closed, ts);
}
