/* brig top: what sessions use, again and again. */
#include <poll.h>
#include <string.h>

#include "base/strv.h"
#include "cmd/remote.h"
#include "cmd/verbs.h"

#define PAGE 1000
#define INTERVAL_MS 2000
#define SHOWN_MAX 1000                 /* sessions of one screen: each costs a call */

struct top_options { struct remote_options remote; bool once; };
static const struct option_row rows[] = {
        { "--once", NULL, OPTION_SWITCH, offsetof(struct top_options, once), 0, COMPLETE_NONE, "one table; also with -o json, and where standard output is no terminal" },
};

static void put_row(struct table *t, const struct json *session, const struct json *usage) {
        char text[SHOW_MAX];
        table_cell(t, member_show(session, "id", text, sizeof text));
        table_cell(t, member_true(usage, "paused") ? "paused" : member_show(session, "state", text, sizeof text));
        int64_t cpu = member_number(usage, "cpu_ms", -1);
        snprintf(text, sizeof text, "%.1f s", (double)cpu / 1000);
        table_cell(t, cpu < 0 ? "" : text);
        table_cell(t, bytes_show(usage, "memory_bytes", text));
        table_cell(t, bytes_show(usage, "memory_peak_bytes", text));
        table_cell(t, member_show(usage, "pids", text, sizeof text));
        table_cell(t, bytes_show(usage, "disk_bytes", text));
        table_cell(t, age_show(session, "created_at", text));
        table_cell(t, member_show(session, "image", text, sizeof text));
}

/* One that ends meanwhile is left out. */
static int one(struct client *c, const struct json *session, struct table *t, struct json_writer *w, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json usage = { .type = JSON_NULL, .p = "null", .n = 4 };
        char id[160], path[REMOTE_PATH_MAX];
        int r = session_path(member_show(session, "id", id, sizeof id), "/usage", path, e);
        r = r ? r : remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &usage, e);
        if (r == -ENOENT || r == -EBUSY)
                r = 0;
        if (r == 0 && w)
                json_put_raw(w, usage.p, usage.n);
        else if (r == 0)
                put_row(t, session, &usage);
        return r;
}

static int gather(struct client *c, struct table *t, struct json_writer *w, struct error *e) {
        _cleanup_buf_ struct buf answer = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json page, sessions, s;
        char path[64];
        unsigned shown = 0;
        snprintf(path, sizeof path, "/v1/sessions?state=ready&limit=%d", PAGE);
        int r = remote_call(c, "GET", path, NULL, REMOTE_CALL_MS, &answer, &page, e);
        if (r == 0 && json_get(&page, "sessions", &sessions))
                for (struct json_iter it = json_iter(&sessions); r == 0 && shown < SHOWN_MAX && json_next_item(&it, &s); shown++)
                        r = one(c, &s, t, w, e);
        return r;
}

static int as_json(struct client *c, struct error *e) {
        _cleanup_buf_ struct buf out = BUF_INIT(REMOTE_ANSWER_MAX);
        struct json_writer w = JSON_WRITER(&out);
        json_begin_object(&w);
        json_put_key(&w, "sessions");
        json_begin_array(&w);
        int r = gather(c, NULL, &w, e);
        json_end_array(&w);
        json_end_object(&w);
        if (r == 0 && json_finish(&w) == 0)
                puts(buf_str(&out));
        return r;
}

static int as_table(struct client *c, bool screen, struct error *e) {
        static const char *const head[] = { "SESSION", "STATE", "CPU", "MEMORY", "PEAK", "PIDS", "DISK", "AGE", "IMAGE" };
        struct table t;
        table_init(&t, head, ARRAY_SIZE(head));
        int r = gather(c, &t, NULL, e);
        if (r == 0) {
                if (screen)
                        fputs("\033[H\033[2J", stdout);
                (void)table_print(&t, stdout);
        }
        table_release(&t);
        return r;
}

static int top(struct client *c, void *target, char **arguments, int n, int *status, struct error *e) {
        const struct top_options *o = target;
        bool screen = !o->once && isatty(STDOUT_FILENO);
        if (o->remote.json)
                return as_json(c, e);
        for (;;) {
                int r = as_table(c, screen, e);
                if (r < 0 || !screen)
                        return r == -EINTR ? 0 : r;
                if (poll(NULL, 0, INTERVAL_MS) < 0)
                        return 0;      /* the signal that ends it */
        }
}

static int run(const struct command *c, int argc, char **argv) {
        struct top_options o = { 0 };
        return remote_verb(&(struct remote_verb){ .command = c, .target = &o, .go = top }, argc, argv);
}

const struct command cmd_top = {
        .name = "top", .synopsis = "[OPTION...]", .doc = "show what sessions use", .text = "On a terminal every two seconds, until it is interrupted.",
        .status = "0, 2 our fault, 64 usage", .options = rows, .n_options = ARRAY_SIZE(rows), REMOTE_COMMON, .run = run,
};
