#include <string.h>

#include "archive/tar_internal.h"

static int broken(struct error *e, const char *what) { return error_say(e, -EBADMSG, "the archive is no tar archive: %s", what); }

int tar_open(struct inflow *in, struct tar_reader **ret, struct error *e) {
        struct tar_reader *t = calloc(1, sizeof *t);
        if (!t)
                return error_set(e, -ENOMEM, "read the archive");
        t->in = in;
        *ret = t;
        return 0;
}

void tar_free(struct tar_reader *t) {
        if (!t)
                return;
        free(t->pax);
        free(t->sparse);
        free(t);
}

/* ---- numbers and fields ---- */

/* Octal text, or base 256 with the first bit set. */
static int number(const unsigned char *p, size_t n, int64_t *ret) {
        if (p[0] & 0x80) {
                bool negative = p[0] & 0x40;
                uint64_t v = negative ? UINT64_MAX : 0;
                v = v << 6 | (p[0] & 0x3f);
                for (size_t i = 1; i < n; i++) {
                        if (negative ? v >> 55 != (1u << 9) - 1 : v >> 55 != 0)
                                return -ERANGE;
                        v = v << 8 | p[i];
                }
                *ret = (int64_t)v;
                return 0;
        }
        uint64_t v = 0;
        size_t i = 0;
        while (i < n && (p[i] == ' ' || p[i] == 0))
                i++;
        for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
                if (v >> 60)
                        return -ERANGE;
                v = v << 3 | (uint64_t)(p[i] - '0');
        }
        if (i < n && p[i] != ' ' && p[i] != 0)
                return -EINVAL;
        *ret = (int64_t)v;
        return 0;
}

static bool checksum_ok(const unsigned char *b) {
        int64_t want;
        unsigned sum = 0;
        int with_sign = 0;
        for (size_t i = 0; i < TAR_BLOCK_SIZE; i++) {
                unsigned char c = i >= 148 && i < 156 ? ' ' : b[i];
                sum += c;
                with_sign += (signed char)c;
        }
        return number(b + 148, 8, &want) == 0 && (want == (int64_t)sum || want == with_sign);
}

static bool all_zero(const unsigned char *b) {
        for (size_t i = 0; i < TAR_BLOCK_SIZE; i++)
                if (b[i])
                        return false;
        return true;
}

static size_t field(const unsigned char *p, size_t n, char *ret) {
        size_t len = strnlen((const char *)p, n);
        memcpy(ret, p, len);
        ret[len] = 0;
        return len;
}

/* ---- headers that say something about the next one ---- */

static int read_long(struct tar_reader *t, uint64_t size, char *ret, struct error *e) {
        if (size == 0 || size > TAR_NAME_MAX + 1)
                return error_say(e, -E2BIG, "a name in the archive is longer than %d bytes", TAR_NAME_MAX);
        int r = inflow_exactly(t->in, ret, (size_t)size, false, e);
        if (r < 0)
                return r;
        ret[size] = 0;
        if (strlen(ret) > TAR_NAME_MAX)
                return error_say(e, -E2BIG, "a name in the archive is longer than %d bytes", TAR_NAME_MAX);
        return inflow_skip(t->in, tar_padding(size), e);
}

/* A pax header is taken into memory whole; what tar_pax_parse finds points into it. */
static int read_pax(struct tar_reader *t, uint64_t size, struct error *e) {
        if (size > TAR_PAX_MAX)
                return error_say(e, -E2BIG, "an extended header in the archive is larger than %u bytes", TAR_PAX_MAX);
        if (!t->pax && !(t->pax = malloc(TAR_PAX_MAX + 1)))
                return error_set(e, -ENOMEM, "read the archive");
        int r = inflow_exactly(t->in, t->pax, (size_t)size, size == 0, e);
        if (r >= 0)
                r = inflow_skip(t->in, tar_padding(size), e);
        if (r < 0)
                return r;
        t->pax[size] = 0;
        t->found = (struct tar_found){ 0 };    /* what an earlier one said is gone with its bytes */
        t->n_sparse = t->n_xattrs = 0;
        return tar_pax_parse(t, t->pax, (size_t)size, e);
}

static void forget_extras(struct tar_reader *t) {
        t->long_name[0] = t->long_link[0] = 0;
        t->found = (struct tar_found){ 0 };
        t->n_sparse = 0;
        t->n_xattrs = 0;
}

/* ---- an entry ---- */

static enum tar_type type_of(char kind, const char *path) {
        size_t n = strlen(path);
        switch (kind) {
        case 0: case '0': return n > 0 && path[n - 1] == '/' ? TAR_DIR : TAR_FILE;
        case '7': case 'S': return TAR_FILE;
        case '1': return TAR_HARDLINK;
        case '2': return TAR_SYMLINK;
        case '3': return TAR_CHAR;
        case '4': return TAR_BLOCK;
        case '5': return TAR_DIR;
        case '6': return TAR_FIFO;
        default: return TAR_OTHER;
        }
}

static void fill_names(struct tar_reader *t, const unsigned char *b, struct tar_entry *en) {
        size_t n = 0;
        if (memcmp(b + 257, "ustar\0", 6) == 0 && b[345]) {
                n = field(b + 345, 155, t->name);
                t->name[n++] = '/';
        }
        field(b, 100, t->name + n);
        field(b + 157, 100, t->link);
        en->path = t->found.sparse_name ? t->found.sparse_name : t->found.path ? t->found.path : t->long_name[0] ? t->long_name : t->name;
        en->link = t->found.link ? t->found.link : t->long_link[0] ? t->long_link : t->link;
}

static int fill_numbers(struct tar_reader *t, const unsigned char *b, struct tar_entry *en, struct error *e) {
        int64_t mode, uid, gid, size, mtime;
        const struct tar_found *f = &t->found;
        if (number(b + 100, 8, &mode) < 0 || number(b + 108, 8, &uid) < 0 || number(b + 116, 8, &gid) < 0 || number(b + 124, 12, &size) < 0 ||
            number(b + 136, 12, &mtime) < 0)
                return broken(e, "a number in a header cannot be read");
        en->mode = (uint32_t)mode & 07777;
        en->uid = f->has_uid ? f->uid : (uint64_t)uid;
        en->gid = f->has_gid ? f->gid : (uint64_t)gid;
        en->mtime = f->has_mtime ? f->mtime : mtime;
        en->mtime_ns = f->has_mtime ? f->mtime_ns : 0;
        if (f->has_size)
                size = f->size;
        if (size < 0 || size > INT64_MAX / 2 || (int64_t)en->uid < 0 || (int64_t)en->gid < 0)
                return broken(e, "a number in a header is out of range");
        t->left = (uint64_t)size;
        en->size = (uint64_t)size;
        return 0;
}

/* What carries no data says so whatever its size field holds. */
static void set_data(struct tar_reader *t, const struct tar_entry *en) {
        bool none = en->type == TAR_HARDLINK || en->type == TAR_SYMLINK || en->type == TAR_CHAR || en->type == TAR_BLOCK || en->type == TAR_DIR || en->type == TAR_FIFO;
        if (none)
                t->left = 0;
        t->padding = tar_padding(t->left);
        t->at = 0;
        t->piece = 0;
}

static int fill_entry(struct tar_reader *t, const unsigned char *b, struct tar_entry *en, struct error *e) {
        *en = (struct tar_entry){ .kind = (char)b[156], .xattrs = t->xattrs, .n_xattrs = t->n_xattrs };
        fill_names(t, b, en);
        int r = fill_numbers(t, b, en, e);
        if (r < 0)
                return r;
        en->type = type_of(en->kind, en->path);
        set_data(t, en);
        t->sparse_file = false;
        if (en->type == TAR_FILE && (en->kind == 'S' || t->found.sparse))
                r = tar_sparse_open(t, b, en, e);
        return r;
}

/* The letters that are about the next header: 1 it was one; 0 it is an entry. */
static int extra(struct tar_reader *t, const unsigned char *b, struct error *e) {
        int64_t size;
        char kind = (char)b[156];
        if (!strchr("LKxgV", kind) || kind == 0)
                return 0;
        if (number(b + 124, 12, &size) < 0 || size < 0)
                return broken(e, "a number in a header cannot be read");
        int r = 0;
        if (kind == 'L')
                r = read_long(t, (uint64_t)size, t->long_name, e);
        else if (kind == 'K')
                r = read_long(t, (uint64_t)size, t->long_link, e);
        else if (kind == 'x')
                r = read_pax(t, (uint64_t)size, e);
        else                           /* defaults for all that follows, volume labels: nothing that a file system needs */
                r = inflow_skip(t->in, (uint64_t)size + tar_padding((uint64_t)size), e);
        return r < 0 ? r : 1;
}

int tar_next(struct tar_reader *t, struct tar_entry *ret, struct error *e) {
        unsigned char b[TAR_BLOCK_SIZE];
        int r = inflow_skip(t->in, t->left + t->padding, e);
        t->left = t->padding = 0;
        if (r < 0)
                return r;
        forget_extras(t);
        for (unsigned extras = 0;; extras++) {
                r = inflow_exactly(t->in, b, sizeof b, extras == 0, e);
                if (r <= 0)
                        return r;
                if (all_zero(b))
                        return 0;
                if (!checksum_ok(b))
                        return broken(e, "the checksum of a header is wrong");
                r = extra(t, b, e);
                if (r < 0)
                        return r;
                if (r == 0)
                        break;
                if (extras >= TAR_EXTRAS_MAX)
                        return broken(e, "too many extended headers before one entry");
        }
        r = fill_entry(t, b, ret, e);
        return r < 0 ? r : 1;
}

ssize_t tar_data(struct tar_reader *t, void *p, size_t n, uint64_t *ret_at, struct error *e) {
        if (t->sparse_file)
                return tar_sparse_data(t, p, n, ret_at, e);
        if (t->left == 0)
                return 0;
        ssize_t got = inflow_read(t->in, p, (size_t)MIN2((uint64_t)n, t->left), e);
        if (got == 0)
                return error_say(e, -EBADMSG, "the archive ends too early");
        if (got > 0) {
                *ret_at = t->at;
                t->at += (uint64_t)got;
                t->left -= (uint64_t)got;
        }
        return got;
}
