#include "score/frameworks/xml.h"

#include <errno.h>
#include <stdlib.h>

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool ends_name(char c) { return is_blank(c) || c == '>' || c == '/' || c == '=' || c == '<'; }

/* Behind the next `text`, or -EBADMSG. */
static int skip_past(struct xml *x, const char *text) {
        const char *at = memmem(x->p, (size_t)(x->end - x->p), text, strlen(text));
        if (!at)
                return -EBADMSG;
        x->p = at + strlen(text);
        return 0;
}

static bool starts(const struct xml *x, const char *text) {
        return slice_starts((struct slice){x->p, (size_t)(x->end - x->p)}, text);
}

static void take_name(struct xml *x) {
        const char *from = x->p;
        while (x->p < x->end && !ends_name(*x->p))
                x->p++;
        x->name = (struct slice){from, (size_t)(x->p - from)};
}

/* To the end of a tag; a '>' in a value is none. */
static int take_attributes(struct xml *x) {
        const char *from = x->p;
        char quote = 0;
        for (; x->p < x->end && (quote || *x->p != '>'); x->p++)
                if (quote)
                        quote = *x->p == quote ? 0 : quote;
                else if (*x->p == '"' || *x->p == '\'')
                        quote = *x->p;
        if (x->p == x->end)
                return -EBADMSG;
        x->empty = x->p > from && x->p[-1] == '/';
        x->attributes = (struct slice){from, (size_t)(x->p - from) - x->empty};
        x->p++;
        return 0;
}

static int open_element(struct xml *x) {
        take_name(x);
        int r = x->name.n ? take_attributes(x) : -EBADMSG;
        if (r < 0)
                return r;
        return ++x->depth > XML_DEPTH_MAX ? -E2BIG : XML_OPEN;
}

static int close_element(struct xml *x) {
        take_name(x);
        int r = skip_past(x, ">");
        if (r < 0 || x->depth == 0)
                return -EBADMSG;
        x->closing = true;
        return XML_CLOSE;
}

int xml_next(struct xml *x) {
        x->depth -= x->closing;
        x->closing = false;
        if (x->empty) {
                x->empty = false;
                x->closing = true;
                return XML_CLOSE;
        }
        for (int r = 0; r == 0;) {
                const char *at = memchr(x->p, '<', (size_t)(x->end - x->p));
                if (!at)
                        return x->depth > 0 ? -EBADMSG : XML_END;
                x->p = at + 1;
                if (starts(x, "!--"))
                        r = skip_past(x, "-->");
                else if (starts(x, "![CDATA["))
                        r = skip_past(x, "]]>");
                else if (starts(x, "?"))
                        r = skip_past(x, "?>");
                else if (starts(x, "!"))
                        r = -EBADMSG;
                else if (starts(x, "/")) {
                        x->p++;
                        return close_element(x);
                } else
                        return open_element(x);
                if (r < 0)
                        return r;
        }
        return -EBADMSG;
}

/* ---- attributes ------------------------------------------------------------------------------------------------------ */

static size_t put_utf8(char *to, unsigned long c) {
        if (c < 0x80) {
                to[0] = (char)c;
                return c > 0;
        }
        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
                c = 0xfffd;
        size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (size_t i = n - 1; i > 0; i--, c >>= 6)
                to[i] = (char)(0x80 | (c & 0x3f));
        to[0] = (char)(c | (n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0));
        return n;
}

/* The entity at s ("&amp;..."): its bytes into `to`, at most 4. Returns how many bytes of s it is; 0: it is none. */
static size_t decode_entity(struct slice s, char to[static 4], size_t *ret_n) {
        static const struct { const char *name; char c; } named[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
        for (size_t i = 0; i < ARRAY_SIZE(named); i++)
                if (slice_starts(s, named[i].name)) {
                        to[0] = named[i].c;
                        *ret_n = 1;
                        return strlen(named[i].name);
                }
        char digits[12] = "";
        const char *semicolon = memchr(s.p, ';', s.n < sizeof(digits) ? s.n : sizeof(digits));
        if (!slice_starts(s, "&#") || !semicolon)
                return 0;
        memcpy(digits, s.p + 2, (size_t)(semicolon - s.p) - 2);
        bool hex = digits[0] == 'x';
        char *end;
        unsigned long c = strtoul(digits + hex, &end, hex ? 16 : 10);
        if (*end || end == digits + hex)
                return 0;
        *ret_n = put_utf8(to, c);
        return (size_t)(semicolon - s.p) + 1;
}

static void decode(struct slice s, char *ret, size_t size) {
        size_t at = 0;
        while (s.n) {
                char bytes[4] = {s.p[0]};
                size_t n = s.p[0] != 0, used = s.p[0] == '&' ? decode_entity(s, bytes, &n) : 0;
                if (at + n >= size)
                        break;
                memcpy(ret + at, bytes, n);
                at += n;
                s = slice_from(s, used ? used : 1);
        }
        if (s.n)                        /* cut: not in the middle of a character */
                while (at && (s.p[0] & 0xc0) == 0x80 && (ret[at - 1] & 0x80)) {
                        at--;
                        if ((ret[at] & 0xc0) == 0xc0)
                                break;
                }
        ret[at] = 0;
}

bool xml_attribute(const struct xml *x, const char *name, char *ret, size_t size) {
        struct slice s = x->attributes;
        ret[0] = 0;
        while (s.n) {
                while (s.n && is_blank(s.p[0]))
                        s = slice_from(s, 1);
                struct slice key = {s.p, 0};
                while (key.n < s.n && !ends_name(s.p[key.n]))
                        key.n++;
                s = slice_from(s, key.n);
                while (s.n && (is_blank(s.p[0]) || s.p[0] == '='))
                        s = slice_from(s, 1);
                const char *end = s.n && (s.p[0] == '"' || s.p[0] == '\'') ? memchr(s.p + 1, s.p[0], s.n - 1) : NULL;
                if (!end)
                        return false;
                if (slice_is(key, name)) {
                        decode(slice_cut(slice_from(s, 1), (size_t)(end - s.p) - 1), ret, size);
                        return true;
                }
                s = slice_from(s, (size_t)(end - s.p) + 1);
        }
        return false;
}
