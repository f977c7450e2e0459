/* Reports in the shape that JUnit's have: <testcase classname name> in <testsuite>. The cases count, not the counters of the suites. */
#pragma once
#include "score/sink.h"

struct junit_case { const char *class, *name; enum test_status status; };
/* `put` for each case. 0, its negative answer, or -EBADMSG where the text is no such report or ends in its middle. */
int junit_read(const char *p, size_t n, int (*put)(struct sink *s, const struct junit_case *c), struct sink *s);
