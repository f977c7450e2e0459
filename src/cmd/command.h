/* The program's verbs as tables: the same rows read a command line and make --help, the manual pages and the completions of
 * shells, so that none of them can say what another does not.
 *
 * A verb is one or two words ("score", "session start"). Its file defines a `struct command`; a line in commands.c makes it known. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/error.h"

#define EXIT_USAGE 64
#define EXIT_OUR_FAULT 2
#define EXIT_INTERRUPTED 130

#define OPTION_FILE_MAX (256u << 20)   /* bytes of a file that an option names */

enum option_kind {
        OPTION_TEXT,       /* char *: owned; the last one counts */
        OPTION_APPEND,     /* char **: owned list; each use adds one */
        OPTION_LIST,       /* char **: owned list; takes every word up to the next that begins with '-' */
        OPTION_FILE,       /* struct buf: the file's bytes, "-" is standard input; *(bool *)given_at becomes true */
        OPTION_SWITCH,     /* bool */
        OPTION_OUTPUT,     /* bool: "json" is true, "text" false */
        OPTION_KIND_MAX,
};

/* How a value can be completed. */
enum complete { COMPLETE_NONE, COMPLETE_FILE, COMPLETE_DIRECTORY, COMPLETE_SESSION, COMPLETE_IMAGE, COMPLETE_SNAPSHOT, COMPLETE_WORDS, COMPLETE_MAX };

struct option_row {
        const char *name;              /* "--repo", "-o" */
        const char *value;             /* "URL|DIR"; NULL for a switch. COMPLETE_WORDS: the words, between '|' */
        enum option_kind kind;
        size_t at, given_at;           /* offsets in the target */
        enum complete complete;
        const char *doc;
};

struct command {
        const char *name;
        const char *synopsis;          /* what follows the name, a line for each form: "IMAGE [OPTION...]" */
        const char *doc;               /* one line, no full stop */
        const char *text;              /* more of it: paragraphs between empty lines; may be NULL */
        const char *status;            /* "0 resolved, 1 any other verdict, ..." */
        const struct option_row *options; size_t n_options;
        const struct option_row *common; size_t n_common;      /* a second table, same target; may be NULL */
        const struct option_row *(*settings)(size_t *ret_n);   /* more, which the verb reads by itself; may be NULL */
        enum complete argument;        /* how its arguments can be completed */
        bool stops;                    /* the first argument that is no option ends the options: the rest is somebody else's command line */
        bool hidden;                   /* for Brig's own use */
        int (*run)(const struct command *c, int argc, char **argv);    /* argv[0] is the last word of the name; the exit status */
};

/* commands.c: every verb, NULL at the end. */
extern const struct command *const commands[];
/* The verb that argv begins with, and how many words it is; NULL: there is none. */
const struct command *command_find(int argc, char **argv, int *ret_words);

/* Reads argv[1..] into the target; *ret is the arguments, argc of them, in argv's own memory (argv is reordered). -EINVAL with a text, or
 * what reading a file gave. "--" ends the options. --help ends the reading: *ret_help. */
int options_parse(const struct command *c, void *target, int argc, char **argv, char ***ret, int *ret_argc, bool *ret_help, struct error *e);
void options_release(const struct command *c, void *target);
void option_rows_release(const struct option_row *rows, size_t n, void *target);

/* command_document.c */
int command_help(const struct command *c, struct buf *ret);
int command_manual(const struct command *c, struct buf *ret);          /* roff, section 1 */
int commands_help(const char *group, struct buf *ret);                  /* NULL: all; "session": its second words */
int commands_manual(struct buf *ret);                                   /* brig(1) */
int commands_complete_bash(struct buf *ret);
int commands_complete_zsh(struct buf *ret);
int commands_complete_fish(struct buf *ret);

/* Prints "brig NAME: text" and gives the exit status: EXIT_USAGE for -EINVAL, EXIT_INTERRUPTED for -EINTR, else EXIT_OUR_FAULT. */
int command_fail(const struct command *c, int r, const struct error *e);
/* The settings as options (settings_rows.c), for verbs that take them. Made once; loop thread or before it. */
const struct option_row *settings_rows(size_t *ret_n);
/* Prints what `document` writes; the exit status. */
int command_print(const struct command *c, int (*document)(struct buf *ret));
/* The usual beginning of a verb: parses, answers --help, complains. True: go on; else *ret_status is the exit status. */
bool command_begin(const struct command *c, void *target, int argc, char **argv, char ***ret_arguments, int *ret_n, int *ret_status);
