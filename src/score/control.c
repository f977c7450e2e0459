#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/strv.h"
#include "score/control.h"
#include "score/patch.h"

static bool passed(const struct test_results *t, const char *id) {
        enum test_status st = test_results_get(t, id);
        return st == TEST_PASSED || st == TEST_XPASSED;
}

/* Gold passes what it should, base fails what it should. */
static int judge(const struct score_record *base, const struct score_record *gold, char **ret) {
        char **failed = gold->f2p_failure && *gold->f2p_failure ? gold->f2p_failure : gold->p2p_failure;
        if (gold->outcome != OUTCOME_RESOLVED)
                return gold->outcome == OUTCOME_UNRESOLVED && failed && *failed
                        ? asprintf(ret, "the gold patch is not resolved but unresolved: %.200s", *failed)
                        : asprintf(ret, "the gold patch is not resolved but %s", outcome_to_string((int)gold->outcome));
        for (char **id = gold->f2p_success; id && *id; id++)
                if (passed(&base->tests, *id))
                        return asprintf(ret, "%.200s of fail_to_pass passes without a patch", *id);
        if (!gold->has_expectations && base->outcome == OUTCOME_RESOLVED)
                return asprintf(ret, "the tests pass without a patch");
        *ret = NULL;
        return 0;
}

struct control *control_new(struct score_record *base, struct score_record *gold) {
        struct control *c = calloc(1, sizeof *c);
        if (!c)
                return NULL;
        c->refs = 1;
        if (judge(base, gold, &c->broken) < 0) {
                free(c);
                return NULL;
        }
        c->base = base->tests;
        c->gold = gold->tests;
        base->tests = gold->tests = (struct test_results){ 0 };
        c->tree_hash = TAKE_PTR(gold->tree_hash);
        c->image_digest = TAKE_PTR(gold->image_digest);
        return c;
}

void control_unref(struct control *c) {
        if (!c || --c->refs > 0)
                return;
        test_results_release(&c->base);
        test_results_release(&c->gold);
        free(c->tree_hash);
        free(c->image_digest);
        free(c->broken);
        free(c);
}

static bool same(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

bool control_fits(const struct control *c, const struct score_record *r) { return c && same(c->tree_hash, r->tree_hash) && same(c->image_digest, r->image_digest); }

static void forget(char **text, size_t *n) {
        (*text)[0] = 0;
        *n = 0;
}

/* Paths that the gold patch changes are allowed by themselves: a new fixture in a conftest.py that both have is no attack. */
static int allow_gold(struct score_request *q) {
        struct patch p;
        int r = patch_parse(q->gold_patch, q->gold_patch_len, PATCH_PARSE_REPAIR, &p, NULL);
        if (r < 0)
                return r == -ENOMEM ? r : 0;       /* the run will say what is wrong with it */
        size_t n = strv_len((const char *const *)q->allow_config);
        for (size_t i = 0; i < p.n_files && n < REQUEST_PATHS_MAX && r == 0; i++)
                if (p.files[i].new_path)
                        r = strv_append_take(&q->allow_config, &n, strdup(p.files[i].new_path));
        patch_release(&p);
        return r;
}

int control_shape(struct score_request *q, enum control_step step) {
        int r = q->gold_patch_len > 0 ? allow_gold(q) : 0;
        if (r < 0)
                return r;
        char *gold = TAKE_PTR(q->gold_patch);
        size_t n = q->gold_patch_len;
        q->gold_patch_len = 0;
        if (step == CONTROL_TASK) {
                free(gold);                /* nothing of it is where the agent's code runs */
                return 0;
        }
        q->control = CONTROL_OFF;
        q->capture_diff = false;
        q->lint_command[0] = 0;
        forget(&q->reference_patch, &q->reference_patch_len);
        free(q->patch);
        q->patch = gold;
        q->patch_len = n;
        if (step == CONTROL_BASE && gold)
                forget(&q->patch, &q->patch_len);
        return 0;
}

int control_key(const char *body, size_t n, char ret[static 65]) {
        static const char *const others[] = {
                "patch", "reference_patch", "capture_diff", "lint_command", "labels", "priority", "idempotency_key", "control", "pull_timeout", "callback_url",
        };
        struct json doc, key, value;
        struct sha256 h;
        int r = json_parse(body, n, &doc, NULL);
        if (r == 0)
                r = sha256_init(&h);
        if (r < 0)
                return r;
        for (struct json_iter it = json_iter(&doc); json_next_member(&it, &key, &value);) {
                bool other = false;
                for (size_t i = 0; i < ARRAY_SIZE(others) && !other; i++)
                        other = json_string_is(&key, others[i]);
                if (other)
                        continue;
                sha256_update(&h, key.p, key.n);           /* with its quotes, and the value whole: unambiguous */
                sha256_update(&h, value.p, value.n);
        }
        sha256_finish(&h, ret);
        return 0;
}
