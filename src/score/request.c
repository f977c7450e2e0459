#include <string.h>

#include "base/strv.h"
#include "score/request.h"

static const char *const patch_mode_names[] = { "repair", "strict", "ladder" };
STRING_TABLE(patch_mode, patch_mode_names, PATCH_MODE_MAX)

static const char *const run_mode_names[] = { "ids", "files" };
STRING_TABLE(run_mode, run_mode_names, RUN_MODE_MAX)

void score_request_release(struct score_request *q) {
        if (!q)
                return;
        char *text[] = {
                q->repo_url, q->base_commit, q->test_command, q->patch, q->test_patch, q->reference_patch, q->lint_command,
                q->test_framework, q->image, q->repo_path, q->setup_command,
        };
        for (size_t i = 0; i < ARRAY_SIZE(text); i++)
                free(text[i]);
        char **lists[] = { q->fail_to_pass, q->pass_to_pass, q->env, q->protect, q->allow_config };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                strv_free(lists[i]);
        *q = (struct score_request){ 0 };
}
