/* Names of entries: cleaned, and resolved beneath the root. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "helper/unpack.h"

const char *unpack_show(const char *name) {
        static char shown[200];
        size_t i = 0;
        for (; name[i] && i < sizeof shown - 4; i++)
                shown[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
        memcpy(shown + i, "...", name[i] ? 4 : 1);
        if (!name[i])
                shown[i] = 0;
        return shown;
}

int unpack_clean(const char *name, const char *what, char ret[static TAR_NAME_MAX + 1], struct error *e) {
        size_t at = 0;
        if (name[0] == '/')
                return error_say(e, -EBADMSG, "%s '%s' is absolute", what, unpack_show(name));
        if (name[0] == 0)
                return error_say(e, -EBADMSG, "%s is empty", what);
        for (const char *p = name; *p;) {
                size_t n = strcspn(p, "/");
                if (n == 2 && p[0] == '.' && p[1] == '.')
                        return error_say(e, -EBADMSG, "%s '%s' climbs out with '..'", what, unpack_show(name));
                if (n > 255)
                        return error_say(e, -EBADMSG, "%s '%s' has a component of more than 255 bytes", what, unpack_show(name));
                if (n > 0 && !(n == 1 && p[0] == '.')) {
                        if (at > 0)
                                ret[at++] = '/';
                        memcpy(ret + at, p, n);
                        at += n;
                }
                p += n + (p[n] == '/');
        }
        ret[at] = 0;
        return 0;
}

/* Links that stay below the root, and none that says where it is absolutely. */
static int open_plain(int root, const char *path) {
        struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
        for (;;) {
                long fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
                if (fd >= 0)
                        return (int)fd;
                if (errno != EINTR && errno != EAGAIN)
                        return -errno;
        }
}

struct walk {
        int root, fd;
        char real[2 * TAR_NAME_MAX + 2];       /* where fd is, without links */
        char todo[2 * TAR_NAME_MAX + 2];
        unsigned links, how;
};

static int go_to(struct walk *w, const char *real) {
        int fd = fs_open_beneath(w->root, *real ? real : ".", O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0)
                return fd;
        fd_close(w->fd);
        w->fd = fd;
        return 0;
}

static int go_up(struct walk *w) {
        if (w->real[0] == 0)
                return -EXDEV;
        char *slash = strrchr(w->real, '/');
        *(slash ? slash : w->real) = 0;
        return go_to(w, w->real);
}

static int follow(struct walk *w, const char *name) {
        char target[TAR_NAME_MAX + 1], rest[sizeof w->todo];
        ssize_t n = readlinkat(w->fd, name, target, sizeof target - 1);
        if (n <= 0)
                return n < 0 ? -errno : -ENOENT;
        target[n] = 0;
        if (++w->links > UNPACK_PARENTS_MAX_LINKS)
                return -ELOOP;
        memcpy(rest, w->todo, strlen(w->todo) + 1);
        if (snprintf(w->todo, sizeof w->todo, "%s/%s", target, rest) >= (int)sizeof w->todo)
                return -ENAMETOOLONG;
        if (target[0] != '/')
                return 0;
        if (!(w->how & UNPACK_ABSOLUTE))
                return -EXDEV;
        w->real[0] = 0;
        return go_to(w, "");
}

static int go_down(struct walk *w, const char *name) {
        struct stat st;
        if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno != ENOENT || !(w->how & UNPACK_MAKE))
                        return -errno;
                if (mkdirat(w->fd, name, 0755) < 0)
                        return -errno;
        } else if (S_ISLNK(st.st_mode))
                return follow(w, name);
        int next = openat(w->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
                return -errno;
        fd_close(w->fd);
        w->fd = next;
        size_t n = strlen(w->real);
        int put = snprintf(w->real + n, sizeof w->real - n, "%s%s", n ? "/" : "", name);
        return put < 0 || (size_t)put >= sizeof w->real - n ? -ENAMETOOLONG : 0;
}

int unpack_open_dir(int root, const char *path, unsigned how) {
        int fd = open_plain(root, path);
        if (fd >= 0 || (fd != -ENOENT && fd != -EXDEV))
                return fd;
        struct walk w = { .root = root, .fd = -1, .how = how };
        int r = go_to(&w, "");
        if (r == 0 && snprintf(w.todo, sizeof w.todo, "%s", path) >= (int)sizeof w.todo)
                r = -ENAMETOOLONG;
        while (r == 0 && w.todo[0]) {
                char name[256];
                size_t n = strcspn(w.todo, "/"), skip = n + (w.todo[n] == '/');
                if (n > 255) {
                        r = -ENAMETOOLONG;
                        break;
                }
                memcpy(name, w.todo, n);
                name[n] = 0;
                memmove(w.todo, w.todo + skip, strlen(w.todo + skip) + 1);
                if (n == 0 || strcmp(name, ".") == 0)
                        continue;
                r = strcmp(name, "..") == 0 ? go_up(&w) : go_down(&w, name);
        }
        if (r < 0) {
                fd_close(w.fd);
                return r;
        }
        return w.fd;
}
