#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/strv.h"
#include "score/apply_config.h"
#include "score/apply_tree.h"
#include "score/seal_private.h"

struct list { char **v; size_t n; };

struct checking {
        const struct seal_view *v;
        struct apply_job job;                  /* for its rules */
        char *repo_path;
        struct list tests, touched, marked, written;
        char *watched[SEAL_WATCHES_MAX];       /* by the number of the watch less one: a directory of the tree, or from "/" on */
        unsigned told;
        struct error *e;
};

static int take(struct list *l, const char *p, size_t n) { return strv_append_take(&l->v, &l->n, strndup(p, n)); }

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has(const struct list *l, const char *path) { return l->n > 0 && bsearch(&path, l->v, l->n, sizeof *l->v, by_text); }

static int tell(struct checking *c, const char *kind, const char *path, const char *detail) {
        char text[2 * PATCH_PATH_MAX];
        if (c->told++ >= SEAL_FINDINGS_MAX)
                return 0;
        int n = snprintf(text, sizeof text, "%d%s%c%s%c%s", WEIGHT_SUSPECT, kind, 0, path, 0, detail);
        return frame_add(c->job.out, FRAME_FINDING, text, MIN2((size_t)n, sizeof text - 1));
}

/* ---- the marks ------------------------------------------------------------------------------------------------------------------ */

static int compare(struct checking *c, const char *path, const struct mark *was) {
        struct mark now;
        int r = seal_mark(c->job.tree, path, was->has_hash, &now);
        if (r < 0 && r != -EACCES && r != -ELOOP)
                return r;
        if (r == 0 && memcmp(&now, was, sizeof now) == 0)
                return 0;
        const char *module;
        size_t n, dir_len;
        enum config_class class = config_classify(path, &module, &n, &dir_len);
        const char *kind = class == CONFIG_RUNNER || class == CONFIG_SHARED ? "runner_config_changed" : "test_file_changed";
        return tell(c, kind, path, now.mode && was->mode ? "written while the tests ran" : now.mode ? "made while the tests ran" : "removed while the tests ran");
}

static int read_frame(struct checking *c, enum apply_frame type, const char *p, size_t n) {
        const char *end = memchr(p, 0, n), *rest = end ? end + 1 : NULL;
        struct mark mark;
        int wd;
        switch (type) {
        case FRAME_REPO_PATH: c->repo_path = strndup(p, n); return c->repo_path ? 0 : -ENOMEM;
        case FRAME_TEST_FILE: return take(&c->tests, p, n);
        case FRAME_TOUCHED: return take(&c->touched, p, n);
        case FRAME_PROTECT: return strv_push_n(&c->job.protect, p, n);
        case FRAME_ALLOW: return strv_push_n(&c->job.allow, p, n);
        case FRAME_MARK:
                return rest && p + n - rest == sizeof mark ? take(&c->marked, p, strlen(p)) : -EBADMSG;
        case FRAME_DIRECTORY:
                if (!rest || p + n - rest != sizeof wd)
                        return -EBADMSG;
                memcpy(&wd, rest, sizeof wd);
                if (wd <= 0 || wd > (int)SEAL_WATCHES_MAX || c->watched[wd - 1])
                        return 0;              /* two names of one directory: the first */
                c->watched[wd - 1] = strdup(p);
                return c->watched[wd - 1] ? 0 : -ENOMEM;
        default: return -EBADMSG;
        }
}

static int read_seal(struct checking *c, const char *seal, size_t len) {
        enum apply_frame type;
        const char *p;
        size_t at = 0, n;
        int r = 0, more = 0;
        while (r == 0 && (more = frame_next(seal, len, &at, &type, &p, &n)) == 1)
                r = read_frame(c, type, p, n);
        struct list *const lists[] = { &c->tests, &c->touched, &c->marked };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                if (lists[i]->v)
                        strv_sort(lists[i]->v);
        return r < 0 ? r : more < 0 || !c->repo_path ? -EBADMSG : 0;
}

static int compare_all(struct checking *c, const char *seal, size_t len) {
        enum apply_frame type;
        const char *p;
        size_t at = 0, n;
        int r = 0;
        while (r == 0 && frame_next(seal, len, &at, &type, &p, &n) == 1) {
                struct mark mark;
                if (type != FRAME_MARK)
                        continue;
                memcpy(&mark, p + strlen(p) + 1, sizeof mark);
                r = compare(c, p, &mark);
        }
        return r;
}

/* ---- what else was written ------------------------------------------------------------------------------------------------------ */

struct plane { struct checking *c; const char *in_plane, *name; };

/* The part of `path` that is a directory of compiled code, or stands in its place, and what follows; or NULL. */
static const char *compiled_dir(const char *path) {
        static const char name[] = "__pycache__";
        for (const char *p = path; (p = strstr(p, name)); p += sizeof name - 1)
                if ((p == path || p[-1] == '/') && (p[sizeof name - 1] == 0 || p[sizeof name - 1] == '/'))
                        return p;
        return NULL;
}

/* "dir/__pycache__/NAME.TAG.pyc" runs in the place of "dir/NAME.py" where it says that it was made of that. NAME and TAG may have dots. */
static int on_compiled(struct checking *c, const char *path, const char *dir) {
        static const char detail[] = "compiled code of a test, which no run of these tests writes by itself, was made or changed while the tests ran";
        const char *name = strchr(dir, '/'), *module;
        char source[PATCH_PATH_MAX + 8];
        size_t n, dir_len;
        if (!name)
                return tell(c, "test_file_changed", path, "stands in the place of a directory of compiled code");
        for (const char *dot = strchr(++name, '.'); dot && !strchr(name, '/'); dot = strchr(dot + 1, '.')) {
                snprintf(source, sizeof source, "%.*s%.*s.py", (int)(dir - path), path, (int)(dot - name), name);
                bool runner = config_classify(source, &module, &n, &dir_len) == CONFIG_RUNNER;         /* a conftest: only pytest imports it */
                if (!runner && !has(&c->marked, source))
                        continue;
                return tell(c, runner ? "runner_config_changed" : "test_file_changed", path, detail);
        }
        return 0;
}

static bool read_whole(int at, const char *path, struct stat *ret_st, struct buf *ret) {
        _cleanup_close_ int fd = fs_open_beneath(at, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
        return fd >= 0 && fstat(fd, ret_st) == 0 && S_ISREG(ret_st->st_mode) && ret_st->st_size <= (off_t)SEAL_COMPARE_MAX && fs_read_fd(fd, ret) == 0;
}

/* A test that tries to write often writes what was there. Of code and of what configures the runner that is no excuse. */
static bool is_data_as_before(const struct checking *c, const char *path) {
        const char *module, *suffix = strrchr(path, '.');
        size_t n, dir_len;
        if ((suffix && strcmp(suffix, ".py") == 0) || config_classify(path, &module, &n, &dir_len) != CONFIG_NONE)
                return false;
        _cleanup_buf_ struct buf was = BUF_INIT(SEAL_COMPARE_MAX + 1), now = BUF_INIT(SEAL_COMPARE_MAX + 1);
        struct stat a, b;
        return read_whole(c->job.base, path, &a, &was) && read_whole(c->job.tree, path, &b, &now) && a.st_mode == b.st_mode && was.len == now.len &&
               memcmp(was.data, now.data, was.len) == 0;
}

/* What the patch wrote itself is its own matter; where it configures the runner there is a mark. */
static int on_tree(void *user, const char *path, bool was_there) {
        struct plane *p = user;
        size_t n = strlen(p->in_plane);
        const char *inside = path + n + (n > 0), *dir = compiled_dir(inside), *suffix = strrchr(inside, '.');
        if (dir && !strchr(dir, '/') && !has(&p->c->marked, inside))
                return on_compiled(p->c, inside, dir);
        if (has(&p->c->marked, inside) || has(&p->c->touched, inside))
                return 0;
        if (dir || (suffix && strcmp(suffix, ".pyc") == 0))
                return p->c->v->no_bytecode && dir ? on_compiled(p->c, inside, dir) : 0;
        return p->c->v->launched && was_there && is_data_as_before(p->c, inside) ? 0 : take(&p->c->written, inside, strlen(inside));
}

static int on_rest(void *user, const char *path, bool was_there) {
        struct plane *p = user;
        char whole[PATCH_PATH_MAX + 8];
        snprintf(whole, sizeof whole, "%s%s%s", p->name, *p->name ? "/" : "", path);
        const char *why = seal_outside(p->c->v, whole, was_there);
        return why ? tell(p->c, "runner_changed", whole, why) : 0;
}

/* ---- what was there for a while ------------------------------------------------------------------------------------------------- */

static bool is_there(int at, const char *path) {
        struct stat st;
        return seal_is_open(at) && tree_stat(at, path, &st) == 0 && st.st_mode != 0;
}

/* Made in a watched directory of the tree, and gone again. A run that the launcher collects has read what configures it before that. */
static int on_passing(struct checking *c, const char *path, bool is_dir) {
        static const char detail[] = "made and removed again while the tests ran";
        char package[PATCH_PATH_MAX + 16];
        const char *module, *compiled = compiled_dir(path);
        size_t n, dir_len;
        if (c->v->launched || is_there(c->job.tree, path) || is_there(c->job.base, path) || has(&c->marked, path) || has(&c->touched, path))
                return 0;
        if (compiled && !c->v->no_bytecode)
                return 0;
        if (compiled)
                return strchr(compiled, '/') ? on_compiled(c, path, compiled) : tell(c, "test_file_changed", path, detail);
        enum config_class class = config_classify(path, &module, &n, &dir_len);
        if (is_dir && class == CONFIG_NONE) {
                snprintf(package, sizeof package, "%s/__init__.py", path);
                class = config_classify(package, &module, &n, &dir_len);
                module = class == CONFIG_NONE ? NULL : module;
        }
        if (class == CONFIG_NONE && !module)
                return 0;
        return tell(c, class == CONFIG_RUNNER || class == CONFIG_SHARED || class == CONFIG_FOREIGN ? "runner_config_changed" : "shadowing_module", path, detail);
}

static int on_made(struct checking *c, const char *dir, const char *name, bool is_dir) {
        char path[PATCH_PATH_MAX + 1];
        bool outside = *dir == '/';
        if (snprintf(path, sizeof path, "%s%s%s", dir + outside, dir[outside] ? "/" : "", name) >= (int)sizeof path)
                return 0;
        if (!outside)
                return on_passing(c, path, is_dir);
        const char *why = c->v->launched || is_dir || is_there(c->v->root, path) ? NULL : seal_outside(c->v, path, false);
        return why ? tell(c, "runner_changed", path, why) : 0;
}

static int on_event(struct checking *c, const struct inotify_event *ev) {
        if (ev->mask & IN_Q_OVERFLOW)
                return c->v->launched ? 0 : tell(c, "many_files_written", "", "more happened beside the tests than the kernel remembers");
        const char *dir = ev->wd > 0 && ev->wd <= (int)SEAL_WATCHES_MAX ? c->watched[ev->wd - 1] : NULL;
        if (!dir)
                return 0;
        if (ev->mask & (IN_MOVE_SELF | IN_DELETE_SELF))
                return *dir == '/' ? 0 : tell(c, "test_file_changed", dir, "a directory above test files was moved while the tests ran");
        return ev->mask & (IN_CREATE | IN_MOVED_TO) && ev->len > 0 ? on_made(c, dir, ev->name, ev->mask & IN_ISDIR) : 0;
}

static int read_watches(struct checking *c) {
        char space[4096] __attribute__((aligned(8)));
        int r = 0;
        for (ssize_t n; r == 0 && c->v->watch_fd >= 0 && (n = read(c->v->watch_fd, space, sizeof space)) > 0;)
                for (char *p = space; p < space + n && r == 0; p += sizeof(struct inotify_event) + ((const struct inotify_event *)p)->len)
                        r = on_event(c, (const void *)p);
        return r;
}

bool seal_is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/* The plane that a path is in, and the path in it. */
static int plane_of(const struct seal_view *v, const char *path, const char **ret) {
        while (*path == '/')
                path++;
        int k = strncmp(path, "usr/", 4) == 0 && seal_is_open(v->upper[1]) ? 1 : strncmp(path, "opt/", 4) == 0 && seal_is_open(v->upper[2]) ? 2 : 0;
        *ret = path + (k ? 4 : 0);
        return k;
}

static int look(struct checking *c) {
        static const char *const names[] = { "", "usr", "opt" };
        const struct seal_view *v = c->v;
        const int bases[] = { v->base.root, v->base.usr, v->base.opt };
        const char *at;
        int home = plane_of(v, c->repo_path, &at);
        struct plane p = { c, at, names[home] };
        struct seal_walk w = { .left = SEAL_WRITTEN_MAX, .compiled = v->no_bytecode, .found = on_tree, .user = &p };
        if (!seal_is_open(v->upper[home]))
                return 0;
        _cleanup_close_ int plane = home ? openat(v->root, names[home], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : fcntl(v->root, F_DUPFD_CLOEXEC, 20);
        int r = seal_walk(&w, v->upper[home], seal_is_open(bases[home]) ? bases[home] : -1, plane, at);
        w.found = on_rest;
        w.compiled = false;
        for (int k = 0; k < 3 && r == 0; k++) {
                p.name = names[k];
                w.skip = k == home ? at : NULL;
                if (seal_is_open(v->upper[k]))
                        r = seal_walk(&w, v->upper[k], seal_is_open(bases[k]) ? bases[k] : -1, -1, "");
        }
        if (c->written.v)
                strv_sort(c->written.v);
        if (r == -E2BIG)
                r = tell(c, "many_files_written", "", "more files were written while the tests ran than are looked at");
        return r < 0 ? r : apply_job_look(&c->job, c->tests.v, c->written.v, c->e);
}

int seal_check(const char *seal, size_t len, const struct seal_view *v, struct buf *out, struct error *e) {
        struct checking c = { .v = v, .job = { .tree = -1, .base = -1, .out = out }, .e = e };
        int r = read_seal(&c, seal, len);
        if (r == 0) r = apply_open_tree(v->root, c.repo_path, &c.job.tree);
        if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
                r = tell(&c, "test_file_changed", "", "the tree itself was removed while the tests ran");
        else if (r == 0) {
                r = apply_open_base(&v->base, c.repo_path, &c.job.base);
                if (r == 0) r = read_watches(&c);
                if (r == 0) r = compare_all(&c, seal, len);
                if (r == 0) r = look(&c);
        }
        fd_close(c.job.tree);
        fd_close(c.job.base);
        strv_free(c.job.protect);
        strv_free(c.job.allow);
        strv_free(c.tests.v);
        strv_free(c.touched.v);
        strv_free(c.marked.v);
        strv_free(c.written.v);
        for (size_t i = 0; i < ARRAY_SIZE(c.watched); i++)
                free(c.watched[i]);
        free(c.repo_path);
        return r < 0 && e->code >= 0 ? error_set(e, r, "look again at the tree") : r;
}
