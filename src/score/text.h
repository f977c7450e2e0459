/* Lines of a run's text, for the parsers in frameworks/. Slices point into the text and own nothing. */
#pragma once
#include <stdbool.h>
#include <string.h>

#include "score/framework.h"
#include "score/sink.h"

struct slice { const char *p; size_t n; };

/* Does `word` stand in `text` by itself, with no letter, digit, '-' or '_' beside it? */
bool text_has_word(const char *text, const char *word);
/* The next line without its end; false at the end of the text. */
bool text_line(const char **cursor, struct slice *ret);
static inline bool slice_starts(struct slice s, const char *prefix) {
        size_t n = strlen(prefix);
        return s.n >= n && memcmp(s.p, prefix, n) == 0;
}
static inline bool slice_is(struct slice s, const char *text) { return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0; }
static inline struct slice slice_from(struct slice s, size_t at) {
        at = at < s.n ? at : s.n;
        return (struct slice){s.p + at, s.n - at};
}
static inline struct slice slice_cut(struct slice s, size_t n) { return (struct slice){s.p, n}; }
struct slice slice_trim(struct slice s);                               /* blanks at both ends */
const char *slice_find(struct slice s, const char *needle);            /* first occurrence or NULL */
const char *slice_find_last(struct slice s, const char *needle);
int text_put(struct sink *ret, struct slice id, enum test_status st);    /* nothing for an empty id */
