/* find-user USER[:GROUP]: as a container runtime understands USER of an image. Says "UID GID NAME HOME". Exit status 2: there is no such
 * user or group. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "helper/verbs.h"

#define TABLE_MAX (4u << 20)
#define ID_MAX 65535u
#define FIELDS 7

/* Links are followed as they would be inside; nothing but a regular file is read. */
static int read_table(const char *path, struct buf *b) {
        struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        struct stat st;
        _cleanup_close_ int fd = (int)syscall(SYS_openat2, HELPER_ROOT_FD, path, &how, sizeof how);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return -EINVAL;
        return fs_read_fd(fd, b);
}

static int to_id(const char *s, uint32_t *ret) {
        char *end;
        errno = 0;
        unsigned long v = strtoul(s, &end, 10);
        if (*s < '0' || *s > '9' || *end)
                return -EINVAL;
        *ret = (uint32_t)v;
        return errno || v > ID_MAX ? -ERANGE : 0;
}

/* Cuts the next line of the table into its fields, in place. */
static bool next_row(char **at, char *field[FIELDS]) {
        char *line = *at;
        if (!line || !*line)
                return false;
        char *end = strchr(line, '\n');
        *at = end ? end + 1 : NULL;
        if (end)
                *end = 0;
        for (int i = 0; i < FIELDS; i++) {
                field[i] = line;
                char *colon = line ? strchr(line, ':') : NULL;
                if (colon)
                        *colon = 0;
                line = colon ? colon + 1 : NULL;
        }
        return true;
}

struct found { uint32_t uid, gid; char name[64], home[256]; bool in_table; };

static bool plain(const char *s) { return s && *s && strcspn(s, " \t\r\n") == strlen(s); }

static void look_in_passwd(char *text, const char *name, bool by_number, struct found *f) {
        char *field[FIELDS];
        uint32_t uid, gid;
        while (next_row(&text, field)) {
                if (!field[3] || to_id(field[2], &uid) < 0 || to_id(field[3], &gid) < 0)
                        continue;
                if (by_number ? uid != f->uid : strcmp(field[0], name) != 0)
                        continue;
                f->in_table = true;
                f->uid = uid;
                f->gid = gid;
                if (plain(field[0]))
                        snprintf(f->name, sizeof f->name, "%s", field[0]);
                if (field[5] && field[5][0] == '/')
                        snprintf(f->home, sizeof f->home, "%s", field[5]);
                return;
        }
}

static int look_in_group(char *text, const char *name, uint32_t *ret) {
        char *field[FIELDS];
        while (next_row(&text, field))
                if (field[2] && strcmp(field[0], name) == 0 && to_id(field[2], ret) == 0)
                        return 0;
        return -ENOENT;
}

static int complain(int status, const char *what, const char *name) {
        fprintf(stderr, "%s '%s'\n", what, name);
        return status;
}

int verb_find_user(int argc, char **argv) {
        struct found f = { 0 };
        _cleanup_buf_ struct buf passwd = BUF_INIT(TABLE_MAX), group = BUF_INIT(TABLE_MAX);
        if (argc != 2)
                return 64;
        char *user = argv[1], *colon = strchr(user, ':');
        if (colon)
                *colon++ = 0;
        int number = to_id(user, &f.uid);
        if (number == -ERANGE)
                return complain(2, "no sandbox has the user id", user);
        (void)read_table("etc/passwd", &passwd);       /* an image without one has numbers only */
        if (passwd.len > 0)
                look_in_passwd(passwd.data, user, number == 0, &f);
        if (number < 0 && !f.in_table && strcmp(user, "root") != 0 && *user)
                return complain(2, "the image has no user", user);
        if (colon && *colon) {
                number = to_id(colon, &f.gid);
                if (number == -ERANGE)
                        return complain(2, "no sandbox has the group id", colon);
                (void)read_table("etc/group", &group);
                if (number < 0 && (group.len == 0 || look_in_group(group.data, colon, &f.gid) < 0))
                        return complain(2, "the image has no group", colon);
        }
        printf("%u %u %s %s\n", f.uid, f.gid, f.name[0] ? f.name : "-", f.home[0] ? f.home : "-");
        return fflush(stdout) == 0 ? 0 : 1;
}
