#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "sandbox/file_pack.h"

#define COMPONENT_MAX 255

struct head { uint32_t name_len, mode; uint64_t size; };

bool file_pack_name_ok(const char *name) {
        if (!name || strlen(name) > FILE_PACK_NAME_MAX)
                return false;
        for (;;) {
                size_t n = strcspn(name, "/");
                if (n == 0 || n > COMPONENT_MAX || (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.'))
                        return false;
                if (name[n] == 0)
                        return true;
                name += n + 1;
        }
}

int file_pack_add(struct file_pack *p, const char *name, mode_t mode, const void *data, size_t n) {
        if (!file_pack_name_ok(name))
                return -EINVAL;
        if (p->n >= FILE_PACK_FILES_MAX)
                return -E2BIG;
        const struct head h = { .name_len = (uint32_t)strlen(name), .mode = mode & 0777, .size = n };
        if (n > FILE_PACK_BYTES_MAX || p->bytes + sizeof h + h.name_len + n > FILE_PACK_BYTES_MAX)
                return -EFBIG;
        if (p->fd < 0)
                p->fd = memfd_create("brig-files", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (p->fd < 0)
                return -errno;
        int r = fs_write_all(p->fd, &h, sizeof h);
        if (r == 0)
                r = fs_write_all(p->fd, name, h.name_len);
        if (r == 0)
                r = fs_write_all(p->fd, data, n);
        if (r < 0)
                return r;
        p->n++;
        p->bytes += sizeof h + h.name_len + n;
        return 0;
}

int file_pack_seal(struct file_pack *p) {
        if (p->fd < 0)
                return 0;
        return fcntl(p->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

void file_pack_release(struct file_pack *p) {
        fd_close(p->fd);
        *p = (struct file_pack)FILE_PACK_INIT;
}

/* ---- the other side ---- */

/* The directory of `name` below `at`, made where needed; *ret_last is the last component. */
static int open_parent(int at, char *name, uint32_t owner, char **ret_last) {
        int dir = fcntl(at, F_DUPFD_CLOEXEC, 3);
        if (dir < 0)
                return -errno;
        for (char *slash; (slash = strchr(name, '/')); name = slash + 1) {
                *slash = 0;
                bool made = mkdirat(dir, name, 0755) == 0;
                if ((!made && errno != EEXIST) || (made && fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0)) {
                        int r = -errno;
                        close(dir);
                        return r;
                }
                int next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = -errno;
                close(dir);
                if (next < 0)
                        return r;
                dir = next;
        }
        *ret_last = name;
        return dir;
}

static int unpack_one(int from, const struct head *h, off_t *pos, int at, char *name, uint32_t owner) {
        char *last = NULL;
        _cleanup_close_ int dir = open_parent(at, name, owner, &last);
        if (dir < 0)
                return dir;
        if (unlinkat(dir, last, 0) < 0 && errno != ENOENT)
                return -errno;
        _cleanup_close_ int to = openat(dir, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0)
                return -errno;
        for (uint64_t left = h->size; left > 0;) {
                ssize_t n = sendfile(to, from, pos, (size_t)left);
                if (n <= 0)
                        return n < 0 ? -errno : -EBADMSG;
                left -= (uint64_t)n;
        }
        return fchown(to, owner, owner) < 0 || fchmod(to, h->mode & 0777) < 0 ? -errno : 0;
}

int file_pack_unpack(int fd, int at, uint32_t owner) {
        struct stat st;
        int seals = fcntl(fd, F_GET_SEALS), want = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
        if (seals < 0 || (seals & want) != want || fstat(fd, &st) < 0 || st.st_size > (off_t)FILE_PACK_BYTES_MAX)
                return -EBADMSG;
        unsigned n = 0;
        for (off_t pos = 0; pos < st.st_size;) {
                struct head h;
                char name[FILE_PACK_NAME_MAX + 1];
                if (++n > FILE_PACK_FILES_MAX || pread(fd, &h, sizeof h, pos) != sizeof h || h.name_len > FILE_PACK_NAME_MAX)
                        return -EBADMSG;
                pos += (off_t)sizeof h;
                if (pread(fd, name, h.name_len, pos) != (ssize_t)h.name_len)
                        return -EBADMSG;
                name[h.name_len] = 0;
                pos += (off_t)h.name_len;
                if (strlen(name) != h.name_len || !file_pack_name_ok(name) || h.size > (uint64_t)(st.st_size - pos))
                        return -EBADMSG;
                int r = unpack_one(fd, &h, &pos, at, name, owner);
                if (r < 0)
                        return r;
        }
        return 0;
}
