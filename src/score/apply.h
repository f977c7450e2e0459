/* From a base tree to the tree under test, inside the sandbox's boundary: the agent's patch by the ladder, the forced restore
 * of what the gold test patch and `protect` touch, the gold test patch, and the neutralising of files that configure the
 * runner. Done by Brig's static helper in the sandbox's mount namespace, paths resolved beneath the tree, never through a
 * link; this header is the daemon's side. What comes back is checked again here: it is a report, not a truth.
 *
 * Loop thread only. Strings in the result are owned by it. */
#pragma once
#include "score/record.h"

struct apply_spec {
        struct sandbox *sandbox;
        const char *repo_path;
        const char *patch; size_t patch_len;
        const char *test_patch; size_t test_patch_len;
        enum patch_mode mode;
        const char *const *protect;            /* more paths reset to base; NULL-terminated, may be NULL */
        const char *const *allow_config;       /* configuration paths left as patched */
        bool capture_diff;
        size_t diff_max;                       /* bytes */
        const char *command;                   /* the text that a shell runs, or NULL */
        const char *const *named;              /* files that the ids name: the seal has them too; may be NULL */
        int seal_fd, watch_fd;                 /* -1, or an empty memfd and an inotify descriptor: what is in place at the end, for recheck.h */
        uint64_t memory_bytes;                 /* of the sandbox: the helper stays below, so that a patch cannot end it; 0 = no bound */
};
/* A configuration file that other tools share with the runner (pyproject.toml, setup.cfg, tox.ini; any directory) and that
 * the agent's patch changed, as it is at base: the run reads the runner's section from here (score/run.h), the file in the
 * tree stays as patched. */
struct apply_file { char *path; char *data; size_t len; };   /* data NULL: it does not exist at base */
struct apply_result {
        bool patch_applied; enum patch_rung rung;
        char *patch_reason;                    /* why not (also for refusals): names path and line */
        bool patch_refused;                    /* a refusal of the rules (escape, .git, caps), not a mismatch */
        bool test_patch_applied; char *test_patch_reason;
        char **touched;                        /* by the agent's patch, both sides of renames */
        char **test_files;                     /* by the gold patch */
        char **restored;                       /* put back to base although the agent's patch had changed them */
        struct apply_file *base_config; size_t n_base_config;   /* not those that the gold patch or allow_config changes */
        char **new_modules;                    /* paths that the agent's patch made and that Python could import by one name */
        struct findings findings;              /* "test_file_edited", "runner_config_changed", "shadowing_module"... */
        char *diff; size_t diff_len; bool diff_truncated;
};
void apply_result_release(struct apply_result *r);
#define APPLY_NO_TREE (-ENOTDIR)           /* repo_path is not a directory, in the sandbox or in what it stands on; the error names it */
/* r < 0: our fault (infra_error), or APPLY_NO_TREE. */
typedef void (*apply_done)(int r, struct apply_result *res, const struct error *e, void *user);
int score_apply(const struct apply_spec *spec, apply_done done, void *user, struct error *e);
