#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "store/mirror_sizes.h"

#define SUFFIX ".size"
#define KIB_MAX (1ull << 50)       /* more than that nobody has */

static void name_of(const char *id, char ret[static 80]) { snprintf(ret, 80, "%.64s" SUFFIX, id); }

int mirror_size_put(int dirfd, const char *id, uint64_t kib) {
        char name[80], text[32];
        name_of(id, name);
        int n = snprintf(text, sizeof text, "%llu\n", (unsigned long long)MIN2(kib, KIB_MAX));
        return fs_write_atomic(dirfd, name, text, (size_t)n, 0640);
}

void mirror_size_used(int dirfd, const char *id) {
        char name[80];
        name_of(id, name);
        if (utimensat(dirfd, name, NULL, AT_SYMLINK_NOFOLLOW) < 0)
                return;                /* one whose size is not known is not counted */
}

void mirror_size_forget(int dirfd, const char *id) {
        char name[80];
        name_of(id, name);
        unlinkat(dirfd, name, 0);
}

static bool is_size(const char *name) {
        return strspn(name, "0123456789abcdef") == 64 && strcmp(name + 64, SUFFIX) == 0;
}

static uint64_t read_kib(int dirfd, const char *name) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        return fs_read_file(dirfd, name, &b) < 0 ? 0 : MIN2((uint64_t)strtoull(buf_str(&b), NULL, 10), KIB_MAX);
}

static bool before(const struct timespec *a, const struct timespec *b) {
        return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

int mirror_size_oldest(int dirfd, bool (*busy)(const char *id, void *user), void *user, char ret_id[static 65], uint64_t *ret_total) {
        int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        struct timespec oldest = { 0 };
        uint64_t kib = 0;
        int found = 0;
        if (!d) {
                int r = -errno;
                fd_close(fd);
                return r;
        }
        for (struct dirent *e; (e = readdir(d));) {
                char id[65] = "";
                struct stat st;
                if (!is_size(e->d_name) || fstatat(dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                memcpy(id, e->d_name, 64);
                kib += read_kib(dirfd, e->d_name);
                if (busy(id, user) || (found && !before(&st.st_mtim, &oldest)))
                        continue;
                found = 1;
                oldest = st.st_mtim;
                memcpy(ret_id, id, sizeof id);
        }
        closedir(d);
        *ret_total = kib * 1024;
        return found;
}
