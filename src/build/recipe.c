#include "build/recipe.h"

#include <fcntl.h>
#include <string.h>

#include "base/strv.h"
#include "build/build_private.h"

struct recipe {
        struct recipe *next;
        char name[IMAGE_NAME_MAX + 1];
        char *dockerfile, *target, **args;
        size_t dockerfile_len;
        int context;
        enum sandbox_network network;
        uint64_t timeout_ms;
};

struct hook_job {                          /* one call of the store's */
        struct build *build;               /* or, without one: */
        const struct image_puller *rest; void *rest_job;
        image_done done;
        void (*progress)(const char *what, const struct image_progress *p, void *user);
        void *user;
};

static void recipe_free(struct recipe *r) {
        if (!r)
                return;
        free(r->dockerfile);
        free(r->target);
        strv_free(r->args);
        fd_close(r->context);
        free(r);
}

/* Takes it out of the list; NULL. */
static struct recipe *take(struct builder *b, const char *name) {
        for (struct recipe **at = &b->recipes; *at; at = &(*at)->next)
                if (strcmp((*at)->name, name) == 0) {
                        struct recipe *r = *at;
                        *at = r->next;
                        b->n_recipes--;
                        return r;
                }
        return NULL;
}

void recipe_drop(struct builder *b, const char *name) { recipe_free(take(b, name)); }

void recipes_free(struct builder *b) {
        while (b->recipes)
                recipe_drop(b, b->recipes->name);
}

static int fill(struct recipe *r, const struct build_spec *spec) {
        int x = strv_ensure(&r->args);
        r->dockerfile = malloc(spec->dockerfile_len + 1);
        if (!r->dockerfile)
                return -ENOMEM;
        memcpy(r->dockerfile, spec->dockerfile, spec->dockerfile_len);
        r->dockerfile_len = spec->dockerfile_len;
        if (spec->target && !(r->target = strdup(spec->target)))
                return -ENOMEM;
        for (const char *const *a = spec->args; x == 0 && a && *a; a++)
                x = strv_push(&r->args, *a);
        if (x == 0 && spec->context >= 0 && (r->context = fcntl(spec->context, F_DUPFD_CLOEXEC, 0)) < 0)
                x = -errno;
        r->network = spec->network;
        r->timeout_ms = spec->timeout_ms;
        return x;
}

int recipe_add(struct builder *b, const struct build_spec *spec, char ret_name[static IMAGE_NAME_MAX + 1], struct error *e) {
        unsigned char random[16];
        char hex[2 * sizeof random + 1];
        int x = build_check(spec, e);            /* what is wrong with it is said now */
        if (x < 0)
                return x;
        struct recipe *r = calloc(1, sizeof *r);
        if (!r)
                return error_set(e, -ENOMEM, "build");
        r->context = -1;
        x = fill(r, spec);
        if (x < 0) {
                recipe_free(r);
                return error_set(e, x, "build");
        }
        random_bytes(random, sizeof random);
        hex_encode(random, sizeof random, hex);
        snprintf(r->name, sizeof r->name, RECIPE_PREFIX "%s:asked", hex);
        snprintf(ret_name, IMAGE_NAME_MAX + 1, "%s", r->name);
        struct recipe **last = &b->recipes;
        while (*last)
                last = &(*last)->next;
        *last = r;
        if (++b->n_recipes > RECIPES_MAX)
                recipe_drop(b, b->recipes->name);
        return 0;
}

/* ---- the store's hook ---- */

static void built(struct image *img, enum image_failure f, const struct error *e, void *user) {
        struct hook_job *j = user;
        image_done done = j->done;
        void *done_user = j->user;
        free(j);
        done(img, f, e, done_user);
}

static void told(const struct build_event *ev, void *user) {
        struct hook_job *j = user;
        char what[256];
        static const struct image_progress nothing;
        if (!j->progress || ev->kind == BUILD_OUTPUT || ev->kind == BUILD_CACHED)
                return;
        snprintf(what, sizeof what, "step %u of %u: %.*s", ev->step, ev->steps, (int)MIN2(ev->len, 200u), ev->text);
        j->progress(what, ev->pull ? ev->pull : &nothing, j->user);
}

static int start(struct builder *b, struct recipe *r, uint64_t timeout_ms, struct hook_job *j, struct error *e) {
        static const struct build_callbacks callbacks = { .event = told, .done = built };
        const struct build_spec spec = { .dockerfile = r->dockerfile, .dockerfile_len = r->dockerfile_len, .context = r->context, .args = (const char *const *)r->args,
                                         .target = r->target, .network = r->network, .timeout_ms = r->timeout_ms ? r->timeout_ms : timeout_ms, .once = true };
        return build_start(b, &spec, &callbacks, j, &j->build, e);
}

static int hook_pull(void *ctx, const char *name, uint64_t timeout_ms, void (*progress)(const char *what, const struct image_progress *p, void *user),
                     image_done done, void *user, void **ret_job, struct error *e) {
        struct builder *b = ctx;
        struct recipe *r = take(b, name);
        struct hook_job *j = calloc(1, sizeof *j);
        int x;
        if (!j) {
                recipe_free(r);
                return error_set(e, -ENOMEM, "get an image");
        }
        *j = (struct hook_job){ .done = done, .progress = progress, .user = user, .rest = &b->rest };
        if (r)
                x = start(b, r, timeout_ms, j, e);
        else if (strncmp(name, RECIPE_PREFIX, strlen(RECIPE_PREFIX)) == 0 || !b->rest.pull)
                x = error_say(e, -ENOENT, "image %s: no such image", name);
        else
                x = b->rest.pull(b->rest.ctx, name, timeout_ms, progress, done, user, &j->rest_job, e);
        recipe_free(r);
        if (x < 0) {
                free(j);
                return x;
        }
        if (j->rest_job) {                       /* the other's own job: nothing of ours is left */
                *ret_job = j->rest_job;
                free(j);
                return 0;
        }
        *ret_job = (void *)((uintptr_t)j | 1);   /* told apart by the bit that no pointer has */
        return 0;
}

static void hook_cancel(void *ctx, void *job) {
        struct builder *b = ctx;
        if (!((uintptr_t)job & 1)) {
                b->rest.cancel(b->rest.ctx, job);
                return;
        }
        struct hook_job *j = (struct hook_job *)((uintptr_t)job & ~(uintptr_t)1);
        build_cancel(j->build);
        free(j);
}

struct image_puller builder_hook(struct builder *b, const struct image_puller *rest) {
        b->rest = rest ? *rest : (struct image_puller){ 0 };
        return (struct image_puller){ .pull = hook_pull, .cancel = hook_cancel, .ctx = b };
}
