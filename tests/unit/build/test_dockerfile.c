#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/strv.h"
#include "build/dockerfile.h"

static int parse(const char *text, struct dockerfile *d, struct error *e) { return dockerfile_parse(text, strlen(text), d, e); }

static struct dockerfile parsed(const char *text) {
        struct dockerfile d;
        struct error e = { 0 };
        if (parse(text, &d, &e) < 0)
                fail_msg("%s", e.text);
        return d;
}

static void instructions_have_lines_and_words(void **state) {
        struct dockerfile d = parsed("# comment\n\nfrom alpine AS a\n  RUN echo \"a b\" 'c d' e\\ f\nCOPY --from=a --chown=u:g x y/\n");
        assert_int_equal(d.n, 3);
        assert_int_equal(d.instructions[0].kind, INSTRUCTION_FROM);
        assert_int_equal(d.instructions[0].line, 3);
        assert_string_equal(d.instructions[0].words[2], "a");
        assert_int_equal(d.instructions[1].line, 4);
        assert_string_equal(d.instructions[1].rest, "echo \"a b\" 'c d' e\\ f");
        assert_int_equal(strv_len((const char *const *)d.instructions[1].words), 4);
        assert_string_equal(d.instructions[1].words[1], "\"a b\"");
        assert_string_equal(d.instructions[1].words[3], "e\\ f");
        assert_string_equal(instruction_flag(&d.instructions[2], "from"), "a");
        assert_string_equal(instruction_flag(&d.instructions[2], "chown"), "u:g");
        assert_null(instruction_flag(&d.instructions[2], "chmod"));
        assert_string_equal(d.instructions[2].words[1], "y/");
        dockerfile_release(&d);
}

static void lines_are_continued_over_comments_and_blank_lines(void **state) {
        struct dockerfile d = parsed("FROM a\nRUN one \\  \n  # not this\n\n  && two \\\n&& three\nCMD x");
        assert_string_equal(d.instructions[1].rest, "one   && two && three");
        assert_int_equal(d.instructions[2].line, 7);
        dockerfile_release(&d);
}

static void the_escape_character_can_be_chosen(void **state) {
        struct dockerfile d = parsed("# syntax=x/y:1\n# escape=`\nFROM a\nRUN dir C:\\ `\n more\n");
        assert_int_equal(d.escape, '`');
        assert_string_equal(d.instructions[1].rest, "dir C:\\  more");
        dockerfile_release(&d);
        d = parsed("# a comment\n# escape=`\nFROM a\nRUN x \\\ny");
        assert_int_equal(d.escape, '\\');
        assert_string_equal(d.instructions[1].rest, "x y");
        dockerfile_release(&d);
}

static void the_json_form_is_decoded(void **state) {
        struct dockerfile d = parsed("FROM a\nRUN [\"a\", \"b \\\"c\\\"\"]\nRUN [ not json ]\nCMD []\nENTRYPOINT [\"x\", 1]\n");
        assert_true(d.instructions[1].json);
        assert_string_equal(d.instructions[1].words[1], "b \"c\"");
        assert_false(d.instructions[2].json);
        assert_string_equal(d.instructions[2].rest, "[ not json ]");
        assert_true(d.instructions[3].json);
        assert_null(d.instructions[3].words[0]);
        assert_false(d.instructions[4].json);
        dockerfile_release(&d);
}

static void here_documents_are_taken(void **state) {
        struct dockerfile d = parsed("FROM a\nRUN <<EOF\nline $x\n  EOF\nEOF\nCOPY <<-'one' <<two /d/\n\ta\n\tone\nb\ntwo\nRUN cat <<<x | x=$((1<<2))\nCMD x\n");
        assert_int_equal(d.n, 5);
        assert_int_equal(d.instructions[1].n_heredocs, 1);
        assert_string_equal(d.instructions[1].heredocs[0].text, "line $x\n  EOF\n");
        assert_true(d.instructions[1].heredocs[0].expand);
        assert_int_equal(d.instructions[2].n_heredocs, 2);
        assert_string_equal(d.instructions[2].heredocs[0].name, "one");
        assert_string_equal(d.instructions[2].heredocs[0].text, "a\n");
        assert_false(d.instructions[2].heredocs[0].expand);
        assert_string_equal(d.instructions[2].heredocs[1].text, "b\n");
        assert_int_equal(d.instructions[3].n_heredocs, 0);
        assert_int_equal(d.instructions[4].line, 12);
        dockerfile_release(&d);
}

static void carriage_returns_do_not_count(void **state) {
        struct dockerfile d = parsed("\xef\xbb\xbf# escape=`\r\nFROM a\r\nRUN a `\r\n b\r\n");
        assert_string_equal(d.instructions[1].rest, "a  b");
        dockerfile_release(&d);
}

static void what_is_not_supported_is_named_with_its_line(void **state) {
        static const struct { const char *text, *says; } cases[] = {
                { "", "no FROM" },
                { "# nothing", "no FROM" },
                { "ARG x\n", "no FROM" },
                { "RUN x", "line 1: RUN before the first FROM" },
                { "FROM a\nFOO x", "line 2: unknown instruction: FOO" },
                { "FROM a\n\n\nONBUILD RUN x", "line 4: ONBUILD" },
                { "FROM a\nHEALTHCHECK --interval=3s CMD x", "line 2: HEALTHCHECK" },
                { "FROM a\nHEALTHCHECK CMD", "line 2: HEALTHCHECK" },
                { "FROM a\nRUN --mount=type=cache,target=/x y", "line 2: RUN --mount is not supported" },
                { "FROM a\nRUN --security=insecure y", "line 2: RUN --security" },
                { "FROM a\nRUN --network=host y", "--network=host" },
                { "FROM a\nADD https://x.example/y /z", "line 2: ADD of an address" },
                { "FROM a\nADD git@x.example:y /z", "line 2: ADD of an address" },
                { "FROM a\nCOPY --exclude=x a b", "COPY --exclude" },
                { "FROM a\nCOPY x", "source and a destination" },
                { "FROM a\nRUN", "RUN needs an argument" },
                { "FROM a\nRUN \\\n", "RUN needs an argument" },
                { "FROM", "FROM needs an argument" },
                { "FROM a b", "FROM is written" },
                { "FROM a b c", "FROM is written" },
                { "FROM a b c d", "FROM" },
                { "FROM a\nUSER a b", "at most 1" },
                { "FROM a\nSHELL /bin/sh -c", "SHELL takes a JSON list" },
                { "FROM a\nRUN <<EOF\nx\n", "line 2: the here-document EOF does not end" },
                { "# escape=x\nFROM a", "line 1: escape" },
                { "# escape=`\n# escape=\\\nFROM a", "line 2: escape" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct dockerfile d;
                struct error e = { 0 };
                if (parse(cases[i].text, &d, &e) != -EINVAL)
                        fail_msg("accepted: %s", cases[i].text);
                if (memcmp(e.text, "dockerfile", 10) != 0 || !strstr(e.text, cases[i].says))
                        fail_msg("%s: %s", cases[i].text, e.text);
        }
}

static char *repeated(const char *head, const char *text, size_t n) {
        struct buf b = BUF_INIT(DOCKERFILE_BYTES_MAX * 3);
        assert_int_equal(buf_adds(&b, head), 0);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(buf_adds(&b, text), 0);
        return buf_steal(&b);
}

static void there_are_limits(void **state) {
        static const struct { const char *head, *more; size_t most; } cases[] = {
                { "FROM a\n", "CMD x\n", DOCKERFILE_INSTRUCTIONS_MAX - 1 },
                { "FROM a\nENV ", "x=y ", DOCKERFILE_WORDS_MAX },
        };
        struct dockerfile d;
        struct error e;
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char *good = repeated(cases[i].head, cases[i].more, cases[i].most), *bad = repeated(cases[i].head, cases[i].more, cases[i].most + 1);
                assert_int_equal(parse(good, &d, &e), 0);
                dockerfile_release(&d);
                assert_int_equal(parse(bad, &d, &e), -E2BIG);
                assert_non_null(strstr(e.text, "line"));
                free(good);
                free(bad);
        }
        char *stages = repeated("", "FROM a\n", DOCKERFILE_STAGES_MAX + 1), *heredocs = repeated("FROM a\nRUN ", "<<x ", DOCKERFILE_HEREDOCS_MAX + 1);
        char *ends = repeated("\n", "x\n", DOCKERFILE_HEREDOCS_MAX + 1), *both = NULL;
        assert_true(asprintf(&both, "%s%s", heredocs, ends) > 0);
        assert_int_equal(parse(stages, &d, &e), -EINVAL);
        assert_int_equal(parse(both, &d, &e), -EINVAL);
        assert_non_null(strstr(e.text, "here-documents"));
        char *big = repeated("FROM a\nRUN ", "x", DOCKERFILE_BYTES_MAX);
        assert_int_equal(parse(big, &d, &e), -E2BIG);
        assert_int_equal(dockerfile_parse("FROM a\0b", 8, &d, &e), -EINVAL);
        free(stages);
        free(heredocs);
        free(ends);
        free(both);
        free(big);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(instructions_have_lines_and_words),
                cmocka_unit_test(lines_are_continued_over_comments_and_blank_lines),
                cmocka_unit_test(the_escape_character_can_be_chosen),
                cmocka_unit_test(the_json_form_is_decoded),
                cmocka_unit_test(here_documents_are_taken),
                cmocka_unit_test(carriage_returns_do_not_count),
                cmocka_unit_test(what_is_not_supported_is_named_with_its_line),
                cmocka_unit_test(there_are_limits),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
