/* Which files of a tree configure the test runner or take the place of its modules. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum config_class {
        CONFIG_NONE,
        CONFIG_RUNNER,       /* configures the runner and nothing else: reset */
        CONFIG_SHADOW,       /* would be imported in place of the runner or a part of it: reset */
        CONFIG_BYTECODE,     /* compiled code that would be run instead of its source: reset */
        CONFIG_SHARED,       /* other tools read it as well: left, the runner is given the base's section */
        CONFIG_LIBRARY,      /* would be imported in place of a module of the standard library or one that the runner uses: left, named */
        CONFIG_FOREIGN,      /* configures another framework's runner: left, named */
        CONFIG_CLASS_MAX,
};

/* By name alone. *ret_module: what Python would import the file as, with the length of the directory part (with its slash) in which
 * it would be found, or NULL when it is no module; the caller decides whether that directory is imported from and whether the base had it. */
enum config_class config_classify(const char *path, const char **ret_module, size_t *ret_module_len, size_t *ret_dir_len);
/* Is this file of CONFIG_RUNNER no more than what an installation leaves: metadata that names no plugin of the runner, a .pth that only names
 * directories, an .egg-link? */
bool config_is_passive(const char *path, const char *data, size_t n);
/* Is the runner's section of a shared file the same in both? Absent files are NULL. */
bool config_same_section(const char *path, const char *a, size_t a_len, const char *b, size_t b_len);
/* Is a module of this name (n bytes) installed for a Python below `root`, a view of "/", or of "/usr" with `top` "" in place of "usr/"? */
bool config_is_installed(int root, const char *top, const char *name, size_t n);
