/* brig session start, ls, rm. */
#include <string.h>

#include "base/clock.h"
#include "base/strv.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"

#define WAIT_S 30                      /* of one question whether it has started */
#define WAIT_TEXT "30"
#define WAIT_MARGIN_MS 30000
#define PAGE 500
#define DELETE_MS 300000

/* ---- start --------------------------------------------------------------------------------------------------------------- */

struct start_options {
        struct remote_options remote;
        char *network, *workdir, *user, *memory, *cpus, *pids, *disk, *ttl, *idle, *owner_ttl, *startup, *key;
        char **env, **labels, **allow, **cap_drop;
        bool no_wait;
};

#define START(member) offsetof(struct start_options, member)
static const struct option_row start_rows[] = {
        { "--network", "none|open|allow", OPTION_TEXT, START(network), 0, COMPLETE_WORDS, "what it reaches; `allow`: what --allow names" },
        { "--allow", "RULE", OPTION_APPEND, START(allow), 0, COMPLETE_NONE, "a name, address or range it may reach, e.g. pypi.org:443 (repeat)" },
        { "--env", "K=V", OPTION_APPEND, START(env), 0, COMPLETE_NONE, "into its environment (repeat)" },
        { "--workdir", "DIR", OPTION_TEXT, START(workdir), 0, COMPLETE_NONE, "where commands run that say nothing" },
        { "--user", "UID[:GID]", OPTION_TEXT, START(user), 0, COMPLETE_NONE, "who runs commands that say nothing" },
        { "--startup", "COMMAND", OPTION_TEXT, START(startup), 0, COMPLETE_NONE, "run in the background once it is ready" },
        { "--cap-drop", "NAME", OPTION_APPEND, START(cap_drop), 0, COMPLETE_NONE, "a capability to take away, or ALL (repeat)" },
        { "--memory", "MIB", OPTION_TEXT, START(memory), 0, COMPLETE_NONE, "memory" },
        { "--cpus", "N", OPTION_TEXT, START(cpus), 0, COMPLETE_NONE, "cores, may have a fraction" },
        { "--pids", "N", OPTION_TEXT, START(pids), 0, COMPLETE_NONE, "processes and threads" },
        { "--disk", "MIB", OPTION_TEXT, START(disk), 0, COMPLETE_NONE, "what it may write" },
        { "--ttl", "SECONDS", OPTION_TEXT, START(ttl), 0, COMPLETE_NONE, "life in all; 0: no end" },
        { "--idle-timeout", "SECONDS", OPTION_TEXT, START(idle), 0, COMPLETE_NONE, "life after the last use; 0: no end" },
        { "--owner-ttl", "SECONDS", OPTION_TEXT, START(owner_ttl), 0, COMPLETE_NONE, "life without a heartbeat; 0: needs none" },
        { "--label", "K=V", OPTION_APPEND, START(labels), 0, COMPLETE_NONE, "for lists (repeat)" },
        { "--idempotency-key", "KEY", OPTION_TEXT, START(key), 0, COMPLETE_NONE, "the same key again: the same session" },
        { "--no-wait", NULL, OPTION_SWITCH, START(no_wait), 0, COMPLETE_NONE, "do not wait until it is ready" },
};

static void put_text(struct json_writer *w, const char *key, const char *text) {
        if (text)
                json_field_text(w, key, text);
}

static void put_network(struct json_writer *w, const struct start_options *o) {
        if (o->allow || (o->network && strcmp(o->network, "allow") == 0)) {
                json_put_key(w, "network");
                json_begin_object(w);
                json_put_key(w, "allow");
                json_begin_array(w);
                for (char **a = o->allow; a && *a; a++)
                        json_put_text(w, *a);
                json_end_array(w);
                json_end_object(w);
        } else
                put_text(w, "network", o->network);
}

static int put_limits(struct json_writer *w, const struct start_options *o, struct error *e) {
        json_put_key(w, "limits");
        json_begin_object(w);
        int r = put_number(w, "memory_mb", o->memory, "--memory", e);
        r = r ? r : put_number(w, "cpus", o->cpus, "--cpus", e);
        r = r ? r : put_number(w, "pids", o->pids, "--pids", e);
        r = r ? r : put_number(w, "disk_mb", o->disk, "--disk", e);
        json_end_object(w);
        return r;
}

static int start_body(const struct start_options *o, const char *image, struct buf *ret, struct error *e) {
        struct json_writer w = JSON_WRITER(ret);
        if (o->allow && o->network && strcmp(o->network, "allow") != 0)
                return error_say(e, -EINVAL, "--allow goes with --network allow only");
        json_begin_object(&w);
        json_field_text(&w, "image", image);
        put_network(&w, o);
        put_text(&w, "workdir", o->workdir);
        put_text(&w, "user", o->user);
        put_text(&w, "startup_command", o->startup);
        put_text(&w, "idempotency_key", o->key);
        if (o->cap_drop) {
                json_put_key(&w, "cap_drop");
                json_put_texts(&w, o->cap_drop);
        }
        int r = put_pairs(&w, "env", o->env, "--env", e);
        r = r ? r : put_pairs(&w, "labels", o->labels, "--label", e);
        r = r ? r : put_limits(&w, o, e);
        r = r ? r : put_number(&w, "ttl_s", o->ttl, "--ttl", e);
        r = r ? r : put_number(&w, "idle_timeout_s", o->idle, "--idle-timeout", e);
        r = r ? r : put_number(&w, "owner_ttl_s", o->owner_ttl, "--owner-ttl", e);
        json_end_object(&w);
        int x = json_finish(&w);
        return r < 0 ? r : x < 0 ? error_set(e, x, "write the request") : 0;
}

static bool is_starting(const struct json *session) {
        char state[32];
        return strcmp(member_show(session, "state", state, sizeof state), "starting") == 0;
}

int remote_wait_started(struct client *c, struct buf *answer, struct json *session, struct error *e) {
        char id[160], path[REMOTE_PATH_MAX];
        uint64_t since = now_ms();
        member_show(session, "id", id, sizeof id);
        int r = session_path(id, "?wait=" WAIT_TEXT, path, e);
        while (r == 0 && is_starting(session)) {
                status_line("%s is starting, %llu s", id, (unsigned long long)((now_ms() - since) / 1000));
                buf_reset(answer);
                r = remote_call(c, "GET", path, NULL, WAIT_S * 1000 + WAIT_MARGIN_MS, answer, session, e);
        }
        if (r == -EINTR)
                return error_say(e, r, "interrupted; session %s goes on: brig session rm %s ends it", id, id);
        return r;
}

static int start(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct start_options *o = target;
        _cleanup_buf_ struct buf body = BUF_INIT(REMOTE_ANSWER_MAX), answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json session;
        char id[160], why[ERROR_TEXT_MAX];
        int r = start_body(o, n ? arguments[0] : "host", &body, e);
        if (r == 0)
                r = remote_call(c, "POST", "/v1/sessions", &body, REMOTE_CALL_MS, &answer, &session, e);
        if (r == 0 && !o->no_wait)
                r = remote_wait_started(c, &answer, &session, e);
        if (r < 0)
                return r;
        status_line("%s", "");
        member_show(&session, "id", id, sizeof id);
        if (o->remote.json)
                (void)print_json(&session);
        else
                printf("%s\n", id);
        if (is_starting(&session) || strcmp(member_show(&session, "state", why, sizeof why), "ready") == 0)
                return 0;
        fprintf(stderr, "brig session start: %s is %s", id, why);
        fprintf(stderr, ": %s\n", member_show(&session, "error", why, sizeof why));
        *status = 1;
        return 0;
}

static int run_start(const struct command *c, int argc, char **argv) {
        struct start_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .max = 1, .go = start }, argc, argv);
}

const struct command cmd_session_start = {
        .name = "session start", .synopsis = "[IMAGE] [OPTION...]", .doc = "start a session and print its id",
        .text = "IMAGE is host (the machine's own toolchain, the default), an image of the store, a name that a registry knows, or a directory that is a root file system.",
        .status = "0 it is ready, 1 it has failed, 2 our fault, 64 usage, 130 interrupted",
        .options = start_rows, .n_options = ARRAY_SIZE(start_rows), REMOTE_COMMON, .argument = COMPLETE_IMAGE, .run = run_start,
};

/* ---- ls ------------------------------------------------------------------------------------------------------------------ */

struct list_options { struct remote_options remote; char *state; char **labels; bool all, quiet; };

#define LIST(member) offsetof(struct list_options, member)
static const struct option_row list_rows[] = {
        { "-q", NULL, OPTION_SWITCH, LIST(quiet), 0, COMPLETE_NONE, "ids only" },
        { "--all", NULL, OPTION_SWITCH, LIST(all), 0, COMPLETE_NONE, "also what has ended" },
        { "--state", "starting|ready|finishing|failed|finished|expired", OPTION_TEXT, LIST(state), 0, COMPLETE_WORDS, "those in this state" },
        { "--label", "K=V", OPTION_APPEND, LIST(labels), 0, COMPLETE_NONE, "those that have it (repeat)" },
};

static int list_path(const struct list_options *o, const char *after, struct buf *ret) {
        int r = buf_printf(ret, "/v1/sessions?limit=%d", PAGE);
        if (r == 0 && (o->state || o->all)) {
                r = buf_adds(ret, "&state=");
                r = r ? r : query_encode(ret, o->state ? o->state : "all");
        }
        for (char **l = o->labels; r == 0 && l && *l; l++) {
                r = buf_adds(ret, l == o->labels ? "&label=" : ",");
                r = r ? r : query_encode(ret, *l);
        }
        return r == 0 && after[0] ? buf_printf(ret, "&after=%s", after) : r;
}

/* "a=1,b=2" */
static const char *labels_show(const struct json *session, char ret[static SHOW_MAX]) {
        struct json labels, key, value;
        size_t at = 0;
        ret[0] = 0;
        if (!json_get(session, "labels", &labels))
                return ret;
        for (struct json_iter it = json_iter(&labels); json_next_member(&it, &key, &value) && at < SHOW_MAX - 1;) {
                _cleanup_buf_ struct buf b = BUF_INIT(SHOW_MAX);
                (void)json_string(&key, &b);
                (void)buf_addc(&b, '=');
                (void)json_string(&value, &b);
                int n = snprintf(ret + at, SHOW_MAX - at, "%s%s", at ? "," : "", buf_str(&b));
                at = MIN2(at + (size_t)n, (size_t)SHOW_MAX - 1);
        }
        for (char *p = ret; *p; p++)
                if ((unsigned char)*p < ' ' || *p == 0x7f)
                        *p = '?';
        return ret;
}

static void list_row(struct table *t, const struct json *s) {
        char text[SHOW_MAX];
        table_cell(t, member_show(s, "id", text, sizeof text));
        table_cell(t, member_true(s, "paused") ? "paused" : member_show(s, "state", text, sizeof text));
        table_cell(t, member_show(s, "image", text, sizeof text));
        table_cell(t, member_show(s, "network", text, sizeof text));
        table_cell(t, age_show(s, "created_at", text));
        table_cell(t, age_show(s, "last_used_at", text));
        table_cell(t, labels_show(s, text));
}

struct listing { const struct list_options *o; struct table table; struct json_writer *w; };

static void list_item(struct listing *l, const struct json *s) {
        char id[160];
        if (l->o->quiet)
                printf("%s\n", member_show(s, "id", id, sizeof id));
        else if (l->o->remote.json)
                json_put_raw(l->w, s->p, s->n);
        else
                list_row(&l->table, s);
}

static int list_pages(struct client *c, struct listing *l, struct error *e) {
        char after[64] = "";
        do {
                _cleanup_buf_ struct buf path = BUF_INIT(REMOTE_PATH_MAX), answer = BUF_INIT(REMOTE_ANSWER_MAX);
                struct json page, sessions, s;
                int r = list_path(l->o, after, &path);
                if (r < 0)
                        return error_set(e, r, "ask for the list");
                r = remote_call(c, "GET", buf_str(&path), NULL, REMOTE_CALL_MS, &answer, &page, e);
                if (r < 0)
                        return r;
                if (json_get(&page, "sessions", &sessions))
                        for (struct json_iter it = json_iter(&sessions); json_next_item(&it, &s);)
                                list_item(l, &s);
                member_show(&page, "next", after, sizeof after);
        } while (after[0]);
        return 0;
}

static int list(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        static const char *const head[] = { "SESSION", "STATE", "IMAGE", "NETWORK", "AGE", "LAST USE", "LABELS" };
        const struct list_options *o = target;
        _cleanup_buf_ struct buf out = BUF_INIT(1u << 30);
        struct json_writer w = JSON_WRITER(&out);
        struct listing l = { .o = o, .w = &w };
        table_init(&l.table, head, ARRAY_SIZE(head));
        json_begin_object(&w);
        json_put_key(&w, "sessions");
        json_begin_array(&w);
        int r = list_pages(c, &l, e);
        json_end_array(&w);
        json_end_object(&w);
        int x = json_finish(&w);
        if (r == 0 && !o->quiet && o->remote.json)
                r = x < 0 ? error_set(e, x, "write the list") : puts(buf_str(&out)) < 0 ? error_set(e, -EIO, "cannot write") : 0;
        else if (r == 0 && !o->quiet)
                (void)table_print(&l.table, stdout);
        table_release(&l.table);
        return r;
}

static int run_list(const struct command *c, int argc, char **argv) {
        struct list_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .go = list }, argc, argv);
}

const struct command cmd_session_ls = {
        .name = "session ls", .synopsis = "[OPTION...]", .doc = "list sessions", .status = "0, 2 our fault, 64 usage, 130 interrupted",
        .options = list_rows, .n_options = ARRAY_SIZE(list_rows), REMOTE_COMMON, .run = run_list,
};

/* ---- rm ------------------------------------------------------------------------------------------------------------------ */

static int removal(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct remote_options *o = target;
        for (int i = 0; i < n; i++) {
                _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
                struct json v;
                struct error one = { 0 };
                char path[REMOTE_PATH_MAX];
                int r = session_path(arguments[i], "", path, &one);
                r = r ? r : remote_call(c, "DELETE", path, NULL, DELETE_MS, &answer, &v, &one);
                if (r == -EINTR)
                        return error_say(e, r, "%s", one.text);
                if (r < 0) {
                        fprintf(stderr, "brig session rm: %s: %s\n", arguments[i], one.text);
                        *status = 1;
                } else if (o->json)
                        (void)print_json(&v);
                else
                        printf("%s\n", arguments[i]);
        }
        return 0;
}

static int run_rm(const struct command *c, int argc, char **argv) {
        struct remote_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .min = 1, .max = INT32_MAX, .go = removal }, argc, argv);
}

const struct command cmd_session_rm = {
        .name = "session rm", .synopsis = "SESSION... [OPTION...]", .doc = "end sessions and forget them",
        .text = "Returns when nothing of them is left on the machine.", .status = "0, 1 one of them was not there, 2 our fault, 64 usage, 130 interrupted",
        REMOTE_COMMON, .argument = COMPLETE_SESSION, .run = run_rm,
};
