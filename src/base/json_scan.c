/* The validating scanner. One pass over the text by recursive descent, at most JSON_DEPTH_MAX deep; plain ASCII inside strings is
 * skipped eight bytes at a time, because nearly all bytes of a request are inside a patch or a log. */
#include "base/json.h"
#include "base/utf8.h"

struct scan {
        const char *start, *p, *end;
        const char *why;          /* set with the first error */
        int r;
};

static bool fail(struct scan *s, int r, const char *why) {
        if (!s->why) {
                s->r = r;
                s->why = why;
        }
        return false;
}

static void skip_space(struct scan *s) {
        while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
                s->p++;
}

/* Any byte of the word below 0x20, above 0x7f, or one of the two that end plain text? */
static bool word_is_plain(uint64_t w) {
        const uint64_t ones = 0x0101010101010101ull, tops = 0x8080808080808080ull;
        uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
        uint64_t odd = w | ((w - ones * 0x20) & ~w) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash);
        return (odd & tops) == 0;
}

static const char *skip_plain(const char *p, const char *end) {
        uint64_t w;
        while ((size_t)(end - p) >= sizeof w) {
                memcpy(&w, p, sizeof w);
                if (!word_is_plain(w))
                        break;
                p += sizeof w;
        }
        return p;
}

static bool scan_escape(struct scan *s) {
        if (s->end - s->p < 2)
                return fail(s, -EBADMSG, "unfinished string");
        char c = s->p[1];
        if (c != 'u') {
                if (!c || !strchr("\"\\/bfnrt", c))
                        return fail(s, -EBADMSG, "unknown escape");
                s->p += 2;
                return true;
        }
        if (s->end - s->p < 6)
                return fail(s, -EBADMSG, "unfinished \\u escape");
        for (int i = 2; i < 6; i++)
                if (!s->p[i] || !strchr("0123456789abcdefABCDEF", s->p[i]))
                        return fail(s, -EBADMSG, "\\u needs four hex digits");
        s->p += 6;
        return true;
}

static bool scan_string(struct scan *s) {
        s->p++;
        for (;;) {
                s->p = skip_plain(s->p, s->end);
                if (s->p >= s->end)
                        return fail(s, -EBADMSG, "unfinished string");
                unsigned char c = (unsigned char)*s->p;
                bool ok = true;
                if (c == '"') {
                        s->p++;
                        return true;
                }
                if (c < 0x20)
                        return fail(s, -EBADMSG, "control character in a string");
                if (c == '\\')
                        ok = scan_escape(s);
                else {
                        size_t step = utf8_step(s->p, (size_t)(s->end - s->p), &ok);
                        if (!ok)
                                return fail(s, -EBADMSG, "not UTF-8");
                        s->p += step;
                }
                if (!ok)
                        return false;
        }
}

static bool scan_digits(struct scan *s) {
        const char *first = s->p;
        while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
                s->p++;
        return s->p > first ? true : fail(s, -EBADMSG, "digit expected");
}

static bool scan_number(struct scan *s) {
        const char *first = s->p;
        if (*s->p == '-')
                s->p++;
        if (s->p < s->end && *s->p == '0') {
                s->p++;
                if (s->p < s->end && *s->p >= '0' && *s->p <= '9')
                        return fail(s, -EBADMSG, "number with a leading zero");
        } else if (!scan_digits(s))
                return false;
        if (s->p < s->end && *s->p == '.') {
                s->p++;
                if (!scan_digits(s))
                        return false;
        }
        if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
                s->p++;
                if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
                        s->p++;
                if (!scan_digits(s))
                        return false;
        }
        return s->p - first <= JSON_NUMBER_MAX ? true : fail(s, -E2BIG, "number too long");
}

static bool scan_word(struct scan *s, const char *word) {
        size_t n = strlen(word);
        if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
                return fail(s, -EBADMSG, "unknown word");
        s->p += n;
        return true;
}

static bool scan_value(struct scan *s, unsigned depth, enum json_type *ret);

static bool scan_members(struct scan *s, unsigned depth, char close) {
        enum json_type type;
        s->p++;
        skip_space(s);
        if (s->p < s->end && *s->p == close) {
                s->p++;
                return true;
        }
        for (;;) {
                if (close == '}') {
                        skip_space(s);
                        if (s->p >= s->end || *s->p != '"')
                                return fail(s, -EBADMSG, "key expected");
                        if (!scan_string(s))
                                return false;
                        skip_space(s);
                        if (s->p >= s->end || *s->p != ':')
                                return fail(s, -EBADMSG, "':' expected");
                        s->p++;
                }
                if (!scan_value(s, depth, &type))
                        return false;
                skip_space(s);
                if (s->p < s->end && *s->p == ',') {
                        s->p++;
                        continue;
                }
                if (s->p >= s->end || *s->p != close)
                        return fail(s, -EBADMSG, close == '}' ? "',' or '}' expected" : "',' or ']' expected");
                s->p++;
                return true;
        }
}

static bool scan_value(struct scan *s, unsigned depth, enum json_type *ret) {
        skip_space(s);
        if (s->p >= s->end)
                return fail(s, -EBADMSG, "value expected");
        switch (*s->p) {
        case '"':
                *ret = JSON_STRING;
                return scan_string(s);
        case '{':
        case '[':
                if (depth >= JSON_DEPTH_MAX)
                        return fail(s, -E2BIG, "nested too deep");
                *ret = *s->p == '{' ? JSON_OBJECT : JSON_ARRAY;
                return scan_members(s, depth + 1, *ret == JSON_OBJECT ? '}' : ']');
        case 't':
                *ret = JSON_BOOL;
                return scan_word(s, "true");
        case 'f':
                *ret = JSON_BOOL;
                return scan_word(s, "false");
        case 'n':
                *ret = JSON_NULL;
                return scan_word(s, "null");
        case '-':
        case '0' ... '9':
                *ret = JSON_NUMBER;
                return scan_number(s);
        default:
                return fail(s, -EBADMSG, "value expected");
        }
}

int json_parse(const char *p, size_t n, struct json *ret, struct error *e) {
        struct scan s = { .start = p, .p = p, .end = p ? p + n : p };
        enum json_type type;
        skip_space(&s);
        const char *first = s.p;
        if (scan_value(&s, 0, &type)) {
                const char *last = s.p;
                skip_space(&s);
                if (s.p == s.end) {
                        *ret = (struct json){ .type = type, .p = first, .n = (size_t)(last - first) };
                        return 0;
                }
                fail(&s, -EBADMSG, "text after the value");
        }
        return error_say(e, s.r, "JSON, byte %zu: %s", (size_t)(s.p - s.start), s.why);
}
