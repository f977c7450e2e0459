/* Changes of the store: an image is added, named, or removed. One at a time, in the order in which they were asked for: decided on the loop,
 * written on the pool, and in memory when it is on disk; except that what is removed leaves memory first, so that nobody finds it while it goes. */
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/strv.h"
#include "store/image_store_private.h"

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
        buf_init(&op->record, IMAGE_RECORD_MAX);
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
        if (op->r == 0 && op->write_record && (op->r = map_add(&st->images, &op->img->node)) == 0) {
                op->img->durable = true;
                op->own = false;
                st->n_images++;
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
                image_unpin(img);
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
                image_unpin(op->img);
                image_free(op->img);
                op->own = false;
                op->img = container_of(n, struct image, node);
                image_use(op->img);
                return 0;
        }
        if (st->n_images >= IMAGE_IMAGES_MAX)
                return -E2BIG;
        op->write_record = true;
        image_record_file(op->img->digest, op->record_name);
        return image_record_write(op->img, &op->record);
}

void image_changes_step(struct image_store *st) {
        struct image_op *op = st->ops;
        if (!op || st->op_running)
                return;
        struct error e;
        int r = op->kind == OP_ADD ? prepare_add(op) : 0;
        if (r == 0 && op->kind != OP_FORGET && st->n_names + strv_len((const char *const *)op->names) > IMAGE_NAMES_MAX)
                r = -E2BIG;
        op->write_names = op->kind == OP_FORGET || op->names[0];
        if (op->kind == OP_FORGET)
                image_record_file(op->digest, op->record_name);
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
        image_pin(img);
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
        int r = image_name_given(name, full, e);
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

void image_forget(struct image_store *st, const char *digest, image_done done, void *user) {
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
                image_take_out(img);
        } else
                image_name_drop(st, name);
        image_forget(st, digest, done, user);
        return 0;
}
