/* Output of a background command by server-sent events: what its logs hold, then what comes, then its end.
 *
 *     event: stdout                       event: exit
 *     id: 12,0                            data: {"exit_code":0,...}
 *     data: {"data":"..."}
 *
 * Each follower reads the logs at its own place, as fast as its client takes them: it costs no memory, holds nobody back, neither the
 * command nor the others, and may come late. An event's id is the place behind it in both logs, so a client that comes back with it
 * (Last-Event-ID) misses nothing and gets nothing twice. The logs stay open: one who is slow gets all of them, also after the command is forgotten. */
#include <string.h>
#include <sys/stat.h>

#include "api/v1_internal.h"
#include "base/fs.h"
#include "http/events.h"

struct follow {
        struct process_follower follower;      /* in no process any more: `end` is set */
        struct http_request *r;                /* NULL: the client is gone */
        struct process_view end;
        int log[3];                            /* by stream; -1: not wanted */
        uint64_t at[3];
        bool base64, inside;
};

static void free_follow(struct follow *f) {
        process_unfollow(&f->follower);
        fd_close(f->log[1]);
        fd_close(f->log[2]);
        free(f);
}

static void client_gone(void *user) {
        struct follow *f = user;
        f->r = NULL;
        if (!f->inside)
                free_follow(f);
}

static int send_exit(struct http_request *r, const struct process_view *v) {
        _cleanup_buf_ struct buf b = BUF_INIT(1024);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_int(&w, "exit_code", v->exit_code);
        json_field_bool(&w, "timed_out", v->timed_out);
        json_field_bool(&w, "oom", v->oom);
        json_field_bool(&w, "output_limit", v->output_limit);
        json_field_bool(&w, "session_ended", v->session_ended);
        json_field_uint(&w, "stdout_bytes", v->out_bytes);
        json_field_uint(&w, "stderr_bytes", v->err_bytes);
        json_end_object(&w);
        int x = json_finish(&w);
        return x < 0 ? x : http_events_send(r, "exit", NULL, b.data, b.len);
}

/* 1: all that there is now has been sent; 0: the client takes no more now; -errno. */
static int flush_log(struct follow *f, int stream, bool ended) {
        static char space[V1_EVENT_OUTPUT];    /* one loop thread */
        char id[64];
        while (f->log[stream] >= 0) {
                ssize_t n = pread(f->log[stream], space, sizeof space, (off_t)f->at[stream]);
                if (n < 0)
                        return -errno;
                size_t take = n > 0 && !f->base64 && (!ended || n == (ssize_t)sizeof space) ? v1_whole_characters(space, (size_t)n) : (size_t)n;
                if (take == 0)
                        return 1;
                f->at[stream] += take;
                snprintf(id, sizeof id, "%llu,%llu", (unsigned long long)f->at[1], (unsigned long long)f->at[2]);
                int x = v1_send_output(f->r, stream, id, space, take, f->base64);
                if (x < 0) {
                        f->at[stream] -= take;
                        return x == -EAGAIN || x == -EPIPE ? 0 : x;
                }
        }
        return 1;
}

static void flush(struct follow *f) {
        struct process_view v = f->end;
        if (f->follower.process)
                process_view(f->follower.process, &v);         /* before the logs: what has ended has written all */
        bool ended = v.state == PROCESS_EXITED;
        f->inside = true;                      /* writing may tell us that the client is gone */
        int x = flush_log(f, 1, ended);
        if (x == 1)
                x = flush_log(f, 2, ended);
        if (x == 1 && ended && (x = send_exit(f->r, &v)) == 0)
                x = 2;
        f->inside = false;
        if (!f->r) {
                free_follow(f);
        } else if (x == 2 || (x < 0 && x != -EAGAIN && x != -EPIPE)) {
                http_on_close(f->r, NULL, NULL);
                http_on_drain(f->r, NULL, NULL);
                if (x == 2)
                        http_events_end(f->r);
                else
                        http_stream_abort(f->r);
                free_follow(f);
        }
}

static void drained(void *user) { flush(user); }
static void more(struct process_follower *p) { flush(container_of(p, struct follow, follower)); }

static void gone(struct process_follower *p, const struct process_view *end) {
        struct follow *f = container_of(p, struct follow, follower);
        f->end = *end;
        f->end.text = NULL;
        flush(f);
}

/* ---- where it begins ------------------------------------------------------------------------------------------------------------- */

static bool parse_place(const char *s, uint64_t ret[static 3]) {
        unsigned long long out, err;
        char *end;
        errno = 0;
        out = strtoull(s, &end, 10);
        if (s[0] < '0' || s[0] > '9' || *end != ',' || end[1] < '0' || end[1] > '9')
                return false;
        err = strtoull(end + 1, &end, 10);
        ret[1] = out;
        ret[2] = err;
        return !*end && !errno && out <= INT64_MAX && err <= INT64_MAX;
}

static int open_log(struct follow *f, struct process *p, int stream, int64_t offset) {
        struct stat st;
        int fd = process_log(p, stream);
        if (fd < 0)
                return fd;
        f->log[stream] = fd;
        if (fstat(fd, &st) < 0)
                return -errno;
        f->at[stream] = (uint64_t)(offset < 0 ? MAX2(st.st_size + offset, (int64_t)0) : MIN2(offset, (int64_t)st.st_size));
        return 0;
}

void v1_follow_output(struct http_request *r, struct process *p) {
        struct v1_piece piece;
        uint64_t place[3];
        struct process_view v;
        const char *last = http_events_last_id(r);
        if (!v1_parse_piece(r, &piece))
                return;
        if (last && !parse_place(last, place)) {
                v1_error(r, 400, "invalid", "Invalid value for 'Last-Event-ID'", "it is the id of an event of this stream");
                return;
        }
        struct follow *f = calloc(1, sizeof *f);
        if (!f) {
                v1_fault(r, -ENOMEM, NULL, NULL);
                return;
        }
        *f = (struct follow){ .follower = { .more = more, .gone = gone }, .r = r, .log = { -1, -1, -1 }, .base64 = piece.base64 };
        process_view(p, &v);
        int x = 0;
        for (int s = 1; s <= 2 && x == 0; s++)
                if (piece.every ? s == 1 || !v.merged : piece.stream == s)
                        x = open_log(f, p, s, last ? (int64_t)place[s] : piece.offset);
        if (x == 0)
                x = process_follow(p, &f->follower);
        if (x < 0) {
                free_follow(f);
                v1_fault(r, x, x == -EUSERS ? "Too many follow this command" : NULL, "command");
                return;
        }
        http_on_close(r, client_gone, f);
        http_on_drain(r, drained, f);
        f->inside = true;
        http_events_start(r);
        f->inside = false;
        if (f->r)
                flush(f);
        else
                free_follow(f);
}
