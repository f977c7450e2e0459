/* GET /events: what happens to tasks and sessions, as server-sent events, to any number of listeners up to EVENTS_LISTENERS_MAX.
 *
 *     id: 17
 *     event: task.finished
 *     data: {"at":"2026-01-02T03:04:05.678Z","task":"9f..","outcome":"resolved"}
 *
 * They are the lines of the log that are about tasks and sessions (base/log.h), whatever its level. The last EVENTS_KEPT stay: a listener that comes back
 * with the id of the last that it has seen misses nothing of these; one that reads slowly catches up, and is told by `lost` how many went by. Ids begin
 * again with the daemon. Loop thread only. */
#pragma once
#include "api/api.h"

#define EVENTS_KEPT 1024
#define EVENTS_LISTENERS_MAX 64
#define EVENT_TEXT_MAX 8192            /* bytes of one; what is longer is left out */

void ops_get_events(struct http_request *r, void *user);
/* From now on events are kept: once, on the loop's thread. */
void ops_events_begin(void);
