/* Any JSON string as a list of ids: it is refused, or it is a list that survives its way into a request. */
#include "base/strv.h"
#include "cmd/score_options.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_buf_ struct buf text = BUF_INIT(1u << 20), again = BUF_INIT(1u << 20);
        struct json_writer w = JSON_WRITER(&text), v = JSON_WRITER(&again);
        struct json doc;
        char **list = NULL;
        if (size > 65536)
                return 0;
        json_put_string(&w, (const char *)data, size);
        ASSERT(json_finish(&w) == 0 && json_parse(buf_str(&text), text.len, &doc, NULL) == 0);
        if (score_ids_parse(&doc, &list, NULL) == 0) {
                ASSERT(list);
                json_put_texts(&v, list);
                ASSERT(json_finish(&v) == 0 && json_parse(buf_str(&again), again.len, &doc, NULL) == 0);
                ASSERT(json_count(&doc) == strv_len((const char *const *)list));
        }
        strv_free(list);
        return 0;
}
