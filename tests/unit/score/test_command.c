#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/command.h"

/* Words joined by '|', redirections after them as "<fd><op><target>"; NULL when it is shell syntax. */
static char *split(const char *text) {
        static char out[512];
        static const char *const ops[] = {"<", ">", ">>", ">&"};
        struct redirect redirects[COMMAND_REDIRECTS_MAX];
        char **words;
        size_t n, at = 0;
        if (command_split(text, &words, redirects, &n) != 0)
                return NULL;
        out[0] = 0;
        for (size_t i = 0; words[i]; i++)
                at += (size_t)snprintf(out + at, sizeof(out) - at, "%s%s", i ? "|" : "", words[i]);
        for (size_t i = 0; i < n; i++) {
                at += (size_t)snprintf(out + at, sizeof(out) - at, " %d%s%s", redirects[i].fd, ops[redirects[i].op], redirects[i].target);
                free(redirects[i].target);
        }
        strv_free(words);
        return out;
}

static void words_are_split_as_a_shell_does(void **state) {
        static const struct { const char *text, *words; } table[] = {
                {"pytest", "pytest"},
                {"  pytest \t -q  \n", "pytest|-q"},
                {"a 'b c' d", "a|b c|d"},
                {"a \"b 'c'\" ''", "a|b 'c'|"},
                {"a b\\ c 'it'\\''s'", "a|b c|it's"},
                {"a \"q\\\"q\\\\ \\n\"", "a|q\"q\\ \\n"},
                {"a \\\n b", "a|b"},
                {"a tests/t.py::x[1-2]", "a|tests/t.py::x[1-2]"},
                {"a 't.py::x[$HOME `id` * ; &]'", "a|t.py::x[$HOME `id` * ; &]"},
                {"a x=1 b~ c#d", "a|x=1|b~|c#d"},
                {"a 2>&1", "a 2>&1"},
                {"a 2>&1 >/dev/null b", "a|b 2>&1 1>/dev/null"},
                {"a >> 'my log' <in 2>| e", "a 1>>my log 0<in 2>e"},
                {"a b2>c", "a|b2 1>c"},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                char *got = split(table[i].text);
                assert_non_null(got);
                assert_string_equal(got, table[i].words);
        }
}

static void shell_syntax_is_left_to_the_shell(void **state) {
        static const char *const table[] = {
                "", "a | b", "a; b", "a && b", "a &", "a $X", "a \"$X\"", "a `b`", "a \"`b`\"", "a *.py", "a t?.py", "a [ab]", "X=1 a", "a\nb", "(a)",
                "a 'b", "a \"b", "a \\", "a ~/x", "a # c", "a <<E", "a <>f", "a 3>f", "a >", "a >&f", "a 2>&", "! a",
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                assert_null(split(table[i]));
}

static void redirections_have_a_limit(void **state) {
        assert_non_null(split("a >1 >2 >3 >4 >5 >6 >7 >8"));
        assert_null(split("a >1 >2 >3 >4 >5 >6 >7 >8 >9"));
}

static int parse(const char *text, char *framework, char **ids, struct command *ret) {
        struct score_request q = {.test_command = (char *)(uintptr_t)text, .test_framework = framework, .fail_to_pass = ids};
        struct error e;
        return command_parse(&q, ret, &e);
}

static void runners_under_our_launcher_are_recognised(void **state) {
        static const struct { const char *text, *framework; size_t at; bool console; } table[] = {
                {"python3 -m pytest -p no:cacheprovider -q 'tests/test_a.py::test_x[a b]' tests/test_a.py::test_y 2>&1", "pytest", 2, false},
                {"pytest", "pytest", 0, true},
                {"py.test -x", "pytest", 0, true},
                {"/usr/bin/python3.11 -B -W error -Xdev -m pytest", "pytest", 6, false},
                {"python -mpytest a", "pytest", 1, false},
                {"python -m unittest -v a.b.C", "unittest", 2, false},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                struct command c;
                assert_int_equal(parse(table[i].text, (char[]){""}, NULL, &c), 0);
                assert_int_equal(c.kind, COMMAND_LAUNCHED);
                assert_string_equal(c.framework->name, table[i].framework);
                assert_int_equal(c.runner_at, table[i].at);
                assert_int_equal(c.console, table[i].console);
                command_release(&c);
        }
}

static void everything_else_is_verbatim_with_the_framework_it_names(void **state) {
        static const struct { const char *text, *framework; } table[] = {
                {"cd /testbed && pytest -q", "pytest"},
                {"PYTHONPATH=. python -m pytest", "pytest"},
                {"python2 -m pytest", "pytest"},
                {"python -S -m pytest", "pytest"},
                {"python -m nose", NULL},
                {"python tests/runtests.py", "django"},
                {"go test ./...", "go"},
                {"cargo build 2>&1", NULL},
                {"cargo test", "cargo"},
                {"./mypytest", NULL},
                {"bats t", "tap"},
        };
        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                struct command c;
                assert_int_equal(parse(table[i].text, (char[]){""}, NULL, &c), 0);
                assert_int_equal(c.kind, COMMAND_VERBATIM);
                assert_null(c.argv);
                assert_string_equal(c.text, table[i].text);
                if (table[i].framework)
                        assert_string_equal(c.framework->name, table[i].framework);
                else
                        assert_null(c.framework);
                command_release(&c);
        }
}

static void without_a_command_one_is_built_from_framework_or_ids(void **state) {
        struct command c;
        assert_int_equal(parse(" \n", (char[]){"unittest"}, NULL, &c), 0);
        assert_int_equal(c.kind, COMMAND_BUILT);
        assert_string_equal(c.argv[c.runner_at], "unittest");
        command_release(&c);
        assert_int_equal(parse("", (char[]){""}, (char *[]){(char[]){"tests/a.py::t"}, NULL}, &c), 0);
        assert_string_equal(c.framework->name, "pytest");
        command_release(&c);
        assert_int_equal(parse("", (char[]){""}, (char *[]){(char[]){"test_x (a.b.C)"}, NULL}, &c), 0);
        assert_string_equal(c.framework->name, "unittest");
        command_release(&c);
}

static void nothing_to_go_by_is_refused(void **state) {
        struct command c;
        assert_int_equal(parse("", (char[]){""}, NULL, &c), -EINVAL);
        assert_int_equal(parse("", (char[]){"go"}, NULL, &c), -EINVAL);
        assert_int_equal(parse("", (char[]){"nope"}, NULL, &c), -EINVAL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(words_are_split_as_a_shell_does),
                cmocka_unit_test(shell_syntax_is_left_to_the_shell),
                cmocka_unit_test(redirections_have_a_limit),
                cmocka_unit_test(runners_under_our_launcher_are_recognised),
                cmocka_unit_test(everything_else_is_verbatim_with_the_framework_it_names),
                cmocka_unit_test(without_a_command_one_is_built_from_framework_or_ids),
                cmocka_unit_test(nothing_to_go_by_is_refused),
        };
        return cmocka_run_group_tests_name("score/command", tests, NULL, NULL);
}
