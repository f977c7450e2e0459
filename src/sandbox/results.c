#include "sandbox/results.h"

#include <string.h>

#include "base/utf8.h"

/* Where it stops it stays: behind a head whose bytes are not all there are a file's bytes, which whoever wrote the file chose, and they
 * must not be read as a head. */
bool results_next(const struct output_capture *c, size_t *at, struct result_head *ret, const char **ret_bytes) {
        struct result_head h;
        if (c->total > c->head.len || c->head.len - *at < sizeof h)
                return false;
        memcpy(&h, c->head.data + *at, sizeof h);
        if (h.bytes > c->head.len - *at - sizeof h)
                return false;
        *ret = h;
        *ret_bytes = c->head.data + *at + sizeof h;
        *at += sizeof h + h.bytes;
        return true;
}

/* An upper bound of what the text is in JSON. A byte may become three where not all is UTF-8, six where it has no shorter escape. */
static size_t json_bound(const char *p, size_t n) {
        size_t bound = n + 2, beyond = utf8_valid(p, n) ? 0 : 2;
        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)p[i];
                bound += c < ' ' || c == 0x7f ? 5 : c >= 0x80 ? beyond : c == '"' || c == '\\' ? 1 : 0;
        }
        return bound;
}

void results_write(struct json_writer *w, const struct output_capture *c, char *const *names, size_t json_max) {
        size_t at = 0;
        json_begin_object(w);
        for (; names && *names; names++) {
                struct result_head h = { 0 };
                const char *bytes;
                bool there = results_next(c, &at, &h, &bytes) && h.state == RESULT_FILE;
                size_t bound = there ? json_bound(bytes, h.bytes) : 0;
                if (!there || bound > json_max) {
                        json_field_null(w, *names);
                        continue;
                }
                json_max -= bound;
                json_field_string(w, *names, bytes, h.bytes);
        }
        json_end_object(w);
}
