/* Line differences: which lines of two texts have no partner in the other, and unified diffs in git's form made from that.
 *
 * Myers' algorithm in linear space. Minimal until it becomes expensive: past DIFF_COST_MAX steps in one search the best
 * split found so far is taken, so hostile input costs a bounded time and a longer diff, never a wrong one. */
#pragma once
#include <stdbool.h>
#include "base/buf.h"

#define DIFF_CONTEXT 3u
#define DIFF_COST_MAX 2048u        /* edit steps from either end of one search */
#define DIFF_BINARY_PROBE 8000u    /* a NUL among the first bytes makes a file binary, as for git */

/* Marks the changed lines: a_changed[n] and b_changed[m] are set for lines without a partner, others are left false. Lines
 * are compared by id: equal ids, equal lines. -ENOMEM. */
int diff_ids(const uint32_t *a, size_t n, const uint32_t *b, size_t m, bool *a_changed, bool *b_changed);

struct diff_side {                 /* one state of a file */
        bool exists;
        uint32_t mode;             /* st_mode: 0100644, 0100755 or 0120000 */
        const char *data;          /* contents; target of a link */
        size_t len;
};
/* Appends the section of `path` to b: nothing when both sides are equal. Binary contents become "Binary files ... differ".
 * -ENOSPC at b's limit (b then holds a part), -ENOMEM. */
int diff_file(const char *path, const struct diff_side *old, const struct diff_side *new, struct buf *b);
