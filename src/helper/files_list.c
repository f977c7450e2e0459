/* list: the entries of a directory, in the order of their names' bytes, in pages; or of a whole tree. */
#include <dirent.h>
#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "helper/files.h"

/* Paths in the order in which a tree is walked: a directory, what is in it, then the name behind it. */
static int compare_paths(const char *a, const char *b) {
        while (*a && *a == *b) {
                a++;
                b++;
        }
        int x = *a == '/' ? 1 : (unsigned char)*a + (*a != 0), y = *b == '/' ? 1 : (unsigned char)*b + (*b != 0);
        return x - y;
}

struct listing {
        const struct files_args *a;
        struct json_writer w;
        uint64_t left, scanned;
        bool more;
};

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int read_names(struct listing *l, int fd, char ***ret, size_t *ret_n) {
        char **names = NULL;
        size_t n = 0;
        DIR *d = fdopendir(fd);
        if (!d) {
                fd_close(fd);
                return -errno;
        }
        int r = 0;
        for (struct dirent *de; r == 0 && (de = readdir(d));) {
                if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
                        continue;
                r = ++l->scanned > FILES_SCAN_MAX ? -E2BIG : strv_append_take(&names, &n, strdup(de->d_name));
        }
        closedir(d);
        if (r < 0) {
                strv_free(names);
                return r;
        }
        if (n > 0)
                qsort(names, n, sizeof *names, by_bytes);
        *ret = names;
        *ret_n = n;
        return 0;
}

static int list_dir(struct listing *l, int fd, const char *prefix, unsigned depth);

static int list_one(struct listing *l, int dir, const char *prefix, const char *name, unsigned depth) {
        struct stat st;
        char path[FILES_PATH_MAX + 260];
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;                      /* gone meanwhile */
        snprintf(path, sizeof path, "%s%s", prefix, name);
        /* A page begins behind `after`; of a tree every path counts. */
        bool shown = !l->a->after || compare_paths(path, l->a->after) > 0;
        if (shown && l->left == 0) {
                l->more = true;
                return 0;
        }
        if (shown) {
                l->left--;
                json_begin_object(&l->w);
                files_put_entry(&l->w, "name", path, dir, name, &st);
                json_end_object(&l->w);
        }
        if (!S_ISDIR(st.st_mode) || depth == 0 || strlen(path) + 1 > FILES_PATH_MAX)
                return 0;
        _cleanup_close_ int below = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0 || files_is_virtual(below))
                return 0;
        snprintf(path, sizeof path, "%s%s/", prefix, name);
        return list_dir(l, TAKE_FD(below), path, depth - 1);
}

static int list_dir(struct listing *l, int fd, const char *prefix, unsigned depth) {
        char **names = NULL;
        size_t n = 0;
        _cleanup_close_ int dir = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        int r = read_names(l, fd, &names, &n);
        for (size_t i = 0; r == 0 && i < n && !l->more; i++)
                r = list_one(l, dir, prefix, names[i], depth);
        strv_free(names);
        return r;
}

int files_list(const struct files_args *a) {
        _cleanup_buf_ struct buf b = BUF_INIT(FILES_ANSWER_MAX);
        struct listing l = { .a = a, .w = JSON_WRITER(&b), .left = MIN2(a->limit, (uint64_t)FILES_LIST_MAX) };
        _cleanup_close_ int fd = files_open(a->path, O_RDONLY | O_DIRECTORY);
        if (fd < 0)
                return files_fail(fd, a->path);
        json_begin_object(&l.w);
        json_put_key(&l.w, "entries");
        json_begin_array(&l.w);
        int r = list_dir(&l, TAKE_FD(fd), "", a->depth);
        if (r < 0)
                return files_fail(r, a->path);
        json_end_array(&l.w);
        json_field_bool(&l.w, "more", l.more);
        json_end_object(&l.w);
        return files_answer(&b, &l.w);
}
