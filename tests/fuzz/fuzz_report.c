/* Any bytes on the event channel: they can be read in two parts like in one, and give outcomes and findings without a fault of ours. */
#include "score/report.h"
#include "fuzz.h"

#define NONCE "0123456789abcdef0123456789abcdef"

static void judge(const uint8_t *data, size_t size, size_t cut, struct test_results *tests, struct findings *findings) {
        static const char *const ids[] = {"a.py::x", "x (m.C)", "b.py::y[cut", NULL};
        struct report r, own;
        bool incomplete;
        report_init(&r, NONCE);
        report_init(&own, NONCE);
        ASSERT(report_feed(&r, data, cut) == 0 && report_feed(&r, data + cut, size - cut) == 0 && report_feed(&own, data, size) == 0);
        struct report_exit x = {.status = size & 0x100};
        ASSERT(report_finish(&r, &x, size & 1 ? &framework_pytest : &framework_unittest, ids, tests, findings, &incomplete) == 0);
        ASSERT(incomplete == !r.ended && r.n_bad <= r.n_events);
        ASSERT(report_check_collection(&r, &own, findings) == 0);
        report_release(&r);
        report_release(&own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        struct test_results a = {0}, b = {0};
        struct findings fa = {0}, fb = {0};
        judge(data, size, 0, &a, &fa);
        judge(data, size, size / 2, &b, &fb);
        ASSERT(a.n == b.n && fa.n == fb.n && fa.verdict == fb.verdict);
        test_results_release(&a);
        test_results_release(&b);
        findings_release(&fa);
        findings_release(&fb);
        return 0;
}
