/* send PATH: the bytes of a file of the root to descriptor HELPER_FIRST_FREE_FD; then says "SHA256 BYTES" of what was sent. Exit status 2: there is
 * no such regular file. Links are not followed. */
#define OPENSSL_SUPPRESS_DEPRECATED        /* see archive/inflow.c */
#include <fcntl.h>
#include <openssl/sha.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hash.h"
#include "helper/verbs.h"

static int send_all(int fd, unsigned char hash[SHA256_DIGEST_LENGTH], unsigned long long *bytes) {
        static char space[256 << 10];
        SHA256_CTX sha;
        SHA256_Init(&sha);
        for (;;) {
                ssize_t n = read(fd, space, sizeof space);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                SHA256_Update(&sha, space, (size_t)n);
                *bytes += (unsigned long long)n;
                int r = fs_write_all(HELPER_FIRST_FREE_FD, space, (size_t)n);
                if (r < 0)
                        return r;
        }
        SHA256_Final(hash, &sha);
        return 0;
}

int verb_send(int argc, char **argv) {
        unsigned char hash[SHA256_DIGEST_LENGTH];
        char hex[SHA256_DIGEST_LENGTH * 2 + 1];
        unsigned long long bytes = 0;
        struct stat st;
        if (argc != 2)
                return 64;
        const char *path = argv[1];
        while (*path == '/')
                path++;
        signal(SIGPIPE, SIG_IGN);
        _cleanup_close_ int fd = fs_open_beneath(HELPER_ROOT_FD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
                fprintf(stderr, "send: there is no regular file '%.200s'\n", path);
                return 2;
        }
        int r = send_all(fd, hash, &bytes);
        if (r < 0) {
                fprintf(stderr, "send: %s\n", strerror(-r));
                return 1;
        }
        hex_encode(hash, sizeof hash, hex);
        printf("%s %llu\n", hex, bytes);
        return fflush(stdout) == 0 ? 0 : 1;
}
