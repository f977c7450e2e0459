/* Files that the test command runs without naming them: `make test`, whose Makefile runs ci/run.py. Read from the base, because of what the patch
 * changed of the file that names them is told by itself. By words, as a person would read them: no promise. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define COMMAND_TEXT_MAX (256u << 10)      /* bytes of a file that is read for names */
#define COMMAND_TEXTS_MAX 64u              /* such files */

/* `tell` for each path of `touched` that such a file runs; what is not 0 ends it. */
int apply_command_find(int base, const char *command, char **touched, int (*tell)(void *user, const char *path), void *user);
/* Does the text run the file: as an argument of an interpreter, by its path, or as a module? */
bool command_text_runs(const char *text, size_t n, const char *path);
