/* difflib by the book: for the longest matching block, then left and right of it. For each line of `a` the positions of the
 * equal lines in `b` are walked (b2j); lines of `b` that make up more than 1 % of 200 or more are not used to start a block, but
 * blocks grow over them at both ends. Among equally long blocks the first in `a`, then the first in `b` wins. */
#include <string.h>

#include "score/similarity.h"

struct text_line { const char *p; size_t len; };
struct side { struct text_line *v; size_t n; uint32_t *ids; };

static void side_release(struct side *s) {
        free(s->v);
        free(s->ids);
}

/* Length of the line end at p, 0 if there is none: \n \r \r\n \v \f \x1c-\x1e U+0085 U+2028 U+2029. */
static size_t line_end(const unsigned char *p, size_t n) {
        if (p[0] == '\r')
                return n > 1 && p[1] == '\n' ? 2 : 1;
        if ((p[0] >= '\n' && p[0] <= '\f') || (p[0] >= 0x1c && p[0] <= 0x1e))
                return 1;
        if (n > 1 && p[0] == 0xc2 && p[1] == 0x85)
                return 2;
        return n > 2 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9) ? 3 : 0;
}

static bool is_header(const char *p, size_t n) {
        static const char *const start[] = { "diff", "index", "---", "+++", "@@" };
        for (size_t i = 0; i < ARRAY_SIZE(start); i++)
                if (n >= strlen(start[i]) && memcmp(p, start[i], strlen(start[i])) == 0)
                        return true;
        return false;
}

/* 0, -E2BIG, -ENOMEM */
static int side_split(struct side *s, const char *text, size_t len) {
        s->v = calloc(SIMILARITY_LINES_MAX, sizeof *s->v);
        if (!s->v)
                return -ENOMEM;
        for (size_t at = 0; at < len;) {
                size_t end = at, skip = 0;
                while (end < len && (skip = line_end((const unsigned char *)text + end, len - end)) == 0)
                        end++;
                if (!is_header(text + at, end - at)) {
                        if (s->n == SIMILARITY_LINES_MAX)
                                return -E2BIG;
                        s->v[s->n++] = (struct text_line){ text + at, end - at };
                }
                at = end + skip;
        }
        s->ids = calloc(s->n + 1, sizeof *s->ids);
        return s->ids ? 0 : -ENOMEM;
}

#define SLOTS 131072u                  /* more than twice the lines of both sides */
_Static_assert(SLOTS > 4 * SIMILARITY_LINES_MAX, "the table must stay sparse");

static int intern(struct side *a, struct side *b, uint32_t *ret_n) {
        const struct text_line **lines = calloc(SLOTS, sizeof *lines);
        uint32_t *ids = calloc(SLOTS, sizeof *ids), next = 0;
        if (!lines || !ids) {
                free(lines);
                free(ids);
                return -ENOMEM;
        }
        for (size_t i = 0; i < a->n + b->n; i++) {
                struct side *s = i < a->n ? a : b;
                size_t k = i < a->n ? i : i - a->n;
                const struct text_line *l = &s->v[k];
                uint64_t h = 14695981039346656037ull;
                for (size_t j = 0; j < l->len; j++)
                        h = (h ^ (unsigned char)l->p[j]) * 1099511628211ull;
                size_t at = (size_t)(h ^ h >> 31) & (SLOTS - 1);
                while (lines[at] && (lines[at]->len != l->len || memcmp(lines[at]->p, l->p, l->len) != 0))
                        at = (at + 1) & (SLOTS - 1);
                if (!lines[at]) {
                        lines[at] = l;
                        ids[at] = next++;
                }
                s->ids[k] = ids[at];
        }
        free(lines);
        free(ids);
        *ret_n = next;
        return 0;
}

struct matching {
        const struct side *a, *b;
        uint32_t *first, *count, *next;    /* positions in b by id, ascending; count 0 = popular or absent */
        uint32_t *run, *run_before;        /* length of the match that ends at b[j - 1], for this line of a and the last */
        size_t matched;
};
struct range { size_t alo, ahi, blo, bhi; };
struct block { size_t i, j, n; };

static void index_b(struct matching *m, uint32_t n_ids) {
        size_t n = m->b->n, most = n / 100 + 1;
        for (uint32_t id = 0; id < n_ids; id++)
                m->first[id] = UINT32_MAX;
        for (size_t j = n; j-- > 0;) {
                uint32_t id = m->b->ids[j];
                m->next[j] = m->first[id];
                m->first[id] = (uint32_t)j;
                m->count[id]++;
        }
        for (uint32_t id = 0; id < n_ids; id++)
                if (n >= 200 && m->count[id] > most)
                        m->first[id] = UINT32_MAX;
}

static struct block longest(struct matching *m, const struct range *g) {
        struct block best = { g->alo, g->blo, 0 };
        const uint32_t *a = m->a->ids, *b = m->b->ids;
        memset(m->run_before, 0, (m->b->n + 1) * sizeof *m->run_before);
        for (size_t i = g->alo; i < g->ahi; i++) {
                for (uint32_t j = m->first[a[i]]; j != UINT32_MAX && j < g->bhi; j = m->next[j]) {
                        if (j < g->blo)
                                continue;
                        uint32_t k = m->run[j + 1] = m->run_before[j] + 1;
                        if (k > best.n)
                                best = (struct block){ i + 1 - k, j + 1 - k, k };
                }
                /* The row before is cleared where it was set, so that a row costs its matches only. */
                if (i > g->alo)
                        for (uint32_t j = m->first[a[i - 1]]; j != UINT32_MAX && j < g->bhi; j = m->next[j])
                                m->run_before[j + 1] = 0;
                uint32_t *row = m->run;
                m->run = m->run_before;
                m->run_before = row;
        }
        memset(m->run, 0, (m->b->n + 1) * sizeof *m->run);
        while (best.i > g->alo && best.j > g->blo && a[best.i - 1] == b[best.j - 1]) {
                best.i--;
                best.j--;
                best.n++;
        }
        while (best.i + best.n < g->ahi && best.j + best.n < g->bhi && a[best.i + best.n] == b[best.j + best.n])
                best.n++;
        return best;
}

static void match_all(struct matching *m, struct range *stack) {
        size_t depth = 0;
        stack[depth++] = (struct range){ 0, m->a->n, 0, m->b->n };
        while (depth > 0) {
                struct range g = stack[--depth];
                struct block k = longest(m, &g);
                if (k.n == 0)
                        continue;
                m->matched += k.n;
                if (g.alo < k.i && g.blo < k.j)
                        stack[depth++] = (struct range){ g.alo, k.i, g.blo, k.j };
                if (k.i + k.n < g.ahi && k.j + k.n < g.bhi)
                        stack[depth++] = (struct range){ k.i + k.n, g.ahi, k.j + k.n, g.bhi };
        }
}

static int count_matches(const struct side *a, const struct side *b, uint32_t n_ids, size_t *ret) {
        struct matching m = { .a = a, .b = b };
        _cleanup_free_ uint32_t *space = calloc((size_t)n_ids * 2 + b->n * 3 + 4, sizeof *space);
        _cleanup_free_ struct range *stack = calloc(a->n + b->n + 2, sizeof *stack);
        if (!space || !stack)
                return -ENOMEM;
        m.first = space;
        m.count = m.first + n_ids;
        m.next = m.count + n_ids;
        m.run = m.next + b->n;
        m.run_before = m.run + b->n + 1;
        index_b(&m, n_ids);
        match_all(&m, stack);
        *ret = m.matched;
        return 0;
}

double patch_similarity(const char *a, size_t a_len, const char *b, size_t b_len) {
        CLEANUP(side_release) struct side x = { 0 }, y = { 0 };
        uint32_t n_ids;
        size_t matched;
        char text[32];
        if (side_split(&x, a, a_len) < 0 || side_split(&y, b, b_len) < 0)
                return SIMILARITY_NONE;
        if (x.n + y.n == 0)
                return 1.0;
        if (intern(&x, &y, &n_ids) < 0 || count_matches(&x, &y, n_ids, &matched) < 0)
                return SIMILARITY_NONE;
        /* Printing rounds the binary value correctly, half to even, as Python's round does. */
        snprintf(text, sizeof text, "%.4f", 2.0 * (double)matched / (double)(x.n + y.n));
        return strtod(text, NULL);
}
