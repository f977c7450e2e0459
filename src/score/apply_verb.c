/* The helper's side of the wire. Nothing here is trusted with more than the tree: the process has the sandbox's mounts, no
 * network, and three capabilities in the sandbox's own user namespace. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/strv.h"
#include "score/apply_job.h"
#include "score/apply_wire.h"
#include "score/patch.h"
#include "score/patch_name.h"
#include "score/seal.h"

struct request { struct apply_job job; char *repo_path, *undo, *command; size_t n_named; };

/* The whole of a sealed memfd, mapped. */
static int map_fd(int fd, size_t most, const char **ret, size_t *ret_len) {
        struct stat st;
        *ret = "";
        *ret_len = 0;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (st.st_size == 0)
                return 0;
        if ((uint64_t)st.st_size > most)
                return -EFBIG;
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        *ret = p;
        *ret_len = (size_t)st.st_size;
        return 0;
}

static int take_path(char ***list, const char *p, size_t n) {
        _cleanup_free_ char *path = strndup(p, n);
        if (!path)
                return -ENOMEM;
        while (n > 1 && path[n - 1] == '/')
                path[--n] = 0;
        return name_refusal(path) ? -EINVAL : strv_push_take(list, TAKE_PTR(path));
}

/* A name that is no path of a tree names nothing. */
static int take_name(struct request *q, const char *p, size_t n) {
        char *path = strndup(p, n);
        if (path && name_refusal(path)) {
                free(path);
                return 0;
        }
        return strv_append_take(&q->job.named, &q->n_named, path);
}

/* Beyond it, allocation fails, which is an answer; the sandbox's own limit would kill. */
static int limit_memory(uint64_t bytes) {
        struct rlimit limit = { bytes, bytes };
        return setrlimit(RLIMIT_AS, &limit) < 0 ? -errno : 0;
}

static int take_frame(struct request *q, enum apply_frame type, const char *p, size_t n) {
        char number[24] = "";
        memcpy(number, p, MIN2(n, sizeof number - 1));
        switch (type) {
        case FRAME_REPO_PATH: free(q->repo_path); q->repo_path = strndup(p, n); return q->repo_path ? 0 : -ENOMEM;
        case FRAME_MEMORY: return limit_memory(strtoull(number, NULL, 10));
        case FRAME_UNDO: free(q->undo); q->job.undo = q->undo = strndup(p, n); return q->undo ? 0 : -ENOMEM;
        case FRAME_MODE: q->job.mode = (enum patch_mode)strtoul(number, NULL, 10); return q->job.mode < PATCH_MODE_MAX ? 0 : -EINVAL;
        case FRAME_PROTECT: return take_path(&q->job.protect, p, n);
        case FRAME_ALLOW: return take_path(&q->job.allow, p, n);
        case FRAME_COMMAND: free(q->command); q->job.command = q->command = strndup(p, n); return q->command ? 0 : -ENOMEM;
        case FRAME_NAMED: return take_name(q, p, n);
        case FRAME_DIFF_MAX: q->job.diff = true; q->job.diff_max = MIN2(strtoul(number, NULL, 10), APPLY_DIFF_MAX); return 0;
        default: return -EINVAL;
        }
}

static int read_request(struct request *q, struct error *e) {
        const char *data, *p;
        size_t len, at = 0, n;
        enum apply_frame type;
        int r = map_fd(APPLY_REQUEST_FD, APPLY_REQUEST_MAX, &data, &len), more = 0;
        while (r == 0 && (more = frame_next(data, len, &at, &type, &p, &n)) == 1)
                r = take_frame(q, type, p, n);
        r = r < 0 ? r : more;
        if (r == 0)
                r = map_fd(APPLY_PATCH_FD, SIZE_MAX, &q->job.patch, &q->job.patch_len);
        if (r == 0)
                r = map_fd(APPLY_TEST_PATCH_FD, SIZE_MAX, &q->job.test_patch, &q->job.test_patch_len);
        if (r == 0 && (!q->repo_path || q->repo_path[0] != '/'))
                r = -EINVAL;
        return r < 0 ? error_set(e, r, "read the request to apply") : 0;
}

int apply_open_tree(int root, const char *repo_path, int *ret) {
        while (*repo_path == '/')
                repo_path++;
        int fd = fs_open_beneath(root, *repo_path ? repo_path : ".", O_PATH | O_DIRECTORY, 0);
        if (fd < 0)
                return fd;
        *ret = fd;
        return 0;
}

int apply_open_base(const struct apply_base *b, const char *repo_path, int *ret) {
        if (strncmp(repo_path, "/usr/", 5) == 0 && fcntl(b->usr, F_GETFD) >= 0)
                return apply_open_tree(b->usr, repo_path + 5, ret);
        if (strncmp(repo_path, "/opt/", 5) == 0 && fcntl(b->opt, F_GETFD) >= 0)
                return apply_open_tree(b->opt, repo_path + 5, ret);
        return apply_open_tree(b->root, repo_path, ret);
}

static int run(struct request *q, int root, const struct apply_base *base, bool *ret_no_tree, struct error *e) {
        int r = read_request(q, e);
        if (r < 0)
                return r;
        r = apply_open_tree(root, q->repo_path, &q->job.tree);
        if (r == 0)
                r = apply_open_base(base, q->repo_path, &q->job.base);
        if (r < 0) {
                *ret_no_tree = r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV;
                return error_set(e, r, "open the tree at %s", q->repo_path);
        }
        q->job.repo_path = q->repo_path;
        q->job.image = *base;
        return apply_job_run(&q->job, e);
}

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int apply_verb(int root, struct apply_base base) {
        struct request q = { .job = { .tree = -1, .base = -1 } };
        struct buf out = BUF_INIT((size_t)APPLY_REPORT_MAX + APPLY_DIFF_MAX);
        struct error e = { 0 };
        struct buf seal = BUF_INIT(SEAL_BYTES_MAX);
        q.job.out = &out;
        q.job.seal = is_open(APPLY_SEAL_FD) ? &seal : NULL;
        q.job.watch_fd = is_open(APPLY_WATCH_FD) ? APPLY_WATCH_FD : -1;
        bool no_tree = false;
        int r = run(&q, root, &base, &no_tree, &e);
        if (r == 0 && q.job.seal && (r = fs_write_all(APPLY_SEAL_FD, seal.data, seal.len)) < 0)
                error_set(&e, r, "write the seal");
        buf_release(&seal);
        if (r < 0) {
                buf_reset(&out);
                frame_adds(&out, no_tree ? FRAME_NO_TREE : FRAME_FAULT, e.text);
        }
        frame_adds(&out, FRAME_END, "");
        r = fs_write_all(APPLY_REPORT_FD, out.data, out.len);
        buf_release(&out);
        free(q.repo_path);
        free(q.undo);
        free(q.command);
        strv_free(q.job.protect);
        strv_free(q.job.allow);
        strv_free(q.job.named);
        fd_close(q.job.tree);
        fd_close(q.job.base);
        return r < 0 ? 1 : 0;
}
