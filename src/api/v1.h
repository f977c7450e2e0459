/* The native surface: `/v1`. Errors are {"error":{"code","message","hint"}}, times are RFC 3339, durations are seconds.
 *
 * One table of routes (v1.c), one file a resource (v1_sessions.c, v1_exec.c...). To add a resource: a file, its handlers declared in
 * v1_internal.h, its rows in v1.c. Bodies are decoded by field tables; a row of the route table names its table, and
 * /v1/openapi.json and docs/api.md are written from both. Loop thread only. */
#pragma once
#include "api/api.h"
#include "base/fields.h"

#define V1_BODY_MAX (32u << 20)        /* bytes of a JSON body that is decoded on the loop; bigger ones are a file's */
#define V1_WAIT_MAX_S 300              /* ?wait= is cut to this */
#define V1_PAGE_MAX 1000
#define V1_PAGE_DEFAULT 100

const struct http_route *v1_routes(size_t *ret_n);
/* The OpenAPI 3.1 description, and the page for people. */
/* For http_config.error_body: what the server refuses by itself, in the shape of these calls below "/v1/" and as {"error": text} elsewhere. */
int v1_or_plain_error(int status, const char *path, const char *message, struct buf *b);
int v1_openapi(struct buf *ret);
int v1_document(struct buf *ret);
int executor_session_document(struct buf *ret);        /* the fields of the executor's sessions */
