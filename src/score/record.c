#include <string.h>

#include "base/redact.h"
#include "base/strv.h"
#include "score/record.h"

static const char *const channel_names[] = { "private", "report", "text", "exit" };
STRING_TABLE(report_channel, channel_names, CHANNEL_MAX)

static const char *const rung_names[] = { "none", "strict", "recount", "whitespace", "three_way", "fuzzy" };
STRING_TABLE(patch_rung, rung_names, RUNG_MAX)

void score_record_init(struct score_record *r) {
        *r = (struct score_record){
                .outcome = OUTCOME_INFRA_ERROR, .exit_code = -1, .channel = CHANNEL_EXIT, .patch_similarity = -1,
                .usage = { .wall_ms = -1, .cpu_ms = -1, .memory_peak_bytes = -1, .pids_peak = -1, .disk_bytes = -1 },
        };
}

void score_record_release(struct score_record *r) {
        if (!r)
                return;
        char *text[] = {
                r->repo_url, r->base_commit, r->test_command, r->image, r->error_code, r->error_message, r->stdout_text, r->stderr_text,
                r->lint_output, r->network, r->result_files, r->patch_diff, r->tree_hash, r->image_digest,
        };
        for (size_t i = 0; i < ARRAY_SIZE(text); i++)
                free(text[i]);
        char **lists[] = {
                r->restored, r->f2p_success, r->f2p_failure, r->p2p_success, r->p2p_failure, r->unverified, r->argv, r->env,
        };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                strv_free(lists[i]);
        test_results_release(&r->tests);
        findings_release(&r->findings);
        score_record_init(r);
}

static int replace(char **at, char *with) {
        if (!with)
                return -ENOMEM;
        free(*at);
        *at = with;
        return 0;
}

int score_record_echo(struct score_record *r, const struct score_request *q) {
        _cleanup_buf_ struct buf url = BUF_INIT(SIZE_MAX / 2);
        bool cloned = q->tree == SOURCE_CLONE;
        r->mode = q->mode;
        r->has_tree = q->tree != SOURCE_NONE;
        int x = redact_url(q->repo_url, &url);
        if (x == 0 && (cloned || q->repo_url[0]))
                x = replace(&r->repo_url, buf_steal(&url));
        if (x == 0 && cloned)
                x = replace(&r->base_commit, strdup(q->base_commit));
        if (x == 0 && r->has_tree)
                x = replace(&r->test_command, strdup(q->test_command));
        if (x == 0 && q->image_given)
                x = replace(&r->image, strdup(q->image));
        r->timeout_ms = q->timeout_ms;
        return x;
}
