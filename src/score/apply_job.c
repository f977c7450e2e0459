#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "score/apply_command.h"
#include "score/apply_config.h"
#include "score/apply_job.h"
#include "score/apply_tree.h"
#include "score/apply_wire.h"
#include "score/diff.h"
#include "score/seal.h"

struct state {
        struct apply_job *j;
        char **touched, **tests;               /* sorted */
        bool again;                            /* a first attempt failed for want of room or memory */
        char **written;                        /* what it touched */
        bool look;                             /* nothing is put back: what was written while the tests ran is told */
        struct error *e;
};

static int no_memory(struct state *s) { return error_set(s->e, -ENOMEM, "applying"); }

static int emit(struct state *s, enum apply_frame type, const char *text) {
        int r = frame_adds(s->j->out, type, text);
        return r < 0 ? error_set(s->e, r, "reporting") : 0;
}

/* Findings are cut off with the report's room; what they say of weight is kept by the first of them. */
static int emit_finding(struct state *s, enum apply_weight weight, const char *kind, const char *path, const char *detail) {
        _cleanup_buf_ struct buf b = BUF_INIT(16384);
        int r = buf_printf(&b, "%d%s", weight, kind);
        if (r == 0) r = buf_add(&b, "", 1);
        if (r == 0) r = buf_adds(&b, path);
        if (r == 0) r = buf_add(&b, "", 1);
        if (r == 0) r = buf_adds(&b, s->look ? "written or removed while the tests ran" : detail);
        if (r == 0) r = frame_add(s->j->out, FRAME_FINDING, b.data, b.len);
        return r < 0 ? error_set(s->e, r, "reporting") : 0;
}

/* In the list, or below a directory in it. */
static bool covers(char **list, const char *path) {
        for (; list && *list; list++) {
                size_t n = strlen(*list);
                while (n > 0 && (*list)[n - 1] == '/')
                        n--;
                if (n > 0 && strncmp(*list, path, n) == 0 && (path[n] == 0 || path[n] == '/'))
                        return true;
        }
        return false;
}

static int compare_strings(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has(char **sorted, const char *path) {
        return sorted && bsearch(&path, sorted, strv_len((const char *const *)sorted), sizeof *sorted, compare_strings);
}

static bool is_room(int r) { return r == -ENOSPC || r == -EDQUOT || r == -EFBIG; }

/* ---- the agent's patch --------------------------------------------------------------------------------------------------- */

static int put_back(struct state *s, char **paths) {
        bool changed;
        for (; paths && *paths; paths++) {
                int r = tree_reset(s->j->tree, s->j->base, *paths, &changed, s->e);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int plan_touched(struct state *s, const struct patch_plan *plan) {
        size_t n = 0;
        int r = strv_ensure(&s->touched);
        for (size_t i = 0; i < plan->n && r == 0; i++)
                r = strv_append_take(&s->touched, &n, strdup(plan->items[i].path));
        return r < 0 ? no_memory(s) : 0;
}

static int reject(struct state *s, int code, const char *why) {
        s->touched = strv_free(s->touched);
        return emit(s, code == -EPERM ? FRAME_REFUSED : FRAME_REJECTED, why);
}

static int write_plan(struct state *s, const struct patch_plan *plan) {
        struct error why;
        char text[8];
        int r = plan_touched(s, plan);
        if (r < 0)
                return r;
        int w = tree_write(s->j->tree, plan, &why);
        if (w < 0) {
                if ((r = put_back(s, s->touched)) < 0)
                        return r;
                if (w != -EBADMSG && !is_room(w) && w != -ENAMETOOLONG)
                        return error_say(s->e, w, "%s", why.text);
                return reject(s, w, why.text);
        }
        snprintf(text, sizeof text, "%d", plan->rung);
        r = emit(s, FRAME_RUNG, text);
        for (size_t i = 0; i < plan->n && r == 0; i++)
                r = emit(s, FRAME_TOUCHED, plan->items[i].path);
        for (size_t i = 0; i < plan->n_notes && r == 0; i++)
                r = emit_finding(s, WEIGHT_NOTE, "patch_section_dropped", "", plan->notes[i]);
        return r;
}

/* Puts back what the patch may have written: as the first attempt noted it, else (it was another process, which is dead) all that
 * the patch names. */
static int undo(struct state *s) {
        _cleanup_strv_ char **paths = NULL;
        struct error ignored;
        int r = 0;
        if (s->again)
                r = put_back(s, s->written);
        else if ((r = patch_paths(s->j->patch, s->j->patch_len, &paths, &ignored)) == 0)
                r = put_back(s, paths);
        else if (r == -ENOMEM)
                return no_memory(s);
        else
                r = 0;          /* unreadable: nothing can have been written */
        return r < 0 ? r : reject(s, -EPERM, s->j->undo);
}

static int agent_stage(struct state *s) {
        struct apply_job *j = s->j;
        CLEANUP(plan_release) struct patch_plan plan = { 0 };
        struct patch_source src = { tree_source_read, &j->tree };
        struct error why = { 0 };
        if (j->undo)
                return undo(s);
        int r = patch_plan(j->patch, j->patch_len, j->mode, &src, &plan, &why);
        if (r == -EPERM || r == -EBADMSG)
                return reject(s, r, why.text);
        if (r < 0)
                return error_say(s->e, r, "%s", why.text);
        return write_plan(s, &plan);
}

/* ---- the diff ---------------------------------------------------------------------------------------------------------------- */

static int load_side(int root, const char *path, struct entry *en, struct diff_side *ret) {
        int r = tree_read(root, path, en);
        if (r < 0)
                return r;
        bool plain = en->type == ENTRY_FILE || en->type == ENTRY_LINK;
        *ret = (struct diff_side){ .exists = plain, .data = en->data, .len = en->len };
        ret->mode = en->type == ENTRY_LINK ? S_IFLNK : S_IFREG | (en->exec ? 0755 : 0644);
        return 0;
}

static int diff_stage(struct state *s) {
        _cleanup_buf_ struct buf b = BUF_INIT(s->j->diff_max);
        int r = 0;
        for (char **p = s->touched; p && *p && r == 0; p++) {
                CLEANUP(entry_release) struct entry old = { 0 }, new = { 0 };
                struct diff_side a, z;
                r = load_side(s->j->base, *p, &old, &a);
                if (r == 0) r = load_side(s->j->tree, *p, &new, &z);
                if (r == -EFBIG) {      /* too large to be shown */
                        r = 0;
                        continue;
                }
                if (r == 0) r = diff_file(*p, &a, &z, &b);
        }
        bool cut = r == -ENOSPC;
        if (r < 0 && !cut)
                return error_set(s->e, r, "making the diff");
        while (cut && b.len > 0 && b.data[b.len - 1] != '\n')
                b.len--;
        r = frame_add(s->j->out, cut ? FRAME_DIFF_CUT : FRAME_DIFF, buf_str(&b), b.len);
        return r < 0 ? error_set(s->e, r, "reporting") : 0;
}

/* ---- back to base ------------------------------------------------------------------------------------------------------------ */

static int reset(struct state *s, const char *path, const char *kind, const char *detail) {
        bool changed = false;
        if (s->look)
                return emit_finding(s, WEIGHT_SUSPECT, kind, path, detail);
        int r = tree_reset(s->j->tree, s->j->base, path, &changed, s->e);
        if (r < 0 || !changed)
                return r;
        r = emit(s, FRAME_RESTORED, path);
        return r == 0 ? emit_finding(s, WEIGHT_SUSPECT, kind, path, detail) : r;
}

static int reset_stage(struct state *s) {
        int r = 0;
        for (char **p = s->tests; p && *p && r == 0; p++)
                r = reset(s, *p, "test_file_edited", "a path of the test patch; put back to base before it was applied");
        for (char **p = s->j->protect; p && *p && r == 0; p++)
                if (!has(s->tests, *p))
                        r = reset(s, *p, "protected_path_edited", "put back to base");
        for (char **p = s->touched; p && *p && r == 0; p++)
                if (covers(s->j->protect, *p) && !strv_contains((const char *const *)s->j->protect, *p) && !has(s->tests, *p))
                        r = reset(s, *p, "protected_path_edited", "put back to base");
        return r;
}

/* ---- what configures the runner ----------------------------------------------------------------------------------------------- */

static bool exists(int root, const char *dir, size_t dir_len, const char *name, size_t name_len, const char *rest) {
        char path[PATCH_PATH_MAX + 32];
        CLEANUP(entry_release) struct entry en = { 0 };
        if (snprintf(path, sizeof path, "%.*s%.*s%s", (int)dir_len, dir, (int)name_len, name, rest) >= (int)sizeof path)
                return false;
        return tree_read(root, path, &en) == 0 && (en.type == ENTRY_FILE || en.type == ENTRY_LINK || en.type == ENTRY_DIR);
}

/* A module that the base did not have, in a directory that was no package there and so can be on Python's path. */
static bool is_new_module(struct state *s, const char *path, const char *module, size_t len, size_t dir_len) {
        if (dir_len > 0 && exists(s->j->base, path, dir_len, "", 0, "__init__.py"))
                return false;
        return !exists(s->j->base, path, dir_len, module, len, ".py") && !exists(s->j->base, path, dir_len, module, len, "") &&
               exists(s->j->tree, path, 0, path, strlen(path), "");
}

/* As above, and not in a new package. A directory that was there before is none because the patch says so. */
static bool is_shadow(struct state *s, const char *path, const char *module, size_t len, size_t dir_len) {
        bool new_package = dir_len > 0 && exists(s->j->tree, path, dir_len, "", 0, "__init__.py") && !exists(s->j->base, path, dir_len - 1, "", 0, "");
        return !new_package && is_new_module(s, path, module, len, dir_len);
}

static int emit_config(struct state *s, const char *path, const struct entry *was) {
        _cleanup_buf_ struct buf b = BUF_INIT(APPLY_CONFIG_BYTES_MAX + PATCH_PATH_MAX + 2);
        bool there = was->type == ENTRY_FILE && was->len <= APPLY_CONFIG_BYTES_MAX;
        int r = buf_add(&b, path, strlen(path) + 1);
        if (r == 0) r = buf_addc(&b, there ? '+' : '-');
        if (r == 0 && there) r = buf_add(&b, was->data, was->len);
        if (r == 0) r = frame_add(s->j->out, FRAME_CONFIG, b.data, b.len);
        return r < 0 ? error_set(s->e, r, "reporting") : 0;
}

static int shared_file(struct state *s, const char *path, unsigned *n) {
        CLEANUP(entry_release) struct entry was = { 0 }, now = { 0 };
        int r = tree_read(s->j->base, path, &was);
        if (r == 0) r = tree_read(s->j->tree, path, &now);
        if (r < 0 && r != -EFBIG)
                return error_set(s->e, r, "read %s", path);
        /* Beyond the cap no base section can be handed over: the file itself goes back instead. */
        if ((*n)++ >= APPLY_CONFIG_FILES_MAX || r == -EFBIG)
                return reset(s, path, "runner_config_changed", "one of many shared configuration files; put back to base");
        r = s->look ? 0 : emit_config(s, path, &was);
        if (r < 0 || config_same_section(path, was.data, was.len, now.data, now.len))
                return r;
        return emit_finding(s, WEIGHT_SUSPECT, "runner_section_changed", path, "the runner's section changed; the file stays as patched, the run uses the section of the base");
}

static bool is_link(int root, const char *path) {
        CLEANUP(entry_release) struct entry en = { 0 };
        return tree_read(root, path, &en) == 0 && en.type == ENTRY_LINK;
}

/* Below a virtual environment that the set-up made in the tree, or below the tree's own node_modules: the runner lives there. */
static bool is_installed(struct state *s, const char *path) {
        if (strncmp(path, "node_modules/", 13) == 0)
                return exists(s->j->base, "", 0, "node_modules", 12, "");
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/'))
                if (exists(s->j->base, path, (size_t)(slash - path), "", 0, "/pyvenv.cfg") || exists(s->j->base, path, (size_t)(slash - path), "", 0, "/conda-meta"))
                        return true;
        return false;
}

/* Has the test patch a path that begins with this one? */
static bool has_below(char **sorted, const char *start) {
        size_t low = 0, high = strv_len((const char *const *)sorted), n = strlen(start);
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (strcmp(sorted[mid], start) < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        return sorted && sorted[low] && strncmp(sorted[low], start, n) == 0;
}

/* Is this a new package "dir/NAME/" (or a link to one) or a compiled "dir/NAME.*.so", and "dir/NAME.py" is still there? */
static bool stands_before(struct state *s, const char *path, const char *name, size_t module_end) {
        const char *rest = path + module_end;
        size_t n = strlen(rest);
        bool before = *rest != '.' || (n > 3 && strcmp(rest + n - 3, ".so") == 0);
        return before && exists(s->j->base, name, 0, name, strlen(name), "") && exists(s->j->tree, name, 0, name, strlen(name), "") &&
               !exists(s->j->base, path, 0, path, strlen(path), "") && exists(s->j->tree, path, 0, path, strlen(path), "");
}

/* Python takes a package or a compiled module before "dir/NAME.py", be it of the test patch or any other, and any module before a directory
 * "dir/NAME/" that is no package. */
static int beside_test(struct state *s, enum config_class class, const char *path, const char *module, size_t len, size_t dir_len, bool *ret_reset) {
        char name[PATCH_PATH_MAX + 8];
        if (snprintf(name, sizeof name, "%.*s%.*s.py", (int)dir_len, path, (int)len, module) >= (int)sizeof name)
                return 0;
        if (has(s->tests, name) || strv_contains((const char *const *)s->j->protect, name)) {
                *ret_reset = true;
                return reset(s, path, "shadowing_module", "takes the place of a file of the test patch, or a protected one; put back to base");
        }
        if (class != CONFIG_RUNNER && stands_before(s, path, name, dir_len + len))
                return emit_finding(s, WEIGHT_SUSPECT, "shadowing_module", path, "takes the place of the file of that name beside it; left as patched");
        size_t n = dir_len + len + 1;
        name[n - 1] = '/';
        name[n] = 0;
        if (strncmp(path, name, n) == 0 || !has_below(s->tests, name) || exists(s->j->base, name, n, "", 0, "__init__.py") || exists(s->j->base, path, 0, path, strlen(path), ""))
                return 0;
        return emit_finding(s, WEIGHT_SUSPECT, "shadowing_module", path, "takes the place of a directory of the test patch; left as patched");
}

/* Is it below a directory of tests: "tests" anywhere, "test" at the top, or what else is called so and has files of the test patch? */
static bool is_among_tests(struct state *s, const char *path) {
        static const char *const names[] = { "tests", "test", "testing", "spec", "__tests__" };
        char start[PATCH_PATH_MAX];
        for (const char *p = path, *slash; (slash = strchr(p, '/')); p = slash + 1) {
                size_t n = (size_t)(slash - p), end = (size_t)(slash - path) + 1;
                for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                        if (strlen(names[i]) != n || memcmp(p, names[i], n) != 0)
                                continue;
                        snprintf(start, sizeof start, "%.*s", (int)MIN2(end, sizeof start - 1), path);
                        if (i == 0 || (i == 1 && p == path) || has_below(s->tests, start))
                                return true;
                }
        }
        return false;
}

/* Has a module more than blank lines and comments? */
static bool says_something(int root, const char *path) {
        CLEANUP(entry_release) struct entry en = { 0 };
        if (tree_read(root, path, &en) < 0 || en.type != ENTRY_FILE)
                return true;
        const char *p = (const char *)en.data, *end = p ? p + en.len : p;
        while (p < end) {
                const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end;
                while (p < stop && (*p == ' ' || *p == '\t' || *p == '\r'))
                        p++;
                if (p < stop && *p != '#')
                        return true;
                p = nl ? nl + 1 : end;
        }
        return false;
}

/* What tests lean on (helpers, base classes, data, what their package does when it is imported) decides what they say. A test module is
 * its own matter: others name it, or nobody does. */
static int test_support(struct state *s, const char *path) {
        const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
        size_t n = strlen(base);
        bool python = n > 3 && strcmp(base + n - 3, ".py") == 0, init = strcmp(base, "__init__.py") == 0;
        bool test = python && (strncmp(base, "test_", 5) == 0 || strcmp(base, "tests.py") == 0 || (n > 8 && strcmp(base + n - 8, "_test.py") == 0));
        bool was = exists(s->j->base, path, 0, path, strlen(path), "");
        if (test && was && s->look)
                return emit_finding(s, WEIGHT_SUSPECT, "test_file_changed", path, "");
        char start[PATCH_PATH_MAX + 1];
        snprintf(start, sizeof start, "%.*s", slash ? (int)(slash - path) + 1 : 0, path);
        bool holds_tests = slash && has_below(s->tests, start);
        if (s->look && python && was && !is_among_tests(s, path))
                return emit_finding(s, WEIGHT_SUSPECT, "source_changed", path, "");
        if (test || (!is_among_tests(s, path) && !(init && holds_tests)))
                return 0;
        bool known = holds_tests || (slash && exists(s->j->base, path, (size_t)(slash - path), "", 0, ""));
        if (!was && !(init && known && says_something(s->j->tree, path)))
                return 0;
        return emit_finding(s, WEIGHT_SUSPECT, "test_support_edited", path, "tests may lean on it; left as patched");
}

/* pytest puts a test file's directory before the others: "tests/NAME.py" is taken before the "NAME" that base has at the top, or in "src". */
static int before_other_root(struct state *s, const char *path, const char *module, size_t len, size_t dir_len) {
        static const char *const roots[] = { "", "src/", "lib/" };
        char dir[PATCH_PATH_MAX];
        snprintf(dir, sizeof dir, "%.*s", (int)MIN2(dir_len, sizeof dir - 1), path);
        if (dir_len == 0 || !has_below(s->tests, dir))
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
                char other[PATCH_PATH_MAX + 8];
                int n = snprintf(other, sizeof other, "%s%.*s", roots[i], (int)len, module);
                if (strcmp(dir, roots[i]) != 0 && n < (int)sizeof other &&
                    (exists(s->j->base, other, (size_t)n, "", 0, ".py") || exists(s->j->base, other, (size_t)n, "", 0, "/__init__.py")))
                        return emit_finding(s, WEIGHT_SUSPECT, "shadowing_module", path, "takes the place of a module of that name for the tests beside it; left as patched");
        }
        return 0;
}

static bool is_in_image(struct state *s, const char *module, size_t len) {
        const struct apply_base *b = &s->j->image;
        return config_is_installed(b->root, "usr/", module, len) || (fcntl(b->usr, F_GETFD) >= 0 && config_is_installed(b->usr, "", module, len));
}

static int config_file(struct state *s, const char *path, unsigned *n_shared) {
        const char *module;
        char package[PATCH_PATH_MAX + 16];
        size_t len = 0, dir_len = 0;
        if (is_installed(s, path) && !(s->look && !exists(s->j->base, path, 0, path, strlen(path), "")))
                return reset(s, path, "runner_config_changed", "part of what is installed in the tree; put back to base");
        enum config_class class = config_classify(path, &module, &len, &dir_len);
        /* A link of a module's name may lead to a directory that is one. */
        if (class == CONFIG_NONE && !module && is_link(s->j->tree, path)) {
                snprintf(package, sizeof package, "%s/__init__.py", path);
                class = config_classify(package, &module, &len, &dir_len);
        }
        bool gone = false;
        int r = module ? beside_test(s, class, path, module, len, dir_len, &gone) : 0;
        if (r == 0 && !gone && !s->look && module && is_new_module(s, path, module, len, dir_len))
                r = emit(s, FRAME_MODULE, path);
        if (r == 0 && !gone && class == CONFIG_NONE && module && is_new_module(s, path, module, len, dir_len))
                r = before_other_root(s, path, module, len, dir_len);
        if (r == 0 && !gone && (class == CONFIG_NONE || class == CONFIG_LIBRARY))
                r = test_support(s, path);
        if (r < 0 || gone)
                return r;
        switch (class) {
        case CONFIG_RUNNER:
                return reset(s, path, "runner_config_changed", "configures the test runner; put back to base");
        case CONFIG_BYTECODE:
                return reset(s, path, "stale_bytecode", "compiled code; put back to base");
        case CONFIG_SHADOW:
                return is_shadow(s, path, module, len, dir_len) ? reset(s, path, "shadowing_module", "takes the place of a module of the test runner; put back to base") : 0;
        case CONFIG_LIBRARY:
                return is_shadow(s, path, module, len, dir_len) ? emit_finding(s, WEIGHT_SUSPECT, "shadowing_module", path, "takes the place of a module of the standard library, or of one that the test runner uses") : 0;
        case CONFIG_SHARED:
                return shared_file(s, path, n_shared);
        case CONFIG_FOREIGN:
                return emit_finding(s, WEIGHT_SUSPECT, "runner_config_changed", path, "configures a test runner; left as patched");
        default:
                if (!module || !s->j->command || !is_shadow(s, path, module, len, dir_len) || !is_in_image(s, module, len))
                        return 0;
                return emit_finding(s, WEIGHT_SUSPECT, "shadowing_module", path, "takes the place of an installed module, which may be a plugin of the runner");
        }
}

/* ---- what a run wrote ------------------------------------------------------------------------------------------------------- */

/* What an installation writes. */
static bool is_installers(struct state *s, const char *path) {
        CLEANUP(entry_release) struct entry en = { 0 };
        const char *module;
        size_t len, dir_len;
        return config_classify(path, &module, &len, &dir_len) == CONFIG_RUNNER && tree_read(s->j->tree, path, &en) == 0 && en.type == ENTRY_FILE &&
               config_is_passive(path, en.data, en.len);
}

/* In a directory that the base has, or that holds files of the test patch: what stands elsewhere configures no test of theirs. */
static bool is_in_known_directory(struct state *s, const char *path) {
        const char *slash = strrchr(path, '/');
        char start[PATCH_PATH_MAX + 1];
        /* A package and a project's metadata stand where their directory does. */
        if (slash && (strcmp(slash, "/__init__.py") == 0 || strcmp(slash, "/entry_points.txt") == 0))
                for (slash--; slash >= path && *slash != '/'; slash--)
                        ;
        if (slash && slash < path)
                slash = NULL;
        snprintf(start, sizeof start, "%.*s", slash ? (int)(slash - path) + 1 : 0, path);
        return !slash || exists(s->j->base, path, (size_t)(slash - path), "", 0, "") || has_below(s->tests, start);
}

int apply_job_look(struct apply_job *j, char **tests, char **written, struct error *e) {
        struct state s = { .j = j, .tests = tests, .look = true, .e = e };
        unsigned n_shared = 0;
        int r = 0;
        for (char **p = written; p && *p && r == 0; p++)
                if (covers(j->protect, *p))
                        r = emit_finding(&s, WEIGHT_SUSPECT, "test_file_changed", *p, "");
                else if (!covers(j->allow, *p) && is_in_known_directory(&s, *p) && !is_installers(&s, *p))
                        r = config_file(&s, *p, &n_shared);
        return r;
}

static int config_stage(struct state *s) {
        unsigned n_shared = 0;
        int r = 0;
        for (char **p = s->touched; p && *p && r == 0; p++)
                if (!has(s->tests, *p) && !covers(s->j->allow, *p) && !covers(s->j->protect, *p))
                        r = config_file(s, *p, &n_shared);
        return r;
}

/* ---- the gold test patch ------------------------------------------------------------------------------------------------------- */

static int gold_stage(struct state *s) {
        struct apply_job *j = s->j;
        CLEANUP(plan_release) struct patch_plan plan = { 0 };
        struct patch_source src = { tree_source_read, &j->tree };
        struct error why = { 0 };
        /* Strict, or what has one meaning only: data sets cut off a patch's last newline and blank lines. */
        int r = patch_plan(j->test_patch, j->test_patch_len, PATCH_REPAIR, &src, &plan, &why);
        if (r == 0)
                r = tree_write(j->tree, &plan, &why);
        if (r == -EPERM || r == -EBADMSG)
                return emit(s, FRAME_TEST_REJECTED, why.text);
        if (r < 0)
                return error_say(s->e, r, "%s", why.text);
        return emit(s, FRAME_TEST_OK, "");
}

static int tell_command(void *user, const char *path) {
        struct state *s = user;
        if (has(s->tests, path) || covers(s->j->allow, path) || covers(s->j->protect, path))
                return 0;
        return emit_finding(s, WEIGHT_SUSPECT, "command_file_edited", path, "a file that the test command runs by runs it; left as patched");
}

/* A test that is a link, or behind one, is the file that it leads to. */
static int linked_tests(struct state *s, char **paths) {
        char target[PATCH_PATH_MAX + 1];
        int r = 0;
        for (; paths && *paths && r == 0; paths++)
                if (tree_resolve(s->j->tree, *paths, target) && has(s->touched, target) && !has(s->tests, target) && !covers(s->j->allow, target) &&
                    !covers(s->j->protect, target))
                        r = emit_finding(s, WEIGHT_SUSPECT, "test_file_edited", target, "a link leads here from a file of the test patch or of the ids; left as patched");
        return r;
}

/* What was put back is in the report. */
static int restored_paths(struct state *s, size_t start, char ***ret) {
        enum apply_frame type;
        const char *p;
        size_t n, count = 0, at = start;
        int r = 0;
        while (r == 0 && frame_next(s->j->out->data, s->j->out->len, &at, &type, &p, &n) == 1)
                if (type == FRAME_RESTORED)
                        r = strv_append_take(ret, &count, strndup(p, n));
        return r;
}

static int seal_stage(struct state *s, size_t start) {
        struct apply_job *j = s->j;
        _cleanup_strv_ char **restored = NULL;
        struct seal seal = { .repo_path = j->repo_path, .tree = j->tree, .tests = s->tests, .named = j->named, .protect = j->protect, .allow = j->allow,
                             .touched = s->touched, .watch_fd = j->watch_fd };
        int r = restored_paths(s, start, &restored);
        seal.restored = restored;
        if (r == 0)
                r = seal_make(&seal, j->seal, s->e);
        if (r != -ENOMEM && r != -ENOSPC)
                return r;
        buf_reset(j->seal);     /* the patch is too large for one, which is told in the end */
        return 0;
}

static int stages(struct state *s) {
        struct error ignored;
        size_t start = s->j->out->len;
        if (s->j->seal)
                buf_reset(s->j->seal);
        /* An unreadable test patch names nothing; applying it says why. */
        int r = patch_paths(s->j->test_patch, s->j->test_patch_len, &s->tests, &ignored);
        if (r == -ENOMEM)
                return no_memory(s);
        r = agent_stage(s);
        if (r == 0 && s->j->diff)
                r = diff_stage(s);
        for (char **p = s->tests; p && *p && r == 0; p++)
                r = emit(s, FRAME_TEST_FILE, *p);
        if (r == 0) r = reset_stage(s);
        if (r == 0) r = config_stage(s);
        if (r == 0 && s->j->command) r = apply_command_find(s->j->base, s->j->command, s->touched, tell_command, s);
        if (r == 0) r = gold_stage(s);
        if (r == 0) r = linked_tests(s, s->tests);
        if (r == 0) r = linked_tests(s, s->j->named);
        return r == 0 && s->j->seal ? seal_stage(s, start) : r;
}

int apply_job_run(struct apply_job *j, struct error *e) {
        size_t start = j->out->len;
        struct state s = { .j = j, .e = e };
        int r = stages(&s);
        if ((is_room(r) || r == -ENOMEM) && !j->undo) {
                j->out->len = start;
                j->undo = r == -ENOMEM ? "the patch takes more memory to apply than there is" : "the patch leaves no room in the tree for the test files";
                s.again = true;
                s.written = TAKE_PTR(s.touched);
                s.tests = strv_free(s.tests);
                r = stages(&s);
        }
        strv_free(s.touched);
        strv_free(s.written);
        strv_free(s.tests);
        return r;
}
