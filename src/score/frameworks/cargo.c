/* cargo test: "test path::name ... ok", "... FAILED", "... ignored, why"; doc tests ("src/lib.rs - item (line 3)") and "- should panic" among them.
 * Several binaries print one after another. With --nocapture what a test prints stands between, and the outcome on a line of its own. Stable
 * compilers have no other report. nextest: "PASS [   0.003s] crate path::name". */
#include "score/text.h"

static bool outcome_of(struct slice word, enum test_status *ret) {
        word = slice_trim(word);
        if (slice_is(word, "ok") || slice_starts(word, "ok <") || slice_starts(word, "ok ("))
                *ret = TEST_PASSED;
        else if (slice_starts(word, "FAILED"))
                *ret = TEST_FAILED;
        else if (slice_starts(word, "ignored"))
                *ret = TEST_SKIPPED;
        else
                return false;
        return true;
}

static int nextest_line(struct slice s, struct sink *ret) {
        static const struct { const char *word; enum test_status status; } words[] = {
                {"PASS [", TEST_PASSED}, {"FAIL [", TEST_FAILED}, {"SIGABRT [", TEST_FAILED}, {"TIMEOUT [", TEST_FAILED}, {"SKIP [", TEST_SKIPPED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
                const char *close = slice_starts(s, words[i].word) ? slice_find(s, "] ") : NULL;
                if (!close)
                        continue;
                struct slice rest = slice_trim(slice_from(s, (size_t)(close - s.p) + 2));
                const char *blank = slice_find_last(rest, " ");
                return blank ? text_put(ret, slice_from(rest, (size_t)(blank - rest.p) + 1), words[i].status) : 0;
        }
        return 0;
}

static int parse(const char *text, struct sink *ret) {
        struct slice line, pending = {0};
        enum test_status st;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                const char *dots = slice_starts(line, "test ") ? slice_find_last(line, " ... ") : NULL;
                if (dots) {
                        struct slice id = slice_from(slice_cut(line, (size_t)(dots - line.p)), 5);
                        const char *panic = slice_find_last(id, " - should panic");
                        if (panic)
                                id.n = (size_t)(panic - id.p);
                        bool said = outcome_of(slice_from(line, (size_t)(dots - line.p) + 5), &st);
                        pending = said ? (struct slice){0} : id;
                        r = said ? text_put(ret, id, st) : 0;
                } else if (pending.n && outcome_of(line, &st)) {
                        r = text_put(ret, pending, st);
                        pending.n = 0;
                } else
                        r = nextest_line(slice_trim(line), ret);
        }
        return r;
}

static bool detect(const char *text) { return strstr(text, "\ntest result: ") && strstr(text, "\nrunning "); }

const struct framework framework_cargo = {
        .name = "cargo", .words = (const char *const[]){"cargo test", "cargo nextest", NULL}, .detect = detect, .parse = parse,
};
