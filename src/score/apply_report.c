#include <string.h>

#include "base/strv.h"
#include "score/apply_report.h"
#include "score/apply_wire.h"
#include "score/patch_name.h"

_Static_assert((int)WEIGHT_NOTE == INTEGRITY_CLEAN && (int)WEIGHT_SUSPECT == INTEGRITY_SUSPECT && (int)WEIGHT_VIOLATED == INTEGRITY_VIOLATED, "weights of findings");

#define REASON_MAX 1024u

struct reading { struct apply_result r; size_t n_touched, n_tests, n_restored, n_modules; bool fault, no_tree, end; struct error *e; enum patch_mode mode; };

void apply_result_release(struct apply_result *r) {
        if (!r)
                return;
        free(r->patch_reason);
        free(r->test_patch_reason);
        strv_free(r->touched);
        strv_free(r->test_files);
        strv_free(r->restored);
        strv_free(r->new_modules);
        for (size_t i = 0; i < r->n_base_config; i++) {
                free(r->base_config[i].path);
                free(r->base_config[i].data);
        }
        free(r->base_config);
        findings_release(&r->findings);
        free(r->diff);
        *r = (struct apply_result){ 0 };
}

static int take_path(char ***list, size_t *n, const char *p, size_t len) {
        if (*n >= APPLY_PATHS_MAX || memchr(p, 0, len))
                return -EBADMSG;
        char *path = strndup(p, len);
        if (path && name_refusal(path)) {
                free(path);
                return -EBADMSG;
        }
        return strv_append_take(list, n, path);
}

/* One line for a human: no control bytes, not endless. */
static int take_reason(char **slot, const char *p, size_t len) {
        char *s = strndup(p, MIN2(len, (size_t)REASON_MAX));
        if (!s)
                return -ENOMEM;
        for (char *c = s; *c; c++)
                if ((unsigned char)*c < 0x20 || *c == 0x7f)
                        *c = ' ';
        free(*slot);
        *slot = s;
        return 0;
}

static int take_rung(struct reading *rd, const char *p, size_t len) {
        static const enum patch_rung last[PATCH_MODE_MAX] = { [PATCH_STRICT] = RUNG_STRICT, [PATCH_REPAIR] = RUNG_RECOUNT, [PATCH_LADDER] = RUNG_FUZZY };
        if (len != 1 || p[0] <= '0' || p[0] - '0' > (int)last[rd->mode] || rd->r.patch_applied)
                return -EBADMSG;
        rd->r.rung = (enum patch_rung)(p[0] - '0');
        rd->r.patch_applied = true;
        return 0;
}

static int take_finding(struct reading *rd, const char *p, size_t len) {
        const char *kind_end = len > 1 ? memchr(p, 0, len) : NULL;
        const char *path_end = kind_end ? memchr(kind_end + 1, 0, len - (size_t)(kind_end + 1 - p)) : NULL;
        if (!path_end || p[0] < '0' || p[0] > '2' || kind_end == p + 1)
                return -EBADMSG;
        _cleanup_free_ char *detail = NULL;
        int r = take_reason(&detail, path_end + 1, len - (size_t)(path_end + 1 - p));
        return r < 0 ? r : findings_add(&rd->r.findings, (enum integrity)(p[0] - '0'), p + 1, path_end > kind_end + 1 ? kind_end + 1 : NULL, detail);
}

static int take_config(struct reading *rd, const char *p, size_t len) {
        struct apply_result *r = &rd->r;
        const char *path_end = memchr(p, 0, len);
        if (!path_end || path_end + 1 >= p + len || !strchr("+-", path_end[1]) || name_refusal(p) || r->n_base_config >= APPLY_CONFIG_FILES_MAX)
                return -EBADMSG;
        if (!r->base_config && !(r->base_config = calloc(APPLY_CONFIG_FILES_MAX, sizeof *r->base_config)))
                return -ENOMEM;
        struct apply_file *f = &r->base_config[r->n_base_config++];
        f->path = strdup(p);
        if (!f->path)
                return -ENOMEM;
        if (path_end[1] == '-')
                return 0;
        f->len = len - (size_t)(path_end + 2 - p);
        f->data = malloc(f->len + 1);
        if (!f->data)
                return -ENOMEM;
        memcpy(f->data, path_end + 2, f->len);
        f->data[f->len] = 0;
        return 0;
}

static int take_diff(struct reading *rd, const char *p, size_t len, bool cut) {
        if (rd->r.diff)
                return -EBADMSG;
        rd->r.diff = malloc(len + 1);
        if (!rd->r.diff)
                return -ENOMEM;
        memcpy(rd->r.diff, p, len);
        rd->r.diff[len] = 0;
        rd->r.diff_len = len;
        rd->r.diff_truncated = cut;
        return 0;
}

static int take_frame(struct reading *rd, enum apply_frame type, const char *p, size_t len) {
        struct apply_result *r = &rd->r;
        switch (type) {
        case FRAME_RUNG: return take_rung(rd, p, len);
        case FRAME_REFUSED: r->patch_refused = true; return take_reason(&r->patch_reason, p, len);
        case FRAME_REJECTED: return take_reason(&r->patch_reason, p, len);
        case FRAME_TEST_OK: r->test_patch_applied = true; return 0;
        case FRAME_TEST_REJECTED: return take_reason(&r->test_patch_reason, p, len);
        case FRAME_TOUCHED: return take_path(&r->touched, &rd->n_touched, p, len);
        case FRAME_TEST_FILE: return take_path(&r->test_files, &rd->n_tests, p, len);
        case FRAME_RESTORED: return take_path(&r->restored, &rd->n_restored, p, len);
        case FRAME_MODULE: return take_path(&r->new_modules, &rd->n_modules, p, len);
        case FRAME_FINDING: return take_finding(rd, p, len);
        case FRAME_CONFIG: return take_config(rd, p, len);
        case FRAME_DIFF: case FRAME_DIFF_CUT: return take_diff(rd, p, len, type == FRAME_DIFF_CUT);
        case FRAME_FAULT: rd->fault = true; return take_reason(&r->patch_reason, p, len);
        case FRAME_NO_TREE: rd->no_tree = true; return take_reason(&r->patch_reason, p, len);
        case FRAME_END: rd->end = true; return 0;
        default: return -EBADMSG;
        }
}

static int check(struct reading *rd) {
        struct apply_result *r = &rd->r;
        if (rd->no_tree)
                return error_say(rd->e, APPLY_NO_TREE, "%s", r->patch_reason);
        if (rd->fault)
                return error_say(rd->e, -EREMOTEIO, "applying failed: %s", r->patch_reason);
        if (r->patch_applied == (r->patch_reason != NULL) || r->test_patch_applied == (r->test_patch_reason != NULL))
                return error_say(rd->e, -EBADMSG, "the helper's report contradicts itself");
        char **const lists[] = { r->touched, r->test_files, r->restored };
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                if (lists[i])
                        strv_sort(lists[i]);
        return 0;
}

int apply_findings_read(const char *data, size_t len, struct findings *ret, struct error *e) {
        struct reading rd = { .e = e };
        size_t at = 0, n;
        const char *p;
        enum apply_frame type;
        int more = 0, r = 0;
        while (r == 0 && !rd.end && (more = frame_next(data, len, &at, &type, &p, &n)) == 1)
                r = type == FRAME_FINDING || type == FRAME_FAULT || type == FRAME_END ? take_frame(&rd, type, p, n) : -EBADMSG;
        if (r == 0 && (more < 0 || !rd.end || at != len))
                r = -EBADMSG;
        if (r < 0)
                error_set(e, r, "the helper's report");
        else if (rd.fault)
                r = error_say(e, -EREMOTEIO, "%s", rd.r.patch_reason);
        else {
                *ret = rd.r.findings;
                rd.r.findings = (struct findings){ 0 };
        }
        apply_result_release(&rd.r);
        return r;
}

int apply_report_read(const char *data, size_t len, enum patch_mode mode, struct apply_result *ret, struct error *e) {
        struct reading rd = { .e = e, .mode = mode };
        size_t at = 0, n;
        const char *p;
        enum apply_frame type;
        int more = 0, r = 0;
        while (r == 0 && !rd.end && (more = frame_next(data, len, &at, &type, &p, &n)) == 1)
                r = take_frame(&rd, type, p, n);
        if (r == 0 && (more < 0 || !rd.end || at != len))
                r = -EBADMSG;
        if (r < 0)
                error_set(e, r, "the helper's report");
        else
                r = check(&rd);
        if (r < 0) {
                apply_result_release(&rd.r);
                return r;
        }
        *ret = rd.r;
        return 0;
}
