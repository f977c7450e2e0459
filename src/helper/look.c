/* look [user=USER[:GROUP]] [path=PATH]: what COPY must know of the image before it writes. Says "UID GID KIND": the numbers of a user
 * and group, looked up in the image's own /etc/passwd and /etc/group where they are names (both 0 without), and whether the path
 * is a "dir", a "file", or "none". Links are followed as they would be inside. 1, with a reason on standard error: no such user or group. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "helper/accounts.h"
#include "helper/verbs.h"

static int in_root(const char *path, uint64_t flags) {
        struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
        return (int)syscall(SYS_openat2, HELPER_ROOT_FD, path, &how, sizeof how);
}

/* A user that is a number has the group of that number, as with other builders. */
static int look_user(char *user, uint32_t *uid, uint32_t *gid) {
        struct account a;
        char *group = strchr(user, ':');
        if (group)
                *group++ = 0;
        if (account_id(user, uid) == 0)
                *gid = *uid;
        else if (account_by_name(user, &a)) {
                *uid = a.uid;
                *gid = a.gid;
        } else {
                fprintf(stderr, "no such user in the image: %.100s\n", user);
                return 1;
        }
        if (group && account_id(group, gid) < 0 && !account_group(group, gid)) {
                fprintf(stderr, "no such group in the image: %.100s\n", group);
                return 1;
        }
        return 0;
}

int verb_look(int argc, char **argv) {
        uint32_t uid = 0, gid = 0;
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
        printf("%u %u %s\n", uid, gid, kind);
        return fflush(stdout) == 0 ? 0 : 3;
}
