/* brig exec: a command in a session, its output as it comes, its exit status as ours. */
#include <string.h>

#include "base/base64.h"
#include "base/fs.h"
#include "base/strv.h"
#include "base/utf8.h"
#include "cmd/exec_input.h"
#include "cmd/verbs.h"

#define EXEC_FAILED 125                /* it was not run, or what became of it is not known: as other programs that run programs have it */
#define EXEC_INPUT_MAX (16u << 20)     /* bytes of standard input that goes with the request: with -d, with -o json */
#define EXEC_PIECE_MAX (4u << 20)      /* bytes of output of one event */

struct exec_options {
        struct remote_options remote;
        char *workdir, *user, *timeout;
        char **env;
        bool input, shell, login, detach;
};

#define AT(member) offsetof(struct exec_options, member)
static const struct option_row rows[] = {
        { "-i", NULL, OPTION_SWITCH, AT(input), 0, COMPLETE_NONE, "standard input is the command's" },
        { "-d", NULL, OPTION_SWITCH, AT(detach), 0, COMPLETE_NONE, "in the background: prints its id, for `brig logs`" },
        { "--shell", NULL, OPTION_SWITCH, AT(shell), 0, COMPLETE_NONE, "one argument, a line for bash -c" },
        { "--login", NULL, OPTION_SWITCH, AT(login), 0, COMPLETE_NONE, "with --shell: bash -lc" },
        { "--env", "K=V", OPTION_APPEND, AT(env), 0, COMPLETE_NONE, "over the session's environment (repeat)" },
        { "--workdir", "DIR", OPTION_TEXT, AT(workdir), 0, COMPLETE_NONE, "where it runs" },
        { "--user", "UID[:GID]", OPTION_TEXT, AT(user), 0, COMPLETE_NONE, "who runs it" },
        { "--timeout", "SECONDS", OPTION_TEXT, AT(timeout), 0, COMPLETE_NONE, "kill it then, exit status 124; without: none" },
};

static int put_input(struct json_writer *w, struct error *e) {
        _cleanup_buf_ struct buf bytes = BUF_INIT(EXEC_INPUT_MAX), text = BUF_INIT(2ull * EXEC_INPUT_MAX);
        int r = fs_read_fd(STDIN_FILENO, &bytes);
        if (r == -EFBIG || r == -ENOSPC)
                return error_say(e, -EFBIG, "standard input is longer than %u MiB; brig cp copies files of any size", EXEC_INPUT_MAX >> 20);
        if (r == 0)
                r = base64_encode(buf_str(&bytes), bytes.len, &text);
        if (r < 0)
                return error_set(e, r, "read standard input");
        json_put_key(w, "stdin");
        json_begin_object(w);
        json_field_string(w, "b64", buf_str(&text), text.len);
        json_end_object(w);
        return 0;
}

static int write_body(const struct exec_options *o, char **argv, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        if (o->shell && argv[1])
                return error_say(e, -EINVAL, "with --shell the command is one argument");
        if (o->login && !o->shell)
                return error_say(e, -EINVAL, "--login goes with --shell");
        for (int i = 0; argv[i]; i++)            /* else another command would run than was asked for */
                if (!utf8_valid(argv[i], strlen(argv[i])))
                        return error_say(e, -EINVAL, "argument %d is not UTF-8, and requests are text; write such bytes as the shell's $'\\xff' with --shell", i + 1);
        json_begin_object(&w);
        if (o->shell)
                json_field_text(&w, "command", argv[0]);
        else {
                json_put_key(&w, "argv");
                json_put_texts(&w, argv);
        }
        json_field_bool(&w, "login", o->login);
        int r = put_pairs(&w, "env", o->env, "--env", e);
        if (o->workdir)
                json_field_text(&w, "cwd", o->workdir);
        if (o->user)
                json_field_text(&w, "user", o->user);
        r = r ? r : put_number(&w, "timeout_s", o->timeout ? o->timeout : "0", "--timeout", e);
        bool as_it_comes = !o->detach && !o->remote.json;
        if (r == 0 && o->input && !as_it_comes)
                r = put_input(&w, e);
        if (as_it_comes) {
                json_field_bool(&w, "keep_input", o->input);
                json_field_bool(&w, "stream", true);
                json_field_text(&w, "encoding", "base64");
        }
        json_end_object(&w);
        int x = json_finish(&w);
        return r < 0 ? r : x < 0 ? error_set(e, x, "write the request") : 0;
}

/* ---- as it comes ------------------------------------------------------------------------------------------------------- */

struct stream { const struct exec_options *o; const char *session; struct exec_input *input; int *status; struct error *e; bool ended; };

static int output(const struct json *data, int fd, struct error *e) {
        _cleanup_buf_ struct buf text = BUF_INIT(2ull * EXEC_PIECE_MAX), bytes = BUF_INIT(EXEC_PIECE_MAX);
        struct json v;
        int r = json_get(data, "data", &v) ? json_string(&v, &text) : -EINVAL;
        if (r == 0)
                r = base64_decode(buf_str(&text), text.len, &bytes);
        if (r < 0)
                return error_say(e, -EIO, "the daemon's event cannot be read");
        r = fs_write_all(fd, buf_str(&bytes), bytes.len);
        return r < 0 ? error_set(e, r, "write the output") : 0;
}

/* What the end says; true: the command has an exit status of its own. */
static bool end_status(const struct json *end, int *status) {
        int64_t code = member_number(end, "exit_code", -1);
        if (member_true(end, "session_ended"))
                fprintf(stderr, "brig exec: the session has ended\n");
        else if (member_true(end, "oom"))
                fprintf(stderr, "brig exec: out of memory\n");
        else if (member_true(end, "timed_out"))
                fprintf(stderr, "brig exec: timed out\n");
        *status = member_true(end, "session_ended") || code < 0 || code > 255 ? EXEC_FAILED : (int)code;
        return *status != EXEC_FAILED;
}

static int on_event(const char *event, const struct json *data, void *user) {
        struct stream *s = user;
        if (strcmp(event, "stdout") == 0)
                return output(data, STDOUT_FILENO, s->e);
        if (strcmp(event, "stderr") == 0)
                return output(data, STDERR_FILENO, s->e);
        if (strcmp(event, "started") == 0 && !s->input)
                return exec_input_start(s->o->remote.url, s->session, member_number(data, "id", 0), &s->input, s->e);
        if (strcmp(event, "exit") == 0) {
                s->ended = true;
                (void)end_status(data, s->status);
                return 1;
        }
        return 0;                      /* of a newer daemon */
}

static int stream(struct client *c, const struct exec_options *o, const char *session, const char *path, const struct buf *body, int *status, struct error *e) {
        struct stream s = { .o = o, .session = session, .status = status, .e = e };
        struct error why;
        int r = remote_stream(c, &(struct remote_events){ .method = "POST", .path = path, .body = body, .each = on_event, .user = &s }, e);
        int x = exec_input_end(s.input, &why);
        if (x < 0 && !s.ended) {
                *e = why;
                return -EIO;
        }
        return r == 0 && !s.ended ? error_say(e, -EIO, "the daemon broke off") : r;
}

/* ---- as a whole, in the background ------------------------------------------------------------------------------------- */

static int whole(struct client *c, const struct exec_options *o, const char *path, const struct buf *body, int *status, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(CLIENT_ANSWER_MAX);
        struct json v;
        char id[32];
        int r = remote_call(c, "POST", path, body, o->detach ? REMOTE_CALL_MS : 0, &answer, &v, e);
        if (r < 0)
                return r;
        if (o->remote.json)
                (void)print_json(&v);
        else
                printf("%s\n", member_show(&v, "id", id, sizeof id));
        if (!o->detach)
                (void)end_status(&v, status);
        return 0;
}

static int exec(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct exec_options *o = target;
        _cleanup_buf_ struct buf body = BUF_INIT(4ull * EXEC_INPUT_MAX);
        _cleanup_strv_ char **argv = NULL;
        char path[REMOTE_PATH_MAX];
        int r = session_path(arguments[0], o->detach ? "/commands" : "/exec", path, e);
        for (int i = 1; r == 0 && i < n; i++)
                if (strv_push(&argv, arguments[i]) < 0)
                        r = error_set(e, -ENOMEM, "read the command");
        if (r == 0)
                r = write_body(o, argv, &body, e);
        if (r < 0)
                return r;
        return o->detach || o->remote.json ? whole(c, o, path, &body, status, e) : stream(c, o, arguments[0], path, &body, status, e);
}

static int run(const struct command *c, int argc, char **argv) {
        struct exec_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 2, .max = INT32_MAX, .failed = EXEC_FAILED, .go = exec }, argc, argv);
}

const struct command cmd_exec = {
        .name = "exec", .synopsis = "[OPTION...] SESSION [--] COMMAND [ARGUMENT...]", .doc = "run a command in a session",
        .text = "Its output comes as it is written, byte for byte. Interrupting brig kills the command. Options stand before SESSION; what follows it is the command's.\n\n"
                "With -i standard input goes to it as it comes, any bytes and any amount, and its end is the end of the command's. "
                "With -o json the answer is one object, once the command has ended; then, as with -d, at most 16 MiB of input are read first, and go with the request.",
        .status = "the command's own; 124 timed out, 125 it could not be run by us, 127 there is no such command, 128+N killed by signal N, 130 interrupted",
        .options = rows, .n_options = ARRAY_SIZE(rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .stops = true, .run = run,
};
