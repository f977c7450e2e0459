/* Sets of cgroups: the manager, the pool, the life of a set. Theory of operation in cgroup.h. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "sandbox/cgroup_backend.h"
#include "sandbox/facilities.h"

#define SWEEP_MS 100           /* for one left-over tree, each round */
#define SWEEP_ROUNDS 20
#define WALK_DEPTH 8
#define CG_SUB_MAX 15          /* of the name of a sub-group */
#define CG_PATH_MAX (CG_NAME_MAX + 2 * CG_SUB_MAX + 3)

static const char *const kind_names[] = { "none", "hybrid", "v2" };
STRING_TABLE(cgroup_kind, kind_names, CGROUP_KIND_MAX);

enum cgroup_kind cgroup_detect(void) {
        struct cg_mounts m;
        return cg_find_mounts(&m) < 0 ? CGROUP_NONE : m.kind;
}

static bool name_ok(const char *s, size_t max) {
        size_t n = s ? strnlen(s, max + 1) : 0;
        if (n == 0 || n > max)
                return false;
        for (size_t i = 0; i < n; i++)
                if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z')))
                        return false;
        return true;
}

/* "x1", "p/x1" */
static bool sub_name_ok(const char *s) {
        char first[CG_SUB_MAX + 1];
        size_t n = strcspn(s, "/");
        if (s[n] == 0)
                return name_ok(s, CG_SUB_MAX);
        if (n > CG_SUB_MAX)
                return false;
        memcpy(first, s, n);
        first[n] = 0;
        return name_ok(first, CG_SUB_MAX) && name_ok(s + n + 1, CG_SUB_MAX);
}

/* ---- manager ---- */

int cgroup_manager_open(const char *instance, struct cgroup_manager **ret, struct error *e) {
        if (!name_ok(instance, sizeof ((struct cgroup_manager *)0)->instance - 1))
                return error_say(e, -EINVAL, "instance id: 1 to 32 of 0-9a-z");
        const struct cgroup_backend *backend = NULL;
        switch ((enum cgroup_kind)facility_value(FACILITY_CGROUP)) {
        case CGROUP_HYBRID: backend = &cgroup_backend_hybrid; break;
        case CGROUP_V2: backend = &cgroup_backend_v2; break;
        case CGROUP_NONE: case CGROUP_KIND_MAX: break;
        }
        if (!backend || !facility_ok(FACILITY_CGROUP))
                return error_say(e, -EOPNOTSUPP, "no usable cgroup hierarchy: memory and pids controllers are needed");
        int r = cgroup_sweep(instance, e);
        if (r < 0)
                return r;
        struct cgroup_manager *m = calloc(1, sizeof *m);
        if (!m)
                return error_set(e, -ENOMEM, "open the cgroups");
        m->backend = backend;
        snprintf(m->instance, sizeof m->instance, "%s", instance);
        m->cgroup_kill = facility_ok(FACILITY_CGROUP_KILL);
        for (int h = 0; h < CG_HIERARCHY_MAX; h++)
                m->dir[h] = -1;
        r = backend->open(m, e);
        if (r < 0) {
                cgroup_manager_close(m);
                return r;
        }
        *ret = m;
        return 0;
}

void cgroup_manager_close(struct cgroup_manager *m) {
        if (!m)
                return;
        while (m->pool) {
                struct cgroup *c = m->pool;
                m->pool = c->next;
                (void)cgroup_destroy(c);
        }
        for (int h = 0; h < CG_HIERARCHY_MAX; h++) {
                if (m->dir[h] < 0)
                        continue;
                char name[64];
                snprintf(name, sizeof name, "../brig-%s", m->instance);
                (void)unlinkat(m->dir[h], name, AT_REMOVEDIR);   /* refused while a set lives in it */
                m->dir[h] = fd_close(m->dir[h]);
        }
        free(m);
}

enum cgroup_kind cgroup_manager_kind(const struct cgroup_manager *m) {
        return m->backend->kind;
}

const char *cgroup_manager_describe(const struct cgroup_manager *m) {
        return m->describe;
}

/* ---- making ---- */

static void set_free(struct cgroup *c) {
        fd_close(c->oom_fd);
        free(c);
}

static int set_make(struct cgroup_manager *m, struct cgroup **ret, struct error *e) {
        struct cgroup *c = calloc(1, sizeof *c);
        if (!c)
                return error_set(e, -ENOMEM, "make a cgroup");
        c->m = m;
        c->oom_fd = -1;
        int r;
        do {   /* a number may be taken by a set of an earlier process that the sweep could not empty */
                snprintf(c->name, sizeof c->name, "%llu", (unsigned long long)++m->next_name);
                r = m->backend->make(c);
        } while (r == -EEXIST && c->made == 0);
        if (r == 0)
                r = m->backend->arm_oom(c);
        if (r < 0) {
                error_set(e, r, "make cgroup %s", c->name);
                (void)cgroup_destroy(c);
                return r;
        }
        *ret = c;
        return 0;
}

int cgroup_pool_fill(struct cgroup_manager *m, unsigned want, unsigned most) {
        want = MIN2(want, (unsigned)CGROUP_POOL_MAX);
        for (; m->pooled < want && most > 0; most--) {
                struct cgroup *c;
                int r = set_make(m, &c, NULL);
                if (r < 0)
                        return r;
                if (cgroup_set_limits(c, &m->last, NULL) < 0) {
                        (void)cgroup_destroy(c);
                        return -EIO;
                }
                c->next = m->pool;
                m->pool = c;
                m->pooled++;
        }
        return m->pooled < want ? (int)(want - m->pooled) : 0;
}

int cgroup_take(struct cgroup_manager *m, struct cgroup **ret, struct error *e) {
        if (!m->pool)
                return set_make(m, ret, e);
        struct cgroup *c = m->pool;
        m->pool = c->next;
        m->pooled--;
        c->next = NULL;
        *ret = c;
        return 0;
}

int cgroup_set_limits(struct cgroup *c, const struct cgroup_limits *l, struct error *e) {
        if (memcmp(&c->limits, l, sizeof *l) != 0) {
                int r = c->m->backend->limit(c, l, e);
                if (r < 0)
                        return r;
                c->limits = *l;
        }
        /* A CPU quota needs one more group, so it is not made for sandboxes that may never ask for it. */
        c->m->last = *l;
        c->m->last.cpu_milli = 0;
        return 0;
}

/* ---- processes ---- */

static int grouping_dir(const struct cgroup *c) {
        return c->made & 1u << CG_GROUP ? c->m->dir[CG_GROUP] : -1;
}

int cgroup_open_group(struct cgroup *c) {
        if (grouping_dir(c) < 0)
                return -EOPNOTSUPP;
        int fd = openat(grouping_dir(c), c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int cgroup_sub_make(struct cgroup *c, const char *name, int *ret_fd) {
        if (!sub_name_ok(name))
                return -EINVAL;
        if (grouping_dir(c) < 0)
                return -EOPNOTSUPP;
        char path[CG_PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", c->name, name);
        if (mkdirat(grouping_dir(c), path, 0755) < 0)
                return -errno;
        int fd = openat(grouping_dir(c), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

int cgroup_attach(struct cgroup *c, int sub_fd, pid_t pid, bool cloned_in) {
        int r = c->m->backend->attach(c, pid);
        if (r < 0 || cloned_in || grouping_dir(c) < 0)
                return r;
        return sub_fd >= 0 ? cg_write(sub_fd, NULL, "cgroup.procs", "%d", (int)pid)
                           : cg_write(grouping_dir(c), c->name, "cgroup.procs", "%d", (int)pid);
}

int cgroup_sub_kill(int sub_fd) {
        return cg_kill_tree(sub_fd, facility_ok(FACILITY_CGROUP_KILL));
}

int cgroup_sub_remove(struct cgroup *c, const char *name) {
        char path[CG_PATH_MAX];
        if (!sub_name_ok(name) || grouping_dir(c) < 0)
                return -EINVAL;
        snprintf(path, sizeof path, "%s/%s", c->name, name);
        return unlinkat(grouping_dir(c), path, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

struct below { const char *spare; bool populated; };

static int below_kill(int dirfd, const char *name, void *user) {
        const struct below *b = user;
        if (b->spare && strcmp(name, b->spare) == 0)
                return 0;
        _cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? 0 : cgroup_sub_kill(fd);
}

int cgroup_below_kill(int sub_fd, const char *spare) {
        struct below b = { .spare = spare };
        return cg_each_subdir(sub_fd, below_kill, &b);
}

static int below_look(int dirfd, const char *name, void *user) {
        struct below *b = user;
        if (!b->spare || strcmp(name, b->spare) != 0)
                b->populated |= cg_read_number(dirfd, name, "cgroup.events", "populated") > 0;
        return 0;
}

int cgroup_below_empty(int sub_fd, const char *spare) {
        struct below b = { .spare = spare };
        int r = cg_each_subdir(sub_fd, below_look, &b);
        return r < 0 ? r : !b.populated;
}

int cgroup_sub_frozen(int sub_fd) {
        int64_t frozen = cg_read_number(sub_fd, NULL, "cgroup.events", "frozen");
        return frozen < 0 ? -EIO : frozen == 1;
}

int cgroup_sub_move(int sub_fd, pid_t pid) { return cg_write(sub_fd, NULL, "cgroup.procs", "%d", (int)pid); }

int64_t cgroup_sub_cpu_us(int sub_fd) { return cg_read_number(sub_fd, NULL, "cpu.stat", "usage_usec"); }

int cgroup_sub_empty(int sub_fd) {
        int64_t populated = cg_read_number(sub_fd, NULL, "cgroup.events", "populated");
        return populated < 0 ? -EIO : populated == 0;
}

/* ---- killing and counting ---- */

int cgroup_kill(struct cgroup *c) {
        /* Any hierarchy lists the set's processes; the grouping one kills them at one write. */
        int h = c->made & 1u << CG_GROUP ? CG_GROUP : CG_PIDS;
        _cleanup_close_ int fd = openat(c->m->dir[h], c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        return cg_kill_tree(fd, c->m->cgroup_kill && h == CG_GROUP);
}

int cgroup_freeze(struct cgroup *c, int sub_fd, bool freeze) {
        if (grouping_dir(c) < 0)
                return -EOPNOTSUPP;
        return sub_fd >= 0 ? cg_write(sub_fd, NULL, "cgroup.freeze", "%d", freeze)
                           : cg_write(grouping_dir(c), c->name, "cgroup.freeze", "%d", freeze);
}

int cgroup_oom_fd(struct cgroup *c, uint32_t *ret_epoll) {
        *ret_epoll = c->m->backend->oom_epoll;
        return c->oom_fd;
}

void cgroup_oom_clear(struct cgroup *c) {
        c->m->backend->oom_clear(c);
}

void cgroup_read_events(struct cgroup *c, struct cgroup_events *ret) {
        *ret = (struct cgroup_events){ -1, -1, -1 };
        c->m->backend->events(c, ret);
}

void cgroup_read_usage(struct cgroup *c, struct cgroup_usage *ret) {
        *ret = (struct cgroup_usage){ -1, -1, -1 };
        c->m->backend->usage(c, ret);
        if (grouping_dir(c) >= 0)
                ret->cpu_us = cg_read_number(grouping_dir(c), c->name, "cpu.stat", "usage_usec");
}

void cgroup_read_now(struct cgroup *c, struct cgroup_now *ret) {
        *ret = (struct cgroup_now){ -1, -1 };
        c->m->backend->now(c, ret);
}

int64_t cgroup_read_private_memory(struct cgroup *c) {
        return c->m->backend->private_memory(c);
}

int64_t cgroup_read_shared_memory(struct cgroup *c) {
        return c->m->backend->shared_memory(c);
}

int cgroup_destroy(struct cgroup *c) {
        if (!c)
                return 0;
        uint64_t deadline = now_ns() + CGROUP_BUSY_MS * NS_PER_MS;
        for (int h = 0; h < CG_HIERARCHY_MAX; h++) {
                if (!(c->made & 1u << h))
                        continue;
                int r = cg_remove_tree(c->m->dir[h], c->name, deadline);
                if (r < 0)
                        return r;
                c->made &= ~(1u << h);
        }
        set_free(c);
        return 0;
}

/* ---- sweep ---- */

struct sweep { const char *name; char found[8][320]; unsigned n; };

/* Finds directories called `name`, wherever below the mount the earlier process's own group was. */
static void sweep_walk(struct sweep *s, int dirfd, const char *path, int depth) {
        int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d) {
                fd_close(fd);
                return;
        }
        for (struct dirent *de; (de = readdir(d));) {
                char below[320];
                if (de->d_type != DT_DIR || de->d_name[0] == '.' ||
                    snprintf(below, sizeof below, "%s/%s", path, de->d_name) >= (int)sizeof below)
                        continue;
                if (strcmp(de->d_name, s->name) == 0) {
                        if (s->n < ARRAY_SIZE(s->found))
                                memcpy(s->found[s->n++], below, sizeof below);
                        continue;
                }
                if (strncmp(de->d_name, "brig-", 5) == 0 || depth >= WALK_DEPTH)
                        continue;   /* a neighbour's: nothing of ours below */
                _cleanup_close_ int sub = openat(dirfd, de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (sub >= 0)
                        sweep_walk(s, sub, below, depth + 1);
        }
        closedir(d);
}

static int sweep_parent(const char *path, struct error *e) {
        _cleanup_close_ int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent < 0)
                return errno == ENOENT ? 0 : error_set(e, -errno, "open %s", path);
        int fd = dup(parent);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d)
                return error_set(e, -ENOMEM, "read %s", path);
        int n = 0, r = 0;
        for (struct dirent *de; r == 0 && (de = readdir(d));) {
                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                _cleanup_close_ int set = openat(parent, de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (set < 0)
                        continue;
                /* Again while it is busy: a child of the dead spawner may have joined after the first kill. */
                for (int round = 0; round < SWEEP_ROUNDS; round++) {
                        cg_kill_tree(set, true);
                        r = cg_remove_tree(parent, de->d_name, now_ns() + SWEEP_MS * NS_PER_MS);
                        if (r != -EBUSY)
                                break;
                }
                if (r < 0)
                        error_set(e, r, "remove the left-over cgroup %s/%s", path, de->d_name);
                n++;
        }
        closedir(d);
        if (r == 0 && rmdir(path) < 0 && errno != ENOENT)
                return error_set(e, -errno, "remove %s", path);
        return r < 0 ? r : n;
}

int cgroup_sweep(const char *instance, struct error *e) {
        struct cg_mounts m;
        int r = name_ok(instance, 32) ? cg_find_mounts(&m) : -EINVAL;
        if (r < 0)
                return error_set(e, r, "sweep the cgroups of %s", instance);
        char name[64];
        snprintf(name, sizeof name, "brig-%s", instance);
        int n = 0;
        /* The grouping hierarchy first: what is killed there empties the others. */
        for (int h = 0; h < CG_HIERARCHY_MAX; h++) {
                if (!m.root[h][0])
                        continue;
                struct sweep s = { .name = name };
                _cleanup_close_ int root = open(m.root[h], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (root >= 0)
                        sweep_walk(&s, root, m.root[h], 0);
                for (unsigned i = 0; i < s.n; i++) {
                        r = sweep_parent(s.found[i], e);
                        if (r < 0)
                                return r;
                        n = MAX2(n, r);
                }
        }
        return n;
}
