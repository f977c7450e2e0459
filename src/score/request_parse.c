/* Fields whose form no kind of field table covers. */
#include <string.h>

#include "base/fields_forms.h"
#include "base/hash.h"
#include "base/strv.h"
#include "sandbox/fields_network.h"
#include "sandbox/fields_pack.h"
#include "score/framework.h"
#include "score/patch_name.h"
#include "score/request_parse.h"

int parse_mode(const struct field *f, const struct json *v, void *target, struct error *e) {
        static const char *const modes[] = { "clone", "image" };
        struct score_request *q = target;
        int mode;
        int r = field_mode(v, modes, ARRAY_SIZE(modes), &mode, e);
        if (r == 0)
                q->mode = (enum task_mode)mode;
        return r;
}

/* ---- files ---------------------------------------------------------------------------------------------------------- */

static int pack_files(const struct field *f, const struct json *v, struct file_pack *pack, char ret_hash[static SHA256_HEX], struct error *e) {
        struct sha256 h;
        int r = sha256_init(&h);
        if (r < 0)
                return error_set(e, r, "decode %s", f->name);
        r = field_pack(f, v, pack, &h, e);
        if (r < 0) {
                sha256_release(&h);
                return r;
        }
        sha256_finish(&h, ret_hash);
        r = file_pack_seal(pack);
        return r < 0 ? error_set(e, r, "pack %s", f->name) : 0;
}

int parse_harness(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct score_request *q = target;
        struct file_pack *pack = malloc(sizeof *pack);
        char hash[SHA256_HEX];
        if (!pack)
                return error_set(e, -ENOMEM, "decode %s", f->name);
        *pack = (struct file_pack)FILE_PACK_INIT;
        int r = pack_files(f, v, pack, hash, e);
        if (r == 0 && pack->n > 0) {
                memcpy(q->harness_hash, hash, sizeof hash);
                q->harness = pack;
                return 0;
        }
        file_pack_release(pack);
        free(pack);
        return r;
}

/* ---- choices ------------------------------------------------------------------------------------------------------- */

int parse_network(const struct field *f, const struct json *v, void *target, struct error *e) {
        enum sandbox_network *at = (enum sandbox_network *)((char *)target + f->at);
        struct egress_rules **rules = (struct egress_rules **)((char *)target + f->with_at);
        *rules = egress_rules_unref(*rules);
        return field_network(f, v, at, rules, e);
}

int parse_framework(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct score_request *q = target;
        char *text;
        int r = field_string(f, v, 64, &text, NULL, e);
        if (r < 0)
                return r;
        if (text[0] && !framework_by_name(text)) {
                r = field_unsupported(f, e, "no such framework: '%s'", text);
                free(text);
                return r;
        }
        free(q->test_framework);
        q->test_framework = text;
        return 0;
}

/* ---- paths in the tree ----------------------------------------------------------------------------------------------- */

/* What a patch could name: the helper checks by the same rule. A trailing slash is fine. */
static const char *tree_path_fault(const char *p) {
        char plain[REQUEST_PATH_MAX + 1];
        size_t n = strlen(p);
        if (n > REQUEST_PATH_MAX)
                return "it is too long";
        memcpy(plain, p, n + 1);
        while (n > 1 && plain[n - 1] == '/')
                plain[--n] = 0;
        return name_refusal(plain);
}

int parse_paths(const struct field *f, const struct json *v, void *target, struct error *e) {
        struct field list = *f;
        char **paths = NULL;
        list.kind = FIELD_LIST;
        list.at = 0;
        int r = fields_decode_found(&list, 1, v, 0, &paths, e);
        for (char **p = paths; r == 0 && *p; p++) {
                const char *why = tree_path_fault(*p);
                if (why)
                        r = field_fault(f, e, "'%.200s' is not a path in the tree: %s", *p, why);
        }
        if (r < 0) {
                strv_free(paths);
                return r;
        }
        char ***at = (char ***)((char *)target + f->at);
        strv_free(*at);
        *at = paths;
        return 0;
}
