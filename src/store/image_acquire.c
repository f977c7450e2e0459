/* From a name to something that a sandbox can stand on.
 *
 *     BEGIN ──found──────────────> OPEN ──mounted──> lease
 *       └──not here──> PULL ──────^
 */
#include <string.h>

#include "store/image.h"
#include "store/image_store_private.h"

struct image_acquisition {
        struct image_acquisition *next;
        struct image_store *store;
        char *ref;
        struct image_acquire_options o;
        bool begun;
        struct image *image;               /* in use */
        struct image_chain *chain;
        struct image_chain_opening *opening;
        void *pull; bool pulling;
        struct box *box;             /* looks the user up */
        bool cancelled;                    /* freed when the box is gone */
        char digest[SHA256_HEX];
        image_acquired done;
        void *user;
};

struct lease { struct image_lease lease; struct image *image; };

static const struct image_config no_config;
static const struct image_user root = { .name = "root", .home = "/root" };

static void acquisition_free(struct image_acquisition *a) {
        struct image_acquisition **at = &a->store->acquisitions;
        while (*at != a)
                at = &(*at)->next;
        *at = a->next;
        image_chain_unref(a->chain);
        if (a->image)
                image_unuse(a->image);
        free(a->ref);
        free(a);
}

static void fail(struct image_acquisition *a, enum image_failure failure, const struct error *e) {
        image_acquired done = a->done;
        void *user = a->user;
        struct error kept = *e;
        struct image_store *st = a->store;
        acquisition_free(a);
        done(NULL, failure, &kept, user);
        image_store_done(st);
}

static void answer(struct image_acquisition *a) {
        struct lease *l = calloc(1, sizeof *l);
        struct error e;
        if (!l) {
                fail(a, IMAGE_INTERNAL, (error_set(&e, -ENOMEM, "hold an image"), &e));
                return;
        }
        l->image = TAKE_PTR(a->image);
        l->lease.chain = TAKE_PTR(a->chain);
        l->lease.config = l->image ? &l->image->config : &no_config;
        l->lease.user = l->image && l->image->user_known ? &l->image->user : &root;
        memcpy(l->lease.digest, a->digest, sizeof l->lease.digest);
        image_acquired done = a->done;
        void *user = a->user;
        struct image_store *st = a->store;
        acquisition_free(a);
        done(&l->lease, IMAGE_OK, NULL, user);
        image_store_done(st);
}

void image_lease_release(struct image_lease *lease) {
        if (!lease)
                return;
        struct lease *l = container_of(lease, struct lease, lease);
        image_chain_unref(lease->chain);
        if (l->image)
                image_unuse(l->image);
        free(l);
}

static void user_looked_up(const struct box_result *r, void *user) {
        struct image_acquisition *a = user;
        struct image_store *st = a->store;
        struct error e;
        a->box = NULL;
        if (a->cancelled) {
                acquisition_free(a);
                image_store_done(st);
        } else if (r->end == BOX_EXITED && r->status == 0 && image_user_parse(r->out, &a->image->user) == 0) {
                a->image->user_known = true;
                answer(a);
        } else {
                error_say(&e, -EBADMSG, "the user '%.60s' of the image: %.*s", a->image->config.user, (int)strcspn(r->err, "\n"), r->end == BOX_FAILED ? r->error.text : r->err);
                fail(a, r->end == BOX_FAILED ? IMAGE_INTERNAL : IMAGE_INVALID, &e);
        }
}

/* The image's own tables say who that is, and nobody here reads those. */
static void look_user_up(struct image_acquisition *a) {
        const char *const argv[] = { "find-user", a->image->config.user, NULL };
        struct error e;
        struct sandbox_spec s = { .id = "find-user", .profile = PROFILE_SCORE, .image = a->chain->base, .layers = a->chain->ids, .upper = UPPER_TMPFS, .network = NETWORK_NONE };
        sandbox_limits_default(&s.limits);
        s.limits.memory_bytes = 256 << 20;
        s.limits.disk_bytes = 1 << 20;
        s.limits.inodes = 1024;
        const struct box_spec spec = { .sandbox = &s, .argv = argv, .helper = true, .stdin_fd = -1, .fd = -1, .timeout_ms = 30000 };
        int r = box_start(a->store->spawner, &spec, user_looked_up, a, &a->box, &e);
        if (r < 0)
                fail(a, image_failure_of(r), &e);
}

static void mounted(struct image_acquisition *a) {
        if (a->image && a->image->config.user && a->image->config.user[0] && !a->image->user_known)
                look_user_up(a);
        else
                answer(a);
}

static void opened(int r, const struct error *e, void *user) {
        struct image_acquisition *a = user;
        a->opening = NULL;
        if (r < 0)
                fail(a, image_failure_of(r), e);
        else
                mounted(a);
}

/* The acquisition has the image in use. */
static void open_image(struct image_acquisition *a) {
        struct image *img = a->image;
        struct error e;
        memcpy(a->digest, img->digest, sizeof a->digest);
        a->chain = image_chain_new(a->store, img->base, img->base_key, img->n ? img->keys[img->n - 1] : img->base_key, img->layers, img->n);
        int r = a->chain ? image_chain_open(a->chain, opened, a, &a->opening) : -ENOMEM;
        if (r < 0)
                fail(a, image_failure_of(r), (error_set(&e, r, "open the image"), &e));
        else if (r > 0)
                mounted(a);
}

static void open_builtin(struct image_acquisition *a) {
        struct error e = { 0 };
        int r = strcmp(a->ref, IMAGE_SCRATCH) == 0 ? sha256_hex("brig scratch", 12, a->digest) : image_digest(a->store->spawner, a->ref, a->digest, &e);
        if (r == 0 && !(a->chain = image_chain_base(a->store, a->ref)))
                r = error_set(&e, -ENOMEM, "open the image");
        if (r < 0)
                fail(a, r == -ENOENT ? IMAGE_NOT_FOUND : image_failure_of(r), &e);
        else
                answer(a);
}

static void pulled(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct image_acquisition *a = user;
        a->pulling = false;
        if (failure != IMAGE_OK) {
                fail(a, failure, e);
                return;
        }
        a->image = img;
        open_image(a);
}

static void on_progress(const char *what, const struct image_progress *p, void *user) {
        struct image_acquisition *a = user;
        if (a->o.progress)
                a->o.progress(what, p, a->user);
}

static void pull(struct image_acquisition *a) {
        const struct image_puller *p = &a->store->puller;
        struct error e;
        if (!p->pull || a->o.no_pull) {
                error_say(&e, -ENOENT, "there is no image '%.100s' here", a->ref);
                fail(a, IMAGE_NOT_FOUND, &e);
                return;
        }
        a->pulling = true;
        uint64_t timeout = a->o.pull_timeout_ms ? a->o.pull_timeout_ms : a->store->pull_timeout_ms;
        int r = p->pull(p->ctx, a->ref, timeout, on_progress, pulled, a, &a->pull, &e);
        if (r < 0) {
                a->pulling = false;
                if (r == -EINVAL)
                        error_prefix(&e, "there is no image '%.100s' here", a->ref);
                fail(a, r == -EINVAL ? IMAGE_NOT_FOUND : image_failure_of(r), &e);
        }
}

static void begin(struct image_acquisition *a) {
        a->begun = true;
        if (a->ref[0] == '/' || strcmp(a->ref, IMAGE_HOST) == 0 || strcmp(a->ref, IMAGE_SCRATCH) == 0) {
                open_builtin(a);
                return;
        }
        struct image *img = image_find(a->store, a->ref);
        if (!img) {
                pull(a);
                return;
        }
        image_use(img);
        a->image = img;
        open_image(a);
}

void image_acquisitions_step(struct image_store *st) {
        struct image_acquisition *a;
        do {
                for (a = st->acquisitions; a && a->begun; a = a->next)
                        ;
                if (a)
                        begin(a);
        } while (a);
}

int image_acquire(struct image_store *st, const char *ref, const struct image_acquire_options *o, image_acquired done, void *user,
                  struct image_acquisition **ret, struct error *e) {
        char name[IMAGE_NAME_MAX + 1];
        if (st->closing)
                return error_say(e, -ECANCELED, "the store of images is being closed");
        if (ref[0] != '/') {
                int r = image_name_normalize(ref, name, e);
                if (r < 0)
                        return r;
                ref = name;
        }
        struct image_acquisition *a = calloc(1, sizeof *a);
        if (!a || !(a->ref = strdup(ref))) {
                free(a);
                return error_set(e, -ENOMEM, "open an image");
        }
        a->store = st;
        a->o = o ? *o : (struct image_acquire_options){ 0 };
        a->done = done;
        a->user = user;
        a->next = st->acquisitions;
        st->acquisitions = a;
        st->busy++;
        image_store_wake(st);
        *ret = a;
        return 0;
}

void image_acquire_cancel(struct image_acquisition *a) {
        struct image_store *st = a->store;
        if (a->pulling && st->puller.cancel)
                st->puller.cancel(st->puller.ctx, a->pull);
        image_chain_open_cancel(a->opening);
        if (a->box) {
                a->cancelled = true;
                box_cancel(a->box);
                return;
        }
        acquisition_free(a);
        image_store_done(st);
}
