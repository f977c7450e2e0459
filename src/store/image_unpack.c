/* What is done in a layer by the store itself: an archive unpacked by the helper, a command run. Both are one box. */
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/strv.h"
#include "store/image_store_private.h"

#define UNPACK_MEMORY (1ull << 30)
#define UNPACK_HEADERS_MAX 2048            /* bytes of an archive beside the contents, an entry */
#define ARG_TEXT_MAX 4200                  /* a target is the longest */
#define LINE_MAX_BYTES 1024
#define RUN_TAIL_SHOWN 1024                /* of a command's output, in the error's text */

struct image_unpack_state {
        char line[LINE_MAX_BYTES]; size_t len;
        bool done, name_by_content;
        char diff_id[SHA256_HEX];
        char failed_class[16], failed_text[LINE_MAX_BYTES];
        image_progress_fn progress; void *progress_user;
};

struct image_run_state { void (*output)(const char *p, size_t n, void *user); void *user; };

static void end(struct image_layer *l, enum image_failure failure, const struct error *e) {
        free(TAKE_PTR(l->unpack));
        free(TAKE_PTR(l->run));
        l->box = NULL;
        image_layer_end(l, failure, e);
}

void image_layer_hush(struct image_layer *l) {
        if (l->unpack)
                l->unpack->progress = NULL;
        if (l->run)
                l->run->output = NULL;
}

/* ---- what both can end with ---- */

static enum image_failure failure_of_box(const struct box_result *r, const char *what, struct error *e) {
        switch (r->end) {
        case BOX_EXITED: return IMAGE_OK;
        case BOX_TIMED_OUT: error_say(e, -ETIMEDOUT, "%s took too long", what); return IMAGE_TIMEOUT;
        case BOX_CANCELLED: error_say(e, -ECANCELED, "cancelled"); return IMAGE_CANCELLED;
        case BOX_FAILED:
                *e = r->error;
                return r->error.code == -ENOENT ? IMAGE_INVALID : image_failure_of(r->error.code);
        case BOX_LIMIT: break;
        }
        for (int k = 0; k < LIMIT_KIND_MAX; k++)
                if (r->hit[k]) {
                        error_say(e, -E2BIG, "%s reached a limit: %s", what, limit_kind_to_string(k));
                        return k == LIMIT_WALL ? IMAGE_TIMEOUT : IMAGE_TOO_LARGE;
                }
        error_say(e, -EIO, "the sandbox of %s ended", what);
        return IMAGE_INTERNAL;
}

/* ---- unpacking ---- */

static void read_line(struct image_unpack_state *u) {
        unsigned long long in, out, entries;
        if (sscanf(u->line, "progress %llu %llu %llu", &in, &out, &entries) == 3) {
                const struct image_progress p = { .bytes_in = in, .bytes_out = out, .entries = entries };
                if (u->progress)
                        u->progress(&p, u->progress_user);
        } else if (sscanf(u->line, "done %64[0-9a-f] ", u->diff_id) == 1)
                u->done = true;
        else if (strncmp(u->line, "failed ", 7) == 0) {
                size_t n = strcspn(u->line + 7, " ");
                snprintf(u->failed_class, sizeof u->failed_class, "%.*s", (int)n, u->line + 7);
                snprintf(u->failed_text, sizeof u->failed_text, "%s", u->line + 7 + n + (u->line[7 + n] == ' '));
        }
}

static void on_line(const char *p, size_t n, void *user) {
        struct image_layer *l = user;
        struct image_unpack_state *u = l->unpack;
        for (size_t i = 0; i < n; i++) {
                if (p[i] != '\n') {
                        if (u->len < sizeof u->line - 1)
                                u->line[u->len++] = p[i];
                        continue;
                }
                u->line[u->len] = 0;
                u->len = 0;
                read_line(u);
        }
}

static void unpacked(const struct box_result *r, void *user) {
        static const struct { const char *name; enum image_failure failure; int code; } classes[] = {
                { "invalid", IMAGE_INVALID, -EBADMSG }, { "large", IMAGE_TOO_LARGE, -E2BIG }, { "full", IMAGE_TOO_LARGE, -ENOSPC },
        };
        struct image_layer *l = user;
        struct image_unpack_state *u = l->unpack;
        struct error e = { 0 };
        enum image_failure failure = failure_of_box(r, "unpacking", &e);
        if (failure == IMAGE_OK && !u->done) {
                failure = IMAGE_INTERNAL;
                error_say(&e, -EIO, "%s", u->failed_text[0] ? u->failed_text : "the archive could not be unpacked");
                for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
                        if (strcmp(u->failed_class, classes[i].name) == 0) {
                                failure = classes[i].failure;
                                e.code = classes[i].code;
                        }
        }
        if (failure == IMAGE_OK && (!WIFEXITED(r->status) || WEXITSTATUS(r->status) != 0)) {
                failure = IMAGE_INTERNAL;
                error_say(&e, -EIO, "unpacking ended with status %d", r->status);
        }
        if (failure == IMAGE_OK && u->name_by_content && image_chain_id(l->parent->key, u->diff_id, l->m.key) < 0) {
                failure = IMAGE_INTERNAL;
                error_set(&e, -ENOMEM, "name the layer");
        }
        end(l, failure, &e);
}

/* Not more than half of what the disk still has: a layer is sparse, and what is in it is real. */
static uint64_t bytes_allowed(const struct image_store *st, uint64_t asked) {
        struct statvfs v;
        uint64_t most = asked ? asked : IMAGE_LAYER_BYTES_DEFAULT;
        if (statvfs(st->home, &v) == 0)
                most = MIN2(most, (uint64_t)v.f_bavail * v.f_frsize / 2);
        /* A power of two: file systems of one size are copies of one template. */
        uint64_t size = 16ull << 20;
        while (size * 2 <= most)
                size *= 2;
        return size;
}

static int unpack_argv(const struct image_unpack *u, uint64_t bytes, char ***ret) {
        char text[8][ARG_TEXT_MAX];
        size_t n = 0;
        int r = strv_push(ret, "unpack");
        snprintf(text[n++], ARG_TEXT_MAX, "entries=%llu", (unsigned long long)IMAGE_UNPACK_ENTRIES_MAX);
        snprintf(text[n++], ARG_TEXT_MAX, "stream=%llu", (unsigned long long)(bytes + IMAGE_UNPACK_ENTRIES_MAX * UNPACK_HEADERS_MAX));
        if (u->diff_id)
                snprintf(text[n++], ARG_TEXT_MAX, "diff-id=%s", u->diff_id);
        if (u->no_whiteouts)
                snprintf(text[n++], ARG_TEXT_MAX, "plain");
        if (u->set_owner) {
                snprintf(text[n++], ARG_TEXT_MAX, "uid=%u", (unsigned)u->owner_uid);
                snprintf(text[n++], ARG_TEXT_MAX, "gid=%u", (unsigned)u->owner_gid);
        }
        if (u->target)
                snprintf(text[n++], ARG_TEXT_MAX, "target=%s", u->target);
        for (size_t i = 0; i < n && r == 0; i++)
                r = strv_push(ret, text[i]);
        return r;
}

static int start_unpack(struct image_layer *l, const struct image_unpack *u, struct error *e) {
        struct image_store *st = l->store;
        _cleanup_strv_ char **argv = NULL;
        char name[40];
        uint64_t bytes = bytes_allowed(st, u->bytes_max);
        int r = unpack_argv(u, bytes, &argv);
        _cleanup_close_ int fd = fcntl(u->fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return error_set(e, -errno, "pass the archive");
        l->unpack = calloc(1, sizeof *l->unpack);
        if (r < 0 || !l->unpack)
                return error_set(e, -ENOMEM, "unpack");
        l->unpack->progress = u->progress;
        l->unpack->name_by_content = u->name_by_content;
        l->unpack->progress_user = u->progress_user;
        snprintf(name, sizeof name, "unpack-%.16s", l->m.id);
        struct sandbox_spec s = { .id = name, .profile = PROFILE_SCORE, .network = NETWORK_NONE };
        image_layer_spec(l, &s);
        sandbox_limits_default(&s.limits);
        s.limits.memory_bytes = UNPACK_MEMORY;
        s.limits.disk_bytes = bytes;
        s.limits.inodes = u->inodes_max ? u->inodes_max : IMAGE_LAYER_INODES_DEFAULT;
        uint64_t timeout = u->timeout_ms ? u->timeout_ms : IMAGE_UNPACK_TIMEOUT_MS;
        s.limits.wall_ms = timeout + 60000;
        const struct box_spec spec = { .sandbox = &s, .argv = (const char *const *)argv, .helper = true, .stdin_fd = TAKE_FD(fd), .fd = -1,
                                       .timeout_ms = timeout, .output = on_line };
        return box_start(st->spawner, &spec, unpacked, l, &l->box, e);
}

void image_layer_unpack(struct image_layer *l, const struct image_unpack *u) {
        struct error e = { 0 };
        int r = start_unpack(l, u, &e);
        if (r < 0)
                end(l, image_failure_of(r), &e);
}

/* ---- commands ---- */

static void on_output(const char *p, size_t n, void *user) {
        struct image_layer *l = user;
        if (l->run->output)
                l->run->output(p, n, l->run->user);
}

static void ran(const struct box_result *r, void *user) {
        struct image_layer *l = user;
        struct error e = { 0 };
        enum image_failure failure = failure_of_box(r, "the command", &e);
        if (failure == IMAGE_OK && (!WIFEXITED(r->status) || WEXITSTATUS(r->status) != 0)) {
                size_t n = strlen(r->err);
                const char *tail = r->err + (n > RUN_TAIL_SHOWN ? n - RUN_TAIL_SHOWN : 0);
                failure = IMAGE_STEP_FAILED;
                if (WIFSIGNALED(r->status))
                        error_say(&e, -EIO, "the command was killed by signal %d: %s", WTERMSIG(r->status), tail);
                else
                        error_say(&e, -EIO, "the command ended with status %d: %s", WEXITSTATUS(r->status), tail);
        }
        end(l, failure, &e);
}

void image_layer_run(struct image_layer *l, const struct image_run *run) {
        struct error e = { 0 };
        struct sandbox_spec s = *run->sandbox;
        image_layer_spec(l, &s);
        l->run = calloc(1, sizeof *l->run);
        int r = l->run ? 0 : error_set(&e, -ENOMEM, "run a command");
        if (r == 0) {
                *l->run = (struct image_run_state){ run->output, run->output_user };
                const struct box_spec spec = { .sandbox = &s, .argv = run->argv, .env = run->env, .cwd = run->cwd, .user = run->user, .both = true,
                                               .stdin_fd = -1, .fd = -1, .timeout_ms = run->timeout_ms, .output = on_output };
                r = box_start(l->store->spawner, &spec, ran, l, &l->box, &e);
        }
        if (r < 0)
                end(l, image_failure_of(r), &e);
}
