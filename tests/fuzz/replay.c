/* The normal build's driver of a fuzz target: runs it over every file of a directory, and over each file cut short at a few
 * places, so that the corpus stays a regression test. usage: fuzz_NAME DIRECTORY */
#include <dirent.h>
#include <fcntl.h>

#include "base/fs.h"
#include "fuzz.h"

#define INPUT_MAX (16u * 1024 * 1024)
#define CUTS 16

/* An own copy of the exact size: a sanitizer then sees one byte read beyond. */
static void run(const char *p, size_t n) {
        uint8_t *copy = malloc(n ? n : 1);
        ASSERT(copy);
        memcpy(copy, p, n);
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
}

int main(int argc, char **argv) {
        if (argc != 2) {
                fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
                return 64;
        }
        DIR *d = opendir(argv[1]);
        if (!d) {
                perror(argv[1]);
                return 1;
        }
        size_t files = 0;
        for (struct dirent *e; (e = readdir(d));) {
                if (e->d_name[0] == '.')
                        continue;
                _cleanup_buf_ struct buf b = BUF_INIT(INPUT_MAX);
                if (fs_read_file(dirfd(d), e->d_name, &b) < 0) {
                        fprintf(stderr, "cannot read %s\n", e->d_name);
                        return 1;
                }
                run(buf_str(&b), b.len);
                for (size_t i = 1; i < CUTS; i++)
                        run(buf_str(&b), b.len * i / CUTS);
                files++;
        }
        closedir(d);
        printf("%zu inputs replayed\n", files);
        return files ? 0 : 1;
}
