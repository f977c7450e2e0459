#include "build/expand.h"

#include <string.h>

struct expander {
        const char *p;
        char escape;
        bool quotes;
        expand_lookup lookup; void *user;
        struct error *e;
};

static bool name_char(char c, bool first) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static size_t name_length(const char *p) {
        size_t n = 0;
        while (name_char(p[n], n == 0))
                n++;
        return n;
}

static int add(struct expander *x, struct buf *b, const char *p, size_t n) {
        int r = b->len + n > EXPAND_BYTES_MAX ? -ENOSPC : buf_add(b, p, n);
        return r == -ENOSPC ? error_say(x->e, -E2BIG, "a word becomes longer than %u bytes when its variables are replaced", EXPAND_BYTES_MAX) : r;
}

static int expand(struct expander *x, struct buf *b, char until, unsigned depth);

/* At what follows "${name": the operator and its word. `value` NULL: not set. */
static int braced(struct expander *x, struct buf *b, const char *name, size_t n, unsigned depth) {
        const char *value = x->lookup(name, n, x->user);
        bool colon = *x->p == ':';
        if (*x->p == '}') {
                x->p++;
                return value ? add(x, b, value, strlen(value)) : 0;
        }
        x->p += colon;
        char op = *x->p;
        if (op != '-' && op != '+' && op != '?')
                return error_say(x->e, -EINVAL, "${%.*s...}: only :- :+ :? - + ? are supported", (int)MIN2(n, 64u), name);
        x->p++;
        _cleanup_buf_ struct buf word = BUF_INIT(EXPAND_BYTES_MAX + 1);
        int r = expand(x, &word, '}', depth + 1);
        if (r < 0)
                return r;
        bool set = value && (!colon || *value);
        if (op == '+')
                return set ? add(x, b, buf_str(&word), word.len) : 0;
        if (set)
                return add(x, b, value, strlen(value));
        if (op == '?')
                return error_say(x->e, -EINVAL, "%.*s is not set: %.200s", (int)MIN2(n, 64u), name, word.len ? word.data : "it must be");
        return add(x, b, buf_str(&word), word.len);
}

static int variable(struct expander *x, struct buf *b, unsigned depth) {
        const char *start = x->p++;              /* at '$' */
        bool brace = *x->p == '{';
        x->p += brace;
        size_t n = name_length(x->p);
        const char *name = x->p;
        if (n == 0 && !brace) {
                return add(x, b, start, 1);      /* a lone dollar is itself */
        }
        if (n == 0)
                return error_say(x->e, -EINVAL, "${ is not followed by a name");
        x->p += n;
        if (brace)
                return braced(x, b, name, n, depth);
        const char *value = x->lookup(name, n, x->user);
        return value ? add(x, b, value, strlen(value)) : 0;
}

static int single_quoted(struct expander *x, struct buf *b) {
        const char *end = strchr(++x->p, '\'');
        if (!end)
                return error_say(x->e, -EINVAL, "a quote does not end");
        int r = add(x, b, x->p, (size_t)(end - x->p));
        x->p = end + 1;
        return r;
}

static int escaped(struct expander *x, struct buf *b, bool in_double) {
        char next = x->p[1];
        /* Within double quotes it is special only before what is. */
        if (!next || ((in_double || !x->quotes) && next != '"' && next != '$' && next != x->escape))
                return add(x, b, x->p++, 1);
        x->p += 2;
        return add(x, b, &next, 1);
}

/* Up to `until` (which is taken), or the end where it is NUL. */
static int expand(struct expander *x, struct buf *b, char until, unsigned depth) {
        bool in_double = false;
        int r = 0;
        if (depth > EXPAND_DEPTH_MAX)
                return error_say(x->e, -EINVAL, "variables nest more than %d deep", EXPAND_DEPTH_MAX);
        while (r == 0 && *x->p) {
                if (until && *x->p == until && !in_double) {
                        x->p++;
                        return 0;
                }
                if (*x->p == x->escape)
                        r = escaped(x, b, in_double);
                else if (*x->p == '$')
                        r = variable(x, b, depth);
                else if (x->quotes && *x->p == '\'' && !in_double)
                        r = single_quoted(x, b);
                else if (x->quotes && *x->p == '"') {
                        in_double = !in_double;
                        x->p++;
                } else
                        r = add(x, b, x->p++, 1);
        }
        if (r == 0 && (until || in_double))
                return error_say(x->e, -EINVAL, until ? "${ does not end" : "a quote does not end");
        return r;
}

int expand_word(const char *word, char escape, bool quotes, expand_lookup lookup, void *user, struct buf *b, struct error *e) {
        struct error mine;
        struct expander x = { .p = word, .escape = escape, .quotes = quotes, .lookup = lookup, .user = user, .e = e ? e : &mine };
        int r = expand(&x, b, 0, 0);
        return r == -ENOMEM ? error_set(e, r, "replace variables") : r;
}
