/* brig shell: a terminal of a session, in this one.
 *
 * The terminal lives in the daemon and outlives us: to detach is to close the connection. Here standard input is raw, so that every key is the
 * program's, ^C too; one key alone is ours. Signals come through a descriptor: none ends us between making the terminal raw and
 * making it as it was. */
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>

#include "base/fs.h"
#include "base/strv.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"
#include "cmd/websocket.h"

#define SHELL_FAILED 125
#define PROTOCOL "brig.terminal.v1"
#define INPUT_MAX 4096                 /* bytes of one message */
#define UNSENT_MAX (64u * 1024)        /* then no more is read from standard input */
#define SIZE_LIMIT 1000                /* rows, columns */
#define END_AGAIN_MS 500               /* of quiet: then the end of input is said again */
#define KEY_NONE (-1)
#define KEY_BAD (-2)
#define DETACH_KEY "ctrl-]"
#define CODE_GONE 4404

struct shell_options { struct remote_options remote; char *attach, *workdir, *user, *key; char **env; };
#define AT(member) offsetof(struct shell_options, member)
static const struct option_row rows[] = {
        { "--attach", "ID", OPTION_TEXT, AT(attach), 0, COMPLETE_NONE, "go back to a terminal that was left" },
        { "--detach-key", "ctrl-X|none", OPTION_TEXT, AT(key), 0, COMPLETE_NONE, "leaves it running (" DETACH_KEY ")" },
        { "--env", "K=V", OPTION_APPEND, AT(env), 0, COMPLETE_NONE, "over the session's environment (repeat)" },
        { "--workdir", "DIR", OPTION_TEXT, AT(workdir), 0, COMPLETE_NONE, "where it begins" },
        { "--user", "UID[:GID]", OPTION_TEXT, AT(user), 0, COMPLETE_NONE, "who it is" },
        { "--url", "URL", OPTION_TEXT, AT(remote.url), 0, COMPLETE_NONE, "the daemon (BRIG_URL, else the local one)" },
};

struct shell {
        struct websocket *ws;
        const char *session, *id;
        int key, signals;
        bool raw; struct termios before;
        bool input_ended, detached, ended;
        int exit_code;
};

static int parse_key(const char *text) {
        if (!text)
                text = DETACH_KEY;
        if (strcmp(text, "none") == 0)
                return KEY_NONE;
        if (strncmp(text, "ctrl-", 5) == 0 && text[5] >= '@' && text[5] < 0x7f && !text[6])
                return text[5] & 0x1f;
        return KEY_BAD;
}

/* ---- this terminal ------------------------------------------------------------------------------------------------------- */

static void get_size(unsigned *rows_, unsigned *cols) {
        struct winsize w = { 0 };
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0)
                w = (struct winsize){ 0 };
        *rows_ = w.ws_row ? MIN2(w.ws_row, SIZE_LIMIT) : 24;
        *cols = w.ws_col ? MIN2(w.ws_col, SIZE_LIMIT) : 80;
}

static void make_raw(struct shell *s) {
        struct termios t;
        if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &s->before) < 0)
                return;
        t = s->before;
        cfmakeraw(&t);
        s->raw = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
}

static void make_as_it_was(struct shell *s) {
        if (s->raw)
                (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
        s->raw = false;
}

/* ---- what comes and goes ------------------------------------------------------------------------------------------------- */

static int send_size(struct shell *s) {
        char text[96];
        unsigned r, c;
        get_size(&r, &c);
        return websocket_send(s->ws, true, text, (size_t)snprintf(text, sizeof text, "{\"type\":\"resize\",\"rows\":%u,\"cols\":%u}", r, c));
}

static int told(struct shell *s, const struct json *v) {
        char type[32];
        member_show(v, "type", type, sizeof type);
        if (strcmp(type, "exit") == 0) {
                s->ended = true;
                s->exit_code = (int)member_number(v, "exit_code", SHELL_FAILED);
        } else if (strcmp(type, "lost") == 0)
                fprintf(stderr, "\r\nbrig shell: %lld bytes came too fast and are lost\r\n", (long long)member_number(v, "bytes", 0));
        return 0;
}

static int on_message(bool text, const char *p, size_t n, void *user) {
        struct json v;
        if (!text)
                return fs_write_all(STDOUT_FILENO, p, n);
        return json_parse(p, n, &v, NULL) == 0 && v.type == JSON_OBJECT ? told(user, &v) : 0;
}

/* What a terminal has for the end of its input. Only who waits for input hears it: a shell that has not come so far, or that changes the
 * terminal's mode just then, never sees it. So it is said again as long as nothing happens. */
static int say_end(struct shell *s) {
        static const char end = 'D' & 0x1f;
        return websocket_unsent(s->ws) ? 0 : websocket_send(s->ws, false, &end, 1);
}

static int on_input(struct shell *s) {
        char bytes[INPUT_MAX];
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n <= 0) {
                s->input_ended = true;
                return say_end(s);
        }
        const char *key = s->key >= 0 ? memchr(bytes, s->key, (size_t)n) : NULL;
        if (key) {
                s->detached = true;
                n = key - bytes;
        }
        return n > 0 ? websocket_send(s->ws, false, bytes, (size_t)n) : 0;
}

static int on_signal(struct shell *s) {
        struct signalfd_siginfo i;
        if (read(s->signals, &i, sizeof i) != sizeof i)
                return 0;
        return i.ssi_signo == SIGWINCH ? send_size(s) : -EINTR;
}

/* 0: ended or detached. */
static int loop(struct shell *s, struct error *e) {
        int code = 0, r = 0;
        while (!s->detached) {
                bool read_input = !s->input_ended && websocket_unsent(s->ws) < UNSENT_MAX;
                struct pollfd p[] = {
                        { .fd = websocket_fd(s->ws), .events = websocket_events(s->ws) }, { .fd = s->signals, .events = POLLIN },
                        { .fd = read_input ? STDIN_FILENO : -1, .events = POLLIN },
                };
                int n = poll(p, ARRAY_SIZE(p), s->input_ended ? END_AGAIN_MS : -1);
                if (n < 0 && errno != EINTR)
                        return error_set(e, -errno, "wait");
                if (n == 0)
                        r = say_end(s);
                if (p[1].revents)
                        r = on_signal(s);
                if (r == 0 && p[2].revents)
                        r = on_input(s);
                if (r == -EINTR)
                        return error_say(e, r, "interrupted; brig shell --attach %s %s goes back", s->id, s->session);
                r = r ? r : websocket_work(s->ws, on_message, s, &code);
                if (r == -EPIPE && s->ended)
                        return 0;
                if (r == -EPIPE && code == CODE_GONE)
                        return error_say(e, -EIO, "the terminal was closed, or its session has ended");
                if (r == -EPIPE)
                        return error_say(e, -EIO, "the connection broke off; brig shell --attach %s %s goes back", s->id, s->session);
                if (r < 0)
                        return error_set(e, r, "speak to the terminal");
        }
        return 0;
}

/* What was typed before the key still goes out. */
static void say_goodbye(struct shell *s) {
        int code, r = 0;
        websocket_close(s->ws);
        for (int i = 0; i < 20 && r == 0; i++) {
                struct pollfd p = { .fd = websocket_fd(s->ws), .events = websocket_events(s->ws) };
                (void)poll(&p, 1, 100);
                r = websocket_work(s->ws, on_message, s, &code);
        }
}

/* ---- course -------------------------------------------------------------------------------------------------------------- */

static int write_body(const struct shell_options *o, char **argv, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        _cleanup_strv_ char **env = NULL;
        char term[128];
        unsigned r, c;
        const char *t = getenv("TERM");
        get_size(&r, &c);
        snprintf(term, sizeof term, "TERM=%.100s", t && t[0] ? t : "xterm-256color");
        if (strv_push(&env, term) < 0)
                return error_set(e, -ENOMEM, "open a terminal");
        for (char **v = o->env; v && *v; v++)
                if (strv_push(&env, *v) < 0)
                        return error_set(e, -ENOMEM, "open a terminal");
        json_begin_object(&w);
        json_field_uint(&w, "rows", r);
        json_field_uint(&w, "cols", c);
        int x = put_pairs(&w, "env", env, "--env", e);
        if (argv[0]) {
                json_put_key(&w, "argv");
                json_put_texts(&w, argv);
        }
        if (o->workdir)
                json_field_text(&w, "cwd", o->workdir);
        if (o->user)
                json_field_text(&w, "user", o->user);
        json_end_object(&w);
        int y = json_finish(&w);
        return x < 0 ? x : y < 0 ? error_set(e, y, "write the request") : 0;
}

static int open_terminal(struct client *c, const struct shell_options *o, char **arguments, int n, char ret_id[static 32], struct error *e) {
        _cleanup_buf_ struct buf body = BUF_INIT(4u << 20), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        _cleanup_strv_ char **argv = NULL;
        struct json v;
        char path[REMOTE_PATH_MAX];
        if (o->attach) {
                if (n > 1 || o->workdir || o->user || o->env)
                        return error_say(e, -EINVAL, "--attach goes with nothing that begins a terminal");
                if (!o->attach[0] || strspn(o->attach, "0123456789") != strlen(o->attach) || strlen(o->attach) > 10)
                        return error_say(e, -EINVAL, "--attach wants a terminal's number");
                snprintf(ret_id, 32, "%s", o->attach);
                return 0;
        }
        int r = strv_ensure(&argv);
        for (int i = 1; r == 0 && i < n; i++)
                r = strv_push(&argv, arguments[i]);
        if (r < 0)
                return error_set(e, r, "open a terminal");
        r = write_body(o, argv, &body, e);
        r = r ? r : session_path(arguments[0], "/terminals", path, e);
        r = r ? r : remote_call(c, "POST", path, &body, REMOTE_CALL_MS, &answer, &v, e);
        if (r == 0)
                member_show(&v, "id", ret_id, 32);
        return r;
}

static int watch_signals(void) {
        sigset_t set;
        sigemptyset(&set);
        static const int numbers[] = { SIGWINCH, SIGINT, SIGTERM, SIGHUP, SIGQUIT };
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                sigaddset(&set, numbers[i]);
        signal(SIGPIPE, SIG_IGN);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -errno;
        int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return fd < 0 ? -errno : fd;
}

static int look(struct client *c, struct shell *s, const char *path, struct error *e) {
        int r = websocket_open(c, path, PROTOCOL, &s->ws, e);
        if (r < 0)
                return r;
        s->signals = watch_signals();
        if (s->signals < 0)
                r = error_set(e, s->signals, "watch signals");
        else {
                make_raw(s);
                r = send_size(s);
                r = r < 0 ? error_set(e, r, "speak to the terminal") : loop(s, e);
                if (s->detached)
                        say_goodbye(s);
                make_as_it_was(s);
        }
        s->signals = fd_close(s->signals);
        websocket_free(s->ws);
        return r;
}

static int shell(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct shell_options *o = target;
        char id[32] = "", tail[96], path[REMOTE_PATH_MAX];
        struct shell s = { .session = arguments[0], .id = id, .key = parse_key(o->key), .signals = -1 };
        struct client *again = NULL;
        if (s.key == KEY_BAD)
                return error_say(e, -EINVAL, "--detach-key wants ctrl- and a character, or none");
        int r = open_terminal(c, o, arguments, n, id, e);
        snprintf(tail, sizeof tail, "/terminals/%s/attach", id);
        r = r ? r : session_path(arguments[0], tail, path, e);
        /* A connection of its own: the one for calls stays one for calls. */
        r = r ? r : remote_find(o->remote.url, true, &again, e);
        r = r ? r : look(again, &s, path, e);
        client_free(again);
        if (r == 0 && s.detached)
                fprintf(stderr, "\nbrig shell: left; brig shell --attach %s %s goes back\n", id, arguments[0]);
        if (r < 0 || s.detached)
                return r;
        *status = s.exit_code < 0 || s.exit_code > 255 ? SHELL_FAILED : s.exit_code;
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v;
        path[strlen(path) - strlen("/attach")] = 0;
        (void)remote_call(c, "DELETE", path, NULL, REMOTE_CALL_MS, &answer, &v, NULL);         /* nobody needs it any more */
        return 0;
}

static int run(const struct command *c, int argc, char **argv) {
        struct shell_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = INT32_MAX, .failed = SHELL_FAILED, .go = shell }, argc, argv);
}

const struct command cmd_shell = {
        .name = "shell", .synopsis = "[OPTION...] SESSION [--] [PROGRAM [ARGUMENT...]]\n--attach ID SESSION", .doc = "open a terminal in a session",
        .text = "A login shell, or PROGRAM, on a terminal of its own. " DETACH_KEY " leaves it running. Where standard input is no terminal, its end "
                "ends the shell's. Options stand before SESSION.",
        .status = "the program's own, 0 it was left, 125 it could not be run by us, 130 interrupted",
        .options = rows, .n_options = ARRAY_SIZE(rows), .argument = COMPLETE_SESSION, .stops = true, .run = run,
};
