#include <string.h>
#include <sys/types.h>
#include <zlib.h>

#include "archive/tar_stream.h"
#include "archive/tar_write.h"
#include "base/fs.h"

#define SPACE (128u * 1024)
#define HOLE_MIN (64 * 1024)           /* a file that saves less is written out */
#define PIECES_MAX 4096                /* of a sparse file; what follows counts as one piece */

struct tar_header {                    /* GNU */
        char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[8], user[32], group[32], major[8], minor[8];
        char accessed[12], changed[12], offset[12], long_names[4], unused;
        struct { char at[12], size[12]; } sparse[4];
        char extended, real_size[12], pad[17];
};
_Static_assert(sizeof(struct tar_header) == TAR_WRITE_BLOCK, "a tar header is a block");

struct sparse_more { struct { char at[12], size[12]; } sparse[21]; char extended, pad[7]; };
_Static_assert(sizeof(struct sparse_more) == TAR_WRITE_BLOCK, "a sparse header is a block");

struct piece { uint64_t at, size; };

struct tar_stream {
        int fd;
        bool gzip;
        z_stream z;
        uint64_t left;                 /* of the archive's bytes */
        size_t n;
        char out[SPACE], in[SPACE];
        struct piece pieces[PIECES_MAX]; size_t n_pieces;
};

/* ---- out ---- */

static int flush(struct tar_stream *t) {
        if (t->n > t->left)
                return -EFBIG;
        int r = fs_write_all(t->fd, t->out, t->n);
        t->left -= t->n;
        t->n = 0;
        return r;
}

static int put_plain(struct tar_stream *t, const char *p, size_t n) {
        while (n > 0) {
                size_t part = MIN2(n, SPACE - t->n);
                memcpy(t->out + t->n, p, part);
                t->n += part;
                p += part;
                n -= part;
                int r = t->n == SPACE ? flush(t) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

static int put_gzip(struct tar_stream *t, const char *p, size_t n, int how) {
        t->z.next_in = (Bytef *)(uintptr_t)p;
        t->z.avail_in = (uInt)n;
        for (;;) {
                t->z.next_out = (Bytef *)t->out + t->n;
                t->z.avail_out = (uInt)(SPACE - t->n);
                int z = deflate(&t->z, how);
                if (z == Z_STREAM_ERROR)
                        return -EIO;
                t->n = SPACE - t->z.avail_out;
                bool full = t->z.avail_out == 0;
                int r = full ? flush(t) : 0;
                if (r < 0)
                        return r;
                if (!full && t->z.avail_in == 0 && (how != Z_FINISH || z == Z_STREAM_END))
                        return 0;
        }
}

static int put(struct tar_stream *t, const void *p, size_t n) {
        return t->gzip ? put_gzip(t, p, n, Z_NO_FLUSH) : put_plain(t, p, n);
}

static int put_zeros(struct tar_stream *t, uint64_t n) {
        static const char zeros[8192];
        int r = 0;
        while (r == 0 && n > 0) {
                size_t part = (size_t)MIN2(n, (uint64_t)sizeof zeros);
                r = put(t, zeros, part);
                n -= part;
        }
        return r;
}

/* ---- headers ---- */

/* Octal while it fits, else the base-256 form that every reader of today knows. */
static void put_number(char *at, size_t size, uint64_t v) {
        if (size >= 12 ? v >> 33 == 0 : v >> (3 * (size - 1)) == 0) {
                for (size_t i = size - 1; i-- > 0; v >>= 3)
                        at[i] = (char)('0' + (v & 7));
                at[size - 1] = 0;
                return;
        }
        for (size_t i = size; i-- > 1; v >>= 8)
                at[i] = (char)(v & 0xff);
        at[0] = (char)0x80;
}

static int put_header(struct tar_stream *t, struct tar_header *h) {
        unsigned sum = 0;
        memcpy(h->magic, "ustar  ", 8);
        memset(h->checksum, ' ', sizeof h->checksum);
        for (size_t i = 0; i < TAR_WRITE_BLOCK; i++)
                sum += ((const unsigned char *)h)[i];
        snprintf(h->checksum, sizeof h->checksum, "%06o", sum);
        h->checksum[7] = ' ';
        return put(t, h, sizeof *h);
}

static void copy_name(char ret[static 100], const char *name) { memcpy(ret, name, strnlen(name, 100)); }

/* A name that the header has no room for goes before it, as the content of an entry of its own. */
static int put_long(struct tar_stream *t, char type, const char *name) {
        size_t n = strlen(name) + 1;
        if (n <= 101)
                return 0;
        struct tar_header h = { .type = type };
        copy_name(h.name, "././@LongLink");
        put_number(h.mode, sizeof h.mode, 0644);
        put_number(h.uid, sizeof h.uid, 0);
        put_number(h.gid, sizeof h.gid, 0);
        put_number(h.size, sizeof h.size, n);
        put_number(h.mtime, sizeof h.mtime, 0);
        int r = put_header(t, &h);
        if (r == 0)
                r = put(t, name, n);
        return r == 0 ? put_zeros(t, tar_write_padding(n)) : r;
}

static int begin_entry(struct tar_stream *t, struct tar_header *h, char type, const char *name, const struct stat *st, const char *target, uint64_t size) {
        *h = (struct tar_header){ .type = type };
        copy_name(h->name, name);
        if (target)
                copy_name(h->link, target);
        put_number(h->mode, sizeof h->mode, st->st_mode & 07777);
        put_number(h->uid, sizeof h->uid, st->st_uid);
        put_number(h->gid, sizeof h->gid, st->st_gid);
        put_number(h->size, sizeof h->size, size);
        put_number(h->mtime, sizeof h->mtime, (uint64_t)MAX2(st->st_mtim.tv_sec, (time_t)0));
        int r = target ? put_long(t, 'K', target) : 0;
        return r == 0 ? put_long(t, 'L', name) : r;
}

int tar_stream_entry(struct tar_stream *t, const char *name, const struct stat *st, const char *target, bool hard) {
        struct tar_header h;
        int r = begin_entry(t, &h, hard ? '1' : target ? '2' : '5', name, st, target, 0);
        return r == 0 ? put_header(t, &h) : r;
}

/* ---- files ---- */

/* Where there is data; the end of the file is always a piece, so that its size is known. */
static bool find_pieces(struct tar_stream *t, const struct stat *st, int fd) {
        uint64_t size = (uint64_t)st->st_size, at = 0;
        t->n_pieces = 0;
        if (size < HOLE_MIN || (uint64_t)st->st_blocks * 512 + HOLE_MIN > size)
                return false;
        while (at < size && t->n_pieces < PIECES_MAX - 2) {
                off_t data = lseek(fd, (off_t)at, SEEK_DATA);
                if (data < 0 || (uint64_t)data >= size)
                        break;                 /* a hole to the end */
                off_t hole = lseek(fd, data, SEEK_HOLE);
                uint64_t end = hole < 0 ? size : MIN2((uint64_t)hole, size);
                if (end <= (uint64_t)data)
                        return false;          /* it changes under us: as an ordinary file */
                t->pieces[t->n_pieces++] = (struct piece){ (uint64_t)data, end - (uint64_t)data };
                at = end;
        }
        if (t->n_pieces == PIECES_MAX - 2 && at < size)
                t->pieces[t->n_pieces++] = (struct piece){ at, size - at };
        else
                t->pieces[t->n_pieces++] = (struct piece){ size, 0 };
        return true;
}

static int put_data(struct tar_stream *t, int fd, uint64_t at, uint64_t size) {
        while (size > 0) {
                ssize_t n = pread(fd, t->in, (size_t)MIN2(size, (uint64_t)SPACE), (off_t)at);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return put_zeros(t, size);     /* shorter than it was */
                int r = put(t, t->in, (size_t)n);
                if (r < 0)
                        return r;
                at += (uint64_t)n;
                size -= (uint64_t)n;
        }
        return 0;
}

static int put_sparse_headers(struct tar_stream *t, struct tar_header *h) {
        size_t i = 0;
        for (; i < t->n_pieces && i < ARRAY_SIZE(h->sparse); i++) {
                put_number(h->sparse[i].at, 12, t->pieces[i].at);
                put_number(h->sparse[i].size, 12, t->pieces[i].size);
        }
        h->extended = i < t->n_pieces;
        int r = put_header(t, h);
        while (r == 0 && i < t->n_pieces) {
                struct sparse_more more = { .extended = 0 };
                for (size_t k = 0; k < ARRAY_SIZE(more.sparse) && i < t->n_pieces; k++, i++) {
                        put_number(more.sparse[k].at, 12, t->pieces[i].at);
                        put_number(more.sparse[k].size, 12, t->pieces[i].size);
                }
                more.extended = i < t->n_pieces;
                r = put(t, &more, sizeof more);
        }
        return r;
}

int tar_stream_file(struct tar_stream *t, const char *name, const struct stat *st, int fd) {
        struct tar_header h;
        uint64_t size = (uint64_t)st->st_size;
        bool sparse = find_pieces(t, st, fd);
        if (sparse) {
                size = 0;
                for (size_t i = 0; i < t->n_pieces; i++)
                        size += t->pieces[i].size;
        } else {
                t->pieces[0] = (struct piece){ 0, size };
                t->n_pieces = 1;
        }
        int r = begin_entry(t, &h, sparse ? 'S' : '0', name, st, NULL, size);
        if (sparse)
                put_number(h.real_size, sizeof h.real_size, (uint64_t)st->st_size);
        if (r == 0)
                r = sparse ? put_sparse_headers(t, &h) : put_header(t, &h);
        for (size_t i = 0; r == 0 && i < t->n_pieces; i++)
                r = put_data(t, fd, t->pieces[i].at, t->pieces[i].size);
        return r == 0 ? put_zeros(t, tar_write_padding(size)) : r;
}

/* ---- life ---- */

int tar_stream_open(int fd, bool gzip, int level, uint64_t max, struct tar_stream **ret) {
        struct tar_stream *t = calloc(1, sizeof *t);
        if (!t)
                return -ENOMEM;
        t->fd = fd;
        t->gzip = gzip;
        t->left = max;
        if (gzip && deflateInit2(&t->z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
                free(t);
                return -ENOMEM;
        }
        *ret = t;
        return 0;
}

int tar_stream_finish(struct tar_stream *t) {
        int r = put_zeros(t, TAR_WRITE_END);
        if (r == 0 && t->gzip)
                r = put_gzip(t, "", 0, Z_FINISH);
        return r == 0 ? flush(t) : r;
}

void tar_stream_free(struct tar_stream *t) {
        if (!t)
                return;
        if (t->gzip)
                deflateEnd(&t->z);
        free(t);
}
