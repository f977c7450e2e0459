/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once
#include <stdbool.h>
#include "base/macros.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd"     /* U+FFFD */
#define UTF8_REPLACEMENT_LEN 3

/* Looks at the first character of p[0..n), n > 0. Returns how many bytes it takes: a whole character (*ret_valid true), or the
 * longest prefix of one that is broken off there (*ret_valid false; at least 1): what one U+FFFD stands for. */
size_t utf8_step(const char *p, size_t n, bool *ret_valid);
bool utf8_valid(const char *p, size_t n);
/* Writes a code point (a surrogate becomes U+FFFD); returns 1 to 4. */
size_t utf8_encode(uint32_t cp, char ret[static 4]);
