#include "score/frameworks/junit.h"

#include "score/frameworks/xml.h"

struct reader {
        struct xml x;
        size_t case_depth;              /* 0: not in a case */
        char class[SINK_NAME_MAX], name[SINK_NAME_MAX];
        enum test_status status;
        bool not_run;                   /* ctest's: why stands in <skipped> */
};

/* "fail", "disabled" and "notrun" are ctest's; the last is a program that is not there, a fixture that failed, or a test that skipped itself.
 * gtest says "notrun" of a disabled test, with a `result`. */
static void open_case(struct reader *r) {
        char status[16], result[16];
        r->case_depth = r->x.depth;
        r->status = TEST_PASSED;
        r->not_run = false;
        xml_attribute(&r->x, "classname", r->class, sizeof(r->class));
        xml_attribute(&r->x, "name", r->name, sizeof(r->name));
        if (!xml_attribute(&r->x, "status", status, sizeof(status)))
                return;
        bool gtest = xml_attribute(&r->x, "result", result, sizeof(result));
        if (gtest && (strcmp(status, "notrun") == 0 || strcmp(result, "skipped") == 0 || strcmp(result, "suppressed") == 0))
                r->status = TEST_SKIPPED;
        else if (strcmp(status, "fail") == 0)
                r->status = TEST_FAILED;
        else if (strcmp(status, "notrun") == 0) {
                r->not_run = true;
                r->status = TEST_ERROR;
        }
        else if (strcmp(status, "disabled") == 0)
                r->status = TEST_SKIPPED;
}

/* Directly in a case. A failure that a re-run turned into a pass is <flakyFailure>, and says nothing here. */
static void in_case(struct reader *r) {
        char type[32];
        if (r->not_run && slice_is(r->x.name, "skipped")) {
                if (xml_attribute(&r->x, "message", type, sizeof(type)) && strncmp(type, "SKIP_", 5) == 0)
                        r->status = TEST_SKIPPED;
                return;
        }
        if (slice_is(r->x.name, "error"))
                r->status = TEST_ERROR;
        else if (slice_is(r->x.name, "failure") && r->status != TEST_ERROR)
                r->status = TEST_FAILED;
        else if (slice_is(r->x.name, "skipped") && r->status == TEST_PASSED)
                r->status = xml_attribute(&r->x, "type", type, sizeof(type)) && strcmp(type, "pytest.xfail") == 0 ? TEST_XFAILED : TEST_SKIPPED;
}

int junit_read(const char *p, size_t n, int (*put)(struct sink *s, const struct junit_case *c), struct sink *s) {
        _cleanup_free_ struct reader *r = calloc(1, sizeof(*r));
        int event = 0, q = 0;
        bool any = false;
        if (!r)
                return -ENOMEM;
        r->x = (struct xml)XML(p, n);
        while (q == 0 && (event = xml_next(&r->x)) > 0) {
                if (event == XML_OPEN && r->case_depth == 0 && slice_is(r->x.name, "testcase"))
                        open_case(r);
                else if (event == XML_OPEN && r->case_depth && r->x.depth == r->case_depth + 1)
                        in_case(r);
                else if (event == XML_OPEN && r->case_depth == 0)
                        any |= slice_starts(r->x.name, "testsuite");
                else if (event == XML_CLOSE && r->case_depth == r->x.depth) {
                        r->case_depth = 0;
                        q = put(s, &(struct junit_case){r->class, r->name, r->status});
                }
        }
        return q < 0 ? q : event < 0 || !any ? -EBADMSG : 0;
}
