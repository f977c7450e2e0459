#define OPENSSL_SUPPRESS_DEPRECATED        /* see archive/inflow.c */
#include <dirent.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/strv.h"
#include "score/apply_config.h"
#include "score/apply_tree.h"
#include "score/apply_wire.h"
#include "score/seal_private.h"

int seal_mark(int tree, const char *path, bool contents, struct mark *ret) {
        CLEANUP(entry_release) struct entry en = { 0 };
        struct stat st;
        SHA256_CTX sha;
        memset(ret, 0, sizeof *ret);           /* it is compared as bytes */
        int r = tree_stat(tree, path, &st);
        if (r < 0 || st.st_mode == 0)
                return r;
        ret->mode = st.st_mode;
        ret->ino = st.st_ino;
        ret->size = S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_size;
        ret->sec = S_ISDIR(st.st_mode) ? 0 : st.st_ctim.tv_sec;
        ret->nsec = S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_ctim.tv_nsec;
        if (!contents || !(S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
                return 0;
        r = tree_read(tree, path, &en);
        if (r < 0)
                return r == -EFBIG ? 0 : r;
        ret->has_hash = 1;
        SHA256_Init(&sha);
        SHA256_Update(&sha, en.data ? en.data : "", en.len);
        SHA256_Final(ret->hash, &sha);
        return 0;
}

struct making { const struct seal *s; struct buf *out; struct timespec newest; char **directories; size_t n_directories; };

static int add_pair(struct buf *out, enum apply_frame type, const char *path, const void *p, size_t n) {
        _cleanup_buf_ struct buf b = BUF_INIT(PATCH_PATH_MAX + n + 1);
        int r = buf_add(&b, path, strlen(path) + 1);
        if (r == 0) r = buf_add(&b, p, n);
        return r == 0 ? frame_add(out, type, b.data, b.len) : r;
}

/* Directories above the file: known ones end the way up. */
static int note_directories(struct making *m, const char *path) {
        char part[PATCH_PATH_MAX + 1];
        int r = 0;
        snprintf(part, sizeof part, "%s", path);
        for (char *slash; r == 0 && m->n_directories < SEAL_DIRECTORIES_MAX && (slash = strrchr(part, '/'));) {
                *slash = 0;
                if (strv_contains((const char *const *)m->directories, part))
                        return 0;
                r = strv_append_take(&m->directories, &m->n_directories, strdup(part));
        }
        return r;
}

static int mark_one(struct making *m, const char *path, bool written) {
        struct mark mark;
        int r = seal_mark(m->s->tree, path, written, &mark);
        if (r < 0 || (!written && !mark.mode))
                return r;
        if (mark.sec > m->newest.tv_sec || (mark.sec == m->newest.tv_sec && (long)mark.nsec > m->newest.tv_nsec))
                m->newest = (struct timespec){ mark.sec, (long)mark.nsec };
        r = add_pair(m->out, FRAME_MARK, path, &mark, sizeof mark);
        return r == 0 ? note_directories(m, path) : r;
}

/* And what they lead to, where they are links. */
static int mark_all(struct making *m, char **paths, bool written) {
        char target[PATCH_PATH_MAX + 1];
        int r = 0;
        for (; paths && *paths && r == 0; paths++) {
                r = mark_one(m, *paths, written);
                if (r == 0 && tree_resolve(m->s->tree, *paths, target))
                        r = mark_one(m, target, false);
        }
        return r;
}

/* Of what the patch wrote, what configures the runner as well. */
static int mark_touched(struct making *m) {
        int r = 0;
        for (char **p = m->s->touched; p && *p && r == 0; p++) {
                const char *module;
                size_t n, dir_len;
                enum config_class class = config_classify(*p, &module, &n, &dir_len);
                if (class == CONFIG_RUNNER || class == CONFIG_SHARED)
                        r = mark_all(m, (char *[]){ *p, NULL }, true);
        }
        return r;
}

static int add_names(struct buf *out, enum apply_frame type, char **names) {
        int r = 0;
        for (; names && *names && r == 0; names++)
                r = frame_adds(out, type, *names);
        return r;
}

/* ---- watches -------------------------------------------------------------------------------------------------------------------- */

/* One that no watch can be had for (the machine's limit) goes without. `name`: as seal_check is to call it. */
static int watch(struct making *m, int at, const char *path, const char *name) {
        _cleanup_close_ int dir = fs_open_beneath(at, *path ? path : ".", O_PATH | O_DIRECTORY, 0);
        if (dir < 0 || fchdir(dir) < 0)
                return 0;
        int wd = inotify_add_watch(m->s->watch_fd, ".", IN_MOVE_SELF | IN_DELETE_SELF | IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
        return wd >= 0 ? add_pair(m->out, FRAME_DIRECTORY, name, &wd, sizeof wd) : 0;
}

/* Of the tree: its top, what is above test files, and the compiled code in both. */
static int watch_tree(struct making *m) {
        char compiled[PATCH_PATH_MAX + 16];
        int r = watch(m, m->s->tree, "", "");
        if (r == 0) r = watch(m, m->s->tree, "__pycache__", "__pycache__");
        for (char **p = m->directories; p && *p && r == 0; p++) {
                snprintf(compiled, sizeof compiled, "%s/__pycache__", *p);
                r = watch(m, m->s->tree, *p, *p);
                if (r == 0) r = watch(m, m->s->tree, compiled, compiled);
        }
        return r;
}

/* Where each Python of the image looks for modules by itself: "lib/python*" and its packages. */
static int watch_libraries(struct making *m, int root, const char *lib) {
        static const char *const below[] = { "", "/site-packages", "/dist-packages" };
        _cleanup_close_ int fd = fs_open_beneath(root, lib, O_RDONLY | O_DIRECTORY, 0);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        int r = 0;
        if (d)
                fd = -1;
        for (struct dirent *de; d && r == 0 && (de = readdir(d));)
                for (size_t i = 0; i < ARRAY_SIZE(below) && r == 0 && strncmp(de->d_name, "python", 6) == 0; i++) {
                        char path[PATCH_PATH_MAX];
                        if (snprintf(path, sizeof path, "/%s/%s%s", lib, de->d_name, below[i]) < (int)sizeof path)
                                r = watch(m, root, path + 1, path);
                }
        if (d)
                closedir(d);
        return r;
}

/* Of the rest: where programs and modules stand that every run begins with, and the tree's parents, where pytest looks for an ini file. */
static int watch_outside(struct making *m, int root) {
        static const char *const programs[] = { "usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin" };
        static const char *const libraries[] = { "usr/lib", "usr/local/lib", "root/.local/lib" };
        char part[PATCH_PATH_MAX + 1];
        int r = 0;
        for (size_t i = 0; i < ARRAY_SIZE(programs) && r == 0; i++) {
                snprintf(part, sizeof part, "/%s", programs[i]);
                r = watch(m, root, programs[i], part);
        }
        for (size_t i = 0; i < ARRAY_SIZE(libraries) && r == 0; i++)
                r = watch_libraries(m, root, libraries[i]);
        snprintf(part, sizeof part, "%s", m->s->repo_path);
        for (char *slash; r == 0 && (slash = strrchr(part, '/'));) {
                *slash = 0;
                r = watch(m, root, part + (*part == '/'), *part ? part : "/");
        }
        return r;
}

static int watch_all(struct making *m) {
        _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (m->s->watch_fd < 0 || root < 0)
                return 0;
        int r = watch_tree(m);
        if (r == 0) r = watch_outside(m, root);
        (void)!chdir("/");
        return r;
}

/* Until the clock that stamps files shows another time than the newest mark. */
static void let_tick(const struct timespec *newest) {
        struct timespec tick, now, until = *newest;
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec - newest->tv_sec > 1 || newest->tv_sec > now.tv_sec || clock_getres(CLOCK_REALTIME_COARSE, &tick) < 0)
                return;                        /* long ago, or the clock was set */
        until.tv_nsec += tick.tv_nsec + 1;
        if (until.tv_nsec >= (long)NS_PER_S) {
                until.tv_nsec -= (long)NS_PER_S;
                until.tv_sec++;
        }
        clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL);
}

int seal_make(const struct seal *s, struct buf *out, struct error *e) {
        struct making m = { .s = s, .out = out };
        int r = frame_adds(out, FRAME_REPO_PATH, s->repo_path);
        if (r == 0) r = add_names(out, FRAME_TEST_FILE, s->tests);
        if (r == 0) r = add_names(out, FRAME_TOUCHED, s->touched);
        if (r == 0) r = add_names(out, FRAME_PROTECT, s->protect);
        if (r == 0) r = add_names(out, FRAME_ALLOW, s->allow);
        if (r == 0) r = mark_all(&m, s->tests, true);
        if (r == 0) r = mark_all(&m, s->restored, true);
        if (r == 0) r = mark_all(&m, s->protect, false);
        if (r == 0) r = mark_all(&m, s->named, false);
        if (r == 0) r = mark_touched(&m);
        if (r == 0) r = watch_all(&m);
        strv_free(m.directories);
        if (r < 0)
                return error_set(e, r, "note what is in place");
        let_tick(&m.newest);
        return 0;
}
