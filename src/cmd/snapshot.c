/* brig snapshot create, brig snapshot check, brig fork, brig diff: what a session has written, kept, multiplied and listed; snapshots with a profile. */
#include <string.h>

#include "cmd/snapshot_profile.h"
#include "cmd/verbs.h"

#define LONG_MS 1900000                /* the daemon's own limit is half an hour */
#define PAGE 5000

struct snapshot_options { struct remote_options remote; char *name, *count, *profile, *from; };
#define AT(member) offsetof(struct snapshot_options, member)
static const struct option_row snapshot_rows[] = {
        { "--name", "NAME[:TAG]", OPTION_TEXT, AT(name), 0, COMPLETE_NONE, "of the image; without one it goes when room is needed" },
        { "--profile", "session|semantic-child", OPTION_TEXT, AT(profile), 0, COMPLETE_WORDS, "of no session: a sandbox's image for the RLM runtime" },
        { "--from", "IMAGE", OPTION_TEXT, AT(from), 0, COMPLETE_IMAGE, "with --profile: what it is made of (host)" },
};
static const struct option_row check_rows[] = {
        { "--profile", "session|semantic-child", OPTION_TEXT, AT(profile), 0, COMPLETE_WORDS, "which one (session)" },
        { "--name", "NAME", OPTION_TEXT, AT(name), 0, COMPLETE_SNAPSHOT, "its name, where it is not the profile's" },
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

static int profile_of(const struct snapshot_options *o, const struct snapshot_profile **ret, const char **ret_name, struct error *e) {
        const char *word = o->profile ? o->profile : "session";
        *ret = snapshot_profile_find(word);
        return *ret ? snapshot_profile_name(*ret, o->name, ret_name, e) : error_say(e, -EINVAL, "there is no profile '%.100s'; there are session and semantic-child", word);
}

static int create_profile(struct client *c, const struct snapshot_options *o, int n, struct error *e) {
        const struct snapshot_profile *p;
        const char *name;
        if (n > 0)
                return error_say(e, -EINVAL, "with --profile there is no SESSION");
        int r = profile_of(o, &p, &name, e);
        return r ? r : snapshot_profile_create(c, p, name, o->from ? o->from : "host", o->remote.json, e);
}

static int create(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct snapshot_options *o = target;
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json v;
        char digest[200];
        if (o->profile)
                return create_profile(c, o, n, e);
        if (n == 0 || o->from)
                return error_say(e, -EINVAL, n == 0 ? "which SESSION, or which --profile?" : "--from goes with --profile");
        int r = ask(c, o, arguments[0], "/snapshots", &answer, &v, e);
        if (r == 0 && o->remote.json)
                (void)print_json(&v);
        else if (r == 0)
                printf("%s\n", o->name ? o->name : member_show(&v, "digest", digest, sizeof digest));
        return r;
}

static int run_create(const struct command *c, int argc, char **argv) {
        struct snapshot_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 0, .max = 1, .go = create }, argc, argv);
}

const struct command cmd_snapshot_create = {
        .name = "snapshot create", .synopsis = "SESSION [OPTION...]\n--profile PROFILE [OPTION...]", .doc = "make an image of a session's files, or one that a profile defines",
        .text = "Prints its name, or its digest; brig session start takes either. The session's processes stand still meanwhile, then go on.\n\nWith --profile the name is --name, or DAYTONA_SNAPSHOT_NAME and FLEET_DAYTONA_SNAPSHOT (of semantic-child: DAYTONA_CHILD_SNAPSHOT_NAME, FLEET_DAYTONA_CHILD_SNAPSHOT), or the profile's own. What has the name already is left as it is.",
        .status = "0, 2 our fault, 64 usage, 130 interrupted",
        .options = snapshot_rows, .n_options = ARRAY_SIZE(snapshot_rows), REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_create,
};

/* ---- check --------------------------------------------------------------------------------------------------------------- */

static int check(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct snapshot_options *o = target;
        const struct snapshot_profile *p;
        const char *name;
        int r = profile_of(o, &p, &name, e);
        return r ? r : snapshot_profile_check(c, p, name, o->remote.json, status, e);
}

static int run_check(const struct command *c, int argc, char **argv) {
        struct snapshot_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .go = check }, argc, argv);
}

const struct command cmd_snapshot_check = {
        .name = "snapshot check", .synopsis = "[OPTION...]", .doc = "see whether a snapshot is what its manifest says",
        .text = "Starts a session of it, compares the interpreter's version, the packages, the user, the working directory and the sizes with the manifest that was written when it was made, deletes the session and sees it gone.",
        .status = "0 it is, 1 it is not, or is not there, 2 our fault, 64 usage, 130 interrupted",
        .options = check_rows, .n_options = ARRAY_SIZE(check_rows), REMOTE_COMMON, .run = run_check,
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
