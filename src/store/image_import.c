#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/strv.h"
#include "sandbox/capture.h"
#include "store/image_import.h"
#include "store/image_manifest.h"
#include "store/image_store_private.h"

#define READ_TIMEOUT_MS 60000
#define INDEX_DEPTH_MAX 3

enum document { DOC_LAYOUT, DOC_INDEX, DOC_MANIFEST, DOC_DOCKER, DOC_CONFIG };

struct image_import {
        struct image_store *store;
        int fd;
        char *name, *select, *source;
        uint64_t timeout_ms;
        struct image_import_callbacks cb;
        void *user;
        bool cancelled, ended;
        enum image_failure failure; struct error error;
        struct image *image;
        struct image_want *want;
        struct image_chain *outer, *chain;     /* of the archive; of the image so far */
        struct sandbox *sandbox;               /* stands on outer */
        struct output_capture out, err;
        enum document reading;
        unsigned depth;                        /* of indexes */
        struct image_choice choice;
        struct image_config config;
        char **diff_ids;
        char config_digest[SHA256_HEX];
        size_t at;                             /* layer being made */
        struct image_layer *layer;             /* whose blob is about to be sent */
        bool sending, send_failed, sent_badly;
};

static void import_free(struct image_import *im) {
        struct image_store *st = im->store;
        if (im->outer) {
                char key[SHA256_HEX];
                memcpy(key, im->outer->key, sizeof key);
                bool kept = im->chain == im->outer;
                im->outer = image_chain_unref(im->outer);
                struct cached_layer *l = layer_cache_find(st->cache, key);
                if (l && !kept && cached_layer_idle(l))
                        cached_layer_discard(l);       /* the archive itself is of no use any more */
        }
        image_chain_unref(im->chain);
        image_config_release(&im->config);
        image_choice_release(&im->choice);
        strv_free(im->diff_ids);
        capture_release(&im->out);
        capture_release(&im->err);
        fd_close(im->fd);
        free(im->name);
        free(im->select);
        free(im->source);
        free(im);
        image_store_done(st);
}

/* Nothing runs any more. */
static void conclude(struct image_import *im) {
        if (im->image && im->cancelled)
                image_unuse(TAKE_PTR(im->image));
        if (!im->cancelled)
                im->cb.done(im->image, im->failure, &im->error, im->user);
        import_free(im);
}

static void maybe_conclude(struct image_import *im) {
        if (im->ended && !im->sandbox && !im->want)
                conclude(im);
}

/* What is known first is what is said; what runs is stopped. */
static void end(struct image_import *im, enum image_failure failure, const struct error *e) {
        if (!im->ended) {
                im->ended = true;
                im->failure = failure;
                if (e)
                        im->error = *e;
        }
        if (im->sandbox)
                sandbox_destroy(im->sandbox);          /* `gone` goes on */
        maybe_conclude(im);
}

static void fail(struct image_import *im, int r, const char *what) {
        struct error e;
        error_set(&e, r, "%s", what);
        end(im, image_failure_of(r), &e);
}

/* ---- the end: the image ---- */

static void added(struct image *img, enum image_failure failure, const struct error *e, void *user) {
        struct image_import *im = user;
        im->image = img;
        end(im, failure, e);
}

static int names_of(struct image_import *im, char ***ret) {
        char name[IMAGE_NAME_MAX + 1];
        int r = strv_ensure(ret);
        if (im->name)
                return r ? r : strv_push(ret, im->name);
        for (char **v = im->choice.names; r == 0 && v && *v; v++)
                if (image_name_normalize(*v, name, NULL) == 0 && !strv_contains((const char *const *)*ret, name))
                        r = strv_push(ret, name);
        return r;
}

static void keep(struct image_import *im) {
        struct error e;
        _cleanup_strv_ char **names = NULL;
        int r = names_of(im, &names);
        const struct image_add add = {
                .chain = im->chain, .config = &im->config, .digest = im->config_digest[0] ? im->config_digest : NULL, .origin = IMAGE_FROM_IMPORT,
                .source = im->source, .names = (const char *const *)names,
        };
        if (r < 0)
                error_set(&e, r, "name the image");
        else
                r = image_store_add(im->store, &add, added, im, &e);
        if (r < 0)
                end(im, image_failure_of(r), &e);
}

/* A tar of a root file system says nothing about itself. */
static void keep_file_system(struct image_import *im) {
        int r = image_config_set_env(&im->config, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        if (r < 0) {
                fail(im, r, "keep the image");
                return;
        }
        im->chain = im->outer;
        image_chain_ref(im->outer);
        keep(im);
}

/* ---- layers ---- */

static void next_layer(struct image_import *im);

static void on_progress(const struct image_progress *p, void *user) {
        struct image_import *im = user;
        char what[64];
        if (im->outer)
                snprintf(what, sizeof what, "layer %zu of %zu", im->at + 1, im->choice.n_layers);
        else
                snprintf(what, sizeof what, "archive");
        if (!im->cancelled && im->cb.progress)
                im->cb.progress(what, p, im->user);
}

static void sent(struct sandbox_exec *x, const struct exec_end *e, void *user) {
        struct image_import *im = user;
        const char *want = im->choice.layers[im->at].digest;
        _cleanup_buf_ struct buf out = BUF_INIT(256);
        im->sending = false;
        capture_text(&im->out, &out);
        im->send_failed = !e->started || e->sandbox_ended || !WIFEXITED(e->status) || (WEXITSTATUS(e->status) != 0 && WEXITSTATUS(e->status) != 2);
        im->sent_badly = !im->send_failed && (WEXITSTATUS(e->status) == 2 || (want[0] && strncmp(buf_str(&out), want, 64) != 0));
        if (!im->want && !im->ended)
                next_layer(im);                        /* the layer was made before this was known */
}

static int fresh_captures(struct image_import *im, size_t most) {
        capture_release(&im->out);
        capture_release(&im->err);
        int r = capture_init(&im->out, most, 0, most, -1);
        return r ? r : capture_init(&im->err, 4096, 0, 65536, -1);
}

static int start_sending(struct image_import *im, int to, struct error *e) {
        const char *const argv[] = { "send", im->choice.layers[im->at].path, NULL };
        const struct exec_fd fd = { to, HELPER_FIRST_FREE_FD };
        struct sandbox_exec *x;
        int r = fresh_captures(im, 4096);
        if (r < 0)
                return error_set(e, r, "read the archive");
        const struct exec_spec spec = { .argv = argv, .cwd = "/", .stdin_fd = -1, .out = &im->out, .err = &im->err, .helper = true, .fds = &fd, .n_fds = 1 };
        r = sandbox_exec(im->sandbox, &spec, sent, im, &x, e);
        im->sending = r == 0;
        return r;
}

static void make_layer(struct image_layer *l, void *user) {
        struct image_import *im = user;
        struct error e = { 0 };
        int p[2] = { -1, -1 };
        int r = pipe2(p, O_CLOEXEC) < 0 ? error_set(&e, -errno, "pipe") : im->ended ? error_say(&e, -ECANCELED, "cancelled") : start_sending(im, p[1], &e);
        if (r == 0) {
                const struct image_unpack u = { .fd = p[0], .diff_id = im->diff_ids[im->at], .timeout_ms = im->timeout_ms, .progress = on_progress, .progress_user = im };
                fd_close(TAKE_FD(p[1]));
                image_layer_unpack(l, &u);
        } else
                image_layer_abandon(l, image_failure_of(r), &e);
        fd_close(p[0]);
        fd_close(p[1]);
}

static void layer_made(struct image_chain *c, enum image_failure failure, const struct error *e, void *user) {
        struct image_import *im = user;
        im->want = NULL;
        if (im->ended || failure != IMAGE_OK) {
                image_chain_unref(c);
                struct error kept = failure != IMAGE_OK && e ? *e : (struct error){ 0 };
                if (!im->ended && failure != IMAGE_OK)
                        error_prefix(&kept, "layer %zu of %zu", im->at + 1, im->choice.n_layers);
                end(im, failure, &kept);
                return;
        }
        image_chain_unref(im->chain);
        im->chain = c;
        if (!im->sending)
                next_layer(im);
}

static void want_layer(struct image_import *im) {
        static const struct image_want_callbacks callbacks = { make_layer, layer_made };
        char key[SHA256_HEX];
        struct error e;
        int r = image_chain_id(im->chain->key, im->diff_ids[im->at], key);
        if (r < 0)
                error_set(&e, r, "name a layer");
        else
                r = image_layer_want(im->store, im->chain, key, &callbacks, im, &im->want, &e);
        if (r < 0)
                end(im, image_failure_of(r), &e);
}

/* The last one is made, and what was sent for it is known to be right. */
static void next_layer(struct image_import *im) {
        struct error e;
        if (im->sent_badly || im->send_failed) {
                error_say(&e, im->sent_badly ? -EBADMSG : -EIO, "layer %zu of %zu: %s", im->at + 1, im->choice.n_layers,
                          im->sent_badly ? "it is not in the archive, or not what its digest says" : "it could not be read");
                end(im, im->sent_badly ? IMAGE_INVALID : IMAGE_INTERNAL, &e);
                return;
        }
        if (im->chain->n <= im->at) {          /* called for the first */
                want_layer(im);
                return;
        }
        if (++im->at < im->choice.n_layers)
                want_layer(im);
        else
                keep(im);
}

/* ---- documents ---- */

static void read_document(struct image_import *im, enum document d, const char *path);

static void start_layers(struct image_import *im) {
        struct error e;
        if (strv_len((const char *const *)im->diff_ids) != im->choice.n_layers) {
                error_say(&e, -EBADMSG, "the image has %zu layers, and its configuration speaks of %zu", im->choice.n_layers, strv_len((const char *const *)im->diff_ids));
                end(im, IMAGE_INVALID, &e);
                return;
        }
        im->chain = image_chain_base(im->store, IMAGE_SCRATCH);
        if (!im->chain)
                fail(im, -ENOMEM, "import the image");
        else if (im->choice.n_layers == 0)
                keep(im);
        else
                next_layer(im);
}

static int check_digest(const char *want, const struct buf *b, struct error *e) {
        char hash[SHA256_HEX];
        if (!want[0])
                return 0;
        int r = sha256_hex(buf_str(b), b->len, hash);
        if (r < 0)
                return error_set(e, r, "check a digest");
        return strcmp(hash, want) == 0 ? 0 : error_say(e, -EBADMSG, "a document of the archive has the digest sha256:%s, not sha256:%s as was said", hash, want);
}

static int take_index(struct image_import *im, const struct json *doc, struct error *e) {
        if (++im->depth > INDEX_DEPTH_MAX)
                return error_say(e, -EBADMSG, "indexes within indexes in the archive");
        struct image_choice *c = calloc(1, sizeof *c);
        int r = c ? image_index_choose(doc, im->depth == 1 ? im->select : NULL, c, e) : error_set(e, -ENOMEM, "read the archive");
        if (r == 0) {
                char **names = im->depth == 1 ? TAKE_PTR(c->names) : TAKE_PTR(im->choice.names);
                image_choice_release(&im->choice);
                image_choice_release(c);
                im->choice = *c;
                im->choice.names = names;
                read_document(im, c->is_index ? DOC_INDEX : DOC_MANIFEST, c->manifest.path);
        }
        free(c);
        return r;
}

static int take_docker(struct image_import *im, const struct json *doc, struct error *e) {
        int r = image_docker_choose(doc, im->select, &im->choice, e);
        if (r == 0)
                read_document(im, DOC_CONFIG, im->choice.config.path);
        return r;
}

static int take_document(struct image_import *im, const struct buf *b, struct error *e) {
        struct json doc;
        if (im->reading == DOC_LAYOUT) {
                read_document(im, DOC_INDEX, "index.json");
                return 0;
        }
        int r = json_parse(buf_str(b), b->len, &doc, e);
        if (r < 0) {
                error_prefix(e, "a document of the archive");
                return -EBADMSG;
        }
        switch (im->reading) {
        case DOC_INDEX:
                r = im->depth > 0 ? check_digest(im->choice.manifest.digest, b, e) : 0;
                return r ? r : take_index(im, &doc, e);
        case DOC_MANIFEST:
                r = check_digest(im->choice.manifest.digest, b, e);
                r = r ? r : image_manifest_parse(&doc, &im->choice, e);
                if (r == 0)
                        read_document(im, DOC_CONFIG, im->choice.config.path);
                return r;
        case DOC_DOCKER: return take_docker(im, &doc, e);
        case DOC_CONFIG:
                r = check_digest(im->choice.config.digest, b, e);
                r = r ? r : sha256_hex(buf_str(b), b->len, im->config_digest);
                r = r ? r : image_config_parse(&doc, &im->config, &im->diff_ids, e);
                if (r == 0 && im->config.architecture && im->config.architecture[0] && strcmp(im->config.architecture, IMAGE_ARCHITECTURE) != 0)
                        r = error_say(e, -EBADMSG, "the image is for %.40s, not " IMAGE_ARCHITECTURE, im->config.architecture);
                if (r == 0)
                        start_layers(im);
                return r;
        default: return error_set(e, -EPROTO, "read the archive");
        }
}

/* Where it is not: an archive of another kind. */
static void document_missing(struct image_import *im) {
        struct error e;
        if (im->reading == DOC_LAYOUT)
                read_document(im, DOC_DOCKER, "manifest.json");
        else if (im->reading == DOC_DOCKER)
                keep_file_system(im);
        else {
                error_say(&e, -EBADMSG, "a document that the archive speaks of is not in it");
                end(im, IMAGE_INVALID, &e);
        }
}

static void was_read(struct sandbox_exec *x, const struct exec_end *en, void *user) {
        struct image_import *im = user;
        struct error e = { 0 };
        if (im->ended)
                return;
        bool exited = en->started && !en->sandbox_ended && !en->output_limit && WIFEXITED(en->status);
        if (exited && WEXITSTATUS(en->status) == 2) {
                document_missing(im);
                return;
        }
        if (!exited || WEXITSTATUS(en->status) != 0) {
                error_say(&e, -EBADMSG, "a document of the archive is larger than %u bytes, or cannot be read", IMAGE_DOCUMENT_MAX);
                end(im, IMAGE_INVALID, &e);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(IMAGE_DOCUMENT_MAX + 1);
        int r = buf_add(&b, im->out.head.data, im->out.head.len);
        if (r < 0)
                error_set(&e, r, "read the archive");
        else
                r = take_document(im, &b, &e);
        if (r < 0)
                end(im, r == -ENOENT ? IMAGE_INVALID : image_failure_of(r), &e);
}

static void read_document(struct image_import *im, enum document d, const char *path) {
        const char *const argv[] = { "read-file", "root", path, NULL };
        struct sandbox_exec *x;
        struct error e;
        im->reading = d;
        int r = fresh_captures(im, IMAGE_DOCUMENT_MAX);
        const struct exec_spec spec = { .argv = argv, .cwd = "/", .stdin_fd = -1, .out = &im->out, .err = &im->err, .timeout_ms = READ_TIMEOUT_MS, .helper = true,
                                        .output_bytes = IMAGE_DOCUMENT_MAX };
        if (r < 0)
                error_set(&e, r, "read the archive");
        else
                r = sandbox_exec(im->sandbox, &spec, was_read, im, &x, &e);
        if (r < 0)
                end(im, image_failure_of(r), &e);
}

/* ---- the sandbox on the archive ---- */

static void ready(struct sandbox *s, void *user) {
        struct image_import *im = user;
        if (!im->ended)
                read_document(im, DOC_LAYOUT, "oci-layout");
}

static void failed(struct sandbox *s, const char *step, const struct error *e, void *user) {
        struct image_import *im = user;
        struct error mine = *e;
        error_prefix(&mine, "%s", step);
        end(im, IMAGE_INTERNAL, &mine);
}

static void gone(struct sandbox *s, const struct sandbox_end *en, void *user) {
        struct image_import *im = user;
        struct error e;
        im->sandbox = NULL;
        if (!im->ended) {
                error_say(&e, -EIO, "the sandbox that reads the archive ended");
                im->ended = true;
                im->failure = IMAGE_INTERNAL;
                im->error = e;
        }
        maybe_conclude(im);
}

static void stand(struct image_import *im) {
        static const struct sandbox_callbacks callbacks = { .ready = ready, .failed = failed, .gone = gone };
        struct error e;
        struct sandbox_spec s = { .id = "import", .profile = PROFILE_SCORE, .image = IMAGE_SCRATCH, .layers = im->outer->ids, .upper = UPPER_TMPFS, .network = NETWORK_NONE };
        sandbox_limits_default(&s.limits);
        s.limits.memory_bytes = 256 << 20;
        s.limits.disk_bytes = 1 << 20;
        s.limits.inodes = 1024;
        int r = sandbox_create(im->store->spawner, &s, &callbacks, im, &im->sandbox, &e);
        if (r < 0)
                end(im, image_failure_of(r), &e);
}

/* ---- the archive ---- */

static void make_outer(struct image_layer *l, void *user) {
        struct image_import *im = user;
        const struct image_unpack u = { .fd = im->fd, .no_whiteouts = true, .name_by_content = true, .timeout_ms = im->timeout_ms, .progress = on_progress, .progress_user = im };
        image_layer_unpack(l, &u);
}

static void outer_made(struct image_chain *c, enum image_failure failure, const struct error *e, void *user) {
        struct image_import *im = user;
        im->want = NULL;
        im->outer = c;
        if (failure != IMAGE_OK || im->ended)
                end(im, failure, e);
        else
                stand(im);
}

static int fill(struct image_import *im, const struct image_import_spec *spec, struct error *e) {
        char name[IMAGE_NAME_MAX + 1];
        int r = spec->name ? image_name_given(spec->name, name, e) : 0;
        if (r < 0)
                return r;
        im->fd = fcntl(spec->fd, F_DUPFD_CLOEXEC, 3);
        if (im->fd < 0)
                return error_set(e, -errno, "open the archive");
        im->name = spec->name ? strdup(name) : NULL;
        im->select = spec->select ? strdup(spec->select) : NULL;
        im->source = spec->source ? strdup(spec->source) : NULL;
        if ((spec->name && !im->name) || (spec->select && !im->select) || (spec->source && !im->source))
                return error_set(e, -ENOMEM, "import an image");
        return 0;
}

int image_import_start(struct image_store *st, const struct image_import_spec *spec, const struct image_import_callbacks *cb, void *user,
                       struct image_import **ret, struct error *e) {
        static const struct image_want_callbacks callbacks = { make_outer, outer_made };
        unsigned char raw[32];
        char key[SHA256_HEX];
        struct image_import *im = calloc(1, sizeof *im);
        if (!im)
                return error_set(e, -ENOMEM, "import an image");
        *im = (struct image_import){ .store = st, .fd = -1, .timeout_ms = spec->timeout_ms, .cb = *cb, .user = user };
        st->busy++;
        random_bytes(raw, sizeof raw);
        hex_encode(raw, sizeof raw, key);
        int r = fill(im, spec, e);
        struct image_chain *nothing = r < 0 ? NULL : image_chain_base(st, IMAGE_SCRATCH);
        if (r == 0 && !nothing)
                r = error_set(e, -ENOMEM, "import an image");
        if (r == 0)
                r = image_layer_want(st, nothing, key, &callbacks, im, &im->want, e);
        image_chain_unref(nothing);
        if (r < 0) {
                import_free(im);
                return r;
        }
        *ret = im;
        return 0;
}

void image_import_cancel(struct image_import *im) {
        struct error e;
        im->cancelled = true;
        if (im->want)
                image_want_cancel(TAKE_PTR(im->want));
        end(im, IMAGE_CANCELLED, (error_say(&e, -ECANCELED, "cancelled"), &e));
}
