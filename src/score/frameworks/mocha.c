/* mocha: its JSON reporter, into a file (since 9.2) or, from older ones, to its output. Text of the spec reporter: "✔ title", "1) title" (failed),
 * "- title" (skipped) by indentation under the titles of the groups, up to "3 passing". */
#include <ctype.h>

#include "base/json.h"
#include "score/frameworks/jest_report.h"
#include "score/text.h"

/* The title alone stands at the end of fullTitle. */
static int put_test(const struct json *test, enum test_status st, struct sink *ret) {
        char full[JEST_TEXT_MAX * 4], title[JEST_TEXT_MAX], file[JEST_TEXT_MAX], with_file[JEST_TEXT_MAX * 5 + 4];
        if (!report_text(test, "fullTitle", full, sizeof(full)) || !report_text(test, "title", title, sizeof(title)))
                return -EBADMSG;
        report_text(test, "file", file, sizeof(file));
        snprintf(with_file, sizeof(with_file), "%s | %s", report_path(ret, file), full);
        return sink_put(ret, (const char *const[]){full, title, with_file, NULL}, st);
}

static int report(const char *p, size_t n, struct sink *ret) {
        static const struct { const char *key; enum test_status status; } lists[] = {
                {"passes", TEST_PASSED}, {"pending", TEST_SKIPPED}, {"failures", TEST_FAILED},
        };
        struct json o, stats, list, one;
        int r = 0;
        if (json_parse(p, n, &o, NULL) < 0 || !json_get(&o, "stats", &stats))
                return -EBADMSG;
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                if (json_get(&o, lists[i].key, &list))
                        for (struct json_iter it = json_iter(&list); r == 0 && json_next_item(&it, &one);)
                                r = put_test(&one, lists[i].status, ret);
        return r;
}

/* The object in a text, between its first and its last brace. */
static int in_output(const char *text, struct sink *ret) {
        const char *from = strstr(text, "{\n  \"stats\": {"), *end = from ? strrchr(from, '}') : NULL;
        int r = end ? report(from, (size_t)(end - from) + 1, ret) : -EBADMSG;
        if (r == 0)
                ret->structured = true;
        return r;
}

struct groups { char *at[SINK_GROUPS_MAX]; size_t n; };

static void leave(struct groups *g, size_t n) {
        while (g->n > n)
                free(g->at[--g->n]);
}

static bool is_mark(struct slice s, enum test_status *ret, size_t *ret_n) {
        size_t digits = 0;
        while (digits < s.n && isdigit((unsigned char)s.p[digits]))
                digits++;
        if (digits && slice_starts(slice_from(s, digits), ") ")) {
                *ret = TEST_FAILED;
                *ret_n = digits + 2;
        } else if (slice_starts(s, "✔ ") || slice_starts(s, "✓ ")) {
                *ret = TEST_PASSED;
                *ret_n = strlen("✔ ");
        } else if (slice_starts(s, "- ")) {
                *ret = TEST_SKIPPED;
                *ret_n = 2;
        } else
                return false;
        return true;
}

static int put_line(struct groups *g, struct slice line, struct sink *ret) {
        size_t blanks = 0, n;
        enum test_status st;
        while (blanks < line.n && line.p[blanks] == ' ')
                blanks++;
        struct slice s = slice_trim(line);
        if (blanks < 2 || blanks / 2 - 1 > g->n || !s.n)
                return 0;
        leave(g, blanks / 2 - 1);
        bool test = is_mark(s, &st, &n);
        const char *open = test && s.n > 3 && memcmp(s.p + s.n - 3, "ms)", 3) == 0 ? slice_find_last(s, " (") : NULL;
        if (open)
                s.n = (size_t)(open - s.p);
        char *title = test ? strndup(s.p + n, s.n - n) : strndup(s.p, s.n);
        if (!title)
                return -ENOMEM;
        if (!test && g->n < SINK_GROUPS_MAX) {
                g->at[g->n++] = title;
                return 0;
        }
        struct test_name name = {.title = title, .n_groups = g->n};
        memcpy(name.groups, g->at, g->n * sizeof(g->at[0]));
        int r = test ? sink_put_name(ret, &name, NAME_FULL, st) : 0;
        free(title);
        return r;
}

static bool is_count(struct slice line) {
        struct slice s = slice_trim(line);
        return s.n && isdigit((unsigned char)s.p[0]) && slice_find(s, " passing");
}

static int parse(const char *text, struct sink *ret) {
        struct groups g = {.n = 0};
        struct slice line;
        int r = in_output(text, ret);
        if (r != -EBADMSG)
                return r;
        r = 0;
        while (r == 0 && text_line(&text, &line) && !is_count(line))
                r = put_line(&g, line, ret);
        leave(&g, 0);
        return r;
}

static bool detect(const char *text) { return strstr(text, " passing (") != NULL; }

const struct framework framework_mocha = {
        .name = "mocha", .words = (const char *const[]){"mocha", NULL}, .detect = detect, .parse = parse, .route = "mocha --reporter json",
        .options = "--reporter json --reporter-option output=" FRAMEWORK_REPORT, .unless = (const char *const[]){"--reporter", "-R", NULL}, .report = report,
};
