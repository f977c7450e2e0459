#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "build/expand.h"

static const char *lookup(const char *name, size_t n, void *user) {
        if (n == 1 && *name == 'a')
                return "A";
        if (n == 1 && *name == 'e')
                return "";
        if (n == 2 && memcmp(name, "sp", 2) == 0)
                return "x y";
        if (n == 3 && memcmp(name, "big", 3) == 0)
                return user;
        return NULL;
}

static void words_are_expanded(void **state) {
        static const struct { const char *word, *is; } cases[] = {
                { "", "" }, { "plain", "plain" }, { "$a", "A" }, { "${a}b", "Ab" }, { "$ab", "" }, { "x$a.y", "xA.y" }, { "$sp", "x y" },
                { "${u:-d}", "d" }, { "${e:-d}", "d" }, { "${e-d}", "" }, { "${u-d}", "d" }, { "${a:-d}", "A" },
                { "${a:+d}", "d" }, { "${e:+d}", "" }, { "${e+d}", "d" }, { "${u+d}", "" },
                { "${u:-${a}}", "A" }, { "${u:-${u:-$a}x}", "Ax" }, { "${u:-}", "" }, { "${a:?no}", "A" },
                { "'$a'", "$a" }, { "\"$a\"", "A" }, { "\"'$a'\"", "'A'" }, { "'\"'", "\"" }, { "a\\ b", "a b" }, { "\\$a", "$a" }, { "\"\\$a\"", "$a" },
                { "\"\\x\"", "\\x" }, { "\\x", "x" }, { "\\\\", "\\" }, { "$", "$" }, { "$1", "$1" }, { "a$", "a$" }, { "${u:-'}'}", "}" }, { "\"a\"b'c'", "abc" }, { "a\\", "a\\" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct buf b = BUF_INIT(EXPAND_BYTES_MAX + 1);
                struct error e = { 0 };
                if (expand_word(cases[i].word, '\\', true, lookup, NULL, &b, &e) < 0)
                        fail_msg("%s: %s", cases[i].word, e.text);
                if (strcmp(buf_str(&b), cases[i].is) != 0)
                        fail_msg("%s becomes %s, not %s", cases[i].word, buf_str(&b), cases[i].is);
                buf_release(&b);
        }
}

static void quotes_are_ordinary_in_a_here_document(void **state) {
        struct buf b = BUF_INIT(EXPAND_BYTES_MAX);
        assert_int_equal(expand_word("say '$a' \"$a\" \\$a \\n", '\\', false, lookup, NULL, &b, NULL), 0);
        assert_string_equal(buf_str(&b), "say 'A' \"A\" $a \\n");
        buf_release(&b);
}

static void what_makes_no_sense_is_refused(void **state) {
        static const char *const bad[] = { "${", "${}", "${a", "${a:", "${a:-", "${a:=x}", "${a#x}", "${a/x/y}", "'a", "\"a", "${u:?must}", "${1}", "${a b}",
                "${u:-${u:-${u:-${u:-${u:-${u:-${u:-${u:-${u:-${u:-x}}}}}}}}}}" };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct buf b = BUF_INIT(EXPAND_BYTES_MAX);
                struct error e = { 0 };
                if (expand_word(bad[i], '\\', true, lookup, NULL, &b, &e) != -EINVAL || !e.text[0])
                        fail_msg("accepted: %s", bad[i]);
                buf_release(&b);
        }
}

static void a_word_does_not_grow_without_end(void **state) {
        char *big = calloc(1, EXPAND_BYTES_MAX / 2 + 1);
        struct buf b = BUF_INIT(EXPAND_BYTES_MAX * 2);
        memset(big, 'x', EXPAND_BYTES_MAX / 2);
        assert_int_equal(expand_word("$big$big", '\\', true, lookup, big, &b, NULL), 0);
        assert_int_equal(b.len, EXPAND_BYTES_MAX);
        buf_reset(&b);
        assert_int_equal(expand_word("$big$big$a", '\\', true, lookup, big, &b, NULL), -E2BIG);
        buf_release(&b);
        free(big);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(words_are_expanded),
                cmocka_unit_test(quotes_are_ordinary_in_a_here_document),
                cmocka_unit_test(what_makes_no_sense_is_refused),
                cmocka_unit_test(a_word_does_not_grow_without_end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
