/* What the files of child*.c share. */
#pragma once
#include "sandbox/child.h"

struct clone_args;

/* Returns the code. */
int child_fail(struct child_report *r, const char *step, int code);
void child_settle(void);
/* Descriptors, limits, the user namespace where it is not joined yet, ids, privileges, terminal, working directory, execve. Returns only
 * on failure, with the report filled. */
int child_finish(struct child_exec *c, struct child_report *rep);
/* Being born in the group costs nothing; moving there takes a lock that waits for a grace period: up to 10 ms. */
void child_born_in_group(struct child_exec *c, struct clone_args *args);
int child_slots_restore(int null_fd, size_t n);
int child_send_fd(int socket, int fd);
