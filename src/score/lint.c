#include "score/lint.h"

#include <ctype.h>
#include <sys/wait.h>

#include "score/text.h"

/* The number that ends right before `at`, going back over blanks; -1 when there is none. */
static int number_before(const char *text, const char *at) {
        while (at > text && at[-1] == ' ')
                at--;
        const char *end = at;
        while (at > text && isdigit((unsigned char)at[-1]) && end - at < 9)
                at--;
        return at == end ? -1 : (int)strtol(at, NULL, 10);
}

/* The number before the last `mark`, or -1. */
static int last_number(const char *text, const char *mark) {
        const char *at = slice_find_last((struct slice){text, strlen(text)}, mark);
        return at ? number_before(text, at) : -1;
}

/* The sum of the numbers before every `mark`; -1 when there is none. */
static int sum_numbers(const char *text, const char *mark) {
        int sum = -1;
        for (const char *at = text; (at = strstr(at, mark)); at += strlen(mark)) {
                int n = number_before(text, at);
                if (n >= 0)
                        sum = (sum < 0 ? 0 : sum) + n;
        }
        return sum;
}

/* "file:12: what" or "file:12:3: what" */
static bool is_location(struct slice line) {
        const char *colon = memchr(line.p, ':', line.n);
        if (!colon || colon == line.p || isspace((unsigned char)line.p[0]))
                return false;
        size_t i = (size_t)(colon - line.p) + 1, digits = 0;
        while (i + digits < line.n && isdigit((unsigned char)line.p[i + digits]))
                digits++;
        return digits > 0 && i + digits < line.n && line.p[i + digits] == ':';
}

/* Lines that name a place, and hold `mark` if there is one. */
static int count_lines(const char *text, const char *mark) {
        struct slice line;
        int n = 0;
        while (text_line(&text, &line))
                n += is_location(line) && (!mark || slice_find(line, mark));
        return n;
}

/* Does the command hold this word? "clang-tidy-14" and "./node_modules/.bin/eslint" do, "scruffy" does not. */
static bool names(const char *command, const char *word) {
        for (const char *at = command; (at = strstr(at, word)); at++) {
                unsigned char before = at > command ? (unsigned char)at[-1] : ' ', after = (unsigned char)at[strlen(word)];
                if (!isalnum(before) && before != '_' && !isalnum(after) && after != '_')
                        return true;
        }
        return false;
}

static bool is_known(const char *command) {
        static const char *const known[] = { "ruff", "flake8", "mypy", "pylint", "clippy", "eslint", "go vet", "clang-tidy", "cppcheck", "dotnet" };
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                if (names(command, known[i]))
                        return true;
        return false;
}

int lint_count(const char *command, int status, const char *text) {
        int n = -1;
        if (!is_known(command) || !WIFEXITED(status) || WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127)
                return -1;
        if (names(command, "ruff") || names(command, "mypy")) {
                n = last_number(text, " error");
                if (n < 0 && (strstr(text, "All checks passed") || strstr(text, "Success:")))
                        n = 0;
        } else if (names(command, "eslint")) {
                const char *total = strstr(text, " problem");
                const char *errors = total ? strstr(total, " error") : NULL;
                n = errors ? number_before(text, errors) : 0;
        } else if (names(command, "dotnet")) {
                n = last_number(text, " Error(s)");
        } else if (names(command, "clippy")) {
                int errors = sum_numbers(text, " previous error"), warnings = sum_numbers(text, " warning");
                n = (errors < 0 ? 0 : errors) + (warnings < 0 ? 0 : warnings);
        } else if (names(command, "clang-tidy")) {
                n = count_lines(text, ": error: ") + count_lines(text, ": warning: ");
        } else if (names(command, "cppcheck")) {
                n = count_lines(text, "error");
        }
        return n >= 0 ? n : count_lines(text, NULL);
}
