/* One sandbox and one process in it, from creation to confirmed gone, with its output as it comes: what unpacks, copies and runs the
 * steps of builds. Beside store/box.h it can run helpers, pass descriptors, and look the user up first.
 *
 * `done` runs once, after the sandbox is gone, from the loop; the box is freed when it returns. Loop thread only. */
#pragma once
#include "store/box.h"

struct image_box;

struct image_box_spec {
        const struct sandbox_spec *sandbox;
        const char *const *argv, *const *env;      /* copied */
        const char *cwd;
        const char *user;          /* of a command: looked up in the sandbox; NULL = root */
        bool helper, helper_upper;
        int stdin_fd;              /* taken over, also on failure; -1 = none */
        int out_fd;                /* taken over: at descriptor HELPER_FIRST_FREE_FD; -1 = none */
        uint64_t timeout_ms;
        /* Both streams of a command; standard output of a helper. May be NULL. */
        void (*output)(const char *p, size_t n, void *user);
};
int image_box_start(struct spawner *sp, const struct image_box_spec *spec, box_done done, void *user, struct image_box **ret, struct error *e);
void image_box_cancel(struct image_box *b);        /* `done` still runs */
