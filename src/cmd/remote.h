/* A daemon's native API, as the verbs use it: finding it, JSON calls, streams of events; errors become one line. */
#pragma once
#include "base/json.h"
#include "cmd/client.h"
#include "cmd/command.h"

#define REMOTE_ANSWER_MAX (64u << 20)
#define REMOTE_CALL_MS 60000

/* Options that every such verb has: --url, -o. `struct remote_options` is the first member of the verb's target. */
struct remote_options { char *url; bool json; };
#define REMOTE_ROWS 2
extern const struct option_row remote_rows[REMOTE_ROWS];
#define REMOTE_COMMON .common = remote_rows, .n_common = REMOTE_ROWS

/* The daemon at `url`, else at BRIG_URL, else the local one. `must`: -EIO when it does not answer; else *ret is NULL then. */
int remote_find(const char *url, bool must, struct client **ret, struct error *e);

/* A call whose answer is JSON. body NULL: none. -ENOENT for 404, -EBUSY for 409, -EINVAL for other 4xx, -EIO for the rest, with the daemon's own
 * words. *ret lies in *answer. */
int remote_call(struct client *c, const char *method, const char *path, const struct buf *body, uint64_t timeout_ms, struct buf *answer,
                struct json *ret, struct error *e);
/* What an answer with that status and body says. */
int remote_refusal(int status, const char *body, size_t n, struct error *e);

/* A call whose answer is a stream of events. each(name, data): JSON text; non-zero ends the call and is returned. Else 0 at the stream's end. An
 * answer that is no such stream is an error as above. */
struct remote_events {
        const char *method, *path, *content_type;
        const struct buf *body;                            /* NULL: none, or `source` */
        ssize_t (*source)(char *p, size_t n, void *user);
        int (*each)(const char *event, const struct json *data, void *user);
        void *user;
};
int remote_stream(struct client *c, const struct remote_events *events, struct error *e);

/* ---- small things ---- */

/* "/v1/sessions/ID/exec": -EINVAL unless the id is one. `tail` begins with '/' or is "". */
#define REMOTE_PATH_MAX 8192
int session_path(const char *id, const char *tail, char ret[static REMOTE_PATH_MAX], struct error *e);
/* Appends percent-encoded. */
int query_encode(struct buf *b, const char *s);
/* A member as text; "" when absent or null, numbers as they are. Cut to n - 1 bytes, control characters are '?'. */
const char *member_show(const struct json *object, const char *key, char *ret, size_t n);
/* An object of "K=V" strings: -EINVAL names the option. */
int put_pairs(struct json_writer *w, const char *key, char *const *pairs, const char *option, struct error *e);
int put_number(struct json_writer *w, const char *key, const char *text, const char *option, struct error *e);  /* NULL text: nothing */

/* A table on standard output: rows are gathered, then columns get their widths. */
#define TABLE_COLUMNS_MAX 10
struct table { const char *const *head; size_t columns; struct buf cells; size_t n; };
void table_init(struct table *t, const char *const *head, size_t columns);
int table_cell(struct table *t, const char *text);     /* row by row */
int table_print(struct table *t, FILE *to);
void table_release(struct table *t);

/* SIGINT and SIGTERM end the call under way with -EINTR. */
void remote_interruptible(struct client *c);
/* The answer as one line of JSON. */
int print_json(const struct json *v);

/* ---- a verb (remote_verb.c) ---- */

/* The usual course of one: options into `target` (zeroed, a struct remote_options first; released at the end), between `min` and `max`
 * arguments, the daemon, `go`, and what went wrong as one line. The exit status: what `go` put into
 * *status, which is 0 before; for a failure EXIT_USAGE and others as command_fail, or `failed` where that is not 0. */
struct remote_verb {
        const struct command *command;
        void *target;
        int min, max;
        int failed;
        int (*go)(struct client *c, void *target, char **arguments, int n, int *status, struct error *e);
};
int remote_verb(const struct remote_verb *v, int argc, char **argv);
/* remote_call with a body of JSON that was written, or without (NULL); printed as it is. */
int remote_print(struct client *c, const char *method, const char *path, const struct buf *body, uint64_t timeout_ms, struct error *e);

#define SHOW_MAX 512                   /* bytes of a cell */
/* How long ago the time in that member was: "5 s", "3 min", "2 h", "9 d"; "" without. */
const char *age_show(const struct json *object, const char *key, char ret[static SHOW_MAX]);
const char *bytes_show(const struct json *object, const char *key, char ret[static SHOW_MAX]);     /* "3.4 MiB" */
int64_t member_number(const struct json *object, const char *key, int64_t absent);
bool member_true(const struct json *object, const char *key);
/* One line on standard error that is written over, where that is a terminal; "" takes it away. */
void status_line(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* session.c: until it is not starting any more; *session then lies in *answer. */
int remote_wait_started(struct client *c, struct buf *answer, struct json *session, struct error *e);
