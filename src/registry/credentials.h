/* The operator's file of credentials: who the daemon is at which registry. Read anew for each pull, so it may be changed. */
#pragma once
#include "base/error.h"

/* For `host` ("registry.example:5000"). 1 and both set (owned, to be freed by secret_free), 0: the file names no such host, -errno.
 * No error holds anything of the file's contents. */
int credentials_find(const char *file, const char *host, char **ret_username, char **ret_password, struct error *e);
/* The same of the file's text. */
int credentials_parse(const char *p, size_t n, const char *host, char **ret_username, char **ret_password, struct error *e);
