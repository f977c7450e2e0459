/* brig snapshot create, brig fork, brig diff: what a session has written, kept, multiplied and listed. */
#include <string.h>

#include "cmd/remote.h"
#include "cmd/verbs.h"

#define LONG_MS 1900000                /* the daemon's own limit is half an hour */
#define PAGE 5000

struct snapshot_options { struct remote_options remote; char *name, *count; };
#define AT(member) offsetof(struct snapshot_options, member)
static const struct option_row snapshot_rows[] = {
        { "--name", "NAME[:TAG]", OPTION_TEXT, AT(name), 0, COMPLETE_NONE, "of the image; without one it goes when room is needed" },
};
static const struct option_row fork_rows[] = {
        { "--count", "N", OPTION_TEXT, AT(count), 0, COMPLETE_NONE, "sessions to start (1)" },
};

static int ask(struct client *c, const struct snapshot_options *o, const char *session, const char *tail, struct buf *answer, struct json *ret, struct error *e) {
        _cleanup_buf_ struct buf body = BUF_INIT(64 * 1024);
        struct json_writer w = JSON_WRITER(&body);
        char path[REMOTE_PATH_MAX];
        json_begin_object(&w);
        if (o->name)
                json_field_text(&w, "name", o->name);
        int r = put_number(&w, "count", o->count, "--count", e);
        json_end_object(&w);
        int x = json_finish(&w);
        r = r ? r : x < 0 ? error_set(e, x, "write the request") : session_path(session, tail, path, e);
        status_line("taking a snapshot of %s", session);
        r = r ? r : remote_call(c, "POST", path, &body, LONG_MS, answer, ret, e);
        status_line("%s", "");
        return r;
}

static int create(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct snapshot_options *o = target;
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v;
        char digest[200];
        int r = ask(c, o, arguments[0], "/snapshots", &answer, &v, e);
        if (r == 0 && o->remote.json)
                (void)print_json(&v);
        else if (r == 0)
                printf("%s\n", o->name ? o->name : member_show(&v, "digest", digest, sizeof digest));
        return r;
}

static int run_create(const struct command *c, int argc, char **argv) {
        struct snapshot_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = create }, argc, argv);
}

const struct command cmd_snapshot_create = {
        .name = "snapshot create", .synopsis = "SESSION [OPTION...]", .doc = "make an image of a session's files",
        .text = "Prints its name, or its digest; brig session start takes either. The session's processes stand still meanwhile, then go on.",
        .status = "0, 2 our fault, 64 usage, 130 interrupted",
        .options = snapshot_rows, .n_options = ARRAY_SIZE(snapshot_rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_create,
};

/* ---- fork ---------------------------------------------------------------------------------------------------------------- */

/* Its id, once it has started. */
static int one_fork(struct client *c, const struct json *id, int *status, struct error *e) {
        _cleanup_buf_ struct buf text = BUF_INIT(200), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        char path[REMOTE_PATH_MAX], state[32];
        struct json session;
        int r = json_string(id, &text);
        r = r < 0 ? error_set(e, -EIO, "read the answer") : session_path(buf_str(&text), "", path, e);
        r = r ? r : remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &session, e);
        r = r ? r : remote_wait_started(c, &answer, &session, e);
        if (r < 0)
                return r;
        printf("%s\n", buf_str(&text));
        if (strcmp(member_show(&session, "state", state, sizeof state), "ready") != 0) {
                fprintf(stderr, "brig fork: %s is %s\n", buf_str(&text), state);
                *status = 1;
        }
        return 0;
}

static int fork_session(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct snapshot_options *o = target;
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v, ids, id;
        int r = ask(c, o, arguments[0], "/fork", &answer, &v, e);
        if (r == 0 && o->remote.json)
                (void)print_json(&v);
        else if (r == 0 && json_get(&v, "sessions", &ids))
                for (struct json_iter it = json_iter(&ids); r == 0 && json_next_item(&it, &id);)
                        r = one_fork(c, &id, status, e);
        return r;
}

static int run_fork(const struct command *c, int argc, char **argv) {
        struct snapshot_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = fork_session }, argc, argv);
}

const struct command cmd_fork = {
        .name = "fork", .synopsis = "SESSION [OPTION...]", .doc = "start sessions that begin where a session is",
        .text = "A snapshot of its files, and from it as many sessions as asked for, all or none, with what it was started with. Prints their ids once they have started. Processes are not copied.",
        .status = "0, 1 one of them has failed, 2 our fault, 64 usage, 130 interrupted",
        .options = fork_rows, .n_options = ARRAY_SIZE(fork_rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_fork,
};

/* ---- diff ---------------------------------------------------------------------------------------------------------------- */

static void show_change(const struct json *v) {
        char change[32], path[8192];
        member_show(v, "change", change, sizeof change);
        printf("%c %s\n", strcmp(change, "added") == 0 ? 'A' : strcmp(change, "deleted") == 0 ? 'D' : 'C', member_show(v, "path", path, sizeof path));
}

static int diff(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct remote_options *o = target;
        uint64_t at = 0;
        bool more = true;
        while (more) {
                _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
                struct json v, changes, one;
                char path[REMOTE_PATH_MAX], tail[80];
                uint64_t before = at;
                snprintf(tail, sizeof tail, "/diff?limit=%d&offset=%llu", PAGE, (unsigned long long)at);
                int r = session_path(arguments[0], tail, path, e);
                r = r ? r : remote_call(c, "GET", path, NULL, LONG_MS, &answer, &v, e);
                if (r < 0)
                        return r;
                if (!json_get(&v, "changes", &changes))
                        return error_say(e, -EIO, "the daemon's answer has no changes");
                for (struct json_iter it = json_iter(&changes); json_next_item(&it, &one); at++)
                        if (!o->json)
                                show_change(&one);
                if (o->json)
                        (void)print_json(&v);
                more = member_true(&v, "more") && at > before;
        }
        return 0;
}

static int run_diff(const struct command *c, int argc, char **argv) {
        struct remote_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = 1, .go = diff }, argc, argv);
}

const struct command cmd_diff = {
        .name = "diff", .synopsis = "SESSION [OPTION...]", .doc = "list what a session has added, changed and deleted",
        .text = "A line for each: A, C or D, and the path. With -o json an object for each piece of the list.", .status = "0, 2 our fault, 64 usage, 130 interrupted",
        REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_diff,
};
