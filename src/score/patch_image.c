#include <ctype.h>
#include <string.h>

#include "score/patch_image.h"

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct image_line image_line(const char *p, size_t len) {
        struct image_line l = { .p = p, .len = (uint32_t)len, .exact = 2166136261u, .loose = 2166136261u };
        for (size_t i = 0; i < len; i++) {
                l.exact = (l.exact ^ (unsigned char)p[i]) * 16777619u;
                if (!is_space(p[i]))
                        l.loose = (l.loose ^ (unsigned char)p[i]) * 16777619u;
        }
        return l;
}

static size_t body_len(const struct image_line *l) {
        size_t n = l->len;
        if (n > 0 && l->p[n - 1] == '\n')
                n--;
        if (n > 0 && l->p[n - 1] == '\r')
                n--;
        return n;
}

/* Runs of white space equal runs of white space, at the end they equal nothing. */
static bool same_but_space(const struct image_line *a, const struct image_line *b) {
        size_t i = 0, j = 0, n = a->len, m = b->len;
        while (n > 0 && is_space(a->p[n - 1])) n--;
        while (m > 0 && is_space(b->p[m - 1])) m--;
        while (i < n && j < m) {
                if (is_space(a->p[i]) && is_space(b->p[j])) {
                        while (i < n && is_space(a->p[i])) i++;
                        while (j < m && is_space(b->p[j])) j++;
                } else if (a->p[i++] != b->p[j++])
                        return false;
        }
        return i == n && j == m;
}

bool image_same(const struct image_line *a, const struct image_line *b, enum compare how) {
        if (how == COMPARE_EXACT)
                return a->exact == b->exact && a->len == b->len && memcmp(a->p, b->p, a->len) == 0;
        if (a->loose != b->loose)
                return false;
        if (how == COMPARE_SPACE)
                return same_but_space(a, b);
        size_t n = body_len(a);
        return n == body_len(b) && memcmp(a->p, b->p, n) == 0;
}

void image_release(struct image *m) {
        free(m->v);
        *m = (struct image){ 0 };
}

static int reserve(struct image *m, size_t n) {
        if (n <= m->alloc)
                return 0;
        size_t alloc = MAX2(n, m->alloc + m->alloc / 2);
        struct image_line *grown = realloc(m->v, alloc * sizeof *grown);
        if (!grown)
                return -ENOMEM;
        m->v = grown;
        m->alloc = alloc;
        return 0;
}

int image_split(struct image *m, const char *text, size_t len) {
        size_t crlf = 0, lf = 0;
        for (const char *p = text, *end = text + len; p < end;) {
                const char *nl = memchr(p, '\n', (size_t)(end - p)), *next = nl ? nl + 1 : end;
                int r = reserve(m, m->n + 1);
                if (r < 0)
                        return r;
                m->v[m->n++] = image_line(p, (size_t)(next - p));
                if (nl)
                        *(nl > p && nl[-1] == '\r' ? &crlf : &lf) += 1;
                p = next;
        }
        m->crlf = crlf > 0 && lf == 0;
        m->lf = crlf == 0;
        return 0;
}

int image_replace(struct image *m, size_t at, size_t old, const struct image_line *v, size_t new) {
        int r = reserve(m, m->n - old + new);
        if (r < 0)
                return r;
        if (m->n > at + old && old != new)
                memmove(m->v + at + new, m->v + at + old, (m->n - at - old) * sizeof *m->v);
        if (new)
                memcpy(m->v + at, v, new * sizeof *v);
        m->n = m->n - old + new;
        return 0;
}

/* A line that lost its place at the end gets the newline that it never had. */
static size_t join_line(const struct image_line *l, bool last, bool crlf, char *out) {
        bool has_newline = l->len > 0 && l->p[l->len - 1] == '\n';
        if (l->end == LINE_AS_IS && (has_newline || last)) {
                memcpy(out, l->p, l->len);
                return l->len;
        }
        size_t n = has_newline && l->end != LINE_AS_IS ? body_len(l) : l->len;
        memcpy(out, l->p, n);
        if (has_newline || !last) {
                if (l->end == LINE_TO_CRLF || (l->end == LINE_AS_IS && crlf))
                        out[n++] = '\r';
                out[n++] = '\n';
        }
        return n;
}

int image_join(const struct image *m, char **ret, size_t *ret_len) {
        size_t most = 1, n = 0;
        for (size_t i = 0; i < m->n; i++)
                most += m->v[i].len + 2;
        if (most > PATCH_FILE_BYTES_MAX + 2 * m->n)
                return -EFBIG;
        char *out = malloc(most);
        if (!out)
                return -ENOMEM;
        for (size_t i = 0; i < m->n; i++)
                n += join_line(&m->v[i], i + 1 == m->n, m->crlf, out + n);
        *ret = out;
        *ret_len = n;
        return 0;
}
