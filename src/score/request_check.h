/* The checks of a scoring request that look at more than one field; request.c decodes. */
#pragma once
#include "base/fields.h"
#include "score/request.h"

/* Before anything is decoded: "Unsupported mode: 'x'", then "Missing required fields: [...]". `found`: the span of each row of the table. */
int request_check_required(const struct field *table, size_t n, const struct json *found, struct error *e);
/* After: every value in its range, and what the mode has no use for is dropped. */
int request_check(struct score_request *q, struct error *e);
