/* The writer, and the two texts that it shares with the canonical form: strings and doubles. */
#include <math.h>

#include "base/json.h"
#include "base/json_internal.h"
#include "base/utf8.h"

size_t json_quote_len(const char *p, size_t n) {
        size_t i = 0;
        while (i < n && (unsigned char)p[i] >= 0x20 && (unsigned char)p[i] < 0x80 && p[i] != '"' && p[i] != '\\')
                i++;
        return i;
}

size_t json_quote_char(const char *p, size_t n, char ret[static 8], size_t *ret_used) {
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        unsigned char c = (unsigned char)p[0];
        *ret_used = 1;
        const char *at = c ? strchr(from, c) : NULL;
        if (at) {
                ret[0] = '\\';
                ret[1] = to[at - from];
                return 2;
        }
        if (c < 0x20)
                return (size_t)snprintf(ret, 8, "\\u%04x", c);
        bool valid;
        *ret_used = utf8_step(p, n, &valid);
        if (!valid) {
                memcpy(ret, UTF8_REPLACEMENT, UTF8_REPLACEMENT_LEN);
                return UTF8_REPLACEMENT_LEN;
        }
        memcpy(ret, p, *ret_used);
        return *ret_used;
}

/* The shortest digits that read back as v, and the position of the decimal point: v = 0.DIGITS × 10^point. */
static int shortest_digits(double v, char digits[static 20], int *ret_point) {
        char text[40];
        int precision = 0;
        /* 15 digits are always enough to be unique backwards, 17 always to read back; most numbers end at the first try below. */
        for (precision = 0; precision < 17; precision++) {
                snprintf(text, sizeof text, "%.*e", precision, v);
                if (strtod(text, NULL) == v)
                        break;
        }
        char *e = strchr(text, 'e');
        ASSERT(e);
        int n = 0;
        for (char *p = text; p < e; p++)
                if (*p != '.')
                        digits[n++] = *p;
        *ret_point = (int)strtol(e + 1, NULL, 10) + 1;
        while (n > 1 && digits[n - 1] == '0')
                n--;
        return n;
}

size_t json_format_double(double v, char ret[static JSON_DOUBLE_TEXT]) {
        if (v == 0)
                return (size_t)snprintf(ret, JSON_DOUBLE_TEXT, "0");
        if (fabs(v) < 9007199254740992.0 && v == (double)(int64_t)v)
                return (size_t)snprintf(ret, JSON_DOUBLE_TEXT, "%lld", (long long)v);
        char digits[20];
        int point, n = shortest_digits(fabs(v), digits, &point);
        const char *sign = v < 0 ? "-" : "";
        if (n <= point && point <= 21)
                return (size_t)snprintf(ret, JSON_DOUBLE_TEXT, "%s%.*s%.*s", sign, n, digits, point - n, "000000000000000000000");
        if (point > 0 && point <= 21)
                return (size_t)snprintf(ret, JSON_DOUBLE_TEXT, "%s%.*s.%.*s", sign, point, digits, n - point, digits + point);
        if (point > -6 && point <= 0)
                return (size_t)snprintf(ret, JSON_DOUBLE_TEXT, "%s0.%.*s%.*s", sign, -point, "000000", n, digits);
        return (size_t)snprintf(ret, JSON_DOUBLE_TEXT, "%s%c%s%.*se%+d", sign, digits[0], n > 1 ? "." : "", n - 1, digits + 1, point - 1);
}

static void put(struct json_writer *w, const char *p, size_t n) {
        if (w->r == 0)
                w->r = buf_add(w->out, p, n);
}

static void before_value(struct json_writer *w) {
        if (w->comma)
                put(w, ",", 1);
        w->comma = true;
}

static void begin(struct json_writer *w, const char *c) {
        before_value(w);
        put(w, c, 1);
        w->comma = false;
        w->depth++;
}

static void end(struct json_writer *w, const char *c) {
        ASSERT(w->depth > 0);
        w->depth--;
        put(w, c, 1);
        w->comma = true;
}

void json_begin_object(struct json_writer *w) { begin(w, "{"); }
void json_end_object(struct json_writer *w) { end(w, "}"); }
void json_begin_array(struct json_writer *w) { begin(w, "["); }
void json_end_array(struct json_writer *w) { end(w, "]"); }

static void put_quoted(struct json_writer *w, const char *p, size_t n) {
        put(w, "\"", 1);
        while (n > 0 && w->r == 0) {
                size_t plain = json_quote_len(p, n);
                put(w, p, plain);
                p += plain;
                n -= plain;
                if (n == 0)
                        break;
                char out[8];
                size_t used, m = json_quote_char(p, n, out, &used);
                put(w, out, m);
                p += used;
                n -= used;
        }
        put(w, "\"", 1);
}

void json_put_key(struct json_writer *w, const char *key) {
        before_value(w);
        put_quoted(w, key, strlen(key));
        put(w, ":", 1);
        w->comma = false;
}

void json_put_string(struct json_writer *w, const char *p, size_t n) {
        before_value(w);
        put_quoted(w, p, n);
}

void json_put_text(struct json_writer *w, const char *s) {
        if (s)
                json_put_string(w, s, strlen(s));
        else
                json_put_null(w);
}

void json_put_raw(struct json_writer *w, const char *p, size_t n) {
        before_value(w);
        put(w, p, n);
}

void json_put_int(struct json_writer *w, int64_t v) {
        char text[24];
        json_put_raw(w, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v));
}

void json_put_uint(struct json_writer *w, uint64_t v) {
        char text[24];
        json_put_raw(w, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)v));
}

void json_put_double(struct json_writer *w, double v) {
        char text[JSON_DOUBLE_TEXT];
        if (!isfinite(v)) {
                json_put_null(w);
                return;
        }
        json_put_raw(w, text, json_format_double(v, text));
}

void json_put_bool(struct json_writer *w, bool v) {
        json_put_raw(w, v ? "true" : "false", v ? 4 : 5);
}

void json_put_null(struct json_writer *w) {
        json_put_raw(w, "null", 4);
}

void json_put_texts(struct json_writer *w, char *const *list) {
        if (!list) {
                json_put_null(w);
                return;
        }
        json_begin_array(w);
        for (; *list; list++)
                json_put_text(w, *list);
        json_end_array(w);
}

int json_finish(struct json_writer *w) {
        ASSERT(w->depth == 0);
        return w->r;
}
