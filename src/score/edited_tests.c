#include "score/edited_tests.h"

#include <string.h>

#include "base/strv.h"
#include "score/patch.h"

/* ---- what the command runs by name ------------------------------------------------------------------------------- */

/* A program, and the file that tells it what to run and what counts. */
static const struct { const char *program, *file; } drivers[] = {
        {"make", "Makefile"}, {"make", "makefile"}, {"make", "GNUmakefile"}, {"cargo", "build.rs"}, {"cargo", ".cargo/config.toml"}, {"cargo", ".cargo/config"},
        {"cmake", "CMakeLists.txt"}, {"ctest", "CMakeLists.txt"}, {"mvn", "pom.xml"}, {"mvnw", "pom.xml"}, {"gradle", "build.gradle"}, {"gradlew", "build.gradle"},
        {"gradle", "build.gradle.kts"}, {"gradlew", "build.gradle.kts"}, {"npm", "package.json"}, {"yarn", "package.json"}, {"pnpm", "package.json"},
        {"tox", "tox.ini"}, {"nox", "noxfile.py"}, {"rake", "Rakefile"}, {"just", "justfile"},
};

/* The command's words, by what ends one in a shell, without "./" before and "::" after. */
static int split_words(const char *text, char ***v, size_t *n) {
        static const char ends[] = " \t\r\n;|&()<>'\"`$=";
        int r = 0;
        while (r == 0 && *(text += strspn(text, ends))) {
                size_t len = strcspn(text, ends);
                const char *word = text;
                text += len;
                while (len > 2 && memcmp(word, "./", 2) == 0) {
                        word += 2;
                        len -= 2;
                }
                const char *id = memmem(word, len, "::", 2);
                r = strv_append_take(v, n, strndup(word, id ? (size_t)(id - word) : len));
        }
        return r;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has_word(char *const *sorted, size_t n, const char *word) { return bsearch(&word, sorted, n, sizeof(*sorted), by_text); }

static bool ends_path(const char *path, const char *end) {
        size_t n = strlen(path), m = strlen(end);
        return n >= m && strcmp(path + n - m, end) == 0 && (n == m || path[n - m - 1] == '/');
}

static bool is_driver(char *const *words, size_t n, const char *path) {
        for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
                if (ends_path(path, drivers[i].file) && has_word(words, n, drivers[i].program))
                        return true;
        return false;
}

static bool is_left(const struct apply_result *a, const char *path) {
        return !strv_contains((const char *const *)a->test_files, path) && !strv_contains((const char *const *)a->restored, path);
}

int edited_command_find(const struct score_request *q, const struct apply_result *a, struct findings *findings) {
        _cleanup_strv_ char **words = NULL;
        size_t n = 0;
        int r = a->touched && *a->touched ? split_words(q->test_command, &words, &n) : 0;
        if (r < 0 || n == 0)
                return r;
        strv_sort(words);
        for (char **p = a->touched; r == 0 && *p; p++)
                if ((has_word(words, n, *p) || is_driver(words, n, *p)) && is_left(a, *p))
                        r = findings_add(findings, INTEGRITY_SUSPECT, "command_file_edited", *p, "the test command runs by it; left as patched");
        return r;
}

/* ---- what the ids name -------------------------------------------------------------------------------------------- */

static int add_all(char ***v, size_t *n, const struct framework *f, char *const *ids) {
        int r = 0;
        for (; r == 0 && ids && *ids; ids++)
                r = strv_append_take(v, n, framework_canonical(f, *ids));
        return r;
}

/* Does any of the sorted ids begin with this? */
static bool any_begins(char *const *sorted, size_t n, const char *start) {
        size_t low = 0, high = n;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (strcmp(sorted[mid], start) < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < n && strncmp(sorted[low], start, strlen(start)) == 0;
}

/* "tests/test_a.py" is named by "tests/test_a.py::x" and by "tests.test_a.Class.x". */
static bool is_named(char *const *sorted, size_t n, const char *path) {
        char text[PATCH_PATH_MAX + 4];
        size_t len = strlen(path);
        if (len <= 3 || len + 3 > sizeof(text) || strcmp(path + len - 3, ".py") != 0)
                return false;
        snprintf(text, sizeof(text), "%s::", path);
        if (any_begins(sorted, n, text))
                return true;
        for (char *p = text; *p; p++)
                *p = *p == '/' ? '.' : *p;
        text[len - 2] = 0;              /* the dot stays */
        return any_begins(sorted, n, text);
}

int edited_tests_find(const struct score_request *q, const struct framework *f, const struct apply_result *a, struct findings *findings) {
        _cleanup_strv_ char **ids = NULL;
        size_t n = 0;
        int r = add_all(&ids, &n, f, q->fail_to_pass);
        if (r == 0)
                r = add_all(&ids, &n, f, q->pass_to_pass);
        if (r < 0 || n == 0)
                return r;
        strv_sort(ids);
        for (char **p = a->touched; r == 0 && p && *p; p++)
                if (is_named(ids, n, *p) && is_left(a, *p))
                        r = findings_add(findings, INTEGRITY_SUSPECT, "test_file_edited", *p, "the request's ids name it; left as patched");
        return r;
}
