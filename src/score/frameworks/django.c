/* Django's runner: unittest's text on a command of its own. It names its tests from --verbosity=2 on, which is put there. */
#include "score/text.h"

static int parse(const char *text, struct sink *ret) { return framework_unittest.parse(text, ret); }
static bool passed(const char *text) { return framework_unittest.passed(text); }
static char *canonical(const char *id) { return framework_unittest.canonical(id); }

const struct framework framework_django = {
        .name = "django", .python = true, .words = (const char *const[]){"runtests.py", "manage.py test", NULL},
        .parse = parse, .passed = passed, .canonical = canonical,
        .options = "--verbosity=2", .unless = (const char *const[]){"--verbosity", "-v", "-v2", "-v3", "-v1", "-v0", NULL},
};
