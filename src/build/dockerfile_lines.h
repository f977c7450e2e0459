/* Logical lines of a Dockerfile: what dockerfile.c makes instructions of. */
#pragma once
#include "base/buf.h"
#include "build/dockerfile.h"

struct lines {
        const char *p, *end;
        unsigned line;             /* of p */
        char escape;
};

/* One physical line without its end; false at the end of the text. */
bool lines_physical(struct lines *l, const char **ret, size_t *ret_n);
/* Reads the directives at the top. */
int lines_directives(struct lines *l, struct error *e);
/* The next instruction's text, continued lines joined, into b; *ret_line is where it begins. 1, 0 at the end, -errno. */
int lines_logical(struct lines *l, struct buf *b, unsigned *ret_line);
/* The body of a here-document, up to its end word. -EINVAL: it does not end. */
int lines_heredoc(struct lines *l, const char *word, bool strip_tabs, struct buf *b);
