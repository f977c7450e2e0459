/* Any bytes as what a framework wrote. The first line names the framework and the kind, "report" or "text"; corpus files are what the tools themselves wrote,
 * and what would harm a parser. Every id is a string that can be looked up, and asking for it by its name finds it again. */
#include "score/framework.h"
#include "fuzz.h"

static int read_all(const struct framework *f, bool report, const char *p, size_t n, struct sink *s) {
        if (report)
                return f->report(p, n, s);
        char *clean = framework_clean(p, n);
        ASSERT(clean);
        int r = f->parse(clean, s);
        free(clean);
        return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        const char *end = memchr(data, '\n', size), *blank = end ? memchr(data, ' ', (size_t)(end - (const char *)data)) : NULL;
        char name[16] = "";
        if (!blank || blank - (const char *)data >= (long)sizeof(name))
                return 0;
        memcpy(name, data, (size_t)(blank - (const char *)data));
        const struct framework *f = framework_by_name(name);
        bool report = blank[1] == 'r';
        if (!f || (report && !f->report))
                return 0;
        struct test_results first = {0}, again = {0};
        struct sink s = {.tests = &first, .tree = "/testbed"};
        const char *p = end + 1;
        size_t n = size - (size_t)(p - (const char *)data);
        int r = read_all(f, report, p, n, &s);
        ASSERT(r == 0 || r == -ENOSPC || (report && r == -EBADMSG));
        for (size_t i = 0; i < first.n; i++)
                ASSERT(first.items[i].id[0]);
        s = (struct sink){.tests = &again, .wanted = &first, .tree = "/testbed"};
        ASSERT(read_all(f, report, p, n, &s) == r);
        for (size_t i = 0; i < first.n; i++)
                ASSERT(first.items[i].status == TEST_MISSING || test_results_get(&again, first.items[i].id) != TEST_MISSING);
        test_results_release(&first);
        test_results_release(&again);
        return 0;
}
