/* What operators and their machines ask, as routes of an HTTP server whose `user` is a struct api.
 *
 *     GET /healthz    200 {"status":"ok"}: the loop turns. No token needed.
 *     GET /readyz     200 {"status":"ready","slots","running","queued"}: tasks that may run at once, that do, that wait; or 503
 *                     with "draining" or "disk_full": new work would be refused. No token needed.
 *     GET /metrics    Prometheus' text format
 *     GET /events     what happens to tasks and sessions, as it happens: see ops_events.h
 *
 * Loop thread only. */
#pragma once
#include "api/api.h"

const struct http_route *ops_routes(size_t *ret_n);
/* Counts an answered request; for http_config.log. */
void ops_count_request(int status);
