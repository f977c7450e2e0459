/* Standard input of brig exec -i, sent as it comes, by a thread. */
#pragma once
#include "cmd/remote.h"

struct exec_input;

/* From now on what comes on standard input is the command's whose `started` event has said `id`. A failure raises SIGTERM. */
int exec_input_start(const char *url, const char *session, int64_t id, struct exec_input **ret, struct error *e);
/* Sends no more. What went wrong: the input could not be read or sent; 0 where the command has just not read all of it. NULL is fine. */
int exec_input_end(struct exec_input *in, struct error *e);
