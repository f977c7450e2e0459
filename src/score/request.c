/* Decoding of a scoring request by one table (base/fields.h), then the checks that look at more than one field. */
#include <string.h>

#include "base/fields_forms.h"
#include "base/redact.h"
#include "base/strv.h"
#include "sandbox/limit_fields.h"
#include "sandbox/fields_network.h"
#include "score/command.h"
#include "score/request_parse.h"
#include "store/image_store.h"

static const char *const patch_mode_names[] = { "repair", "strict", "ladder" };
STRING_TABLE(patch_mode, patch_mode_names, PATCH_MODE_MAX)

static const char *const run_mode_names[] = { "ids", "files" };
STRING_TABLE(run_mode, run_mode_names, RUN_MODE_MAX)

static const char *const tree_source_names[] = { "clone", "image" };
STRING_TABLE(tree_source, tree_source_names, TREE_SOURCE_MAX)

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
        { .name = "tree", .kind = FIELD_ENUM, AT(tree), .names = tree_source_names, .n_names = TREE_SOURCE_MAX, .def = "`clone`", .doc = "where the base tree comes from: `image` is what stands at `repo_path` there" },
        { STRING(setup_command, REQUEST_COMMAND_MAX), .def = "empty", .doc = "prepares the tree, once per key" },
        { .name = "setup_network", .kind = FIELD_CUSTOM, .parse = parse_network, AT(setup_network), .with_at = offsetof(struct score_request, setup_allow), .type = FIELD_NETWORK_TYPE, .def = "`open`", .doc = "network of `setup_command`" },
        { SECONDS(setup_timeout, setup_timeout_ms), .def = "1800", .doc = "seconds for `setup_command`" },
        { .name = "env", .kind = FIELD_CUSTOM, .parse = parse_field_env, AT(env), .type = "object of strings", .def = "empty", .doc = "added to the environment" },
        { .name = "user", .kind = FIELD_CUSTOM, .parse = parse_field_user, AT(uid), .with_at = offsetof(struct score_request, gid), .given_at = offsetof(struct score_request, user_given), .type = "integer, or `UID:GID`", .def = "the image's, else 0", .doc = "who runs the tests inside, and owns the cloned tree" },
        { .name = "network", .kind = FIELD_CUSTOM, .parse = parse_network, AT(network), .with_at = offsetof(struct score_request, allow), .type = FIELD_NETWORK_TYPE, .def = "the operator's", .doc = "network while tests run" },
        { .name = "limits", .kind = FIELD_OBJECT, .sub = limit_fields, .n_sub = ARRAY_SIZE(limit_fields), .doc = "each reached is a named outcome" },
        { .name = "patch_mode", .kind = FIELD_ENUM, AT(patch_mode), .names = patch_mode_names, .n_names = PATCH_MODE_MAX, .def = "`repair`", .doc = "how far to go to make the patch apply" },
        { PATHS(protect), .doc = "more paths reset to base" },
        { PATHS(allow_config), .doc = "configuration of the runner that stays as patched" },
        { .name = "control", .kind = FIELD_CUSTOM, .parse = parse_control, .type = "`off`", .def = "`off`", .doc = "control runs (a later release)" },
        { .name = "gold_patch", .kind = FIELD_CUSTOM, .parse = parse_gold_patch, .type = "string", .def = "empty", .doc = "for control runs (a later release)" },
};
enum { ROW_REPO_URL, ROW_TEST_COMMAND };   /* the first two rows: required, mostly */

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
                q->test_framework, q->image, q->repo_path, q->setup_command,
        };
        for (size_t i = 0; i < ARRAY_SIZE(text); i++)
                free(text[i]);
        char **lists[] = { q->fail_to_pass, q->pass_to_pass, q->env, q->protect, q->allow_config };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                strv_free(lists[i]);
        egress_rules_unref(q->allow);
        egress_rules_unref(q->setup_allow);
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
                { &q->reference_patch, "" }, { &q->lint_command, "" }, { &q->test_framework, "" }, { &q->image, IMAGE_HOST },
                { &q->repo_path, "/testbed" }, { &q->setup_command, "" },
        };
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                if (!(*texts[i].at = strdup(texts[i].text)))
                        return -ENOMEM;
        return 0;
}

/* An empty text in these means what absence means. */
static int empty_is_default(struct score_request *q) {
        struct { char **at; const char *text; } texts[] = {
                { &q->base_commit, "HEAD" }, { &q->image, IMAGE_HOST }, { &q->repo_path, "/testbed" },
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

static bool is_absent(const struct json *v) {
        return v->type == JSON_NULL || json_string_is(v, "");
}

static bool any_given(const struct json *found) {
        for (size_t i = 0; i < ARRAY_SIZE(request_fields); i++) {
                const char *name = request_fields[i].name;
                bool counts = strcmp(name, "fail_to_pass") == 0 || strcmp(name, "pass_to_pass") == 0 || strcmp(name, "test_framework") == 0;
                if (counts && !is_absent(&found[i]) && !(found[i].type == JSON_ARRAY && json_count(&found[i]) == 0))
                        return true;
        }
        return false;
}

static bool comes_from_image(const struct json *found) {
        for (size_t i = 0; i < ARRAY_SIZE(request_fields); i++)
                if (strcmp(request_fields[i].name, "tree") == 0)
                        return json_string_is(&found[i], tree_source_names[SOURCE_IMAGE]);
        return false;
}

static int check_required(const struct json *found, struct error *e) {
        bool url = is_absent(&found[ROW_REPO_URL]) && !comes_from_image(found);
        bool command = is_absent(&found[ROW_TEST_COMMAND]) && !any_given(found);
        if (!url && !command)
                return 0;
        return error_say(e, -EINVAL, "Missing required fields: [%s%s%s]", url ? "'repo_url'" : "", url && command ? ", " : "",
                         command ? "'test_command'" : "");
}

static int fault(struct error *e, const char *field, const char *why) {
        return error_say(e, -EINVAL, "Invalid value for '%s': %s", field, why);
}

static bool has_control(const char *s) {
        for (; *s; s++)
                if ((unsigned char)*s < ' ' || *s == 0x7f)
                        return true;
        return false;
}

/* Absolute, not "/", no empty, "." or ".." components. */
static bool path_is_plain(const char *p) {
        if (p[0] != '/' || p[1] == 0 || has_control(p))
                return false;
        while (*p) {
                p++;
                size_t n = strcspn(p, "/");
                if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
                        return false;
                p += n;
        }
        return true;
}

/* And not where the sandbox keeps file systems of its own. */
static bool repo_path_is_sane(const char *p) {
        static const char *const reserved[] = { "proc", "sys", "dev", "run" };
        if (!path_is_plain(p))
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
                size_t n = strlen(reserved[i]);
                if (strncmp(p + 1, reserved[i], n) == 0 && (p[1 + n] == '/' || p[1 + n] == 0))
                        return false;
        }
        return true;
}

static int check_values(struct score_request *q, struct error *e) {
        char name[IMAGE_NAME_MAX + 1];
        size_t n = strlen(q->repo_path);
        if (n > 1 && q->repo_path[n - 1] == '/')
                q->repo_path[n - 1] = 0;
        if (q->repo_url[0] == '-' || has_control(q->repo_url))
                return fault(e, "repo_url", "not the URL of a repository");
        if (q->base_commit[0] == '-' || has_control(q->base_commit) || strchr(q->base_commit, ' '))
                return fault(e, "base_commit", "not the name of a commit");
        if (has_control(q->image) || (q->image[0] == '/' ? !path_is_plain(q->image) : image_name_normalize(q->image, name, NULL) < 0))
                return fault(e, "image", "expected host, the name or digest of an image, or an absolute path");
        if (!repo_path_is_sane(q->repo_path))
                return fault(e, "repo_path", "expected an absolute path outside /proc, /sys, /dev and /run");
        if (q->tree == SOURCE_IMAGE && q->setup_command[0])
                return error_say(e, -EOPNOTSUPP, "Unsupported value for 'setup_command': a tree of the image is taken as it is");
        if (!command_is_known(q))
                return fault(e, "test_command", "missing, and test_framework and ids do not say what to build one from");
        return 0;
}

int score_request_decode(const struct json *object, unsigned flags, const struct score_defaults *d, struct score_request *ret, struct error *e) {
        struct json found[ARRAY_SIZE(request_fields)];
        struct score_request q;
        if (object->type != JSON_OBJECT)
                return error_say(e, -EINVAL, SCORE_BODY_NOT_JSON);
        fields_collect(request_fields, ARRAY_SIZE(request_fields), object, found);
        int r = check_required(found, e);
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
                r = check_values(&q, e);
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
