#include "registry/pull.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/strv.h"

struct puller {
        struct image_store *store;
        struct registry *registry;
        char *default_host, *default_space;
        uint64_t timeout_ms;
        struct map jobs;
        size_t n_pulls;
};

struct pull_layer { char key[SHA256_HEX]; const char *diff_id; int fd; };

struct job {                               /* one pull, for all who want it */
        struct map_node node;
        char id[SHA256_HEX];               /* of reference, name and credentials */
        struct puller *puller;
        struct pull *waiting;
        char name[IMAGE_NAME_MAX + 1], source[IMAGE_REF_TEXT_MAX + 1], digest[SHA256_HEX];
        struct registry_pull *fetch;
        bool fetched, over, adding;
        struct image_config config;
        char **diff_ids;
        struct pull_layer *layers; size_t n, next;
        struct image_chain *chain;         /* of the layers below `next` */
        struct image_want *want;
        struct image_layer *making;        /* waits for its bytes */
        struct pull_progress progress;
};

struct pull {
        struct pull *next;
        struct job *job;
        struct pull_callbacks cb; void *user;
        image_done store_done;             /* of the store's own calls */
        void (*store_progress)(const char *what, const struct image_progress *p, void *user);
};

static const char *job_key(const struct map_node *n) { return container_of(n, struct job, node)->id; }

/* ---- the end ---- */

static void job_free(struct job *j) {
        for (size_t i = 0; j->layers && i < j->n; i++)
                fd_close(j->layers[i].fd);
        free(j->layers);
        strv_free(j->diff_ids);
        image_config_release(&j->config);
        image_chain_unref(j->chain);
        free(j);
}

/* What runs for it ends. The one thing that cannot be called back, adding the image, keeps the memory. */
static void stop(struct job *j) {
        struct error e;
        j->over = true;
        map_remove(&j->puller->jobs, &j->node);
        registry_pull_cancel(TAKE_PTR(j->fetch));
        if (j->want)
                image_want_cancel(TAKE_PTR(j->want));
        if (j->making) {
                error_say(&e, -ECANCELED, "the pull was given up");
                image_layer_abandon(TAKE_PTR(j->making), IMAGE_CANCELLED, &e);
        }
}

static void answer(struct pull *x, struct image *img, enum image_failure f, const struct error *e) {
        x->job->puller->n_pulls--;
        if (img)
                image_use(img);
        if (x->store_done)
                x->store_done(img, f, e, x->user);
        else
                x->cb.done(img, f, e, x->user);
        free(x);
}

static void end(struct job *j, struct image *img, enum image_failure f, const struct error *e) {
        struct pull *x;
        struct error kept = e ? *e : (struct error){ 0 };
        stop(j);
        while ((x = j->waiting)) {               /* one that is cancelled meanwhile takes itself out */
                j->waiting = x->next;
                answer(x, img, f, &kept);
        }
        if (img)
                image_unuse(img);
        job_free(j);
}

static void fail(struct job *j, enum image_failure f, int code, const char *text) {
        struct error e;
        error_set(&e, code, "%s", text);
        end(j, NULL, f, &e);
}

void pull_cancel(struct pull *x) {
        if (!x)
                return;
        struct job *j = x->job;
        struct pull **at = &j->waiting;
        while (*at && *at != x)
                at = &(*at)->next;
        if (*at)
                *at = x->next;
        j->puller->n_pulls--;
        free(x);
        if (j->waiting || j->over)
                return;
        stop(j);
        if (!j->adding)
                job_free(j);
}

/* ---- layers ---- */

static void step(struct job *j);

static void tell(struct job *j) {
        char what[128];
        const struct image_progress p = { .bytes_in = j->progress.fetched.bytes_done };
        snprintf(what, sizeof what, "pull %.80s: %zu of %zu layers", j->name, j->progress.layers_done, j->progress.layers);
        for (struct pull *x = j->waiting, *next; x; x = next) {
                next = x->next;
                if (x->store_done && x->store_progress)
                        x->store_progress(what, &p, x->user);
                else if (!x->store_done && x->cb.progress)
                        x->cb.progress(&j->progress, x->user);
        }
}

static void added(struct image *img, enum image_failure f, const struct error *e, void *user) {
        struct job *j = user;
        j->adding = false;
        if (!j->over) {
                end(j, img, f, e);
                return;
        }
        if (img)
                image_unuse(img);
        job_free(j);
}

static void add(struct job *j) {
        struct error e;
        const char *const names[] = { j->name, NULL };
        const struct image_add a = { .chain = j->chain, .config = &j->config, .digest = j->digest, .origin = IMAGE_FROM_PULL, .source = j->source, .names = names };
        j->adding = true;
        if (image_store_add(j->puller->store, &a, added, j, &e) < 0) {
                j->adding = false;
                end(j, NULL, IMAGE_INTERNAL, &e);
        }
}

static void unpack(struct job *j) {
        struct pull_layer *pl = &j->layers[j->next];
        const struct image_unpack u = { .fd = pl->fd, .diff_id = pl->diff_id };
        image_layer_unpack(TAKE_PTR(j->making), &u);
        pl->fd = fd_close(pl->fd);               /* it has its own */
}

static void make(struct image_layer *l, void *user) {
        struct job *j = user;
        struct error e;
        j->making = l;
        if (j->layers[j->next].fd >= 0)
                unpack(j);
        else if (j->fetched) {                   /* it was known, and was evicted since */
                error_say(&e, -EAGAIN, "a layer of the image was evicted while it was pulled");
                image_layer_abandon(TAKE_PTR(j->making), IMAGE_INTERNAL, &e);
        }
}

static void layer_there(struct image_chain *c, enum image_failure f, const struct error *e, void *user) {
        struct job *j = user;
        j->want = NULL;
        j->making = NULL;
        if (!c) {
                end(j, NULL, f, e);
                return;
        }
        image_chain_unref(j->chain);
        j->chain = c;
        j->layers[j->next].fd = fd_close(j->layers[j->next].fd);
        j->progress.layers_done = ++j->next;
        tell(j);
        step(j);
}

static void step(struct job *j) {
        static const struct image_want_callbacks callbacks = { .make = make, .done = layer_there };
        struct error e;
        if (j->next == j->n) {
                if (j->fetched)
                        add(j);
                return;
        }
        int r = image_layer_want(j->puller->store, j->chain, j->layers[j->next].key, &callbacks, j, &j->want, &e);
        if (r < 0)
                end(j, NULL, r == -E2BIG ? IMAGE_TOO_LARGE : IMAGE_INTERNAL, &e);
}

/* ---- what the registry says ---- */

static int take_config(struct job *j, const struct registry_image *image, struct error *e) {
        struct json doc;
        int r = json_parse(image->config, image->config_len, &doc, e);
        r = r ? r : image_config_parse(&doc, &j->config, &j->diff_ids, e);
        if (r == 0 && strv_len((const char *const *)j->diff_ids) != image->n_layers)
                r = error_say(e, -EBADMSG, "the image's configuration does not name its %zu layers", image->n_layers);
        if (r == 0 && (r = sha256_hex(image->config, image->config_len, j->digest)) < 0)
                error_set(e, r, "keep the image");
        return r;
}

/* Runs inside the registry client: nothing may end the job here. */
static int resolved(const struct registry_image *image, void *user, struct error *e) {
        struct job *j = user;
        size_t known = 0;
        int r = take_config(j, image, e);
        if (r < 0)
                return r;
        if (image->n_layers > IMAGE_LAYERS_MAX)
                return error_say(e, -E2BIG, "the image has %zu layers, more than %u", image->n_layers, IMAGE_LAYERS_MAX);
        j->layers = calloc(MAX2(image->n_layers, 1u), sizeof *j->layers);
        j->chain = image_chain_base(j->puller->store, IMAGE_SCRATCH);
        if (!j->layers || !j->chain)
                return error_set(e, -ENOMEM, "keep the image");
        j->n = image->n_layers;
        for (size_t i = 0; i < j->n; i++) {
                j->layers[i].fd = -1;
                j->layers[i].diff_id = j->diff_ids[i];
                r = image_chain_id(i ? j->layers[i - 1].key : "", j->diff_ids[i], j->layers[i].key);
                if (r < 0)
                        return error_set(e, r, "keep the image");
                if (image_layer_known(j->puller->store, j->layers[i].key))
                        known = i + 1;
        }
        j->progress.layers = j->n;
        return (int)known;
}

static void layer(size_t index, int fd, void *user) {
        struct job *j = user;
        if (index < j->next)
                close(fd);                       /* somebody else made it meanwhile */
        else
                j->layers[index].fd = fd;
        if (j->making && index == j->next)
                unpack(j);
        if (!j->want && !j->over && j->next == 0)
                step(j);                         /* the first to come: the chain is begun */
}

static void progress(const struct registry_progress *p, void *user) {
        struct job *j = user;
        j->progress.fetched = *p;
        tell(j);
}

static void fetched(enum registry_failure f, const struct error *e, void *user) {
        static const enum image_failure failures[] = {
                [REGISTRY_OK] = IMAGE_OK, [REGISTRY_NOT_FOUND] = IMAGE_NOT_FOUND, [REGISTRY_DENIED] = IMAGE_UNAUTHORIZED, [REGISTRY_UNREACHABLE] = IMAGE_UNREACHABLE,
                [REGISTRY_INVALID] = IMAGE_INVALID, [REGISTRY_TIMEOUT] = IMAGE_TIMEOUT, [REGISTRY_DISK_FULL] = IMAGE_DISK_FULL, [REGISTRY_INTERNAL] = IMAGE_INTERNAL,
        };
        struct job *j = user;
        j->fetch = NULL;
        j->fetched = true;
        if (f != REGISTRY_OK)
                end(j, NULL, failures[f], e);
        else if (!j->want)                       /* else the layers go on by themselves */
                step(j);
        else if (j->making && j->layers[j->next].fd < 0)
                fail(j, IMAGE_INTERNAL, -EAGAIN, "a layer of the image was evicted while it was pulled");
}

/* ---- the beginning ---- */

static int job_id(const struct image_ref *ref, const char *name, const struct pull_request *req, char ret[static SHA256_HEX]) {
        char text[IMAGE_REF_TEXT_MAX + 1];
        struct sha256 h;
        int r = sha256_init(&h);
        if (r < 0)
                return r;
        image_ref_format(ref, text);
        sha256_update_str(&h, text);
        sha256_update_str(&h, name);
        sha256_update_str(&h, req->username ? "as" : "");
        sha256_update_str(&h, req->username ? req->username : "");
        sha256_update_str(&h, req->password ? req->password : "");
        sha256_finish(&h, ret);
        return 0;
}

static int job_new(struct puller *p, const struct image_ref *ref, const char *name, const char *id, const struct pull_request *req, struct job **ret, struct error *e) {
        static const struct registry_callbacks callbacks = { .resolved = resolved, .layer = layer, .progress = progress, .done = fetched };
        const struct registry_pull_spec spec = { .ref = ref, .username = req->username, .password = req->password,
                                                 .timeout_ms = req->timeout_ms ? req->timeout_ms : p->timeout_ms };
        struct job *j = calloc(1, sizeof *j);
        if (!j)
                return error_set(e, -ENOMEM, "pull");
        j->puller = p;
        memcpy(j->id, id, sizeof j->id);
        snprintf(j->name, sizeof j->name, "%s", name);
        image_ref_format(ref, j->source);
        int r = registry_pull_start(p->registry, &spec, &callbacks, j, &j->fetch, e);
        if (r < 0) {
                free(j);
                return r;
        }
        ASSERT(map_add(&p->jobs, &j->node) == 0);
        *ret = j;
        return 0;
}

static int start(struct puller *p, const struct pull_request *req, struct pull **ret, struct error *e) {
        struct image_ref ref;
        char name[IMAGE_NAME_MAX + 1], id[SHA256_HEX];
        struct job *j = NULL;
        if (p->n_pulls >= PULLS_MAX)
                return error_say(e, -EAGAIN, "%u pulls are waited for", PULLS_MAX);
        int r = image_ref_parse(req->name, &(struct image_ref_default){ .host = p->default_host, .space = p->default_space }, &ref, e);
        r = r ? r : image_name_normalize(req->name, name, e);
        if (r == 0 && (r = job_id(&ref, name, req, id)) < 0)
                error_set(e, r, "pull");
        struct pull *x = r == 0 ? calloc(1, sizeof *x) : NULL;
        if (r == 0 && !x)
                r = error_set(e, -ENOMEM, "pull");
        if (r < 0)
                return r;
        struct map_node *n = map_find(&p->jobs, id);
        if (n)
                j = container_of(n, struct job, node);
        else if ((r = job_new(p, &ref, name, id, req, &j, e)) < 0) {
                free(x);
                return r;
        }
        ASSERT(j);
        x->job = j;
        x->next = j->waiting;
        j->waiting = x;
        p->n_pulls++;
        *ret = x;
        return 0;
}

int pull_start(struct puller *p, const struct pull_request *req, const struct pull_callbacks *cb, void *user, struct pull **ret, struct error *e) {
        struct pull *x;
        int r = start(p, req, &x, e);
        if (r < 0)
                return r;
        x->cb = *cb;
        x->user = user;
        *ret = x;
        return 0;
}

static int store_pull(void *ctx, const char *name, uint64_t timeout_ms, void (*store_progress)(const char *what, const struct image_progress *p, void *user),
                      image_done done, void *user, void **ret_job, struct error *e) {
        const struct pull_request req = { .name = name, .timeout_ms = timeout_ms };
        struct pull *x;
        int r = start(ctx, &req, &x, e);
        if (r < 0)
                return r;
        x->store_done = done;
        x->store_progress = store_progress;
        x->user = user;
        *ret_job = x;
        return 0;
}

static void store_cancel(void *ctx, void *job) { pull_cancel(job); }

struct image_puller puller_hook(struct puller *p) { return (struct image_puller){ .pull = store_pull, .cancel = store_cancel, .ctx = p }; }

static void puller_free(struct puller *p) {
        map_release(&p->jobs);
        free(p->default_host);
        free(p->default_space);
        free(p);
}

int puller_new(struct image_store *st, const struct puller_config *cfg, struct puller **ret, struct error *e) {
        struct puller *p = calloc(1, sizeof *p);
        int r = p ? map_init(&p->jobs, job_key) : -ENOMEM;
        if (r < 0) {
                free(p);
                return error_set(e, r, "pulls");
        }
        p->store = st;
        p->timeout_ms = cfg->timeout_ms;
        r = image_ref_default_check(&cfg->defaults, e);
        if (r == 0 && (!(p->default_host = strdup(cfg->defaults.host ? cfg->defaults.host : "")) ||
                       !(p->default_space = strdup(cfg->defaults.space ? cfg->defaults.space : ""))))
                r = error_set(e, -ENOMEM, "pulls");
        r = r ? r : registry_new(image_store_loop(st), &cfg->registry, &p->registry, e);
        if (r < 0) {
                puller_free(p);
                return r;
        }
        *ret = p;
        return 0;
}

struct closing { struct puller *p; void (*done)(void *user); void *user; };

static void registry_closed(void *user) {
        struct closing *c = user;
        puller_free(c->p);
        c->done(c->user);
        free(c);
}

void puller_close(struct puller *p, void (*done)(void *user), void *user) {
        struct closing *c = malloc(sizeof *c);
        struct error e;
        size_t hint = 0;
        ASSERT(c);
        *c = (struct closing){ .p = p, .done = done, .user = user };
        for (struct map_node *n; (n = map_any(&p->jobs, &hint));) {
                struct job *j = container_of(n, struct job, node);
                struct pull *x;
                stop(j);
                error_say(&e, -ECANCELED, "the daemon is stopping");
                while ((x = j->waiting)) {       /* whoever waits holds a pointer to it, and would cancel it later */
                        j->waiting = x->next;
                        answer(x, NULL, IMAGE_CANCELLED, &e);
                }
                if (!j->adding)
                        job_free(j);
        }
        registry_close(p->registry, registry_closed, c);
}
