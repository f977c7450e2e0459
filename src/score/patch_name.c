#include <ctype.h>
#include <string.h>

#include "base/macros.h"
#include "score/patch.h"
#include "score/patch_name.h"

static int unquote_char(const char *p, size_t len, size_t *at, char *ret) {
        static const char from[] = "abtnvfr\"\\", to[] = "\a\b\t\n\v\f\r\"\\";
        if (*at >= len)
                return -EBADMSG;
        char c = p[(*at)++];
        const char *known = memchr(from, c, sizeof from - 1);
        if (known) {
                *ret = to[known - from];
                return 0;
        }
        if (c < '0' || c > '3' || *at + 2 > len)
                return -EBADMSG;
        unsigned v = (unsigned)(c - '0');
        for (int i = 0; i < 2; i++) {
                c = p[(*at)++];
                if (c < '0' || c > '7')
                        return -EBADMSG;
                v = v * 8 + (unsigned)(c - '0');
        }
        if (v == 0)
                return -EPERM;
        *ret = (char)v;
        return 0;
}

static int read_quoted(const char *p, size_t len, char *out, size_t *ret_used) {
        size_t at = 1, n = 0;
        while (at < len && p[at] != '"') {
                char c = p[at++];
                if (c == '\\') {
                        int r = unquote_char(p, len, &at, &c);
                        if (r < 0)
                                return r;
                }
                out[n++] = c;
        }
        if (at >= len)
                return -EBADMSG;
        out[n] = 0;
        *ret_used = at + 1;
        return 0;
}

int name_read(const char *p, size_t len, bool until_tab, char **ret, size_t *ret_used) {
        if (memchr(p, 0, len))
                return -EPERM;
        _cleanup_free_ char *out = malloc(len + 1);
        if (!out)
                return -ENOMEM;
        if (len > 0 && p[0] == '"') {
                int r = read_quoted(p, len, out, ret_used);
                if (r < 0)
                        return r;
        } else {
                const char *tab = until_tab ? memchr(p, '\t', len) : NULL;
                size_t n = tab ? (size_t)(tab - p) : len;
                memcpy(out, p, n);
                out[n] = 0;
                *ret_used = n;
        }
        *ret = TAKE_PTR(out);
        return 0;
}

/* The shape of a time stamp, 'd' for a digit. */
static bool has_shape(const char *p, const char *shape) {
        for (; *shape; p++, shape++)
                if (*shape == 'd' ? !isdigit((unsigned char)*p) : *p != *shape)
                        return false;
        return true;
}

size_t name_without_timestamp(const char *p, size_t len) {
        static const char shape[] = " dddd-dd-dd dd:dd:dd";
        size_t n = sizeof shape - 1;
        if (len < n + 1)
                return len;
        for (size_t i = len - n; i > 0; i--)
                if (has_shape(p + i, shape)) {
                        while (i > 0 && (p[i - 1] == ' ' || p[i - 1] == '\t'))
                                i--;
                        return i;
                }
        return len;
}

const char *name_strip(const char *name) {
        const char *slash = strchr(name, '/');
        return slash && slash[1] ? slash + 1 : NULL;
}

/* Length of the ignorable code point at p (HFS+ drops these when it compares names), 0 if it is none. */
static size_t ignorable(const unsigned char *p, size_t len) {
        if (len < 3)
                return 0;
        if (p[0] == 0xe2 && p[1] == 0x80)
                return (p[2] >= 0x8b && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae) ? 3 : 0;   /* U+200B-200F, 202A-202E */
        if (p[0] == 0xe2 && p[1] == 0x81)
                return p[2] >= 0xa0 && p[2] <= 0xaf ? 3 : 0;                                       /* U+2060-206F */
        return p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf ? 3 : 0;                               /* U+FEFF */
}

bool name_is_dotgit(const char *component, size_t len) {
        char plain[8];
        size_t n = 0;
        const unsigned char *p = (const unsigned char *)component;
        for (size_t i = 0; i < len;) {
                size_t skip = ignorable(p + i, len - i);
                if (skip) {
                        i += skip;
                        continue;
                }
                if (p[i] == ':' || p[i] == '\\')       /* an NTFS stream; its other separator */
                        break;
                if (p[i] == ' ' || p[i] == '.') {      /* trailing ones are dropped by NTFS; a leading dot counts */
                        size_t j = i;
                        while (j < len && (p[j] == ' ' || p[j] == '.' || ignorable(p + j, len - j)))
                                j += ignorable(p + j, len - j) ? ignorable(p + j, len - j) : 1;
                        if (n > 0 && (j == len || p[j] == ':' || p[j] == '\\'))
                                break;
                }
                if (n == sizeof plain - 1)
                        return false;
                plain[n++] = (char)tolower(p[i++]);
        }
        plain[n] = 0;
        return strcmp(plain, ".git") == 0 || strcmp(plain, "git~1") == 0;
}

static const char *component_refusal(const char *p, size_t len) {
        if (len == 0)
                return "it has an empty component";
        if (len == 1 && p[0] == '.')
                return "it has a component \".\"";
        if (len == 2 && memcmp(p, "..", 2) == 0)
                return "it leaves the tree with \"..\"";
        if (len > PATCH_COMPONENT_MAX)
                return "a component is longer than 255 bytes";
        /* A name may hide `.git` behind a backslash on another system; check what stands between them as well. */
        for (size_t i = 0; i <= len;) {
                size_t end = i;
                while (end < len && p[end] != '\\')
                        end++;
                if (name_is_dotgit(p + i, end - i))
                        return "it names the repository's own .git";
                i = end + 1;
        }
        return NULL;
}

const char *name_refusal(const char *path) {
        size_t len = strlen(path), depth = 0;
        if (len == 0)
                return "it is empty";
        if (len > PATCH_PATH_MAX)
                return "it is longer than 1024 bytes";
        if (path[0] == '/')
                return "it is absolute";
        if (isalpha((unsigned char)path[0]) && path[1] == ':')
                return "it starts with a drive letter";
        for (const char *p = path;;) {
                const char *slash = strchr(p, '/');
                const char *why = component_refusal(p, slash ? (size_t)(slash - p) : strlen(p));
                if (why)
                        return why;
                if (++depth > PATCH_DEPTH_MAX)
                        return "it is more than 64 directories deep";
                if (!slash)
                        return NULL;
                p = slash + 1;
        }
}
