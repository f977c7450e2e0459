/* Takes credentials out of text that will be shown, logged or stored. */
#pragma once
#include "base/buf.h"

/* Appends the URL with what stands between "://" and the last "@" of its authority replaced by "***". Other text (a path, an
 * scp-like address without a password) is appended as it is. */
int redact_url(const char *url, struct buf *ret);
/* Wipes a text that holds a secret, and frees it. NULL is nothing. */
void secret_free(char *s);
