/* Patterns of .dockerignore and of COPY's sources. Pure, any thread; time is at most pattern x path, whatever both are.
 *
 *     ?       any byte but '/'            *      any number of these
 *     [a-z]   one of these, [^a-z] none    **     any number of any bytes; "**" and a slash: any number of directories, none too
 *     \x      x itself */
#pragma once
#include <stdbool.h>

#include "base/error.h"

#define GLOB_TOKENS_MAX 512u               /* of one pattern */
#define IGNORE_PATTERNS_MAX 1024u
#define IGNORE_BYTES_MAX (256u * 1024)

struct glob;
/* -EINVAL: a class that does not end; -E2BIG; -ENOMEM. */
int glob_new(const char *pattern, struct glob **ret);
struct glob *glob_free(struct glob *g);    /* NULL */
/* The whole path; with `or_above` also when a directory above it matches. */
bool glob_matches(const struct glob *g, const char *path, bool or_above);
bool glob_is_plain(const char *pattern);   /* nothing in it is special */

/* A .dockerignore: one pattern a line, '#' comments, '!' takes back; the last that matches decides. */
struct ignore;
/* Patterns that make no sense are -EINVAL with the line. */
int ignore_parse(const char *p, size_t n, struct ignore **ret, struct error *e);
struct ignore *ignore_free(struct ignore *i);      /* NULL */
/* `path` relative to the context, "a/b". Not by itself for a directory that is ignored while something in it is taken back. */
bool ignore_matches(const struct ignore *i, const char *path);
/* May something below an ignored directory be wanted again? */
bool ignore_takes_back(const struct ignore *i);
