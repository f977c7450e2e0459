/* Any bytes: what the scanner accepts can be walked and decoded, its canonical form is valid and a fixed point, and what the writer
 * makes of the bytes as a string is valid. */
#include "base/json.h"
#include "fuzz.h"

#define OUT_MAX (64u * 1024 * 1024)

static size_t walk(const struct json *v) {
        struct json k, item;
        struct json_iter it = json_iter(v);
        size_t n = 1;
        int64_t whole;
        double real;
        if (v->type == JSON_STRING) {
                _cleanup_buf_ struct buf b = BUF_INIT(json_string_max(v));
                ASSERT(json_string(v, &b) == 0);
        }
        json_int_loose(v, &whole);
        json_double(v, &real);
        while (v->type == JSON_OBJECT ? json_next_member(&it, &k, &item) : json_next_item(&it, &item)) {
                ASSERT(item.p >= v->p && item.p + item.n <= v->p + v->n);
                struct json again;
                ASSERT(json_parse(item.p, item.n, &again, NULL) == 0 && again.type == item.type && again.n == item.n);
                n += walk(&item);
        }
        return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct json v, c;
        const char *p = (const char *)data;
        _cleanup_buf_ struct buf text = BUF_INIT(OUT_MAX), again = BUF_INIT(OUT_MAX), quoted = BUF_INIT(OUT_MAX);
        if (json_parse(p, size, &v, NULL) == 0) {
                walk(&v);
                if (json_canonical_buf(&v, &text) == 0) {
                        ASSERT(json_parse(text.data, text.len, &c, NULL) == 0);
                        ASSERT(json_canonical_buf(&c, &again) == 0);
                        ASSERT(again.len == text.len && memcmp(again.data, text.data, text.len) == 0);
                }
        }
        struct json_writer w = JSON_WRITER(&quoted);
        json_put_string(&w, p, size);
        ASSERT(json_finish(&w) == 0 && json_parse(quoted.data, quoted.len, &v, NULL) == 0 && v.type == JSON_STRING);
        return 0;
}
