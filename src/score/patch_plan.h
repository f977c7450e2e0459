/* What a patch makes of a tree, computed whole before anything is written: all or nothing.
 *
 * `patch_plan` reads files through a `struct patch_source` and gives the list of paths with their new states. The source never
 * follows a link; what it finds in the way is part of its answer. */
#pragma once
#include <stdbool.h>
#include "score/patch.h"
#include "score/patch_rung.h"

enum entry_type { ENTRY_ABSENT, ENTRY_FILE, ENTRY_LINK, ENTRY_DIR, ENTRY_OTHER /* FIFO, device, socket */,
                  ENTRY_BEHIND_LINK /* a parent is a link */, ENTRY_BEHIND_FILE /* a parent is no directory */, ENTRY_TYPE_MAX };
struct entry {
        enum entry_type type;
        bool exec;
        char *data; size_t len;      /* contents of a file, target of a link; owned, a NUL behind it */
};
static inline void entry_release(struct entry *en) { free(en->data); *en = (struct entry){ 0 }; }

struct patch_source {
        /* State of `path`; contents only for files and links. -EFBIG for a file over PATCH_FILE_BYTES_MAX. */
        int (*read)(void *user, const char *path, struct entry *ret);
        void *user;
};

struct plan_item { char *path; struct entry now; };     /* ENTRY_ABSENT = to be removed */
struct patch_plan {
        struct plan_item *items; size_t n, alloc;       /* sorted by path, each once; both sides of renames */
        uint64_t bytes;
        enum patch_rung rung;
        char **notes; size_t n_notes;
};
void plan_release(struct patch_plan *p);
/* NULL when the plan does not touch it. */
const struct plan_item *plan_find(const struct patch_plan *p, const char *path);

/* By the ladder of `mode`. 0; -EPERM refused, -EBADMSG does not apply (e: why, by the last rung that tells more than the first);
 * others are ours. Text of nothing but white space is the empty plan. */
int patch_plan(const char *text, size_t len, enum patch_mode mode, const struct patch_source *src, struct patch_plan *ret, struct error *e);
/* One rung of it. */
int patch_plan_rung(const char *text, size_t len, enum patch_rung rung, bool reverse, const struct patch_source *src,
                    struct patch_plan *ret, struct error *e);
/* Every path that a patch names, both sides of renames, sorted, each once, NULL-terminated; as far as it can be read. */
int patch_paths(const char *text, size_t len, char ***ret, struct error *e);
