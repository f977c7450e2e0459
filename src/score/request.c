/* Decoding of a scoring request by one table (base/fields.h), then the checks that look at more than one field. */
#include <string.h>

#include "base/fields_forms.h"
#include "base/redact.h"
#include "base/strv.h"
#include "sandbox/limit_fields.h"
#include "sandbox/fields_network.h"
#include "sandbox/fields_pack.h"
#include "score/control.h"
#include "score/request_check.h"
#include "score/request_parse.h"

static const char *const patch_mode_names[] = { "repair", "strict", "ladder" };
STRING_TABLE(patch_mode, patch_mode_names, PATCH_MODE_MAX)

static const char *const run_mode_names[] = { "ids", "files" };
STRING_TABLE(run_mode, run_mode_names, RUN_MODE_MAX)

static const char *const task_mode_names[] = { "clone", "image" };
STRING_TABLE(task_mode, task_mode_names, TASK_MODE_MAX)

static const char *const tree_source_names[] = { "clone", "image" };
STRING_TABLE(tree_source, tree_source_names, TREE_SOURCE_MAX)

static const char *const control_mode_names[] = { "off", "auto", "require" };
STRING_TABLE(control_mode, control_mode_names, CONTROL_MODE_MAX)

#define AT(member) .at = offsetof(struct score_request, member)
#define STRING(name_, limit) .name = #name_, .kind = FIELD_STRING, AT(name_), .max = limit
#define BYTES(name_) .name = #name_, .kind = FIELD_BYTES, AT(name_), .with_at = offsetof(struct score_request, name_##_len), .max = REQUEST_TEXT_MAX
#define SECONDS(name_, member) .name = #name_, .kind = FIELD_INT, AT(member), .min = 1, .max = REQUEST_TIMEOUT_MAX_S, .scale = 1000
#define IDS(name_) .name = #name_, .kind = FIELD_LIST, AT(name_), .max = REQUEST_IDS_MAX
#define PATHS(name_) .name = #name_, .kind = FIELD_CUSTOM, .parse = parse_paths, AT(name_), .max = REQUEST_PATHS_MAX, .type = "list of paths"

static const struct field limit_fields[] = { LIMIT_FIELDS(offsetof(struct score_request, limits)) };

static const struct field request_fields[] = {
        { STRING(repo_url, REQUEST_URL_MAX), .doc = "repository: file, http(s), ssh or git URL, or a local path where the operator allows it" },
        { STRING(test_command, REQUEST_COMMAND_MAX), .doc = "what runs in the tree; may be absent when ids or `test_framework` are given" },
        { .name = "mode", .kind = FIELD_CUSTOM, .parse = parse_mode, .type = "one of `clone`, `image`", .def = "`clone`", .doc = "`image`: no repository; `entry_command` runs in the image" },
        { STRING(base_commit, REQUEST_REF_MAX), .def = "`HEAD`", .doc = "commit, branch or tag of the base tree" },
        { BYTES(patch), .def = "empty", .doc = "the agent's patch" },
        { BYTES(test_patch), .def = "empty", .doc = "the gold test patch" },
        { SECONDS(timeout, timeout_ms), .def = "300", .doc = "seconds for `test_command`" },
        { STRING(lint_command, REQUEST_COMMAND_MAX), .def = "empty", .doc = "a linter, run after the tests; has 120 s" },
        { .name = "capture_diff", .kind = FIELD_BOOL, AT(capture_diff), .def = "false", .doc = "report the agent's changes against base" },
        { BYTES(reference_patch), .def = "empty", .doc = "a patch to compare the agent's changes with" },
        { IDS(fail_to_pass), .doc = "ids of tests that must pass" },
        { IDS(pass_to_pass), .doc = "ids of tests that must still pass" },
        { .name = "test_framework", .kind = FIELD_CUSTOM, .parse = parse_framework, .type = "string", .def = "detected", .doc = "whose ids and output these are" },
        { .name = "run", .kind = FIELD_ENUM, AT(run), .names = run_mode_names, .n_names = RUN_MODE_MAX, .def = "`ids`", .doc = "run the listed ids, or their whole files" },
        { STRING(image, REQUEST_PATH_MAX), .given_at = offsetof(struct score_request, image_given), .def = "`host`", .doc = "`host`, a stored image (by name or digest; pulled where it is not here), or a directory that is a root file system" },
        { SECONDS(pull_timeout, pull_timeout_ms), .def = "the operator's", .doc = "seconds for getting the image, where it has to be pulled" },
        { STRING(repo_path, REQUEST_PATH_MAX), .def = "`/testbed`", .doc = "where the tree stands in the sandbox" },
        { .name = "tree", .kind = FIELD_ENUM, AT(tree), .given_at = offsetof(struct score_request, tree_given), .names = tree_source_names, .n_names = TREE_SOURCE_MAX, .def = "`clone`", .doc = "where the base tree comes from: `image` is what stands at `repo_path` there" },
        { STRING(setup_command, REQUEST_COMMAND_MAX), .def = "empty", .doc = "prepares the tree, once per key" },
        { .name = "setup_network", .kind = FIELD_CUSTOM, .parse = parse_network, AT(setup_network), .with_at = offsetof(struct score_request, setup_allow), .type = FIELD_NETWORK_TYPE, .def = "`open`", .doc = "network of `setup_command`" },
        { SECONDS(setup_timeout, setup_timeout_ms), .def = "1800", .doc = "seconds for `setup_command`" },
        { .name = "env", .kind = FIELD_CUSTOM, .parse = parse_field_env, AT(env), .type = "object of strings", .def = "empty", .doc = "added to the environment" },
        { .name = "user", .kind = FIELD_CUSTOM, .parse = parse_field_user, AT(uid), .with_at = offsetof(struct score_request, gid), .given_at = offsetof(struct score_request, user_given), .type = "integer, or `UID:GID`", .def = "the image's, else 0", .doc = "who runs the tests inside, and owns the cloned tree" },
        { .name = "network", .kind = FIELD_CUSTOM, .parse = parse_network, AT(network), .with_at = offsetof(struct score_request, allow), .given_at = offsetof(struct score_request, network_given), .type = FIELD_NETWORK_TYPE, .def = "the operator's", .doc = "network while tests run" },
        { .name = "limits", .kind = FIELD_OBJECT, .sub = limit_fields, .n_sub = ARRAY_SIZE(limit_fields), .doc = "each reached is a named outcome" },
        { .name = "patch_mode", .kind = FIELD_ENUM, AT(patch_mode), .names = patch_mode_names, .n_names = PATCH_MODE_MAX, .def = "`repair`", .doc = "how far to go to make the patch apply" },
        { PATHS(protect), .doc = "more paths reset to base" },
        { PATHS(allow_config), .doc = "configuration of the runner that stays as patched" },
        { .name = "harness_files", .alias = "workspace_files", .kind = FIELD_CUSTOM, .parse = parse_harness, .type = FIELD_PACK_TYPE, .def = "empty", .doc = "image mode: files at `harness_mount`, read-only" },
        { STRING(harness_mount, REQUEST_PATH_MAX), .def = "`/harness`", .doc = "image mode: a directory that holds the harness alone" },
        { STRING(output_mount, REQUEST_PATH_MAX), .def = "`/out`", .doc = "image mode: an empty directory for results" },
        { STRING(entry_command, REQUEST_ENTRY_MAX), .def = "`bash <harness_mount>/entryscript.sh`", .doc = "image mode: what runs, by `/bin/bash -c`" },
        { .name = "result_files", .kind = FIELD_LIST, AT(result_files), .max = RESULT_FILES_MAX, .def = "empty", .doc = "image mode: names below `output_mount` that are read back" },
        { .name = "block_network", .kind = FIELD_BOOL, AT(block_network), .given_at = offsetof(struct score_request, block_given), .def = "false", .doc = "image mode: true: `network` is `none`; false: `open`" },
        { .name = "control", .kind = FIELD_ENUM, AT(control), .given_at = offsetof(struct score_request, control_given), .names = control_mode_names, .n_names = CONTROL_MODE_MAX, .def = "`auto` with a gold patch, else `off`", .doc = "runs at base and with `gold_patch`, once for each instance; `require`: without them there is no verdict" },
        { BYTES(gold_patch), .def = "empty", .doc = "the patch that is known to be right, for control runs; never where the agent's patch runs" },
};
_Static_assert(ARRAY_SIZE(request_fields) <= FIELDS_MAX, "rows");

const struct field *score_request_table(size_t *ret_n) {
        *ret_n = ARRAY_SIZE(request_fields);
        return request_fields;
}

void score_request_release(struct score_request *q) {
        if (!q)
                return;
        secret_free(q->repo_url);
        char *text[] = {
                q->base_commit, q->test_command, q->patch, q->test_patch, q->reference_patch, q->lint_command,
                q->gold_patch, q->test_framework, q->image, q->repo_path, q->setup_command, q->harness_mount, q->output_mount, q->entry_command,
        };
        for (size_t i = 0; i < ARRAY_SIZE(text); i++)
                free(text[i]);
        char **lists[] = { q->fail_to_pass, q->pass_to_pass, q->env, q->protect, q->allow_config, q->result_files };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                strv_free(lists[i]);
        if (q->harness)
                file_pack_release(q->harness);
        free(q->harness);
        egress_rules_unref(q->allow);
        egress_rules_unref(q->setup_allow);
        control_unref(q->facts);
        *q = (struct score_request){ 0 };
}

void score_defaults_init(struct score_defaults *d) {
        d->network = NETWORK_NONE;
        sandbox_limits_default(&d->limits);
}

static int request_init(struct score_request *q, const struct score_defaults *d) {
        *q = (struct score_request){
                .timeout_ms = 300 * 1000, .setup_network = NETWORK_OPEN, .setup_timeout_ms = 1800 * 1000,
                .network = d->network, .limits = d->limits,
        };
        struct { char **at; const char *text; } texts[] = {
                { &q->repo_url, "" }, { &q->base_commit, "HEAD" }, { &q->test_command, "" }, { &q->patch, "" }, { &q->test_patch, "" },
                { &q->reference_patch, "" }, { &q->gold_patch, "" }, { &q->lint_command, "" }, { &q->test_framework, "" }, { &q->image, IMAGE_HOST },
                { &q->repo_path, "/testbed" }, { &q->setup_command, "" }, { &q->harness_mount, "/harness" }, { &q->output_mount, "/out" },
                { &q->entry_command, "" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                if (!(*texts[i].at = strdup(texts[i].text)))
                        return -ENOMEM;
        return 0;
}

/* An empty text in these means what absence means. */
static int empty_is_default(struct score_request *q) {
        struct { char **at; const char *text; } texts[] = {
                { &q->base_commit, "HEAD" }, { &q->image, IMAGE_HOST }, { &q->repo_path, "/testbed" }, { &q->harness_mount, "/harness" },
                { &q->output_mount, "/out" },
        };
        if (!q->image[0])
                q->image_given = false;
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                if (!(*texts[i].at)[0]) {
                        char *copy = strdup(texts[i].text);
                        if (!copy)
                                return -ENOMEM;
                        free(*texts[i].at);
                        *texts[i].at = copy;
                }
        return 0;
}

int score_request_decode(const struct json *object, unsigned flags, const struct score_defaults *d, struct score_request *ret, struct error *e) {
        struct json found[ARRAY_SIZE(request_fields)];
        struct score_request q;
        if (object->type != JSON_OBJECT)
                return error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);
        fields_collect(request_fields, ARRAY_SIZE(request_fields), object, found);
        int r = request_check_required(request_fields, ARRAY_SIZE(request_fields), found, e);
        if (r < 0)
                return r;
        r = request_init(&q, d);
        if (r == 0)
                r = fields_decode_found(request_fields, ARRAY_SIZE(request_fields), found, flags, &q, e);
        else
                error_set(e, r, "decode request");
        if (r == 0 && (r = empty_is_default(&q)) < 0)
                error_set(e, r, "decode request");
        if (r == 0)
                r = request_check(&q, e);
        if (r < 0) {
                score_request_release(&q);
                return r;
        }
        *ret = q;
        return 0;
}

int score_request_from_json(const char *body, size_t n, unsigned flags, const struct score_defaults *d, struct score_request *ret, struct error *e) {
        struct json object;
        if (json_parse(body, n, &object, NULL) < 0)
                return error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);
        return score_request_decode(&object, flags, d, ret, e);
}
