/* The evidence: a hash over what was run and what came out, so that a record can be compared with a replay of itself. It says
 * that two runs agree, not that a run told the truth. Times, usage and text stay outside: they differ from run to run. */
#include "base/hash.h"
#include "base/json.h"
#include "score/record.h"

#define EVIDENCE_VERSION 1
#define EVIDENCE_TEXT_MAX (1u << 30)   /* ids are at most TEST_RESULTS_MAX; beyond this there is no evidence, -ENOSPC */

static void put_list(struct json_writer *w, const char *key, char *const *list) {
        static char *const none[] = { NULL };
        json_put_key(w, key);
        json_put_texts(w, list ? list : none);
}

/* Not yet canonical: the canonical form is taken from the parsed text, by one implementation. */
static int write_plain(const struct score_record *r, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        json_begin_object(&w);
        json_field_int(&w, "v", EVIDENCE_VERSION);
        json_field_text(&w, "tree_hash", r->tree_hash);
        json_field_text(&w, "image_digest", r->image_digest);
        json_field_text(&w, "patch_rung", r->rung == RUNG_NONE ? NULL : patch_rung_to_string(r->rung));
        put_list(&w, "restored", r->restored);
        put_list(&w, "argv", r->argv);
        put_list(&w, "environment", r->env);
        json_put_key(&w, "tests");
        json_begin_array(&w);
        for (size_t i = 0; i < r->tests.n; i++) {
                json_begin_array(&w);
                json_put_text(&w, r->tests.items[i].id);
                json_put_text(&w, test_status_to_string(r->tests.items[i].status));
                json_end_array(&w);
        }
        json_end_array(&w);
        json_field_text(&w, "outcome", outcome_to_string(r->outcome));
        json_end_object(&w);
        return json_finish(&w);
}

int score_evidence_text(const struct score_record *r, struct buf *ret) {
        _cleanup_buf_ struct buf plain = BUF_INIT(EVIDENCE_TEXT_MAX);
        struct json v;
        int x = write_plain(r, &plain);
        if (x == 0)
                x = json_parse(buf_str(&plain), plain.len, &v, NULL);
        return x < 0 ? x : json_canonical_buf(&v, ret);
}

int score_evidence(struct score_record *r) {
        _cleanup_buf_ struct buf text = BUF_INIT(EVIDENCE_TEXT_MAX);
        int x = score_evidence_text(r, &text);
        return x < 0 ? x : sha256_hex(buf_str(&text), text.len, r->evidence);
}
