/* A pull's life:
 *
 *     QUEUED -> MANIFEST (again for each index, INDEX_DEPTH_MAX) -> CONFIG -> LAYERS -> over
 *
 * Anything that fails ends it: the gets that run are cancelled, files are closed, done() runs once. */
#include "registry/registry.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/redact.h"
#include "registry/credentials.h"

#define PROGRESS_MS 100

static const char *const failure_names[] = {
        [REGISTRY_OK] = "ok", [REGISTRY_NOT_FOUND] = "image_not_found", [REGISTRY_DENIED] = "image_denied", [REGISTRY_UNREACHABLE] = "registry_unreachable",
        [REGISTRY_INVALID] = "registry_invalid", [REGISTRY_TIMEOUT] = "pull_timeout", [REGISTRY_DISK_FULL] = "disk_full", [REGISTRY_INTERNAL] = "internal",
};
STRING_TABLE(registry_failure, failure_names, REGISTRY_FAILURE_MAX)

struct registry {
        uv_loop_t *loop;
        struct fetcher *fetcher;           /* made for the first pull */
        struct fetcher_config fetch;
        char *directory, *ca_file;
        int credentials_fd;
        bool loopback;
        struct registry_pull *pulls;       /* list, oldest first */
        unsigned running;
        size_t timers;                     /* of pulls, that are not closed yet */
        bool closing, fetcher_closed;
        void (*closed)(void *user); void *closed_user;
};

/* A layer that another one of the same registry is already on its way as follows that one, and takes over a descriptor of its file. */
struct layer_get { struct registry_pull *pull; struct get *get; struct layer_get *follows; int fd; uint64_t got; bool started, arrived, complete; };

struct registry_pull {
        struct registry_pull *next;
        struct registry *registry;
        struct registry_callbacks cb; void *user;
        struct image_ref ref;
        struct access *access;
        uv_timer_t timer;
        bool running, over, layers_begun;
        struct get *get;                   /* of the manifest or the configuration */
        char wanted[IMAGE_REF_DIGEST_LEN + 1];             /* the digest of the manifest that is being fetched, or "" */
        unsigned depth;
        struct buf text, config;
        struct manifest manifest;
        char (*diff_ids)[IMAGE_REF_DIGEST_LEN + 1];
        struct registry_image image;
        struct layer_get *layers;
        size_t first, active;              /* layers below `first` are not needed; gets that run */
        struct registry_progress progress;
        uint64_t told_ms;
};

/* ---- the end ---- */

static void start_queued(struct registry *r);
static void start_left(struct registry *r);
static void maybe_closed(struct registry *r);

static void pull_freed(uv_handle_t *h) {
        struct registry_pull *p = h->data;
        struct registry *r = p->registry;
        free(p);
        r->timers--;
        maybe_closed(r);
}

static void unfollow(struct registry *r, const struct layer_get *lead);

/* What runs for it. */
static void stop_work(struct registry_pull *p) {
        get_cancel(TAKE_PTR(p->get));
        for (size_t i = 0; p->layers && i < p->manifest.n_layers; i++) {
                get_cancel(TAKE_PTR(p->layers[i].get));
                fd_close(p->layers[i].fd);
                unfollow(p->registry, &p->layers[i]);
        }
        free(p->layers);
        p->layers = NULL;
        access_free(TAKE_PTR(p->access));
}

static void release(struct registry_pull *p) {
        stop_work(p);
        buf_release(&p->text);
        buf_release(&p->config);
        manifest_release(&p->manifest);
        free(p->diff_ids);
}

static void unlink_pull(struct registry_pull *p) {
        struct registry *r = p->registry;
        for (struct registry_pull **at = &r->pulls; *at; at = &(*at)->next)
                if (*at == p) {
                        *at = p->next;
                        break;
                }
        p->over = true;
        if (p->running)
                r->running--;
}

static void let_go(struct registry_pull *p) {
        release(p);
        uv_close((uv_handle_t *)&p->timer, pull_freed);
        start_left(p->registry);
        start_queued(p->registry);
}

void registry_pull_cancel(struct registry_pull *p) {
        if (!p || p->over)
                return;
        unlink_pull(p);
        let_go(p);
}

/* Nothing may touch the pull after this but its caller's return. */
static void end(struct registry_pull *p, enum registry_failure f, const struct error *e) {
        struct error kept = e ? *e : (struct error){ 0 };
        unlink_pull(p);
        stop_work(p);
        p->cb.done(f, &kept, p->user);
        let_go(p);
}

static void fail(struct registry_pull *p, enum registry_failure f, int code, const char *what) {
        struct error e;
        error_set(&e, code, "%s", what);
        end(p, f, &e);
}

static void timed_out(uv_timer_t *t) {
        struct error e;
        error_say(&e, -ETIMEDOUT, "the image was not pulled in time");
        end(t->data, REGISTRY_TIMEOUT, &e);
}

static enum registry_failure failure_of(int r) {
        switch (r) {
        case -ENOENT: return REGISTRY_NOT_FOUND;
        case -ENOSPC: case -EDQUOT: return REGISTRY_DISK_FULL;
        case -EBADMSG: case -E2BIG: case -EOPNOTSUPP: case -ELOOP: return REGISTRY_INVALID;
        default: return REGISTRY_INTERNAL;
        }
}

/* ---- layers ---- */

static void tell(struct registry_pull *p, bool now) {
        uint64_t t = now_ms();
        if (!p->cb.progress || (!now && t - p->told_ms < PROGRESS_MS))
                return;
        p->told_ms = t;
        p->cb.progress(&p->progress, p->user);
}

static void layer_progress(uint64_t got, void *user) {
        struct layer_get *l = user;
        l->pull->progress.bytes_done += got - l->got;
        l->got = got;
        tell(l->pull, false);
}

static void start_layers(struct registry_pull *p);

/* Calls f for each layer of any pull, until it says true. */
static struct layer_get *find_layer(struct registry *r, bool (*f)(const struct layer_get *l, const void *about), const void *about) {
        for (struct registry_pull *p = r->pulls; p; p = p->next)
                for (size_t i = 0; p->layers && i < p->manifest.n_layers; i++)
                        if (f(&p->layers[i], about))
                                return &p->layers[i];
        return NULL;
}

static bool is_following(const struct layer_get *l, const void *lead) { return l->follows == lead; }
static bool has_arrived(const struct layer_get *l, const void *about) { return l->arrived; }
/* To be fetched, and nobody comes back to it by himself. */
static bool is_left(const struct layer_get *l, const void *about) {
        const struct registry_pull *p = l->pull;
        return p->layers_begun && !l->started && (size_t)(l - p->layers) >= p->first && p->active < REGISTRY_PARALLEL;
}

static const struct blob_ref *blob_of(const struct layer_get *l) { return &l->pull->manifest.layers[l - l->pull->layers]; }

/* Of the same registry: another one may be slower, as slow as it likes. */
static bool is_coming(const struct layer_get *l, const void *about) {
        const struct layer_get *wanted = about;
        return l->get && strcmp(l->pull->ref.host, wanted->pull->ref.host) == 0 && blob_of(l)->size == blob_of(wanted)->size && strcmp(blob_of(l)->digest, blob_of(wanted)->digest) == 0;
}

static void unfollow(struct registry *r, const struct layer_get *lead) {
        struct layer_get *l;
        while ((l = find_layer(r, is_following, lead))) {
                l->follows = NULL;
                l->started = false;
        }
}

/* Those whose leader is gone fetch for themselves. */
static void start_left(struct registry *r) {
        struct layer_get *l;
        while (!r->closing && (l = find_layer(r, is_left, NULL)))
                start_layers(l->pull);
}

/* A descriptor with an offset of its own. */
static int reopen(int fd) {
        char path[40];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int again = open(path, O_RDONLY | O_CLOEXEC);
        return again < 0 ? -errno : again;
}

static void hand_on(struct registry *r, const struct layer_get *lead) {
        struct layer_get *l;
        while ((l = find_layer(r, is_following, lead))) {
                l->follows = NULL;
                l->fd = reopen(lead->fd);
                l->arrived = l->fd >= 0;
                l->started = l->arrived;         /* else it is fetched once more */
        }
}

/* Whole and verified: the owner has it now, and may end the pull. */
static void deliver(struct layer_get *l) {
        struct registry_pull *p = l->pull;
        l->complete = true;
        l->arrived = false;
        p->progress.layers_done++;
        tell(p, true);
        p->cb.layer((size_t)(l - p->layers), TAKE_FD(l->fd), p->user);
        if (!p->over)
                start_layers(p);
}

static void layer_done(enum registry_failure f, const struct error *e, void *user) {
        struct layer_get *l = user;
        struct registry_pull *p = l->pull;
        struct registry *r = p->registry;
        l->get = NULL;
        p->active--;
        if (f != REGISTRY_OK) {
                end(p, f, e);
                return;
        }
        if (lseek(l->fd, 0, SEEK_SET) < 0) {
                fail(p, REGISTRY_INTERNAL, -errno, "rewind a layer");
                return;
        }
        hand_on(r, l);
        deliver(l);
        while ((l = find_layer(r, has_arrived, NULL))) {
                l->pull->progress.bytes_done += blob_of(l)->size;
                deliver(l);
        }
        start_left(r);
}

static int start_layer(struct registry_pull *p, size_t i, struct error *e) {
        struct layer_get *l = &p->layers[i];
        const struct blob_ref *b = &p->manifest.layers[i];
        char what[IMAGE_REF_DIGEST_LEN + 16];
        snprintf(what, sizeof what, "blobs/%s", b->digest);
        l->follows = find_layer(p->registry, is_coming, l);
        if (l->follows) {
                l->started = true;
                return 0;
        }
        l->fd = open(p->registry->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (l->fd < 0)
                return error_set(e, -errno, "make a file for a layer");
        const struct get_spec s = { .loop = p->registry->loop, .fetcher = p->registry->fetcher, .access = p->access, .what = what, .digest = b->digest,
                                    .size = b->size, .exact = true, .fd = l->fd, .progress = layer_progress, .done = layer_done, .user = l };
        int r = get_start(&s, &l->get, e);
        if (r == 0) {
                l->started = true;
                p->active++;
        }
        return r;
}

static void start_layers(struct registry_pull *p) {
        struct error e;
        bool all = true;
        for (size_t i = p->first; i < p->manifest.n_layers; i++) {
                struct layer_get *l = &p->layers[i];
                all &= l->complete;
                if (l->started || p->active >= REGISTRY_PARALLEL)
                        continue;
                int r = start_layer(p, i, &e);
                if (r < 0) {
                        end(p, failure_of(r), &e);
                        return;
                }
        }
        if (all)
                end(p, REGISTRY_OK, NULL);
}

/* ---- configuration ---- */

static void resolved(struct registry_pull *p) {
        struct manifest *m = &p->manifest;
        p->image.config = buf_str(&p->config);
        p->image.config_len = p->config.len;
        p->image.layers = m->layers;
        p->image.n_layers = m->n_layers;
        p->image.diff_ids = (const char (*)[IMAGE_REF_DIGEST_LEN + 1])p->diff_ids;
        struct error why;
        int first = p->cb.resolved(&p->image, p->user, &why);
        if (p->over)
                return;
        if (first < 0) {
                end(p, failure_of(first), &why);
                return;
        }
        p->layers = calloc(m->n_layers ? m->n_layers : 1, sizeof *p->layers);
        if (!p->layers) {
                fail(p, REGISTRY_INTERNAL, -ENOMEM, "pull");
                return;
        }
        for (size_t i = 0; i < m->n_layers; i++)
                p->layers[i] = (struct layer_get){ .pull = p, .fd = -1 };
        p->first = MIN2((size_t)first, m->n_layers);
        p->progress.layers_wanted = m->n_layers - p->first;
        for (size_t i = p->first; i < m->n_layers; i++)
                p->progress.bytes_wanted += m->layers[i].size;
        tell(p, true);
        p->layers_begun = true;
        start_layers(p);
}

static void config_done(enum registry_failure f, const struct error *e, void *user) {
        struct registry_pull *p = user;
        struct error mine;
        p->get = NULL;
        if (f != REGISTRY_OK) {
                end(p, f, e);
                return;
        }
        size_t n = p->manifest.n_layers;
        p->diff_ids = calloc(n ? n : 1, sizeof *p->diff_ids);
        int r = p->diff_ids ? config_diff_ids(buf_str(&p->config), p->config.len, manifest_architecture, n, p->diff_ids, &mine) : error_set(&mine, -ENOMEM, "pull");
        if (r < 0)
                end(p, failure_of(r), &mine);
        else
                resolved(p);
}

static int ask_config(struct registry_pull *p, struct error *e) {
        const struct blob_ref *b = &p->manifest.config;
        char what[IMAGE_REF_DIGEST_LEN + 16];
        snprintf(what, sizeof what, "blobs/%s", b->digest);
        const struct get_spec s = { .loop = p->registry->loop, .fetcher = p->registry->fetcher, .access = p->access, .what = what, .digest = b->digest,
                                    .size = b->size, .exact = true, .fd = -1, .into = &p->config, .done = config_done, .user = p };
        return get_start(&s, &p->get, e);
}

/* ---- manifest ---- */

static int ask_manifest(struct registry_pull *p, struct error *e);

static int take_manifest(struct registry_pull *p, const char *content_type, struct error *e) {
        struct manifest m;
        int r = manifest_parse(buf_str(&p->text), p->text.len, content_type, manifest_architecture, &m, e);
        if (r < 0)
                return r;
        if (m.kind == MANIFEST_IMAGE) {
                p->manifest = m;
                return ask_config(p, e);
        }
        if (++p->depth > INDEX_DEPTH_MAX)
                return error_say(e, -ELOOP, "the image's index leads to indexes without an end");
        memcpy(p->wanted, m.chosen.digest, sizeof p->wanted);
        manifest_release(&m);
        return ask_manifest(p, e);
}

static void manifest_done(enum registry_failure f, const struct error *e, void *user) {
        struct registry_pull *p = user;
        struct get *g = TAKE_PTR(p->get);
        struct error mine;
        if (f != REGISTRY_OK) {
                end(p, f, e);
                return;
        }
        memcpy(p->image.digest, get_digest(g), sizeof p->image.digest);
        int r = take_manifest(p, get_content_type(g), &mine);
        if (r < 0)
                end(p, failure_of(r), &mine);
}

static int ask_manifest(struct registry_pull *p, struct error *e) {
        char what[IMAGE_REF_TAG_MAX + 16];
        snprintf(what, sizeof what, "manifests/%s", p->wanted[0] ? p->wanted : p->ref.tag);
        const struct get_spec s = { .loop = p->registry->loop, .fetcher = p->registry->fetcher, .access = p->access, .what = what, .accept = manifest_accept,
                                    .digest = p->wanted, .size = MANIFEST_BYTES_MAX, .fd = -1, .into = &p->text, .done = manifest_done, .user = p };
        return get_start(&s, &p->get, e);
}

/* ---- the beginning ---- */

static void start_queued(struct registry *r) {
        struct error e;
        struct registry_pull *p;
        if (r->closing)
                return;
        do {
                for (p = r->pulls; p && (p->running || p->over); p = p->next)
                        ;
                if (!p || r->running >= REGISTRY_PULLS_MAX)
                        return;
                p->running = true;
                r->running++;
                if (ask_manifest(p, &e) < 0) {           /* no memory: it ends by its timeout, which is now */
                        uv_timer_start(&p->timer, timed_out, 0, 0);
                }
        } while (p);
}

static int make_access(struct registry_pull *p, const struct registry_pull_spec *spec, struct error *e) {
        struct registry *r = p->registry;
        char *username = NULL, *password = NULL;
        if (spec->username && (strlen(spec->username) > ACCESS_SECRET_MAX || (spec->password && strlen(spec->password) > ACCESS_SECRET_MAX)))
                return error_say(e, -EINVAL, "registry_auth: a name or password of more than %u bytes", ACCESS_SECRET_MAX);
        if (spec->username && strchr(spec->username, ':'))
                return error_say(e, -EINVAL, "registry_auth: a ':' in the name");
        int q = spec->username || r->credentials_fd < 0 ? 0 : credentials_find(r->credentials_fd, p->ref.host, &username, &password, e);
        if (q >= 0)
                q = access_new(r->fetcher, &p->ref, spec->username ? spec->username : username, spec->username ? spec->password : password, &p->access, e);
        secret_free(username);
        secret_free(password);
        return q;
}

int registry_pull_start(struct registry *r, const struct registry_pull_spec *spec, const struct registry_callbacks *cb, void *user,
                        struct registry_pull **ret, struct error *e) {
        if (spec->ref->loopback && !r->loopback)
                return error_say(e, -EINVAL, "image: a registry on loopback may not be named here");
        int q = r->fetcher ? 0 : fetcher_new(r->loop, &r->fetch, &r->fetcher, e);
        if (q < 0)
                return q;
        struct registry_pull *p = calloc(1, sizeof *p), **last = &r->pulls;
        if (!p)
                return error_set(e, -ENOMEM, "pull");
        p->registry = r;
        p->cb = *cb;
        p->user = user;
        p->ref = *spec->ref;
        memcpy(p->wanted, p->ref.digest, sizeof p->wanted);
        buf_init(&p->text, MANIFEST_BYTES_MAX);
        buf_init(&p->config, CONFIG_BYTES_MAX);
        q = make_access(p, spec, e);
        if (q < 0) {
                release(p);
                free(p);
                return q;
        }
        while (*last)
                last = &(*last)->next;
        *last = p;
        uv_timer_init(r->loop, &p->timer);
        p->timer.data = p;
        r->timers++;
        uv_timer_start(&p->timer, timed_out, spec->timeout_ms, 0);
        start_queued(r);
        *ret = p;
        return 0;
}

/* ---- the client ---- */

static void free_registry(struct registry *r) {
        free(r->directory);
        free(r->ca_file);
        free(r);
}

int registry_new(uv_loop_t *loop, const struct registry_config *cfg, struct registry **ret, struct error *e) {
        struct registry *r = calloc(1, sizeof *r);
        if (!r)
                return error_set(e, -ENOMEM, "registries");
        r->loop = loop;
        r->loopback = cfg->loopback;
        int q = reach_init(&r->fetch.reach, cfg->allow, cfg->loopback, e);
        r->directory = strdup(cfg->directory);
        r->ca_file = cfg->ca_file ? strdup(cfg->ca_file) : NULL;
        r->credentials_fd = cfg->credentials_fd;
        r->fetch.ca_file = r->ca_file;
        if (q == 0 && (!r->directory || (cfg->ca_file && !r->ca_file)))
                q = error_set(e, -ENOMEM, "registries");
        if (q < 0) {
                free_registry(r);
                return q;
        }
        *ret = r;
        return 0;
}

static void maybe_closed(struct registry *r) {
        if (!r->closing || !r->fetcher_closed || r->timers > 0)
                return;
        void (*closed)(void *) = r->closed;
        void *user = r->closed_user;
        free_registry(r);
        closed(user);
}

static void fetcher_gone(void *user) {
        struct registry *r = user;
        r->fetcher_closed = true;
        maybe_closed(r);
}

static void nothing_open(uv_handle_t *h) {
        fetcher_gone(h->data);
        free(h);
}

void registry_close(struct registry *r, void (*done)(void *user), void *user) {
        r->closing = true;
        r->closed = done;
        r->closed_user = user;
        while (r->pulls)
                registry_pull_cancel(r->pulls);
        if (r->fetcher) {
                fetcher_close(r->fetcher, fetcher_gone, r);
                return;
        }
        uv_timer_t *t = malloc(sizeof *t);       /* `done` never runs from inside */
        ASSERT(t);
        uv_timer_init(r->loop, t);
        t->data = r;
        uv_close((uv_handle_t *)t, nothing_open);
}
