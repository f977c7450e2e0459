/* Test files that the request's ids name and that the agent's patch changed. Where no test patch and no `protect` covers such a file it stays
 * as patched (an agent may be asked for tests), and a verdict about its tests is the agent's own word: that is a finding. */
#pragma once
#include "score/apply.h"
#include "score/framework.h"
#include "score/request.h"

/* Adds "test_file_edited" for each. -ENOMEM. */
int edited_tests_find(const struct score_request *q, const struct framework *f, const struct apply_result *a, struct findings *findings);
