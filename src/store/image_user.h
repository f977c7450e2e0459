/* Who USER of an image's configuration is: looked up in the /etc/passwd and /etc/group of a standing sandbox, by a helper in it (the files
 * are the image's, and so hostile). "name", "uid", "name:group", "uid:gid"; a number needs no entry. Loop thread only. */
#pragma once
#include "sandbox/sandbox.h"

struct image_user {
        uint32_t uid, gid;
        char home[256];            /* "" where no entry says */
        char name[64];             /* the same */
};
struct image_user_lookup;
/* Of what the helper said: "UID GID NAME HOME", the last two perhaps "-". -EPROTO. */
int image_user_parse(const char *text, struct image_user *ret);
/* `done` once, at the latest before the sandbox's `gone`. -ENOENT: there is no such user or group; -ERANGE: a number that no sandbox has. */
int image_user_find(struct sandbox *s, const char *user, void (*done)(int r, const struct image_user *u, const struct error *e, void *user), void *done_user,
                    struct image_user_lookup **ret, struct error *e);
void image_user_cancel(struct image_user_lookup *l);       /* `done` does not run */
