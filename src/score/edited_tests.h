/* Files that decide the verdict, that the agent's patch changed, and that no test patch and no `protect` covers. They stay as patched: an
 * agent may be asked for tests, or for a build file. What they say is the agent's own word, and that is a finding. */
#pragma once
#include "score/apply.h"
#include "score/framework.h"
#include "score/request.h"

/* "test_file_edited" for each Python file that the request's ids name. -ENOMEM. */
int edited_tests_find(const struct score_request *q, const struct framework *f, const struct apply_result *a, struct findings *findings);
/* Files that the ids name, as far as names tell: "tests/test_a.py" of "tests/test_a.py::x", "a/b.py" of "a.b.Class.x". -ENOMEM. */
#define NAMED_TESTS_MAX 10000u
int named_tests(const struct score_request *q, char ***ret);
/* "command_file_edited" for each file that the test command names ("sh ci/test.sh", "cd ci && ./test.sh", "python -m ci.test"), that stands in a
 * directory of its PATH, or that a program it names is driven by ("make": Makefile). By the command's words, as a shell would split them: no
 * promise for words that a shell makes. -ENOMEM. */
int edited_command_find(const struct score_request *q, const struct apply_result *a, struct findings *findings);
