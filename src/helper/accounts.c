#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "helper/accounts.h"
#include "helper/verbs.h"

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

int account_id(const char *s, uint32_t *ret) {
        char *end;
        errno = 0;
        unsigned long v = strtoul(s, &end, 10);
        if (*s < '0' || *s > '9' || *end)
                return -EINVAL;
        *ret = (uint32_t)v;
        return errno || v > ACCOUNT_ID_MAX ? -ERANGE : 0;
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

static bool plain(const char *s) { return s && *s && strcspn(s, " \t\r\n") == strlen(s); }

/* By name, or by number where there is none. */
static bool find(const char *name, uint32_t number, struct account *ret) {
        _cleanup_buf_ struct buf table = BUF_INIT(ACCOUNT_TABLE_MAX);
        char *field[FIELDS], *at;
        uint32_t uid, gid;
        if (read_table("etc/passwd", &table) < 0)
                return false;
        for (at = table.data; next_row(&at, field);) {
                if (!field[3] || account_id(field[2], &uid) < 0 || account_id(field[3], &gid) < 0)
                        continue;
                if (name ? strcmp(field[0], name) != 0 : uid != number)
                        continue;
                *ret = (struct account){ .uid = uid, .gid = gid };
                if (plain(field[0]))
                        snprintf(ret->name, sizeof ret->name, "%s", field[0]);
                if (field[5] && field[5][0] == '/')
                        snprintf(ret->home, sizeof ret->home, "%s", field[5]);
                return true;
        }
        return false;
}

bool account_by_name(const char *name, struct account *ret) { return find(name, 0, ret); }
bool account_by_uid(uint32_t uid, struct account *ret) { return find(NULL, uid, ret); }

bool account_group(const char *name, uint32_t *ret_gid) {
        _cleanup_buf_ struct buf table = BUF_INIT(ACCOUNT_TABLE_MAX);
        char *field[FIELDS], *at;
        if (read_table("etc/group", &table) < 0)
                return false;
        for (at = table.data; next_row(&at, field);)
                if (field[2] && strcmp(field[0], name) == 0 && account_id(field[2], ret_gid) == 0)
                        return true;
        return false;
}
