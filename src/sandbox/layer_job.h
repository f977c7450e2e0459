/* One slow step in a child of the spawner: fork, run, report (result, text, perhaps a descriptor) over a socket pair. The
 * child dies with the spawner. Single-threaded callers only (the child continues as a copy of the caller). */
#pragma once
#include "base/error.h"

struct job_child { pid_t pid; int fd; };   /* fd: poll for POLLIN */

/* `run` executes in the child: 0 and perhaps a descriptor in *ret_fd, or -errno with e set. `extra` bytes come back as they are. */
typedef int (*job_run)(void *arg, int *ret_fd, uint64_t *ret_value, struct error *e);
int job_start(job_run run, void *arg, struct job_child *ret);
/* Blocks until the child has reported, reaps it. -ECHILD style failures of the child itself are -EIO ("died"). */
int job_finish(struct job_child *c, int *ret_fd, uint64_t *ret_value, struct error *e);
void job_kill(struct job_child *c);        /* and reaps */
