/* Variables and quotes in the words of a Dockerfile. Pure, any thread.
 *
 *     $x  ${x}  ${x:-word}  ${x-word}  ${x:+word}  ${x+word}  ${x:?word}  ${x?word}
 *
 * Words nest at most EXPAND_DEPTH_MAX deep. Single quotes hold everything back, double quotes hold blanks together; the escape character
 * takes the meaning from the next one. Other forms (${x#...}, ${x/...}) are an error. Every result is bounded, so that variables that
 * double themselves end soon. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

#define EXPAND_DEPTH_MAX 8
#define EXPAND_BYTES_MAX (64u * 1024)      /* of one word when it is expanded */

/* NULL: not set. */
typedef const char *(*expand_lookup)(const char *name, size_t n, void *user);
/* The word with its quotes taken off (`quotes`: else they are ordinary, as in a here-document) and its variables replaced, appended to b.
 * -EINVAL with a reason; -E2BIG: too long. */
int expand_word(const char *word, char escape, bool quotes, expand_lookup lookup, void *user, struct buf *b, struct error *e);
