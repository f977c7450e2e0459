/* Shared by the files of the image store; nobody else includes it. */
#pragma once
#include "base/map.h"
#include "store/box.h"
#include "store/image_store.h"
#include "store/layer_cache.h"

struct image_chain {
        struct image_store *store;
        unsigned refs;
        char *base;
        char base_key[SHA256_HEX];         /* "" over scratch */
        char key[SHA256_HEX];
        size_t n;
        struct cached_layer **layers;      /* in use */
        const char **ids;                  /* n and NULL */
};

struct image_want {
        struct image_want *next;           /* of the layer's, or of those to be told */
        struct image_store *store;
        struct image_layer *layer;         /* NULL: to be told */
        struct image_chain *chain;         /* to be told: the answer, or NULL */
        enum image_failure failure;
        struct error error;
        struct image_want_callbacks cb;
        void *user;
};

enum layer_state {
        LAYER_WAITING,             /* for the loop, or its parents to be mounted */
        LAYER_MAKING,              /* `maker` has it */
        LAYER_PUBLISHING,
        LAYER_REMOVING,
};

struct image_layer {
        struct map_node node;              /* by key */
        struct image_store *store;
        struct image_layer *next_waiting;
        char key[SHA256_HEX];
        enum layer_state state;
        struct layer_manifest m;
        struct image_chain *parent;
        struct image_want *wants, *maker;  /* maker: one of them, or NULL when it was cancelled */
        struct image_chain_opening *opening;
        enum image_failure failure; struct error error;        /* while being removed: what is then said */
        struct cached_layer *instead;      /* while being removed: there is one like it, in use */
        /* image_layer_unpack, image_layer_run */
        struct box *box;
        struct image_unpack_state *unpack;
        struct image_run_state *run;
};

struct image {
        struct map_node node;              /* by digest */
        struct image_store *store;
        char digest[SHA256_HEX];
        struct image_config config;
        enum image_origin origin;
        char *base, *source;
        char base_key[SHA256_HEX];
        size_t n;
        char (*keys)[SHA256_HEX];          /* of its layers, bottom first */
        struct cached_layer **layers;      /* pinned */
        int64_t created_ms, used_ms;
        uint64_t used_turn;                /* which of two uses within a millisecond was the later one */
        unsigned users;
        bool durable;
        bool user_known; struct image_user user;       /* looked up when it is first acquired */
        char **names;
};

struct image_name { struct map_node node; char *name; struct image *image; };

struct image_store {
        uv_loop_t *loop;
        struct spawner *spawner;
        char *home;
        int dir_fd;                        /* $BRIG_HOME/images */
        uint64_t turn;                     /* of the last use of any image */
        struct layer_cache *cache;
        uint64_t pull_timeout_ms;
        struct map layers;                 /* being made */
        struct map images, names;
        size_t n_images, n_names;
        struct image_layer *waiting;       /* to be started from the loop */
        struct image_want *telling, **telling_last;
        struct image_op *ops, **ops_last;  /* changes on disk, one at a time */
        bool op_running;
        uv_idle_t idle;
        struct image_puller puller;
        struct image_acquisition *acquisitions;
        struct image_import *imports;
        unsigned busy;                     /* things under way that must end before the store can be freed */
        bool loaded, closing, closed_handle;
        void (*closed)(void *user);
        void *closed_user;
};

/* image_store.c */
void image_store_wake(struct image_store *st);             /* see to it that the loop comes by */
void image_store_done(struct image_store *st);             /* one of `busy` has ended */
#define IMAGE_RECORD_MAX (IMAGE_CONFIG_BYTES_MAX * 2)      /* bytes of <digest>.json */
void image_record_file(const char *digest, char ret[static SHA256_HEX + 8]);       /* its name */
void image_pin(struct image *img);                         /* keeps its layers from being evicted */
void image_unpin(struct image *img);
/* Out of the index, its names too; freed once nobody uses it. The disk does not know yet: image_forget follows. */
void image_take_out(struct image *img);

/* image_change.c */
void image_changes_step(struct image_store *st);           /* from the loop: starts the next one, if none is under way */
/* Says on disk what has left memory: the record of `digest` ("": of none) goes, and names that are no more. `done` may be NULL. */
void image_forget(struct image_store *st, const char *digest, image_done done, void *user);

/* image_evict.c */
void image_store_trim(struct image_store *st);             /* down to its size, as far as images can go */
/* A layer cannot be mounted: images that have it are no more. */
void image_store_lose(struct image_store *st, struct cached_layer *l);

/* image_chain.c */
struct image_chain *image_chain_new(struct image_store *st, const char *base, const char *base_key, const char *key, struct cached_layer *const *layers, size_t n);
struct image_chain *image_chain_extend(struct image_chain *c, const char *key, struct cached_layer *l);
/* Has all layers mounted. 1: they are; 0: `done` will run. */
struct image_chain_opening;
int image_chain_open(struct image_chain *c, void (*done)(int r, const struct error *e, void *user), void *user, struct image_chain_opening **ret);
void image_chain_open_cancel(struct image_chain_opening *o);

/* image_unpack.c: who was to be told of progress and output is not there any more. */
void image_layer_hush(struct image_layer *l);

/* image_layer.c */
const char *image_layer_node_key(const struct map_node *n);
void image_layers_step(struct image_store *st);            /* from the loop: starts and tells */
void image_layers_cancel(struct image_store *st);          /* the store closes */
/* Ends what was made in it: publishes, or gives the failure to all. */
void image_layer_end(struct image_layer *l, enum image_failure failure, const struct error *e);
enum image_failure image_failure_of(int r);                /* of an errno */

/* image_acquire.c */
void image_acquisitions_step(struct image_store *st);

/* image_names.c */
int image_names_read(struct image_store *st);
/* The text of the file with these changes: `name` (NULL: none) now means `img` (NULL: nothing); names of `gone` (NULL: none) left out. */
int image_names_text(struct image_store *st, const char *const *names, const struct image *img, const struct image *gone, struct buf *b);
int image_name_set(struct image_store *st, const char *name, struct image *img);
void image_name_drop(struct image_store *st, const char *name);
const char *image_name_node_key(const struct map_node *n);

/* image_record.c */
int image_record_write(const struct image *img, struct buf *b);
int image_record_read(struct image_store *st, const char *text, size_t n, struct image **ret);
void image_free(struct image *img);
int image_compute_digest(struct image *img);
