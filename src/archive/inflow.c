#define OPENSSL_SUPPRESS_DEPRECATED        /* the plain functions: the others would make the static helper three times as large */
#include <lzma.h>
#include <openssl/sha.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "archive/inflow.h"

#define IN_SIZE (256u << 10)
#define ZSTD_WINDOW_LOG_MAX 27

enum packing { PACKING_UNKNOWN, PACKING_NONE, PACKING_GZIP, PACKING_XZ, PACKING_ZSTD };

struct inflow {
        int fd;
        enum packing packing;
        uint64_t in, out, out_max;
        SHA256_CTX sha;
        bool at_end;               /* of the descriptor */
        bool stream_end;           /* of the compressed stream: nothing more may come but padding */
        bool between;              /* gzip: a member has ended, another may follow */
        z_stream z;
        lzma_stream xz;
        ZSTD_DStream *zs;
        size_t zs_left;            /* 0: at the end of a frame */
        size_t at, have;
        unsigned char buf[IN_SIZE];
};

static int fill(struct inflow *f, struct error *e) {
        if (f->at < f->have || f->at_end)
                return 0;
        for (;;) {
                ssize_t n = read(f->fd, f->buf, sizeof f->buf);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set(e, -errno, "read the archive");
                f->at = 0;
                f->have = (size_t)n;
                f->in += (uint64_t)n;
                f->at_end = n == 0;
                return 0;
        }
}

/* The first bytes tell; a pipe may give them one by one. */
static int find_packing(struct inflow *f, struct error *e) {
        static const struct { unsigned char magic[6]; size_t n; enum packing packing; } known[] = {
                { { 0x1f, 0x8b }, 2, PACKING_GZIP }, { { 0xfd, '7', 'z', 'X', 'Z', 0 }, 6, PACKING_XZ }, { { 0x28, 0xb5, 0x2f, 0xfd }, 4, PACKING_ZSTD },
        };
        while (f->have < 6 && !f->at_end) {
                ssize_t n = read(f->fd, f->buf + f->have, sizeof f->buf - f->have);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return error_set(e, -errno, "read the archive");
                f->have += (size_t)n;
                f->in += (uint64_t)n;
                f->at_end = n == 0;
        }
        f->packing = PACKING_NONE;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
                if (f->have >= known[i].n && memcmp(f->buf, known[i].magic, known[i].n) == 0)
                        f->packing = known[i].packing;
        if (f->have >= 3 && memcmp(f->buf, "BZh", 3) == 0)
                return error_say(e, -EBADMSG, "the archive is packed with bzip2, which is not supported: gzip, xz, zstd or none");
        /* A skippable frame of zstd's comes first in some seekable archives. */
        if (f->have >= 4 && (f->buf[0] & 0xf0) == 0x50 && f->buf[1] == 0x2a && f->buf[2] == 0x4d && f->buf[3] == 0x18)
                f->packing = PACKING_ZSTD;
        return 0;
}

static int open_packing(struct inflow *f, struct error *e) {
        int ok = 1;
        if (f->packing == PACKING_GZIP)
                ok = inflateInit2(&f->z, 15 + 16) == Z_OK;
        if (f->packing == PACKING_XZ)
                ok = lzma_stream_decoder(&f->xz, INFLOW_WINDOW_MAX, LZMA_CONCATENATED) == LZMA_OK;
        if (f->packing == PACKING_ZSTD) {
                f->zs = ZSTD_createDStream();
                ok = f->zs && !ZSTD_isError(ZSTD_DCtx_setParameter(f->zs, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX));
        }
        return ok ? 0 : error_set(e, -ENOMEM, "start to unpack");
}

int inflow_open(int fd, uint64_t bytes_max, struct inflow **ret, struct error *e) {
        struct inflow *f = calloc(1, sizeof *f);
        if (!f)
                return error_set(e, -ENOMEM, "start to unpack");
        f->fd = fd;
        f->out_max = bytes_max;
        f->xz = (lzma_stream)LZMA_STREAM_INIT;
        SHA256_Init(&f->sha);
        int r = find_packing(f, e);
        if (r == 0)
                r = open_packing(f, e);
        if (r < 0) {
                inflow_free(f);
                return r;
        }
        *ret = f;
        return 0;
}

void inflow_free(struct inflow *f) {
        if (!f)
                return;
        if (f->packing == PACKING_GZIP)
                inflateEnd(&f->z);
        lzma_end(&f->xz);
        ZSTD_freeDStream(f->zs);
        free(f);
}

static int cut_off(struct error *e) { return error_say(e, -EBADMSG, "the archive ends too early"); }

/* Members follow one another; behind the last there may be zeros, as tapes and pads have them. */
static int next_member(struct inflow *f, struct error *e) {
        while (f->at < f->have && f->buf[f->at] == 0)
                f->at++;
        if (f->at == f->have)
                return 0;
        if (f->buf[f->at] != 0x1f)
                return error_say(e, -EBADMSG, "there is something behind the end of the gzip stream");
        f->between = false;
        return inflateReset(&f->z) == Z_OK ? 0 : error_set(e, -ENOMEM, "unpack");
}

static ssize_t read_gzip(struct inflow *f, void *p, size_t n, struct error *e) {
        f->z.next_out = p;
        f->z.avail_out = (unsigned)MIN2(n, (size_t)1 << 30);
        unsigned room = f->z.avail_out;
        while (f->z.avail_out == room) {
                int r = fill(f, e);
                if (r == 0 && f->between && f->at < f->have)
                        r = next_member(f, e);
                if (r < 0)
                        return r;
                if (f->at == f->have && f->at_end)
                        return f->between ? 0 : cut_off(e);
                if (f->between)
                        continue;
                f->z.next_in = f->buf + f->at;
                f->z.avail_in = (unsigned)(f->have - f->at);
                r = inflate(&f->z, Z_NO_FLUSH);
                f->at = f->have - f->z.avail_in;
                if (r == Z_STREAM_END)
                        f->between = true;
                else if (r != Z_OK && r != Z_BUF_ERROR)
                        return error_say(e, -EBADMSG, "the gzip stream is broken: %s", f->z.msg ? f->z.msg : "data error");
        }
        return (ssize_t)(room - f->z.avail_out);
}

static ssize_t read_xz(struct inflow *f, void *p, size_t n, struct error *e) {
        f->xz.next_out = p;
        f->xz.avail_out = n;
        while (f->xz.avail_out == n && !f->stream_end) {
                int r = fill(f, e);
                if (r < 0)
                        return r;
                f->xz.next_in = f->buf + f->at;
                f->xz.avail_in = f->have - f->at;
                lzma_ret l = lzma_code(&f->xz, f->at_end ? LZMA_FINISH : LZMA_RUN);
                f->at = f->have - f->xz.avail_in;
                if (l == LZMA_STREAM_END)
                        f->stream_end = true;
                else if (l == LZMA_BUF_ERROR)
                        return cut_off(e);
                else if (l == LZMA_MEMLIMIT_ERROR)
                        return error_say(e, -EFBIG, "the xz stream wants more than %llu bytes of memory", INFLOW_WINDOW_MAX);
                else if (l != LZMA_OK)
                        return error_say(e, -EBADMSG, "the xz stream is broken");
        }
        return (ssize_t)(n - f->xz.avail_out);
}

static ssize_t read_zstd(struct inflow *f, void *p, size_t n, struct error *e) {
        ZSTD_outBuffer out = { p, n, 0 };
        while (out.pos == 0) {
                int r = fill(f, e);
                if (r < 0)
                        return r;
                if (f->at == f->have && f->at_end && f->zs_left == 0)
                        return 0;
                ZSTD_inBuffer in = { f->buf, f->have, f->at };
                size_t left = ZSTD_decompressStream(f->zs, &out, &in);
                bool moved = in.pos != f->at || out.pos > 0;
                f->at = in.pos;
                if (ZSTD_isError(left))
                        return error_say(e, -EBADMSG, "the zstd stream is broken: %s", ZSTD_getErrorName(left));
                f->zs_left = left;
                if (!moved && f->at_end)
                        return cut_off(e);
        }
        return (ssize_t)out.pos;
}

static ssize_t read_plain(struct inflow *f, void *p, size_t n, struct error *e) {
        int r = fill(f, e);
        if (r < 0)
                return r;
        size_t take = MIN2(n, f->have - f->at);
        memcpy(p, f->buf + f->at, take);
        f->at += take;
        return (ssize_t)take;
}

ssize_t inflow_read(struct inflow *f, void *p, size_t n, struct error *e) {
        static ssize_t (*const readers[])(struct inflow *, void *, size_t, struct error *) = {
                [PACKING_NONE] = read_plain, [PACKING_GZIP] = read_gzip, [PACKING_XZ] = read_xz, [PACKING_ZSTD] = read_zstd,
        };
        if (n == 0)
                return 0;
        ssize_t got = readers[f->packing](f, p, n, e);
        if (got <= 0)
                return got;
        f->out += (uint64_t)got;
        if (f->out > f->out_max)
                return error_say(e, -EFBIG, "the archive unpacks to more than %llu bytes", (unsigned long long)f->out_max);
        SHA256_Update(&f->sha, p, (size_t)got);
        return got;
}

int inflow_finish(struct inflow *f, char ret_hex[static 65], struct error *e) {
        static const char digits[] = "0123456789abcdef";
        unsigned char hash[SHA256_DIGEST_LENGTH];
        char space[32768];
        ssize_t got;
        while ((got = inflow_read(f, space, sizeof space, e)) > 0)
                ;
        if (got < 0)
                return (int)got;
        SHA256_Final(hash, &f->sha);
        for (size_t i = 0; i < sizeof hash; i++) {
                ret_hex[2 * i] = digits[hash[i] >> 4];
                ret_hex[2 * i + 1] = digits[hash[i] & 15];
        }
        ret_hex[64] = 0;
        return 0;
}

uint64_t inflow_bytes_in(const struct inflow *f) { return f->in; }
uint64_t inflow_bytes_out(const struct inflow *f) { return f->out; }
