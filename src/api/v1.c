#include <string.h>

#include "api/reply.h"
#include "api/v1_internal.h"
#include "base/base64.h"
#include "base/clock.h"

/* ---- the table ------------------------------------------------------------------------------------------------------------------ */

#define QUERY(list) .query = list, .n_query = ARRAY_SIZE(list)

static const struct v1_param wait_query[] = { { "wait", "integer", "seconds to wait until it is not `starting` any more" } };
static const struct v1_param list_query[] = {
        { "state", "string", "states, separated by commas, or `all`; by default those that live" }, { "label", "string", "`name=value`; all of them, separated by commas, must be there" },
        { "limit", "integer", "sessions of one page" }, { "after", "string", "`next` of the page before" },
};
static const struct v1_param output_query[] = {
        { "stream", "string", "`stdout` (default) or `stderr`" }, { "offset", "integer", "first byte; negative: from the end" },
        { "limit", "integer", "bytes of one answer" }, { "encoding", "string", "`base64` for bytes as they are" },
};
static const struct v1_param build_query[] = { { "options", "string", "where the body is an archive: the fields, as a JSON object" } };
static const struct v1_param close_query[] = { { "close", "boolean", "end of file after these bytes" } };

static const struct v1_param attach_query[] = {
        { "from", "integer", "first byte of its output wanted, counted from its beginning; by default all that is kept" }, { "read_only", "boolean", "only look" },
};

static const struct v1_route table[] = {
        { "POST", "/v1/images/pull", v1_post_pull, "pullImage", "Pulls an image from a registry; what is there already is not fetched again.", v1_pull_body, .status = 200, .answer = "the image" },
        { "POST", "/v1/images/build", v1_post_build, "buildImage", "Builds an image from a Dockerfile. With a tar archive (plain, gzip, xz, zstd) as the body, that is the build context, and these fields are the query's `options`.", v1_build_body, QUERY(build_query), .status = 200, .upload = true, .answer = "the image" },
        { "GET", "/v1/openapi.json", v1_get_openapi, "openapi", "This description.", .status = 200, .answer = "OpenAPI 3.1" },
        { "POST", "/v1/sessions", v1_post_session, "createSession", "Starts a session.", v1_create_body, QUERY(wait_query), .status = 201, .answer = "the session" },
        { "GET", "/v1/sessions", v1_list_sessions, "listSessions", "Lists sessions in order of creation.", QUERY(list_query), .status = 200, .answer = "`sessions`, and `next` where there are more" },
        { "GET", "/v1/sessions/{id}", v1_get_session, "getSession", "What is known of a session, live or ended.", QUERY(wait_query), .status = 200, .answer = "the session" },
        { "PATCH", "/v1/sessions/{id}", v1_patch_session, "changeSession", "Changes labels and times.", v1_patch_body, .status = 200, .answer = "the session" },
        { "DELETE", "/v1/sessions/{id}", v1_delete_session, "deleteSession", "Ends it, at any moment, and forgets it; answers when nothing of it is left.", .status = 200, .answer = "`id`, `deleted`" },
        { "POST", "/v1/sessions/{id}/heartbeat", v1_post_heartbeat, "heartbeat", "Its owner is alive: renews the lease.", .status = 200, .answer = "`id`, `lease_until`" },
        { "GET", "/v1/sessions/{id}/usage", v1_get_usage, "getUsage", "What it uses at this moment.", .status = 200, .answer = "numbers; null where the kernel cannot tell" },
        { "POST", "/v1/sessions/{id}/terminals", v1_post_terminal, "openTerminal", "Runs a program on a terminal, which lives on while nobody looks.", v1_terminal_body, .status = 201, .answer = "the terminal" },
        { "GET", "/v1/sessions/{id}/terminals", v1_list_terminals, "listTerminals", "Lists terminals, the newest first.", .status = 200, .answer = "`terminals`" },
        { "GET", "/v1/sessions/{id}/terminals/{tid}", v1_get_terminal, "getTerminal", "How a terminal does.", .status = 200, .answer = "the terminal" },
        { "DELETE", "/v1/sessions/{id}/terminals/{tid}", v1_delete_terminal, "closeTerminal", "Kills it and what it started, and forgets it.", .status = 200, .answer = "`id`, `deleted`" },
        { "GET", "/v1/sessions/{id}/terminals/{tid}/attach", v1_attach_terminal, "attachTerminal", "Looks at it by WebSocket, one of several: first what is kept of its output, then what comes.", QUERY(attach_query), .status = 101, .answer = "a WebSocket: see docs/terminals.md" },
        { "POST", "/v1/sessions/{id}/ports", v1_post_port, "openPort", "A token for a server inside; it is reached at `url` by every method, and by WebSocket.", v1_port_body, .status = 200, .answer = "`session_id`, `port`, `token` (as `?token=` or `X-Brig-Port-Token`), `url`" },
        { "GET", "/v1/sessions/{id}/network", v1_get_network, "getNetwork", "What a session with the network `allow` may reach, what it did, what was refused.", .status = 200, .answer = "`rules`, `counters`, `denied`: see docs/network.md" },
        { "PUT", "/v1/sessions/{id}/network", v1_put_network, "setNetwork", "Gives it other rules, from now on.", v1_network_body, .status = 200, .answer = "the same" },
        { "POST", "/v1/sessions/{id}/pause", v1_post_pause, "pauseSession", "Stops every process where it stands.", .status = 200, .answer = "`id`, `paused`" },
        { "POST", "/v1/sessions/{id}/resume", v1_post_resume, "resumeSession", "Lets them go on.", .status = 200, .answer = "`id`, `paused`" },
        { "POST", "/v1/sessions/{id}/exec", v1_post_exec, "exec", "Runs a command and waits for its end.", v1_exec_body, .status = 200, .answer = "`exit_code`, `stdout`, `stderr`, and how it ended" },
        { "POST", "/v1/sessions/{id}/commands", v1_post_command, "startCommand", "Runs a command in the background.", v1_exec_body, .status = 201, .answer = "the command" },
        { "GET", "/v1/sessions/{id}/commands", v1_list_commands, "listCommands", "Lists background commands, the newest first.", .status = 200, .answer = "`commands`" },
        { "GET", "/v1/sessions/{id}/commands/{cid}", v1_get_command, "getCommand", "How a background command does.", .status = 200, .answer = "the command" },
        { "GET", "/v1/sessions/{id}/commands/{cid}/output", v1_get_output, "getCommandOutput", "A piece of its output.", QUERY(output_query), .status = 200, .answer = "`data`, `offset`, `next_offset`, `eof`" },
        { "DELETE", "/v1/sessions/{id}/commands/{cid}", v1_delete_command, "deleteCommand", "Kills it and what it started; forgets it where it has ended before.", .status = 200, .answer = "`id`, `killed`, `deleted`" },
        { "POST", "/v1/sessions/{id}/commands/{cid}/signal", v1_post_signal, "signalCommand", "Sends a signal to its first process.", v1_signal_body, .status = 200, .answer = "`id`, `signal`" },
        { "POST", "/v1/sessions/{id}/commands/{cid}/stdin", v1_post_stdin, "writeCommand", "Writes the body to its standard input.", .content = "application/octet-stream", QUERY(close_query), .status = 200, .answer = "`id`, `bytes`" },
        { "POST", "/v1/sessions/{id}/shells", v1_post_shell, "openShell", "Opens a shell whose state stays from command to command.", v1_shell_body, .status = 201, .answer = "the shell" },
        { "GET", "/v1/sessions/{id}/shells", v1_list_shells, "listShells", "Lists open shells, the newest first.", .status = 200, .answer = "`shells`" },
        { "GET", "/v1/sessions/{id}/shells/{sid}", v1_get_shell, "getShell", "Whether a command runs in it, and where it stands.", .status = 200, .answer = "the shell" },
        { "POST", "/v1/sessions/{id}/shells/{sid}/exec", v1_post_shell_exec, "shellExec", "Runs a command in the shell, in which none runs, and waits for its end.", v1_shell_exec_body, .status = 200, .answer = "`exit_code`, `stdout`, `stderr`, `cwd`" },
        { "DELETE", "/v1/sessions/{id}/shells/{sid}", v1_delete_shell, "closeShell", "Kills it and what it started.", .status = 200, .answer = "`id`, `deleted`" },
};

const struct v1_route *v1_table(size_t *ret_n) {
        *ret_n = ARRAY_SIZE(table);
        return table;
}

/* What no table of fields describes. */
static const struct http_route beside[] = {
        { .method = "*", .pattern = "/v1/sessions/{id}/ports/{port}/{*}", .handler = v1_serve_port, .open = true, .stream_body = true, .body_max = HTTP_BODY_ANY },
};

const struct http_route *v1_routes(size_t *ret_n) {
        static struct http_route routes[ARRAY_SIZE(table) + ARRAY_SIZE(beside)];
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                routes[i] = (struct http_route){ .method = table[i].method, .pattern = table[i].path, .handler = table[i].handler,
                                                 .stream_body = table[i].upload, .body_max = table[i].upload ? HTTP_BODY_ANY : 0 };
        memcpy(routes + ARRAY_SIZE(table), beside, sizeof beside);
        *ret_n = ARRAY_SIZE(routes);
        return routes;
}

/* ---- answers -------------------------------------------------------------------------------------------------------------------- */

void v1_error(struct http_request *r, int status, const char *code, const char *message, const char *hint) {
        _cleanup_buf_ struct buf b = BUF_INIT(16384);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "error");
        json_begin_object(&w);
        json_field_text(&w, "code", code);
        json_field_text(&w, "message", message);
        json_field_text(&w, "hint", hint);
        json_end_object(&w);
        json_end_object(&w);
        v1_reply(r, status, json_finish(&w), &b);
}

struct v1_fault { int x, status; const char *code, *message, *hint; unsigned retry_after_s; };

static const struct v1_fault faults[] = {
        { -EINVAL, 400, "invalid", "The request is not valid", NULL, 0 },
        { -EOPNOTSUPP, 400, "unsupported", "This cannot be done here", NULL, 0 },
        { -ENOENT, 404, "not_found", NULL, NULL, 0 },
        { -EBUSY, 409, "conflict", "Another request is under way", NULL, 0 },
        { -EPIPE, 409, "input_closed", "It reads no more", NULL, 0 },
        { -ENOTCONN, 409, "no_input", "It was started without an open standard input", "start it with keep_input", 0 },
        { -ESRCH, 409, "ended", "It has ended", NULL, 0 },
        { -E2BIG, 413, "too_large", "The body is too large", NULL, 0 },
        { -EUSERS, 503, "too_many_commands", "Too many commands run in this session", "wait for some to end", 1 },
        { -EAGAIN, 503, "too_many_sessions", "Too many sessions live", "delete some, or raise the setting session.max", 10 },
        { -ENOSPC, 503, "disk_full", "The disk is full", NULL, 30 },
        { -ESHUTDOWN, 503, "draining", "The server is shutting down", NULL, 5 },
};

void v1_fault(struct http_request *r, int x, const char *text, const char *what) {
        char message[128];
        for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
                const struct v1_fault *f = &faults[i];
                if (f->x != x)
                        continue;
                if (f->retry_after_s) {
                        char seconds[16];
                        snprintf(seconds, sizeof seconds, "%u", f->retry_after_s);
                        http_respond_header(r, "Retry-After", seconds);
                }
                snprintf(message, sizeof message, "There is no such %s", what ? what : "thing");
                v1_error(r, f->status, f->code, text && *text ? text : f->message ? f->message : message, f->hint);
                return;
        }
        v1_error(r, 500, "internal", "Internal error", NULL);
}

void v1_reply(struct http_request *r, int status, int x, struct buf *b) {
        static const char last_resort[] = "{\"error\":{\"code\":\"internal\",\"message\":\"Internal error\",\"hint\":null}}";
        if (x < 0)
                http_respond(r, 500, "application/json", last_resort, strlen(last_resort));
        else
                http_respond_buf(r, status, "application/json", b);
}

void v1_unready(struct sessions *ss, struct http_request *r, const char *id) {
        struct session_view v;
        char text[128];
        if (session_get(ss, id, &v) < 0) {
                v1_fault(r, -ENOENT, NULL, "session");
                return;
        }
        snprintf(text, sizeof text, "The session is %s", session_state_to_string((int)v.state));
        const char *hint = v.state == SESSION_STARTING ? "ask again with ?wait=" : v.state == SESSION_FINISHING ? NULL : "start another one";
        session_view_release(&v);
        v1_error(r, 409, "not_ready", text, hint);
}

struct sessions *v1_sessions(struct http_request *r, void *user) {
        struct api *a = user;
        struct sessions *ss = engine_sessions(a->engine);
        if (!ss)
                v1_fault(r, -ESHUTDOWN, NULL, NULL);
        return ss;
}

bool v1_body(struct http_request *r, bool may_be_empty, struct json *ret) {
        static const char none[] = "{}";
        const char *body = none;
        size_t n = strlen(none);
        if (http_body_len(r) > V1_BODY_MAX) {
                v1_fault(r, -E2BIG, NULL, NULL);
                return false;
        }
        if ((http_body_len(r) > 0 || !may_be_empty) && http_body(r, &body, &n) < 0) {
                v1_fault(r, -EIO, NULL, NULL);
                return false;
        }
        if (json_parse(body, n, ret, NULL) == 0 && ret->type == JSON_OBJECT)
                return true;
        v1_error(r, 400, "invalid", "The body must be a JSON object", NULL);
        return false;
}

bool v1_query_uint(struct http_request *r, const char *key, uint64_t absent, uint64_t max, uint64_t *ret) {
        const char *s = http_query(r, key);
        char text[96], *end;
        *ret = absent;
        if (!s)
                return true;
        errno = 0;
        unsigned long long n = strtoull(s, &end, 10);
        if (s[0] < '0' || s[0] > '9' || *end || errno) {
                snprintf(text, sizeof text, "Invalid value for '%.40s': expected a number", key);
                v1_error(r, 400, "invalid", text, NULL);
                return false;
        }
        *ret = MIN2((uint64_t)n, max);
        return true;
}

void v1_put_time(struct json_writer *w, const char *key, int64_t ms) {
        char text[32];
        if (ms == 0) {
                json_field_null(w, key);
                return;
        }
        format_wall(ms, text);
        json_field_text(w, key, text);
}

void v1_put_seconds(struct json_writer *w, const char *key, uint64_t ms) { json_field_double(w, key, (double)ms / 1000); }

int v1_put_bytes(struct json_writer *w, const char *key, const char *p, size_t n, bool base64) {
        if (!base64) {
                json_field_string(w, key, p, n);
                return 0;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(base64_encoded(n) + 1);
        int r = base64_encode(p, n, &b);
        json_field_string(w, key, buf_str(&b), b.len);
        return r;
}
