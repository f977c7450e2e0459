/* A directory with two trees, "live" and "base", and what tests do with them. Include after cmocka.h. */
#pragma once
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

struct trees { char dir[64]; int live, base; };

static inline int fixture_remove(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

static inline int open_dir(const char *dir, const char *name) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", dir, name);
        assert_int_equal(mkdir(path, 0755), 0);
        return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static inline int trees_setup(void **state) {
        struct trees *t = calloc(1, sizeof *t);
        assert_non_null(t);
        snprintf(t->dir, sizeof t->dir, "/tmp/brig-test-XXXXXX");
        assert_non_null(mkdtemp(t->dir));
        t->live = open_dir(t->dir, "live");
        t->base = open_dir(t->dir, "base");
        *state = t;
        return 0;
}

static inline int trees_teardown(void **state) {
        struct trees *t = *state;
        close(t->live);
        close(t->base);
        nftw(t->dir, fixture_remove, 16, FTW_DEPTH | FTW_PHYS);
        free(t);
        return 0;
}

static inline void make_dirs(int root, const char *path) {
        char part[512];
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
                mkdirat(root, part, 0755);
        }
}

static inline void put(int root, const char *path, const char *text) {
        make_dirs(root, path);
        unlinkat(root, path, 0);
        int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(fs_write_all(fd, text, strlen(text)), 0);
        close(fd);
}

static inline void put_both(struct trees *t, const char *path, const char *text) {
        put(t->live, path, text);
        put(t->base, path, text);
}

static inline void expect_text(int root, const char *path, const char *text) {
        struct buf b = BUF_INIT(1u << 20);
        int r = fs_read_file(root, path, &b);
        if (r < 0)
                fail_msg("%s: %s", path, strerror(-r));
        assert_string_equal(buf_str(&b), text);
        buf_release(&b);
}

static inline bool is_there(int root, const char *path) {
        struct stat st;
        return fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static inline mode_t mode_of(int root, const char *path) {
        struct stat st;
        return fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode : 0;
}
