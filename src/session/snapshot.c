/* See snapshot.h. Two things run side by side between freeze and thaw: the helper that packs, and the store that unpacks; the snapshot goes on when
 * both have ended. */
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/hash.h"
#include "sandbox/capture.h"
#include "session/session_internal.h"
#include "session/snapshot.h"

#define REASON_MAX 1024

struct snapshot {
        struct session_use use;
        struct image_store *store;
        char *name;
        snapshot_done done;
        void *user;
        struct image_chain *parent, *chain;
        struct image_want *want;
        struct image_config config;            /* of what it stands on; borrowed from the lease, which the use keeps */
        struct output_capture err;
        char source[64];
        enum image_failure failure; struct error error;
        bool packing, froze, cancelled;
};

static void fail(struct snapshot *s, enum image_failure failure, const struct error *e) {
        if (s->failure != IMAGE_OK)
                return;                        /* what was first is what is said */
        s->failure = failure;
        s->error = *e;
}

static void fail_errno(struct snapshot *s, int r, const char *what) {
        struct error e;
        error_set(&e, r, "%s", what);
        fail(s, r == -ENOSPC || r == -EDQUOT ? IMAGE_DISK_FULL : r == -E2BIG ? IMAGE_TOO_LARGE : IMAGE_INTERNAL, &e);
}

/* Whatever it was that went wrong when the session ended: that it ended is why. */
static void say_if_ended(struct snapshot *s) {
        const struct session *se = s->use.session;
        if (s->failure == IMAGE_OK || s->failure == IMAGE_CANCELLED || !se || !se->ending)
                return;
        s->failure = IMAGE_SESSION_ENDED;
        error_say(&s->error, -ESHUTDOWN, "the session has ended");
}

static void conclude(struct snapshot *s, struct image *img) {
        if (img && s->cancelled)
                image_unuse(TAKE_PTR(img));
        if (!s->cancelled)
                s->done(img, s->failure, &s->error, s->user);
        image_chain_unref(s->parent);
        image_chain_unref(s->chain);
        capture_release(&s->err);
        free(s->name);
        free(s);
}

static void added(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct snapshot *s = user;
        if (!img)
                fail(s, failure, e);
        session_use_end(&s->use);
        conclude(s, img);
}

static void keep(struct snapshot *s) {
        s->use.session->snapshot = NULL;
        const char *const names[] = { s->name, NULL };
        const struct image_add a = { .chain = s->chain, .config = &s->config, .origin = IMAGE_FROM_SNAPSHOT, .source = s->source, .names = s->name ? names : NULL };
        struct error e;
        int r = s->failure == IMAGE_OK ? image_store_add(s->store, &a, added, s, &e) : -ECANCELED;
        if (r == 0)
                return;
        if (r != -ECANCELED)
                fail(s, IMAGE_INTERNAL, &e);
        say_if_ended(s);
        session_use_end(&s->use);
        conclude(s, NULL);
}

static void thawed(struct sandbox *sb, int r, void *user) { keep(user); }

static void maybe_thaw(struct snapshot *s) {
        if (s->packing || s->want)
                return;
        struct sandbox *sb = session_sandbox(s->use.session);
        if (!s->froze || s->use.session->paused || !sb || sandbox_thaw(sb, thawed, s) < 0)
                keep(s);
}

/* ---- the layer -------------------------------------------------------------------------------------------------------------- */

static void packed(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct snapshot *s = user;
        struct error e;
        s->packing = false;
        if (!end->started || end->sandbox_ended || end->timed_out || end->status != 0) {
                const char *why = end->timed_out ? "it took too long" : !end->started ? end->error.text : s->err.head.len > 0 ? buf_str(&s->err.head) : "it broke off";
                error_say(&e, -EIO, "read what the session has written: %.*s", (int)strcspn(why, "\n"), why);
                fail(s, end->timed_out ? IMAGE_TIMEOUT : IMAGE_INTERNAL, &e);
        }
        maybe_thaw(s);
}

static int start_packing(struct snapshot *s, int to, struct error *e) {
        struct sandbox *sb = session_sandbox(s->use.session);
        const struct exec_fd fd = { to, STDOUT_FILENO };
        const struct exec_spec spec = {
                .argv = (const char *const[]){ "changes", "tar", NULL }, .env = (const char *const[]){ NULL }, .cwd = "/", .stdin_fd = -1, .err = &s->err, .helper = true,
                .helper_upper = true, .output_bytes = UINT64_MAX, .fds = &fd, .n_fds = 1, .timeout_ms = SNAPSHOT_TIMEOUT_MS,
        };
        int r = sb ? sandbox_exec(sb, &spec, packed, s, NULL, e) : error_say(e, -ESHUTDOWN, "the session has ended");
        s->packing = r == 0;
        return r;
}

static void make(struct image_layer *l, void *user) {
        struct snapshot *s = user;
        struct error e = { 0 };
        int p[2] = { -1, -1 };
        int r = s->cancelled ? error_say(&e, -ECANCELED, "cancelled") : pipe2(p, O_CLOEXEC) < 0 ? error_set(&e, -errno, "pipe") : start_packing(s, p[1], &e);
        if (r == 0) {
                const struct image_unpack u = { .fd = p[0], .name_by_content = true, .timeout_ms = SNAPSHOT_TIMEOUT_MS };
                p[1] = fd_close(p[1]);
                image_layer_unpack(l, &u);
        } else
                image_layer_abandon(l, s->cancelled ? IMAGE_CANCELLED : IMAGE_INTERNAL, &e);
        fd_close(p[0]);
        fd_close(p[1]);
}

static void made(struct image_chain *c, enum image_failure failure, const struct error *e, void *user) {
        struct snapshot *s = user;
        s->want = NULL;
        s->chain = c;
        if (!c)
                fail(s, failure, e);
        maybe_thaw(s);
}

static void begin(struct snapshot *s) {
        static const struct image_want_callbacks callbacks = { make, made };
        char key[SHA256_HEX];                  /* until its contents name it */
        struct error e;
        unsigned char random[SHA256_HEX / 2];
        random_bytes(random, sizeof random);
        hex_encode(random, sizeof random, key);
        int r = image_layer_want(s->store, s->parent, key, &callbacks, s, &s->want, &e);
        if (r < 0) {
                fail(s, r == -E2BIG ? IMAGE_TOO_LARGE : IMAGE_INTERNAL, &e);
                maybe_thaw(s);
        }
}

static void frozen(struct sandbox *sb, int r, void *user) {
        struct snapshot *s = user;
        s->froze = r == 0;
        if (r < 0)
                fail_errno(s, r, "freeze the session");
        if (r < 0 || s->cancelled)
                maybe_thaw(s);
        else
                begin(s);
}

/* ---- start --------------------------------------------------------------------------------------------------------------------- */

static int prepare(struct snapshot *s, const char *name, struct error *e) {
        struct session *se = s->use.session;
        if (!se->ss->cfg.images)
                return error_say(e, -EOPNOTSUPP, "there is no store of images");
        if (se->snapshot)
                return error_say(e, -EBUSY, "a snapshot of this session is being made");
        s->store = se->ss->cfg.images;
        s->parent = se->lease ? image_chain_ref(se->lease->chain) : image_chain_base(s->store, se->spec.image);
        s->name = name ? strdup(name) : NULL;
        if (!s->parent || (name && !s->name))
                return error_set(e, -ENOMEM, "make a snapshot");
        if (se->lease)
                s->config = *se->lease->config;
        snprintf(s->source, sizeof s->source, "session %s", se->id);
        return 0;
}

int session_snapshot(struct sessions *ss, const char *id, const char *name, snapshot_done done, void *user, struct snapshot **ret, struct error *e) {
        struct snapshot *s = calloc(1, sizeof *s);
        if (!s)
                return error_set(e, -ENOMEM, "make a snapshot");
        s->done = done;
        s->user = user;
        capture_init(&s->err, REASON_MAX, 0, UINT64_MAX, -1);  /* without a tail it needs no memory */
        int r = session_use_begin(ss, id, &s->use, NULL);
        if (r < 0)
                error_set(e, r, "snapshot");
        else
                r = prepare(s, name, e);
        struct sandbox *sb = r == 0 ? session_sandbox(s->use.session) : NULL;
        if (r == 0)
                r = sb ? sandbox_freeze(sb, frozen, s) : -EAGAIN;
        if (r < 0 && sb)
                error_set(e, r, "freeze the session");
        if (r < 0) {
                session_use_end(&s->use);
                image_chain_unref(s->parent);
                capture_release(&s->err);
                free(s->name);
                free(s);
                return r;
        }
        s->use.session->snapshot = s;
        *ret = s;
        return 0;
}

void snapshot_cancel(struct snapshot *s) {
        static const struct error cancelled = { .code = -ECANCELED, .text = "cancelled" };
        s->cancelled = true;
        fail(s, IMAGE_CANCELLED, &cancelled);
        if (s->want) {
                image_want_cancel(TAKE_PTR(s->want));
                maybe_thaw(s);
        }
}

/* ---- changes ------------------------------------------------------------------------------------------------------------------- */

struct changes {
        struct session_use use;
        changes_done done;
        void *user;
        struct output_capture out, err;
        bool cancelled;
};

static void changes_free(struct changes *c) {
        session_use_end(&c->use);
        capture_release(&c->out);
        capture_release(&c->err);
        free(c);
}

static void listed(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct changes *c = user;
        struct error e = { 0 };
        int r = 0;
        if (c->use.session->ending)
                r = error_say(&e, -ESHUTDOWN, "the session has ended");
        else if (!end->started)
                r = error_say(&e, -EIO, "%s", end->error.text);
        else if (end->timed_out)
                r = error_say(&e, -ETIMEDOUT, "it took too long");
        else if (end->status != 0)
                r = error_say(&e, -EIO, "%.*s", (int)strcspn(buf_str(&c->err.head), "\n"), buf_str(&c->err.head));
        if (!c->cancelled)
                c->done(r, buf_str(&c->out.head), c->out.head.len, &e, c->user);
        changes_free(c);
}

int session_changes(struct sessions *ss, const char *id, uint64_t offset, uint64_t limit, changes_done done, void *user, struct changes **ret,
                    struct error *e) {
        char from[24], most[24];
        struct changes *c = calloc(1, sizeof *c);
        if (!c)
                return error_set(e, -ENOMEM, "list changes");
        c->done = done;
        c->user = user;
        capture_init(&c->out, CHANGES_ANSWER_MAX + 1, 0, UINT64_MAX, -1);      /* without a tail it needs no memory */
        capture_init(&c->err, REASON_MAX, 0, UINT64_MAX, -1);
        int r = session_use_begin(ss, id, &c->use, NULL);
        struct sandbox *sb = r == 0 ? session_sandbox(c->use.session) : NULL;
        snprintf(from, sizeof from, "%llu", (unsigned long long)offset);
        snprintf(most, sizeof most, "%llu", (unsigned long long)limit);
        const struct exec_spec spec = {
                .argv = (const char *const[]){ "changes", "json", from, most, NULL }, .env = (const char *const[]){ NULL }, .cwd = "/", .stdin_fd = -1, .out = &c->out,
                .err = &c->err, .helper = true, .helper_upper = true, .output_bytes = UINT64_MAX, .timeout_ms = 60 * 1000,
        };
        if (r == 0)
                r = sb ? sandbox_exec(sb, &spec, listed, c, NULL, e) : -EAGAIN;
        if (r < 0) {
                changes_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

void changes_cancel(struct changes *c) { c->cancelled = true; }
