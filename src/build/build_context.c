/* The build context: hashed in the pool, unpacked by the helper into a layer of its own. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/tar_write.h"
#include "base/clock.h"
#include "base/fs.h"
#include "build/build_private.h"

#define HASH_PIECE (1u << 20)
#define CONTEXT_NAME_MAX 4000u

/* ---- the hash ---- */

struct hashing {
        uv_work_t work;
        struct build *build;
        int fd, r;
        char hex[SHA256_HEX];
};

static void hash_file(uv_work_t *work) {
        struct hashing *j = work->data;
        struct sha256 h;
        char *space = malloc(HASH_PIECE);
        uint64_t at = 0;
        ssize_t n = 0;
        j->r = space ? sha256_init(&h) : -ENOMEM;
        if (j->r < 0) {
                free(space);
                return;
        }
        while ((n = pread(j->fd, space, HASH_PIECE, (off_t)at)) > 0 && (at += (uint64_t)n) <= BUILD_CONTEXT_BYTES_MAX)
                sha256_update(&h, space, (size_t)n);
        j->r = n < 0 ? -errno : n > 0 ? -EFBIG : 0;
        sha256_finish(&h, j->hex);
        free(space);
}

/* Everything that the image depends on but what its names mean elsewhere. */
static void name_once(struct build *b) {
        struct sha256 h;
        char hex[SHA256_HEX];
        ASSERT(sha256_init(&h) == 0);
        sha256_update_str(&h, "brig build once 1");
        sha256_update_str(&h, b->context_hash);
        sha256_update_str(&h, b->text ? "" : b->path);
        if (b->text)
                sha256_update(&h, b->text, b->text_len);
        sha256_update_str(&h, "");
        for (char **a = b->args; a && *a; a++)
                sha256_update_str(&h, *a);
        sha256_update_str(&h, b->target ? b->target : "");
        sha256_update_str(&h, sandbox_network_to_string((int)b->network));
        sha256_finish(&h, hex);
        snprintf(b->once_name, sizeof b->once_name, "brig.build/%s:once", hex);
}

static void go_on(struct build *b) {
        struct error e;
        if (b->once) {
                name_once(b);
                struct image *img = image_find(b->builder->store, b->once_name);
                if (img) {
                        build_finish(b, img);
                        return;
                }
        }
        if (!b->text)
                build_read_dockerfile(b);
        else if (build_plan(b, &e) < 0)
                build_fault(b, &e);
        else
                build_advance(b);
}

static void hashed(uv_work_t *work, int status) {
        struct hashing *j = work->data;
        struct build *b = j->build;
        int r = j->r;
        bool over = b->over;
        if (!over)
                memcpy(b->context_hash, j->hex, sizeof b->context_hash);
        close(j->fd);
        free(j);
        build_unpend(b);
        if (over)
                return;
        if (r == -EFBIG)
                build_fail_text(b, IMAGE_TOO_LARGE, r, "the build context");
        else if (r < 0)
                build_fail_text(b, IMAGE_INTERNAL, r, "read the build context");
        else
                go_on(b);
}

void build_hash_context(struct build *b) {
        struct hashing *j;
        if (b->context < 0) {
                go_on(b);
                return;
        }
        j = calloc(1, sizeof *j);
        if (j)
                j->fd = fcntl(b->context, F_DUPFD_CLOEXEC, 0);
        if (!j || j->fd < 0) {
                free(j);
                build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "read the build context");
                return;
        }
        j->build = b;
        j->work.data = j;
        ASSERT(uv_queue_work(image_store_loop(b->builder->store), &j->work, hash_file, hashed) == 0);
        b->pending++;
}

/* ---- the layer ---- */

static void make_context(struct build *b, struct image_layer *l) {
        const struct image_unpack u = { .fd = b->context, .target = BUILD_CONTEXT_TOP, .no_whiteouts = true };
        struct error e;
        if (lseek(b->context, 0, SEEK_SET) < 0) {
                error_set(&e, -errno, "read the build context");
                image_layer_abandon(l, IMAGE_INTERNAL, &e);
        } else
                image_layer_unpack(l, &u);
}

static void context_made(struct build *b, struct image_chain *c) {
        b->context_chain = c;
        b->then(b);
}

void build_need_context(struct build *b, void (*then)(struct build *)) {
        struct sha256 h;
        char key[SHA256_HEX];
        struct image_chain *empty;
        if (b->context_chain) {
                then(b);
                return;
        }
        empty = image_chain_base(b->builder->store, IMAGE_SCRATCH);
        if (!empty) {
                build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "build context");
                return;
        }
        b->then = then;
        ASSERT(sha256_init(&h) == 0);
        sha256_update_str(&h, "brig build context 1");
        sha256_update_str(&h, b->context_hash);
        sha256_finish(&h, key);
        build_layer(b, empty, key, make_context, context_made);
        image_chain_unref(empty);
}

/* ---- the Dockerfile in it ---- */

static void dockerfile_read(struct build *b, const struct box_result *r) {
        struct error e;
        if (r->end == BOX_EXITED && WIFEXITED(r->status) && WEXITSTATUS(r->status) != 0) {
                error_say(&e, -EINVAL, "dockerfile: the build context holds no file %.200s", b->path);
                build_fail(b, IMAGE_INVALID, &e);
                return;
        }
        if (build_helper_ok(b, r, "read the Dockerfile") < 0)
                return;
        size_t n = r->out_len;
        if (n >= BOX_OUT_MAX) {
                error_say(&e, -EINVAL, "dockerfile: %.200s is larger than %u bytes; give its text", b->path, BOX_OUT_MAX - 1);
                build_fail(b, IMAGE_INVALID, &e);
                return;
        }
        b->text = malloc(n + 1);
        b->text_len = n;
        if (b->text)
                memcpy(b->text, r->out, n + 1);
        if (!b->text)
                build_fail_text(b, IMAGE_INTERNAL, -ENOMEM, "read the Dockerfile");
        else if (build_check_text(b, &e) < 0 || build_plan(b, &e) < 0)
                build_fault(b, &e);
        else
                build_advance(b);
}

static void read_it(struct build *b) {
        char path[CONTEXT_NAME_MAX + 32];
        snprintf(path, sizeof path, "%s/%s", BUILD_CONTEXT_TOP, b->path);
        const char *const argv[] = { "read-file", "root", path, NULL };
        build_helper(b, b->context_chain, argv, -1, dockerfile_read);
}

void build_read_dockerfile(struct build *b) { build_need_context(b, read_it); }

/* ---- from names and contents ---- */

static bool name_ok(const char *s) {
        size_t n = strlen(s);
        if (n == 0 || n > CONTEXT_NAME_MAX || s[0] == '/' || s[n - 1] == '/')
                return false;
        for (const char *p = s; p; p = strchr(p, '/')) {
                p += *p == '/';
                size_t len = strcspn(p, "/");
                if (len == 0 || len > 255 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
                        return false;
        }
        return true;
}

int build_context_make(struct builder *b, const struct build_file *files, size_t n, int *ret_fd, struct error *e) {
        static const char zeros[TAR_WRITE_END];
        _cleanup_buf_ struct buf head = BUF_INIT(TAR_WRITE_HEADER_MAX);
        _cleanup_close_ int fd = build_unnamed_file(b);
        int r = fd < 0 ? fd : 0;
        for (size_t i = 0; r == 0 && i < n; i++) {
                const struct build_file *f = &files[i];
                const struct tar_item it = { .path = f->name, .kind = TAR_WRITE_FILE, .mode = f->mode ? f->mode : 0644, .size = f->len };
                if (!name_ok(f->name))
                        return error_say(e, -EINVAL, "build_context: '%.200s' is not a relative path", f->name);
                buf_reset(&head);
                r = tar_write_header(&head, &it);
                r = r ? r : fs_write_all(fd, head.data, head.len);
                r = r ? r : fs_write_all(fd, f->data, f->len);
                r = r ? r : fs_write_all(fd, zeros, tar_write_padding(f->len));
        }
        r = r ? r : fs_write_all(fd, zeros, sizeof zeros);
        if (r < 0)
                return error_set(e, r, "keep the build context");
        if (lseek(fd, 0, SEEK_SET) < 0)
                return error_set(e, -errno, "keep the build context");
        *ret_fd = TAKE_FD(fd);
        return 0;
}
