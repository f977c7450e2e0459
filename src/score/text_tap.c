/* TAP: "ok 1 - what # SKIP why", "not ok 2 - what # TODO why" (a failure that is expected). Sub-tests are indented; the line of their
 * parent sums them up, so only lines at the margin count. "Bail out!" is an error of its own name. */
#include <ctype.h>
#include <strings.h>

#include "score/text.h"

static bool directive(struct slice s, const char *word) { return s.n >= strlen(word) && strncasecmp(s.p, word, strlen(word)) == 0; }

static int result_line(struct slice s, bool ok, struct test_results *ret) {
        enum test_status st = ok ? TEST_PASSED : TEST_FAILED;
        const char *hash = slice_find(s, " # ");
        if (hash) {
                struct slice d = slice_trim(slice_from(s, (size_t)(hash - s.p) + 3));
                if (directive(d, "skip"))
                        st = TEST_SKIPPED;
                else if (directive(d, "todo"))
                        st = ok ? TEST_XPASSED : TEST_XFAILED;
                if (st != (ok ? TEST_PASSED : TEST_FAILED))
                        s.n = (size_t)(hash - s.p);
        }
        struct slice number = s = slice_trim(s);
        while (s.n && isdigit((unsigned char)s.p[0]))
                s = slice_from(s, 1);
        number.n -= s.n;
        s = slice_trim(s);
        if (slice_starts(s, "- "))
                s = slice_trim(slice_from(s, 2));
        return text_put(ret, s.n ? s : number, st);
}

static int parse(const char *text, struct test_results *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                if (slice_starts(line, "ok ") || slice_is(line, "ok"))
                        r = result_line(slice_from(line, 2), true, ret);
                else if (slice_starts(line, "not ok ") || slice_is(line, "not ok"))
                        r = result_line(slice_from(line, 6), false, ret);
                else if (slice_starts(line, "Bail out!"))
                        r = text_put(ret, slice_cut(line, 9), TEST_ERROR);
        }
        return r;
}

static bool detect(const char *text) { return strncmp(text, "TAP version ", 12) == 0 || strstr(text, "\nTAP version ") != NULL; }

const struct framework framework_tap = {
        .name = "tap", .words = (const char *const[]){"prove", "bats", "tape", NULL}, .detect = detect, .parse = parse,
};
