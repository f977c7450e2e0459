/* A file of many records, as benchmarks and their predictions come: a JSON list, an object keyed by id, or JSON lines; a byte order mark, lines that
 * end in CR LF and empty lines are no matter. What cannot be used is a problem with its line, and the rest of the file is read. */
#pragma once
#include "base/json.h"

#define RECORDS_FILE_MAX (1024u << 20)     /* bytes of a file */
#define RECORD_ID_MAX 400                  /* bytes of an id */

struct record {
        char *id;
        size_t line;                       /* where it begins, from 1 */
        struct json v;                     /* in the file's bytes; an object, or (keyed by id) a string or null */
};

/* What is wrong with a part of a file, for a person. `line` 0: with the whole of it. */
typedef void (*record_problem)(const char *path, size_t line, const char *text, void *user);

struct records {
        struct buf file;
        struct record *v; size_t n;        /* in the file's order; ids differ */
        struct record **by_id;             /* sorted */
};

/* An id is the member "instance_id"; where there is none, "org", "repo" and "number" make one ("org__repo-number"); else the key. An id a second time is
 * a problem, the first counts. -EINVAL: it cannot be read, or is not a file of records at all. `ret` is then empty. */
int records_read(const char *path, record_problem problem, void *user, struct records *ret, struct error *e);
void records_release(struct records *r);
const struct record *records_find(const struct records *r, const char *id);    /* NULL: there is none */
