/* What every git of Brig runs with: the files that appear below /run/brig, the environment, and words for its failures. */
#pragma once
#include "sandbox/sandbox.h"

enum git_script { SCRIPT_FETCH, SCRIPT_JOIN, SCRIPT_CHECKOUT, SCRIPT_MAX };

/* Exit statuses of the scripts. */
#define SCRIPT_UNREACHABLE 20
#define SCRIPT_NO_COMMIT 21
#define SCRIPT_OUR_FAULT 22
#define SCRIPT_UNSOUND 23

/* Fills two files: the script (as "script") and git's configuration. Descriptors are made once and kept. */
int git_files(enum git_script script, struct sandbox_file ret[static 2], struct error *e);
/* The environment; a NULL-terminated list of `max` strings at most, `extra` (may be NULL) behind the fixed part. */
char **git_env(const char *const *extra);
/* The last line of what git said that is worth showing, without control bytes: at most `size` bytes with its NUL. */
void git_last_words(const char *err, char *ret, size_t size);
