#include "score/request_check.h"

#include <string.h>

#include "base/strv.h"
#include "score/command.h"
#include "score/request_parse.h"
#include "store/image_store.h"

/* ---- what must be there ---------------------------------------------------------------------------------------------- */

struct fields { const struct field *table; size_t n; const struct json *found; };

static const struct json *span(const struct fields *f, const char *name) {
        for (size_t i = 0; i < f->n; i++)
                if (strcmp(f->table[i].name, name) == 0)
                        return &f->found[i];
        ASSERT(!"no such field");
        return NULL;
}

static bool is_absent(const struct json *v) {
        return v->type == JSON_NULL || json_string_is(v, "");
}

/* Ids or a framework: a command can be built from them. */
static bool builds_a_command(const struct fields *f) {
        static const char *const names[] = { "fail_to_pass", "pass_to_pass", "test_framework" };
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                const struct json *v = span(f, names[i]);
                if (!is_absent(v) && !(v->type == JSON_ARRAY && json_count(v) == 0))
                        return true;
        }
        return false;
}

static int missing(const char *const *names, size_t n, struct error *e) {
        char text[256] = "";
        for (size_t i = 0, at = 0; i < n; i++)
                at += (size_t)snprintf(text + at, sizeof text - at, "%s'%s'", i ? ", " : "", names[i]);
        return n ? error_say(e, -EINVAL, "Missing required fields: [%s]", text) : 0;
}

int request_check_required(const struct field *table, size_t n, const struct json *found, struct error *e) {
        const struct fields f = { table, n, found };
        struct score_request q = { .mode = MODE_CLONE };
        const char *names[2];
        size_t k = 0;
        int r = span(&f, "mode")->type == JSON_NULL ? 0 : parse_mode(NULL, span(&f, "mode"), &q, e);
        if (r < 0)
                return r;
        if (q.mode == MODE_IMAGE) {
                if (is_absent(span(&f, "image")))
                        names[k++] = "image";
                return missing(names, k, e);
        }
        if (is_absent(span(&f, "repo_url")) && !json_string_is(span(&f, "tree"), tree_source_to_string(SOURCE_IMAGE)))
                names[k++] = "repo_url";
        if (is_absent(span(&f, "test_command")) && !builds_a_command(&f))
                names[k++] = "test_command";
        return missing(names, k, e);
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

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

/* A directory inside, and not where the sandbox keeps file systems of its own. A slash at the end goes. */
static int check_place(char *p, const char *field, struct error *e) {
        static const char *const reserved[] = { "proc", "sys", "dev", "run" };
        size_t len = strlen(p);
        if (len > 1 && p[len - 1] == '/')
                p[len - 1] = 0;
        bool sane = path_is_plain(p);
        for (size_t i = 0; sane && i < ARRAY_SIZE(reserved); i++) {
                size_t n = strlen(reserved[i]);
                sane = strncmp(p + 1, reserved[i], n) != 0 || (p[1 + n] != '/' && p[1 + n] != 0);
        }
        return sane ? 0 : fault(e, field, "expected an absolute path outside /proc, /sys, /dev and /run");
}

static bool is_within(const char *top, const char *path) {
        size_t n = strlen(top);
        return strncmp(top, path, n) == 0 && (path[n] == 0 || path[n] == '/');
}

/* ---- modes ---------------------------------------------------------------------------------------------------------------- */

static void empty(char *text) { text[0] = 0; }

/* Nothing of it means anything here: a client may send one form for all tasks. */
static void drop_harness(struct score_request *q) {
        if (q->harness) {
                file_pack_release(q->harness);
                free(TAKE_PTR(q->harness));
        }
        q->harness_hash[0] = 0;
        empty(q->harness_mount);
        empty(q->output_mount);
        empty(q->entry_command);
        q->result_files = strv_free(q->result_files);
}

static void drop_tree(struct score_request *q) {
        q->tree = SOURCE_NONE;
        char *const texts[] = { q->repo_url, q->base_commit, q->test_command, q->patch, q->test_patch, q->reference_patch, q->gold_patch, q->lint_command, q->setup_command };
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                if (texts[i])
                        empty(texts[i]);
        q->patch_len = q->test_patch_len = q->reference_patch_len = q->gold_patch_len = 0;
        q->control = CONTROL_OFF;
        q->control_given = true;
        q->capture_diff = false;
}

static int check_image_mode(struct score_request *q, struct error *e) {
        int r = check_place(q->harness_mount, "harness_mount", e);
        if (r == 0)
                r = check_place(q->output_mount, "output_mount", e);
        if (r < 0)
                return r;
        if (is_within(q->harness_mount, q->output_mount) || is_within(q->output_mount, q->harness_mount))
                return fault(e, "output_mount", "must not be within harness_mount, nor around it");
        for (char **p = q->result_files; p && *p; p++)
                if (!file_pack_name_ok(*p))
                        return error_say(e, -EINVAL, "Invalid value for 'result_files': '%.200s' is not a name below the output mount", *p);
        if (q->tree_given && q->tree == SOURCE_CLONE)
                return error_say(e, -EOPNOTSUPP, "Unsupported value for 'tree': image mode clones nothing");
        if (!q->tree_given)
                drop_tree(q);
        if (q->block_given && !q->network_given)
                q->network = q->block_network ? NETWORK_NONE : NETWORK_OPEN;
        if (q->tree == SOURCE_IMAGE && command_is_known(q)) {
                empty(q->entry_command);
                return 0;
        }
        if (!q->entry_command[0]) {
                free(q->entry_command);
                if (asprintf(&q->entry_command, "bash %s/entryscript.sh", q->harness_mount) < 0) {
                        q->entry_command = NULL;
                        return error_set(e, -ENOMEM, "decode request");
                }
        }
        return 0;
}

static int check_control(struct score_request *q, struct error *e) {
        if (!q->control_given)
                q->control = q->gold_patch_len > 0 ? CONTROL_AUTO : CONTROL_OFF;
        if (q->control == CONTROL_REQUIRE && q->gold_patch_len == 0)
                return fault(e, "control", "require needs gold_patch");
        if (q->gold_patch_len == 0)
                q->control = CONTROL_OFF;
        return 0;
}

int request_check(struct score_request *q, struct error *e) {
        char name[IMAGE_NAME_MAX + 1];
        int r = 0;
        if (q->mode == MODE_IMAGE)
                r = check_image_mode(q, e);
        else
                drop_harness(q);
        if (r == 0)
                r = check_place(q->repo_path, "repo_path", e);
        if (r < 0)
                return r;
        if (q->repo_url[0] == '-' || has_control(q->repo_url))
                return fault(e, "repo_url", "not the URL of a repository");
        if (q->base_commit[0] == '-' || has_control(q->base_commit) || strchr(q->base_commit, ' '))
                return fault(e, "base_commit", "not the name of a commit");
        if (has_control(q->image) || (q->image[0] == '/' ? !path_is_plain(q->image) : image_name_normalize(q->image, name, NULL) < 0))
                return fault(e, "image", "expected host, the name or digest of an image, or an absolute path");
        if (q->tree == SOURCE_IMAGE && q->setup_command[0])
                return error_say(e, -EOPNOTSUPP, "Unsupported value for 'setup_command': a tree of the image is taken as it is");
        if (!q->entry_command[0] && !command_is_known(q))
                return fault(e, "test_command", "missing, and test_framework and ids do not say what to build one from");
        return check_control(q, e);
}
