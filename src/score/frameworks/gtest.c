/* GoogleTest: its XML, one file for each program that runs. Text: "[       OK ] Suite.Name (0 ms)", "[  FAILED  ] Suite.Name, where
 * GetParam() = 3 (0 ms)", "[  SKIPPED ] Suite.Name"; a test that began and did not end is an error. */
#include <stdio.h>

#include "score/frameworks/junit.h"
#include "score/text.h"

static int put(struct sink *s, const struct junit_case *c) {
        char id[2 * SINK_NAME_MAX + 2];
        snprintf(id, sizeof(id), "%s.%s", c->class, c->name);
        return sink_put(s, (const char *const[]){id, c->name, NULL}, c->status);
}

static int report(const char *p, size_t n, struct sink *ret) { return junit_read(p, n, put, ret); }

static int parse(const char *text, struct sink *ret) {
        static const struct { const char *text; enum test_status status; } all[] = {
                {"[       OK ] ", TEST_PASSED}, {"[  FAILED  ] ", TEST_FAILED}, {"[  SKIPPED ] ", TEST_SKIPPED},
        };
        struct slice line, began = {0};
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                /* What a test prints without a line's end stands before the mark. */
                for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++) {
                        const char *at = slice_find(line, all[i].text), *end;
                        if (!at)
                                continue;
                        struct slice id = slice_from(line, (size_t)(at - line.p) + strlen(all[i].text));
                        if ((end = slice_find(id, ", where ")) || (end = slice_find_last(id, " (")))
                                id.n = (size_t)(end - id.p);
                        if (slice_find(id, ".") && !slice_find(id, " "))
                                r = text_put(ret, id, all[i].status);
                        began.n = 0;
                }
                if (slice_starts(line, "[ RUN      ] ")) {
                        if (began.n && r == 0)
                                r = text_put(ret, began, TEST_ERROR);
                        began = slice_from(line, strlen("[ RUN      ] "));
                }
        }
        return r == 0 && began.n ? text_put(ret, began, TEST_ERROR) : r;
}

static bool detect(const char *text) { return strstr(text, "[==========] Running ") != NULL; }

const struct framework framework_gtest = {
        .name = "gtest", .words = (const char *const[]){"gtest", "gtest-parallel", NULL}, .detect = detect, .parse = parse,
        .route = "GTEST_OUTPUT=xml", .variable = "GTEST_OUTPUT", .value = "xml:" FRAMEWORK_REPORTS, .variable_alone = true,
        .collect = "cat " FRAMEWORK_REPORTS "*.xml >" FRAMEWORK_REPORT, .report = report,
};
