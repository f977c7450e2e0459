/* look [user=USER[:GROUP]] [path=PATH]: what COPY must know of the image before it writes. Says "UID GID KIND": the numbers of a user
 * and group, looked up in the image's own /etc/passwd and /etc/group where they are names (both 0 without), and whether the path
 * is a "dir", a "file", or "none". Links are followed as they would be inside. 1, with a reason on standard error: no such user or group. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "helper/verbs.h"

#define PASSWD_MAX (4u << 20)

static int in_root(const char *path, uint64_t flags) {
        struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        return (int)syscall(SYS_openat2, HELPER_ROOT_FD, path, &how, sizeof how);
}

static bool number(const char *s, unsigned long *ret) {
        if (!*s || strspn(s, "0123456789") != strlen(s) || strlen(s) > 9)
                return false;
        *ret = strtoul(s, NULL, 10);
        return true;
}

/* Field `field` (from 0) of the line whose first field is `name`. */
static bool find(const char *file, const char *name, unsigned field, unsigned long *ret) {
        _cleanup_buf_ struct buf b = BUF_INIT(PASSWD_MAX);
        struct stat st;
        _cleanup_close_ int fd = in_root(file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || fs_read_fd(fd, &b) < 0)
                return false;
        size_t n = strlen(name);
        for (char *line = b.data, *next; line && *line; line = next) {
                char *end = strchrnul(line, '\n');
                next = *end ? end + 1 : end;
                *end = 0;
                if (strncmp(line, name, n) != 0 || line[n] != ':')
                        continue;
                char *p = line;
                for (unsigned i = 0; p && i < field; i++)
                        p = (p = strchr(p, ':')) ? p + 1 : NULL;
                if (!p)
                        return false;
                p[strcspn(p, ":")] = 0;
                return number(p, ret);
        }
        return false;
}

/* A user that is a number has the group of that number, as with other builders. */
static int look_user(char *user, unsigned long *uid, unsigned long *gid) {
        char *group = strchr(user, ':');
        if (group)
                *group++ = 0;
        if (number(user, uid))
                *gid = *uid;
        else if (!find("etc/passwd", user, 2, uid) || !find("etc/passwd", user, 3, gid)) {
                fprintf(stderr, "no such user in the image: %.100s\n", user);
                return 1;
        }
        if (group && !number(group, gid) && !find("etc/group", group, 2, gid)) {
                fprintf(stderr, "no such group in the image: %.100s\n", group);
                return 1;
        }
        return 0;
}

int verb_look(int argc, char **argv) {
        unsigned long uid = 0, gid = 0;
        const char *kind = "none";
        for (int i = 1; i < argc; i++) {
                struct stat st;
                if (strncmp(argv[i], "user=", 5) == 0) {
                        int r = look_user(argv[i] + 5, &uid, &gid);
                        if (r)
                                return r;
                } else if (strncmp(argv[i], "path=", 5) == 0) {
                        _cleanup_close_ int fd = in_root(argv[i] + 5, O_PATH);
                        if (fd >= 0 && fstat(fd, &st) == 0)
                                kind = S_ISDIR(st.st_mode) ? "dir" : "file";
                } else
                        return 64;
        }
        printf("%lu %lu %s\n", uid, gid, kind);
        return fflush(stdout) == 0 ? 0 : 3;
}
