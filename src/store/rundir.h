/* Run directories: one per task, named by its id, with the logs of its streams. The daemon's own; only files lie in them. */
#pragma once
#include <stddef.h>
#include <uv.h>

/* Makes it, or takes what an earlier attempt left. A descriptor of it, or -errno. */
int rundir_open(int runs_dirfd, const char *id);
/* Removes the directories of n ids in the pool; missing ones are fine. The ids are copied. `done` on the loop: 0 or the first
 * -errno. The call fails only with -ENOMEM, and then `done` does not run. */
int rundir_remove(uv_loop_t *loop, int runs_dirfd, const char *const *ids, size_t n, void (*done)(int r, void *user), void *user);
/* Calls f for every entry that is named like a task's id; f must not change the directory. */
int rundir_each(int runs_dirfd, int (*f)(const char *id, void *user), void *user);
