/* Reads of a known size, over whichever inflow_read the program has. */
#include "archive/inflow.h"

static int cut_off(struct error *e) { return error_say(e, -EBADMSG, "the archive ends too early"); }

int inflow_exactly(struct inflow *f, void *p, size_t n, bool end_ok, struct error *e) {
        size_t at = 0;
        while (at < n) {
                ssize_t got = inflow_read(f, (char *)p + at, n - at, e);
                if (got < 0)
                        return (int)got;
                if (got == 0)
                        return at == 0 && end_ok ? 0 : cut_off(e);
                at += (size_t)got;
        }
        return 1;
}

int inflow_skip(struct inflow *f, uint64_t n, struct error *e) {
        char space[32768];
        while (n > 0) {
                ssize_t got = inflow_read(f, space, (size_t)MIN2(n, (uint64_t)sizeof space), e);
                if (got <= 0)
                        return got < 0 ? (int)got : cut_off(e);
                n -= (uint64_t)got;
        }
        return 0;
}
