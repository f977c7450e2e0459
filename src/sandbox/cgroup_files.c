/* Control files and cgroup directories: reading, writing, finding, killing, removing. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "sandbox/cgroup_backend.h"

#define CG_KILL_ROUNDS 64     /* a fork bomb that is not frozen is chased this often */
#define CG_DEPTH_MAX 8

static int join(char *to, size_t size, const char *group, const char *file) {
        int n = snprintf(to, size, "%s%s%s", group ? group : "", group && file ? "/" : "", file ? file : "");
        return n >= (int)size ? -ENAMETOOLONG : 0;
}

int cg_write(int dirfd, const char *group, const char *file, const char *fmt, ...) {
        char path[256], value[128];
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(value, sizeof value, fmt, ap);
        va_end(ap);
        if (n < 0 || n >= (int)sizeof value)
                return -EOVERFLOW;
        int r = join(path, sizeof path, group, file);
        if (r < 0)
                return r;
        _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return write(fd, value, (size_t)n) == n ? 0 : -errno;
}

int cg_read(int dirfd, const char *group, const char *file, char ret_text[static CG_FILE_MAX]) {
        char path[256];
        int r = join(path, sizeof path, group, file);
        if (r < 0)
                return r;
        _cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        ssize_t n = read(fd, ret_text, CG_FILE_MAX - 1);
        if (n < 0)
                return -errno;
        ret_text[n] = 0;
        return 0;
}

int64_t cg_read_number(int dirfd, const char *group, const char *file, const char *key) {
        char text[CG_FILE_MAX];
        if (cg_read(dirfd, group, file, text) < 0)
                return -1;
        const char *at = text;
        if (key) {
                size_t n = strlen(key);
                while (at && (strncmp(at, key, n) != 0 || at[n] != ' ')) {
                        at = strchr(at, '\n');
                        at = at ? at + 1 : NULL;
                }
                if (!at)
                        return -1;
                at += n + 1;
        }
        if (*at < '0' || *at > '9')
                return -1;   /* "max" */
        uint64_t v = strtoull(at, NULL, 10);
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

/* ---- mounts ---- */

static bool has_word(const char *list, const char *word) {
        size_t n = strlen(word);
        for (const char *at = list; (at = strstr(at, word)); at++)
                if ((at == list || at[-1] == ',' || at[-1] == ' ') && (at[n] == 0 || at[n] == ',' || at[n] == ' ' || at[n] == '\n'))
                        return true;
        return false;
}

static const char *const v1_names[CG_HIERARCHY_MAX] = { NULL, "memory", "pids", "cpu" };

struct own_groups { char path[CG_HIERARCHY_MAX][200]; };

static int read_own_groups(struct own_groups *o) {
        _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
        if (!f)
                return -errno;
        char line[600];
        while (fgets(line, sizeof line, f)) {
                char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
                if (!path)
                        continue;
                *path++ = 0;
                controllers++;
                path[strcspn(path, "\n")] = 0;
                for (int h = 0; h < CG_HIERARCHY_MAX; h++)
                        if (v1_names[h] ? has_word(controllers, v1_names[h]) : !*controllers)
                                if (snprintf(o->path[h], sizeof o->path[h], "%s", path) >= (int)sizeof o->path[h])
                                        return -ENAMETOOLONG;
        }
        return 0;
}

/* A mount may show only part of the hierarchy (its root); our group's path is then relative to that, or not visible at all
 * (a container with the host's cgroup namespace): then the mount's own root is the best we have. */
static void place(struct cg_mounts *m, int h, const char *mountpoint, const char *root, const char *own) {
        if (m->root[h][0])
                return;   /* the first mount of a hierarchy counts */
        size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
        const char *below = strncmp(own, root, n) == 0 && (own[n] == '/' || own[n] == 0) ? own + n : "";
        if (strcmp(below, "/") == 0 || strncmp(below, "/..", 3) == 0)
                below = "";
        if (snprintf(m->root[h], sizeof m->root[h], "%s", mountpoint) < (int)sizeof m->root[h] &&
            snprintf(m->path[h], sizeof m->path[h], "%s%s", mountpoint, below) < (int)sizeof m->path[h])
                return;
        m->root[h][0] = m->path[h][0] = 0;
}

int cg_find_mounts(struct cg_mounts *ret) {
        struct own_groups own = { 0 };
        struct cg_mounts m = { 0 };
        int r = read_own_groups(&own);
        if (r < 0)
                return r;
        _cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
        if (!f)
                return -errno;
        char line[2048];
        while (fgets(line, sizeof line, f)) {
                char root[256], point[256], type[32], options[512];
                const char *dash = strstr(line, " - ");
                if (!dash || sscanf(line, "%*s %*s %*s %255s %255s", root, point) != 2 ||
                    sscanf(dash, " - %31s %*s %511s", type, options) != 2)
                        continue;
                if (strcmp(type, "cgroup2") == 0)
                        place(&m, CG_GROUP, point, root, own.path[CG_GROUP]);
                else if (strcmp(type, "cgroup") == 0)
                        for (int h = 1; h < CG_HIERARCHY_MAX; h++)
                                if (has_word(options, v1_names[h]))
                                        place(&m, h, point, root, own.path[h]);
        }
        char text[CG_FILE_MAX];
        if (m.root[CG_GROUP][0] && cg_read(AT_FDCWD, m.root[CG_GROUP], "cgroup.controllers", text) == 0)
                m.v2_memory = has_word(text, "memory") && has_word(text, "pids");
        m.kind = m.v2_memory ? CGROUP_V2 : m.root[CG_MEMORY][0] && m.root[CG_PIDS][0] ? CGROUP_HYBRID : CGROUP_NONE;
        *ret = m;
        return 0;
}

/* ---- killing ---- */

int cg_each_subdir(int dirfd, int (*fn)(int dirfd, const char *name, void *user), void *user) {
        int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        DIR *d = fdopendir(fd);
        if (!d) {
                fd_close(fd);
                return -ENOMEM;
        }
        int r = 0;
        for (struct dirent *de; r == 0 && (de = readdir(d));)
                if (de->d_type == DT_DIR && de->d_name[0] != '.')
                        r = fn(dirfd, de->d_name, user);
        closedir(d);
        return r;
}

/* SIGKILL to every process listed; returns how many. */
static int kill_listed(int dirfd) {
        char text[CG_FILE_MAX];
        if (cg_read(dirfd, NULL, "cgroup.procs", text) < 0)
                return 0;
        int n = 0;
        for (char *at = text, *end; *at; at = end + 1, n++) {
                long pid = strtol(at, &end, 10);
                if (*end != '\n')
                        break;   /* cut at the end of the buffer: the next round */
                if (pid > 0)
                        kill((pid_t)pid, SIGKILL);
        }
        return n;
}

struct chase { int found, depth; };
static int chase_subdir(int dirfd, const char *name, void *user) {
        struct chase *c = user;
        _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || c->depth >= CG_DEPTH_MAX)
                return 0;
        c->found += kill_listed(fd);
        c->depth++;
        cg_each_subdir(fd, chase_subdir, c);
        c->depth--;
        return 0;
}

int cg_kill_tree(int dirfd, bool cgroup_kill) {
        if (cgroup_kill) {
                int r = cg_write(dirfd, NULL, "cgroup.kill", "1");
                if (r == 0 || r != -ENOENT)
                        return r;
        }
        /* Frozen processes cannot fork away from us, and still die of SIGKILL; without a freezer chase them. */
        bool frozen = cg_write(dirfd, NULL, "cgroup.freeze", "1") == 0;
        for (int round = 0; round < (frozen ? 4 : CG_KILL_ROUNDS); round++) {
                struct chase c = { .found = kill_listed(dirfd) };
                cg_each_subdir(dirfd, chase_subdir, &c);
                if (c.found == 0)
                        break;
        }
        return 0;
}

/* ---- removing ---- */

/* Waits for the last task to leave: the kernel notifies on cgroup.events of v2; v1 has no such thing, so look again after a
 * millisecond at most. */
static void wait_for_change(int parent, const char *name, uint64_t deadline_ns) {
        char path[300];
        uint64_t now = now_ns();
        if (now >= deadline_ns || join(path, sizeof path, name, "cgroup.events") < 0)
                return;
        int left_ms = (int)((deadline_ns - now) / NS_PER_MS) + 1;
        _cleanup_close_ int fd = openat(parent, path, O_RDONLY | O_CLOEXEC);
        char text[CG_FILE_MAX];
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        text[MAX2(n, 0)] = 0;
        struct pollfd p = { .fd = fd, .events = POLLPRI };
        /* Not populated and still busy: tasks past their exit but not yet off the group. That is microseconds. */
        bool populated = n > 0 && strstr(text, "populated 1");
        poll(&p, populated ? 1 : 0, populated ? left_ms : 1);
}

struct removal { uint64_t deadline_ns; int depth; };
static int remove_subdir(int dirfd, const char *name, void *user) {
        struct removal *rm = user;
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                return 0;
        if (rm->depth < CG_DEPTH_MAX) {
                _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0)
                        return errno == ENOENT ? 0 : -errno;
                rm->depth++;
                int r = cg_each_subdir(fd, remove_subdir, rm);
                rm->depth--;
                if (r < 0)
                        return r;
        }
        for (;;) {
                if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                        return 0;
                if (errno != EBUSY || now_ns() >= rm->deadline_ns)
                        return -errno;
                wait_for_change(dirfd, name, rm->deadline_ns);
        }
}

int cg_remove_tree(int parent, const char *name, uint64_t deadline_ns) {
        struct removal rm = { .deadline_ns = deadline_ns };
        return remove_subdir(parent, name, &rm);
}
