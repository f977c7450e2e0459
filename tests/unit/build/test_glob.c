#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "build/glob.h"

static bool matches(const char *pattern, const char *path, bool above) {
        struct glob *g;
        if (glob_new(pattern, &g) < 0)
                fail_msg("not a pattern: %s", pattern);
        bool r = glob_matches(g, path, above);
        glob_free(g);
        return r;
}

static void patterns_match_whole_paths(void **state) {
        static const struct { const char *pattern, *path; bool yes; } cases[] = {
                { "a", "a", true }, { "a", "b", false }, { "a", "ab", false }, { "a", "a/b", false }, { "", "", true }, { "", "a", false },
                { "*", "abc", true }, { "*", "", true }, { "*", "a/b", false }, { "*.c", "x.c", true }, { "*.c", ".c", true }, { "*.c", "x.cc", false }, { "a*b*c", "axxbyyc", true },
                { "a*b*c", "axxbyy", false }, { "?", "a", true }, { "?", "/", false }, { "?", "", false }, { "a?c", "abc", true },
                { "[a-c]x", "bx", true }, { "[a-c]x", "dx", false }, { "[^a]", "b", true }, { "[^a]", "a", false }, { "[^a]", "/", false }, { "[]]", "]", true }, { "[a\\]]", "]", true }, { "[a-]", "-", true },
                { "\\*", "*", true }, { "\\*", "a", false }, { "a\\?b", "a?b", true },
                { "a/*/c", "a/b/c", true }, { "a/*/c", "a/b/b/c", false },
                { "**/c", "c", true }, { "**/c", "a/c", true }, { "**/c", "a/b/c", true }, { "**/c", "xc", false }, { "**/c", "a/xc", false }, { "a/**", "a/b", true }, { "a/**", "a/b/c", true },
                { "a/**", "a", false }, { "a/**/b", "a/b", true }, { "a/**/b", "a/x/y/b", true }, { "a/**/b", "a/xb", false }, { "**", "a/b", true }, { "**.pyc", "a/b.pyc", true }, { "a**b", "ax/yb", true },
                { "**/*.go", "a/b/c.go", true }, { "**/*.go", "c.go", true }, { "**/**/a", "a", true }, { "**/**/a", "x/y/z/a", true },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                if (matches(cases[i].pattern, cases[i].path, false) != cases[i].yes)
                        fail_msg("%s and %s", cases[i].pattern, cases[i].path);
}

static void a_directory_above_counts_where_asked(void **state) {
        assert_true(matches("a", "a/b/c", true));
        assert_true(matches("a/b", "a/b/c", true));
        assert_false(matches("b", "a/b/c", true));
        assert_true(matches("**/b", "a/b/c", true));
        assert_false(matches("a", "ab/c", true));
        assert_false(matches("a", "a/b", false));
}

static void what_is_no_pattern_is_refused(void **state) {
        char *big = calloc(1, GLOB_TOKENS_MAX + 2);
        struct glob *g;
        assert_int_equal(glob_new("[a", &g), -EINVAL);
        assert_int_equal(glob_new("[", &g), -EINVAL);
        memset(big, 'a', GLOB_TOKENS_MAX + 1);
        assert_int_equal(glob_new(big, &g), -E2BIG);
        free(big);
        assert_true(glob_is_plain("a/b.c"));
        assert_false(glob_is_plain("a\\b"));
}

static void time_does_not_explode(void **state) {
        char pattern[400] = "", path[4000];
        for (size_t i = 0; i < 60; i++)
                memcpy(pattern + i * 6, "a*/**/", 7);
        memset(path, 'a', sizeof path);
        for (size_t i = 3; i < sizeof path; i += 4)
                path[i] = '/';
        path[sizeof path - 1] = 0;
        clock_t began = clock();       /* of this process: what others take does not count */
        matches(pattern, path, true);
        assert_true(clock() - began < CLOCKS_PER_SEC);
}

static struct ignore *ignore(const char *text) {
        struct ignore *i;
        struct error e = { 0 };
        if (ignore_parse(text, strlen(text), &i, &e) < 0)
                fail_msg("%s", e.text);
        return i;
}

static void the_last_line_that_matches_decides(void **state) {
        struct ignore *i = ignore("# comment\n\n  *.log \r\n!keep.log\n/build/\n./a//b\nsecret*\n!secret.txt\nsecret.txt\n#x\n*.md\n!README*.md\n");
        static const struct { const char *path; bool yes; } cases[] = {
                { "x.log", true }, { "keep.log", false }, { "d/x.log", false }, { "build", true }, { "build/x", true }, { "d/build", false }, { "a/b", true }, { "a/b/c", true }, { "a", false },
                { "secret.txt", true }, { "x.md", true }, { "README-1.md", false }, { "#x", false }, { "y", false },
        };
        for (size_t k = 0; k < ARRAY_SIZE(cases); k++)
                if (ignore_matches(i, cases[k].path) != cases[k].yes)
                        fail_msg("%s", cases[k].path);
        assert_true(ignore_takes_back(i));
        ignore_free(i);
        i = ignore("node_modules\n**/.git\n");
        assert_true(ignore_matches(i, "x/y/.git/config"));
        assert_false(ignore_takes_back(i));
        ignore_free(i);
        i = ignore("*\n!src\n!src/**\n");
        assert_true(ignore_matches(i, "x"));
        assert_false(ignore_matches(i, "src/a"));
        ignore_free(i);
}

static void a_bad_line_is_named(void **state) {
        struct ignore *i;
        struct error e = { 0 };
        assert_int_equal(ignore_parse("a\n[b\n", 5, &i, &e), -EINVAL);
        assert_non_null(strstr(e.text, ".dockerignore line 2"));
        assert_int_equal(ignore_parse("a\0b", 3, &i, &e), -EINVAL);
        struct buf many = BUF_INIT(1 << 20);
        for (size_t k = 0; k <= IGNORE_PATTERNS_MAX; k++)
                assert_int_equal(buf_adds(&many, "a\n"), 0);
        assert_int_equal(ignore_parse(many.data, many.len, &i, &e), -E2BIG);
        buf_release(&many);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(patterns_match_whole_paths),
                cmocka_unit_test(a_directory_above_counts_where_asked),
                cmocka_unit_test(what_is_no_pattern_is_refused),
                cmocka_unit_test(time_does_not_explode),
                cmocka_unit_test(the_last_line_that_matches_decides),
                cmocka_unit_test(a_bad_line_is_named),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
