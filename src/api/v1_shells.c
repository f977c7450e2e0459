/* /v1/sessions/{id}/shells: persistent shells. A client that goes away takes the command it waited for with it, not the shell. */
#include <string.h>

#include "api/v1_internal.h"
#include "base/fields_forms.h"
#include "base/strv.h"
#include "session/shell.h"

/* ---- bodies ------------------------------------------------------------------------------------------------------------------------- */

struct open_body { char **env; char *cwd; bool user_given; uint32_t uid, gid; };
struct run_body { char *command; uint64_t timeout_ms, output_limit; bool base64; };

#define AT(member) .at = offsetof(struct open_body, member)
static const struct field open_fields[] = {
        { .name = "env", .kind = FIELD_CUSTOM, .parse = parse_field_env, AT(env), .type = "object of strings", .def = "empty", .doc = "over the session's" },
        { .name = "cwd", .kind = FIELD_STRING, AT(cwd), .max = SESSION_PATH_MAX, .def = "the session's", .doc = "where it stands at first" },
        { .name = "user", .kind = FIELD_CUSTOM, .parse = parse_field_user, AT(uid), .with_at = offsetof(struct open_body, gid), .given_at = offsetof(struct open_body, user_given), .type = "integer, or `UID:GID`", .def = "the session's", .doc = "who runs it" },
};
#undef AT
#define AT(member) .at = offsetof(struct run_body, member)

static const struct field run_fields[] = {
        { .name = "command", .kind = FIELD_STRING, AT(command), .max = PROCESS_STDIN_MAX, .doc = "shell text; required" },
        { .name = "timeout_s", .kind = FIELD_NUMBER, AT(timeout_ms), .min = 0, .max = PROCESS_TIMEOUT_MAX_S, .scale = 1000, .def = "60", .doc = "0 = none; a timeout kills the shell and what it started, the next command finds the state before" },
        { .name = "output_limit", .kind = FIELD_INT, AT(output_limit), .min = 0, .max = PROCESS_OUTPUT_MAX, .def = "65536", .doc = "bytes of each stream in the answer; 0: the operator's" },
        { .name = "encoding", .kind = FIELD_CUSTOM, .parse = parse_encoding, AT(base64), .type = "string", .def = "`utf8`", .doc = "`base64`: output as it is" },
};
struct v1_body v1_shell_body(void) { return (struct v1_body){ open_fields, ARRAY_SIZE(open_fields) }; }
struct v1_body v1_shell_exec_body(void) { return (struct v1_body){ run_fields, ARRAY_SIZE(run_fields) }; }

/* ---- the shells ----------------------------------------------------------------------------------------------------------------------- */

static int put_shell(const struct shell_view *v, void *user) {
        struct json_writer *w = user;
        json_begin_object(w);
        json_field_uint(w, "id", v->id);
        json_field_bool(w, "busy", v->busy);
        json_field_text(w, "cwd", v->cwd);
        json_field_uint(w, "commands", v->commands);
        v1_put_time(w, "created_at", v->created_ms);
        json_end_object(w);
        return 0;
}

static void reply_shell(struct http_request *r, int status, const struct shell *sh) {
        struct shell_view v;
        _cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&b);
        shell_view(sh, &v);
        put_shell(&v, &w);
        v1_reply(r, status, json_finish(&w), &b);
}

static struct shell *find(struct http_request *r, void *user) {
        struct sessions *ss;
        const char *id;
        unsigned n;
        if (!v1_part(r, user, "sid", &ss, &id, &n))
                return NULL;
        struct shell *sh = n > 0 ? shell_find(ss, id, n) : NULL;
        if (!sh)
                v1_fault(r, -ENOENT, NULL, "shell");
        return sh;
}

void v1_post_shell(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        struct open_body b = { 0 };
        struct json object;
        struct error e = { 0 };
        struct shell *sh;
        if (!ss || !v1_body(r, true, &object))
                return;
        int x = fields_decode(open_fields, ARRAY_SIZE(open_fields), &object, 0, &b, &e);
        if (x == 0) {
                struct shell_spec spec = { .env = (const char *const *)b.env, .cwd = b.cwd, .user_given = b.user_given, .uid = b.uid, .gid = b.gid };
                x = shell_open(ss, id, &spec, &sh, &e);
        }
        strv_free(b.env);
        free(b.cwd);
        if (x == -ENOENT || x == -EAGAIN)
                v1_unready(ss, r, id);
        else if (x < 0)
                v1_fault(r, x, e.text, "session");
        else
                reply_shell(r, 201, sh);
}

void v1_list_shells(struct http_request *r, void *user) {
        struct sessions *ss = v1_sessions(r, user);
        const char *id = http_param(r, "id");
        if (!ss)
                return;
        if (!session_find(ss, id)) {
                v1_unready(ss, r, id);
                return;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(1u << 20);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_put_key(&w, "shells");
        json_begin_array(&w);
        int x = shells_list(ss, id, put_shell, &w);
        json_end_array(&w);
        json_end_object(&w);
        int y = json_finish(&w);
        v1_reply(r, 200, x < 0 ? x : y, &b);
}

void v1_get_shell(struct http_request *r, void *user) {
        struct shell *sh = find(r, user);
        if (sh)
                reply_shell(r, 200, sh);
}

void v1_delete_shell(struct http_request *r, void *user) {
        struct shell *sh = find(r, user);
        struct shell_view v;
        char body[64];
        if (!sh)
                return;
        shell_view(sh, &v);
        shell_close(sh);
        http_respond(r, 200, "application/json", body, (size_t)snprintf(body, sizeof body, "{\"id\":%u,\"deleted\":true}", v.id));
}

/* ---- a command ------------------------------------------------------------------------------------------------------------------------- */

struct call { struct http_request *r; struct shell *sh; bool base64; };

static void closed(void *user) {
        struct call *c = user;
        shell_abandon(c->sh);
        free(c);
}

static void done(const struct shell_end *end, void *user) {
        struct call *c = user;
        _cleanup_buf_ struct buf b = BUF_INIT(16ull * PROCESS_OUTPUT_MAX);
        struct json_writer w = JSON_WRITER(&b);
        json_begin_object(&w);
        json_field_int(&w, "exit_code", end->exit_code);
        int x = v1_put_capture(&w, "stdout", end->out, c->base64);
        if (x == 0)
                x = v1_put_capture(&w, "stderr", end->err, c->base64);
        json_field_text(&w, "cwd", end->cwd);
        json_field_bool(&w, "timed_out", end->timed_out);
        json_field_bool(&w, "restarted", end->restarted);
        json_field_bool(&w, "session_ended", end->session_ended);
        json_field_uint(&w, "wall_ms", end->wall_ms);
        json_end_object(&w);
        int y = json_finish(&w);
        http_on_close(c->r, NULL, NULL);
        v1_reply(c->r, 200, x < 0 ? x : y, &b);
        free(c);
}

void v1_post_shell_exec(struct http_request *r, void *user) {
        struct shell *sh = find(r, user);
        struct run_body b = { 0 };
        struct json object;
        struct error e = { 0 };
        if (!sh || !v1_body(r, false, &object))
                return;
        b.timeout_ms = sessions_settings(v1_sessions(r, user))->exec_timeout_ms;
        int x = fields_decode(run_fields, ARRAY_SIZE(run_fields), &object, 0, &b, &e);
        if (x == 0 && !b.command)
                x = error_say(&e, -EINVAL, "Missing required fields: ['command']");
        struct call *c = x == 0 ? calloc(1, sizeof *c) : NULL;
        if (x == 0 && !c)
                x = error_set(&e, -ENOMEM, "start a command");
        if (c) {
                *c = (struct call){ .r = r, .sh = sh, .base64 = b.base64 };
                x = shell_run(sh, b.command, strlen(b.command), b.timeout_ms, b.output_limit, done, c, &e);
                if (x < 0)
                        free(c);
                else {
                        http_on_close(r, closed, c);
                        http_close_on_eof(r);
                }
        }
        free(b.command);
        if (x == -EAGAIN || x == -ENOENT)
                v1_unready(v1_sessions(r, user), r, http_param(r, "id"));
        else if (x < 0)
                v1_fault(r, x, e.text, "shell");
}
