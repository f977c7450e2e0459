/* How alike two patches are: the ratio of Python's difflib.SequenceMatcher (autojunk on, as it is by default) over the lines of
 * both, without those that start with `diff`, `index`, `---`, `+++` or `@@`. Lines are Python's: str.splitlines.
 *
 * Pure and slow (quadratic in the worst case): call it off the loop. */
#pragma once
#include <stdbool.h>
#include "base/macros.h"

#define SIMILARITY_LINES_MAX 20000u    /* on either side; beyond it there is no answer */
#define SIMILARITY_NONE (-1.0)

/* 0..1 rounded to 4 decimals as Python's round does; both empty 1, one empty 0; SIMILARITY_NONE over the limit or without memory. */
double patch_similarity(const char *a, size_t a_len, const char *b, size_t b_len);
