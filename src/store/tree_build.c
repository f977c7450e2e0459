/* A build makes one layer: checkout or set-up command in a sandbox whose upper is the layer, then publication.
 *
 *     BOX ──exit 0──> PUBLISH ──> cached; waiters go on
 *      └── anything else ──> REMOVE ──> waiters fail; remembered for a while
 *
 * The object stays in the map, without a sandbox, as the memory of its failure. */
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strv.h"
#include "store/git_env.h"
#include "store/tree_private.h"

#define DISK_RESERVE (64ull << 20)
#define SETUP_TAIL_SHOWN 320               /* of the command's output, in the error's text */

struct tree_build {
        struct map_node node;
        struct tree_store *store;
        char key[SHA256_HEX];
        struct layer_manifest m;           /* of the layer being made */
        struct tree_ticket *waiting;
        struct cached_layer *below;        /* LAYER_SETUP: the tree, in use while this runs */
        struct image_chain *image;         /* likewise, what is below that */
        struct mirror *mirror;             /* LAYER_TREE: held while this runs */
        struct box *box;
        bool running, cancelled;
        enum tree_failure failure;         /* while not running: what came of it */
        struct error error;
        uint64_t failed_ms;
};

const char *tree_build_key(const struct map_node *n) {
        return container_of(n, struct tree_build, node)->key;
}

static void build_free(struct tree_build *b) {
        map_remove(&b->store->builds, &b->node);
        free(b);
}

static void forget_one(struct map_node *n, void *user) {
        struct tree_build *b = container_of(n, struct tree_build, node);
        const uint64_t *now = user;
        if (!b->running && (!now || *now - b->failed_ms > TREE_FAILURE_MEMORY_MS))
                build_free(b);
}

void tree_builds_forget(struct tree_store *ts) {
        map_each(&ts->builds, forget_one, NULL);
}

/* ---- the end ---- */

/* Everybody who waits gets on. Callbacks may start other builds, or this one again: the object is settled first. */
static void settle(struct tree_build *b, bool remember) {
        struct tree_ticket *t, *waiting = TAKE_PTR(b->waiting);
        struct tree_store *ts = b->store;
        enum tree_failure failure = b->failure;
        struct error e = b->error;
        if (b->below)
                cached_layer_unuse(TAKE_PTR(b->below));
        b->image = image_chain_unref(b->image);
        mirror_drop(TAKE_PTR(b->mirror));
        b->running = false;
        b->failed_ms = now_ms();
        for (t = waiting; t; t = t->next_waiting) {
                t->build = NULL;
                t->settling = &waiting;
        }
        bool again = b->cancelled;               /* whoever came after the cancelling wants a build of its own */
        if (!remember)
                build_free(b);
        while ((t = waiting)) {
                waiting = t->next_waiting;
                t->settling = NULL;
                if (failure == TREE_OK || again)
                        tree_ticket_go_on(t);
                else
                        tree_ticket_fail(t, failure, &e);
        }
        ts->running--;
        tree_store_maybe_free(ts);
}

static void removed(int r, const struct error *e, void *user) {
        struct tree_build *b = user;
        if (r < 0)
                log_event(LOG_WARN, "layer.remove_failed", "layer", b->m.id, "error", e ? e->text : "", NULL);
        settle(b, !b->cancelled && (b->failure == TREE_SETUP_FAILED || b->failure == TREE_SETUP_TIMEOUT));
}

static void give_up(struct tree_build *b, enum tree_failure failure) {
        struct statvfs st;
        if (failure != TREE_SETUP_TIMEOUT && statvfs(b->store->home, &st) == 0 && (uint64_t)st.f_bavail * st.f_frsize < DISK_RESERVE)
                failure = TREE_DISK_FULL;
        b->failure = failure;
        if (layers_remove(b->store->spawner, b->m.id, removed, b) < 0)
                settle(b, false);
}

static void published(int r, const struct layer_manifest *m, const struct error *e, void *user) {
        struct tree_build *b = user;
        struct cached_layer *l;
        if (r < 0)
                b->error = *e;
        else if ((r = layer_cache_add(b->store->cache, m, &l)) < 0)
                error_set(&b->error, r, "keep the layer");
        if (r < 0) {
                give_up(b, r == -ENOSPC ? TREE_DISK_FULL : TREE_INTERNAL);
                return;
        }
        log_event(LOG_INFO, "layer.published", "layer", m->id, "kind", layer_kind_to_string((int)m->kind), NULL);
        b->failure = TREE_OK;
        cached_layer_use(l);                     /* not evicted before the waiters have taken it */
        settle(b, false);
        cached_layer_unuse(l);
}

static void publish(struct tree_build *b) {
        int r = layers_publish(b->store->spawner, &b->m, published, b);
        if (r < 0) {
                error_set(&b->error, r, "publish the layer");
                give_up(b, TREE_INTERNAL);
        }
}

/* ---- what the commands say ---- */

static bool parse_checkout(struct tree_build *b, const char *out) {
        size_t n = strncmp(out, "tree ", 5) == 0 ? strspn(out + 5, "0123456789abcdef") : 0;
        const char *rest = out + 5 + n;
        char *end;
        if ((n != 40 && n != 64) || strncmp(rest, "\ntime ", 6) != 0)
                return false;
        memcpy(b->m.tree_hash, out + 5, n);
        b->m.tree_hash[n] = 0;
        errno = 0;
        b->m.commit_time = strtoll(rest + 6, &end, 10);
        return errno == 0 && end != rest + 6 && strcmp(end, "\n") == 0;
}

static void checked_out(struct tree_build *b, const struct box_result *r) {
        char words[256];
        int code = WIFEXITED(r->status) ? WEXITSTATUS(r->status) : -1;
        if (code == 0 && parse_checkout(b, r->out)) {
                publish(b);
                return;
        }
        git_last_words(r->err, words, sizeof words);
        error_say(&b->error, -EIO, "checkout failed: %s", words[0] ? words : "no reason given");
        give_up(b, code == SCRIPT_NO_COMMIT ? TREE_COMMIT_NOT_FOUND : TREE_INTERNAL);
}

/* The end of the command's output, on one line. */
static void tail_of(const char *text, char ret[static SETUP_TAIL_SHOWN + 1]) {
        size_t n = strlen(text), k = 0;
        while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
                n--;
        for (size_t i = n > SETUP_TAIL_SHOWN ? n - SETUP_TAIL_SHOWN : 0; i < n; i++)
                ret[k++] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? (text[i] == '\n' ? '|' : ' ') : text[i];
        ret[k] = 0;
}

static void set_up(struct tree_build *b, const struct box_result *r) {
        char tail[SETUP_TAIL_SHOWN + 1];
        int st = r->status;
        if (WIFEXITED(st) && WEXITSTATUS(st) == 0) {
                publish(b);
                return;
        }
        tail_of(r->err, tail);
        error_say(&b->error, -EIO, WIFSIGNALED(st) ? "setup_command was killed by signal %d%s%s" : "setup_command exited with status %d%s%s",
                  WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st), *tail ? ": " : " and said nothing", tail);
        give_up(b, TREE_SETUP_FAILED);
}

static const char *first_hit(const struct box_result *r) {
        for (int k = 0; k < LIMIT_KIND_MAX; k++)
                if (r->hit[k])
                        return limit_kind_to_string(k);
        return "an unnamed one";
}

static void box_gone(const struct box_result *r, void *user) {
        struct tree_build *b = user;
        bool setup = b->m.kind == LAYER_SETUP;
        b->box = NULL;
        switch (r->end) {
        case BOX_EXITED:
                if (setup)
                        set_up(b, r);
                else
                        checked_out(b, r);
                return;
        case BOX_TIMED_OUT:
                error_say(&b->error, -ETIMEDOUT, "%s did not end in time", setup ? "setup_command" : "the checkout");
                give_up(b, setup ? TREE_SETUP_TIMEOUT : TREE_INTERNAL);
                return;
        case BOX_LIMIT:
                error_say(&b->error, -EDQUOT, "%s ran into a limit: %s", setup ? "setup_command" : "the checkout", first_hit(r));
                give_up(b, setup && r->hit[LIMIT_WALL] ? TREE_SETUP_TIMEOUT : setup ? TREE_SETUP_FAILED : TREE_INTERNAL);
                return;
        case BOX_CANCELLED:
                error_say(&b->error, -ECANCELED, "cancelled");
                give_up(b, TREE_INTERNAL);
                return;
        case BOX_FAILED:
                b->error = r->error;
                if (r->not_started)
                        error_prefix(&b->error, "%s: /bin/sh", setup ? "setup_command" : "the checkout");
                give_up(b, !setup && r->error.code != -ENOSPC ? TREE_INTERNAL : r->not_started ? TREE_SETUP_FAILED : r->no_image ? TREE_IMAGE_NOT_FOUND :
                           r->error.code == -ENOSPC ? TREE_DISK_FULL : TREE_INTERNAL);
                return;
        }
}

/* ---- the beginning ---- */

#define OWNER_SIZE 24
/* "UID:GID", or NULL where the tree is root's. */
static const char *owner_of(const struct tree_ticket *t, char buf[static OWNER_SIZE]) {
        snprintf(buf, OWNER_SIZE, "%u:%u", t->uid, t->gid);
        return t->uid ? buf : NULL;
}

static int start_checkout(struct tree_build *b, const struct tree_ticket *t, struct error *e) {
        char mirror[65], name[32], owner[OWNER_SIZE];
        struct sandbox_file files[2];
        mirror_id(&t->url, mirror);
        snprintf(name, sizeof name, "tree-%.16s", b->key);
        const struct sandbox_mount mount = { .class = MOUNT_MIRROR, .id = mirror, .fd = -1, .target = "/mirror" };
        const char *const argv[] = { "/bin/sh", "/run/brig/script", t->commit, t->repo_path, owner_of(t, owner), NULL };
        struct sandbox_spec s = { .id = name, .profile = PROFILE_SETUP, .image = IMAGE_HOST, .upper = UPPER_LAYER, .upper_layer = b->m.id,
                                  .network = NETWORK_NONE, .mounts = &mount, .n_mounts = 1, .files = files, .n_files = 2 };
        sandbox_limits_default(&s.limits);
        s.limits.disk_bytes = TREE_CHECKOUT_BYTES;
        s.limits.inodes = TREE_CHECKOUT_INODES;
        s.limits.wall_ms = TREE_CHECKOUT_TIMEOUT_MS + 60000;
        int r = git_files(SCRIPT_CHECKOUT, files, e);
        char **env = git_env(NULL);
        const struct box_spec spec = { .sandbox = &s, .argv = argv, .env = (const char *const *)env, .stdin_fd = -1, .fd = -1, .timeout_ms = TREE_CHECKOUT_TIMEOUT_MS };
        if (r == 0)
                r = env ? box_start(b->store->spawner, &spec, box_gone, b, &b->box, e) : error_set(e, -ENOMEM, "start a checkout");
        strv_free(env);
        if (r == 0)
                b->mirror = mirror_hold(t->store->mirrors, &t->url);
        return r;
}

static bool env_has(char *const *env, const char *name) {
        size_t n = strlen(name);
        for (size_t i = 0; env && env[i]; i++)
                if (strncmp(env[i], name, n) == 0 && env[i][n] == '=')
                        return true;
        return false;
}

static char **setup_env(const struct tree_ticket *t) {
        static const struct { const char *name, *text; } usual[] = {
                { "PATH", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" }, { "HOME", "HOME=/root" }, { "USER", "USER=root" },
                { "LANG", "LANG=C.UTF-8" }, { "TZ", "TZ=UTC" },
        };
        char **env = NULL;
        int r = strv_ensure(&env);
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(usual); i++)
                if (!env_has(t->setup_env, usual[i].name))
                        r = strv_push(&env, usual[i].text);
        for (size_t i = 0; r == 0 && t->setup_env && t->setup_env[i]; i++)
                r = strv_push(&env, t->setup_env[i]);
        /* Else git refuses root in a tree of somebody else's. */
        static const char *const safe[] = { "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*" };
        for (size_t i = 0; r == 0 && t->uid && !env_has(t->setup_env, "GIT_CONFIG_COUNT") && i < ARRAY_SIZE(safe); i++)
                r = strv_push(&env, safe[i]);
        return r == 0 ? env : strv_free(env);
}

/* What the set-up stands on, bottom first: the image's layers, then the tree. The strings stay theirs. */
static const char **layers_below(const struct tree_ticket *t) {
        size_t n = t->image ? image_chain_count(t->image) : 0;
        const char **v = calloc(n + 2, sizeof *v);
        for (size_t i = 0; v && i < n; i++)
                v[i] = image_chain_layers(t->image)[i];
        if (v)
                v[n] = cached_layer_manifest(t->tree)->id;
        return v;
}

static int start_setup(struct tree_build *b, struct tree_ticket *t, struct error *e) {
        char name[32];
        _cleanup_free_ const char **layers = layers_below(t);
        /* What root made in the tree goes to the tree's owner with it; the rest of it is his already. */
        static const char give[] = "/bin/sh /run/brig/setup || exit; exec find \"$0\" -xdev -user 0 -exec chown -h \"$1\" {} +";
        char owner[OWNER_SIZE];
        const char *const for_root[] = { "/bin/sh", "/run/brig/setup", NULL }, *const for_owner[] = { "/bin/sh", "-c", give, t->repo_path, owner_of(t, owner), NULL };
        const char *const *argv = t->uid ? for_owner : for_root;
        _cleanup_close_ int fd = fs_memfd("setup", t->setup_command, strlen(t->setup_command));
        const struct sandbox_file file = { .name = "setup", .fd = fd, .mode = 0444 };
        snprintf(name, sizeof name, "setup-%.16s", b->key);
        struct sandbox_spec s = { .id = name, .profile = PROFILE_SETUP, .image = t->image ? image_chain_image(t->image) : IMAGE_HOST, .layers = layers, .upper = UPPER_LAYER, .upper_layer = b->m.id,
                                  .network = t->setup_network, .allow = t->setup_allow, .limits = t->limits, .files = &file, .n_files = 1 };
        s.limits.wall_ms = MAX2(s.limits.wall_ms, t->setup_timeout_ms + 60000);
        char **env = setup_env(t);
        const struct box_spec spec = { .sandbox = &s, .argv = argv, .env = (const char *const *)env, .cwd = t->repo_path,
                                       .timeout_ms = t->setup_timeout_ms, .both = true, .stdin_fd = -1, .fd = -1 };
        int r = fd < 0 ? error_set(e, fd, "pass the setup_command") : !env || !layers ? error_set(e, -ENOMEM, "start the setup_command") : 0;
        if (r == 0)
                r = box_start(b->store->spawner, &spec, box_gone, b, &b->box, e);
        strv_free(env);
        if (r == 0) {
                cached_layer_use(t->tree);
                b->below = t->tree;
                b->image = t->image ? image_chain_ref(t->image) : NULL;
        }
        return r;
}

static void tree_opened(int r, const struct error *e, void *user);

/* The layer below must be mounted before a sandbox can stand on it. */
static int start(struct tree_build *b, struct tree_ticket *t, struct error *e) {
        unsigned char id[16];
        random_bytes(id, sizeof id);
        hex_encode(id, sizeof id, b->m.id);
        memcpy(b->m.key, b->key, sizeof b->m.key);
        memcpy(b->m.commit, t->commit, sizeof b->m.commit);
        if (b->m.kind == LAYER_TREE) {
                snprintf(b->m.opaque, sizeof b->m.opaque, "%s", t->repo_path);
                return start_checkout(b, t, e);
        }
        const struct layer_manifest *below = cached_layer_manifest(t->tree);
        memcpy(b->m.parent, below->id, sizeof b->m.parent);
        memcpy(b->m.tree_hash, below->tree_hash, sizeof b->m.tree_hash);
        b->m.commit_time = below->commit_time;
        int r = cached_layer_open(t->tree, tree_opened, b);
        if (r < 0)
                return error_set(e, r, "open the tree");
        return r == 0 ? 0 : start_setup(b, t, e);
}

static void fail_start(struct tree_build *b, const struct error *e) {
        b->error = *e;
        b->failure = e->code == -ENOSPC ? TREE_DISK_FULL : TREE_INTERNAL;
        settle(b, false);
}

static void tree_opened(int r, const struct error *e, void *user) {
        struct tree_build *b = user;
        struct error mine = { 0 };
        if (r == 0 && !b->waiting) {
                r = error_say(&mine, -ECANCELED, "cancelled");
                e = &mine;
        }
        if (r == 0) {
                r = start_setup(b, b->waiting, &mine);
                e = &mine;
        }
        if (r < 0)
                fail_start(b, e);
}

static struct tree_build *build_get(struct tree_store *ts, enum layer_kind kind, const char *key) {
        uint64_t now = now_ms();
        map_each(&ts->builds, forget_one, &now);
        struct map_node *n = map_find(&ts->builds, key);
        if (n)
                return container_of(n, struct tree_build, node);
        struct tree_build *b = calloc(1, sizeof *b);
        if (!b)
                return NULL;
        b->store = ts;
        b->m.kind = kind;
        snprintf(b->key, sizeof b->key, "%s", key);
        ASSERT(map_add(&ts->builds, &b->node) == 0);
        return b;
}

void tree_build_join(struct tree_ticket *t, enum layer_kind kind, const char *key) {
        struct error e;
        struct tree_build *b = t->store->closing ? NULL : build_get(t->store, kind, key);
        if (!b) {
                error_set(&e, -ENOMEM, "prepare a tree");
                tree_ticket_fail(t, TREE_INTERNAL, &e);
                return;
        }
        if (!b->running && b->failure != TREE_OK) {      /* remembered */
                e = b->error;
                tree_ticket_fail(t, b->failure, &e);
                return;
        }
        t->build = b;
        t->next_waiting = b->waiting;
        b->waiting = t;
        if (b->running)
                return;
        b->running = true;
        t->store->running++;
        if (start(b, t, &e) < 0)
                fail_start(b, &e);
}

void tree_build_leave(struct tree_ticket *t) {
        struct tree_build *b = t->build;
        struct tree_ticket **at = b ? &b->waiting : t->settling;
        while (*at != t)
                at = &(*at)->next_waiting;
        *at = t->next_waiting;
        t->build = NULL;
        t->settling = NULL;
        if (b && !b->waiting && b->box) {
                b->cancelled = true;
                box_cancel(b->box);
        }
}
