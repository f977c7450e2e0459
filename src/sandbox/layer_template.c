/* Formatted, empty images, kept to be copied: an ext4 of 8 GiB holds 120 KiB of data when it is new, so copying that takes one millisecond
 * where mkfs takes seven. One file for each size and number of inodes, hidden in the layers' directory, so that the next start
 * deletes it. Runs in the children that make images; two that save at once save the same. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/hash.h"
#include "base/fs.h"
#include "sandbox/layer_template.h"

static void name_of(uint64_t bytes, uint64_t inodes, char name[static LAYER_TEMPLATE_NAME]) {
        snprintf(name, LAYER_TEMPLATE_NAME, ".template-%llx-%llx", (unsigned long long)bytes, (unsigned long long)inodes);
}

/* What is data there; the rest of `to`, which is empty and of the same size, stays a hole. */
static int copy_data(int from, int to) {
        for (off_t at = 0, end; (at = lseek(from, at, SEEK_DATA)) >= 0; at = end) {
                end = lseek(from, at, SEEK_HOLE);
                if (end < 0)
                        return -errno;
                for (off_t in = at, out = at; in < end;) {
                        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - in), 0);
                        if (n <= 0)
                                return n < 0 ? -errno : -EIO;
                }
        }
        return errno == ENXIO ? 0 : -errno;
}

int layer_template_copy(int dir, uint64_t bytes, uint64_t inodes, int to) {
        char name[LAYER_TEMPLATE_NAME];
        name_of(bytes, inodes, name);
        _cleanup_close_ int from = fs_open_beneath(dir, name, O_RDONLY, 0);
        return from < 0 ? from : copy_data(from, to);
}

static int count(int dir) {
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d) {
                fd_close(fd);
                return LAYER_TEMPLATES_MAX;
        }
        for (const struct dirent *de; (de = readdir(d));)
                n += strncmp(de->d_name, ".template-", 10) == 0;
        closedir(d);
        return n;
}

int layer_template_save(int dir, uint64_t bytes, uint64_t inodes, int from) {
        char name[LAYER_TEMPLATE_NAME], temporary[LAYER_TEMPLATE_NAME], salt[9];
        unsigned char random[4];
        random_bytes(random, sizeof random);
        hex_encode(random, sizeof random, salt);
        name_of(bytes, inodes, name);
        snprintf(temporary, sizeof temporary, ".template-%s", salt);
        if (count(dir) >= LAYER_TEMPLATES_MAX)
                return -ENOSPC;
        _cleanup_close_ int to = openat(dir, temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0)
                return -errno;
        int r = ftruncate(to, (off_t)bytes) < 0 ? -errno : copy_data(from, to);
        if (r == 0 && renameat(dir, temporary, dir, name) < 0)
                r = -errno;
        if (r < 0)
                unlinkat(dir, temporary, 0);
        return r;
}
