/* Between the files of the native surface. */
#pragma once
#include "api/session_fields.h"
#include "api/v1.h"
#include "base/json.h"

/* ---- routes, as the table in v1.c has them ---- */

struct v1_body { const struct field *rows; size_t n; };
struct v1_param { const char *name, *type, *doc; };    /* of the query; type "integer", "string" or "boolean" */
struct v1_route {
        const char *method, *path;
        http_handler handler;
        const char *id;                /* operationId */
        const char *doc;               /* one sentence */
        struct v1_body (*body)(void);  /* the fields of a JSON body; NULL without */
        const char *content;           /* media type of a body that is not JSON; NULL without */
        const struct v1_param *query; size_t n_query;
        int status;                    /* of success */
        bool upload;                   /* the body comes in pieces, however long it is */
        const char *answer;            /* what it answers, for people */
};
const struct v1_route *v1_table(size_t *ret_n);

/* ---- answers ---- */

/* `hint`: what to do about it; NULL without. */
void v1_error(struct http_request *r, int status, const char *code, const char *message, const char *hint);
/* A fault of a decoder (its text in `text`) or of the engine (`text` NULL). `what`: "session", "command"... for a 404. */
void v1_fault(struct http_request *r, int x, const char *text, const char *what);
void v1_reply(struct http_request *r, int status, int x, struct buf *b);       /* the buffer as JSON, or 500 when x < 0 */
/* Not there, or in which state it is: 404 or 409. */
void v1_unready(struct sessions *ss, struct http_request *r, const char *id);
/* The sessions, or NULL and 503 is answered. */
struct sessions *v1_sessions(struct http_request *r, void *user);
/* The body as an object; an empty one is {} where `may_be_empty`. Else 400 or 413 is answered. */
bool v1_body(struct http_request *r, bool may_be_empty, struct json *ret);
/* An unsigned number of the query, cut to `max`; `absent` where it is not there. False: 400 is answered. */
bool v1_query_uint(struct http_request *r, const char *key, uint64_t absent, uint64_t max, uint64_t *ret);
/* A switch of the query: there, and neither "0" nor "false". */
bool v1_query_true(struct http_request *r, const char *key);
/* Is the session that the path names there, and ready? False: 404, 409 or 503 is answered. */
bool v1_ready(struct http_request *r, void *user, struct sessions **ret_ss, const char **ret_id);
/* The live session that the path names, and the number at `name` in it, 0 where that is none. False: 404 or another state is answered. */
bool v1_part(struct http_request *r, void *user, const char *name, struct sessions **ret_ss, const char **ret_id, unsigned *ret_number);
void v1_put_time(struct json_writer *w, const char *key, int64_t ms);          /* null for 0 */
void v1_put_seconds(struct json_writer *w, const char *key, uint64_t ms);
/* Bytes as text, or as base64 where the client asked for it. */
int v1_put_bytes(struct json_writer *w, const char *key, const char *p, size_t n, bool base64);

/* What is kept of a stream, and where some of it is left out a mark that says so. */
int v1_put_capture(struct json_writer *w, const char *key, const struct output_capture *c, bool base64);

/* ---- handlers ---- */

void v1_get_openapi(struct http_request *r, void *user);
/* v1_sessions.c */
struct v1_body v1_create_body(void);
struct v1_body v1_patch_body(void);
void v1_post_session(struct http_request *r, void *user);
void v1_list_sessions(struct http_request *r, void *user);
void v1_get_session(struct http_request *r, void *user);
void v1_patch_session(struct http_request *r, void *user);
void v1_delete_session(struct http_request *r, void *user);
void v1_post_heartbeat(struct http_request *r, void *user);
/* v1_state.c */
void v1_get_usage(struct http_request *r, void *user);
void v1_post_pause(struct http_request *r, void *user);
void v1_post_resume(struct http_request *r, void *user);
/* v1_terminals.c */
struct v1_body v1_terminal_body(void);
void v1_post_terminal(struct http_request *r, void *user);
void v1_list_terminals(struct http_request *r, void *user);
void v1_get_terminal(struct http_request *r, void *user);
void v1_delete_terminal(struct http_request *r, void *user);
void v1_attach_terminal(struct http_request *r, void *user);
/* v1_snapshots.c */
struct v1_body v1_snapshot_body(void);
struct v1_body v1_fork_body(void);
void v1_post_snapshot(struct http_request *r, void *user);
void v1_post_fork(struct http_request *r, void *user);
void v1_get_diff(struct http_request *r, void *user);
/* v1_port.c */
struct v1_body v1_port_body(void);
void v1_post_port(struct http_request *r, void *user);
void v1_serve_port(struct http_request *r, void *user);
/* v1_files.c */
struct v1_body v1_move_body(void);
struct v1_body v1_mkdir_body(void);
struct v1_body v1_chmod_body(void);
void v1_get_file_stat(struct http_request *r, void *user);
void v1_list_files(struct http_request *r, void *user);
void v1_search_files(struct http_request *r, void *user);
void v1_delete_file(struct http_request *r, void *user);
void v1_post_move(struct http_request *r, void *user);
void v1_post_mkdir(struct http_request *r, void *user);
void v1_post_chmod(struct http_request *r, void *user);
/* v1_content.c */
void v1_get_file(struct http_request *r, void *user);
void v1_put_file(struct http_request *r, void *user);
void v1_get_archive(struct http_request *r, void *user);
void v1_put_archive(struct http_request *r, void *user);
/* v1_network.c */
struct v1_body v1_network_body(void);
void v1_get_network(struct http_request *r, void *user);
void v1_put_network(struct http_request *r, void *user);
/* v1_follow.c */
struct process;
struct v1_piece { int stream /* 1, 2 */; bool every /* the query names none */; int64_t offset; uint64_t limit; bool base64; };
/* Which piece of a command's output the query asks for. False: 400 is answered. */
bool v1_parse_piece(struct http_request *r, struct v1_piece *ret);
void v1_follow_output(struct http_request *r, struct process *p);
/* v1_stream.c */
#define V1_EVENT_OUTPUT (32u * 1024)   /* bytes of output of one event */
/* How much of p[0..n) does not end within a character that may still be completed. */
size_t v1_whole_characters(const char *p, size_t n);
/* One event `stdout` (stream 1) or `stderr` (2); as http_events_send(). */
int v1_send_output(struct http_request *r, int stream, const char *id, const char *p, size_t n, bool base64);
struct process_spec;
int v1_stream_exec(struct sessions *ss, struct http_request *r, const char *id, struct process_spec *spec, bool base64, struct error *e);
/* v1_exec.c */
struct v1_body v1_exec_body(void);
void v1_post_exec(struct http_request *r, void *user);
/* v1_commands.c */
struct v1_body v1_signal_body(void);
void v1_post_command(struct http_request *r, void *user);
void v1_list_commands(struct http_request *r, void *user);
void v1_get_command(struct http_request *r, void *user);
void v1_get_output(struct http_request *r, void *user);
void v1_delete_command(struct http_request *r, void *user);
void v1_post_signal(struct http_request *r, void *user);
void v1_post_stdin(struct http_request *r, void *user);
/* v1_images.c, v1_import.c */
struct v1_body v1_tag_body(void);
void v1_list_images(struct http_request *r, void *user);
void v1_get_image(struct http_request *r, void *user);
void v1_delete_image(struct http_request *r, void *user);
void v1_post_tag(struct http_request *r, void *user);
void v1_post_import(struct http_request *r, void *user);
/* v1_pull.c, v1_build.c */
struct v1_body v1_pull_body(void);
struct v1_body v1_build_body(void);
void v1_post_pull(struct http_request *r, void *user);
void v1_post_build(struct http_request *r, void *user);
/* v1_shells.c */
struct v1_body v1_shell_body(void);
struct v1_body v1_shell_exec_body(void);
void v1_post_shell(struct http_request *r, void *user);
void v1_list_shells(struct http_request *r, void *user);
void v1_get_shell(struct http_request *r, void *user);
void v1_delete_shell(struct http_request *r, void *user);
void v1_post_shell_exec(struct http_request *r, void *user);
/* The executor's bodies, for its page. */
struct v1_body executor_start_body(void);
struct v1_body executor_exec_body(void);
struct v1_body executor_export_body(void);
/* executor_session_finish.c, session_finish_fields.c */
struct v1_body v1_finish_body(void);
void v1_post_finish(struct http_request *r, void *user);
