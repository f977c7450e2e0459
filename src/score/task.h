/* One scoring task from request to record:
 *
 *     IMAGE ──> TREE ──> SANDBOX ──> APPLY ──> TEST ──> (LINT) ──> DESTROY ──> done
 *       any state ──cancel──> DESTROY ──> done(cancelled)
 *       any fault of ours ──> DESTROY ──> done(infra_error)
 *
 * `done` runs exactly once, after the sandbox is confirmed gone. Loop thread only. */
#pragma once
#include "score/collect.h"
#include "score/record.h"
#include "store/image_store.h"
#include "store/tree.h"

struct score_env {                 /* shared by all tasks; outlives them */
        uv_loop_t *loop;
        struct spawner *spawner;
        struct tree_store *trees;
        struct image_store *images;
        struct collections *collections;   /* score/collect.h; NULL: no collection runs */
        size_t record_output_max;      /* 1 MiB head and tail a stream */
};
struct score_task;
typedef void (*score_done)(struct score_record *rec, void *user);   /* rec is the callee's for the call's length */
/* The request is taken over (released when the task ends). `log_dirfd`: where stdout.log and stderr.log go; stays the caller's. */
int score_task_start(const struct score_env *env, const char *id, struct score_request *req, int log_dirfd,
                     score_done done, void *user, struct score_task **ret, struct error *e);
void score_task_cancel(struct score_task *t);
