#include <fcntl.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "helper/verbs.h"

#define READ_FILE_MAX (16ull << 20)    /* of one result file */

static int copy_out(int fd) {
        static char space[65536];
        for (uint64_t total = 0;;) {
                ssize_t n = read(fd, space, sizeof space);
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                total += (uint64_t)n;
                if (total > READ_FILE_MAX)
                        return -EFBIG;
                int r = fs_write_all(1, space, (size_t)n);
                if (r < 0)
                        return r;
        }
}

int verb_read_file(int argc, char **argv) {
        if (argc != 3 || (strcmp(argv[1], "root") != 0 && strcmp(argv[1], "base") != 0))
                return 64;
        int top = argv[1][0] == 'r' ? HELPER_ROOT_FD : HELPER_BASE_FD;
        const char *path = argv[2];
        while (*path == '/')
                path++;
        /* Non-blocking, so that a FIFO cannot hold us; regular files only, so that nothing else is read. */
        _cleanup_close_ int fd = fs_open_beneath(top, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        struct stat st;
        int r = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? copy_out(fd) : -EINVAL;
        if (r < 0)
                fprintf(stderr, "read-file: %s\n", strerror(-r));
        return r == -ENOENT || r == -ENOTDIR ? 2 : r < 0;
}

int verb_wait(int argc, char **argv) {
        char c;
        if (write(1, ".", 1) != 1)
                return 1;
        while (read(0, &c, 1) == 1)
                ;
        return 0;
}
