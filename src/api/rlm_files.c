/* Files between a turn and its children: POST .../children/{cid}/inputs brings them in, .../results brings them out. The host names them, one by one.
 *
 * For each file the helper reads in the one sandbox and writes in the other, and a job on the pool carries the bytes between the two pipes and hashes
 * them: so what is said of a file is what went through our hands. A link as any part of a path is refused by the kernel, in both. A file is there whole
 * or not at all; those before one that failed stay.
 *
 *     find both sandboxes ──> read ──its size──> write ──> carry ──┐
 *            ^                                                     ├─ all three are over ──> the next file, or the answer
 *            └─────────────────────────────────────────────────────┘
 *
 * Sandboxes are found again for each file: either may be gone by then. Who asked may be, too; then the file under way is the last. */
#include <poll.h>
#include <string.h>

#include "api/rlm_api.h"
#include "base/hash.h"
#include "base/strv.h"
#include "rlm/rlm.h"
#include "sandbox/file_pack.h"
#include "session/files.h"

#define PIECE (128u * 1024)
#define CARRY_WAIT_MS 60000            /* for either end to go on */
#define PATH_SIZE (FILE_PACK_NAME_MAX + 128)
#define ANSWER_MAX (1u << 20)
#define WORKSPACE "/workspace"

struct files_body { char **paths; };
static const struct field rows[] = {
        { .name = "paths", .kind = FIELD_LIST, .at = offsetof(struct files_body, paths), .max = RLM_INPUT_FILES_MAX,
          .doc = "regular files below `/workspace`, relative, without `..`, backslashes and links; inputs: at most 256, 64 MiB together; results: at most 16, 16 MiB" },
};
struct v1_body v1_rlm_files_body(void) { return (struct v1_body){ rows, ARRAY_SIZE(rows) }; }

struct copying {
        struct http_request *r;        /* NULL: nobody waits any more */
        struct api *api;
        bool results;                  /* out of the child; else into it */
        char session[RLM_ID_SIZE], turn[RLM_TURN_ID_SIZE], child[RLM_ID_SIZE];
        char **paths;
        size_t at;
        uint64_t left;                 /* bytes that may still come */
        struct buf answer;
        struct json_writer w;
        /* the file under way */
        struct files_call *get, *put;
        bool carrying;
        struct files_result said;      /* what the first of them that failed said; x is 0 while none did */
        uv_work_t work;
        int in, out;
        uint64_t size, bytes;
        int carried;
        char hash[SHA256_HEX];
};

/* ---- the end ---------------------------------------------------------------------------------------------------------------------------------- */

static void copying_free(struct copying *c) {
        strv_free(c->paths);
        buf_release(&c->answer);
        free(c);
}

static void closed(void *user) { ((struct copying *)user)->r = NULL; }

static void refuse(struct copying *c, int status, const char *code, const char *about, const char *message) {
        char text[PATH_SIZE + FILES_REASON_MAX];
        snprintf(text, sizeof text, "%s%s%s", about ? about : "", about ? ": " : "", message);
        if (c->r) {
                http_on_close(c->r, NULL, NULL);
                v1_error(c->r, status, code, text, NULL);
        }
        copying_free(c);
}

static void refuse_file(struct copying *c) {
        static const struct { const char *code; int status; const char *as, *text; } words[] = {
                { "not_found", 404, "file_not_found", "there is no such file" },   { "too_many_links", 400, "link", "it is a link, or leads through one" },
                { "is_a_directory", 400, "not_a_file", "it is a directory" },     { "not_a_directory", 400, "not_a_file", "it leads through a file" },
                { "not_a_file", 400, "not_a_file", "it is no regular file" },     { "disk_full", 507, "disk_full", "there is no room for it" },
        };
        const char *path = c->paths[c->at];
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                if (c->said.x == -EREMOTEIO && strcmp(c->said.code, words[i].code) == 0) {
                        refuse(c, words[i].status, words[i].as, path, words[i].text);
                        return;
                }
        if (c->said.x == -EFBIG)
                refuse(c, 413, "too_large", path, c->results ? "results may have 16 MiB together" : "inputs may have 64 MiB together");
        else if (c->said.x == -ESHUTDOWN)
                refuse(c, 409, "turn_ended", NULL, "The turn has ended");
        else
                refuse(c, 500, "internal", path, c->said.message[0] ? c->said.message : "it could not be copied");
}

static void finish(struct copying *c) {
        struct http_request *r = c->r;
        json_end_array(&c->w);
        json_end_object(&c->w);
        int x = json_finish(&c->w);
        if (r) {
                http_on_close(r, NULL, NULL);
                v1_reply(r, 200, x, &c->answer);
        }
        copying_free(c);
}

/* ---- one file ----------------------------------------------------------------------------------------------------------------------------------- */

static void next(struct copying *c);

static void fail(struct copying *c, int x) {
        if (c->said.x == 0)
                c->said.x = x;
}

static void target_of(const struct copying *c, char ret[static PATH_SIZE]) {
        if (c->results)
                snprintf(ret, PATH_SIZE, WORKSPACE "/children/%s/%s", c->child, c->paths[c->at]);
        else
                snprintf(ret, PATH_SIZE, WORKSPACE "/%s", c->paths[c->at]);
}

static void part_over(struct copying *c) {
        char target[PATH_SIZE];
        if (c->get || c->put || c->carrying)
                return;
        if (c->said.x < 0 || !c->r) {
                fail(c, -ECANCELED);
                refuse_file(c);
                return;
        }
        target_of(c, target);
        json_begin_object(&c->w);
        json_field_text(&c->w, "path", c->paths[c->at]);
        json_field_text(&c->w, "to", target + strlen(WORKSPACE "/"));
        json_field_uint(&c->w, "size", c->bytes);
        json_field_text(&c->w, "sha256", c->hash);
        json_end_object(&c->w);
        c->left -= c->bytes;
        c->at++;
        next(c);
}

static void take_result(struct copying *c, const struct files_result *res) {
        if (res->x == 0 || c->said.x < 0)
                return;
        c->said = *res;
        c->said.json = NULL;
}

static void on_got(const struct files_result *res, void *user) {
        struct copying *c = user;
        c->get = NULL;
        take_result(c, res);
        part_over(c);
}

static void on_put(const struct files_result *res, void *user) {
        struct copying *c = user;
        c->put = NULL;
        take_result(c, res);
        part_over(c);
}

/* Pool. Both descriptors do not block; either end may go away at any time. */
static bool await(int fd, short events) {
        struct pollfd p = { .fd = fd, .events = events };
        int r;
        do
                r = poll(&p, 1, CARRY_WAIT_MS);
        while (r < 0 && errno == EINTR);
        return r > 0;
}

static int write_piece(int fd, const char *p, size_t n) {
        while (n > 0) {
                ssize_t w = write(fd, p, n);
                if (w < 0 && errno == EAGAIN && await(fd, POLLOUT))
                        continue;
                if (w < 0 && errno == EINTR)
                        continue;
                if (w < 0)
                        return -errno;
                p += w;
                n -= (size_t)w;
        }
        return 0;
}

static void carry(uv_work_t *work) {
        struct copying *c = work->data;
        _cleanup_free_ char *space = malloc(PIECE);
        struct sha256 h;
        int r = space ? sha256_init(&h) : -ENOMEM;
        c->carried = r;
        if (r < 0)
                return;
        while (r == 0) {
                ssize_t n = read(c->in, space, PIECE);
                if (n < 0 && (errno == EINTR || (errno == EAGAIN && await(c->in, POLLIN))))
                        continue;
                if (n <= 0) {
                        r = n < 0 ? -errno : 0;
                        break;
                }
                c->bytes += (uint64_t)n;
                sha256_update(&h, space, (size_t)n);
                r = write_piece(c->out, space, (size_t)n);
        }
        sha256_finish(&h, c->hash);
        c->carried = r < 0 ? r : c->bytes != c->size ? -EIO : 0;
}

static void on_carried(uv_work_t *work, int status) {
        struct copying *c = work->data;
        c->carrying = false;
        c->in = fd_close(c->in);
        if (c->put && c->carried == 0 && status == 0)
                files_commit(c->put);
        else if (c->put)
                files_abort(c->put);
        c->out = fd_close(c->out);
        /* Whose end was gone says why by itself. */
        bool says_itself = (c->get || c->put) && (c->carried == -EPIPE || c->carried == -EIO);
        if (c->carried < 0 && !says_itself)
                fail(c, c->carried);
        part_over(c);
}

static struct sandbox *sandbox_of(struct copying *c, bool child) {
        struct rlm *m = engine_rlm(c->api->engine);
        struct rlm_turn *t, *k;
        if (!m || rlm_turn_find(m, c->session, c->turn, &t) != RLM_OK || rlm_child_find(t, c->child, &k) != RLM_OK)
                return NULL;
        return rlm_turn_sandbox(child ? k : t);
}

static void on_opened(int64_t size, void *user) {
        struct copying *c = user;
        char path[PATH_SIZE];
        const char *const argv[] = { "files", "write", "nolinks", "replace", "parents", "uid=1000", "gid=1000", "--", path, NULL };
        struct sandbox *to = sandbox_of(c, !c->results);
        target_of(c, path);
        int x = !to ? -ESHUTDOWN : size < 0 || (uint64_t)size > c->left ? -EFBIG : files_put(to, argv, on_put, c, &c->put, &c->out);
        if (x == 0) {
                c->size = (uint64_t)size;
                c->in = files_content(c->get, 0, c->size);
                c->work.data = c;
                c->carrying = true;
                x = uv_queue_work(c->api->loop, &c->work, carry, on_carried);
                ASSERT(x == 0);
                return;
        }
        fail(c, x);
        files_cancel(TAKE_PTR(c->get));
        part_over(c);
}

static void next(struct copying *c) {
        char path[PATH_SIZE];
        const char *const argv[] = { "files", "read", "nolinks", "--", path, NULL };
        if (!c->paths[c->at]) {
                finish(c);
                return;
        }
        snprintf(path, sizeof path, WORKSPACE "/%s", c->paths[c->at]);
        c->bytes = 0;
        struct sandbox *from = sandbox_of(c, c->results);
        int x = from ? files_get(c->api->loop, from, argv, on_opened, on_got, c, &c->get) : -ESHUTDOWN;
        if (x < 0) {
                c->get = NULL;
                fail(c, x);
                refuse_file(c);
        }
}

/* ---- asking ------------------------------------------------------------------------------------------------------------------------------------- */

static bool path_ok(const char *s) { return file_pack_name_ok(s) && !strchr(s, '\\'); }

static bool read_paths(struct http_request *r, bool results, char ***ret) {
        struct files_body body = { 0 };
        struct error e = { 0 };
        struct json o;
        if (!rlm_body(r, RLM_BODY_MAX, &o))
                return false;
        int x = fields_decode(rows, ARRAY_SIZE(rows), &o, 0, &body, &e);
        size_t n = 0;
        for (; x == 0 && body.paths && body.paths[n]; n++)
                if (!path_ok(body.paths[n]))
                        x = error_say(&e, -EINVAL, "Invalid value for 'paths': expected relative paths without .. and backslashes");
        if (x == 0 && (n == 0 || (results && n > RLM_RESULT_FILES_MAX)))
                x = error_say(&e, -EINVAL, "Invalid value for 'paths': expected 1 to %u of them", results ? RLM_RESULT_FILES_MAX : RLM_INPUT_FILES_MAX);
        if (x == 0) {
                *ret = body.paths;
                return true;
        }
        strv_free(body.paths);
        v1_fault(r, x, e.text, NULL);
        return false;
}

static void copy(struct http_request *r, void *user, bool results) {
        struct rlm_turn *t, *child;
        char **paths = NULL;
        if (!read_paths(r, results, &paths))
                return;
        t = rlm_turn_of(r, user);
        enum rlm_fault f = t ? rlm_child_find(t, http_param(r, "cid"), &child) : RLM_OK;
        struct copying *c = t && f == RLM_OK ? calloc(1, sizeof *c) : NULL;
        if (!c) {
                strv_free(paths);
                if (t)
                        rlm_fault_answer(r, f == RLM_OK ? RLM_INTERNAL : f, NULL);
                return;
        }
        *c = (struct copying){ .r = r, .api = user, .results = results, .paths = paths, .left = results ? RLM_RESULT_BYTES_MAX : RLM_INPUT_BYTES_MAX, .in = -1, .out = -1 };
        snprintf(c->session, sizeof c->session, "%s", http_param(r, "id"));
        snprintf(c->turn, sizeof c->turn, "%s", http_param(r, "tid"));
        snprintf(c->child, sizeof c->child, "%s", http_param(r, "cid"));
        buf_init(&c->answer, ANSWER_MAX);
        c->w = (struct json_writer)JSON_WRITER(&c->answer);
        json_begin_object(&c->w);
        json_put_key(&c->w, "files");
        json_begin_array(&c->w);
        http_on_close(r, closed, c);
        next(c);
}

void v1_post_rlm_inputs(struct http_request *r, void *user) { copy(r, user, false); }
void v1_post_rlm_results(struct http_request *r, void *user) { copy(r, user, true); }
