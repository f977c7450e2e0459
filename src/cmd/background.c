/* brig ps, brig logs, brig kill: commands in the background of a session. */
#include <string.h>

#include "base/base64.h"
#include "base/fs.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"

#define PIECE (1u << 20)               /* bytes of output of one answer */

static int command_path(const char *session, const char *id, const char *tail, char ret[static REMOTE_PATH_MAX], struct error *e) {
        char end[600];
        if (!id[0] || id[strspn(id, "0123456789")] || strlen(id) > 10)
                return error_say(e, -EINVAL, "'%.100s' is not the id of a command; brig ps shows them", id);
        snprintf(end, sizeof end, "/commands/%s%s", id, tail);
        return session_path(session, end, ret, e);
}

/* ---- ps ------------------------------------------------------------------------------------------------------------------ */

struct ps_options { struct remote_options remote; bool quiet; };
static const struct option_row ps_rows[] = { { "-q", NULL, OPTION_SWITCH, offsetof(struct ps_options, quiet), 0, COMPLETE_NONE, "ids only" } };

static void ps_row(struct table *t, const struct json *v) {
        char text[SHOW_MAX];
        table_cell(t, member_show(v, "id", text, sizeof text));
        table_cell(t, member_true(v, "timed_out") ? "timed out" : member_true(v, "oom") ? "oom" : member_show(v, "state", text, sizeof text));
        table_cell(t, member_show(v, "exit_code", text, sizeof text));
        table_cell(t, age_show(v, "started_at", text));
        table_cell(t, bytes_show(v, "stdout_bytes", text));
        table_cell(t, bytes_show(v, "stderr_bytes", text));
        table_cell(t, member_show(v, "command", text, sizeof text));
}

static int ps(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        static const char *const head[] = { "ID", "STATE", "STATUS", "STARTED", "STDOUT", "STDERR", "COMMAND" };
        const struct ps_options *o = target;
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v, commands_, one;
        char path[REMOTE_PATH_MAX], id[32];
        struct table t;
        int r = session_path(arguments[0], "/commands", path, e);
        r = r ? r : remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &v, e);
        if (r < 0)
                return r;
        if (o->remote.json && !o->quiet) {
                (void)print_json(&v);
                return 0;
        }
        table_init(&t, head, ARRAY_SIZE(head));
        if (!json_get(&v, "commands", &commands_))
                commands_ = (struct json){ .type = JSON_NULL };
        for (struct json_iter it = json_iter(&commands_); json_next_item(&it, &one);) {
                if (o->quiet)
                        printf("%s\n", member_show(&one, "id", id, sizeof id));
                else
                        ps_row(&t, &one);
        }
        if (!o->quiet)
                (void)table_print(&t, stdout);
        table_release(&t);
        return 0;
}

static int run_ps(const struct command *c, int argc, char **argv) {
        struct ps_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = ps }, argc, argv);
}

const struct command cmd_ps = {
        .name = "ps", .synopsis = "SESSION [OPTION...]", .doc = "list a session's background commands",
        .text = "Those of brig exec -d and of the API, the newest first, also what has ended.", .status = "0, 2 our fault, 64 usage, 130 interrupted",
        .options = ps_rows, .n_options = ARRAY_SIZE(ps_rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_ps,
};

/* ---- logs ---------------------------------------------------------------------------------------------------------------- */

struct logs_options { struct remote_options remote; char *tail; bool errors, follow; };
#define LOGS(member) offsetof(struct logs_options, member)
static const struct option_row logs_rows[] = {
        { "-f", NULL, OPTION_SWITCH, LOGS(follow), 0, COMPLETE_NONE, "then what it writes, until it ends" },
        { "--stderr", NULL, OPTION_SWITCH, LOGS(errors), 0, COMPLETE_NONE, "standard error; without: standard output" },
        { "--tail", "BYTES", OPTION_TEXT, LOGS(tail), 0, COMPLETE_NONE, "only the last bytes" },
};

static int put_piece(const struct json *v, struct error *e) {
        _cleanup_buf_ struct buf text = BUF_INIT(4ull * PIECE), bytes = BUF_INIT(2ull * PIECE);
        struct json data;
        int r = json_get(v, "data", &data) ? json_string(&data, &text) : -EINVAL;
        if (r == 0)
                r = base64_decode(buf_str(&text), text.len, &bytes);
        if (r < 0)
                return error_say(e, -EIO, "the daemon's answer cannot be read");
        r = fs_write_all(STDOUT_FILENO, buf_str(&bytes), bytes.len);
        return r < 0 ? error_set(e, r, "write the output") : 0;
}

/* One answer from `offset` on; *ret_next is where the next one begins, or -1 when there is no more now. */
static int logs_piece(struct client *c, const struct logs_options *o, char **arguments, int64_t offset, int64_t *ret_next, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v;
        char path[REMOTE_PATH_MAX], query[200];
        snprintf(query, sizeof query, "/output?stream=%s&encoding=base64&limit=%u&offset=%lld", o->errors ? "stderr" : "stdout", PIECE, (long long)offset);
        int r = command_path(arguments[0], arguments[1], query, path, e);
        r = r ? r : remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &v, e);
        if (r == 0 && o->remote.json)
                (void)print_json(&v);
        else if (r == 0)
                r = put_piece(&v, e);
        if (r < 0)
                return r;
        int64_t next = member_number(&v, "next_offset", -1);
        *ret_next = next > member_number(&v, "offset", -1) && next < member_number(&v, "size", 0) ? next : -1;
        return 0;
}

struct following { bool json, ended; struct error *e; };

static int on_followed(const char *event, const struct json *data, void *user) {
        struct following *f = user;
        if (strcmp(event, "exit") == 0)
                f->ended = true;
        else if (strcmp(event, "stdout") != 0 && strcmp(event, "stderr") != 0)
                return 0;              /* of a newer daemon */
        if (f->json)
                (void)print_json(data);
        else if (!f->ended)
                return put_piece(data, f->e);
        return f->ended;
}

static int logs_follow(struct client *c, const struct logs_options *o, char **arguments, int64_t offset, struct error *e) {
        struct following f = { .json = o->remote.json, .e = e };
        char path[REMOTE_PATH_MAX], query[200];
        snprintf(query, sizeof query, "/output?follow=true&stream=%s&encoding=base64&offset=%lld", o->errors ? "stderr" : "stdout", (long long)offset);
        int r = command_path(arguments[0], arguments[1], query, path, e);
        r = r ? r : remote_stream(c, &(struct remote_events){ .method = "GET", .path = path, .each = on_followed, .user = &f }, e);
        return r == 0 && !f.ended ? error_say(e, -EIO, "the daemon broke off") : r;
}

static int logs(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct logs_options *o = target;
        char *end;
        int64_t at = 0;
        if (o->tail) {
                at = -strtoll(o->tail, &end, 10);
                if (end == o->tail || *end || at > 0)
                        return error_say(e, -EINVAL, "--tail wants a number of bytes, not '%.100s'", o->tail);
                if (at == 0 && !o->follow)
                        return 0;
                if (at == 0)
                        at = INT64_MAX;        /* the end, wherever it is */
        }
        if (o->follow)
                return logs_follow(c, o, arguments, at, e);
        int r = 0;
        do
                r = logs_piece(c, o, arguments, at, &at, e);
        while (r == 0 && at >= 0);
        return r;
}

static int run_logs(const struct command *c, int argc, char **argv) {
        struct logs_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 2, .max = 2, .go = logs }, argc, argv);
}

const struct command cmd_logs = {
        .name = "logs", .synopsis = "SESSION COMMAND [OPTION...]", .doc = "print what a background command has written",
        .text = "COMMAND is its id, as brig exec -d printed it and brig ps shows it. With -o json an object for each piece, and with -f one more for its end.",
        .status = "0, 2 our fault, 64 usage, 130 interrupted",
        .options = logs_rows, .n_options = ARRAY_SIZE(logs_rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_logs,
};

/* ---- kill ---------------------------------------------------------------------------------------------------------------- */

struct kill_options { struct remote_options remote; char *signal; };
static const struct option_row kill_rows[] = {
        { "--signal", "NUMBER", OPTION_TEXT, offsetof(struct kill_options, signal), 0, COMPLETE_NONE, "to its first process alone; without: all of it is killed" },
};

static int kill_one(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct kill_options *o = target;
        _cleanup_buf_ struct buf body = BUF_INIT(4096), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&body);
        struct json v;
        char path[REMOTE_PATH_MAX];
        json_begin_object(&w);
        int r = put_number(&w, "signal", o->signal, "--signal", e);
        json_end_object(&w);
        r = r ? r : command_path(arguments[0], arguments[1], o->signal ? "/signal" : "", path, e);
        r = r ? r : remote_call(c, o->signal ? "POST" : "DELETE", path, o->signal ? &body : NULL, REMOTE_CALL_MS, &answer, &v, e);
        if (r == 0 && o->remote.json)
                (void)print_json(&v);
        return r;
}

static int run_kill(const struct command *c, int argc, char **argv) {
        struct kill_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 2, .max = 2, .go = kill_one }, argc, argv);
}

const struct command cmd_kill = {
        .name = "kill", .synopsis = "SESSION COMMAND [OPTION...]", .doc = "kill a background command and what it started",
        .text = "One that has ended is forgotten.", .status = "0, 2 our fault, 64 usage, 130 interrupted",
        .options = kill_rows, .n_options = ARRAY_SIZE(kill_rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_kill,
};
