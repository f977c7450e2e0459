/* The table of frameworks, recognition, and what their text parsers share. */
#include "score/framework.h"

#include <ctype.h>

#include "score/text.h"

static const struct framework *const frameworks[] = {
        &framework_pytest, &framework_django, &framework_sympy, &framework_unittest, &framework_go, &framework_cargo, &framework_node, &framework_jest, &framework_vitest,
        &framework_mocha, &framework_maven, &framework_ctest, &framework_gtest, &framework_tap,
};

const struct framework *framework_at(size_t i) { return i < ARRAY_SIZE(frameworks) ? frameworks[i] : NULL; }

const struct framework *framework_by_name(const char *name) {
        for (size_t i = 0; i < ARRAY_SIZE(frameworks); i++)
                if (strcmp(frameworks[i]->name, name) == 0)
                        return frameworks[i];
        return NULL;
}

static bool is_name_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }

bool text_has_word(const char *text, const char *word) {
        size_t n = strlen(word);
        for (const char *at = text; (at = strstr(at, word)); at++)
                if ((at == text || !is_name_char(at[-1])) && !is_name_char(at[n]))
                        return true;
        return false;
}

const struct framework *framework_of_command(const char *command) {
        for (size_t i = 0; i < ARRAY_SIZE(frameworks); i++)
                for (const char *const *w = frameworks[i]->words; *w; w++)
                        if (text_has_word(command, *w))
                                return frameworks[i];
        return NULL;
}

const struct framework *framework_of_output(const char *text) {
        for (size_t i = 0; i < ARRAY_SIZE(frameworks); i++)
                if (frameworks[i]->detect && frameworks[i]->detect(text))
                        return frameworks[i];
        return NULL;
}

const struct framework *framework_of_ids(const char *const *ids) {
        for (; *ids; ids++) {
                if (strstr(*ids, "::") || strstr(*ids, ".py"))
                        return &framework_pytest;
                if (strstr(*ids, " (") || (strchr(*ids, '.') && !strpbrk(*ids, " /[")))
                        return &framework_unittest;
        }
        return NULL;
}

char *framework_canonical(const struct framework *f, const char *id) {
        return f && f->canonical ? f->canonical(id) : strdup(id);
}

/* ---- lines ---------------------------------------------------------------------------------------------------- */

bool text_line(const char **cursor, struct slice *ret) {
        if (!**cursor)
                return false;
        const char *end = strchrnul(*cursor, '\n');
        *ret = (struct slice){*cursor, (size_t)(end - *cursor)};
        *cursor = *end ? end + 1 : end;
        return true;
}

struct slice slice_trim(struct slice s) {
        while (s.n && isspace((unsigned char)s.p[0]))
                s = slice_from(s, 1);
        while (s.n && isspace((unsigned char)s.p[s.n - 1]))
                s.n--;
        return s;
}

const char *slice_find(struct slice s, const char *needle) { return memmem(s.p, s.n, needle, strlen(needle)); }

const char *slice_find_last(struct slice s, const char *needle) {
        const char *last = NULL;
        for (const char *at; (at = slice_find(s, needle)); s = slice_from(s, (size_t)(at + 1 - s.p)))
                last = at;
        return last;
}

int text_put(struct sink *ret, struct slice id, enum test_status st) {
        id = slice_trim(id);
        if (!id.n)
                return 0;
        _cleanup_free_ char *s = strndup(id.p, id.n);
        return s ? sink_put(ret, (const char *const[]){s, NULL}, st) : -ENOMEM;
}

/* ---- cleaning --------------------------------------------------------------------------------------------------- */

/* Length of the escape sequence at p (which is ESC): CSI up to its final byte, OSC up to BEL or ST, else two bytes. */
static size_t escape_length(const unsigned char *p, size_t n) {
        size_t i = 2;
        if (n < 2)
                return n;
        if (p[1] == '[') {
                while (i < n && (p[i] < 0x40 || p[i] > 0x7e) && p[i] >= 0x20)
                        i++;
                return i < n && p[i] >= 0x40 ? i + 1 : i;
        }
        if (p[1] == ']') {
                while (i < n && p[i] != 7 && p[i] != 0x1b && p[i] != '\n')
                        i++;
                return i < n && p[i] == 7 ? i + 1 : i;
        }
        return 2;
}

/* Length of the UTF-8 sequence at p, 0 when it is none. */
static size_t utf8_length(const unsigned char *p, size_t n) {
        unsigned c = p[0], min;
        size_t k = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
        if (k == 0 || k > n)
                return 0;
        unsigned v = k == 1 ? c : c & (0xffu >> (k + 1));
        for (size_t i = 1; i < k; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                v = v << 6 | (p[i] & 0x3f);
        }
        min = k == 3 ? 0x800 : k == 4 ? 0x10000 : 0;
        return v < min || (v >= 0xd800 && v < 0xe000) || v > 0x10ffff ? 0 : k;
}

char *framework_clean(const char *text, size_t n) {
        const unsigned char *p = (const unsigned char *)text;
        if (n > FRAMEWORK_TEXT_MAX) {
                p += n - FRAMEWORK_TEXT_MAX;
                n = FRAMEWORK_TEXT_MAX;
        }
        char *out = malloc(n * 3 + 1);          /* a replaced byte becomes three */
        size_t at = 0, line = 0, k;
        if (!out)
                return NULL;
        for (size_t i = 0; i < n; i += k) {
                k = 1;
                if (p[i] == 0x1b)
                        k = escape_length(p + i, n - i);
                else if (p[i] == '\r') {
                        if (i + 1 < n && p[i + 1] != '\n' && p[i + 1] != '\r')
                                at = line;
                } else if (p[i] == '\n') {
                        out[at++] = '\n';
                        line = at;
                } else if (p[i] == '\b')
                        at -= at > line;
                else if (p[i] && (k = utf8_length(p + i, n - i)) > 0) {
                        memcpy(out + at, p + i, k);
                        at += k;
                } else if (p[i]) {
                        memcpy(out + at, "\xef\xbf\xbd", 3);
                        at += 3;
                        k = 1;
                } else
                        k = 1;
        }
        out[at] = 0;
        return out;
}
