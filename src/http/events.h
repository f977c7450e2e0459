/* Server-sent events over a stream (text/event-stream). As with every stream: http_on_close(), http_on_drain() and -EAGAIN. While
 * nothing is sent a comment goes out every HTTP_EVENTS_KEEP_ALIVE_MS, so that nobody between takes the connection for dead, and
 * a peer that vanished is noticed. One that shuts its side of the connection counts as gone. */
#pragma once
#include "http/server.h"

#define HTTP_EVENTS_KEEP_ALIVE_MS 15000
#define HTTP_EVENT_DATA_MAX (256 * 1024)       /* bytes of one event's data: -EMSGSIZE */

void http_events_start(struct http_request *r);
/* One event. `event` (NULL: the default, "message") and `id` (NULL: none) are one line without NUL: else -EINVAL. Data is sent as one
 * "data:" line for each of its lines (LF, CR LF or CR), and arrives with LF between them; it must be UTF-8.
 * 0, or as http_stream_write(): nothing was taken. */
int http_events_send(struct http_request *r, const char *event, const char *id, const char *data, size_t n);
void http_events_end(struct http_request *r);
/* The id that a client which comes again has seen last (Last-Event-ID, or the query's last_event_id); NULL when none. */
const char *http_events_last_id(const struct http_request *r);
