/* Snapshots: what a session has written becomes an image, from which others start; and what that is, as a list.
 *
 * Theory of operation. The sandbox is frozen. The helper walks its upper, in the order of names, and writes what it finds as a tar
 * layer (whiteouts for what is gone) into a pipe; the image store unpacks the pipe above the chain that the session stands on, in a
 * sandbox of its own, and the layer's key is the chain id of what came through: equal contents are one layer, whoever made them. Then
 * the sandbox goes on. Nothing of the session's files passes through this process.
 *
 *     FREEZE ──> PACK (helper) ══pipe══> UNPACK (store) ──> THAW ──> KEEP (an image, under its name) ──> done
 *
 * Loop thread only. */
#pragma once
#include "session/session.h"
#include "store/image_store.h"

#define CHANGES_LIMIT_MAX 10000            /* entries of one answer */
#define CHANGES_ANSWER_MAX (16u << 20)     /* bytes of it */
#define SNAPSHOT_TIMEOUT_MS (1800 * 1000ull)
#define SNAPSHOT_FORKS_MAX 64              /* sessions of one fork */

struct snapshot;

/* `img` in use, the callee's to unuse; or NULL, a failure and a text. Once, unless cancelled. */
typedef void (*snapshot_done)(struct image *img, enum image_failure failure, const struct error *e, void *user);
/* `name`: as image_name_given gave it; NULL: none. A session that is paused stays so. -ENOENT, -EAGAIN: not ready; -EBUSY: another one is under
 * way; -ENOMEM. `done` never runs from inside the call. */
int session_snapshot(struct sessions *ss, const char *id, const char *name, snapshot_done done, void *user, struct snapshot **ret, struct error *e);
void snapshot_cancel(struct snapshot *s);  /* `done` does not run; what it made goes by itself */

/* What a session has added, changed and deleted, entries `offset` on, at most `limit` (1..CHANGES_LIMIT_MAX): a JSON object
 * {"changes":[{"path","change","type",...}],"more"}. Not frozen: what is written meanwhile may be in it or not. */
typedef void (*changes_done)(int r, const char *json, size_t n, const struct error *e, void *user);
struct changes;
int session_changes(struct sessions *ss, const char *id, uint64_t offset, uint64_t limit, changes_done done, void *user, struct changes **ret,
                    struct error *e);
void changes_cancel(struct changes *c);    /* `done` does not run */
