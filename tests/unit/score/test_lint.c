#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/lint.h"

static void each_linters_own_count_is_taken(void **state) {
        static const struct { const char *command, *text; int n; } table[] = {
                {"ruff check .", "a.py:1:1: F401 unused\nFound 3 errors.\n[*] 1 fixable\n", 3},
                {"ruff check .", "All checks passed!\n", 0},
                {"mypy src", "a.py:1: error: x\nFound 2 errors in 1 file (checked 4 source files)\n", 2},
                {"mypy src", "Success: no issues found in 4 source files\n", 0},
                {"flake8", "a.py:1:1: E501 long\nb.py:2:3: W291 blank\n", 2},
                {"flake8", "", 0},
                {"pylint x", "************* Module x\nx.py:1:0: C0114: Missing (y)\n\nYour code has been rated at 9/10\n", 1},
                {"npx eslint .", "\n/a.js\n  1:1  error  x\n\n\xe2\x9c\x96 3 problems (2 errors, 1 warning)\n  1 error and 0 warnings potentially fixable\n", 2},
                {"npx eslint .", "", 0},
                {"cargo clippy", "warning: `x` (lib) generated 3 warnings\nerror: could not compile `x` due to 2 previous errors\n", 5},
                {"go vet ./...", "# pkg\n./a.go:3:2: unreachable code\n", 1},
                {"clang-tidy a.c", "a.c:1:2: warning: x\na.c:3:4: error: y\na.c:1:2: note: z\n", 2},
                {"cppcheck .", "a.c:1:2: error: Null pointer [x]\na.c:2:1: style: y\n", 1},
                {"dotnet build", "    1 Warning(s)\n    4 Error(s)\n", 4},
                {"/opt/v/bin/flake8 --max-line-length 100", "one:1: a\nnot this\ntwo:22:3: b\n", 2},
                {"clang-tidy-14 a.c", "", 0},
        };
        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                if (lint_count(table[i].command, 1 << 8, table[i].text) != table[i].n)
                        fail_msg("row %zu: %d", i, lint_count(table[i].command, 1 << 8, table[i].text));
}

static void of_a_linter_that_is_not_known_there_is_no_count(void **state) {
        static const char *const commands[] = {"./lint.sh", "true", "scruffy check", "python3 -m my_pylint", "gofmt -l .", ""};
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
                assert_int_equal(lint_count(commands[i], 0, "a.py:1:1: E1 x\n"), -1);
}

static void of_a_linter_that_did_not_run_to_its_end_there_is_no_count(void **state) {
        assert_int_equal(lint_count("flake8", 127 << 8, "sh: 1: flake8: not found\n"), -1);
        assert_int_equal(lint_count("flake8", 126 << 8, ""), -1);
        assert_int_equal(lint_count("flake8", 9, "a.py:1:1: E1 x\n"), -1);
        assert_int_equal(lint_count("flake8", 0, ""), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_linters_own_count_is_taken),
                cmocka_unit_test(of_a_linter_that_is_not_known_there_is_no_count),
                cmocka_unit_test(of_a_linter_that_did_not_run_to_its_end_there_is_no_count),
        };
        return cmocka_run_group_tests_name("score/lint", tests, NULL, NULL);
}
