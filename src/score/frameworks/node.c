/* Node's own runner: its TAP reporter, beside the one for people. Text of that (spec): "✔ title (1.2ms)", "✖ title", "﹣ title # SKIP" by
 * indentation, where a group is "▶ title"; what failed is told once more behind "✖ failing tests:". */
#include "score/frameworks/tap.h"

static int report(const char *p, size_t n, struct sink *ret) {
        _cleanup_free_ char *text = framework_clean(p, n);
        bool tap;
        int r = text ? tap_read(text, true, ret, &tap) : -ENOMEM;
        return r == 0 && !tap ? -EBADMSG : r;
}

static bool mark_of(struct slice s, enum test_status *ret, size_t *ret_n) {
        static const struct { const char *mark; enum test_status status; } marks[] = {
                {"✔ ", TEST_PASSED}, {"✖ ", TEST_FAILED}, {"﹣ ", TEST_SKIPPED}, {"▶ ", TEST_MISSING},
        };
        for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
                if (slice_starts(s, marks[i].mark)) {
                        *ret = marks[i].status;
                        *ret_n = strlen(marks[i].mark);
                        return true;
                }
        return false;
}

/* Without "(1.2ms)" and "# SKIP why" at its end. */
static struct slice title_of(struct slice s, enum test_status *st) {
        const char *hash = slice_find_last(s, " # "), *open;
        if (hash && slice_starts(slice_from(s, (size_t)(hash - s.p)), " # SKIP")) {
                *st = TEST_SKIPPED;
                s.n = (size_t)(hash - s.p);
        } else if (hash && slice_starts(slice_from(s, (size_t)(hash - s.p)), " # TODO")) {
                *st = *st == TEST_PASSED ? TEST_XPASSED : TEST_XFAILED;
                s.n = (size_t)(hash - s.p);
        }
        if (s.n > 3 && memcmp(s.p + s.n - 3, "ms)", 3) == 0 && (open = slice_find_last(s, " (")))
                s.n = (size_t)(open - s.p);
        return slice_trim(s);
}

struct groups { char *at[SINK_GROUPS_MAX]; size_t n; };

static void leave(struct groups *g, size_t n) {
        while (g->n > n)
                free(g->at[--g->n]);
}

static int put_line(struct groups *g, size_t depth, struct slice title, enum test_status st, struct sink *ret) {
        char *s = strndup(title.p, title.n);
        if (!s)
                return -ENOMEM;
        /* The mark of a group that has ended stands where its "▶" stood. */
        bool closes = g->n == depth + 1 && strcmp(g->at[depth], s) == 0;
        if (depth < g->n)
                leave(g, depth);
        if (st == TEST_MISSING && !closes && depth == g->n && depth < SINK_GROUPS_MAX) {
                g->at[g->n++] = s;
                return 0;
        }
        int r = 0;
        if (st != TEST_MISSING && !closes) {
                struct test_name name = {.title = s, .n_groups = g->n};
                memcpy(name.groups, g->at, g->n * sizeof(g->at[0]));
                r = sink_put_name(ret, &name, NAME_PATH, st);
        }
        free(s);
        return r;
}

static int parse(const char *text, struct sink *ret) {
        struct groups g = {.n = 0};
        struct slice line;
        int r = 0;
        if (strncmp(text, "TAP version ", 12) == 0 || strstr(text, "\nTAP version ")) {
                ret->structured = true;
                return tap_read(text, true, ret, NULL);
        }
        while (r == 0 && text_line(&text, &line) && !slice_starts(line, "✖ failing tests:")) {
                enum test_status st;
                size_t blanks = 0, n;
                while (blanks < line.n && line.p[blanks] == ' ')
                        blanks++;
                if (mark_of(slice_from(line, blanks), &st, &n)) {
                        struct slice title = title_of(slice_from(line, blanks + n), &st);
                        r = put_line(&g, blanks / 2, title, st, ret);
                }
        }
        leave(&g, 0);
        return r;
}

static bool detect(const char *text) { return strstr(text, "ℹ tests ") && strstr(text, "ℹ pass "); }

const struct framework framework_node = {
        .name = "node", .words = (const char *const[]){"node --test", NULL}, .detect = detect, .parse = parse, .route = "node --test-reporter=tap",
        .options = "--test-reporter=tap --test-reporter-destination=" FRAMEWORK_REPORT " --test-reporter=spec --test-reporter-destination=stdout",
        .unless = (const char *const[]){"--test-reporter", NULL}, .report = report,
};
