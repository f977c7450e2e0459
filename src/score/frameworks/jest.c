/* jest --json. Text of --verbose: "  ✓ title (3 ms)", "✕", "○ skipped title", "✎ todo title", by indentation under the titles of the groups,
 * after "PASS path" or "FAIL path". A file that could not be run has "● Test suite failed to run". */
#include "score/frameworks/jest_report.h"
#include "score/text.h"

static int report(const char *p, size_t n, struct sink *ret) { return jest_report(p, n, NAME_FULL, ret); }

static bool mark_of(struct slice s, enum test_status *ret, size_t *ret_n) {
        static const struct { const char *mark; enum test_status status; } marks[] = {
                {"✓ ", TEST_PASSED}, {"√ ", TEST_PASSED}, {"✕ ", TEST_FAILED}, {"× ", TEST_FAILED}, {"○ skipped ", TEST_SKIPPED}, {"○ ", TEST_SKIPPED}, {"✎ todo ", TEST_SKIPPED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
                if (slice_starts(s, marks[i].mark)) {
                        *ret = marks[i].status;
                        *ret_n = strlen(marks[i].mark);
                        return true;
                }
        return false;
}

struct place { char *file, *groups[SINK_GROUPS_MAX]; size_t n; };

static void leave(struct place *at, size_t n) {
        while (at->n > n)
                free(at->groups[--at->n]);
}

static int take(char **to, struct slice s) {
        free(*to);
        *to = strndup(s.p, s.n);
        return *to ? 0 : -ENOMEM;
}

static int put_title(const struct place *at, struct slice title, enum test_status st, struct sink *ret) {
        const char *open = title.n > 2 && memcmp(title.p + title.n - 2, "s)", 2) == 0 ? slice_find_last(title, " (") : NULL;
        _cleanup_free_ char *s = strndup(title.p, open ? (size_t)(open - title.p) : title.n);
        struct test_name name = {.file = at->file, .title = s, .n_groups = at->n};
        memcpy(name.groups, at->groups, at->n * sizeof(at->groups[0]));
        return s ? sink_put_name(ret, &name, NAME_FULL, st) : -ENOMEM;
}

/* A line of the tree of titles, or what ends it. */
static int tree_line(struct place *at, struct slice line, bool *in_tree, struct sink *ret) {
        size_t blanks = 0, n;
        enum test_status st;
        while (blanks < line.n && line.p[blanks] == ' ')
                blanks++;
        struct slice s = slice_trim(line);
        if (slice_starts(s, "● ")) {
                *in_tree = false;
                return slice_is(s, "● Test suite failed to run") && at->file ? sink_put(ret, (const char *const[]){at->file, NULL}, TEST_ERROR) : 0;
        }
        if (!*in_tree || blanks < 2 || blanks / 2 > SINK_GROUPS_MAX)
                return 0;
        size_t depth = blanks / 2 - 1;
        if (depth > at->n)
                return 0;
        leave(at, depth);
        if (mark_of(s, &st, &n))
                return put_title(at, slice_from(s, n), st, ret);
        if (at->n == SINK_GROUPS_MAX)
                return 0;
        at->groups[at->n] = strndup(s.p, s.n);
        return at->groups[at->n++] ? 0 : -ENOMEM;
}

static int parse(const char *text, struct sink *ret) {
        struct place at = {0};
        struct slice line;
        bool in_tree = false;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                if (slice_starts(line, "PASS ") || slice_starts(line, "FAIL ")) {
                        struct slice path = slice_trim(slice_from(line, 5));
                        const char *open = slice_find_last(path, " (");
                        if (open)
                                path.n = (size_t)(open - path.p);
                        leave(&at, 0);
                        in_tree = true;
                        r = take(&at.file, path);
                } else if (slice_trim(line).n)
                        r = tree_line(&at, line, &in_tree, ret);
        }
        leave(&at, 0);
        free(at.file);
        return r;
}

static bool detect(const char *text) { return strstr(text, "\nTest Suites: ") && strstr(text, "\nTests: "); }

const struct framework framework_jest = {
        .name = "jest", .words = (const char *const[]){"jest", NULL}, .detect = detect, .parse = parse, .route = "jest --json",
        .options = "--json --outputFile=" FRAMEWORK_REPORT " --verbose", .unless = (const char *const[]){"--json", "--outputFile", "--listTests", NULL}, .report = report,
};
