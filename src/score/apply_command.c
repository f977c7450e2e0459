#include "score/apply_command.h"

#include <ctype.h>
#include <string.h>

#include "base/macros.h"
#include "score/apply_tree.h"

static const struct { const char *program, *file; } drivers[] = {
        {"make", "Makefile"}, {"make", "makefile"}, {"make", "GNUmakefile"}, {"tox", "tox.ini"}, {"nox", "noxfile.py"}, {"npm", "package.json"},
        {"yarn", "package.json"}, {"pnpm", "package.json"}, {"just", "justfile"}, {"rake", "Rakefile"},
};

static bool is_name(char c) { return isalnum((unsigned char)c) || (c && strchr("_./-", c)); }

static bool has_text(const char *p, size_t n, const char *text) { return memmem(p, n, text, strlen(text)) != NULL; }

/* What stands before a name on its line: does it run what follows? */
static bool is_run(const char *line, size_t n, bool has_slash) {
        static const char *const interpreters[] = {"python", "PYTHON", "sh ", "SHELL", "bash ", "node ", "ruby ", "perl ", "source ", ". ", "coverage"};
        while (n > 0 && strchr(" \t\"'", line[n - 1]))
                n--;
        if (n == 0 || strchr(";|&@=({", line[n - 1]))
                return has_slash;
        if (has_text(line, n, " -m") && !has_text(line, n, "coverage"))
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(interpreters); i++)
                if (has_text(line, n, interpreters[i]) || (n >= strlen(interpreters[i]) - 1 && memcmp(line + n - (strlen(interpreters[i]) - 1), interpreters[i], strlen(interpreters[i]) - 1) == 0))
                        return true;
        return false;
}

/* Is the word (n bytes) the path, seen from the tree's top, from a directory on the way, or from outside? */
static bool is_path(const char *word, size_t n, const char *path) {
        size_t len = strlen(path);
        while (n > 2 && memcmp(word, "./", 2) == 0) {
                word += 2;
                n -= 2;
        }
        if (n == len)
                return memcmp(word, path, n) == 0;
        if (n < len)
                return n > 0 && memcmp(path + len - n, word, n) == 0 && path[len - n - 1] == '/';
        return memcmp(word + n - len, path, len) == 0 && word[n - len - 1] == '/';
}

static bool is_module(const char *word, size_t n, const char *path) {
        size_t len = strlen(path);
        if (len <= 3 || n != len - 3 || strcmp(path + n, ".py") != 0)
                return false;
        for (size_t i = 0; i < n; i++)
                if (word[i] != (path[i] == '/' ? '.' : path[i]))
                        return false;
        return true;
}

bool command_text_runs(const char *text, size_t n, const char *path) {
        const char *end = text + n, *line = text;
        for (const char *p = text; p < end;) {
                if (*p == '\n')
                        line = p + 1;
                if (!is_name(*p)) {
                        p++;
                        continue;
                }
                const char *word = p;
                while (p < end && is_name(*p))
                        p++;
                size_t len = (size_t)(p - word), before = (size_t)(word - line);
                bool target = p < end && *p == ':';     /* of a makefile */
                if (!target && is_path(word, len, path) && is_run(line, before, memchr(word, '/', len)))
                        return true;
                if (before > 3 && memcmp(word - 3, "-m ", 3) == 0 && is_module(word, len, path))
                        return true;
        }
        return false;
}

/* ---- which texts ------------------------------------------------------------------------------------------------------- */

static int read_text(int base, const char *path, char **touched, int (*tell)(void *user, const char *path), void *user) {
        CLEANUP(entry_release) struct entry en = {0};
        int r = tree_read(base, path, &en);
        if (r < 0 || en.type != ENTRY_FILE || en.len > COMMAND_TEXT_MAX || !en.data || memchr(en.data, 0, en.len))
                return 0;
        for (char **p = touched; r == 0 && *p; p++)
                if (strcmp(*p, path) != 0 && command_text_runs(en.data, en.len, *p))
                        r = tell(user, *p);
        return r;
}

int apply_command_find(int base, const char *command, char **touched, int (*tell)(void *user, const char *path), void *user) {
        static const char ends[] = " \t\r\n;|&()<>'\"`$=";
        char word[PATCH_PATH_MAX + 1];
        unsigned n_texts = 0;
        int r = 0;
        while (touched && r == 0 && *(command += strspn(command, ends))) {
                size_t n = strcspn(command, ends);
                const char *at = command;
                command += n;
                while (n > 2 && memcmp(at, "./", 2) == 0) {
                        at += 2;
                        n -= 2;
                }
                if (n > PATCH_PATH_MAX || *at == '/' || *at == '-' || n_texts++ >= COMMAND_TEXTS_MAX)
                        continue;
                snprintf(word, sizeof word, "%.*s", (int)n, at);
                for (size_t i = 0; r == 0 && i < ARRAY_SIZE(drivers); i++)
                        if (strcmp(word, drivers[i].program) == 0)
                                r = read_text(base, drivers[i].file, touched, tell, user);
                if (r == 0 && !strstr(word, ".."))
                        r = read_text(base, word, touched, tell, user);
        }
        return r;
}
