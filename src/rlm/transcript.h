/* What an action wrote to one stream, as text: the first and last characters of it, at most TRANSCRIPT_MAX in all with the line between
 * them that says how many were left out. Bytes that are not UTF-8 are U+FFFD. Memory grows with what is written, to about 4 bytes for each character
 * that is kept. */
#pragma once
#include "base/buf.h"

#define TRANSCRIPT_MAX 65536u              /* characters */
#define TRANSCRIPT_HEAD 32768u
#define TRANSCRIPT_TAIL (TRANSCRIPT_MAX - TRANSCRIPT_HEAD - 64u)

struct transcript {
        uint64_t total;                    /* characters seen */
        struct buf head, tail;             /* tail: of what came behind the head, cut now and then */
        size_t head_chars, tail_chars;
        char part[4]; size_t n_part;       /* of a character that is not whole yet */
};

void transcript_init(struct transcript *t);
void transcript_release(struct transcript *t);
int transcript_feed(struct transcript *t, const char *p, size_t n);    /* -ENOMEM */
/* Appends the text; what is left of a broken character counts as one. */
int transcript_text(struct transcript *t, struct buf *ret);
bool transcript_truncated(const struct transcript *t);
