/* Inside a build: what build*.c share. */
#pragma once
#include <uv.h>

#include "build/build.h"
#include "build/stage.h"
#include "store/box.h"

struct builder {
        struct image_store *store;
        char *directory;
        struct sandbox_limits limits;
        struct build *builds; size_t n_builds;             /* those whose memory is there, over or not */
        struct recipe *recipes; size_t n_recipes;          /* oldest first */
        struct image_puller rest;
        bool closing;
        void (*closed)(void *user); void *closed_user;
};

struct build_stage {
        char *name;                        /* NULL without */
        size_t from, end;                  /* instructions [from, end) */
        char *base;                        /* what FROM names, expanded */
        int base_stage;                    /* or this stage; -1 */
        bool needed;
        struct image_chain *chain;         /* when it is built */
        struct image_config config;
};

struct copy_step {                         /* the COPY or ADD that is being made */
        const struct instruction *i;
        char **sources; size_t n_sources;
        char *to, *chown, *mode;           /* destination, absolute; NULL without */
        bool from_context, directory;      /* the destination is written as one */
        struct image_chain *source;
        uint32_t uid, gid;
        bool set_owner, is_dir;            /* the destination is there and a directory */
        int fd;                            /* what is copied */
        bool archive, one_file;
        char hash[SHA256_HEX];
        char *target;                      /* where it is unpacked */
};

struct build {
        struct build *next, **prev;
        struct builder *builder;
        struct build_callbacks cb; void *user;
        struct dockerfile file;
        char *text; size_t text_len;
        char *path, *target, **args, **names;
        enum sandbox_network network;
        bool no_cache, once;
        int context;
        char context_hash[SHA256_HEX], once_name[IMAGE_NAME_MAX + 1];
        struct image_chain *context_chain;
        uint64_t deadline_ms;
        uv_timer_t timer;
        void (*then)(struct build *b);     /* when the context is there */

        struct build_stage *stages; size_t n_stages;
        size_t at_stage, at;               /* the stage, and the instruction in it */
        struct stage global, stage;
        struct image_chain *chain;         /* of the stage so far */
        unsigned step, steps;
        struct copy_step copy;

        /* At most one of these is under way. */
        struct image_acquisition *acquisition;
        void (*acquired)(struct build *b, struct image_lease *lease);
        struct image_want *want;
        void (*make)(struct build *b, struct image_layer *l);
        void (*made)(struct build *b, struct image_chain *c);
        bool making;
        struct box *box;
        void (*box_done)(struct build *b, const struct box_result *r);

        bool over;
        unsigned pending;                  /* handles, boxes and pool work that still refer to this */
};

/* ---- recipe.c ---- */
void recipes_free(struct builder *b);

/* ---- build.c ---- */
void build_fail(struct build *b, enum image_failure failure, const struct error *e);
void build_fail_text(struct build *b, enum image_failure failure, int code, const char *text);
/* The failure of the instruction `i`: its line is put before the text, where it is not there yet. */
void build_fail_at(struct build *b, const struct instruction *i, enum image_failure failure, const struct error *e);
void build_fault(struct build *b, const struct error *e);          /* the Dockerfile's: IMAGE_INVALID */
void build_finish(struct build *b, struct image *img);     /* it was built before: used, and given */
void build_advance(struct build *b);
void build_unpend(struct build *b);        /* one less refers to it; may free it, if it is over */
int build_check_text(struct build *b, struct error *e);
int build_check(const struct build_spec *spec, struct error *e);    /* as build_start would, without one */
void build_next(struct build *b);          /* this instruction is done */
const struct instruction *build_instruction(const struct build *b);
uint64_t build_remaining(const struct build *b);
void build_event(struct build *b, enum build_event_kind kind, const char *text, size_t len);
/* Sees that the layer `key` stands on `parent`; `make` if nobody has it, then `made` with the chain, which is taken over. */
void build_layer(struct build *b, struct image_chain *parent, const char *key, void (*make)(struct build *, struct image_layer *),
                 void (*made)(struct build *, struct image_chain *));
/* The new layer is the stage's: for `made`. */
void build_take_layer(struct build *b, struct image_chain *c);
void build_acquire(struct build *b, const char *ref, void (*acquired)(struct build *, struct image_lease *));
/* A verb of the helper over a chain; `fd` -1 or at HELPER_FIRST_FREE_FD. */
void build_helper(struct build *b, struct image_chain *c, const char *const *argv, int fd, void (*done)(struct build *, const struct box_result *));
/* The helper's answer in terms of a build: 0, or the build has failed. `fault`: a status of 1 is the Dockerfile's fault. */
int build_helper_ok(struct build *b, const struct box_result *r, const char *what);
void build_key_begin(struct sha256 *h, const struct build *b, const char *what);   /* of a step on b->chain */

/* ---- build_context.c ---- */
void build_hash_context(struct build *b);          /* then it goes on; also without a context */
void build_need_context(struct build *b, void (*then)(struct build *));
void build_read_dockerfile(struct build *b);       /* from the context, then build_plan */

/* ---- build_plan.c ---- */
/* Stages, what each stands on, and which are needed. */
int build_plan(struct build *b, struct error *e);
/* Index of an earlier stage than `before` by name or number; -1. */
int build_find_stage(const struct build *b, const char *name, size_t before);

/* ---- build_stage.c ---- */

/* An event of the instruction that comes next: one line, without what could not be shown. */
void build_tell_step(struct build *b, const struct instruction *i);
/* The next stage that is needed. True: it has begun, or waits for its base, or the build has failed; false: nothing is left to build. */
bool build_stage_begin(struct build *b);
/* Keeps what the stage has made; b->chain is NULL from here on. */
void build_stage_end(struct build *b);
void build_stage_release(struct build_stage *s);           /* what it holds, not itself */

/* ---- build_run.c ---- */
void build_run(struct build *b, const struct instruction *i);
void build_workdir(struct build *b, const struct instruction *i);

/* ---- build_copy.c ---- */
void build_copy(struct build *b, const struct instruction *i);
void copy_step_release(struct copy_step *c);
