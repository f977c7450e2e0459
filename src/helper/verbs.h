/* Verbs of the helper. To add one: declare it here, add it to the table in main.c, name its file in meson.build. */
#pragma once
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

/* As in sandbox/sandbox.h, which the helper cannot include: it pulls in libuv. */
#define HELPER_ROOT_FD 3
#define HELPER_BASE_FD 4
#define HELPER_BASE_USR_FD 5
#define HELPER_BASE_OPT_FD 6
#define HELPER_FIRST_FREE_FD 7

struct helper_verb { const char *name; int (*run)(int argc, char **argv); };

/* remove-tree PATH: removes a directory (or file) below the root and all in it, never following a link. Absent is fine. */
int verb_remove_tree(int argc, char **argv);
/* apply: patches, restores and tests' files of one task; request and report at descriptors from 7 on (score/apply_wire.h). */
int verb_apply(int argc, char **argv);
/* recheck [no-bytecode]: the tree after a run against the seal that apply made; descriptors from 7 on (score/apply_wire.h, score/seal.h). */
int verb_recheck(int argc, char **argv);
/* read-file root|base PATH: its bytes on standard output; regular files only, links not followed. 2: there is none. */
int verb_read_file(int argc, char **argv);
/* results facts|read PATH...: what these files are, and what is in them (sandbox/results_wire.h); links not followed. */
int verb_results(int argc, char **argv);
/* wait: says "." and waits for the end of its input. For tests. */
int verb_wait(int argc, char **argv);
/* files OPERATION ...: see files.c. */
int verb_files(int argc, char **argv);
/* find-user USER[:GROUP]: see find_user.c. */
int verb_find_user(int argc, char **argv);
/* send PATH: see send.c. */
int verb_send(int argc, char **argv);
int verb_true(int argc, char **argv);
/* unpack [target=DIR] [plain] [diff-id=HEX] [entries=N] [stream=BYTES] [uid=N gid=N]: see unpack.c. */
int verb_unpack(int argc, char **argv);
/* copy-out [top=DIR] ... -- SOURCE...: see copy_out.c. */
int verb_copy_out(int argc, char **argv);
/* changes json OFFSET LIMIT, changes tar: see changes.c. */
int verb_changes(int argc, char **argv);
/* look [user=USER[:GROUP]] [path=PATH]: see look.c. */
int verb_look(int argc, char **argv);
