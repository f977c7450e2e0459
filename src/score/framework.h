/* What Brig knows of a test framework: one table, one file per framework (frameworks/). Pure functions. docs/frameworks.md says how to add one.
 *
 * A framework whose command is run as it was given has a machine-readable route where it can be asked for one without knowing the project:
 * options that are put behind its words in the command's text (command_options.c), a variable, or files that it leaves (`collect`). What it
 * writes goes to FRAMEWORK_REPORT, is read when nothing runs any more (task_report.c), and is given to `report`. Where nothing comes of
 * that, the outcomes are those of the text. */
#pragma once
#include "score/record.h"
#include "score/sink.h"

#define FRAMEWORK_REPORT "/tmp/.brig-report"            /* at most RESULT_FILE_MAX bytes are read */
#define FRAMEWORK_REPORTS "/tmp/.brig-reports/"         /* for frameworks that write several; `collect` makes one of them */
#define FRAMEWORK_STARTED "/tmp/.brig-started"          /* made before the command, where there is a `collect`: reports are newer */

struct framework {
        const char *name;                       /* "pytest", "unittest", "go", "tap", "cargo" ... */
        bool launched;                          /* runs under our launcher and reporter when the command allows it */
        bool python;                            /* what it runs is Python */
        const char *const *words;               /* commands that start it, for a text: "pytest", "go test", ... NULL-terminated */
        /* Could this text be its output? Asked only when the command does not tell. May be NULL. */
        bool (*detect)(const char *text);
        /* Outcomes out of the cleaned text of a run (framework_clean). 0, -ENOMEM or -ENOSPC; what it cannot read it leaves out. */
        int (*parse)(const char *text, struct sink *ret);
        /* Does the framework's last line say that tests ran and none failed? For a text in which parse finds no test by name. May be NULL. */
        bool (*passed)(const char *text);
        /* A variable's name and value that make the output of a command name every test, or make it write a report. May be NULL. What the
         * request gives follows the value, or, where `variable_alone`, takes its place. */
        const char *variable, *value;
        bool variable_alone;
        /* The form of an id under which two spellings of the same test are equal; to be freed. NULL member: as it is. */
        char *(*canonical)(const char *id);

        const char *route;                      /* the machine-readable route, for the record; NULL: there is only text */
        const char *options;                    /* stand behind `words` in the command; NULL: none */
        const char *const *unless;              /* words of a command that has such options already; NULL-terminated, may be NULL */
        const char *collect;                    /* a shell's text that runs after the command and makes FRAMEWORK_REPORT; NULL: none */
        /* Outcomes out of FRAMEWORK_REPORT: hostile bytes. 0, -ENOMEM, -ENOSPC, or -EBADMSG: it is none. NULL: `parse` reads both kinds. */
        int (*report)(const char *p, size_t n, struct sink *ret);
};
extern const struct framework framework_pytest, framework_unittest, framework_django, framework_sympy, framework_go, framework_cargo, framework_tap, framework_node,
        framework_jest, framework_vitest, framework_mocha, framework_maven, framework_ctest, framework_gtest;

const struct framework *framework_at(size_t i);                          /* the table, in the order in which they are looked for; NULL at its end */
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
