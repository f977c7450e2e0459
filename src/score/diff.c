/* Lines are interned to ids first; the search then compares numbers. A change is split where the two searches, from the front
 * and from the back, meet (Myers 1986); both halves follow by recursion, whose depth the cost bound keeps logarithmic in
 * practice and DIFF_DEPTH_MAX in the worst case. */
#include <string.h>

#include "score/diff.h"

#define DIFF_DEPTH_MAX 200

struct search {
        const uint32_t *a, *b;
        bool *a_changed, *b_changed;
        int64_t *fwd, *bwd;        /* furthest x on diagonal x - y, from the front and from the back */
};
struct split { int64_t x, y; };

static void mark(bool *v, int64_t from, int64_t to) {
        for (; from < to; from++)
                v[from] = true;
}

/* Where to cut [xa,xe) x [ya,ye), both non-empty and different at both ends. Diagonals are numbered x - y. */
static struct split find_split(struct search *s, int64_t xa, int64_t xe, int64_t ya, int64_t ye) {
        int64_t *f = s->fwd, *g = s->bwd, fmid = xa - ya, bmid = xe - ye, dmin = xa - ye, dmax = xe - ya;
        int64_t fmin = fmid, fmax = fmid, bmin = bmid, bmax = bmid;
        bool odd = (fmid - bmid) & 1;
        f[fmid] = xa;
        g[bmid] = xe;
        for (uint32_t cost = 1;; cost++) {
                if (fmin > dmin) f[--fmin - 1] = -1; else fmin++;
                if (fmax < dmax) f[++fmax + 1] = -1; else fmax--;
                for (int64_t d = fmax; d >= fmin; d -= 2) {
                        int64_t x = f[d - 1] >= f[d + 1] ? f[d - 1] + 1 : f[d + 1];
                        while (x < xe && x - d < ye && s->a[x] == s->b[x - d])
                                x++;
                        f[d] = x;
                        if (odd && d >= bmin && d <= bmax && g[d] <= x)
                                return (struct split){ x, x - d };
                }
                if (bmin > dmin) g[--bmin - 1] = INT64_MAX; else bmin++;
                if (bmax < dmax) g[++bmax + 1] = INT64_MAX; else bmax--;
                for (int64_t d = bmax; d >= bmin; d -= 2) {
                        int64_t x = g[d - 1] < g[d + 1] ? g[d - 1] : g[d + 1] - 1;
                        while (x > xa && x - d > ya && s->a[x - 1] == s->b[x - d - 1])
                                x--;
                        g[d] = x;
                        if (!odd && d >= fmin && d <= fmax && x <= f[d])
                                return (struct split){ x, x - d };
                }
                if (cost < DIFF_COST_MAX)
                        continue;
                /* Too expensive: the furthest point that the forward search reached. */
                struct split best = { xa, ya };
                for (int64_t d = fmax; d >= fmin; d -= 2) {
                        int64_t x = MIN2(f[d], xe), y = x - d;
                        if (y > ye) { x = ye + d; y = ye; }
                        if (y >= ya && x >= xa && x + y > best.x + best.y)
                                best = (struct split){ x, y };
                }
                return best;
        }
}

static void compare(struct search *s, int64_t xa, int64_t xe, int64_t ya, int64_t ye, int depth) {
        for (;;) {
                while (xa < xe && ya < ye && s->a[xa] == s->b[ya]) { xa++; ya++; }
                while (xa < xe && ya < ye && s->a[xe - 1] == s->b[ye - 1]) { xe--; ye--; }
                if (xa == xe || ya == ye || depth >= DIFF_DEPTH_MAX)
                        break;
                struct split p = find_split(s, xa, xe, ya, ye);
                if ((p.x == xa && p.y == ya) || (p.x == xe && p.y == ye))
                        break;
                compare(s, xa, p.x, ya, p.y, depth + 1);
                xa = p.x;          /* the second half in this frame: the stack grows with the first halves only */
                ya = p.y;
        }
        mark(s->a_changed, xa, xe);
        mark(s->b_changed, ya, ye);
}

int diff_ids(const uint32_t *a, size_t n, const uint32_t *b, size_t m, bool *a_changed, bool *b_changed) {
        size_t diagonals = n + m + 3;
        _cleanup_free_ int64_t *space = calloc(diagonals * 2 + 2, sizeof *space);
        if (!space)
                return -ENOMEM;
        struct search s = { .a = a, .b = b, .a_changed = a_changed, .b_changed = b_changed };
        s.fwd = space + m + 1;
        s.bwd = space + diagonals + m + 1;
        compare(&s, 0, (int64_t)n, 0, (int64_t)m, 0);
        return 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------ */

struct lines { struct { const char *p; size_t len; } *v; size_t n; uint32_t *ids; bool *changed; };

static void lines_release(struct lines *l) {
        free(l->v);
        free(l->ids);
        free(l->changed);
}

static int lines_split(const char *p, size_t len, struct lines *l) {
        size_t n = 0;
        for (const char *at = p, *end = p + len; at < end; n++) {
                const char *nl = memchr(at, '\n', (size_t)(end - at));
                at = nl ? nl + 1 : end;
        }
        l->v = calloc(n + 1, sizeof *l->v);
        l->ids = calloc(n + 1, sizeof *l->ids);
        l->changed = calloc(n + 1, sizeof *l->changed);
        if (!l->v || !l->ids || !l->changed)
                return -ENOMEM;
        for (const char *at = p, *end = p + len; at < end; l->n++) {
                const char *nl = memchr(at, '\n', (size_t)(end - at)), *next = nl ? nl + 1 : end;
                l->v[l->n].p = at;
                l->v[l->n].len = (size_t)(next - at);
                at = next;
        }
        return 0;
}

/* Ids of the lines of both sides, by one open-addressed table of (side, line). FNV-1a; equality decides. */
static int lines_intern(struct lines *a, struct lines *b) {
        size_t slots = 16;
        while (slots < (a->n + b->n) * 2)
                slots *= 2;
        struct slot { const char *p; size_t len; uint32_t id; } *table = calloc(slots, sizeof *table);
        if (!table)
                return -ENOMEM;
        uint32_t next = 1;
        for (size_t i = 0; i < a->n + b->n; i++) {
                struct lines *l = i < a->n ? a : b;
                size_t k = i < a->n ? i : i - a->n;
                uint64_t h = 14695981039346656037ull;
                for (size_t j = 0; j < l->v[k].len; j++)
                        h = (h ^ (unsigned char)l->v[k].p[j]) * 1099511628211ull;
                size_t at = (size_t)(h ^ h >> 29) & (slots - 1);
                while (table[at].id && (table[at].len != l->v[k].len || memcmp(table[at].p, l->v[k].p, l->v[k].len) != 0))
                        at = (at + 1) & (slots - 1);
                if (!table[at].id)
                        table[at] = (struct slot){ l->v[k].p, l->v[k].len, next++ };
                l->ids[k] = table[at].id;
        }
        free(table);
        return 0;
}

/* ---- unified output --------------------------------------------------------------------------------------------------- */

static int add_line(struct buf *b, char sign, const struct lines *l, size_t i) {
        int r = buf_addc(b, sign);
        if (r == 0)
                r = buf_add(b, l->v[i].p, l->v[i].len);
        if (r == 0 && l->v[i].p[l->v[i].len - 1] != '\n')
                r = buf_adds(b, "\n\\ No newline at end of file\n");
        return r;
}

static int add_range(struct buf *b, char sign, size_t start, size_t count) {
        int r = buf_printf(b, "%c%zu", sign, count ? start + 1 : start);
        return r == 0 && count != 1 ? buf_printf(b, ",%zu", count) : r;
}

/* One hunk: lines [ai,ae) of the old and [bi,be) of the new side. */
static int add_hunk(struct buf *b, const struct lines *x, const struct lines *y, size_t ai, size_t ae, size_t bi, size_t be) {
        int r = buf_adds(b, "@@ ");
        if (r == 0) r = add_range(b, '-', ai, ae - ai);
        if (r == 0) r = buf_addc(b, ' ');
        if (r == 0) r = add_range(b, '+', bi, be - bi);
        if (r == 0) r = buf_adds(b, " @@\n");
        while (r == 0 && (ai < ae || bi < be)) {
                if (ai < ae && x->changed[ai])
                        r = add_line(b, '-', x, ai++);
                else if (bi < be && y->changed[bi])
                        r = add_line(b, '+', y, bi++);
                else {
                        r = add_line(b, ' ', x, ai++);
                        bi++;
                }
        }
        return r;
}

static int add_hunks(struct buf *b, const struct lines *x, const struct lines *y) {
        size_t i = 0, j = 0;
        int r = 0;
        while (r == 0) {
                while (i < x->n && j < y->n && !x->changed[i] && !y->changed[j]) { i++; j++; }
                if (i >= x->n && j >= y->n)
                        break;
                size_t lead = MIN2((size_t)DIFF_CONTEXT, MIN2(i, j)), ai = i - lead, bi = j - lead, same = 0;
                /* On to the first run of unchanged lines that is long enough to end the hunk. */
                while ((i < x->n || j < y->n) && same <= 2 * DIFF_CONTEXT) {
                        if (i < x->n && x->changed[i]) { i++; same = 0; }
                        else if (j < y->n && y->changed[j]) { j++; same = 0; }
                        else { i++; j++; same++; }
                }
                size_t back = same > DIFF_CONTEXT ? same - DIFF_CONTEXT : 0;
                r = add_hunk(b, x, y, ai, i - back, bi, j - back);
        }
        return r;
}

/* A name as git quotes it: plain, or in C's escapes when it holds control bytes, quotes, backslashes or non-ASCII. */
static int add_name(struct buf *b, const char *prefix, const char *path) {
        bool quote = false;
        for (const char *p = path; *p; p++)
                quote |= (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f || *p == '"' || *p == '\\';
        int r = buf_printf(b, "%s%s", quote ? "\"" : "", prefix);
        for (const char *p = path; *p && r == 0; p++) {
                unsigned char c = (unsigned char)*p;
                if (c == '"' || c == '\\')
                        r = buf_printf(b, "\\%c", c);
                else if (c < 0x20 || c >= 0x7f)
                        r = buf_printf(b, "\\%03o", c);
                else
                        r = buf_addc(b, *p);
        }
        return r == 0 && quote ? buf_addc(b, '"') : r;
}

static bool is_binary(const struct diff_side *s) {
        return s->exists && s->len > 0 && memchr(s->data, 0, MIN2(s->len, (size_t)DIFF_BINARY_PROBE));
}

static int add_names(struct buf *b, const char *path, const struct diff_side *old, const struct diff_side *new, bool binary) {
        int r = buf_adds(b, binary ? "Binary files " : "--- ");
        if (r == 0) r = old->exists ? add_name(b, "a/", path) : buf_adds(b, "/dev/null");
        if (r == 0 && !binary && old->exists && strchr(path, ' ')) r = buf_addc(b, '\t');
        if (r == 0) r = buf_adds(b, binary ? " and " : "\n+++ ");
        if (r == 0) r = new->exists ? add_name(b, "b/", path) : buf_adds(b, "/dev/null");
        if (r == 0 && !binary && new->exists && strchr(path, ' ')) r = buf_addc(b, '\t');
        return r == 0 ? buf_adds(b, binary ? " differ\n" : "\n") : r;
}

static int add_header(struct buf *b, const char *path, const struct diff_side *old, const struct diff_side *new) {
        int r = buf_adds(b, "diff --git ");
        if (r == 0) r = add_name(b, "a/", path);
        if (r == 0) r = buf_addc(b, ' ');
        if (r == 0) r = add_name(b, "b/", path);
        if (r == 0) r = buf_addc(b, '\n');
        if (r == 0 && !old->exists)
                return buf_printf(b, "new file mode %o\n", new->mode);
        if (r == 0 && !new->exists)
                return buf_printf(b, "deleted file mode %o\n", old->mode);
        if (r == 0 && old->mode != new->mode)
                return buf_printf(b, "old mode %o\nnew mode %o\n", old->mode, new->mode);
        return r;
}

static int diff_text(const struct diff_side *old, const struct diff_side *new, struct buf *b) {
        CLEANUP(lines_release) struct lines x = { 0 }, y = { 0 };
        int r = lines_split(old->exists ? old->data : "", old->exists ? old->len : 0, &x);
        if (r == 0) r = lines_split(new->exists ? new->data : "", new->exists ? new->len : 0, &y);
        if (r == 0) r = lines_intern(&x, &y);
        if (r == 0) r = diff_ids(x.ids, x.n, y.ids, y.n, x.changed, y.changed);
        return r == 0 ? add_hunks(b, &x, &y) : r;
}

int diff_file(const char *path, const struct diff_side *old, const struct diff_side *new, struct buf *b) {
        static const struct diff_side none = { .exists = false };
        bool same_data = old->exists == new->exists && old->len == new->len && (old->len == 0 || memcmp(old->data, new->data, old->len) == 0);
        if (same_data && (!old->exists || old->mode == new->mode))
                return 0;
        /* A file that became a link, or a link a file: git's form is one section that deletes and one that creates. */
        if (old->exists && new->exists && (old->mode & 0170000) != (new->mode & 0170000)) {
                int r = diff_file(path, old, &none, b);
                return r == 0 ? diff_file(path, &none, new, b) : r;
        }
        int r = add_header(b, path, old, new);
        if (r < 0 || same_data || old->len + new->len == 0)
                return r;
        bool binary = is_binary(old) || is_binary(new);
        r = add_names(b, path, old, new, binary);
        return r == 0 && !binary ? diff_text(old, new, b) : r;
}
