/* A build's life: what it waits for next, and its end. See build.h. */
#include "build/build_private.h"

#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/strv.h"

#define HELPER_TIMEOUT_MS (600 * 1000ull)

/* ---- memory ---- */

static void build_free(struct build *b) {
        struct builder *owner = b->builder;
        *b->prev = b->next;
        if (b->next)
                b->next->prev = b->prev;
        owner->n_builds--;
        free(b);
        if (owner->closing && owner->n_builds == 0) {
                void (*closed)(void *) = owner->closed;
                void *user = owner->closed_user;
                free(owner->directory);
                free(owner);
                closed(user);
        }
}

static void maybe_free(struct build *b) {
        if (b->over && b->pending == 0)
                build_free(b);
}

void build_unpend(struct build *b) {
        b->pending--;
        maybe_free(b);
}

static void timer_closed(uv_handle_t *h) { build_unpend(h->data); }

static void release_contents(struct build *b) {
        for (size_t i = 0; i < b->n_stages; i++)
                build_stage_release(&b->stages[i]);
        free(b->stages);
        b->stages = NULL;
        b->n_stages = 0;
        copy_step_release(&b->copy);
        b->chain = image_chain_unref(b->chain);
        b->context_chain = image_chain_unref(b->context_chain);
        stage_release(&b->stage);
        stage_release(&b->global);
        dockerfile_release(&b->file);
        free(b->text);
        free(b->path);
        free(b->target);
        strv_free(b->args);
        strv_free(b->names);
        b->context = fd_close(b->context);
}

/* What is under way goes; what must still answer keeps the memory. */
static void stop(struct build *b) {
        b->over = true;
        if (b->acquisition)
                image_acquire_cancel(TAKE_PTR(b->acquisition));
        if (b->want)
                image_want_cancel(TAKE_PTR(b->want));
        if (b->box)
                box_cancel(b->box);
        release_contents(b);
        uv_close((uv_handle_t *)&b->timer, timer_closed);
}

static void finish(struct build *b, struct image *img, enum image_failure failure, const struct error *e) {
        struct error kept = e ? *e : (struct error){ 0 };
        const struct build_callbacks cb = b->cb;
        void *user = b->user;
        stop(b);
        cb.done(img, failure, &kept, user);
}

void build_finish(struct build *b, struct image *img) {
        image_use(img);
        finish(b, img, IMAGE_OK, NULL);
}

void build_cancel(struct build *b) {
        if (b && !b->over)
                stop(b);
}

/* ---- failures ---- */

void build_fail(struct build *b, enum image_failure failure, const struct error *e) {
        if (!b->over)
                finish(b, NULL, failure, e);
}

void build_fail_text(struct build *b, enum image_failure failure, int code, const char *text) {
        struct error e;
        error_set(&e, code, "%s", text);
        build_fail(b, failure, &e);
}

void build_fail_at(struct build *b, const struct instruction *i, enum image_failure failure, const struct error *e) {
        struct error with_line = *e;
        if (strncmp(e->text, "dockerfile", 10) != 0)
                error_prefix(&with_line, "dockerfile line %u: %s", i->line, instruction_kind_to_string((int)i->kind));
        build_fail(b, failure, &with_line);
}

void build_fault(struct build *b, const struct error *e) {
        build_fail(b, e->code == -ENOMEM ? IMAGE_INTERNAL : IMAGE_INVALID, e);
}

static void timed_out(uv_timer_t *t) {
        struct build *b = t->data;
        struct error e;
        const struct instruction *i = b->stages && b->at_stage < b->n_stages ? build_instruction(b) : NULL;
        if (i)
                error_say(&e, -ETIMEDOUT, "dockerfile line %u: the build did not end in time", i->line);
        else
                error_say(&e, -ETIMEDOUT, "the build did not end in time");
        build_fail(b, IMAGE_TIMEOUT, &e);
}

uint64_t build_remaining(const struct build *b) {
        uint64_t now = now_ms();
        return now < b->deadline_ms ? b->deadline_ms - now : 1;
}

void build_event(struct build *b, enum build_event_kind kind, const char *text, size_t len) {
        const struct instruction *i = b->stages && b->at_stage < b->n_stages ? build_instruction(b) : NULL;
        const struct build_event ev = { .kind = kind, .step = b->step, .steps = b->steps, .line = i ? i->line : 0, .text = text, .len = len };
        if (b->cb.event && !b->over)
                b->cb.event(&ev, b->user);
}

/* ---- layers ---- */

static void on_make(struct image_layer *l, void *user) {
        struct build *b = user;
        b->making = true;
        b->make(b, l);
}

static void on_made(struct image_chain *c, enum image_failure failure, const struct error *e, void *user) {
        struct build *b = user;
        b->want = NULL;
        if (c) {
                if (!b->making && b->step > 0)         /* the context is unpacked before the first step, and is none */
                        build_event(b, BUILD_CACHED, NULL, 0);
                b->made(b, c);
        } else if (b->at_stage < b->n_stages)
                build_fail_at(b, build_instruction(b), failure, e);
        else
                build_fail(b, failure, e);
}

void build_layer(struct build *b, struct image_chain *parent, const char *key, void (*make)(struct build *, struct image_layer *),
                 void (*made)(struct build *, struct image_chain *)) {
        static const struct image_want_callbacks callbacks = { .make = on_make, .done = on_made };
        struct error e;
        b->making = false;
        b->make = make;
        b->made = made;
        int r = image_layer_want(b->builder->store, parent, key, &callbacks, b, &b->want, &e);
        if (r == 0)
                return;
        if (b->at_stage < b->n_stages)
                build_fail_at(b, build_instruction(b), r == -E2BIG ? IMAGE_TOO_LARGE : IMAGE_INTERNAL, &e);
        else
                build_fail(b, IMAGE_INTERNAL, &e);
}

void build_take_layer(struct build *b, struct image_chain *c) {
        image_chain_unref(b->chain);
        b->chain = c;
        build_next(b);
}

void build_key_begin(struct sha256 *h, const struct build *b, const char *what) {
        ASSERT(sha256_init(h) == 0);             /* the only failure is want of memory for a few bytes */
        sha256_update_str(h, "brig build 1");
        sha256_update_str(h, what);
        sha256_update_str(h, image_chain_key(b->chain));
}

/* ---- helpers ---- */

static void on_box(const struct box_result *r, void *user) {
        struct build *b = user;
        bool over = b->over;
        b->box = NULL;
        build_unpend(b);
        if (!over)
                b->box_done(b, r);
}

int build_unnamed_file(const struct builder *b) {
        int fd = open(b->directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        return fd < 0 ? -errno : fd;
}

void build_helper(struct build *b, struct image_chain *c, const char *const *argv, int fd, void (*done)(struct build *, const struct box_result *)) {
        static const char *const env[] = { NULL };
        char id[32];
        unsigned char random[6];
        struct error e;
        random_bytes(random, sizeof random);
        memcpy(id, "build-", 6);
        hex_encode(random, sizeof random, id + 6);
        struct sandbox_spec s = { .id = id, .profile = PROFILE_SETUP, .image = image_chain_image(c), .layers = image_chain_layers(c), .upper = UPPER_TMPFS,
                                  .network = NETWORK_NONE };
        sandbox_limits_default(&s.limits);
        s.limits.disk_bytes = 16 << 20;
        s.limits.inodes = 1024;
        const struct box_spec spec = { .sandbox = &s, .argv = argv, .env = env, .cwd = "/", .timeout_ms = MIN2(build_remaining(b), HELPER_TIMEOUT_MS),
                                       .helper = true, .stdin_fd = -1, .fd = fd };
        b->box_done = done;
        if (box_start(image_store_spawner(b->builder->store), &spec, on_box, b, &b->box, &e) < 0)
                build_fail(b, IMAGE_INTERNAL, &e);
        else
                b->pending++;
}

int build_helper_ok(struct build *b, const struct box_result *r, const char *what) {
        struct error e;
        char said[256];
        size_t n = strcspn(r->err, "\n");
        snprintf(said, sizeof said, "%.*s", (int)MIN2(n, sizeof said - 1), r->err);
        if (r->end == BOX_EXITED && r->status == 0)
                return 0;
        if (r->end == BOX_EXITED && WIFEXITED(r->status) && WEXITSTATUS(r->status) == 1) {
                error_say(&e, -EINVAL, "%s", said);
                build_fail_at(b, build_instruction(b), IMAGE_INVALID, &e);
                return -EINVAL;
        }
        if (r->end == BOX_FAILED)
                e = r->error;
        else
                error_say(&e, -EIO, "%s: %s", what, said[0] ? said : "the helper did not answer");
        build_fail(b, IMAGE_INTERNAL, &e);
        return -EIO;
}

/* ---- images ---- */

static void on_acquired(struct image_lease *lease, enum image_failure failure, const struct error *e, void *user) {
        struct build *b = user;
        b->acquisition = NULL;
        if (lease)
                b->acquired(b, lease);
        else
                build_fail_at(b, build_instruction(b), failure, e);
}

static void on_pull(const char *what, const struct image_progress *p, void *user) {
        struct build *b = user;
        const struct build_event ev = { .kind = BUILD_PULL, .step = b->step, .steps = b->steps, .line = build_instruction(b)->line, .text = what, .len = strlen(what), .pull = p };
        if (b->cb.event && !b->over)
                b->cb.event(&ev, b->user);
}

void build_acquire(struct build *b, const char *ref, void (*acquired)(struct build *, struct image_lease *)) {
        struct error e;
        const struct image_acquire_options o = { .pull_timeout_ms = build_remaining(b), .progress = on_pull };
        b->acquired = acquired;
        if (image_acquire(b->builder->store, ref, &o, on_acquired, b, &b->acquisition, &e) < 0)
                build_fail_at(b, build_instruction(b), e.code == -EINVAL ? IMAGE_INVALID : IMAGE_INTERNAL, &e);
}

/* ---- step after step, and the image at last ---- */

static void added(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct build *b = user;
        bool over = b->over;
        build_unpend(b);
        if (!over)
                finish(b, img, failure, e);
        else if (img)
                image_unuse(img);
}

static void add_image(struct build *b) {
        const struct build_stage *last = &b->stages[0];
        struct error e;
        for (size_t i = 0; i < b->n_stages; i++)
                if (b->stages[i].needed)
                        last = &b->stages[i];
        if (b->once && strv_push(&b->names, b->once_name) < 0) {
                build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "keep the image");
                return;
        }
        const struct image_add a = { .chain = last->chain, .config = &last->config, .origin = IMAGE_FROM_BUILD, .source = "a Dockerfile",
                                     .names = (const char *const *)b->names };
        if (image_store_add(b->builder->store, &a, added, b, &e) < 0)
                build_fail(b, IMAGE_INTERNAL, &e);
        else
                b->pending++;
}

void build_next(struct build *b) {
        b->at++;
        build_advance(b);
}

/* Goes on until something has to be waited for. */
void build_advance(struct build *b) {
        struct error e;
        while (!b->over) {
                if (!b->chain) {
                        if (!build_stage_begin(b))
                                add_image(b);
                        return;
                }
                if (b->at == b->stages[b->at_stage].end) {
                        build_stage_end(b);
                        continue;
                }
                const struct instruction *i = build_instruction(b);
                build_tell_step(b, i);
                switch (i->kind) {
                case INSTRUCTION_RUN: build_run(b, i); return;
                case INSTRUCTION_COPY: case INSTRUCTION_ADD: build_copy(b, i); return;
                case INSTRUCTION_WORKDIR: build_workdir(b, i); return;
                default: break;
                }
                if (stage_apply(&b->stage, i, &e) < 0) {
                        build_fault(b, &e);
                        return;
                }
                b->at++;
        }
}

/* ---- start ---- */

static void begin(uv_timer_t *t) {
        struct build *b = t->data;
        uv_timer_start(&b->timer, timed_out, build_remaining(b), 0);
        build_hash_context(b);
}

static int copy_spec(struct build *b, const struct build_spec *spec, struct error *e) {
        int r = strv_ensure(&b->names);
        size_t n = 0;
        if (spec->dockerfile) {
                b->text = malloc(spec->dockerfile_len + 1);
                if (b->text)
                        memcpy(b->text, spec->dockerfile, spec->dockerfile_len);
                b->text_len = spec->dockerfile_len;
                r = b->text ? r : -ENOMEM;
        }
        b->path = strdup(spec->path ? spec->path : "Dockerfile");
        b->target = spec->target ? strdup(spec->target) : NULL;
        if (!b->path || (spec->target && !b->target))
                r = -ENOMEM;
        for (const char *const *a = spec->args; r == 0 && a && *a; a++) {
                if (++n > BUILD_ARGS_MAX || strlen(*a) > BUILD_ARG_BYTES_MAX || !strchr(*a, '='))
                        return error_say(e, -EINVAL, "build_args: more than %u, or one of more than %u bytes", BUILD_ARGS_MAX, BUILD_ARG_BYTES_MAX);
                r = strv_push(&b->args, *a);
        }
        for (const char *const *a = spec->names; r == 0 && a && *a; a++)
                r = strv_push(&b->names, *a);
        if (r == 0 && spec->context >= 0 && (b->context = fcntl(spec->context, F_DUPFD_CLOEXEC, 0)) < 0)
                r = -errno;
        return r < 0 ? error_set(e, r, "build") : 0;
}

/* What can be said at once is said at once. */
int build_check_text(struct build *b, struct error *e) {
        int r = dockerfile_parse(b->text, b->text_len, &b->file, e);
        for (char **a = b->args; r == 0 && a && *a; a++)
                if (!dockerfile_declares(&b->file, *a, strcspn(*a, "=")))
                        r = error_say(e, -EINVAL, "build_args: the Dockerfile has no ARG %.*s", (int)MIN2(strcspn(*a, "="), 64u), *a);
        return r;
}

int build_start(struct builder *owner, const struct build_spec *spec, const struct build_callbacks *cb, void *user, struct build **ret, struct error *e) {
        if (owner->closing || owner->n_builds >= BUILDS_MAX)
                return error_say(e, -EAGAIN, "%u builds are under way", BUILDS_MAX);
        if (!spec->dockerfile && spec->context < 0)
                return error_say(e, -EINVAL, "dockerfile: neither its text nor a build context that holds one");
        struct build *b = calloc(1, sizeof *b);
        if (!b)
                return error_set(e, -ENOMEM, "build");
        b->builder = owner;
        b->context = -1;
        b->copy.fd = -1;
        b->cb = *cb;
        b->user = user;
        b->network = spec->network;
        b->no_cache = spec->no_cache;
        b->once = spec->once;
        b->deadline_ms = now_ms() + (spec->timeout_ms ? spec->timeout_ms : BUILD_TIMEOUT_DEFAULT_MS);
        int r = spec->dockerfile ? build_check(spec, e) : 0;
        r = r ? r : copy_spec(b, spec, e);
        if (r == 0 && b->text)
                r = build_check_text(b, e);
        if (r < 0) {
                release_contents(b);
                free(b);
                return r;
        }
        b->next = owner->builds;
        b->prev = &owner->builds;
        if (b->next)
                b->next->prev = &b->next;
        owner->builds = b;
        owner->n_builds++;
        uv_timer_init(image_store_loop(owner->store), &b->timer);
        b->timer.data = b;
        b->pending = 1;                          /* the timer */
        uv_timer_start(&b->timer, begin, 0, 0);
        *ret = b;
        return 0;
}

int build_check(const struct build_spec *spec, struct error *e) {
        struct build b = { .context = -1, .copy.fd = -1 };
        struct build_spec without = *spec;
        without.context = -1;
        int r = copy_spec(&b, &without, e);
        if (r == 0 && b.text)
                r = build_check_text(&b, e);
        r = r < 0 || !b.text ? r : build_plan(&b, e);
        release_contents(&b);
        return r;
}

/* ---- the builder ---- */

int builder_new(struct image_store *st, const struct builder_config *cfg, struct builder **ret, struct error *e) {
        struct builder *b = calloc(1, sizeof *b);
        if (b)
                b->directory = strdup(cfg->directory);
        if (!b || !b->directory) {
                free(b);
                return error_set(e, -ENOMEM, "builds");
        }
        b->store = st;
        b->limits = cfg->limits;
        *ret = b;
        return 0;
}

static void nothing_left(uv_handle_t *h) {
        struct builder *b = h->data;
        void (*closed)(void *) = b->closed;
        void *user = b->closed_user;
        free(b->directory);
        free(b);
        free(h);
        closed(user);
}

void builder_close(struct builder *b, void (*done)(void *user), void *user) {
        struct error e;
        b->closed = done;
        b->closed_user = user;
        recipes_free(b);
        error_say(&e, -ECANCELED, "the daemon is stopping");
        for (struct build *x = b->builds; x; x = x->next)
                build_fail(x, IMAGE_CANCELLED, &e);      /* whoever waits holds a pointer to it, and would cancel it later */
        if (b->n_builds > 0) {
                b->closing = true;
                return;
        }
        uv_timer_t *t = malloc(sizeof *t);       /* `done` never runs from inside */
        ASSERT(t);
        uv_timer_init(image_store_loop(b->store), t);
        t->data = b;
        uv_close((uv_handle_t *)t, nothing_left);
}
