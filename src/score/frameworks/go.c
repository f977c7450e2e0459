/* go test -json: one object a line; a test that ran and did not end is missing. Text of -v: "--- PASS: TestX/sub (0.00s)" at any depth.
 * The same name in several packages is one id; "package TestX" and "package.TestX" name one of them. */
#include <stdio.h>

#include "base/json.h"
#include "score/text.h"

static int text_of(const struct json *o, const char *key, char *ret, size_t size) {
        struct json v;
        _cleanup_buf_ struct buf b = BUF_INIT(size);
        if (!json_get(o, key, &v) || json_string(&v, &b) < 0)
                return -ENOENT;
        snprintf(ret, size, "%s", buf_str(&b));
        return 0;
}

static int json_line(struct slice line, struct sink *ret) {
        static const struct { const char *action; enum test_status status; } actions[] = {
                {"pass", TEST_PASSED}, {"fail", TEST_FAILED}, {"skip", TEST_SKIPPED}, {"run", TEST_MISSING},
        };
        struct json o;
        char action[16], package[1024] = "", test[4096], ids[2][5200];
        if (json_parse(line.p, line.n, &o, NULL) < 0 || text_of(&o, "Action", action, sizeof(action)) < 0)
                return 0;
        ret->structured = true;
        if (text_of(&o, "Test", test, sizeof(test)) < 0)
                return 0;
        text_of(&o, "Package", package, sizeof(package));
        snprintf(ids[0], sizeof(ids[0]), "%s %s", package, test);
        snprintf(ids[1], sizeof(ids[1]), "%s.%s", package, test);
        for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
                if (strcmp(action, actions[i].action) == 0)
                        return sink_put(ret, (const char *const[]){test, ids[0], ids[1], NULL}, actions[i].status);
        return 0;
}

static int parse(const char *text, struct sink *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                if (slice_starts(line, "{\"")) {
                        r = json_line(line, ret);
                        continue;
                }
                struct slice s = slice_trim(line);
                const char *mark = slice_find_last(s, "--- ");          /* behind what a test prints without a line's end */
                if (mark && s.n > 2 && memcmp(s.p + s.n - 2, "s)", 2) == 0)
                        s = slice_from(s, (size_t)(mark - s.p));
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

static bool detect(const char *text) {
        return (strstr(text, "=== RUN   ") && (strstr(text, "--- PASS: ") || strstr(text, "--- FAIL: "))) || strstr(text, "\"Action\":\"run\",\"Package\":\"");
}

const struct framework framework_go = {
        .name = "go", .words = (const char *const[]){"go test", "gotestsum", NULL}, .detect = detect, .parse = parse,
        .route = "go test -json", .options = "-json", .unless = (const char *const[]){"-json", "gotestsum", "-exec", "-c", NULL},
};
