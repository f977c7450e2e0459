#include <string.h>

#include "base/strv.h"
#include "fake_spawner.h"
#include "sandbox/capture.h"

struct fake fake;

struct event { struct event *next; void (*run)(void *a, void *b); void *a, *b; };
static struct event *first, **last = &first;

static void later(void (*run)(void *, void *), void *a, void *b) {
        struct event *ev = calloc(1, sizeof *ev);
        *ev = (struct event){ .run = run, .a = a, .b = b };
        *last = ev;
        last = &ev->next;
}

bool fake_step(void) {
        struct event *ev = first;
        if (!ev)
                return false;
        first = ev->next;
        if (!first)
                last = &first;
        ev->run(ev->a, ev->b);
        free(ev);
        return true;
}

void fake_run(void) {
        while (fake_step())
                ;
}

/* ---- sandboxes ---- */

struct sandbox {
        struct sandbox *next;
        struct sandbox_callbacks cb;
        void *user;
        enum sandbox_profile profile;
        enum sandbox_network network;
        char writable[64], upper_layer[65];
        bool destroyed;
        int create_error;
        void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user);
        void *exec_user;
        struct exec_end end;
        bool running, hangs;
};
static struct sandbox *sandboxes;

void fake_reset(void) {
        fake = (struct fake){ 0 };
}

static void on_ready(void *a, void *b) {
        struct sandbox *s = a;
        struct error e;
        if (s->destroyed)
                return;
        if (s->create_error == 0) {
                s->cb.ready(s, s->user);
                return;
        }
        error_set(&e, s->create_error, "fake");
        s->cb.failed(s, "fake step", &e, s->user);
        sandbox_destroy(s);
}

int sandbox_create(struct spawner *sp, const struct sandbox_spec *spec, const struct sandbox_callbacks *cb, void *user, struct sandbox **ret, struct error *e) {
        struct sandbox *s = calloc(1, sizeof *s);
        *s = (struct sandbox){ .next = sandboxes, .cb = *cb, .user = user, .profile = spec->profile, .network = spec->network, .create_error = fake.create_error };
        for (size_t i = 0; i < spec->n_mounts; i++)
                if (spec->mounts[i].writable)
                        snprintf(s->writable, sizeof s->writable, "%s", spec->mounts[i].target);
        snprintf(s->upper_layer, sizeof s->upper_layer, "%s", spec->upper_layer ? spec->upper_layer : "");
        sandboxes = s;
        fake.creates++;
        fake.live++;
        later(on_ready, s, NULL);
        *ret = s;
        return 0;
}

static void on_exit_event(void *a, void *b) {
        struct sandbox *s = a;
        if (!s->running)
                return;
        s->running = false;
        s->exited(NULL, &s->end, s->exec_user);
}

int sandbox_exec(struct sandbox *s, const struct exec_spec *x, void (*exited)(struct sandbox_exec *x, const struct exec_end *end, void *user), void *user,
                 struct sandbox_exec **ret, struct error *e) {
        struct fake_command c = { .profile = s->profile, .network = s->network, .argv = x->argv, .env = x->env, .writable = s->writable,
                                  .upper_layer = s->upper_layer, .out = "", .err = "" };
        fake.exec(&c);
        if (x->out)
                capture_feed(x->out, c.out, strlen(c.out));
        if (x->err)
                capture_feed(x->err, c.err, strlen(c.err));
        s->exited = exited;
        s->exec_user = user;
        s->running = true;
        s->hangs = c.hang;
        s->end = (struct exec_end){ .started = true, .status = c.status << 8, .timed_out = c.timed_out };
        if (!c.hang)
                later(on_exit_event, s, NULL);
        return 0;
}

void fake_release(void) {
        for (struct sandbox *s = sandboxes; s; s = s->next)
                if (s->running && s->hangs) {
                        s->hangs = false;
                        later(on_exit_event, s, NULL);
                }
}

static void on_gone(void *a, void *b) {
        struct sandbox *s = a, **at = &sandboxes;
        static const struct sandbox_end end;
        if (s->running) {
                s->running = false;
                s->end = (struct exec_end){ .started = true, .sandbox_ended = true, .status = 9 };
                s->exited(NULL, &s->end, s->exec_user);
        }
        while (*at != s)
                at = &(*at)->next;
        *at = s->next;
        fake.live--;
        s->cb.gone(s, &end, s->user);
        free(s);
}

struct egress_net *sandbox_egress(struct sandbox *s) { return NULL; }

void sandbox_destroy(struct sandbox *s) {
        if (!s->destroyed)
                later(on_gone, s, NULL);
        s->destroyed = true;
}

/* ---- layers and mirrors ---- */

struct call { layer_done done; layer_published published; void *user; int r; struct layer_manifest m; };

static void on_call(void *a, void *b) {
        struct call *c = a;
        struct error e = { 0 };
        if (c->r < 0)
                error_set(&e, c->r, "fake");
        if (c->published)
                c->published(c->r, c->r == 0 ? &c->m : NULL, &e, c->user);
        else if (c->done)
                c->done(c->r, &e, c->user);
        free(c);
}

static int call(const struct call *wanted) {
        struct call *c = malloc(sizeof *c);
        *c = *wanted;
        later(on_call, c, NULL);
        return 0;
}

int layers_publish(struct spawner *sp, const struct layer_manifest *m, layer_published done, void *user) {
        struct call c = { .published = done, .user = user, .r = fake.publish_error, .m = *m };
        c.m.bytes = 1000;
        fake.publishes++;
        snprintf(fake.published_key, sizeof fake.published_key, "%s", m->key);
        return call(&c);
}

int layers_open(struct spawner *sp, const char *id, layer_done done, void *user) {
        fake.opens++;
        return call(&(struct call){ .done = done, .user = user, .r = fake.open_error });
}

int layers_close(struct spawner *sp, const char *id) {
        fake.closes++;
        return 0;
}

int layers_remove(struct spawner *sp, const char *id, layer_done done, void *user) {
        fake.removes++;
        return call(&(struct call){ .done = done, .user = user });
}

int layers_list(struct spawner *sp, void (*each)(const struct layer_manifest *m, void *user), layer_done done, void *user) {
        for (size_t i = 0; i < fake.n_listed; i++)
                each(&fake.listed[i], user);
        return call(&(struct call){ .done = done, .user = user });
}

int mirrors_make(struct spawner *sp, const char *id, layer_done done, void *user) {
        fake.mirror_makes++;
        return call(&(struct call){ .done = done, .user = user });
}

int mirrors_remove(struct spawner *sp, const char *id, layer_done done, void *user) {
        fake.mirror_removes++;
        return call(&(struct call){ .done = done, .user = user });
}

static char digest[65];

const char *spawner_image_digest(const struct spawner *sp) {
        memset(digest, 'd', 64);
        return digest;
}
