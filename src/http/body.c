/* Request bodies. Up to body_memory_max they stay in memory. A longer one goes to a file without a name in spool_dir, a piece at a
 * time, by the loop's pool: while a piece is being written the connection does not read, so a fast sender never makes us hold
 * more than one piece. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "http/internal.h"

#define RELEASE_MAX (8u * 1024 * 1024)   /* spooled bodies over this are given back by the pool */

void body_init(struct body *b) {
        *b = (struct body){ .fd = -1 };
}

struct http_body_hold { struct buf mem; void *map; size_t len; int fd; };

struct http_body_hold *http_body_release(struct http_body_hold *h) {
        if (!h)
                return NULL;
        if (h->map)
                munmap(h->map, h->len);
        fd_close(h->fd);
        buf_release(&h->mem);
        free(h);
        return NULL;
}

static struct http_body_hold *take(struct body *b) {
        struct http_body_hold *h = calloc(1, sizeof *h);
        if (!h)
                return NULL;
        *h = (struct http_body_hold){ .mem = b->mem, .map = b->map, .len = (size_t)b->len, .fd = b->fd };
        body_init(b);
        return h;
}

int http_body_hold(struct http_request *r, struct http_body_hold **ret, const char **ret_data, size_t *ret_len) {
        const char *data = NULL;
        size_t n = 0;
        int e = http_body(r, &data, &n);
        if (e < 0)
                return e;
        struct http_body_hold *h = take(&r->body);
        if (!h)
                return -ENOMEM;
        *ret = h;
        *ret_data = data;
        *ret_len = n;
        return 0;
}

struct give_back { uv_work_t work; struct http_body_hold *hold; };

static void give_back(uv_work_t *work) {
        http_body_release(container_of(work, struct give_back, work)->hold);
}

static void given_back(uv_work_t *work, int status) {
        struct give_back *g = container_of(work, struct give_back, work);
        if (status < 0)
                http_body_release(g->hold);
        free(g);
}

/* The kernel takes a file's pages back when its last user goes: tens of milliseconds for a large one. */
static bool release_in_pool(struct body *b, uv_loop_t *loop) {
        _cleanup_free_ struct give_back *g = calloc(1, sizeof *g);
        if (!g || !(g->hold = take(b)))
                return false;
        if (uv_queue_work(loop, &g->work, give_back, given_back) < 0)
                http_body_release(g->hold);
        else
                TAKE_PTR(g);
        return true;
}

void body_release(struct body *b, uv_loop_t *loop) {
        ASSERT(!b->busy);
        if (b->fd >= 0 && b->len > RELEASE_MAX && release_in_pool(b, loop))
                return;
        if (b->map)
                munmap(b->map, (size_t)b->len);
        fd_close(b->fd);
        buf_release(&b->mem);
        body_init(b);
}

uint64_t body_limit(const struct http_request *r) {
        return r->route && r->route->body_max ? r->route->body_max : r->c->s->cfg.limits.body_max;
}

int body_add(struct body *b, const char *p, size_t n, const struct http_limits *l, uint64_t max) {
        if (n > max - MIN2(b->len, max))
                return b->r = -EFBIG;
        /* One read's worth may come on top before the flush. */
        b->mem.limit = l->body_memory_max + READ_CHUNK;
        int r = buf_add(&b->mem, p, n);
        if (r < 0)
                return b->r = r;
        b->len += n;
        return 0;
}

static int open_spool(const char *dir) {
        int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
                return fd < 0 ? -errno : fd;
        char path[4096];
        if (snprintf(path, sizeof path, "%s/.spool-XXXXXX", dir) >= (int)sizeof path)
                return -ENAMETOOLONG;
        fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        unlink(path);
        return fd;
}

static void start_write(struct conn *c);

static void written(uv_fs_t *req) {
        struct conn *c = req->data;
        struct body *b = &c->r.body;
        ssize_t n = req->result;
        uv_fs_req_cleanup(req);
        b->busy = false;
        if (n > 0) {
                buf_consume(&b->mem, (size_t)n);
                b->written += (uint64_t)n;
        } else
                b->r = n < 0 ? (int)n : -EIO;
        if (c->state != CONN_CLOSED && b->r == 0 && b->mem.len > 0)
                start_write(c);
        else if (c->state != CONN_CLOSED)
                conn_pump(c);
        conn_unref(c);
}

static void start_write(struct conn *c) {
        struct body *b = &c->r.body;
        uv_buf_t piece = uv_buf_init(b->mem.data, (unsigned)b->mem.len);
        b->req.data = c;
        int r = uv_fs_write(c->s->loop, &b->req, b->fd, &piece, 1, (int64_t)b->written, written);
        if (r < 0) {
                b->r = r;
                return;
        }
        b->busy = true;
        c->pending++;
}

bool body_flush(struct conn *c, bool last) {
        struct body *b = &c->r.body;
        if (b->busy)
                return true;
        if (b->r < 0 || b->mem.len == 0 || (b->mem.len <= c->s->cfg.limits.body_memory_max && !(last && b->fd >= 0)))
                return false;
        if (b->fd < 0) {
                int fd = open_spool(c->s->spool_dir);
                if (fd < 0) {
                        b->r = fd;
                        return false;
                }
                b->fd = fd;
        }
        start_write(c);
        return b->busy;
}

size_t http_body_len(const struct http_request *r) {
        return (size_t)r->body.len;
}

int http_body(struct http_request *r, const char **ret_data, size_t *ret_len) {
        struct body *b = &r->body;
        if (b->fd < 0) {
                *ret_data = buf_str(&b->mem);
                *ret_len = b->mem.len;
                return 0;
        }
        if (!b->map) {
                void *map = mmap(NULL, (size_t)b->len, PROT_READ, MAP_PRIVATE, b->fd, 0);
                if (map == MAP_FAILED)
                        return -errno;
                b->map = map;
        }
        *ret_data = b->map;
        *ret_len = (size_t)b->len;
        return 0;
}
