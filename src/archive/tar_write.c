#include "archive/tar_write.h"

#include <string.h>

#define NAME_MAX_BYTES 4095u

struct header {
        char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], kind, link[100], magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_WRITE_BLOCK, "a header is a block");

/* size - 1 octal digits; false if the value does not fit. */
static bool octal(char *field, size_t size, uint64_t v) {
        if (size - 1 < 21 && v >> (3 * (size - 1)))
                return false;
        for (size_t i = size - 1; i-- > 0; v >>= 3)
                field[i] = (char)('0' + (v & 7));
        field[size - 1] = 0;
        return true;
}

/* "<length> <key>=<value>\n", whose length counts its own digits. */
static int pax(struct buf *b, const char *key, const char *value) {
        size_t rest = strlen(key) + strlen(value) + 3, n = rest + 1;
        for (size_t digits = 1, bound = 10; n >= bound; digits++, bound *= 10)
                n = rest + digits + 1;
        return buf_printf(b, "%zu %s=%s\n", n, key, value);
}

static int pax_number(struct buf *b, const char *key, long long v) {
        char text[24];
        snprintf(text, sizeof text, "%lld", v);
        return pax(b, key, text);
}

static int add_block(struct buf *b, struct header *h) {
        unsigned sum = 0;
        memcpy(h->magic, "ustar", 6);
        memcpy(h->version, "00", 2);
        memset(h->checksum, ' ', sizeof h->checksum);
        for (size_t i = 0; i < sizeof *h; i++)
                sum += ((const unsigned char *)h)[i];
        octal(h->checksum, 7, sum);
        return buf_add(b, h, sizeof *h);
}

static int add_pax(struct buf *b, const struct buf *records) {
        static const char zeros[TAR_WRITE_BLOCK];
        struct header h = { .name = "pax", .kind = 'x' };
        octal(h.mode, sizeof h.mode, 0644);
        octal(h.uid, sizeof h.uid, 0);
        octal(h.gid, sizeof h.gid, 0);
        octal(h.size, sizeof h.size, records->len);
        octal(h.mtime, sizeof h.mtime, 0);
        int r = add_block(b, &h);
        r = r ? r : buf_add(b, records->data, records->len);
        return r ? r : buf_add(b, zeros, tar_write_padding(records->len));
}

/* Names fill their field without a NUL. */
static bool put(char *field, size_t size, const char *s) {
        size_t n = strlen(s);
        memcpy(field, s, MIN2(n, size));
        return n <= size;
}

int tar_write_header(struct buf *b, const struct tar_item *it) {
        _cleanup_buf_ struct buf records = BUF_INIT(TAR_WRITE_HEADER_MAX - 3 * TAR_WRITE_BLOCK);
        char path[NAME_MAX_BYTES + 8];
        struct header h = { .kind = (char)it->kind };
        const char *link = it->link ? it->link : "";
        size_t n = strlen(it->path);
        int r = 0;
        if (n > NAME_MAX_BYTES || strlen(link) > NAME_MAX_BYTES)
                return -ENAMETOOLONG;
        snprintf(path, sizeof path, "%s%s%s", n ? "" : ".", it->path, it->kind == TAR_WRITE_DIR ? "/" : "");
        octal(h.mode, sizeof h.mode, it->mode & 07777);
        if (!put(h.name, sizeof h.name, path))
                r = pax(&records, "path", path);
        if (r == 0 && !put(h.link, sizeof h.link, link))
                r = pax(&records, "linkpath", link);
        if (r == 0 && !octal(h.uid, sizeof h.uid, it->uid))
                r = pax_number(&records, "uid", it->uid);
        if (r == 0 && !octal(h.gid, sizeof h.gid, it->gid))
                r = pax_number(&records, "gid", it->gid);
        uint64_t size = it->kind == TAR_WRITE_FILE ? it->size : 0;
        if (r == 0 && !octal(h.size, sizeof h.size, size))
                r = pax_number(&records, "size", (long long)size);
        if (r == 0 && (it->mtime < 0 || !octal(h.mtime, sizeof h.mtime, (uint64_t)it->mtime)))
                r = pax_number(&records, "mtime", it->mtime);
        if (r == 0 && records.len > 0)
                r = add_pax(b, &records);
        return r ? r : add_block(b, &h);
}
