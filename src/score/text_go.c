/* go test -v: "--- PASS: TestX/sub (0.00s)" at any depth; go test -json: one object a line, whose own "output" carries the same text. */
#include <jansson.h>

#include "score/text.h"

static int json_line(struct slice line, struct test_results *ret) {
        json_t *o = json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES, NULL);
        const char *action = json_string_value(json_object_get(o, "Action")), *test = json_string_value(json_object_get(o, "Test"));
        int r = 0;
        if (action && test) {
                struct slice id = {test, strlen(test)};
                if (strcmp(action, "pass") == 0)
                        r = text_put(ret, id, TEST_PASSED);
                else if (strcmp(action, "fail") == 0)
                        r = text_put(ret, id, TEST_FAILED);
                else if (strcmp(action, "skip") == 0)
                        r = text_put(ret, id, TEST_SKIPPED);
        }
        json_decref(o);
        return r;
}

static int parse(const char *text, struct test_results *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                if (slice_starts(line, "{\"")) {
                        r = json_line(line, ret);
                        continue;
                }
                struct slice s = slice_trim(line);
                enum test_status st = slice_starts(s, "--- PASS: ") ? TEST_PASSED : slice_starts(s, "--- FAIL: ") ? TEST_FAILED
                        : slice_starts(s, "--- SKIP: ") ? TEST_SKIPPED : TEST_MISSING;
                if (st == TEST_MISSING)
                        continue;
                s = slice_from(s, strlen("--- PASS: "));
                const char *end = slice_find_last(s, " (");
                if (end)
                        s.n = (size_t)(end - s.p);
                r = text_put(ret, s, st);
        }
        return r;
}

static bool detect(const char *text) { return strstr(text, "=== RUN   ") && (strstr(text, "--- PASS: ") || strstr(text, "--- FAIL: ")); }

const struct framework framework_go = {
        .name = "go", .words = (const char *const[]){"go test", "gotestsum", NULL}, .detect = detect, .parse = parse,
};
