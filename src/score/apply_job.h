/* Applying, on the side where the tree is: runs in Brig's helper, with the sandbox's mounts and none of its processes alive.
 *
 * Order: the agent's patch by the ladder; the diff; every path of the gold test patch and of `protect` back to base; files that
 * configure the runner or shadow it back to base; the gold test patch. What happened goes to `out` as frames (apply_wire.h). */
#pragma once
#include <stdbool.h>
#include "base/buf.h"
#include "base/error.h"
#include "score/patch_rung.h"

/* Views of what "/", "/usr" and "/opt" were before anything was written; the last two may not be open, then the first has all. */
struct apply_base { int root, usr, opt; };

struct apply_job {
        int tree, base;                        /* the tree as it is to be changed, and as it is at base (read only) */
        const char *patch; size_t patch_len;
        const char *test_patch; size_t test_patch_len;
        enum patch_mode mode;
        char **protect, **allow;               /* paths; a directory stands for all below it */
        bool diff; size_t diff_max;
        const char *repo_path;
        struct apply_base image;               /* where installed modules are; with a command only */
        const char *command;                   /* what a shell will run, or NULL: files that it runs by are told */
        char **named;                          /* files that the ids name: marked in the seal */
        struct buf *seal;                      /* not NULL: what is in place at the end is noted here (seal.h) */
        int watch_fd;                          /* for it; or -1 */
        const char *undo;                      /* not NULL: the agent's patch counts as refused for this reason, its paths are reset */
        struct buf *out;
};
/* 0: the report is complete. < 0: our fault; e says what. The agent cannot make it fail: a tree without room for what has to
 * be written is put back and its patch rejected, and so is a patch that takes more memory than there is. */
int apply_job_run(struct apply_job *j, struct error *e);
/* The same rules for what a run wrote or removed: of the job tree, base, protect, allow and out count; `tests` are the paths of the test patch,
 * sorted. Only findings are made. */
int apply_job_look(struct apply_job *j, char **tests, char **written, struct error *e);

/* The helper's verb: reads the request and the patches from their descriptors, writes the report. `base_root` and `root` are the
 * directories in which repo_path is looked up. Exit status. */
int apply_verb(int root, struct apply_base base);
/* The tree as it is, and as it was: 0 and a descriptor. */
int apply_open_tree(int root, const char *repo_path, int *ret);
int apply_open_base(const struct apply_base *b, const char *repo_path, int *ret);

/* The verb of the helper that looks again after the run. */
int recheck_verb(int root, struct apply_base base, const char *rule);
