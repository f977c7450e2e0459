/* The JSON report of jest, which vitest writes as well. */
#pragma once
#include "score/sink.h"

#define JEST_TEXT_MAX 4096      /* bytes of a title, a group or a path; a report with a longer one is refused */

int jest_report(const char *p, size_t n, enum name_form own, struct sink *ret);

/* What parsers of JSON reports share: a member's text into ret; false, and "": it is not there, is no string, or is too long. */
struct json;
bool report_text(const struct json *o, const char *key, char *ret, size_t size);
/* A path as the data has it: relative to the tree. */
const char *report_path(const struct sink *s, const char *path);
