/* How a test command runs. Three forms (task executor protocol, "How the command runs"):
 *
 *   COMMAND_LAUNCHED  one simple command without shell syntax (redirections aside) whose program is pytest, py.test or
 *                     python* -m pytest|unittest: its words go to our launcher, which runs the runner with our reporter
 *   COMMAND_VERBATIM  anything else: `sh` reads it from a read-only file, results come from its text or its exit status
 *   COMMAND_BUILT     no command, but ids or a framework: like LAUNCHED, with words that we make
 *   COMMAND_ENTRY     entry_command of image mode: a text for /bin/bash -c; results as of VERBATIM
 *
 * "Simple" is decided as a POSIX shell would read the text: quotes and escapes are resolved; an expansion, a substitution, a
 * pattern, an assignment, a list, a comment or a second command makes it VERBATIM. One exception: brackets inside a word that
 * holds "::" are a test id's parameters, not a pattern.
 *
 * Pure functions over strings; no threads, no descriptors. */
#pragma once
#include "base/error.h"
#include "base/strv.h"
#include "score/framework.h"
#include "score/request.h"

enum command_kind { COMMAND_LAUNCHED, COMMAND_VERBATIM, COMMAND_BUILT, COMMAND_ENTRY, COMMAND_KIND_MAX };
STRING_TABLE_DECLARE(command_kind);

#define COMMAND_WORDS_MAX 200000        /* words of one command; more makes it VERBATIM */
#define COMMAND_REDIRECTS_MAX 8

enum redirect_op { REDIRECT_READ, REDIRECT_WRITE, REDIRECT_APPEND, REDIRECT_DUP, REDIRECT_OP_MAX };
struct redirect { int fd; enum redirect_op op; char *target; /* a path, or the number of a descriptor for DUP */ };

struct command {
        enum command_kind kind;
        const struct framework *framework;      /* NULL: none recognised (VERBATIM and ENTRY only) */
        char *text;                             /* as given; "" when BUILT */
        char *run_text;                         /* VERBATIM: what the shell reads, when options were put into it; NULL: `text` */
        bool reports;                           /* VERBATIM: FRAMEWORK_REPORT may be there after the run */
        char **argv;                            /* all but VERBATIM: the command's own words; NULL-terminated */
        size_t runner_at;                       /* argv[runner_at] names the runner: what follows are its arguments */
        bool console;                           /* argv[0] is the runner's own script (pytest), not an interpreter */
        struct redirect redirects[COMMAND_REDIRECTS_MAX]; size_t n_redirects;
};
/* 0, -ENOMEM, or -EINVAL when there is neither command nor framework nor ids. The request is only read. */
int command_parse(const struct score_request *q, struct command *ret, struct error *e);
/* It runs under our launcher, which reports. */
static inline bool command_has_reporter(const struct command *c) { return c->kind == COMMAND_LAUNCHED || c->kind == COMMAND_BUILT; }
/* The configuration that pytest is told to read (`-c`), relative to the tree; NULL: it finds one itself, or it is none of the tree's by its name. */
const char *command_config(const struct command *c);
void command_release(struct command *c);
/* Whether the request says what to run: a command, or a framework or ids that one can be built from. */
bool command_is_known(const struct score_request *q);

#define COMMAND_OPTIONS_TEXT_MAX (256u * 1024)   /* a longer text stays as it is */
/* The text with the framework's options behind its words. 1: *ret is one, to be freed; 0: nothing to put in, or no place where it is safe to; -ENOMEM. */
int command_with_options(const char *text, const struct framework *f, char **ret);

/* Splits like a shell. 0: *ret is a NULL-terminated list to be freed with strv_free, redirections in `redirects`; 1: shell
 * syntax, nothing returned; -ENOMEM. */
int command_split(const char *text, char ***ret, struct redirect redirects[static COMMAND_REDIRECTS_MAX], size_t *ret_n);
