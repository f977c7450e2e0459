/* The report as the SWE-bench harness writes it (schema_version 2: counts, and sorted lists of ids), so that what reads that reads this. */
#include <string.h>

#include "base/fs.h"
#include "base/strv.h"
#include "cmd/eval.h"

#define REPORT_MAX (64u << 20)

static bool is_resolved(const struct eval_item *it) { return it->state == EVAL_HAS_RECORD && strcmp(it->outcome, "resolved") == 0; }

bool eval_is_completed(const struct eval_item *it) {
        static const char *const no[] = { "infra_error", "cancelled", "patch_rejected", "test_patch_rejected", "timeout", "unknown" };
        for (size_t i = 0; i < ARRAY_SIZE(no); i++)
                if (strcmp(it->outcome, no[i]) == 0)
                        return false;
        return it->state == EVAL_HAS_RECORD;
}

static bool is_unresolved(const struct eval_item *it) { return eval_is_completed(it) && !is_resolved(it); }
static bool is_empty(const struct eval_item *it) { return it->state == EVAL_EMPTY; }
static bool is_submitted(const struct eval_item *it) { return it->state != EVAL_WITHOUT; }
static bool is_incomplete(const struct eval_item *it) { return it->state == EVAL_WITHOUT; }
static bool is_error(const struct eval_item *it) { return is_submitted(it) && !is_empty(it) && !eval_is_completed(it); }

static size_t count(const struct eval *ev, bool (*is)(const struct eval_item *)) {
        size_t n = 0;
        for (size_t i = 0; i < ev->n; i++)
                n += is(&ev->items[i]);
        return n;
}

void eval_count(const struct eval *ev, struct eval_counts *ret) {
        *ret = (struct eval_counts){
                .total = ev->n, .submitted = count(ev, is_submitted), .completed = count(ev, eval_is_completed), .resolved = count(ev, is_resolved),
                .unresolved = count(ev, is_unresolved), .empty = count(ev, is_empty), .error = count(ev, is_error), .incomplete = count(ev, is_incomplete),
        };
}

static int put_ids(const struct eval *ev, struct json_writer *w, const char *key, bool (*is)(const struct eval_item *)) {
        _cleanup_strv_ char **ids = NULL;
        size_t n = 0;
        int r = strv_ensure(&ids);
        for (size_t i = 0; i < ev->n && r == 0; i++)
                if (is(&ev->items[i]))
                        r = strv_append_take(&ids, &n, strdup(ev->items[i].instance->id));
        if (r < 0)
                return r;
        strv_sort(ids);
        json_put_key(w, key);
        json_put_texts(w, ids);
        return 0;
}

int eval_report_write(const struct eval *ev, struct error *e) {
        static const struct { const char *key; bool (*is)(const struct eval_item *); } lists[] = {
                { "completed_ids", eval_is_completed }, { "incomplete_ids", is_incomplete }, { "empty_patch_ids", is_empty }, { "submitted_ids", is_submitted },
                { "resolved_ids", is_resolved }, { "unresolved_ids", is_unresolved }, { "error_ids", is_error },
        };
        _cleanup_buf_ struct buf b = BUF_INIT(REPORT_MAX);
        struct json_writer w = JSON_WRITER(&b);
        struct eval_counts c;
        int r = 0;
        eval_count(ev, &c);
        json_begin_object(&w);
        json_field_uint(&w, "total_instances", c.total);
        json_field_uint(&w, "submitted_instances", c.submitted);
        json_field_uint(&w, "completed_instances", c.completed);
        json_field_uint(&w, "resolved_instances", c.resolved);
        json_field_uint(&w, "unresolved_instances", c.unresolved);
        json_field_uint(&w, "empty_patch_instances", c.empty);
        json_field_uint(&w, "error_instances", c.error);
        for (size_t i = 0; i < ARRAY_SIZE(lists) && r == 0; i++)
                r = put_ids(ev, &w, lists[i].key, lists[i].is);
        json_field_uint(&w, "schema_version", 2);
        json_end_object(&w);
        if (r == 0)
                r = json_finish(&w);
        if (r == 0)
                r = buf_addc(&b, '\n');
        if (r == 0)
                r = fs_write_atomic(ev->dir, "report.json", buf_str(&b), b.len, 0644);
        return r < 0 ? error_set(e, r, "write %s/report.json", ev->o->output) : 0;
}
