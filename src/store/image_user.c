#include <string.h>
#include <sys/wait.h>

#include "sandbox/capture.h"
#include "store/image_user.h"

#define LOOKUP_TIMEOUT_MS 10000

struct image_user_lookup {
        struct output_capture out, err;
        void (*done)(int r, const struct image_user *u, const struct error *e, void *user);
        void *user;
};

static void lookup_free(struct image_user_lookup *l) {
        capture_release(&l->out);
        capture_release(&l->err);
        free(l);
}

int image_user_parse(const char *text, struct image_user *u) {
        char name[sizeof u->name], home[sizeof u->home];
        if (sscanf(text, "%u %u %63s %255[^\n]", &u->uid, &u->gid, name, home) != 4)
                return -EPROTO;
        snprintf(u->name, sizeof u->name, "%s", strcmp(name, "-") == 0 ? "" : name);
        snprintf(u->home, sizeof u->home, "%s", home[0] == '/' ? home : "");
        return 0;
}

static void exited(struct sandbox_exec *x, const struct exec_end *end, void *user) {
        struct image_user_lookup *l = user;
        struct image_user u;
        struct error e = { 0 };
        _cleanup_buf_ struct buf out = BUF_INIT(4096), err = BUF_INIT(4096);
        int r = 0;
        capture_text(&l->out, &out);
        capture_text(&l->err, &err);
        if (!end->started)
                r = error_set(&e, end->error.code ? end->error.code : -ECANCELED, "look the user up");
        else if (end->sandbox_ended || !WIFEXITED(end->status))
                r = error_say(&e, -ECANCELED, "the sandbox ended while its user was looked up");
        else if (WEXITSTATUS(end->status) != 0)
                r = error_say(&e, WEXITSTATUS(end->status) == 2 ? -ENOENT : -EIO, "%.*s", (int)strcspn(buf_str(&err), "\n"), buf_str(&err));
        else if ((r = image_user_parse(buf_str(&out), &u)) < 0)
                error_set(&e, r, "look the user up");
        if (l->done)
                l->done(r, r == 0 ? &u : NULL, &e, l->user);
        lookup_free(l);
}

int image_user_find(struct sandbox *s, const char *user, void (*done)(int r, const struct image_user *u, const struct error *e, void *user), void *done_user,
                    struct image_user_lookup **ret, struct error *e) {
        const char *const argv[] = { "find-user", user, NULL };
        struct image_user_lookup *l = calloc(1, sizeof *l);
        struct sandbox_exec *x;
        if (!l)
                return error_set(e, -ENOMEM, "look the user up");
        l->done = done;
        l->user = done_user;
        int r = capture_init(&l->out, 1024, 0, 4096, -1);
        r = r ? r : capture_init(&l->err, 1024, 0, 4096, -1);
        if (r < 0)
                error_set(e, r, "look the user up");
        const struct exec_spec spec = { .argv = argv, .cwd = "/", .stdin_fd = -1, .out = &l->out, .err = &l->err, .timeout_ms = LOOKUP_TIMEOUT_MS, .helper = true };
        if (r == 0)
                r = sandbox_exec(s, &spec, exited, l, &x, e);
        if (r < 0) {
                lookup_free(l);
                return r;
        }
        *ret = l;
        return 0;
}

void image_user_cancel(struct image_user_lookup *l) { l->done = NULL; }
