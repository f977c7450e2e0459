/* See ops_events.h. An event comes from within whatever does it, so nothing is sent there: a handle of the loop's turns the listeners' streams to it
 * afterwards. */
#include <pthread.h>
#include <string.h>

#include "api/ops_events.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "http/events.h"

struct event { char name[48]; char id[64]; char *text; };

struct listener {
        struct listener *next, **at_list;
        struct http_request *r;        /* NULL: gone, while something is sent to it */
        uint64_t at;                   /* the next event that it wants */
        char id[64];                   /* of a task or session; "": all */
        bool inside;
};

static struct {
        struct event ring[EVENTS_KEPT];
        uint64_t next;                 /* number of the next event; the first is 1 */
        struct listener *listeners;
        size_t n;
        uv_idle_t *idle;               /* while there are listeners */
        pthread_t thread;
} hub = { .next = 1 };

/* ---- what happens ---------------------------------------------------------------------------------------------------------------- */

static uint64_t oldest(void) { return hub.next > EVENTS_KEPT ? hub.next - EVENTS_KEPT : 1; }

static void on_idle(uv_idle_t *h);

static int write_event(struct buf *b, struct event *ev, va_list pairs) {
        struct json_writer w = JSON_WRITER(b);
        char at[25];
        format_wall(wall_ms(), at);
        json_begin_object(&w);
        json_field_text(&w, "at", at);
        for (const char *key; (key = va_arg(pairs, const char *));) {
                const char *value = va_arg(pairs, const char *);
                json_field_text(&w, key, value);
                if (value && (strcmp(key, "task") == 0 || strcmp(key, "session") == 0))
                        snprintf(ev->id, sizeof ev->id, "%s", value);
        }
        json_end_object(&w);
        return json_finish(&w);
}

static void seen(enum log_level level, const char *name, va_list pairs) {
        struct event ev = { 0 };
        if (level < LOG_INFO || (strncmp(name, "task.", 5) != 0 && strncmp(name, "session.", 8) != 0) || !pthread_equal(pthread_self(), hub.thread))
                return;
        _cleanup_buf_ struct buf b = BUF_INIT(EVENT_TEXT_MAX);
        snprintf(ev.name, sizeof ev.name, "%s", name);
        if (write_event(&b, &ev, pairs) < 0)
                return;
        struct event *to = &hub.ring[hub.next++ % EVENTS_KEPT];
        free(to->text);
        ev.text = buf_steal(&b);
        *to = ev;
        if (hub.idle)
                uv_idle_start(hub.idle, on_idle);
}

void ops_events_begin(void) {
        hub.thread = pthread_self();
        log_on_event(seen);
}

/* ---- listeners ------------------------------------------------------------------------------------------------------------------- */

static void on_idle_closed(uv_handle_t *h) { free(h); }

static void listener_free(struct listener *l) {
        *l->at_list = l->next;
        if (l->next)
                l->next->at_list = l->at_list;
        free(l);
        if (--hub.n == 0)
                uv_close((uv_handle_t *)TAKE_PTR(hub.idle), on_idle_closed);
}

static void listener_gone(void *user) {
        struct listener *l = user;
        l->r = NULL;
        if (!l->inside)
                listener_free(l);
}

static int send_lost(struct listener *l) {
        char text[48];
        uint64_t lost = oldest() - l->at;
        int r = http_events_send(l->r, "lost", NULL, text, (size_t)snprintf(text, sizeof text, "{\"events\":%llu}", (unsigned long long)lost));
        if (r == 0)
                l->at += lost;
        return r;
}

static int send_one(struct listener *l) {
        const struct event *ev = &hub.ring[l->at % EVENTS_KEPT];
        char id[24];
        snprintf(id, sizeof id, "%llu", (unsigned long long)l->at);
        int r = !ev->text || (l->id[0] && strcmp(l->id, ev->id) != 0) ? 0 : http_events_send(l->r, ev->name, id, ev->text, strlen(ev->text));
        if (r == 0)
                l->at++;
        return r;
}

static void flush(struct listener *l) {
        int r = 0;
        l->inside = true;              /* writing may tell us that the client is gone */
        while (r == 0 && l->r && l->at < hub.next)
                r = l->at < oldest() ? send_lost(l) : send_one(l);
        l->inside = false;
        if (!l->r)
                listener_free(l);
}

static void drained(void *user) { flush(user); }

static void on_idle(uv_idle_t *h) {
        uv_idle_stop(h);
        for (struct listener *l = hub.listeners, *next; l; l = next) {
                next = l->next;
                flush(l);
        }
}

static bool where_to_begin(struct http_request *r, uint64_t *ret) {
        const char *last = http_events_last_id(r);
        char *end;
        *ret = hub.next;
        if (!last)
                return true;
        errno = 0;
        unsigned long long n = strtoull(last, &end, 10);
        if (last[0] < '0' || last[0] > '9' || *end || errno)
                return false;
        if (n < hub.next)              /* else it is of another daemon's */
                *ret = n + 1;
        return true;
}

void ops_get_events(struct http_request *r, void *user) {
        struct api *a = user;
        const char *id = http_query(r, "id");
        uint64_t at;
        if (!where_to_begin(r, &at)) {
                http_respond_error(r, 400, "Invalid value for 'Last-Event-ID'");
                return;
        }
        struct listener *l = hub.n < EVENTS_LISTENERS_MAX ? calloc(1, sizeof *l) : NULL;
        if (l && hub.n == 0 && !(hub.idle = malloc(sizeof *hub.idle))) {
                free(l);
                l = NULL;
        }
        if (!l) {
                http_respond_header(r, "Retry-After", "5");
                http_respond_error(r, 503, "Too many listen already");
                return;
        }
        if (hub.n++ == 0)
                uv_idle_init(a->loop, hub.idle);
        *l = (struct listener){ .r = r, .at = at, .next = hub.listeners, .at_list = &hub.listeners };
        if (l->next)
                l->next->at_list = &l->next;
        hub.listeners = l;
        snprintf(l->id, sizeof l->id, "%s", id ? id : "");
        http_on_close(r, listener_gone, l);
        http_on_drain(r, drained, l);
        l->inside = true;
        http_events_start(r);
        flush(l);
}
