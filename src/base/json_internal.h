/* Shared by the JSON writer and the canonical form. Not for others. */
#pragma once
#include <stdbool.h>
#include "base/macros.h"

/* How many bytes at p need no escape and are ASCII. */
size_t json_quote_len(const char *p, size_t n);
/* What the first character at p becomes inside quotes (ret, returned length); *ret_used bytes of p are consumed. */
size_t json_quote_char(const char *p, size_t n, char ret[static 8], size_t *ret_used);
