/* The pool of warm boxes: see warm.h. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/strv.h"
#include "rlm/warm.h"

enum box_state { BOX_MAKING, BOX_READY, BOX_ENDING };

struct kind {
        char name[WARM_NAME_MAX + 1];
        struct sandbox_spec spec;          /* strings owned */
        char **layers, **env;
        char *python, *cache;              /* what python is made of */
        char *broker; uint16_t port;       /* 0: no sockets */
        bool keep;
};

struct warm_box {
        struct warm_box *next, **at;
        struct warm *pool;
        const struct kind *kind;
        enum box_state state;
        bool claimed, lost;
        bool python_up;
        unsigned sockets_to_come;
        int broker[2];                     /* or -1 */
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
        bool held, stopping, freed, closed;
        void (*stopped)(void *user); void *stopped_user;
};

static void arrange(struct warm *w, uint64_t ms);
static void pool_free(struct warm *w);

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

static void close_sockets(struct warm_box *b) {
        for (size_t i = 0; i < ARRAY_SIZE(b->broker); i++)
                b->broker[i] = fd_close(b->broker[i]);
}

static void on_gone(struct sandbox *s, const struct sandbox_end *end, void *user) {
        struct warm_box *b = user;
        struct warm *w = b->pool;
        b->sandbox = NULL;
        interpreter_free(TAKE_PTR(b->interpreter));
        close_sockets(b);
        unlink_box(b);
        if (b->claimed && !w->freed)
                b->cb.gone(b, end, b->user);
        free(b);
        if (w->freed) {
                pool_free(w);
                return;
        }
        if (!w->stopping)
                arrange(w, WARM_PAUSE_MS);
        check_stopped(w);
}

void warm_box_destroy(struct warm_box *b) {
        b->state = BOX_ENDING;
        close_sockets(b);              /* they keep its network namespace */
        if (b->sandbox)
                sandbox_destroy(b->sandbox);
}

static void made_badly(struct warm *w) {
        w->retry_ms = w->retry_ms ? MIN2(w->retry_ms * 2, (uint64_t)WARM_RETRY_MAX_MS) : WARM_RETRY_MS;
}

static void fail(struct warm_box *b, const char *step, const struct error *e) {
        if (b->state != BOX_MAKING || b->pool->freed)
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

static void check_ready(struct warm_box *b) {
        if (b->state != BOX_MAKING || !b->python_up || b->sockets_to_come > 0)
                return;
        b->state = BOX_READY;
        if (b->claimed)
                b->cb.ready(b, b->user);
        else {
                b->pool->retry_ms = 0;
                arrange(b->pool, 0);
        }
}

static void on_python(struct interpreter *in, void *user) {
        struct warm_box *b = user;
        b->python_up = true;
        check_ready(b);
}

static void on_lost(struct interpreter *in, const struct error *e, void *user) {
        struct warm_box *b = user;
        if (b->pool->freed)
                return;
        if (b->state == BOX_MAKING)
                fail(b, "start python", e);
        else if (b->state == BOX_READY && !b->claimed)
                warm_box_destroy(b);
        else if (b->state == BOX_READY && !b->lost) {
                b->lost = true;
                b->cb.lost(b, e, b->user);
        }
}

static int listen_inside(const struct kind *k, int fd, bool local) {
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(k->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_un name = { .sun_family = AF_UNIX };
        size_t n = strlen(k->broker);
        memcpy(name.sun_path + 1, k->broker, n);
        int r = local ? bind(fd, (struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) : bind(fd, (struct sockaddr *)&at, sizeof at);
        return r < 0 || listen(fd, WARM_BROKER_BACKLOG) < 0 ? -errno : 0;
}

/* No turn begins before both listen: so nobody inside can have taken the name or the port. */
static void got_socket(struct warm_box *b, int r, int fd, bool local) {
        struct error e;
        if (b->state != BOX_MAKING) {
                fd_close(fd);
                return;
        }
        if (r == 0)
                r = listen_inside(b->kind, fd, local);
        if (r < 0) {
                fd_close(fd);
                error_set(&e, r, "listen inside the sandbox");
                fail(b, "make the broker's sockets", &e);
                return;
        }
        b->broker[local] = fd;
        b->sockets_to_come--;
        check_ready(b);
}

static void got_tcp(struct sandbox *s, int r, int fd, void *user) { got_socket(user, r, fd, false); }
static void got_local(struct sandbox *s, int r, int fd, void *user) { got_socket(user, r, fd, true); }

static int ask_sockets(struct warm_box *b, struct error *e) {
        if (!b->kind->port)
                return 0;
        b->sockets_to_come = 2;
        int r = sandbox_socket(b->sandbox, SOCKET_IPV4, got_tcp, b);
        if (r == 0)
                r = sandbox_socket(b->sandbox, SOCKET_UNIX, got_local, b);
        return r < 0 ? error_set(e, r, "ask for sockets") : 0;
}

static void on_sandbox(struct sandbox *s, void *user) {
        struct warm_box *b = user;
        struct error e = { 0 };
        static const struct interpreter_callbacks cb = { .ready = on_python, .lost = on_lost };
        const struct interpreter_spec spec = { .python = b->kind->python, .cache = b->kind->cache, .env = (const char *const *)b->kind->env };
        if (b->state != BOX_MAKING)
                return;
        if (ask_sockets(b, &e) < 0 || interpreter_start(s, &spec, &cb, b, &b->interpreter, &e) < 0)
                fail(b, "start python", &e);
}

static int make(struct warm *w, const struct kind *k, struct warm_box **ret, struct error *e) {
        static const struct sandbox_callbacks cb = { .ready = on_sandbox, .failed = on_failed, .limit = on_limit, .gone = on_gone };
        struct warm_box *b = calloc(1, sizeof *b);
        if (!b)
                return error_set(e, -ENOMEM, "make a sandbox");
        *b = (struct warm_box){ .pool = w, .kind = k, .broker = { -1, -1 } };
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
        free((char *)k->spec.user_dir);
        strv_free(k->layers);
        strv_free(k->env);
        free(k->python);
        free(k->cache);
        free(k->broker);
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

static int copy_list(const char *const *list, char ***ret) {
        int r = 0;
        for (size_t i = 0; r == 0 && list && list[i]; i++)
                r = strv_push(ret, list[i]);
        return r;
}

static int fill_kind(struct kind *k, const struct warm_kind *from) {
        const struct sandbox_spec *spec = from->sandbox;
        *k = (struct kind){ .spec = *spec, .keep = from->keep, .port = from->broker_port };
        k->spec.id = "rlm-box";
        snprintf(k->name, sizeof k->name, "%s", from->name);
        k->spec.image = k->spec.hostname = k->spec.user_dir = NULL;
        k->spec.layers = NULL;
        int r = copy(spec->image, &k->spec.image);
        if (r == 0)
                r = copy(spec->hostname, &k->spec.hostname);
        if (r == 0)
                r = copy(spec->user_dir, &k->spec.user_dir);
        if (r == 0)
                r = copy(from->python, (const char **)&k->python);
        if (r == 0)
                r = copy(from->broker_name, (const char **)&k->broker);
        if (r == 0)
                r = copy_list(spec->layers, &k->layers);
        if (r == 0)
                r = copy_list(from->env, &k->env);
        k->spec.layers = (const char *const *)k->layers;
        return r < 0 ? r : name_cache(k);
}

static bool kind_ok(const struct warm_kind *k) {
        const struct sandbox_spec *s = k->sandbox;
        if (s->profile != PROFILE_RLM || s->n_mounts > 0 || s->n_files > 0 || s->allow || s->upper == UPPER_LAYER || strlen(k->name) > WARM_NAME_MAX)
                return false;
        return !k->broker_port || (k->broker_name && strlen(k->broker_name) < sizeof ((struct sockaddr_un *)0)->sun_path);
}

int warm_add_kind(struct warm *w, const struct warm_kind *kind) {
        if (!kind_ok(kind))
                return -EINVAL;
        if (find(w, kind->name))
                return -EEXIST;
        if (w->n_kinds >= WARM_KINDS_MAX)
                return -ENOSPC;
        struct kind *k = &w->kinds[w->n_kinds];
        int r = fill_kind(k, kind);
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

void warm_box_broker(struct warm_box *b, int ret_fds[static 2]) {
        for (size_t i = 0; i < ARRAY_SIZE(b->broker); i++)
                ret_fds[i] = TAKE_FD(b->broker[i]);
}

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
        if (w->held == on || w->stopping)
                return;                /* what is arranged stays: with warm_stop its end */
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

/* When its last box is gone. */
static void pool_free(struct warm *w) {
        if (w->boxes || w->closed)
                return;
        w->closed = true;
        for (unsigned i = 0; i < w->n_kinds; i++)
                kind_release(&w->kinds[i]);
        uv_close((uv_handle_t *)&w->timer, on_closed);
}

void warm_free(struct warm *w) {
        if (!w)
                return;
        w->freed = w->stopping = true;
        pool_free(w);
}
