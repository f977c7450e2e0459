/* What a run wrote outside of the tree. Set-up belongs into setup_command; a run that puts a file in the place of a program, of the interpreter's library
 * or of the runner, or that makes what every interpreter loads by itself, is told. What an installation adds beside that is not. */
#include <string.h>
#include <sys/stat.h>

#include "score/apply_config.h"
#include "score/apply_tree.h"
#include "score/seal_private.h"

static bool starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

static bool ends(const char *s, const char *with) {
        size_t n = strlen(s), m = strlen(with);
        return n >= m && strcmp(s + n - m, with) == 0;
}

/* Behind "…/site-packages/" and the like: where modules are imported from. "lib/python3.11/" is the interpreter's own. */
static const char *in_library(const char *path, bool *ret_own) {
        static const char *const roots[] = { "/site-packages/", "/dist-packages/" };
        *ret_own = false;
        for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
                const char *at = strstr(path, roots[i]);
                if (at)
                        return at + strlen(roots[i]);
        }
        const char *lib = strstr(path, "lib/python"), *slash = lib ? strchr(lib + 10, '/') : NULL;
        *ret_own = slash != NULL;
        return slash ? slash + 1 : NULL;
}

static bool is_there(int root, const char *dir, const char *name) {
        char path[PATCH_PATH_MAX];
        struct stat st;
        return snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path && tree_stat(root, path, &st) == 0 && st.st_mode != 0;
}

/* A new program beside others: does one of the image have its name? */
static bool hides_program(const struct seal_view *v, const char *name) {
        static const char *const dirs[] = { "usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin" };
        for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
                bool own = starts(dirs[i], "usr/") && seal_is_open(v->base.usr);
                if (is_there(own ? v->base.usr : v->base.root, dirs[i] + (own ? 4 : 0), name))
                        return true;
        }
        return false;
}

static const char *program(const struct seal_view *v, const char *path, bool was_there) {
        const char *name = strrchr(path, '/') + 1;
        if (was_there)
                return "a program of the image was written or removed while the tests ran";
        return hides_program(v, name) ? "stands before a program of the image; made while the tests ran" : NULL;
}

static const char *module(const struct seal_view *v, const char *path, const char *in, bool own, bool was_there) {
        CLEANUP(entry_release) struct entry en = { 0 };
        const char *name;
        size_t len = 0, dir_len = 0;
        enum config_class class = config_classify(in, &name, &len, &dir_len);
        const char *top = strchr(in, '/');
        char package[PATCH_PATH_MAX + 16];
        if (top) {
                snprintf(package, sizeof package, "%.*s/__init__.py", (int)(top - in), in);
                enum config_class of_top = config_classify(package, &name, &len, &dir_len);
                class = class == CONFIG_RUNNER ? class : of_top;
        }
        if (was_there && (own || class == CONFIG_SHADOW || class == CONFIG_RUNNER || (class == CONFIG_LIBRARY && ends(in, ".py"))))
                return "a part of the interpreter or of the test runner was written or removed while the tests ran";
        if (was_there || (class != CONFIG_RUNNER && class != CONFIG_SHADOW))
                return NULL;
        if (class == CONFIG_RUNNER && (tree_read(v->root, path, &en) < 0 || !config_is_passive(in, en.data, en.type == ENTRY_FILE ? en.len : 0)))
                return "every interpreter or test runner loads it; made while the tests ran";
        return class == CONFIG_SHADOW && !top ? "stands before a part of the test runner; made while the tests ran" : NULL;
}

const char *seal_outside(const struct seal_view *v, const char *path, bool was_there) {
        static const char *const above[] = { "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml" };
        bool own;
        const char *in = in_library(path, &own);
        if (in)
                return module(v, path, in, own, was_there);
        if (strstr(path, "bin/") && (starts(path, "usr/") || starts(path, "opt/") || starts(path, "bin/") || starts(path, "sbin/")) &&
            strrchr(path, '/') > path + 2 && memcmp(strrchr(path, '/') - 3, "bin", 3) == 0)
                return program(v, path, was_there);
        if (strcmp(path, "etc/ld.so.preload") == 0)
                return "the loader puts it into every program; written while the tests ran";
        if (was_there && starts(path, "usr/") && (ends(path, ".so") || strstr(path, ".so.")))
                return "a library of the image was written or removed while the tests ran";
        for (size_t i = 0; i < ARRAY_SIZE(above) && !strchr(path, '/'); i++)
                if (strcmp(path, above[i]) == 0)
                        return "configures the test runner from above the tree; written while the tests ran";
        return NULL;
}
