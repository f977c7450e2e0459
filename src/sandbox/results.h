/* The daemon's side of the helper's verb `results`: what it wrote, kept in a capture, and how answers say it. */
#pragma once
#include "base/json.h"
#include "sandbox/capture.h"
#include "sandbox/results_wire.h"

#define RESULTS_FACTS_MAX (RESULT_FILES_MAX * sizeof(struct result_head))
#define RESULTS_BYTES_MAX (RESULTS_FACTS_MAX + RESULT_TOTAL_MAX)

/* The next head, and what it brought, from *at on; *at moves. False: no more, or not all of it; nothing is changed then, so that all that
 * would follow is missing too. */
bool results_next(const struct output_capture *c, size_t *at, struct result_head *ret, const char **ret_bytes);
/* An object: each of `names` (NULL-terminated, may be NULL) with the text of the file that was asked for in its place, or null. Texts that
 * would be more than `json_max` bytes of JSON in all are null, too. */
void results_write(struct json_writer *w, const struct output_capture *c, char *const *names, size_t json_max);
