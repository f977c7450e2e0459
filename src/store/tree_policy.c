#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "store/tree_private.h"

static bool lies_below(const char *path, const char *root) {
        size_t n = strlen(root);
        return strcmp(root, "/") == 0 || (strncmp(path, root, n) == 0 && (path[n] == 0 || path[n] == '/'));
}

int tree_policy_init(struct tree_store *ts, const struct tree_store_config *cfg, struct error *e) {
        ts->local_repo_fd = -1;
        ts->home = realpath(cfg->home, NULL);
        if (!ts->home)
                return error_set(e, -errno, "%s", cfg->home);
        int r = cfg->repo_roots ? strv_ensure(&ts->roots) : 0;
        for (size_t i = 0; r == 0 && cfg->repo_roots && cfg->repo_roots[i]; i++) {
                char *real = realpath(cfg->repo_roots[i], NULL);
                r = real ? strv_push_take(&ts->roots, real) : -errno;
                if (r < 0)
                        error_set(e, r, "repository root %s", cfg->repo_roots[i]);
        }
        if (r == 0 && cfg->local_repo) {
                struct repo_url u;
                r = repo_url_parse(cfg->local_repo, &u, e);
                if (r == 0) {
                        ts->local_repo = TAKE_PTR(u.path);
                        repo_url_release(&u);
                        ts->local_repo_fd = fcntl(cfg->local_repo_fd, F_DUPFD_CLOEXEC, 3);
                        if (ts->local_repo_fd < 0)
                                r = error_set(e, -errno, "%s", cfg->local_repo);
                }
        }
        if (r < 0)
                tree_policy_release(ts);
        return r;
}

void tree_policy_release(struct tree_store *ts) {
        ts->roots = strv_free(ts->roots);
        free(ts->home);
        free(ts->local_repo);
        ts->home = ts->local_repo = NULL;
        ts->local_repo_fd = fd_close(ts->local_repo_fd);
}

static bool allowed(const struct tree_store *ts, const char *path) {
        if (lies_below(path, ts->home) || lies_below(ts->home, path))
                return false;
        if (!ts->roots)
                return ts->any_readable_path;
        for (size_t i = 0; ts->roots[i]; i++)
                if (lies_below(path, ts->roots[i]))
                        return true;
        return false;
}

/* Opening it as the unprivileged daemon proves that it may be read; the descriptor says where it really lies, whatever links
 * led there, and is itself what will be mounted. Below the operator's roots there is one answer for "not there" and "not
 * allowed": the caller learns nothing about directories it may not name. Where any readable path may be named, -ENOENT tells
 * a repository that does not exist, which is an outcome, from one that is refused, which is a bad request. */
static int open_local(const struct tree_store *ts, struct repo_url *u, int *ret_fd, struct error *e) {
        char link[64], real[PATH_MAX], refusal[ERROR_TEXT_MAX];
        if (!ts->roots && !ts->any_readable_path)
                snprintf(refusal, sizeof refusal, "repo_url: a local repository needs the setting repo.roots, since others can reach this daemon");
        else
                snprintf(refusal, sizeof refusal, "repo_url: %.400s is not a directory that may be read here", u->path);
        bool given = ts->local_repo && strcmp(u->path, ts->local_repo) == 0;
        _cleanup_close_ int fd = given ? fcntl(ts->local_repo_fd, F_DUPFD_CLOEXEC, 3) : open(u->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT && !ts->roots && allowed(ts, u->path))
                return error_say(e, -ENOENT, "repo_url: %.400s does not exist", u->path);
        if (fd < 0)
                return error_say(e, -EINVAL, "%s", refusal);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, real, sizeof real - 1);
        if (n < 1 || n >= (ssize_t)sizeof real - 1 || real[0] != '/')
                return error_say(e, -EINVAL, "%s", refusal);
        real[n] = 0;
        if (!given && !allowed(ts, real))
                return error_say(e, -EINVAL, "%s", refusal);
        /* The real path names the repository from here on. */
        char *path = strdup(real), *canonical = NULL;
        if (!path || asprintf(&canonical, "file://%s", real) < 0) {
                free(path);
                return error_set(e, -ENOMEM, "repo_url");
        }
        free(u->path);
        free(u->canonical);
        u->path = path;
        u->canonical = canonical;
        *ret_fd = TAKE_FD(fd);
        return 0;
}

int tree_address(struct tree_store *ts, const char *repo_url, const char *commit, struct repo_url *ret, int *ret_source_fd, struct error *e) {
        struct repo_url u;
        enum commit_kind kind;
        int fd = -1, r = repo_commit_check(commit, &kind, e);
        if (r == 0)
                r = repo_url_parse(repo_url, &u, e);
        if (r < 0)
                return r;
        if (u.kind == REPO_LOCAL)
                r = open_local(ts, &u, &fd, e);
        if (r < 0) {
                repo_url_release(&u);
                return r;
        }
        *ret = u;
        *ret_source_fd = fd;
        return 0;
}

int tree_url_check(struct tree_store *ts, const char *repo_url, const char *commit, struct error *e) {
        struct repo_url u;
        int fd, r = tree_address(ts, repo_url, commit, &u, &fd, e);
        if (r == 0) {
                repo_url_release(&u);
                fd_close(fd);
        }
        return r == -ENOENT ? 0 : r;
}
