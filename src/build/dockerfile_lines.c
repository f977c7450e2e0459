#include "build/dockerfile_lines.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

bool lines_physical(struct lines *l, const char **ret, size_t *ret_n) {
        if (l->p == l->end)
                return false;
        const char *nl = memchr(l->p, '\n', (size_t)(l->end - l->p)), *stop = nl ? nl : l->end;
        *ret = l->p;
        *ret_n = (size_t)(stop - l->p);
        if (*ret_n > 0 && stop[-1] == '\r')
                (*ret_n)--;
        l->p = nl ? nl + 1 : l->end;
        l->line++;
        return true;
}

static void trim(const char **p, size_t *n) {
        while (*n > 0 && is_blank(**p))
                (*p)++, (*n)--;
        while (*n > 0 && is_blank((*p)[*n - 1]))
                (*n)--;
}

/* "# name = value": the name and the value, or nothing. */
static bool directive(const char *p, size_t n, const char **name, size_t *name_len, const char **value, size_t *value_len) {
        trim(&p, &n);
        if (n == 0 || *p != '#')
                return false;
        p++, n--;
        const char *eq = memchr(p, '=', n);
        if (!eq)
                return false;
        *name = p;
        *name_len = (size_t)(eq - p);
        *value = eq + 1;
        *value_len = n - *name_len - 1;
        trim(name, name_len);
        trim(value, value_len);
        for (size_t i = 0; i < *name_len; i++)
                if (!((*name)[i] >= 'a' && (*name)[i] <= 'z') && !((*name)[i] >= 'A' && (*name)[i] <= 'Z'))
                        return false;
        return *name_len > 0;
}

int lines_directives(struct lines *l, struct error *e) {
        bool seen = false;
        if (l->end - l->p >= 3 && memcmp(l->p, "\xef\xbb\xbf", 3) == 0)       /* a byte order mark */
                l->p += 3;
        for (;;) {
                struct lines before = *l;
                const char *p, *name, *value;
                size_t n, name_len, value_len;
                if (!lines_physical(l, &p, &n))
                        return 0;
                if (!directive(p, n, &name, &name_len, &value, &value_len)) {
                        *l = before;             /* directives end at the first line that is none */
                        return 0;
                }
                if (name_len != 6 || strncasecmp(name, "escape", 6) != 0)
                        continue;
                if (seen || value_len != 1 || (*value != '\\' && *value != '`'))
                        return error_say(e, -EINVAL, "dockerfile line %u: escape is given once, as \\ or `", l->line);
                l->escape = *value;
                seen = true;
        }
}

/* Is the line continued? Then without the escape character and what stands behind it. */
static bool continued(char escape, const char *p, size_t *n) {
        size_t k = *n;
        while (k > 0 && is_blank(p[k - 1]))
                k--;
        if (k == 0 || p[k - 1] != escape)
                return false;
        *n = k - 1;
        return true;
}

int lines_logical(struct lines *l, struct buf *b, unsigned *ret_line) {
        const char *p;
        size_t n;
        bool more = false;
        buf_reset(b);
        while (lines_physical(l, &p, &n)) {
                const char *text = p;
                size_t len = n;
                trim(&text, &len);
                if (len == 0 || *text == '#')
                        continue;                /* also within a continued one */
                if (!more)
                        *ret_line = l->line;
                if (!more)
                        p = text, n = (size_t)(text + len - p);
                more = continued(l->escape, p, &n);
                int r = buf_add(b, p, n);
                if (r < 0)
                        return r;
                if (!more)
                        return 1;
        }
        return b->len > 0;
}

int lines_heredoc(struct lines *l, const char *word, bool strip_tabs, struct buf *b) {
        const char *p;
        size_t n, len = strlen(word);
        while (lines_physical(l, &p, &n)) {
                while (strip_tabs && n > 0 && *p == '\t')
                        p++, n--;
                if (n == len && memcmp(p, word, len) == 0)
                        return 0;
                int r = buf_add(b, p, n);
                r = r ? r : buf_addc(b, '\n');
                if (r < 0)
                        return r;
        }
        return -EINVAL;
}
