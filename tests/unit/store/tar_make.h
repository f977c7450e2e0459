/* Tar archives for tests, made in memory: any entry, also such as no sane program would write. */
#pragma once
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"

struct tar_item {
        char kind;                     /* '0' file, '1' hard link, '2' link, '3' device, '5' directory, 'x' pax records in `data` ... */
        const char *name, *data, *link;
        unsigned mode, uid, gid;
        long long mtime;
};

static void tar_octal(char *p, size_t n, unsigned long long v) {
        for (size_t i = n - 1; i-- > 0; v >>= 3)
                p[i] = (char)('0' + (v & 7));
}

static void tar_item(struct buf *b, const struct tar_item *t) {
        char h[512] = { 0 }, zero[512] = { 0 };
        size_t size = t->data ? strlen(t->data) : 0;
        unsigned sum = 0;
        memcpy(h, t->name, MIN2(strlen(t->name), (size_t)100));
        tar_octal(h + 100, 8, t->mode ? t->mode : t->kind == '5' ? 0755 : 0644);
        tar_octal(h + 108, 8, t->uid);
        tar_octal(h + 116, 8, t->gid);
        tar_octal(h + 124, 12, size);
        tar_octal(h + 136, 12, (unsigned long long)t->mtime);
        h[156] = t->kind;
        if (t->link)
                memcpy(h + 157, t->link, MIN2(strlen(t->link), (size_t)100));
        memcpy(h + 257, "ustar\00000", 8);
        memset(h + 148, ' ', 8);
        for (int i = 0; i < 512; i++)
                sum += (unsigned char)h[i];
        snprintf(h + 148, 8, "%06o", sum);
        buf_add(b, h, 512);
        buf_add(b, t->data ? t->data : "", size);
        buf_add(b, zero, (512 - size % 512) % 512);
}

static void tar_end(struct buf *b) {
        char zero[1024] = { 0 };
        buf_add(b, zero, sizeof zero);
}

static inline void tar_make(struct buf *b, const struct tar_item *items, size_t n) {
        for (size_t i = 0; i < n; i++)
                tar_item(b, &items[i]);
        tar_end(b);
}
