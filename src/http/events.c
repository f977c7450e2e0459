#include "base/utf8.h"
#include "http/events.h"
#include "http/internal.h"

void http_events_start(struct http_request *r) {
        http_respond_header(r, "Cache-Control", "no-cache");
        http_respond_header(r, "X-Accel-Buffering", "no");      /* nginx between would gather events otherwise */
        r->events = true;
        http_stream_start(r, 200, "text/event-stream");
}

const char *http_events_last_id(const struct http_request *r) {
        const char *id = http_header(r, "Last-Event-ID");
        if (!id || !*id)
                id = http_query(r, "last_event_id");
        return id && *id ? id : NULL;
}

static bool one_line(const char *s) {
        return !s || !s[strcspn(s, "\r\n")];
}

/* "data: " and one line each. A line may end with LF, CR LF or CR, and the client would take each for an end: so all are ends here. */
static int add_data(struct buf *b, const char *p, size_t n) {
        const char *end = p + n;
        for (;;) {
                const char *stop = p;
                while (stop < end && *stop != '\r' && *stop != '\n')
                        stop++;
                int e = buf_adds(b, "data: ");
                if (e == 0)
                        e = buf_add(b, p, (size_t)(stop - p));
                if (e == 0)
                        e = buf_addc(b, '\n');
                if (e < 0 || stop == end)
                        return e;
                p = stop + (stop + 1 < end && stop[0] == '\r' && stop[1] == '\n' ? 2 : 1);
        }
}

int http_events_send(struct http_request *r, const char *event, const char *id, const char *data, size_t n) {
        /* Each line end of the data may cost seven bytes. */
        _cleanup_buf_ struct buf b = BUF_INIT(HTTP_STREAM_WRITE_MAX);
        int e = 0;
        if (!one_line(event) || !one_line(id))
                return -EINVAL;
        if (n > HTTP_EVENT_DATA_MAX)
                return -EMSGSIZE;
        if (event)
                e = buf_printf(&b, "event: %s\n", event);
        if (e == 0 && id)
                e = buf_printf(&b, "id: %s\n", id);
        if (e == 0)
                e = add_data(&b, data, n);
        if (e == 0)
                e = buf_addc(&b, '\n');
        if (e < 0)
                return e == -ENOSPC ? -EMSGSIZE : e;
        e = http_stream_write(r, b.data, b.len);
        if (e == 0)
                r->n_events++;
        return e;
}

void http_events_end(struct http_request *r) {
        http_stream_end(r);
}

void events_expired(struct conn *c) {
        http_stream_write(&c->r, ":\n\n", 3);
}
