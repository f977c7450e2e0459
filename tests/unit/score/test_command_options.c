#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/command.h"

/* `want` has "@" where the options are; NULL: the text stays. */
static void expect(const struct framework *f, const char *text, const char *want) {
        char *made = NULL;
        int r = command_with_options(text, f, &made);
        if (!want) {
                if (r != 0)
                        fail_msg("%s became %s", text, made);
                return;
        }
        assert_int_equal(r, 1);
        const char *at = strchr(want, '@');
        assert_memory_equal(made, want, (size_t)(at - want));
        assert_memory_equal(made + (at - want), f->options, strlen(f->options));
        assert_string_equal(made + (at - want) + strlen(f->options), at + 1);
        free(made);
}

static void options_stand_behind_the_words(void **state) {
        expect(&framework_go, "go test ./...", "go test @ ./...");
        expect(&framework_go, "cd sub && CGO_ENABLED=0 go  test -run 'A|B' ./... || exit 1", NULL);      /* a pipe, as far as we read */
        expect(&framework_go, "cd sub && CGO_ENABLED=0 go  test -v ./... 2>&1", "cd sub && CGO_ENABLED=0 go  test @ -v ./... 2>&1");
        expect(&framework_jest, "CI=1 npx --no-install jest a.js", "CI=1 npx --no-install jest @ a.js");
        expect(&framework_jest, "./node_modules/.bin/jest", "./node_modules/.bin/jest @");
        expect(&framework_vitest, "yarn vitest run\n", "yarn vitest run @\n");
        expect(&framework_django, "python3 manage.py test app", "python3 manage.py test @ app");
        expect(&framework_django, "./tests/runtests.py --parallel 1 a.B", "./tests/runtests.py @ --parallel 1 a.B");
        expect(&framework_ctest, "(cd build; ctest)", "(cd build; ctest @)");
}

static void commands_that_are_not_understood_stay(void **state) {
        expect(&framework_go, "echo 'run go test now'", NULL);
        expect(&framework_go, "echo go test", NULL);
        expect(&framework_go, "# go test", NULL);
        expect(&framework_go, "go test ./... | tee log", NULL);
        expect(&framework_go, "go test -json ./...", NULL);
        expect(&framework_go, "go test 'open", "go test @ 'open");
        expect(&framework_go, "sh <<X\ngo test\nX", NULL);
        expect(&framework_jest, "jest a; jest b", NULL);                /* one would write over the other's report */
        expect(&framework_jest, "npm run jest-ci", NULL);
        expect(&framework_mocha, "mocha --reporter dot", NULL);
        expect(&framework_pytest, "pytest", NULL);
}

static void each_command_is_told(void **state) {
        char *made;
        assert_int_equal(command_with_options("go test ./a && go test ./b", &framework_go, &made), 1);
        assert_string_equal(made, "go test -json ./a && go test -json ./b");
        free(made);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(options_stand_behind_the_words),
                cmocka_unit_test(commands_that_are_not_understood_stay),
                cmocka_unit_test(each_command_is_told),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
