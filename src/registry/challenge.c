#include <string.h>

#include "base/macros.h"
#include "registry/challenge.h"

struct cursor { const char *p, *end; };

static void skip(struct cursor *c, const char *set) {
        while (c->p < c->end && *c->p && strchr(set, *c->p))
                c->p++;
}

static bool token_char(char ch) {
        return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || (ch && strchr("!#$%&'*+-.^_`|~", ch));
}

static size_t token(struct cursor *c, const char **ret) {
        *ret = c->p;
        while (c->p < c->end && token_char(*c->p))
                c->p++;
        return (size_t)(c->p - *ret);
}

/* A token or a quoted string, into `ret`; -EBADMSG. */
static int value(struct cursor *c, char ret[static CHALLENGE_VALUE_MAX]) {
        const char *t;
        size_t n = 0;
        if (c->p == c->end)
                return -EBADMSG;
        if (*c->p != '"') {
                n = token(c, &t);
                if (n == 0 || n >= CHALLENGE_VALUE_MAX)
                        return -EBADMSG;
                memcpy(ret, t, n);
                ret[n] = 0;
                return 0;
        }
        for (c->p++; c->p < c->end && *c->p != '"'; c->p++) {
                if (*c->p == '\\' && ++c->p == c->end)
                        return -EBADMSG;
                if ((unsigned char)*c->p < ' ' || *c->p == 0x7f || n + 1 >= CHALLENGE_VALUE_MAX)
                        return -EBADMSG;
                ret[n++] = *c->p;
        }
        if (c->p == c->end)
                return -EBADMSG;
        c->p++;
        ret[n] = 0;
        return 0;
}

static bool word_is(const char *p, size_t n, const char *word) { return n == strlen(word) && strncasecmp(p, word, n) == 0; }

static int parameters(struct cursor *c, struct challenge *ch) {
        char ignored[CHALLENGE_VALUE_MAX];
        for (skip(c, " \t,"); c->p < c->end; skip(c, " \t,")) {
                const char *name;
                size_t n = token(c, &name);
                skip(c, " \t");
                if (n == 0 || c->p == c->end || *c->p != '=')
                        return -EBADMSG;
                c->p++;
                skip(c, " \t");
                char *to = word_is(name, n, "realm") ? ch->realm : word_is(name, n, "service") ? ch->service : word_is(name, n, "scope") ? ch->scope : ignored;
                int r = value(c, to);
                if (r < 0)
                        return r;
        }
        return 0;
}

int challenge_parse(const char *header, size_t n, struct challenge *ret) {
        struct cursor c = { .p = header, .end = header + n };
        struct challenge ch = { 0 };
        const char *scheme;
        skip(&c, " \t");
        size_t len = token(&c, &scheme);
        if (word_is(scheme, len, "bearer"))
                ch.kind = CHALLENGE_BEARER;
        else if (word_is(scheme, len, "basic")) {
                ch.kind = CHALLENGE_BASIC;
                *ret = ch;
                return 0;
        } else
                return -EBADMSG;
        int r = parameters(&c, &ch);
        if (r == 0 && !ch.realm[0])
                r = -EBADMSG;
        if (r == 0)
                *ret = ch;
        return r;
}
