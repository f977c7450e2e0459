/* cargo test: "test path::name ... ok", "... FAILED", "... ignored, why"; doc tests ("src/lib.rs - item (line 3)") and
 * "- should panic" among them. Several binaries print one after another. */
#include "score/text.h"

static int parse(const char *text, struct test_results *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                const char *dots = slice_find_last(line, " ... ");
                if (!slice_starts(line, "test ") || !dots)
                        continue;
                struct slice id = slice_from(slice_cut(line, (size_t)(dots - line.p)), 5);
                struct slice word = slice_trim(slice_from(line, (size_t)(dots - line.p) + 5));
                const char *panic = slice_find_last(id, " - should panic");
                if (panic)
                        id.n = (size_t)(panic - id.p);
                if (slice_is(word, "ok") || slice_starts(word, "ok "))
                        r = text_put(ret, id, TEST_PASSED);
                else if (slice_starts(word, "FAILED"))
                        r = text_put(ret, id, TEST_FAILED);
                else if (slice_starts(word, "ignored"))
                        r = text_put(ret, id, TEST_SKIPPED);
        }
        return r;
}

static bool detect(const char *text) { return strstr(text, "\ntest result: ") && strstr(text, "\nrunning "); }

const struct framework framework_cargo = {
        .name = "cargo", .words = (const char *const[]){"cargo test", "cargo nextest", NULL}, .detect = detect, .parse = parse,
};
