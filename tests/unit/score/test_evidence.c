#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/strv.h"
#include "score/record.h"

static void fill(struct score_record *r) {
        score_record_init(r);
        r->outcome = OUTCOME_RESOLVED;
        r->rung = RUNG_RECOUNT;
        r->tree_hash = strdup("aa");
        r->image_digest = strdup("bb");
        strv_push(&r->restored, "tests/t.py");
        strv_push(&r->argv, "pytest");
        strv_push(&r->argv, "-q");
        strv_push(&r->env, "A=\xc3\xa9");
        test_results_put(&r->tests, "z", TEST_PASSED);
        test_results_put(&r->tests, "a\"b", TEST_SKIPPED);
}

static void text_is_canonical(void **state) {
        struct score_record r;
        struct buf b = BUF_INIT(4096);
        fill(&r);
        assert_int_equal(score_evidence_text(&r, &b), 0);
        assert_string_equal(buf_str(&b),
                "{\"argv\":[\"pytest\",\"-q\"],\"environment\":[\"A=\xc3\xa9\"],\"image_digest\":\"bb\",\"outcome\":\"resolved\",\"patch_rung\":\"recount\","
                "\"restored\":[\"tests/t.py\"],\"tests\":[[\"z\",\"passed\"],[\"a\\\"b\",\"skipped\"]],\"tree_hash\":\"aa\",\"v\":1}");
        buf_release(&b);
        score_record_release(&r);
}

static void hash_is_of_the_text(void **state) {
        struct score_record r;
        fill(&r);
        assert_int_equal(score_evidence(&r), 0);
        /* sha256sum of the text above */
        assert_string_equal(r.evidence, "1aa0c900387950f89018771f44874d3979c15eb7b9f8868dede97f91915f0cfe");
        score_record_release(&r);
}

static void what_is_outside_does_not_count(void **state) {
        struct score_record a, b;
        fill(&a); fill(&b);
        b.execution_ms = 99; b.usage.cpu_ms = 5; b.stdout_text = strdup("x"); b.stdout_len = 1; b.cached = true; b.queued_ms = 1;
        assert_int_equal(score_evidence(&a), 0);
        assert_int_equal(score_evidence(&b), 0);
        assert_string_equal(a.evidence, b.evidence);
        score_record_release(&a); score_record_release(&b);
}

static void what_is_inside_does(void **state) {
        struct score_record a;
        fill(&a);
        assert_int_equal(score_evidence(&a), 0);
        for (int i = 0; i < 8; i++) {
                struct score_record b;
                fill(&b);
                switch (i) {
                case 0: b.outcome = OUTCOME_UNRESOLVED; break;
                case 1: b.rung = RUNG_STRICT; break;
                case 2: b.tree_hash[0] = 'c'; break;
                case 3: b.image_digest[0] = 'c'; break;
                case 4: strv_push(&b.restored, "x"); break;
                case 5: strv_push(&b.argv, "x"); break;
                case 6: strv_push(&b.env, "x=y"); break;
                case 7: b.tests.items[0].status = TEST_FAILED; break;
                }
                assert_int_equal(score_evidence(&b), 0);
                assert_string_not_equal(a.evidence, b.evidence);
                score_record_release(&b);
        }
        score_record_release(&a);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(text_is_canonical), cmocka_unit_test(hash_is_of_the_text), cmocka_unit_test(what_is_outside_does_not_count),
                cmocka_unit_test(what_is_inside_does),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
