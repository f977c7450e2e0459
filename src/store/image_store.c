/* The store's index: what images there are, by digest and by name, and who uses them; its start and its end.
 *
 * On disk, below $BRIG_HOME/images (the daemon's; the layers themselves are the spawner's):
 *
 *     <digest>.json   one image, written once; its time of modification is that of its last use
 *     names           all names, replaced as a whole
 *
 * Order is what makes a crash harmless: layers are published before a record names them, a record is on disk before a name does. At the start
 * a record whose layers are not all there is deleted, and a name without a record is forgotten. What changes the index, and the disk with
 * it, is in image_change.c; what goes when there is no room, in image_evict.c. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "store/image_store_private.h"

static void step(uv_idle_t *idle);

void image_store_wake(struct image_store *st) { uv_idle_start(&st->idle, step); }

/* ---- images in memory ---- */

static const char *image_key(const struct map_node *n) { return container_of(n, struct image, node)->digest; }

void image_unpin(struct image *img) {
        for (size_t i = img->n; i-- > 0;)
                if (img->layers[i])
                        cached_layer_unpin(img->layers[i]);
}

void image_pin(struct image *img) {
        for (size_t i = 0; i < img->n; i++)
                cached_layer_pin(img->layers[i]);
}

void image_record_file(const char *digest, char ret[static SHA256_HEX + 8]) { snprintf(ret, SHA256_HEX + 8, "%s.json", digest); }

void image_take_out(struct image *img) {
        struct image_store *st = img->store;
        while (img->names && img->names[0]) {
                char name[IMAGE_NAME_MAX + 1];
                snprintf(name, sizeof name, "%s", img->names[0]);
                image_name_drop(st, name);
        }
        map_remove(&st->images, &img->node);
        st->n_images--;
        img->durable = false;
        image_unpin(img);
        if (img->users == 0)
                image_free(img);
}

static void touch(struct image *img) {
        img->used_ms = wall_ms();
        img->used_turn = ++img->store->turn;
}

void image_use(struct image *img) {
        if (img->users++ == 0 && img->durable) {
                char name[SHA256_HEX + 8];
                image_record_file(img->digest, name);
                (void)utimensat(img->store->dir_fd, name, NULL, AT_SYMLINK_NOFOLLOW);     /* best effort: the order of eviction after a restart */
        }
        touch(img);
}

void image_unuse(struct image *img) {
        struct image_store *st = img->store;
        ASSERT(img->users > 0);
        touch(img);
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

/* ---- start and end ---- */

static int read_record(struct image_store *st, const char *name) {
        _cleanup_buf_ struct buf b = BUF_INIT(IMAGE_RECORD_MAX);
        char want[SHA256_HEX + 8];
        struct image *img;
        struct stat sb;
        int r = fs_read_file(st->dir_fd, name, &b);
        if (r == 0)
                r = image_record_read(st, buf_str(&b), b.len, &img);
        if (r < 0)
                return r;
        image_record_file(img->digest, want);
        r = strcmp(want, name) == 0 ? map_add(&st->images, &img->node) : -EBADMSG;
        if (r < 0) {
                image_free(img);
                return r;
        }
        st->n_images++;
        img->durable = true;
        img->used_ms = fstatat(st->dir_fd, name, &sb, AT_SYMLINK_NOFOLLOW) == 0 ? (int64_t)sb.st_mtim.tv_sec * 1000 + sb.st_mtim.tv_nsec / 1000000 : img->created_ms;
        image_pin(img);
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
        image_changes_step(st);
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
