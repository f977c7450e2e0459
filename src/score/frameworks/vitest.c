/* vitest: its JSON reporter, in jest's shape. Text of the verbose reporter: " ✓ file > group > title 3ms", "×", "↓" (skipped). */
#include <ctype.h>

#include "score/frameworks/jest_report.h"
#include "score/text.h"

static int report(const char *p, size_t n, struct sink *ret) { return jest_report(p, n, NAME_FILE_PATH, ret); }

static bool mark_of(struct slice s, enum test_status *ret, size_t *ret_n) {
        static const struct { const char *mark; enum test_status status; } marks[] = {
                {"✓ ", TEST_PASSED}, {"× ", TEST_FAILED}, {"✗ ", TEST_FAILED}, {"↓ ", TEST_SKIPPED}, {"□ ", TEST_SKIPPED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
                if (slice_starts(s, marks[i].mark)) {
                        *ret = marks[i].status;
                        *ret_n = strlen(marks[i].mark);
                        return true;
                }
        return false;
}

/* Without " 3ms" and " [skipped]" at its end. */
static struct slice path_of(struct slice s) {
        size_t n = s.n;
        if (n > 10 && memcmp(s.p + n - 10, " [skipped]", 10) == 0)
                n -= 10;
        if (n > 2 && memcmp(s.p + n - 2, "ms", 2) == 0) {
                size_t at = n - 2;
                while (at > 0 && isdigit((unsigned char)s.p[at - 1]))
                        at--;
                if (at > 1 && at < n - 2 && s.p[at - 1] == ' ')
                        n = at;
        }
        return slice_trim(slice_cut(s, n));
}

static int put_path(struct slice s, enum test_status st, struct sink *ret) {
        _cleanup_free_ char *text = strndup(s.p, s.n);
        struct test_name name = {.file = text};
        char *at = text;
        if (!text)
                return -ENOMEM;
        for (char *sign; (sign = strstr(at, " > "));) {
                *sign = 0;
                at = sign + 3;
                if (name.n_groups < SINK_GROUPS_MAX)
                        name.groups[name.n_groups++] = at;
        }
        if (name.n_groups == 0)                 /* "✓ file (3 tests) 4ms" */
                return 0;
        name.title = name.groups[--name.n_groups];
        return sink_put_name(ret, &name, NAME_FILE_PATH, st);
}

static int parse(const char *text, struct sink *ret) {
        struct slice line;
        enum test_status st;
        size_t n;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                struct slice s = slice_trim(line);
                if (mark_of(s, &st, &n))
                        r = put_path(path_of(slice_from(s, n)), st, ret);
                else if (slice_starts(s, "FAIL ") && !slice_find(s, " > ") && slice_find(s, " [ "))
                        r = text_put(ret, slice_cut(slice_from(s, 5), (size_t)(slice_find(s, " [ ") - s.p) - 5), TEST_ERROR);
        }
        return r;
}

static bool detect(const char *text) { return strstr(text, " Test Files  ") && strstr(text, " Start at  "); }

const struct framework framework_vitest = {
        .name = "vitest", .words = (const char *const[]){"vitest run", "vitest", NULL}, .detect = detect, .parse = parse, .route = "vitest --reporter=json",
        .options = "--reporter=verbose --reporter=json --outputFile.json=" FRAMEWORK_REPORT, .unless = (const char *const[]){"--reporter", "--outputFile", NULL},
        .report = report,
};
