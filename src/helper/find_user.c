/* find-user USER[:GROUP]: as a container runtime understands USER of an image. Says "UID GID NAME HOME". Exit status 2: there is no such
 * user or group. */
#include "helper/accounts.h"
#include "helper/verbs.h"

static int complain(int status, const char *what, const char *name) {
        fprintf(stderr, "%s '%s'\n", what, name);
        return status;
}

int verb_find_user(int argc, char **argv) {
        struct account a = { 0 };
        if (argc != 2)
                return 64;
        char *user = argv[1], *colon = strchr(user, ':');
        if (colon)
                *colon++ = 0;
        int number = account_id(user, &a.uid);
        if (number == -ERANGE)
                return complain(2, "no sandbox has the user id", user);
        bool listed = number == 0 ? account_by_uid(a.uid, &a) : account_by_name(user, &a);
        if (number < 0 && !listed && strcmp(user, "root") != 0 && *user)       /* an image without a table has numbers only */
                return complain(2, "the image has no user", user);
        if (colon && *colon) {
                number = account_id(colon, &a.gid);
                if (number == -ERANGE)
                        return complain(2, "no sandbox has the group id", colon);
                if (number < 0 && !account_group(colon, &a.gid))
                        return complain(2, "the image has no group", colon);
        }
        printf("%u %u %s %s\n", a.uid, a.gid, a.name[0] ? a.name : "-", a.home[0] ? a.home : "-");
        return fflush(stdout) == 0 ? 0 : 1;
}
