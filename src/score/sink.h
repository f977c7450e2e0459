/* Where a parser puts the tests that it reads. Many frameworks have a test's name in parts (file, groups, title; class and method), and
 * data spells it in several ways. A sink knows the ids that the request asks for: a test goes under each of its spellings that is among
 * them, and where none is, under the first.
 *
 *     struct sink s = {.tests = &tests, .wanted = &ids, .tree = "/testbed"};
 *     framework->report(bytes, n, &s)
 *
 * No threads, no descriptors. Negative answers: -ENOMEM, or -ENOSPC beyond TEST_RESULTS_MAX or SINK_PUTS_MAX. */
#pragma once
#include "score/record.h"

#define SINK_NAME_MAX 2048u     /* bytes of one spelling; what is longer is cut */
#define SINK_PUTS_MAX (2 * TEST_RESULTS_MAX)    /* outcomes of one run, those of the same test among them */
#define SINK_GROUPS_MAX 32      /* groups around a test; what lies deeper belongs to the last */

struct sink {
        struct test_results *tests;
        const struct test_results *wanted;      /* ids of the request; NULL: none */
        const char *tree;                       /* names of files are relative to it; NULL: as they are */
        size_t n_puts;
        bool structured;                        /* set by a parser of output: it was of the machine-readable kind */
};

/* `spellings`: the own first, NULL-terminated. Nothing for an empty first one. */
int sink_put(struct sink *s, const char *const *spellings, enum test_status st);

struct test_name {
        const char *file;                       /* NULL: not known */
        const char *groups[SINK_GROUPS_MAX]; size_t n_groups;
        const char *title;
};
enum name_form {
        NAME_FULL,              /* group group title */
        NAME_PATH,              /* group > group > title */
        NAME_FILE_PATH,         /* file > group > title */
        NAME_FILE_FULL,         /* file | group title */
        NAME_TITLE,
        NAME_FORM_MAX,
};
/* Under all forms, `own` first. */
int sink_put_name(struct sink *s, const struct test_name *name, enum name_form own, enum test_status st);
/* class.method, class#method, class:method, class > method, Class.method without packages, method(class), method; the first is its own. */
int sink_put_method(struct sink *s, const char *class, const char *method, enum test_status st);
