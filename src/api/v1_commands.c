/* /v1/sessions/{id}/commands: commands in the background. Their output lies in files of the daemon's own, so a piece of it is read
 * from there: an answer costs its own size, whatever the command has written. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "api/v1_internal.h"

#define OUTPUT_PIECE_MAX (1u << 20)
#define OUTPUT_PIECE_DEFAULT 65536

static void put_command(struct json_writer *w, const struct process_view *v) {
        bool ended = v->state == PROCESS_EXITED;
        json_begin_object(w);
        json_field_uint(w, "id", v->id);
        json_field_text(w, "state", process_state_to_string((int)v->state));
        json_field_text(w, "command", v->text);
        json_put_key(w, "exit_code");
        if (ended)
                json_put_int(w, v->exit_code);
        else
                json_put_null(w);
        json_field_bool(w, "timed_out", v->timed_out);
        json_field_bool(w, "oom", v->oom);
        json_field_bool(w, "output_limit", v->output_limit);
        json_field_uint(w, "stdout_bytes", v->out_bytes);
        json_field_uint(w, "stderr_bytes", v->err_bytes);
        v1_put_time(w, "started_at", v->started_ms);
        v1_put_time(w, "ended_at", v->ended_ms);
        json_end_object(w);
}

static void reply_command(struct http_request *r, int status, const struct process *p) {
        struct process_view v;
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        process_view(p, &v);
        put_command(&w, &v);
        v1_reply(r, status, json_finish(&w), &b);
}

/* The command of the path, or the answer is given. */
static struct process *find(struct http_request *r, void *user) {
        struct sessions *ss;
        const char *id;
        unsigned n;
        if (!v1_part(r, user, "cid", &ss, &id, &n))
                return NULL;
        struct process *p = n > 0 ? process_find(ss, id, n) : NULL;
        if (!p)
                v1_fault(r, -ENOENT, NULL, "command");
        return p;
}

void v1_post_command(struct http_request *r, void *user) {
        struct sessions *ss;
        const char *id;
        struct exec_body body;
        struct process_spec spec;
        struct json object;
        struct error e = { 0 };
        struct process *p;
        if (!v1_ready(r, user, &ss, &id) || !v1_body(r, false, &object))
                return;
        int x = v1_exec_decode(ss, &object, &body, &e);
        if (x == 0) {
                if (!body.timeout_given)
                        body.timeout_ms = 0;
                body.background = true;
                exec_body_spec(&body, &spec);
                x = process_start(ss, id, &spec, NULL, NULL, &p, &e);
                exec_body_release(&body);
        }
        if (x < 0)
                v1_fault(r, x, e.text, "session");
        else
                reply_command(r, 201, p);
}

static int put_item(const struct process_view *v, void *user) {
        put_command(user, v);
        return 0;
}

void v1_list_commands(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        if (!ss)
                return;
        if (!session_find(ss, id)) {
                v1_unready(ss, r, id);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(4u << 20);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "commands");
        json_begin_array(&w);
        int x = processes_list(ss, id, put_item, &w);
        json_end_array(&w);
        json_end_object(&w);
        int y = json_finish(&w);
        v1_reply(r, 200, x < 0 ? x : y, &b);
}

void v1_get_command(struct http_request *r, void *user) {
        struct process *p = find(r, user);
        if (p)
                reply_command(r, 200, p);
}

/* ---- output ------------------------------------------------------------------------------------------------------------------------- */

bool v1_parse_piece(struct http_request *r, struct v1_piece *ret) {
        const char *stream = http_query(r, "stream"), *offset = http_query(r, "offset"), *encoding = http_query(r, "encoding");
        char *end = NULL;
        *ret = (struct v1_piece){ .every = !stream, .stream = stream && strcmp(stream, "stderr") == 0 ? 2 : 1, .base64 = encoding && strcmp(encoding, "base64") == 0 };
        if (!v1_query_uint(r, "limit", OUTPUT_PIECE_DEFAULT, OUTPUT_PIECE_MAX, &ret->limit))
                return false;
        errno = 0;
        if (offset)
                ret->offset = strtoll(offset, &end, 10);
        const char *wrong = offset && (end == offset || *end || errno) ? "offset" : stream && ret->stream == 1 && strcmp(stream, "stdout") != 0 ? "stream" :
                encoding && !ret->base64 && strcmp(encoding, "utf8") != 0 ? "encoding" : NULL;
        char text[64];
        snprintf(text, sizeof text, "Invalid value for '%s'", wrong ? wrong : "");
        if (wrong)
                v1_error(r, 400, "invalid", text, NULL);
        return !wrong;
}

static int read_piece(int fd, const struct v1_piece *p, struct buf *ret, uint64_t *ret_offset, uint64_t *ret_size) {
        struct stat st;
        if (fstat(fd, &st) < 0)
                return -errno;
        int64_t at = p->offset < 0 ? MAX2(st.st_size + p->offset, (int64_t)0) : MIN2(p->offset, (int64_t)st.st_size);
        size_t n = (size_t)MIN2((uint64_t)(st.st_size - at), p->limit);
        int r = buf_reserve(ret, n);
        if (r < 0)
                return r;
        ssize_t got = n > 0 ? pread(fd, ret->data, n, at) : 0;
        if (got < 0)
                return -errno;
        ret->len = (size_t)got;
        *ret_offset = (uint64_t)at;
        *ret_size = (uint64_t)st.st_size;
        return 0;
}

void v1_get_output(struct http_request *r, void *user) {
        struct process *p = find(r, user);
        struct process_view v;
        struct v1_piece piece;
        if (!p)
                return;
        if (v1_query_true(r, "follow")) {
                v1_follow_output(r, p);
                return;
        }
        if (!v1_parse_piece(r, &piece))
                return;
        process_view(p, &v);           /* before the file: what has ended when it is asked has written all */
        _cleanup_close_ int fd = process_log(p, piece.stream);
        _cleanup_buf_ struct buf bytes = BUF_INIT(OUTPUT_PIECE_MAX), b = BUF_INIT(8u << 20);
        uint64_t offset = 0, size = 0;
        int x = fd < 0 ? fd : read_piece(fd, &piece, &bytes, &offset, &size);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_text(&w, "stream", piece.stream == 2 ? "stderr" : "stdout");
        json_field_uint(&w, "offset", offset);
        json_field_uint(&w, "next_offset", offset + bytes.len);
        json_field_uint(&w, "size", size);
        json_field_bool(&w, "eof", v.state == PROCESS_EXITED && offset + bytes.len == size);
        int y = v1_put_bytes(&w, "data", buf_str(&bytes), bytes.len, piece.base64);
        json_end_object(&w);
        int z = json_finish(&w);
        v1_reply(r, 200, x < 0 ? x : y < 0 ? y : z, &b);
}

/* ---- ends and input ------------------------------------------------------------------------------------------------------------------- */

void v1_delete_command(struct http_request *r, void *user) {
        struct process *p = find(r, user);
        struct process_view v;
        char body[96];
        if (!p)
                return;
        process_view(p, &v);
        bool ended = v.state == PROCESS_EXITED;
        if (ended)
                process_forget(p);
        else
                (void)process_kill(p);
        http_respond(r, 200, "application/json", body, (size_t)snprintf(body, sizeof body, "{\"id\":%u,\"killed\":%s,\"deleted\":%s}", v.id, ended ? "false" : "true", ended ? "true" : "false"));
}

struct signal_body { uint64_t number; };
static const struct field signal_fields[] = {
        { .name = "signal", .kind = FIELD_INT, .at = offsetof(struct signal_body, number), .min = 1, .max = 64, .def = "15", .doc = "its number" },
};
struct v1_body v1_signal_body(void) { return (struct v1_body){ signal_fields, ARRAY_SIZE(signal_fields) }; }

void v1_post_signal(struct http_request *r, void *user) {
        struct process *p = find(r, user);
        struct signal_body q = { .number = SIGTERM };
        struct process_view v;
        struct json object;
        struct error e = { 0 };
        char body[96];
        if (!p || !v1_body(r, true, &object))
                return;
        int x = fields_decode(signal_fields, ARRAY_SIZE(signal_fields), &object, 0, &q, &e);
        const char *text = x < 0 ? e.text : NULL;
        if (x == 0)
                x = process_signal(p, (int)q.number);
        process_view(p, &v);
        if (x < 0)
                v1_fault(r, x, text, "command");
        else
                http_respond(r, 200, "application/json", body, (size_t)snprintf(body, sizeof body, "{\"id\":%u,\"signal\":%d}", v.id, (int)q.number));
}

struct writing { struct http_request *r; unsigned id; size_t n; };

static void writing_closed(void *user) { ((struct writing *)user)->r = NULL; }

static void written(int x, void *user) {
        struct writing *wr = user;
        char body[96];
        if (wr->r) {
                http_on_close(wr->r, NULL, NULL);
                if (x < 0)
                        v1_fault(wr->r, x, NULL, "command");
                else
                        http_respond(wr->r, 200, "application/json", body, (size_t)snprintf(body, sizeof body, "{\"id\":%u,\"bytes\":%zu}", wr->id, wr->n));
        }
        free(wr);
}

/* A background command, or one whose output somebody reads as it comes. */
static struct process *find_input(struct http_request *r, void *user, unsigned *ret_id) {
        struct sessions *ss;
        const char *id;
        if (!v1_part(r, user, "cid", &ss, &id, ret_id))
                return NULL;
        struct process *p = process_find(ss, id, *ret_id);
        if (!p)
                p = process_with_input(ss, id, *ret_id);
        if (!p)
                v1_fault(r, -ENOENT, NULL, "command");
        return p;
}

void v1_post_stdin(struct http_request *r, void *user) {
        unsigned id;
        struct process *p = find_input(r, user, &id);
        const char *bytes;
        size_t n;
        if (!p)
                return;
        struct writing *wr = http_body_len(r) <= PROCESS_STDIN_MAX ? calloc(1, sizeof *wr) : NULL;
        if (!wr || http_body(r, &bytes, &n) < 0) {
                v1_fault(r, wr ? -EIO : http_body_len(r) > PROCESS_STDIN_MAX ? -E2BIG : -ENOMEM, NULL, NULL);
                free(wr);
                return;
        }
        *wr = (struct writing){ .r = r, .id = id, .n = n };
        http_on_close(r, writing_closed, wr);
        int x = process_write(p, bytes, n, v1_query_true(r, "close"), written, wr);
        if (x < 0)
                written(x, wr);
}
