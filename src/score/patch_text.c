/* What happens to the text of a patch before it is read: a fence around it, CRLF line ends of the transport and a missing
 * final newline have one meaning each and are undone; everything else is left to the parser. */
#include <string.h>

#include "score/patch_parse.h"

static size_t line_len(const char *text, size_t len, size_t at) {
        const char *nl = at < len ? memchr(text + at, '\n', len - at) : NULL;
        return nl ? (size_t)(nl - text) - at + 1 : len - at;
}

static bool starts(const char *text, size_t len, size_t at, const char *prefix) {
        size_t n = strlen(prefix);
        return len - at >= n && memcmp(text + at, prefix, n) == 0;
}

static bool is_header(const char *text, size_t len, size_t at) {
        return starts(text, len, at, "diff --git ") || starts(text, len, at, "@@ -") ||
               (starts(text, len, at, "--- ") && starts(text, len, at + line_len(text, len, at), "+++ "));
}

static bool is_fence(const char *text, size_t len, size_t at) {
        return starts(text, len, at, "```") || starts(text, len, at, "~~~");
}

/* Narrows [*from, *to) to what one fence holds. With a header before the fence, or behind its end, nothing is changed: then
 * the fences are either part of the content or several, and the parser steps over them. */
static bool unfence(const char *text, size_t len, size_t *from, size_t *to) {
        size_t at = 0, open = 0, end = 0;
        while (at < len && !is_fence(text, len, at)) {
                if (is_header(text, len, at))
                        return false;
                at += line_len(text, len, at);
        }
        if (at >= len)
                return false;
        open = at + line_len(text, len, at);
        for (end = open; end < len && memcmp(text + end, text + at, MIN2((size_t)3, len - end)) != 0;)
                end += line_len(text, len, end);
        for (size_t rest = end; rest < len; rest += line_len(text, len, rest))
                if (is_header(text, len, rest))
                        return false;
        *from = open;
        *to = end;
        return true;
}

/* CRLF of the transport: the lines that git itself writes end in CR as well. */
static bool has_crlf_headers(const char *text, size_t len) {
        size_t with = 0, without = 0;
        for (size_t at = 0; at < len;) {
                size_t n = line_len(text, len, at);
                if (starts(text, len, at, "diff --git ") || starts(text, len, at, "@@ -")) {
                        if (n >= 2 && text[at + n - 1] == '\n')
                                *(text[at + n - 2] == '\r' ? &with : &without) += 1;
                }
                at += n;
        }
        return with > 0 && without == 0;
}

static size_t strip_cr(char *text, size_t len) {
        size_t out = 0;
        for (size_t i = 0; i < len; i++)
                if (text[i] != '\r' || (i + 1 < len && text[i + 1] != '\n'))
                        text[out++] = text[i];
        return out;
}

int patch_normalise(const char *text, size_t len, enum patch_level level, char **ret, size_t *ret_len, bool *ret_changed) {
        size_t from = 0, to = len;
        bool changed = false;
        if (level == PATCH_PARSE_REPAIR)
                changed = unfence(text, len, &from, &to);
        char *copy = malloc(to - from + 2);
        if (!copy)
                return -ENOMEM;
        size_t n = to - from;
        if (n)
                memcpy(copy, text + from, n);
        if (level == PATCH_PARSE_REPAIR) {
                if (has_crlf_headers(copy, n)) {
                        n = strip_cr(copy, n);
                        changed = true;
                }
                if (n > 0 && copy[n - 1] != '\n') {
                        copy[n++] = '\n';
                        changed = true;
                }
        }
        copy[n] = 0;
        *ret = copy;
        *ret_len = n;
        *ret_changed = changed;
        return 0;
}
