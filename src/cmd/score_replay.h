/* A verdict that was kept with what was asked, asked for again and compared. */
#pragma once
#include "base/json.h"

#define REPLAY_FILE_MAX (1024u << 20)      /* bytes of a kept verdict */

/* The text that `--save` and `brig eval` keep: {"request", "record"}. */
int replay_keep(int fd, const struct buf *request, const struct buf *record);
/* The request and the record of such a file; both lie in *file. -EINVAL: it is none. */
int replay_load(const char *path, struct buf *file, struct json *ret_request, struct json *ret_record, struct error *e);
/* Appends {"same", "differences": [{"what", "was", "now"}]}: of all that `evidence` covers, the exit status and the findings. "what" is a key of the record
 * ("provenance.argv"), or "tests" and the test's id with a colon between; a test that was not there is null. */
int replay_compare(const struct json *was, const struct json *now, struct buf *ret);
