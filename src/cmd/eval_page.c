/* One page of HTML that needs nothing else: eval_page.html with the verdicts in it as JSON. Everything in them is text of somebody: it is put into the
 * page as text, never as markup, and the page's policy forbids it to load or send anything. */
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/utf8.h"
#include "cmd/eval.h"

#define PAGE_MAX (512u << 20)
#define OUTPUT_SHOWN 8192                  /* bytes of the end of each stream */
#define TESTS_SHOWN 500                    /* of an instance, those that did not pass first */

extern const unsigned char cmd_eval_page_html[], cmd_eval_page_html_end[];
static const char mark[] = "{\"data\":null}";

static const char *state_name(const struct eval_item *it) {
        static const char *const names[] = {
                [EVAL_TO_RUN] = "not run", [EVAL_HAS_RECORD] = "", [EVAL_EMPTY] = "empty patch", [EVAL_WITHOUT] = "no prediction", [EVAL_UNUSABLE] = "unusable",
                [EVAL_FAILED] = "no verdict",
        };
        return it->state == EVAL_HAS_RECORD ? it->outcome : names[it->state];
}

static void put_copy(struct json_writer *w, const struct json *record, const char *key) {
        struct json v;
        if (json_get(record, key, &v) && v.type != JSON_NULL)
                json_field_raw(w, key, v.p, v.n);
}

static void put_end(struct json_writer *w, const struct json *record, const char *key) {
        _cleanup_buf_ struct buf b = BUF_INIT(SCORE_FILE_MAX);
        struct json v;
        if (!json_get(record, key, &v) || json_string(&v, &b) < 0 || b.len == 0)
                return;
        size_t from = b.len > OUTPUT_SHOWN ? b.len - OUTPUT_SHOWN : 0;
        while (from > 0 && from < b.len && ((unsigned char)b.data[from] & 0xc0) == 0x80)
                from++;
        json_field_string(w, key, b.data + from, b.len - from);
}

/* Two passes: a reader looks for what failed. */
static void put_tests(struct json_writer *w, const struct json *record) {
        struct json tests, id, outcome;
        size_t shown = 0;
        if (!json_get(record, "tests", &tests) || tests.type != JSON_OBJECT)
                return;
        json_field_uint(w, "tests_total", json_count(&tests));
        json_put_key(w, "tests");
        json_begin_array(w);
        for (int passed = 0; passed < 2; passed++)
                for (struct json_iter it = json_iter(&tests); shown < TESTS_SHOWN && json_next_member(&it, &id, &outcome);) {
                        if (json_string_is(&outcome, "passed") != passed)
                                continue;
                        json_begin_array(w);
                        json_put_raw(w, id.p, id.n);
                        json_put_raw(w, outcome.p, outcome.n);
                        json_end_array(w);
                        shown++;
                }
        json_end_array(w);
}

static void put_record(const struct eval *ev, const struct eval_item *it, struct json_writer *w) {
        static const char *const keys[] = { "reason", "error", "integrity", "patch_rung", "restored", "limits_hit", "tests_passed", "tests_failed", "fail_to_pass", "exit_code", "timing", "usage", "evidence", "flaky" };
        _cleanup_buf_ struct buf file = BUF_INIT(0);
        struct json record;
        if (eval_store_load(ev, it, &file, &record) < 0)
                return;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                put_copy(w, &record, keys[i]);
        put_tests(w, &record);
        if (strcmp(it->outcome, "resolved") != 0) {
                put_end(w, &record, "stdout");
                put_end(w, &record, "stderr");
        }
}

static void put_item(const struct eval *ev, const struct eval_item *it, struct json_writer *w) {
        _cleanup_free_ char *repo = NULL;
        struct error e;
        (void)score_record_repo(&it->instance->v, &repo, &e);
        json_begin_object(w);
        json_field_text(w, "id", it->instance->id);
        json_field_text(w, "repo", repo ? repo : "");
        json_field_text(w, "state", state_name(it));
        if (it->why)
                json_field_text(w, "why", it->why);
        json_field_uint(w, "test_ms", it->test_ms);
        json_field_uint(w, "total_ms", it->total_ms);
        if (it->state == EVAL_HAS_RECORD)
                put_record(ev, it, w);
        json_end_object(w);
}

static int data(const struct eval *ev, struct buf *b) {
        struct json_writer w = JSON_WRITER(b);
        struct eval_counts c;
        char when[32];
        time_t t = time(NULL);
        struct tm tm;
        gmtime_r(&t, &tm);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
        eval_count(ev, &c);
        json_begin_object(&w);
        json_field_text(&w, "model", ev->model);
        json_field_text(&w, "dataset", ev->o->dataset);
        json_field_text(&w, "when", when);
        json_field_uint(&w, "wall_ms", ev->wall_ms);
        json_field_uint(&w, "total", c.total);
        json_field_uint(&w, "submitted", c.submitted);
        json_field_uint(&w, "resolved", c.resolved);
        json_put_key(&w, "problems");
        json_put_texts(&w, ev->problems ? ev->problems : (char *[]){ NULL });
        json_put_key(&w, "instances");
        json_begin_array(&w);
        for (size_t i = 0; i < ev->n; i++)
                put_item(ev, &ev->items[i], &w);
        json_end_array(&w);
        json_end_object(&w);
        return json_finish(&w);
}

/* "<" stands in strings only: escaped there, nothing can end the script's element. */
static int add_escaped(struct buf *page, const struct buf *json) {
        int r = 0;
        for (const char *p = buf_str(json), *end = p + json->len; p < end && r == 0;) {
                size_t n = 0;
                while (p + n < end && p[n] != '<')
                        n++;
                r = buf_add(page, p, n);
                p += n;
                if (p < end && r == 0) {
                        r = buf_adds(page, "\\u003c");
                        p++;
                }
        }
        return r;
}

int eval_page_write(const struct eval *ev, struct error *e) {
        _cleanup_buf_ struct buf json = BUF_INIT(PAGE_MAX), page = BUF_INIT(2 * PAGE_MAX);
        const char *html = (const char *)cmd_eval_page_html;
        size_t n = (size_t)(cmd_eval_page_html_end - cmd_eval_page_html);
        const char *at = memmem(html, n, mark, sizeof mark - 1);
        ASSERT(at);
        int r = data(ev, &json);
        if (r == 0)
                r = buf_add(&page, html, (size_t)(at - html));
        if (r == 0)
                r = add_escaped(&page, &json);
        if (r == 0)
                r = buf_add(&page, at + sizeof mark - 1, n - (size_t)(at - html) - (sizeof mark - 1));
        if (r == 0)
                r = fs_write_atomic(ev->dir, "report.html", buf_str(&page), page.len, 0644);
        return r < 0 ? error_set(e, r, "write %s/report.html", ev->o->output) : 0;
}
