/* "GIT binary patch": base 85, zlib, and git's delta format. Sizes are announced and checked before anything is inflated, so a
 * small patch cannot become a large one unseen. */
#include <string.h>
#include <zlib.h>

#include "score/patch.h"

static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

static int decode85(const char *p, size_t chars, unsigned char *out, size_t bytes) {
        for (size_t i = 0; i < chars; i += 5) {
                uint64_t v = 0;
                for (size_t j = 0; j < 5; j++) {
                        const char *at = p[i + j] ? strchr(alphabet, p[i + j]) : NULL;
                        if (!at)
                                return -EBADMSG;
                        v = v * 85 + (uint64_t)(at - alphabet);
                }
                if (v > UINT32_MAX)
                        return -EBADMSG;
                for (int shift = 24; shift >= 0 && bytes > 0; shift -= 8, bytes--)
                        *out++ = (unsigned char)(v >> shift);
        }
        return 0;
}

static int inflate_exactly(const struct buf *in, size_t size, char **ret) {
        char *out = malloc(size + 1);
        if (!out)
                return -ENOMEM;
        z_stream z = { .next_in = (Bytef *)in->data, .avail_in = (uInt)in->len, .next_out = (Bytef *)out, .avail_out = (uInt)size + 1 };
        int r = inflateInit(&z) == Z_OK ? 0 : -ENOMEM;
        if (r == 0) {
                int zr = inflate(&z, Z_FINISH);
                if (zr != Z_STREAM_END || z.total_out != size)
                        r = -EBADMSG;
                inflateEnd(&z);
        }
        if (r < 0) {
                free(out);
                return r;
        }
        *ret = out;
        return 0;
}

static size_t line_end(const char *text, size_t len, size_t at) {
        const char *nl = at < len ? memchr(text + at, '\n', len - at) : NULL;
        return nl ? (size_t)(nl - text) : len;
}

static bool read_size(const char *p, size_t len, size_t *ret) {
        size_t v = 0, i = 0;
        for (; i < len && p[i] >= '0' && p[i] <= '9' && v <= PATCH_FILE_BYTES_MAX; i++)
                v = v * 10 + (size_t)(p[i] - '0');
        *ret = v;
        return i > 0 && (i == len || p[i] == '\r' || v > PATCH_FILE_BYTES_MAX);
}

/* Data lines: a length letter, then five characters for each four bytes; a blank line ends them. */
static int read_lines(const char *text, size_t len, size_t *at, uint32_t *line, struct buf *b) {
        while (*at < len) {
                size_t end = line_end(text, len, *at), n = end - *at;
                const char *p = text + *at;
                if (n > 0 && p[n - 1] == '\r')
                        n--;
                *at = MIN2(end + 1, len);
                (*line)++;
                if (n == 0)
                        return 0;
                unsigned char bytes[56];
                size_t count = p[0] >= 'A' && p[0] <= 'Z' ? (size_t)(p[0] - 'A') + 1 : p[0] >= 'a' && p[0] <= 'z' ? (size_t)(p[0] - 'a') + 27 : 0;
                if (count == 0 || n - 1 != (count + 3) / 4 * 5 || decode85(p + 1, n - 1, bytes, count) < 0)
                        return -EBADMSG;
                int r = buf_add(b, bytes, count);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* One part; 1 when there is none at *at. */
static int read_part(const char *text, size_t len, size_t *at, uint32_t *line, enum patch_binary_method *ret_method, char **ret, size_t *ret_len) {
        size_t end = line_end(text, len, *at), size;
        const char *p = text + *at;
        bool literal = end - *at > 8 && memcmp(p, "literal ", 8) == 0, delta = end - *at > 6 && memcmp(p, "delta ", 6) == 0;
        if (!literal && !delta)
                return 1;
        size_t skip = literal ? 8 : 6;
        if (!read_size(p + skip, end - *at - skip, &size))
                return -EBADMSG;
        if (size > PATCH_FILE_BYTES_MAX)
                return -EPERM;
        *at = MIN2(end + 1, len);
        (*line)++;
        _cleanup_buf_ struct buf b = BUF_INIT(PATCH_BYTES_MAX);
        int r = read_lines(text, len, at, line, &b);
        if (r == 0)
                r = inflate_exactly(&b, size, ret);
        if (r < 0)
                return r;
        *ret_method = literal ? PATCH_BINARY_LITERAL : PATCH_BINARY_DELTA;
        *ret_len = size;
        return 0;
}

int patch_parse_binary(const char *text, size_t len, size_t *at, uint32_t *line, struct patch_file *f, struct error *e) {
        const char *name = f->new_path ? f->new_path : f->old_path;
        uint32_t started = *line;
        int r = read_part(text, len, at, line, &f->method, &f->binary, &f->binary_len);
        if (r == 1)
                r = -EBADMSG;
        if (r == 0) {   /* the reverse part, of no use here, is read to be stepped over */
                enum patch_binary_method method;
                _cleanup_free_ char *reverse = NULL;
                size_t n;
                r = read_part(text, len, at, line, &method, &reverse, &n);
                r = r == 1 ? 0 : r;
        }
        if (r == -EPERM)
                return error_say(e, r, "%s: the binary patch at line %u makes a file of more than %u bytes", name, started, PATCH_FILE_BYTES_MAX);
        if (r == -EBADMSG)
                return error_say(e, r, "%s: the binary patch at line %u is damaged", name, started);
        return r < 0 ? error_set(e, r, "reading the patch") : 0;
}

/* ---- delta ---------------------------------------------------------------------------------------------------------- */

struct delta { const unsigned char *p, *end; };

static bool delta_size(struct delta *d, size_t *ret) {
        size_t v = 0;
        for (unsigned shift = 0; d->p < d->end && shift < 56; shift += 7) {
                unsigned char c = *d->p++;
                v |= (size_t)(c & 0x7f) << shift;
                if (!(c & 0x80)) {
                        *ret = v;
                        return true;
                }
        }
        return false;
}

static bool delta_copy_args(struct delta *d, unsigned char op, size_t *ret_offset, size_t *ret_size) {
        size_t v[2] = { 0, 0 };
        for (int bit = 0; bit < 7; bit++) {
                if (!(op & (1u << bit)))
                        continue;
                if (d->p >= d->end)
                        return false;
                v[bit >= 4] |= (size_t)*d->p++ << (8 * (bit >= 4 ? bit - 4 : bit));
        }
        *ret_offset = v[0];
        *ret_size = v[1] ? v[1] : 0x10000;
        return true;
}

static int delta_run(struct delta *d, const char *base, size_t base_len, char *out, size_t out_len) {
        size_t at = 0;
        while (d->p < d->end) {
                unsigned char op = *d->p++;
                size_t offset, n;
                const char *from;
                if (op & 0x80) {
                        if (!delta_copy_args(d, op, &offset, &n) || offset > base_len || n > base_len - offset)
                                return -EBADMSG;
                        from = base + offset;
                } else {
                        n = op;
                        from = (const char *)d->p;
                        if (n == 0 || n > (size_t)(d->end - d->p))
                                return -EBADMSG;
                        d->p += n;
                }
                if (n > out_len - at)
                        return -EBADMSG;
                memcpy(out + at, from, n);
                at += n;
        }
        return at == out_len ? 0 : -EBADMSG;
}

int patch_delta_apply(const char *delta, size_t delta_len, const char *base, size_t base_len, char **ret, size_t *ret_len) {
        struct delta d = { (const unsigned char *)delta, (const unsigned char *)delta + delta_len };
        size_t from, to;
        if (!delta_size(&d, &from) || !delta_size(&d, &to) || from != base_len)
                return -EBADMSG;
        if (to > PATCH_FILE_BYTES_MAX)
                return -EPERM;
        char *out = malloc(to + 1);
        if (!out)
                return -ENOMEM;
        int r = delta_run(&d, base, base_len, out, to);
        if (r < 0) {
                free(out);
                return r;
        }
        *ret = out;
        *ret_len = to;
        return 0;
}
