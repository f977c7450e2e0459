/* The store: what images there are, by digest and by name, what is used, what goes; and the queue of changes on disk.
 *
 * On disk, below $BRIG_HOME/images (the daemon's; the layers themselves are the spawner's):
 *
 *     <digest>.json   one image, written once; its time of modification is that of its last use
 *     names           all names, replaced as a whole
 *
 * Order is what makes a crash harmless: layers are published before a record names them, a record is on disk before a name does. At the start
 * a record whose layers are not all there is deleted, and a name without a record is forgotten. Changes run one at a time on the pool; what is
 * in memory follows when they are on disk, except that what is removed leaves memory first. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strv.h"
#include "store/image_store_private.h"

#define RECORD_MAX (IMAGE_CONFIG_BYTES_MAX * 2)

enum op_kind { OP_ADD, OP_TAG, OP_FORGET };

struct image_op {
        uv_work_t work;
        struct image_op *next;
        struct image_store *store;
        enum op_kind kind;
        struct image *img;                 /* ADD, TAG: used by the operation */
        char digest[SHA256_HEX];           /* FORGET: whose record goes, or "" */
        char **names;
        char record_name[SHA256_HEX + 8];
        struct buf record, name_list;
        bool own;                          /* ADD: img is in no table yet */
        bool write_record, write_names;
        int r;
        image_done done;
        void *user;
};

static void step(uv_idle_t *idle);

void image_store_wake(struct image_store *st) { uv_idle_start(&st->idle, step); }

/* ---- images in memory ---- */

static const char *image_key(const struct map_node *n) { return container_of(n, struct image, node)->digest; }

static void unpin(struct image *img) {
        for (size_t i = img->n; i-- > 0;)
                if (img->layers[i])
                        cached_layer_unpin(img->layers[i]);
}

static void pin(struct image *img) {
        for (size_t i = 0; i < img->n; i++)
                cached_layer_pin(img->layers[i]);
}

static void file_name(const char *digest, char ret[static SHA256_HEX + 8]) { snprintf(ret, SHA256_HEX + 8, "%s.json", digest); }

/* Out of the tables; freed once nobody uses it. */
static void take_out(struct image *img) {
        struct image_store *st = img->store;
        while (img->names && img->names[0]) {
                char name[IMAGE_NAME_MAX + 1];
                snprintf(name, sizeof name, "%s", img->names[0]);
                image_name_drop(st, name);
        }
        map_remove(&st->images, &img->node);
        st->n_images--;
        img->durable = false;
        unpin(img);
        if (img->users == 0)
                image_free(img);
}

void image_use(struct image *img) {
        if (img->users++ == 0 && img->durable) {
                char name[SHA256_HEX + 8];
                file_name(img->digest, name);
                (void)utimensat(img->store->dir_fd, name, NULL, AT_SYMLINK_NOFOLLOW);     /* best effort: the order of eviction after a restart */
        }
        img->used_ms = wall_ms();
}

void image_unuse(struct image *img) {
        struct image_store *st = img->store;
        ASSERT(img->users > 0);
        img->used_ms = wall_ms();
        if (--img->users > 0)
                return;
        if (!img->durable)
                image_free(img);
        else
                image_store_trim(st);
}

struct image *image_find(struct image_store *st, const char *ref) {
        char name[IMAGE_NAME_MAX + 1];
        if (image_name_normalize(ref, name, NULL) < 0)
                return NULL;
        struct map_node *n = map_find(&st->names, name);
        if (n)
                return container_of(n, struct image_name, node)->image;
        const char *hex = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name;
        size_t len = strlen(hex);
        if (len < 12 || len > 64 || strspn(hex, "0123456789abcdef") != len)
                return NULL;
        n = map_find(&st->images, hex);
        if (n || len == 64)
                return n ? container_of(n, struct image, node) : NULL;
        struct image *found = NULL;
        for (size_t b = 0; b < st->images.n_buckets; b++)
                for (struct map_node *at = st->images.buckets[b]; at; at = at->next) {
                        struct image *img = container_of(at, struct image, node);
                        if (strncmp(img->digest, hex, len) != 0)
                                continue;
                        if (found)
                                return NULL;   /* of two: neither */
                        found = img;
                }
        return found;
}

void image_info(const struct image *img, struct image_info *ret) {
        static const char *const none[] = { NULL };
        *ret = (struct image_info){
                .base = img->base, .n_layers = img->n, .origin = img->origin, .source = img->source, .created_ms = img->created_ms, .used_ms = img->used_ms,
                .users = img->users, .config = &img->config, .names = img->names ? (const char *const *)img->names : none,
        };
        memcpy(ret->digest, img->digest, sizeof ret->digest);
        for (size_t i = 0; i < img->n; i++)
                ret->bytes += cached_layer_manifest(img->layers[i])->bytes;
}

struct each { void (*f)(struct image *img, void *user); void *user; };
static void each_one(struct map_node *n, void *user) {
        const struct each *e = user;
        e->f(container_of(n, struct image, node), e->user);
}
void image_store_each(struct image_store *st, void (*f)(struct image *img, void *user), void *user) {
        struct each e = { f, user };
        map_each(&st->images, each_one, &e);
}

uint64_t image_store_bytes(const struct image_store *st) { return layer_cache_bytes(st->cache); }
uint64_t image_store_bytes_max(const struct image_store *st) { return layer_cache_max(st->cache); }

/* ---- changes ---- */

static void op_free(struct image_op *op) {
        strv_free(op->names);
        buf_release(&op->record);
        buf_release(&op->name_list);
        free(op);
}

static struct image_op *op_new(struct image_store *st, enum op_kind kind, const char *const *names) {
        struct image_op *op = calloc(1, sizeof *op);
        int r = op ? strv_ensure(&op->names) : -ENOMEM;
        for (size_t i = 0; r == 0 && names && names[i]; i++)
                r = strv_push(&op->names, names[i]);
        if (r < 0) {
                if (op)
                        op_free(op);
                return NULL;
        }
        op->store = st;
        op->kind = kind;
        op->work.data = op;
        buf_init(&op->record, RECORD_MAX);
        buf_init(&op->name_list, IMAGE_NAMES_MAX * 400ull);
        return op;
}

static void op_queue(struct image_op *op) {
        struct image_store *st = op->store;
        *st->ops_last = op;
        st->ops_last = &op->next;
        st->busy++;
        image_store_wake(st);
}

/* On the pool: nothing but bytes. */
static void op_work(uv_work_t *w) {
        struct image_op *op = w->data;
        int dir = op->store->dir_fd;
        if (op->write_record)
                op->r = fs_write_atomic(dir, op->record_name, buf_str(&op->record), op->record.len, 0644);
        if (op->r == 0 && op->write_names)
                op->r = fs_write_atomic(dir, "names", buf_str(&op->name_list), op->name_list.len, 0644);
        if (op->r == 0 && op->kind == OP_FORGET && op->digest[0] && unlinkat(dir, op->record_name, 0) < 0 && errno != ENOENT)
                op->r = -errno;
}

static void apply(struct image_op *op) {
        struct image_store *st = op->store;
        if (op->r == 0 && op->write_record) {
                op->img->durable = true;
                op->own = false;
                op->r = map_add(&st->images, &op->img->node);
                st->n_images += op->r == 0;
        }
        for (size_t i = 0; op->r == 0 && op->kind != OP_FORGET && op->names[i]; i++)
                op->r = image_name_set(st, op->names[i], op->img);
}

/* Bytes that cannot be had again beside it: then there is no room for it. */
static bool no_room(struct image_store *st) {
        image_store_trim(st);
        return layer_cache_bytes(st->cache) > layer_cache_max(st->cache);
}

static void finish(struct image_op *op, enum image_failure failure, const struct error *e) {
        struct image_store *st = op->store;
        struct image *img = op->img, *give = NULL;
        if (op->kind == OP_ADD && failure == IMAGE_OK)
                give = img;                    /* with the operation's use */
        else if (op->own) {
                unpin(img);
                image_free(img);
                img = NULL;
        }
        if (op->kind == OP_TAG && failure == IMAGE_OK)
                give = img;
        if (op->done)
                op->done(give, failure, e, op->user);
        if (img && !(op->kind == OP_ADD && give))
                image_unuse(img);
        op_free(op);
        image_store_done(st);
}

static void op_after(uv_work_t *w, int status) {
        struct image_op *op = w->data;
        struct image_store *st = op->store;
        struct error e = { 0 };
        st->op_running = false;
        st->ops = op->next;
        if (!st->ops)
                st->ops_last = &st->ops;
        apply(op);
        enum image_failure failure = image_failure_of(op->r);
        if (op->r < 0)
                error_set(&e, op->r, "write the images");
        else if (op->kind == OP_ADD && op->write_record && (op->img->origin == IMAGE_FROM_IMPORT || op->img->origin == IMAGE_FROM_SNAPSHOT) && no_room(st)) {
                failure = IMAGE_DISK_FULL;
                error_say(&e, -EDQUOT, "the store of images is full: what cannot be had again takes all of %llu bytes", (unsigned long long)layer_cache_max(st->cache));
        }
        if (st->ops)
                image_store_wake(st);
        if (failure == IMAGE_DISK_FULL && e.code == -EDQUOT) {
                struct image *img = op->img;
                op->img = NULL;
                op->write_record = false;
                image_remove(st, img->digest, NULL, NULL, NULL);
                image_unuse(img);
        }
        finish(op, failure, &e);
}

/* An image that is there already is that one. */
static int prepare_add(struct image_op *op) {
        struct image_store *st = op->store;
        struct map_node *n = map_find(&st->images, op->img->digest);
        if (n) {
                unpin(op->img);
                image_free(op->img);
                op->own = false;
                op->img = container_of(n, struct image, node);
                image_use(op->img);
                return 0;
        }
        if (st->n_images >= IMAGE_IMAGES_MAX)
                return -E2BIG;
        op->write_record = true;
        file_name(op->img->digest, op->record_name);
        return image_record_write(op->img, &op->record);
}

static void op_start(struct image_store *st) {
        struct image_op *op = st->ops;
        struct error e;
        int r = op->kind == OP_ADD ? prepare_add(op) : 0;
        if (r == 0 && op->kind != OP_FORGET && st->n_names + strv_len((const char *const *)op->names) > IMAGE_NAMES_MAX)
                r = -E2BIG;
        op->write_names = op->kind == OP_FORGET || op->names[0];
        if (op->kind == OP_FORGET)
                file_name(op->digest, op->record_name);
        if (r == 0 && op->write_names)
                r = image_names_text(st, (const char *const *)op->names, op->kind == OP_FORGET ? NULL : op->img, NULL, &op->name_list);
        st->op_running = true;
        if (r == 0)
                r = uv_queue_work(st->loop, &op->work, op_work, op_after);
        if (r == 0)
                return;
        st->op_running = false;
        st->ops = op->next;
        if (!st->ops)
                st->ops_last = &st->ops;
        else
                image_store_wake(st);
        finish(op, image_failure_of(r), (error_set(&e, r, "keep the image"), &e));
}

static struct image *image_from(struct image_store *st, const struct image_add *a) {
        const struct image_chain *c = a->chain;
        struct image *img = calloc(1, sizeof *img);
        if (!img)
                return NULL;
        *img = (struct image){ .store = st, .origin = a->origin, .n = c->n, .created_ms = wall_ms(), .used_ms = wall_ms(), .users = 1 };
        img->base = strdup(c->base);
        img->source = a->source ? strdup(a->source) : NULL;
        img->keys = calloc(c->n + 1, sizeof *img->keys);
        img->layers = calloc(c->n + 1, sizeof *img->layers);
        memcpy(img->base_key, c->base_key, sizeof img->base_key);
        if (!img->base || (a->source && !img->source) || !img->keys || !img->layers || image_config_copy(a->config, &img->config) < 0)
                goto fail;
        for (size_t i = 0; i < c->n; i++) {
                img->layers[i] = c->layers[i];
                memcpy(img->keys[i], cached_layer_manifest(c->layers[i])->key, SHA256_HEX);
        }
        if (a->digest)
                snprintf(img->digest, sizeof img->digest, "%s", a->digest);
        else if (image_compute_digest(img) < 0)
                goto fail;
        pin(img);
        return img;
fail:
        image_free(img);
        return NULL;
}

int image_store_add(struct image_store *st, const struct image_add *a, image_done done, void *user, struct error *e) {
        struct image_op *op = op_new(st, OP_ADD, a->names);
        struct image *img = op ? image_from(st, a) : NULL;
        if (!img) {
                if (op)
                        op_free(op);
                return error_set(e, -ENOMEM, "keep the image");
        }
        op->img = img;
        op->own = true;
        op->done = done;
        op->user = user;
        op_queue(op);
        return 0;
}

int image_tag(struct image_store *st, struct image *img, const char *name, image_done done, void *user, struct error *e) {
        char full[IMAGE_NAME_MAX + 1];
        int r = image_name_normalize(name, full, e);
        if (r < 0)
                return r;
        struct image_op *op = op_new(st, OP_TAG, (const char *const[]){ full, NULL });
        if (!op)
                return error_set(e, -ENOMEM, "name the image");
        image_use(img);
        op->img = img;
        op->done = done;
        op->user = user;
        op_queue(op);
        return 0;
}

/* Says on disk what has left memory. */
static void forget(struct image_store *st, const char *digest, image_done done, void *user) {
        struct image_op *op = op_new(st, OP_FORGET, NULL);
        if (!op) {                             /* the next start does it: its layers are not there */
                if (done)
                        done(NULL, IMAGE_OK, NULL, user);
                return;
        }
        snprintf(op->digest, sizeof op->digest, "%s", digest);
        op->done = done;
        op->user = user;
        op_queue(op);
}

int image_remove(struct image_store *st, const char *ref, image_done done, void *user, struct error *e) {
        char name[IMAGE_NAME_MAX + 1], digest[SHA256_HEX] = "";
        struct image *img = image_find(st, ref);
        if (!img)
                return error_say(e, -ENOENT, "there is no image '%.100s'", ref);
        image_name_normalize(ref, name, NULL);
        bool by_name = map_find(&st->names, name) != NULL;
        bool last = !by_name || strv_len((const char *const *)img->names) == 1;
        if (last && img->users > 0 && done)
                return error_say(e, -EBUSY, "the image '%.100s' is in use", ref);
        if (last) {
                memcpy(digest, img->digest, sizeof digest);
                take_out(img);
        } else
                image_name_drop(st, name);
        forget(st, digest, done, user);
        return 0;
}

/* ---- eviction ---- */

static bool can_go(const struct image *img) {
        if (img->users > 0)
                return false;
        return img->origin == IMAGE_FROM_PULL || img->origin == IMAGE_FROM_BUILD || (img->origin == IMAGE_FROM_SNAPSHOT && !(img->names && img->names[0]));
}

static void older(struct map_node *n, void *user) {
        struct image **oldest = user, *img = container_of(n, struct image, node);
        if (can_go(img) && (!*oldest || img->used_ms < (*oldest)->used_ms))
                *oldest = img;
}

static bool evict_one(struct image_store *st) {
        struct image *oldest = NULL;
        char digest[SHA256_HEX];
        map_each(&st->images, older, &oldest);
        if (!oldest)
                return false;
        memcpy(digest, oldest->digest, sizeof digest);
        log_event(LOG_INFO, "image.evicted", "image", digest, NULL);
        take_out(oldest);
        forget(st, digest, NULL, NULL);
        return true;
}

void image_store_trim(struct image_store *st) {
        while (!st->closing && layer_cache_bytes(st->cache) > layer_cache_max(st->cache) && evict_one(st))
                ;
}

uint64_t image_store_shed(struct image_store *st, uint64_t bytes) {
        uint64_t shed = layer_cache_shed(st->cache, bytes);
        while (shed < bytes && evict_one(st))
                shed += layer_cache_shed(st->cache, bytes - shed);
        return shed;
}

struct losing { struct cached_layer *layer; struct image *image; };
static void has_it(struct map_node *n, void *user) {
        struct losing *l = user;
        struct image *img = container_of(n, struct image, node);
        for (size_t i = 0; i < img->n; i++)
                if (img->layers[i] == l->layer)
                        l->image = img;
}

void image_store_lose(struct image_store *st, struct cached_layer *layer) {
        struct losing l = { .layer = layer };
        cached_layer_use(layer);
        do {
                l.image = NULL;
                map_each(&st->images, has_it, &l);
                if (l.image) {
                        char digest[SHA256_HEX];
                        memcpy(digest, l.image->digest, sizeof digest);
                        take_out(l.image);
                        forget(st, digest, NULL, NULL);
                }
        } while (l.image);
        cached_layer_discard(layer);
        cached_layer_unuse(layer);
}

/* ---- start and end ---- */

static int read_record(struct image_store *st, const char *name) {
        _cleanup_buf_ struct buf b = BUF_INIT(RECORD_MAX);
        char want[SHA256_HEX + 8];
        struct image *img;
        struct stat sb;
        int r = fs_read_file(st->dir_fd, name, &b);
        if (r == 0)
                r = image_record_read(st, buf_str(&b), b.len, &img);
        if (r < 0)
                return r;
        file_name(img->digest, want);
        r = strcmp(want, name) == 0 ? map_add(&st->images, &img->node) : -EBADMSG;
        if (r < 0) {
                image_free(img);
                return r;
        }
        st->n_images++;
        img->durable = true;
        img->used_ms = fstatat(st->dir_fd, name, &sb, AT_SYMLINK_NOFOLLOW) == 0 ? (int64_t)sb.st_mtim.tv_sec * 1000 + sb.st_mtim.tv_nsec / 1000000 : img->created_ms;
        pin(img);
        return 0;
}

static int read_records(struct image_store *st) {
        int again = openat(st->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = again < 0 ? NULL : fdopendir(again);
        if (!d) {
                fd_close(again);
                return -errno;
        }
        int r = 0;
        for (const struct dirent *de; r != -ENOMEM && (de = readdir(d));) {
                size_t n = strlen(de->d_name);
                if (de->d_name[0] == '.') {
                        if (n > 2)
                                unlinkat(st->dir_fd, de->d_name, 0);   /* what a crash left half written */
                        continue;
                }
                if (n < 5 || strcmp(de->d_name + n - 5, ".json") != 0)
                        continue;
                r = read_record(st, de->d_name);
                if (r < 0 && r != -ENOMEM) {
                        log_event(LOG_WARN, "image.record_dropped", "file", de->d_name, "error", strerror(-r), NULL);
                        unlinkat(st->dir_fd, de->d_name, 0);
                }
        }
        closedir(d);
        return r == -ENOMEM ? r : image_names_read(st);
}

static void loaded(int r, const struct error *e, void *user) {
        struct image_store *st = user;
        if (r < 0)
                log_event(LOG_ERROR, "images.not_listed", "error", e ? e->text : "", NULL);
        else if ((r = read_records(st)) < 0)
                log_event(LOG_ERROR, "images.not_read", "error", strerror(-r), NULL);
        st->loaded = true;
        image_store_trim(st);
        image_store_wake(st);
        image_store_done(st);
}

static void idle_closed(uv_handle_t *h) {
        struct image_store *st = h->data;
        void (*closed)(void *user) = st->closed;
        void *user = st->closed_user;
        free(st->home);
        fd_close(st->dir_fd);
        free(st);
        if (closed)
                closed(user);
}

static void free_image_node(struct map_node *n, void *user) {
        struct image *img = container_of(n, struct image, node);
        map_remove(&img->store->images, n);
        image_free(img);
}

static void free_name_node(struct map_node *n, void *user) {
        struct image_name *in = container_of(n, struct image_name, node);
        map_remove(user, n);
        free(in->name);
        free(in);
}

static void maybe_free(struct image_store *st) {
        if (!st->closing || st->busy > 0 || st->closed_handle)
                return;
        st->closed_handle = true;
        map_each(&st->names, free_name_node, &st->names);
        map_each(&st->images, free_image_node, NULL);
        map_release(&st->names);
        map_release(&st->images);
        map_release(&st->layers);
        layer_cache_free(st->cache);
        uv_close((uv_handle_t *)&st->idle, idle_closed);
}

void image_store_done(struct image_store *st) {
        ASSERT(st->busy > 0);
        st->busy--;
        maybe_free(st);
}

static void step(uv_idle_t *idle) {
        struct image_store *st = idle->data;
        uv_idle_stop(idle);
        if (!st->loaded)
                return;
        st->busy++;
        if (st->ops && !st->op_running)
                op_start(st);
        image_acquisitions_step(st);
        image_layers_step(st);
        image_store_done(st);
}

int image_store_open(uv_loop_t *loop, struct spawner *sp, const struct image_store_config *cfg, struct image_store **ret, struct error *e) {
        char path[4096];
        struct image_store *st = calloc(1, sizeof *st);
        if (!st)
                return error_set(e, -ENOMEM, "images");
        *st = (struct image_store){ .loop = loop, .spawner = sp, .dir_fd = -1, .pull_timeout_ms = cfg->pull_timeout_ms };
        st->telling_last = &st->telling;
        st->ops_last = &st->ops;
        snprintf(path, sizeof path, "%s/images", cfg->home);
        st->home = strdup(cfg->home);
        st->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = st->dir_fd < 0 ? error_set(e, -errno, "open %s", path) : 0;
        if (r == 0 && (!st->home || map_init(&st->layers, image_layer_node_key) < 0 || map_init(&st->images, image_key) < 0 || map_init(&st->names, image_name_node_key) < 0 ||
                       !(st->cache = layer_cache_new(sp, cfg->max_bytes, 1u << LAYER_IMAGE))))
                r = error_set(e, -ENOMEM, "images");
        if (r == 0 && (r = layer_cache_load(st->cache, loaded, st)) < 0)
                error_set(e, r, "list the layers of images");
        if (r < 0) {
                layer_cache_free(st->cache);
                map_release(&st->layers);
                map_release(&st->images);
                map_release(&st->names);
                fd_close(st->dir_fd);
                free(st->home);
                free(st);
                return r;
        }
        st->busy = 1;                          /* the list */
        uv_idle_init(loop, &st->idle);
        st->idle.data = st;
        *ret = st;
        return 0;
}

void image_store_close(struct image_store *st, void (*done)(void *user), void *user) {
        if (!st) {
                done(user);
                return;
        }
        st->closing = true;
        st->closed = done;
        st->closed_user = user;
        image_layers_cancel(st);
        maybe_free(st);
}

void image_store_set_puller(struct image_store *st, const struct image_puller *p) { st->puller = *p; }
bool image_store_ready(const struct image_store *st) { return st->loaded; }
struct spawner *image_store_spawner(const struct image_store *st) { return st->spawner; }
uv_loop_t *image_store_loop(const struct image_store *st) { return st->loop; }
