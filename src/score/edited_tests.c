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

#define BASES_MAX 8                     /* directories that the command changes to */

struct command {
        const char *tree;              /* where it stands: "/testbed" */
        char **words; size_t n;        /* sorted in the end: the words, and what they are relative to the tree */
        char **bases; size_t n_bases;  /* where words may be relative to; "" is the tree */
        char **dirs; size_t n_dirs;    /* where programs are looked up, in the tree */
        bool script;                   /* a word is a shell's script */
        bool dotted;                   /* words may be names of test modules: python -m unittest */
};

static void command_release(struct command *c) {
        strv_free(c->words);
        strv_free(c->bases);
        strv_free(c->dirs);
}

/* `word` as seen from `base`, relative to the tree, without "." and ".."; false: it is outside, or too long. */
static bool in_tree(const struct command *c, const char *base, const char *word, char ret[static PATCH_PATH_MAX]) {
        char text[2 * PATCH_PATH_MAX];
        size_t len = 0, top = strlen(c->tree);
        bool inside = strncmp(word, c->tree, top) == 0 && (word[top] == '/' || !word[top]);
        if (*word == '/' && !inside)
                return false;
        if (snprintf(text, sizeof text, "%s/%s", inside ? "" : base, inside ? word + top : word) >= (int)sizeof text)
                return false;
        for (const char *p = text; *(p += strspn(p, "/"));) {
                size_t n = strcspn(p, "/");
                bool up = n == 2 && memcmp(p, "..", 2) == 0;
                if (up && len == 0)
                        return false;
                while (up && len > 0 && ret[--len] != '/')
                        ;
                if (!up && !(n == 1 && *p == '.')) {
                        if (len + n + 2 > PATCH_PATH_MAX)
                                return false;
                        if (len > 0)
                                ret[len++] = '/';
                        memcpy(ret + len, p, n);
                        len += n;
                }
                p += n;
        }
        ret[len] = 0;
        return true;
}

/* From every place that the command has been in: which one it is in by now, only a shell knows. */
static int add_path(struct command *c, const char *word) {
        char path[PATCH_PATH_MAX];
        int r = 0;
        for (size_t i = 0; i < c->n_bases && r == 0; i++)
                if (in_tree(c, c->bases[i], word, path) && *path)
                        r = strv_append_take(&c->words, &c->n, strdup(path));
        return r;
}

static int change_directory(struct command *c, const char *word) {
        char path[PATCH_PATH_MAX];
        int r = 0;
        for (size_t i = 0, n = c->n_bases; i < n && c->n_bases < BASES_MAX && r == 0; i++)
                if (in_tree(c, c->bases[i], word, path) && !strv_contains((const char *const *)c->bases, path))
                        r = strv_append_take(&c->bases, &c->n_bases, strdup(path));
        return r;
}

/* "/testbed/bin:bin:/usr/bin" */
static int add_search_path(struct command *c, const char *list) {
        char dir[PATCH_PATH_MAX], path[PATCH_PATH_MAX];
        int r = 0;
        for (size_t n; *list && r == 0; list += n + (list[n] == ':')) {
                n = strcspn(list, ":");
                snprintf(dir, sizeof dir, "%.*s", (int)MIN2(n, sizeof dir - 1), list);
                for (size_t i = 0; i < c->n_bases && r == 0 && n > 0; i++)
                        if (in_tree(c, c->bases[i], dir, path))
                                r = strv_append_take(&c->dirs, &c->n_dirs, strdup(path));
        }
        return r;
}

/* The module that the first n bytes name. */
static int add_module(struct command *c, const char *name, size_t n) {
        char path[PATCH_PATH_MAX + 16];
        if (n == 0 || n >= PATCH_PATH_MAX)
                return 0;
        for (size_t i = 0; i < n; i++)
                path[i] = name[i] == '.' ? '/' : name[i];
        memcpy(path + n, ".py", 4);
        int r = add_path(c, path);
        memcpy(path + n, "/__main__.py", 13);
        return r < 0 ? r : add_path(c, path);
}

/* One of the command's words. */
static int take_word(struct command *c, const char *before, const char *word) {
        const char *id = strstr(word, "::");
        if (strcmp(before, "cd") == 0 || strcmp(before, "pushd") == 0)
                return change_directory(c, word);
        if (strcmp(before, "PATH") == 0)
                return add_search_path(c, word);
        const char *module = strcmp(before, "-m") == 0 ? word : strncmp(word, "-m", 2) == 0 ? word + 2 : c->dotted ? word : "";
        int r = add_module(c, module, strlen(module));
        for (const char *dot = c->dotted ? strchr(module, '.') : NULL; dot && r == 0; dot = strchr(dot + 1, '.'))
                r = add_module(c, module, (size_t)(dot - module));
        c->dotted |= strcmp(module, "unittest") == 0;
        if (r == 0)
                r = strv_append_take(&c->words, &c->n, strndup(word, id ? (size_t)(id - word) : strlen(word)));
        if (r < 0)
                return r;
        char *plain = strdup(c->words[c->n - 1]);      /* the list may move */
        r = plain ? add_path(c, plain) : -ENOMEM;
        free(plain);
        return r;
}

static bool ends_text(const char *s, const char *end) {
        size_t n = strlen(s), m = strlen(end);
        return n >= m && strcmp(s + n - m, end) == 0;
}

/* By what ends a word in a shell. */
static int split_command(struct command *c, const char *text, char *const *env) {
        static const char ends[] = " \t\r\n;|&()<>'\"`$=";
        char *before = strdup("");
        int r = before ? strv_append_take(&c->bases, &c->n_bases, strdup("")) : -ENOMEM;
        for (; r == 0 && env && *env; env++)
                if (strncmp(*env, "PATH=", 5) == 0)
                        r = add_search_path(c, *env + 5);
        while (r == 0 && *(text += strspn(text, ends))) {
                size_t len = strcspn(text, ends);
                char *word = strndup(text, len);
                r = word ? take_word(c, before, word) : -ENOMEM;
                free(before);
                before = word;
                text += len;
        }
        free(before);
        for (size_t i = 0; r == 0 && i < c->n; i++)
                c->script |= ends_text(c->words[i], ".sh") || ends_text(c->words[i], ".bash");
        if (r == 0 && c->n > 0)
                strv_sort(c->words);
        return r;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has_word(const struct command *c, const char *word) { return c->n > 0 && bsearch(&word, c->words, c->n, sizeof(*c->words), by_text); }

static bool ends_path(const char *path, const char *end) {
        size_t n = strlen(path), m = strlen(end);
        return n >= m && strcmp(path + n - m, end) == 0 && (n == m || path[n - m - 1] == '/');
}

static bool is_driver(const struct command *c, const char *path) {
        for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
                if (ends_path(path, drivers[i].file) && has_word(c, drivers[i].program))
                        return true;
        /* What a makefile or a script reads in its turn: which, only they know. */
        if (ends_text(path, ".mk") && has_word(c, "make"))
                return true;
        if ((ends_text(path, ".sh") || ends_text(path, ".bash")) && (c->script || has_word(c, "make")))
                return true;
        /* Where these look for programs. */
        static const char *const runners[] = { "npx", "npm", "yarn", "pnpm" };
        for (size_t i = 0; i < ARRAY_SIZE(runners) && (strncmp(path, "node_modules/", 13) == 0 || strstr(path, "/node_modules/")); i++)
                if (has_word(c, runners[i]))
                        return true;
        return false;
}

static bool is_on_path(const struct command *c, const char *path) {
        const char *slash = strrchr(path, '/');
        size_t len = slash ? (size_t)(slash - path) : 0;
        for (size_t i = 0; i < c->n_dirs; i++)
                if (strlen(c->dirs[i]) == len && memcmp(c->dirs[i], path, len) == 0)
                        return true;
        return false;
}

static bool is_left(const struct apply_result *a, const char *path) {
        return !strv_contains((const char *const *)a->test_files, path) && !strv_contains((const char *const *)a->restored, path);
}

int edited_command_find(const struct score_request *q, const struct apply_result *a, struct findings *findings) {
        CLEANUP(command_release) struct command c = { .tree = q->repo_path };
        int r = a->touched && *a->touched ? split_command(&c, q->test_command, q->env) : 0;
        for (char **p = a->touched; r == 0 && p && *p; p++)
                if ((has_word(&c, *p) || is_driver(&c, *p) || is_on_path(&c, *p)) && is_left(a, *p))
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

/* ---- the same, as files -------------------------------------------------------------------------------------------- */

/* Without the last part of a dotted name of n bytes; 0 when it is the only one. */
static size_t without_last(const char *name, size_t n) {
        while (n > 0 && name[n - 1] != '.')
                n--;
        return n > 0 ? n - 1 : 0;
}

/* The first n bytes, and those without one and two last parts, may be a module: classes may be in classes. */
static int add_module_files(char ***v, size_t *count, const char *name, size_t n) {
        char path[PATCH_PATH_MAX + 4];
        int r = 0;
        for (int k = 0; k < 3 && n > 0 && r == 0; k++, n = without_last(name, n)) {
                if (n >= PATCH_PATH_MAX)
                        continue;
                for (size_t i = 0; i < n; i++)
                        path[i] = name[i] == '.' ? '/' : name[i];
                memcpy(path + n, ".py", 4);
                r = strv_append_take(v, count, strdup(path));
        }
        return r;
}

struct named { char **v; size_t n; const char *last; size_t last_len; };

static int add_named(struct named *d, const char *id) {
        const char *open = strchr(id, '('), *file = strstr(id, "::");
        const char *name = open && !file ? open + 1 : id;               /* "test_x (pkg.mod.Class)" */
        size_t len = file ? (size_t)(file - id) : open ? strcspn(name, ")") : without_last(name, strlen(name));
        if (len == 0 || (len == d->last_len && memcmp(name, d->last, len) == 0))
                return 0;
        d->last = name;
        d->last_len = len;
        return file ? strv_append_take(&d->v, &d->n, strndup(name, len)) : add_module_files(&d->v, &d->n, name, len);
}

int named_tests(const struct score_request *q, char ***ret) {
        struct named d = { .last = "" };
        char *const *const lists[] = { q->fail_to_pass, q->pass_to_pass };
        int r = 0;
        for (size_t k = 0; k < ARRAY_SIZE(lists); k++)
                for (char *const *id = lists[k]; r == 0 && id && *id && d.n < NAMED_TESTS_MAX; id++)
                        r = add_named(&d, *id);
        if (r < 0)
                strv_free(d.v);
        else
                *ret = d.v;
        return r;
}
