/* URLs of registries: where a redirect may lead, and whom credentials are for. No state; loop thread (libcurl is loaded). */
#pragma once
#include <stdbool.h>

#include "base/error.h"
#include "registry/fetch.h"

struct address {
        char url[FETCH_URL_MAX];           /* absolute, no fragment, no user */
        char origin[FETCH_URL_MAX];        /* "https://host:port", the port always written */
        bool plain;                        /* http */
        bool loopback;                     /* the host is written as a loopback address */
};

/* `text`, absolute or relative to `base` (NULL: absolute), as it may be fetched by a pull from a registry whose own host is loopback
 * or not: https, or http where both this registry and the URL's host are loopback. -EBADMSG: no such URL, a user in it, or too long;
 * -EPROTO: plain HTTP where it is not allowed. */
int address_resolve(const struct address *base, const char *text, bool registry_loopback, struct address *ret, struct error *e);
/* Appends "name=value" to a URL's query, encoded. -ENOSPC. */
int address_add_query(struct address *a, const char *name, const char *value);
