/* unittest's text (-v), Django's runner among it: "name (dotted.path) ... ok", or the name on one line and the first line of the
 * docstring with the outcome on the next (both are then ids). A test that prints leaves its outcome on a line of its own. */
#include "score/text.h"

static bool outcome_of(struct slice s, enum test_status *ret) {
        s = slice_trim(s);
        if (slice_is(s, "ok"))
                *ret = TEST_PASSED;
        else if (slice_is(s, "FAIL"))
                *ret = TEST_FAILED;
        else if (slice_is(s, "ERROR"))
                *ret = TEST_ERROR;
        else if (slice_is(s, "expected failure"))
                *ret = TEST_XFAILED;
        else if (slice_is(s, "unexpected success"))
                *ret = TEST_FAILED;             /* fails the run: like a strict XPASS */
        else if (slice_starts(s, "skipped"))
                *ret = TEST_SKIPPED;
        else
                return false;
        return true;
}

/* "name (dotted.path)" */
static bool is_name(struct slice s) {
        const char *open = slice_find(s, " (");
        return open && s.n && s.p[s.n - 1] == ')' && !memchr(s.p, ' ', (size_t)(open - s.p)) && !memchr(open + 1, ' ', (size_t)(s.p + s.n - open - 1));
}

static int put_both(struct sink *ret, struct slice id, struct slice name, enum test_status st) {
        int r = text_put(ret, id, st);
        return r == 0 && name.n ? text_put(ret, name, st) : r;
}

/* "FAIL: test_x (m.C)" and "ERROR: setUpClass (m.C)" of the report. */
static int report_line(struct slice line, struct sink *ret) {
        bool error = slice_starts(line, "ERROR: ");
        if (!error && !slice_starts(line, "FAIL: "))
                return 0;
        struct slice id = slice_trim(slice_from(line, error ? 7 : 6));
        const char *sub = slice_find(id, ") ");         /* "(i=1)" or "[message]" of a subtest follows */
        if (sub)
                id.n = (size_t)(sub + 1 - id.p);
        return is_name(id) ? text_put(ret, id, error ? TEST_ERROR : TEST_FAILED) : 0;
}

static int parse(const char *text, struct sink *ret) {
        struct slice line, pending = {0}, name = {0};
        enum test_status st;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                const char *dots = slice_find(line, " ... ");   /* a reason may hold dots too, so may a docstring */
                if (dots && !is_name(slice_cut(line, (size_t)(dots - line.p))))
                        dots = slice_find_last(line, " ... ");
                if (!dots && line.n > 4 && memcmp(line.p + line.n - 4, " ...", 4) == 0)
                        dots = line.p + line.n - 4;
                if (dots) {
                        struct slice id = slice_cut(line, (size_t)(dots - line.p));
                        struct slice both = is_name(id) ? (struct slice){0} : name;
                        if (outcome_of(slice_from(line, (size_t)(dots - line.p) + 4), &st)) {
                                r = put_both(ret, id, both, st);
                                pending.n = 0;
                        } else
                                pending = is_name(id) ? id : both;
                } else if (pending.n && outcome_of(line, &st)) {
                        r = text_put(ret, pending, st);
                        pending.n = 0;
                } else
                        r = report_line(line, ret);
                name = is_name(line) ? line : (struct slice){0};
        }
        return r;
}

static bool detect(const char *text) {
        const char *ran = strstr(text, "\nRan ");
        return ran && strstr(ran, " test") && (strstr(ran, "\nOK") || strstr(ran, "\nFAILED ("));
}

static bool passed(const char *text) {
        const char *ran = NULL;
        while ((text = strstr(text, "\nRan ")))
                ran = text += 5;
        return ran && *ran >= '1' && *ran <= '9' && strstr(ran, "\nOK");
}

/* "test_x (pkg.mod.Class)", "test_x (pkg.mod.Class.test_x)" -> "pkg.mod.Class.test_x" */
static char *canonical(const char *id) {
        struct slice s = slice_trim((struct slice){id, strlen(id)});
        if (!is_name(s))
                return strndup(s.p, s.n);
        const char *open = slice_find(s, " (");
        int name = (int)(open - s.p), path = (int)(s.p + s.n - 1 - (open + 2));
        char *ret = NULL;
        bool whole = path > name && open[2 + path - name - 1] == '.' && memcmp(open + 2 + path - name, s.p, (size_t)name) == 0;
        int r = whole ? asprintf(&ret, "%.*s", path, open + 2) : asprintf(&ret, "%.*s.%.*s", path, open + 2, name, s.p);
        return r < 0 ? NULL : ret;
}

const struct framework framework_unittest = {
        .name = "unittest", .launched = true, .python = true, .words = (const char *const[]){"unittest", NULL},
        .detect = detect, .parse = parse, .passed = passed, .canonical = canonical,
};
