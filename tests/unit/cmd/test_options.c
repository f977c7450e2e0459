#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "cmd/command.h"

struct target { char *text; char **many, **list; bool on, json; };

static const struct option_row rows[] = {
        { "--text", "T", OPTION_TEXT, offsetof(struct target, text), 0, COMPLETE_NONE, "" },
        { "--many", "M", OPTION_APPEND, offsetof(struct target, many), 0, COMPLETE_NONE, "" },
        { "--list", "L...", OPTION_LIST, offsetof(struct target, list), 0, COMPLETE_NONE, "" },
};
static const struct option_row common[] = {
        { "--on", NULL, OPTION_SWITCH, offsetof(struct target, on), 0, COMPLETE_NONE, "" },
        { "-o", "json|text", OPTION_OUTPUT, offsetof(struct target, json), 0, COMPLETE_NONE, "" },
};
static struct command verb = { .name = "verb", .options = rows, .n_options = ARRAY_SIZE(rows), .common = common, .n_common = ARRAY_SIZE(common) };

static struct target t;
static char *words[16], **arguments;
static int n;
static bool help;
static struct error e;

/* Words as a shell would give them, behind the verb's own. */
static int parse(const char *line) {
        static char copy[256];
        int argc = 0;
        snprintf(copy, sizeof copy, "verb %s", line);
        options_release(&verb, &t);
        t = (struct target){ 0 };
        for (char *at = copy, *w; (w = strsep(&at, " "));)
                if (*w)
                        words[argc++] = w;
        words[argc] = NULL;
        return options_parse(&verb, &t, argc, words, &arguments, &n, &help, &e);
}

static void options_and_arguments_may_be_mixed(void **state) {
        assert_int_equal(parse("a --text x b --on -o json c --many 1 --many=2"), 0);
        assert_int_equal(n, 3);
        assert_string_equal(arguments[0], "a");
        assert_string_equal(arguments[2], "c");
        assert_string_equal(t.text, "x");
        assert_true(t.on && t.json);
        assert_string_equal(t.many[1], "2");
        assert_null(t.many[2]);
}

static void a_list_goes_on_to_the_next_option(void **state) {
        assert_int_equal(parse("--list a b --on c"), 0);
        assert_string_equal(t.list[1], "b");
        assert_null(t.list[2]);
        assert_int_equal(n, 1);
}

static void two_dashes_end_the_options(void **state) {
        assert_int_equal(parse("--on -- --text --help"), 0);
        assert_int_equal(n, 2);
        assert_string_equal(arguments[0], "--text");
        assert_false(help);
}

static void a_foreign_command_line_is_left_alone(void **state) {
        verb.stops = true;
        assert_int_equal(parse("--on id ls --help -o x -- y"), 0);
        assert_true(t.on);
        assert_false(help);
        assert_int_equal(n, 7);
        assert_int_equal(parse("id -- ls --help"), 0);
        assert_int_equal(n, 3);
        assert_string_equal(arguments[2], "--help");
        assert_int_equal(parse("--on -- id ls -- x"), 0);
        assert_int_equal(n, 4);
        verb.stops = false;
}

static void faults_name_the_option(void **state) {
        static const struct { const char *line, *text; } faults[] = {
                { "--text", "--text wants T" }, { "--nothing", "--nothing" }, { "-x", "-x" }, { "--on=1", "--on takes no value" }, { "-o xml", "-o wants json or text" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
                assert_int_equal(parse(faults[i].line), -EINVAL);
                assert_non_null(strstr(e.text, faults[i].text));
        }
}

static void help_wins_and_a_lone_dash_is_an_argument(void **state) {
        assert_int_equal(parse("- --help --nothing"), 0);
        assert_true(help);
        assert_int_equal(parse("-"), 0);
        assert_int_equal(n, 1);
        options_release(&verb, &t);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(options_and_arguments_may_be_mixed), cmocka_unit_test(a_list_goes_on_to_the_next_option),
                cmocka_unit_test(two_dashes_end_the_options), cmocka_unit_test(a_foreign_command_line_is_left_alone),
                cmocka_unit_test(faults_name_the_option), cmocka_unit_test(help_wins_and_a_lone_dash_is_an_argument),
        };
        return cmocka_run_group_tests_name("cmd/options", tests, NULL, NULL);
}
