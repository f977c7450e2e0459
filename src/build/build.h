/* Building an image from a Dockerfile, in Brig's own sandboxes.
 *
 * Theory of operation. Only the stages that the wanted one needs are built, one after the other, instruction by instruction. What changes
 * files (RUN, COPY, ADD, WORKDIR) is a layer whose key says all that it was made from: the key of the chain below, and
 *   RUN        the command, environment, arguments, user, directory, network, script
 *   COPY, ADD  the hash of names, kinds, modes, owners and contents of what is copied; where to and as whose
 *   WORKDIR    the path
 * so a step that was made before, by whomever, is not made again; two equal builds at a time share each step; and what follows a changed
 * file is made anew. The rest is configuration.
 *
 * The build context is an archive that nobody here looks into: the helper unpacks it into a layer of its own, at CONTEXT_TOP of an image that
 * holds nothing else. COPY is two sandboxes without a network: the helper in the source (context, stage or image) writes what is copied to an
 * unnamed file and says its hash; unless the step is known, the helper in the new layer's sandbox unpacks it at the destination. RUN is
 * a sandbox with the profile of set-ups and, where not said otherwise, the open network.
 *
 * Everything is bounded: the whole by the time limit, a step by the sandbox's limits, the output that is kept, the archive and what COPY
 * takes by bytes and entries. Loop thread only. */
#pragma once
#include "store/image_store.h"

#define BUILD_CONTEXT_TOP "/context"
#define BUILD_CONTEXT_BYTES_MAX (8ull << 30)       /* of the archive as it is sent */
#define BUILD_COPY_BYTES_MAX (16ull << 30)         /* of one COPY */
#define BUILD_COPY_ENTRIES_MAX (1ull << 20)
#define BUILD_ARGS_MAX 256u
#define BUILD_ARG_BYTES_MAX (64u * 1024)
#define BUILD_TIMEOUT_DEFAULT_MS (1800 * 1000ull)
#define BUILDS_MAX 64u                             /* at a time; more are refused with -EAGAIN */

struct builder;
struct build;

enum build_event_kind { BUILD_STEP, BUILD_CACHED, BUILD_OUTPUT, BUILD_PULL };
struct build_event {
        enum build_event_kind kind;
        unsigned step, steps;              /* from 1 */
        unsigned line;                     /* of the Dockerfile */
        const char *text; size_t len;      /* STEP: the instruction, on one line, cut; OUTPUT: what a command printed; PULL: the image */
        const struct image_progress *pull; /* PULL; may be NULL */
};

struct build_spec {                        /* copied */
        const char *dockerfile; size_t dockerfile_len;     /* NULL: the file `path` of the context, at most 64 KiB */
        const char *path;                  /* NULL: "Dockerfile" */
        int context;                       /* archive, seekable; -1 = none. Duplicated */
        const char *const *args;           /* "NAME=value"; NULL = none */
        const char *target;                /* a stage's name; NULL = the last */
        const char *const *names;          /* of the image, normal; NULL = none */
        enum sandbox_network network;      /* of RUN */
        uint64_t timeout_ms;               /* 0 = the default */
        bool no_cache;                     /* RUN is run, whatever is known */
        bool once;                         /* the same Dockerfile, context, arguments, target and network: the image that it gave the first time */
};
struct build_callbacks {
        void (*event)(const struct build_event *ev, void *user);           /* may be NULL */
        /* img in use, the callee's; or NULL. Errors of the Dockerfile begin with "dockerfile line N". Exactly once, unless cancelled. */
        void (*done)(struct image *img, enum image_failure failure, const struct error *e, void *user);
};

struct builder_config {
        const char *directory;             /* for unnamed files, on the disk */
        struct sandbox_limits limits;      /* of RUN */
};
int builder_new(struct image_store *st, const struct builder_config *cfg, struct builder **ret, struct error *e);
/* Ends what is being built as IMAGE_CANCELLED, waits for its sandboxes, frees, calls done. Before the image store is closed. */
void builder_close(struct builder *b, void (*done)(void *user), void *user);

/* -EINVAL: the Dockerfile, an argument or the target is wrong, with the reason; -EAGAIN: BUILDS_MAX; -ENOMEM. */
int build_start(struct builder *b, const struct build_spec *spec, const struct build_callbacks *cb, void *user, struct build **ret, struct error *e);
void build_cancel(struct build *b);        /* no callback any more. NULL is nothing */

/* A context from {name: content}: a tar archive in an unnamed file. Names are relative, without ".."; directories come by themselves. */
struct build_file { const char *name; const char *data; size_t len; uint32_t mode; };
int build_unnamed_file(const struct builder *b);    /* on the disk; -errno */
int build_context_make(struct builder *b, const struct build_file *files, size_t n, int *ret_fd, struct error *e);
