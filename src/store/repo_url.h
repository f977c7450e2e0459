/* Repository addresses and commit names from requests: what is accepted, and what each means. Pure functions.
 *
 * Accepted: an absolute path, file://, http://, https://, git://, ssh://, and [user@]host:path. Refused, with a reason that
 * begins with the field's name: a leading '-', "ext::" and every other "transport::", other schemes, relative paths, hosts
 * or users that git or ssh could take for an option, control characters, more than REPO_URL_MAX bytes. */
#pragma once
#include <stdbool.h>

#include "base/error.h"

#define REPO_URL_MAX 4096
#define REPO_COMMIT_MAX 256

enum repo_kind { REPO_LOCAL, REPO_HTTP, REPO_GIT, REPO_SSH, REPO_KIND_MAX };

struct repo_url {
        enum repo_kind kind;
        char *canonical;           /* no credentials, lower-case scheme and host, no default port, no trailing slash */
        char *origin;              /* REPO_HTTP: "https://host:port", what its credentials are good for; else NULL */
        char *path;                /* REPO_LOCAL: the directory; else NULL */
        char *username, *password; /* REPO_HTTP, decoded; NULL without */
};

/* 0, -EINVAL (e says why), -ENOMEM. */
int repo_url_parse(const char *text, struct repo_url *ret, struct error *e);
void repo_url_release(struct repo_url *u);      /* wipes the password */
static inline bool repo_url_has_credentials(const struct repo_url *u) { return u->username || u->password; }

enum commit_kind {
        COMMIT_HASH,               /* 40 or 64 hex digits */
        COMMIT_NAME,               /* branch, tag, HEAD, refs/...; an abbreviated hash is tried as a name first */
};
/* 0 and the kind, or -EINVAL. */
int repo_commit_check(const char *commit, enum commit_kind *ret, struct error *e);
bool repo_commit_is_short_hash(const char *commit);     /* 7 to 39 hex digits */

/* Where the tree may lie in a sandbox: absolute, normal, not below what is mounted there anyway. */
int repo_path_check(const char *path, struct error *e);
