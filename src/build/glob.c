/* A pattern is a list of tokens, and matching is the set of tokens that may come next, moved along the path byte by byte. */
#include "build/glob.h"

#include <string.h>

enum token_kind { TOKEN_BYTE, TOKEN_ANY, TOKEN_CLASS, TOKEN_STAR, TOKEN_DEEP, TOKEN_DIRS, TOKEN_DIRS_INSIDE };

struct token { enum token_kind kind; unsigned char byte; uint32_t set[8]; };
struct glob { size_t n; struct token tokens[]; };

static void set_add(struct token *t, unsigned c) { t->set[c / 32] |= 1u << (c % 32); }
static bool set_has(const struct token *t, unsigned c) { return t->set[c / 32] >> (c % 32) & 1; }

/* At the byte behind '['; the end of the class, or NULL. */
static const char *parse_class(const char *p, struct token *t) {
        bool invert = *p == '^' || *p == '!', first = true;
        p += invert;
        for (; *p && (*p != ']' || first); first = false) {
                if (*p == '\\' && p[1])
                        p++;
                unsigned lo = (unsigned char)*p++, hi = lo;
                if (*p == '-' && p[1] && p[1] != ']') {
                        p += p[1] == '\\' && p[2] ? 2 : 1;
                        hi = (unsigned char)*p++;
                }
                for (unsigned c = lo; c <= hi; c++)
                        set_add(t, c);
        }
        if (*p != ']')
                return NULL;
        for (size_t i = 0; invert && i < ARRAY_SIZE(t->set); i++)
                t->set[i] = ~t->set[i];
        return p + 1;
}

static const char *parse_stars(const char *p, struct glob *g) {
        bool deep = p[1] == '*';
        while (*p == '*')
                p++;
        if (deep && *p == '/') {
                g->tokens[g->n++].kind = TOKEN_DIRS;
                g->tokens[g->n++].kind = TOKEN_DIRS_INSIDE;
                return p + 1;
        }
        g->tokens[g->n++].kind = deep ? TOKEN_DEEP : TOKEN_STAR;
        return p;
}

int glob_new(const char *pattern, struct glob **ret) {
        struct glob *g = calloc(1, sizeof *g + GLOB_TOKENS_MAX * sizeof *g->tokens);
        if (!g)
                return -ENOMEM;
        for (const char *p = pattern; *p;) {
                struct token *t = &g->tokens[g->n];
                if (g->n + 2 > GLOB_TOKENS_MAX) {
                        free(g);
                        return -E2BIG;
                }
                if (*p == '*') {
                        p = parse_stars(p, g);
                        continue;
                }
                g->n++;
                if (*p == '[') {
                        t->kind = TOKEN_CLASS;
                        p = parse_class(p + 1, t);
                        if (!p) {
                                free(g);
                                return -EINVAL;
                        }
                        continue;
                }
                t->kind = *p == '?' ? TOKEN_ANY : TOKEN_BYTE;
                if (*p == '\\' && p[1])
                        p++;
                t->byte = (unsigned char)*p++;
        }
        struct glob *small = realloc(g, sizeof *g + MAX2(g->n, 1u) * sizeof *g->tokens);
        *ret = small ? small : g;
        return 0;
}

struct glob *glob_free(struct glob *g) {
        free(g);
        return NULL;
}

bool glob_is_plain(const char *pattern) { return !strpbrk(pattern, "*?[\\"); }

/* Token i may come next, and what may come next without a byte for it. */
static void reach(const struct glob *g, bool *set, size_t i) {
        while (!set[i]) {
                set[i] = true;
                if (i == g->n)
                        return;
                if (g->tokens[i].kind == TOKEN_DIRS) {
                        reach(g, set, i + 1);            /* at most one level: the inside token ends here */
                        i += 2;
                } else if (g->tokens[i].kind == TOKEN_STAR || g->tokens[i].kind == TOKEN_DEEP)
                        i++;
                else
                        return;
        }
}

static void step(const struct glob *g, bool *to, size_t i, unsigned char c) {
        const struct token *t = &g->tokens[i];
        switch (t->kind) {
        case TOKEN_BYTE: if (c == t->byte) reach(g, to, i + 1); break;
        case TOKEN_ANY: if (c != '/') reach(g, to, i + 1); break;
        case TOKEN_CLASS: if (c != '/' && set_has(t, c)) reach(g, to, i + 1); break;
        case TOKEN_STAR: if (c != '/') reach(g, to, i); break;
        case TOKEN_DEEP: reach(g, to, i); break;
        case TOKEN_DIRS: break;
        case TOKEN_DIRS_INSIDE:
                reach(g, to, i);
                if (c == '/')
                        reach(g, to, i + 1);
                break;
        }
}

bool glob_matches(const struct glob *g, const char *path, bool or_above) {
        bool sets[2][GLOB_TOKENS_MAX + 1], *now = sets[0], *next = sets[1];
        memset(now, 0, g->n + 1);
        reach(g, now, 0);
        for (const char *p = path; *p; p++) {
                if (or_above && *p == '/' && p > path && now[g->n])
                        return true;
                memset(next, 0, g->n + 1);
                for (size_t i = 0; i < g->n; i++)
                        if (now[i])
                                step(g, next, i, (unsigned char)*p);
                bool *t = now;
                now = next;
                next = t;
        }
        return now[g->n];
}

/* ---- .dockerignore ---- */

struct ignore { size_t n; bool takes_back; struct { struct glob *glob; bool back; } patterns[IGNORE_PATTERNS_MAX]; };

struct ignore *ignore_free(struct ignore *i) {
        for (size_t k = 0; i && k < i->n; k++)
                glob_free(i->patterns[k].glob);
        free(i);
        return NULL;
}

/* "./a//b/../c/" -> "a/c"; "" for the context itself. */
static void clean(char *s) {
        size_t at = 0;
        for (const char *p = s; *p;) {
                size_t n = strcspn(p, "/");
                const char *next = p + n + (p[n] == '/');
                if (n == 2 && p[0] == '.' && p[1] == '.') {
                        while (at > 0 && s[--at] != '/')
                                ;
                } else if (n > 0 && !(n == 1 && p[0] == '.')) {
                        if (at > 0)
                                s[at++] = '/';
                        memmove(s + at, p, n);
                        at += n;
                }
                p = next;
        }
        s[at] = 0;
}

static int add_pattern(struct ignore *i, const char *p, size_t n) {
        char text[4096];
        bool back = n > 0 && *p == '!';
        p += back, n -= back;
        while (n > 0 && (*p == ' ' || *p == '\t'))
                p++, n--;
        if (n >= sizeof text)
                return -E2BIG;
        memcpy(text, p, n);
        text[n] = 0;
        clean(text);
        if (!text[0])
                return 0;
        if (i->n == IGNORE_PATTERNS_MAX)
                return -E2BIG;
        int r = glob_new(text, &i->patterns[i->n].glob);
        if (r < 0)
                return r;
        i->patterns[i->n++].back = back;
        i->takes_back |= back;
        return 0;
}

int ignore_parse(const char *p, size_t n, struct ignore **ret, struct error *e) {
        struct ignore *i = calloc(1, sizeof *i);
        const char *end = p + n;
        int r = !i ? -ENOMEM : n > IGNORE_BYTES_MAX ? -E2BIG : 0;
        unsigned line = 0;
        while (r == 0 && p < end) {
                const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *next = nl ? nl + 1 : end;
                line++;
                if (*p != '#') {
                        while (p < stop && (*p == ' ' || *p == '\t'))
                                p++;
                        while (stop > p && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
                                stop--;
                        if (stop > p)
                                r = memchr(p, 0, (size_t)(stop - p)) ? -EINVAL : add_pattern(i, p, (size_t)(stop - p));
                }
                p = next;
        }
        if (r < 0) {
                ignore_free(i);
                return error_say(e, r, ".dockerignore line %u: %s", line, r == -E2BIG ? "too long a pattern, or too many" : r == -ENOMEM ? "no memory" : "not a pattern");
        }
        *ret = i;
        return 0;
}

bool ignore_matches(const struct ignore *i, const char *path) {
        for (size_t k = i->n; k-- > 0;)                  /* the last that matches decides */
                if (glob_matches(i->patterns[k].glob, path, true))
                        return !i->patterns[k].back;
        return false;
}

bool ignore_takes_back(const struct ignore *i) { return i->takes_back; }
