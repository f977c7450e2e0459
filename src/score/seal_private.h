/* Shared by seal_make.c, seal_check.c and seal_walk.c. */
#pragma once
#include "score/apply_wire.h"
#include "score/seal.h"

struct mark { uint64_t mode, ino, size, nsec; int64_t sec; uint64_t has_hash; unsigned char hash[32]; };     /* without padding; all 0: absent */
bool seal_is_open(int fd);
int seal_mark(int tree, const char *path, bool contents, struct mark *ret);

/* seal_walk.c: what was written below `top` of a plane, without compiled code and what git keeps. `found` gets paths relative to the plane and
 * whether it was there before; what is not 0 ends the walk. Where `merged` is open, files of base that are gone are found too where a whole
 * directory was made anew; else only those that left a trace in the upper. */
struct seal_walk {
        unsigned left;                         /* entries that may still be looked at */
        bool compiled;                         /* compiled code is found too */
        const char *skip;                      /* a path that is not looked into, or NULL */
        int (*found)(void *user, const char *path, bool was_there);
        void *user;
};
/* -E2BIG: more than may be looked at. */
int seal_walk(struct seal_walk *w, int upper, int base, int merged, const char *top);
/* What the run wrote outside of the tree and what stands before or in the place of a program or module of the image: why it matters, or NULL. */
const char *seal_outside(const struct seal_view *v, const char *path, bool was_there);
