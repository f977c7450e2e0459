/* The operator's file of credentials: who the daemon is at which registry. */
#pragma once
#include "base/error.h"

/* For `host` ("registry.example:5000"). 1 and both set (owned, to be freed by secret_free), 0: the file names no such host, -errno. `fd` is read
 * from its beginning; where it stands does not change.
 * No error holds anything of the file's contents. */
int credentials_find(int fd, const char *host, char **ret_username, char **ret_password, struct error *e);
/* The same of the file's text. */
int credentials_parse(const char *p, size_t n, const char *host, char **ret_username, char **ret_password, struct error *e);
