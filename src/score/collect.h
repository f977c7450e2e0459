/* Collection runs of their own: what the tests of a base tree with the gold test patch are, listed where no agent code is. The list
 * of the run that is scored is checked against it (report_check_collection).
 *
 * One run per key (tree, gold patch, command, environment), made in a sandbox of its own while the first task with that key tests;
 * later tasks take it from a small cache, tasks that ask meanwhile wait for it. A run that fails is nobody's fault and leaves nothing:
 * `done` gets NULL. Loop thread only. */
#pragma once
#include "score/command.h"
#include "score/report.h"
#include "store/tree.h"

#define COLLECTIONS_MAX 32                              /* lists kept, least recently used first out */
#define COLLECTION_BYTES_MAX (2u * 1024 * 1024)         /* of ids; a longer list serves its waiters and is not kept */
#define COLLECTION_TIMEOUT_MS (60 * 1000)               /* or the task's own timeout, if shorter */

struct collections;
struct collection_wait;

struct collections *collections_new(uv_loop_t *loop, struct spawner *sp);      /* NULL on -ENOMEM */
void collections_free(struct collections *c);           /* nothing runs any more; NULL is fine */

/* What a run needs. All of it must stay until `done`, or until collection_cancel. */
struct collection_request {
        const char *id;                                 /* of the task: names the sandbox */
        const struct tree *tree;
        const char *image, *const *layers;              /* what the sandbox stands on, the tree among the layers */
        const struct score_request *request;
        const struct command *command;                  /* LAUNCHED or BUILT */
};
/* `own` is valid during the call only. May run within collection_get's caller only by way of the loop, never from inside it. */
typedef void (*collection_done)(const struct report *own, void *user);
int collection_get(struct collections *c, const struct collection_request *q, collection_done done, void *user, struct collection_wait **ret);
/* `done` will not run with a list. If the run was made for this task it is stopped, and `done(NULL)` runs once its sandbox is gone;
 * else it runs soon. */
void collection_cancel(struct collection_wait *w);
