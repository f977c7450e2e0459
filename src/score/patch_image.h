/* Inside of matching: the text of a file as lines that hunks replace. */
#pragma once
#include "score/patch_match.h"

enum line_end { LINE_AS_IS, LINE_TO_LF, LINE_TO_CRLF };
/* Hashes tell lines apart quickly: exact is over every byte, loose over what is neither white space nor line end. */
struct image_line { const char *p; uint32_t len, exact, loose; uint8_t end; bool patched; };
struct image {
        struct image_line *v; size_t n, alloc;
        bool crlf, lf;               /* every line ends so (a last line without newline apart) */
};

enum compare { COMPARE_EXACT, COMPARE_END /* line ends apart */, COMPARE_SPACE };

struct image_line image_line(const char *p, size_t len);
int image_split(struct image *m, const char *text, size_t len);
void image_release(struct image *m);
/* Replaces lines [at, at + old) by v[0..new). */
int image_replace(struct image *m, size_t at, size_t old, const struct image_line *v, size_t new);
int image_join(const struct image *m, char **ret, size_t *ret_len);
bool image_same(const struct image_line *a, const struct image_line *b, enum compare how);
