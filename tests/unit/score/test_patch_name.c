#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/macros.h"
#include "score/patch_name.h"

static void every_spelling_of_dotgit_is_refused(void **state) {
        static const char *const bad[] = {
                ".git", ".git/config", "a/.git/hooks/x", ".GIT/x", ".Git", ".git ", ".git.", ".git . .", ".git/", "git~1", "GIT~1/x", ".git::$INDEX",
                ".g\xe2\x80\x8cit/x", "\xe2\x80\x8b.git", ".git\xef\xbb\xbf", ".gi\xe2\x81\xaat/x", "a\\.git\\x", ".git \xe2\x80\x8d",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (!name_refusal(bad[i]))
                        fail_msg("accepted: %s", bad[i]);
}

static void ordinary_names_are_accepted(void **state) {
        static const char *const good[] = {
                "a", "a/b/c.py", ".gitignore", ".gitattributes", ".github/workflows/x.yml", "git", "x.git", "a.git/x", "digit", "..a", "a..", "...", "a b/c d",
                "\xc3\xa9.py", "git~10", ".gitx", ". git", "ab:c", "tests/data/\xe2\x80\x9c.txt",
        };
        for (size_t i = 0; i < ARRAY_SIZE(good); i++)
                if (name_refusal(good[i]))
                        fail_msg("refused: %s: %s", good[i], name_refusal(good[i]));
}

static void escapes_and_caps_are_refused(void **state) {
        static const char *const bad[] = { "", "/etc/passwd", "..", "../x", "a/../b", "a/..", "a//b", "a/", "./a", "a/./b", "C:/x", "c:x", "a/\\..\\.git" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                if (!name_refusal(bad[i]))
                        fail_msg("accepted: %s", bad[i]);
        char deep[3 * 65 + 1], wide[300];
        for (size_t i = 0; i < 65; i++)
                memcpy(deep + 2 * i, "d/", 3);
        memcpy(deep + 130, "f", 2);
        assert_string_equal(name_refusal(deep), "it is more than 64 directories deep");
        assert_null(name_refusal(deep + 4));
        memset(wide, 'w', 256);
        wide[256] = 0;
        assert_non_null(name_refusal(wide));
        assert_null(name_refusal(wide + 1));
}

static void quoted_names_are_read(void **state) {
        char *name = NULL;
        size_t used;
        static const char in[] = "\"a/\\303\\251\\t\\\"x\" rest";
        assert_int_equal(name_read(in, sizeof in - 1, true, &name, &used), 0);
        assert_string_equal(name, "a/\xc3\xa9\t\"x");
        assert_string_equal(in + used, " rest");
        free(name);
}

static void broken_quoting_is_an_error(void **state) {
        char *name = NULL;
        size_t used;
        assert_int_equal(name_read("\"a/x", 4, true, &name, &used), -EBADMSG);
        assert_int_equal(name_read("\"a\\q\"", 5, true, &name, &used), -EBADMSG);
        assert_int_equal(name_read("\"a\\9\"", 5, true, &name, &used), -EBADMSG);
        assert_int_equal(name_read("\"a\\000\"", 7, true, &name, &used), -EPERM);
        assert_int_equal(name_read("a\0b", 3, true, &name, &used), -EPERM);
        assert_null(name);
}

static void time_stamps_do_not_belong_to_the_name(void **state) {
        static const char spaced[] = "a/my file.c 2024-01-02 03:04:05.000000000 +0100", plain[] = "a/2024-01-02.txt";
        assert_int_equal(name_without_timestamp(spaced, sizeof spaced - 1), 11);
        assert_int_equal(name_without_timestamp(plain, sizeof plain - 1), sizeof plain - 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_spelling_of_dotgit_is_refused),
                cmocka_unit_test(ordinary_names_are_accepted),
                cmocka_unit_test(escapes_and_caps_are_refused),
                cmocka_unit_test(quoted_names_are_read),
                cmocka_unit_test(broken_quoting_is_an_error),
                cmocka_unit_test(time_stamps_do_not_belong_to_the_name),
        };
        return cmocka_run_group_tests_name("score/patch_name", tests, NULL, NULL);
}
