/* CTest: --output-junit (since 3.21). Text: "1/3 Test #1: name ....   Passed    0.01 sec", "...***Failed", "***Not Run", "***Skipped",
 * "***Exception: SegFault", "***Timeout". */
#include <ctype.h>

#include "score/frameworks/junit.h"
#include "score/text.h"

static int put(struct sink *s, const struct junit_case *c) { return sink_put(s, (const char *const[]){c->name, NULL}, c->status); }

static int report(const char *p, size_t n, struct sink *ret) { return junit_read(p, n, put, ret); }

static bool status_of(struct slice s, enum test_status *ret) {
        static const struct { const char *text; enum test_status status; } all[] = {
                {"Passed", TEST_PASSED}, {"***Skipped", TEST_SKIPPED}, {"***Not Run (Disabled)", TEST_SKIPPED}, {"***Not Run", TEST_ERROR},
                {"***Failed", TEST_FAILED}, {"***Timeout", TEST_FAILED}, {"***Exception", TEST_FAILED}, {"***", TEST_FAILED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
                if (slice_starts(s, all[i].text)) {
                        *ret = all[i].status;
                        return true;
                }
        return false;
}

#define CTEST_DOTS_MAX 8        /* places of a line where the dots behind a test's name may begin */

/* Behind "Test #1: ". */
static int put_line(struct slice s, struct sink *ret) {
        enum test_status st;
        const char *at;
        for (size_t i = 0; i < CTEST_DOTS_MAX && (at = slice_find_last(s, " .")); i++, s.n = (size_t)(at - s.p)) {
                struct slice rest = slice_from(s, (size_t)(at - s.p) + 1);
                while (rest.n && rest.p[0] == '.')
                        rest = slice_from(rest, 1);
                if (status_of(slice_trim(rest), &st))
                        return text_put(ret, slice_cut(s, (size_t)(at - s.p)), st);
        }
        return 0;
}

static int parse(const char *text, struct sink *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                const char *at = slice_find(line, "Test "), *slash = memchr(line.p, '/', line.n);
                if (!at || !slash || slash > at || !(isdigit((unsigned char)line.p[0]) || line.p[0] == ' '))
                        continue;
                struct slice rest = slice_trim(slice_from(line, (size_t)(at - line.p) + 5));
                const char *colon = rest.n && rest.p[0] == '#' ? slice_find(rest, ": ") : NULL;
                if (colon)
                        r = put_line(slice_from(rest, (size_t)(colon - rest.p) + 2), ret);
        }
        return r;
}

static bool detect(const char *text) { return strstr(text, "Test project /") && strstr(text, "% tests passed, "); }

const struct framework framework_ctest = {
        .name = "ctest", .words = (const char *const[]){"ctest", NULL}, .detect = detect, .parse = parse,
        .route = "ctest --output-junit", .options = "--output-junit " FRAMEWORK_REPORT, .unless = (const char *const[]){"--output-junit", NULL},
        .report = report,
};
