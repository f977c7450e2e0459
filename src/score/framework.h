/* What Brig knows of a test framework: one table, one file per framework (text_*.c). Pure functions. */
#pragma once
#include "score/record.h"

struct framework {
        const char *name;                       /* "pytest", "unittest", "go", "tap", "cargo" */
        bool launched;                          /* runs under our launcher and reporter when the command allows it */
        const char *const *words;               /* commands that start it, for a text: "pytest", "go test", ... NULL-terminated */
        /* Could this text be its output? Asked only when the command does not tell. May be NULL. */
        bool (*detect)(const char *text);
        /* Outcomes out of the cleaned text of a run (framework_clean). 0 or -ENOMEM; what it cannot read it leaves out. */
        int (*parse)(const char *text, struct test_results *ret);
        /* Does the framework's last line say that tests ran and none failed? For a text in which parse finds no test by name. May be NULL. */
        bool (*passed)(const char *text);
        /* A variable's name and value that make the output of a command name every test. May be NULL. */
        const char *variable, *value;
        /* The form of an id under which two spellings of the same test are equal; to be freed. NULL member: as it is. */
        char *(*canonical)(const char *id);
};
extern const struct framework framework_pytest, framework_unittest, framework_go, framework_cargo, framework_tap;

const struct framework *framework_by_name(const char *name);             /* NULL when unknown */
const struct framework *framework_of_command(const char *command);       /* by its words; NULL when none fits */
const struct framework *framework_of_output(const char *text);           /* by what it printed; NULL when none fits */
/* By the look of the ids: "::" is pytest's, "name (dotted.path)" and dotted names are unittest's. */
const struct framework *framework_of_ids(const char *const *ids);
char *framework_canonical(const struct framework *f, const char *id);    /* NULL on -ENOMEM only */
/* Output as a person would see it: escape sequences out, a carriage return begins its line anew, what is not UTF-8 replaced, NULs dropped.
 * At most FRAMEWORK_TEXT_MAX bytes from the end are looked at. To be freed; NULL on -ENOMEM. */
#define FRAMEWORK_TEXT_MAX (8u << 20)
char *framework_clean(const char *p, size_t n);
