#include <fcntl.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "helper/verbs.h"
#include "sandbox/results_wire.h"

/* All of it before the head is written: a file that shrinks meanwhile must not break the stream. NULL: not to be read. */
static char *read_whole(int fd, uint64_t size, uint64_t *ret_n) {
        char *space = malloc(size + 1);
        uint64_t at = 0;
        while (space && at < size) {
                ssize_t n = read(fd, space + at, size - at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        free(space);
                        return NULL;
                }
                if (n == 0)
                        break;
                at += (uint64_t)n;
        }
        *ret_n = at;
        return space;
}

static int report(const char *path, bool with_bytes, uint64_t *left) {
        struct result_head h = { .state = RESULT_NONE };
        struct stat st;
        _cleanup_free_ char *bytes = NULL;
        while (*path == '/')
                path++;
        /* Non-blocking, so that a FIFO cannot hold us. */
        _cleanup_close_ int fd = fs_open_beneath(HELPER_ROOT_FD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
                h = (struct result_head){ .state = RESULT_FILE, .device = st.st_dev, .inode = st.st_ino, .size = (uint64_t)st.st_size,
                                          .changed_ns = st.st_ctim.tv_sec * 1000000000ll + st.st_ctim.tv_nsec };
                if (h.size > RESULT_FILE_MAX || (with_bytes && h.size > *left))
                        h.state = RESULT_TOO_BIG;
                else if (with_bytes && !(bytes = read_whole(fd, h.size, &h.bytes)))
                        h.state = RESULT_NONE;
        }
        *left -= h.bytes;
        int r = fs_write_all(1, &h, sizeof h);
        return r < 0 || h.bytes == 0 ? r : fs_write_all(1, bytes, h.bytes);
}

int verb_results(int argc, char **argv) {
        uint64_t left = RESULT_TOTAL_MAX;
        if (argc < 2 || argc > 2 + RESULT_FILES_MAX || (strcmp(argv[1], "facts") != 0 && strcmp(argv[1], "read") != 0))
                return 64;
        for (int i = 2; i < argc; i++) {
                int r = report(argv[i], argv[1][0] == 'r', &left);
                if (r < 0) {
                        fprintf(stderr, "results: %s\n", strerror(-r));
                        return 1;
                }
        }
        return 0;
}
