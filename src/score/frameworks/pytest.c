/* pytest's text: the lines of -v between the head of the session and the first report section, and the short summary (-rA) at
 * the end. What tests print shows up in the sections between, which are not read. */
#include "score/text.h"

static const struct { const char *word; enum test_status status; } outcomes[] = {
        {"PASSED", TEST_PASSED}, {"FAILED", TEST_FAILED}, {"ERROR", TEST_ERROR}, {"SKIPPED", TEST_SKIPPED},
        {"XFAIL", TEST_XFAILED}, {"XPASS", TEST_XPASSED},
};

static bool is_section(struct slice line) { return slice_starts(line, "===") && line.n > 6 && line.p[line.n - 1] == '='; }

/* "tests/a.py::test_x[a b] PASSED   [ 50%]" */
static int verbose_line(struct slice line, struct sink *ret) {
        if (!slice_find(line, "::"))
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
                char needle[16];
                snprintf(needle, sizeof(needle), " %s", outcomes[i].word);
                const char *at = slice_find_last(line, needle);
                if (!at)
                        continue;
                struct slice rest = slice_trim(slice_from(line, (size_t)(at - line.p) + strlen(needle)));
                if (rest.n == 0 || (rest.p[0] == '[' && rest.p[rest.n - 1] == ']') || rest.p[0] == '(')
                        return text_put(ret, slice_cut(line, (size_t)(at - line.p)), outcomes[i].status);
        }
        return 0;
}

/* "FAILED tests/a.py::test_x[a - b] - AssertionError: ..." */
static int summary_line(struct slice line, struct sink *ret) {
        for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
                size_t n = strlen(outcomes[i].word);
                if (!slice_starts(line, outcomes[i].word) || line.n <= n || line.p[n] != ' ')
                        continue;
                struct slice id = slice_from(line, n + 1);
                if (id.n && id.p[0] == '[')             /* "SKIPPED [1] file:line: why" names no test */
                        return 0;
                const char *dash = slice_find(id, " - "), *bracket = slice_find(id, "[");
                const char *close = slice_find(id, "] - ");
                if (dash && bracket && bracket < dash && close)
                        dash = close + 1;
                if (dash)
                        id.n = (size_t)(dash - id.p);
                return slice_find(id, "::") || outcomes[i].status == TEST_ERROR ? text_put(ret, id, outcomes[i].status) : 0;
        }
        return 0;
}

static bool detect(const char *text) { return strstr(text, "= test session starts =") != NULL; }

static int parse(const char *text, struct sink *ret) {
        enum { BEFORE, RUNNING, SECTIONS, SUMMARY } at = detect(text) ? BEFORE : RUNNING;
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                if (is_section(line)) {
                        if (slice_find(line, " test session starts "))
                                at = RUNNING;
                        else
                                at = slice_find(line, " short test summary info ") ? SUMMARY : SECTIONS;
                } else if (at == RUNNING)
                        r = verbose_line(line, ret);
                else if (at == SUMMARY)
                        r = summary_line(line, ret);
        }
        return r;
}

/* "==== 1 failed, 2 passed in 0.01s ====", with -q without the rules. */
static bool passed(const char *text) {
        struct slice line, last = {0};
        while (text_line(&text, &line)) {
                while (line.n && (line.p[0] == '=' || line.p[0] == ' '))
                        line = slice_from(line, 1);
                if (line.n && line.p[0] >= '1' && line.p[0] <= '9' && slice_find(line, " in "))
                        last = line;
        }
        return last.n && slice_find(last, " passed") && !slice_find(last, " failed") && !slice_find(last, " error");
}

static char *canonical(const char *id) {
        while (id[0] == '.' && id[1] == '/')
                id += 2;
        return strdup(id);
}

const struct framework framework_pytest = {
        .name = "pytest", .launched = true, .python = true, .words = (const char *const[]){"pytest", "py.test", NULL},
        .detect = detect, .parse = parse, .passed = passed, .canonical = canonical,
        .variable = "PYTEST_ADDOPTS", .value = "-rfEsxXp",
};
