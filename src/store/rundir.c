#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "store/rundir.h"

#define ID_LEN 36

int rundir_open(int runs_dirfd, const char *id) {
        if (mkdirat(runs_dirfd, id, 0700) < 0 && errno != EEXIST)
                return -errno;
        int fd = openat(runs_dirfd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return fd < 0 ? -errno : fd;
}

/* Its own descriptor, because a DIR takes the one it is given over. */
static DIR *open_dir(int dirfd, const char *name) {
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return NULL;
        DIR *d = fdopendir(fd);
        if (!d)
                fd_close(fd);
        return d;
}

static int remove_one(int runs_dirfd, const char *id) {
        DIR *d = open_dir(runs_dirfd, id);
        if (!d)
                return errno == ENOENT ? 0 : -errno;
        int r = 0;
        for (struct dirent *e; (e = readdir(d));)
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(dirfd(d), e->d_name, 0) < 0 && r == 0)
                        r = -errno;
        closedir(d);
        if (unlinkat(runs_dirfd, id, AT_REMOVEDIR) < 0 && errno != ENOENT && r == 0)
                r = -errno;
        return r;
}

struct removal {
        uv_work_t work;
        int runs_dirfd, r;
        void (*done)(int r, void *user);
        void *user;
        size_t n;
        char ids[][ID_LEN + 1];
};

static void remove_in_pool(uv_work_t *w) {
        struct removal *m = w->data;
        for (size_t i = 0; i < m->n; i++) {
                int r = remove_one(m->runs_dirfd, m->ids[i]);
                if (r < 0 && m->r == 0)
                        m->r = r;
        }
}

static void removed(uv_work_t *w, int status) {
        struct removal *m = w->data;
        m->done(m->r, m->user);
        free(m);
}

int rundir_remove(uv_loop_t *loop, int runs_dirfd, const char *const *ids, size_t n, void (*done)(int r, void *user), void *user) {
        struct removal *m = calloc(1, sizeof *m + n * sizeof m->ids[0]);
        if (!m)
                return -ENOMEM;
        *m = (struct removal){ .runs_dirfd = runs_dirfd, .done = done, .user = user, .n = n };
        m->work.data = m;
        for (size_t i = 0; i < n; i++)
                snprintf(m->ids[i], sizeof m->ids[i], "%s", ids[i]);
        ASSERT(uv_queue_work(loop, &m->work, remove_in_pool, removed) == 0);
        return 0;
}

int rundir_each(int runs_dirfd, int (*f)(const char *id, void *user), void *user) {
        DIR *d = open_dir(runs_dirfd, ".");
        if (!d)
                return -errno;
        int r = 0;
        for (struct dirent *e; r == 0 && (e = readdir(d));)
                if (strlen(e->d_name) == ID_LEN && strspn(e->d_name, "0123456789abcdef-") == ID_LEN)
                        r = f(e->d_name, user);
        closedir(d);
        return r;
}
