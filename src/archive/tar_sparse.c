/* Sparse files in GNU's four formats: the old header ('S') and pax 0.0, 0.1 and 1.0. Each gives a map of where there is data. */
#include <string.h>

#include "archive/tar_internal.h"

static int bad(struct error *e) { return error_say(e, -EBADMSG, "the archive is no tar archive: the map of a sparse file is broken"); }

int tar_sparse_add(struct tar_reader *t, uint64_t at, uint64_t size, struct error *e) {
        if (!t->sparse && !(t->sparse = calloc(TAR_SPARSE_MAX, sizeof *t->sparse)))
                return error_set(e, -ENOMEM, "read the archive");
        if (t->n_sparse == TAR_SPARSE_MAX)
                return error_say(e, -E2BIG, "a sparse file in the archive has more than %d pieces", TAR_SPARSE_MAX);
        t->sparse[t->n_sparse++] = (struct tar_piece){ at, size };
        return 0;
}

/* An octal field of the old header; base 256 for what is large. */
static int old_number(const unsigned char *p, uint64_t *ret) {
        uint64_t v = 0;
        if (p[0] == 0x80) {
                for (int i = 4; i < 12; i++)
                        v = v << 8 | p[i];
                *ret = v;
                return v > INT64_MAX / 2 ? -ERANGE : 0;
        }
        for (int i = 0; i < 12 && p[i] && p[i] != ' '; i++) {
                if (p[i] < '0' || p[i] > '7')
                        return -EINVAL;
                v = v << 3 | (uint64_t)(p[i] - '0');
        }
        *ret = v;
        return 0;
}

static int old_pieces(struct tar_reader *t, const unsigned char *p, size_t n, struct error *e) {
        for (size_t i = 0; i < n && p[i * 24]; i++) {
                uint64_t at, size;
                if (old_number(p + i * 24, &at) < 0 || old_number(p + i * 24 + 12, &size) < 0)
                        return bad(e);
                int r = tar_sparse_add(t, at, size, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int open_old(struct tar_reader *t, const unsigned char *b, struct tar_entry *en, struct error *e) {
        unsigned char more[TAR_BLOCK_SIZE];
        bool again = b[482];
        uint64_t real;
        if (old_number(b + 483, &real) < 0)
                return bad(e);
        int r = old_pieces(t, b + 386, 4, e);
        while (r == 0 && again) {
                r = inflow_exactly(t->in, more, sizeof more, false, e);
                if (r > 0)
                        r = old_pieces(t, more, 21, e);
                again = r == 0 && more[504];
        }
        en->size = real;
        return r;
}

/* "number,number,..." */
static int map_text(struct tar_reader *t, const char *s, struct error *e) {
        t->n_sparse = 0;
        while (*s) {
                unsigned long long v[2];
                for (int i = 0; i < 2; i++) {
                        char *end;
                        errno = 0;
                        v[i] = strtoull(s, &end, 10);
                        if (errno || end == s || (*end && *end != ',') || (i == 0 && *end != ','))
                                return bad(e);
                        s = *end ? end + 1 : end;
                }
                int r = tar_sparse_add(t, v[0], v[1], e);
                if (r < 0)
                        return r;
        }
        return 0;
}

struct map_reader { struct tar_reader *t; unsigned char block[TAR_BLOCK_SIZE]; size_t at; };

/* One decimal line of the map that stands before the data (1.0). */
static int map_line(struct map_reader *m, uint64_t *ret, struct error *e) {
        uint64_t v = 0;
        for (int digits = 0;; digits++) {
                if (m->at == TAR_BLOCK_SIZE) {
                        if (m->t->left < TAR_BLOCK_SIZE)
                                return bad(e);
                        int r = inflow_exactly(m->t->in, m->block, sizeof m->block, false, e);
                        if (r < 0)
                                return r;
                        m->t->left -= TAR_BLOCK_SIZE;
                        m->at = 0;
                }
                unsigned char c = m->block[m->at++];
                if (c == '\n' && digits > 0)
                        break;
                if (c < '0' || c > '9' || digits >= 18)
                        return bad(e);
                v = v * 10 + (c - '0');
        }
        *ret = v;
        return 0;
}

static int map_before_data(struct tar_reader *t, struct error *e) {
        struct map_reader m = { .t = t, .at = TAR_BLOCK_SIZE };
        uint64_t n, at, size;
        int r = map_line(&m, &n, e);
        t->n_sparse = 0;
        for (uint64_t i = 0; i < n && r == 0; i++) {
                r = map_line(&m, &at, e);
                if (r == 0)
                        r = map_line(&m, &size, e);
                if (r == 0)
                        r = tar_sparse_add(t, at, size, e);
        }
        return r;
}

/* In order, within the file, and as much data as the archive holds. */
static int check_map(struct tar_reader *t, const struct tar_entry *en, struct error *e) {
        uint64_t at = 0, sum = 0;
        for (size_t i = 0; i < t->n_sparse; i++) {
                const struct tar_piece *p = &t->sparse[i];
                if (p->at < at || p->at > en->size || p->size > en->size - p->at)
                        return bad(e);
                at = p->at + p->size;
                sum += p->size;
        }
        return sum == t->left ? 0 : bad(e);
}

int tar_sparse_open(struct tar_reader *t, const unsigned char *b, struct tar_entry *en, struct error *e) {
        int r = 0;
        if (en->kind == 'S')
                r = open_old(t, b, en, e);
        else {
                en->size = (uint64_t)t->found.sparse_size;
                if (t->found.sparse_major == 1)
                        r = map_before_data(t, e);
                else if (t->found.sparse_map)
                        r = map_text(t, t->found.sparse_map, e);
        }
        if (r == 0)
                r = check_map(t, en, e);
        t->sparse_file = r == 0;
        t->at = 0;
        return r;
}

ssize_t tar_sparse_data(struct tar_reader *t, void *p, size_t n, uint64_t *ret_at, struct error *e) {
        while (t->piece < t->n_sparse && t->at == t->sparse[t->piece].size) {
                t->piece++;
                t->at = 0;
        }
        if (t->piece == t->n_sparse)
                return 0;
        const struct tar_piece *piece = &t->sparse[t->piece];
        ssize_t got = inflow_read(t->in, p, (size_t)MIN2((uint64_t)n, piece->size - t->at), e);
        if (got == 0)
                return error_say(e, -EBADMSG, "the archive ends too early");
        if (got > 0) {
                *ret_at = piece->at + t->at;
                t->at += (uint64_t)got;
                t->left -= (uint64_t)got;
        }
        return got;
}
