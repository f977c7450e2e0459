/* Reading of the event channel: see report.h. Lines are split here, decoded one by one (events), and folded into a state that is
 * as large as the list of tests; outcomes and findings are made at the end by report_finish.c. */
#include "score/report.h"

#include <stdarg.h>

#include "base/json.h"
#include "base/strv.h"

static const char *const fault_names[] = {
        [FAULT_FORGED_EVENT] = "forged_event", [FAULT_SEQUENCE_REPEAT] = "sequence_repeat", [FAULT_SEQUENCE_GAP] = "sequence_gap",
        [FAULT_EVENT_ORDER] = "event_order", [FAULT_EVENT_AFTER_END] = "event_after_end", [FAULT_UNKNOWN_TEST] = "unknown_test",
        [FAULT_NOT_COLLECTED] = "not_collected", [FAULT_REPORT_LIMIT] = "report_limit", [FAULT_NO_END_RECORD] = "no_end_record",
        [FAULT_COUNT_MISMATCH] = "count_mismatch", [FAULT_EXIT_STATUS_MISMATCH] = "exit_status_mismatch",
        [FAULT_RUNNER_FROM_TREE] = "runner_from_tree", [FAULT_SHADOWING_MODULE] = "shadowing_module",
        [FAULT_FOREIGN_TEST] = "foreign_test",
};
STRING_TABLE(report_fault, fault_names, FAULT_MAX)

void report_init(struct report *r, const char nonce[static REPORT_NONCE_LEN + 1]) {
        *r = (struct report){.line = BUF_INIT(REPORT_LINE_MAX)};
        memcpy(r->nonce, nonce, REPORT_NONCE_LEN);
}

void report_release(struct report *r) {
        buf_release(&r->line);
        for (size_t i = 0; i < r->n_tests; i++)
                free(r->tests[i].id);
        free(TAKE_PTR(r->tests));
        for (size_t i = 0; i < r->n_paths; i++) {
                free(r->paths[i].path);
                free(r->paths[i].text);
        }
        free(TAKE_PTR(r->paths));
        test_results_release(&r->other);
        test_results_release(&r->missing);
        free(TAKE_PTR(r->framework));
        free(TAKE_PTR(r->version));
        free(TAKE_PTR(r->from_tree));
        r->plugins = strv_free(r->plugins);
        for (size_t i = 0; i < FAULT_MAX; i++)
                free(TAKE_PTR(r->faults[i]));
        r->n_tests = r->n_paths = 0;
}

/* Remembers the first of its kind. */
PRINTF_LIKE(3, 4) static int fault(struct report *r, enum report_fault kind, const char *fmt, ...) {
        if (r->faults[kind])
                return 0;
        va_list ap;
        va_start(ap, fmt);
        int n = vasprintf(&r->faults[kind], fmt, ap);
        va_end(ap);
        if (n < 0)
                r->faults[kind] = NULL;
        return n < 0 ? -ENOMEM : 0;
}

/* A member that is a string, decoded; NULL in *ret when it is none. */
static int get_text(const struct json *o, const char *key, char **ret) {
        struct json v;
        *ret = NULL;
        if (!json_get(o, key, &v) || v.type != JSON_STRING)
                return 0;
        _cleanup_buf_ struct buf b = BUF_INIT(REPORT_LINE_MAX);
        int r = json_string(&v, &b);
        if (r < 0)
                return r == -ENOMEM ? r : 0;
        char *s = buf_steal(&b);
        if (!s)
                return -ENOMEM;
        *ret = s;
        return 0;
}

static bool get_int(const struct json *o, const char *key, int64_t *ret) {
        struct json v;
        return json_get(o, key, &v) && v.type == JSON_NUMBER && json_int(&v, ret) == 0;
}

/* Status out of "spcptp" (channel.py); TEST_STATUS_MAX when it is none. */
static enum test_status status_of_phases(const struct json *v) {
        bool setup_bad = false, teardown_bad = false, failed = false, error = false, skipped = false, xfailed = false, xpassed = false, passed = false;
        if (v->type != JSON_STRING || v->n < 4 || v->n % 2 != 0 || v->n > 4096)
                return TEST_STATUS_MAX;
        for (const char *p = v->p + 1; p < v->p + v->n - 1; p += 2) {
                if (!strchr("sct", p[0]) || !strchr("pfesxX", p[1]))
                        return TEST_STATUS_MAX;
                bool bad = p[1] == 'f' || p[1] == 'e';
                setup_bad |= bad && p[0] == 's';
                teardown_bad |= bad && p[0] == 't';
                failed |= p[1] == 'f' && p[0] == 'c';
                error |= p[1] == 'e' && p[0] == 'c';
                skipped |= p[1] == 's';
                xfailed |= p[1] == 'x';
                xpassed |= p[1] == 'X';
                passed |= p[1] == 'p' && p[0] == 'c';
        }
        return setup_bad || teardown_bad || error ? TEST_ERROR : failed ? TEST_FAILED : skipped ? TEST_SKIPPED : xfailed ? TEST_XFAILED
                : xpassed ? TEST_XPASSED : passed ? TEST_PASSED : TEST_STATUS_MAX;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static int malformed(struct report *r, const char *event) { return fault(r, FAULT_FORGED_EVENT, "%s event with wrong fields", event); }

/* A fault if the member is a list with names in it. */
static int note_names(struct report *r, const struct json *o, const char *key, enum report_fault kind) {
        struct json names, name;
        if (!json_get(o, key, &names))
                return 0;
        struct json_iter it = json_iter(&names);
        bool any = json_next_item(&it, &name) && name.type == JSON_STRING;
        return any ? fault(r, kind, "%.*s", (int)MIN2(names.n, (size_t)200), names.p) : 0;
}

static int on_start(struct report *r, const struct json *o) {
        if (r->started)
                return fault(r, FAULT_EVENT_ORDER, "a second start");
        r->started = true;
        int q = get_text(o, "framework", &r->framework);
        if (q == 0)
                q = get_text(o, "version", &r->version);
        if (q == 0)
                q = note_names(r, o, "tree", FAULT_RUNNER_FROM_TREE);
        return q < 0 ? q : note_names(r, o, "hidden", FAULT_SHADOWING_MODULE);
}

static int add_test(struct report *r, const struct json *v) {
        if (r->n_tests >= REPORT_IDS_MAX || r->id_bytes + v->n > REPORT_ID_BYTES_MAX)
                return fault(r, FAULT_REPORT_LIMIT, "too many test ids");
        if (r->n_tests == r->tests_alloc) {
                size_t want = r->tests_alloc ? r->tests_alloc * 2 : 64;
                struct report_test *grown = realloc(r->tests, want * sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                r->tests = grown;
                r->tests_alloc = want;
        }
        _cleanup_buf_ struct buf b = BUF_INIT(REPORT_LINE_MAX);
        int q = json_string(v, &b);
        if (q < 0)
                return q == -ENOMEM ? q : malformed(r, "ids");
        char *id = buf_steal(&b);
        if (!id)
                return -ENOMEM;
        r->tests[r->n_tests++] = (struct report_test){.id = id, .status = TEST_MISSING};
        r->id_bytes += v->n;
        return 0;
}

static int on_ids(struct report *r, const struct json *o) {
        struct json ids, v;
        if (r->collected || !r->started)
                return fault(r, FAULT_EVENT_ORDER, "ids %s", r->collected ? "after the list was complete" : "before the start");
        if (!json_get(o, "ids", &ids) || ids.type != JSON_ARRAY)
                return malformed(r, "ids");
        int q = 0;
        for (struct json_iter it = json_iter(&ids); q == 0 && json_next_item(&it, &v);)
                q = v.type == JSON_STRING ? add_test(r, &v) : malformed(r, "ids");
        return q;
}

static int on_missing(struct report *r, const struct json *o) {
        struct json ids, v;
        if (!r->started)
                return fault(r, FAULT_EVENT_ORDER, "missing before the start");
        if (!json_get(o, "ids", &ids) || ids.type != JSON_ARRAY)
                return malformed(r, "missing");
        int q = 0;
        for (struct json_iter it = json_iter(&ids); q == 0 && json_next_item(&it, &v);) {
                _cleanup_buf_ struct buf b = BUF_INIT(REPORT_LINE_MAX);
                if (r->missing.n >= REPORT_MISSING_MAX || r->id_bytes + v.n > REPORT_ID_BYTES_MAX)
                        return fault(r, FAULT_REPORT_LIMIT, "too many missing ids");
                q = v.type == JSON_STRING ? json_string(&v, &b) : -EINVAL;
                if (q < 0)
                        return q == -ENOMEM ? q : malformed(r, "missing");
                r->id_bytes += v.n;
                q = test_results_put(&r->missing, buf_str(&b), TEST_MISSING);
        }
        return q == -ENOSPC ? fault(r, FAULT_REPORT_LIMIT, "too many missing ids") : q;
}

static int take_plugins(struct report *r, const struct json *o) {
        struct json list, v;
        int q = 0;
        size_t n = 0;
        if (!json_get(o, "plugins", &list) || list.type != JSON_ARRAY)
                return 0;
        for (struct json_iter it = json_iter(&list); q == 0 && n < REPORT_PLUGINS_MAX && json_next_item(&it, &v);) {
                _cleanup_buf_ struct buf b = BUF_INIT(REPORT_LINE_MAX);
                if (v.type != JSON_STRING || (q = json_string(&v, &b)) < 0)
                        return q == -ENOMEM ? q : malformed(r, "collected");
                q = strv_append_take(&r->plugins, &n, buf_steal(&b));
        }
        return q;
}

static int on_collected(struct report *r, const struct json *o) {
        int64_t count;
        if (r->collected || !r->started)
                return fault(r, FAULT_EVENT_ORDER, "collected %s", r->collected ? "twice" : "before the start");
        r->collected = true;
        if (!get_int(o, "count", &count))
                return malformed(r, "collected");
        int q = take_plugins(r, o);
        if (q == 0)
                q = note_names(r, o, "foreign", FAULT_FOREIGN_TEST);
        if (q < 0)
                return q;
        if ((uint64_t)count != r->n_tests && !r->faults[FAULT_REPORT_LIMIT])
                return fault(r, FAULT_COUNT_MISMATCH, "%lld tests announced as collected, %zu listed", (long long)count, r->n_tests);
        return 0;
}

static int on_path(struct report *r, const struct json *o, bool broken) {
        if (r->n_paths >= REPORT_PATHS_MAX)
                return fault(r, FAULT_REPORT_LIMIT, "too many files that could not be collected");
        if (!r->paths && !(r->paths = calloc(REPORT_PATHS_MAX, sizeof(*r->paths))))
                return -ENOMEM;
        struct report_path p = {.broken = broken};
        int q = get_text(o, "path", &p.path);
        if (q == 0)
                q = get_text(o, "text", &p.text);
        if (q < 0 || !p.path) {
                free(p.path);
                free(p.text);
                return q < 0 ? q : malformed(r, "path");
        }
        r->paths[r->n_paths++] = p;
        return 0;
}

/* The test that `i` names, or NULL with the fault noted. */
static struct report_test *test_of(struct report *r, const struct json *o, int *ret) {
        int64_t i;
        *ret = 0;
        if (!get_int(o, "i", &i))
                *ret = malformed(r, "test");
        else if (!r->collected)
                *ret = fault(r, FAULT_EVENT_ORDER, "an outcome before the list was complete");
        else if (i < 0 || (uint64_t)i >= r->n_tests)
                *ret = fault(r, FAULT_UNKNOWN_TEST, "place %lld of %zu", (long long)i, r->n_tests);
        else
                return &r->tests[i];
        return NULL;
}

static int on_test(struct report *r, const struct json *o) {
        int q;
        struct json phases = {.type = JSON_NULL};
        struct report_test *t = test_of(r, o, &q);
        if (!t)
                return q;
        enum test_status st = json_get(o, "p", &phases) ? status_of_phases(&phases) : TEST_STATUS_MAX;
        r->n_events++;
        if (st == TEST_STATUS_MAX) {            /* a test that was begun and never got to its call, or nonsense: no pass */
                t->ended = true;
                t->status = TEST_ERROR;
                return phases.type == JSON_STRING && phases.n <= 6 ? 0 : malformed(r, "test");
        }
        r->n_bad += st == TEST_FAILED || st == TEST_ERROR;
        t->repeated |= t->ended;
        /* The graver of two stays: TEST_PASSED may be replaced by anything. */
        if (!t->ended || t->status == TEST_PASSED || t->status == TEST_XPASSED || st == TEST_ERROR)
                t->status = st;
        t->ended = true;
        return 0;
}

static int on_other(struct report *r, const struct json *o) {
        struct json phases = {.type = JSON_NULL};
        _cleanup_free_ char *id = NULL;
        int q = get_text(o, "id", &id);
        if (q < 0)
                return q;
        enum test_status st = json_get(o, "p", &phases) ? status_of_phases(&phases) : TEST_STATUS_MAX;
        if (!id)
                return malformed(r, "other");
        if (st == TEST_PASSED || st == TEST_XPASSED)
                return fault(r, FAULT_NOT_COLLECTED, "%.200s", id);
        if (st == TEST_STATUS_MAX)              /* a phase of its own without a call: says nothing */
                return 0;
        if (r->other.n >= REPORT_PATHS_MAX)
                return fault(r, FAULT_REPORT_LIMIT, "too many outcomes of tests that were not collected");
        return test_results_put(&r->other, id, st);
}

static int on_end(struct report *r, const struct json *o) {
        r->ended = true;
        if (!get_int(o, "x", &r->end_status) || !get_int(o, "tests", &r->end_tests) || !get_int(o, "bad", &r->end_bad))
                return malformed(r, "end");
        return 0;
}

static int dispatch(struct report *r, const struct json *o) {
        static const char *const events[] = {"start", "ids", "collected", "broken", "skipped", "run", "test", "other", "end", "missing"};
        struct json e;
        size_t k = ARRAY_SIZE(events);
        if (json_get(o, "e", &e))
                for (k = 0; k < ARRAY_SIZE(events) && !json_string_is(&e, events[k]); k++)
                        ;
        int q = 0;
        struct report_test *t;
        switch (k) {
        case 0: return on_start(r, o);
        case 1: return on_ids(r, o);
        case 2: return on_collected(r, o);
        case 3: case 4: return on_path(r, o, k == 3);
        case 5:
                if ((t = test_of(r, o, &q)))
                        t->began = true;
                return q;
        case 6: return on_test(r, o);
        case 7: return on_other(r, o);
        case 8: return on_end(r, o);
        case 9: return on_missing(r, o);
        default: return fault(r, FAULT_FORGED_EVENT, "an event that the reporter does not have");
        }
}

static int on_line(struct report *r, const char *p, size_t n) {
        struct json o, k;
        int64_t seq;
        if (json_parse(p, n, &o, NULL) < 0 || o.type != JSON_OBJECT)
                return fault(r, FAULT_FORGED_EVENT, "a line that is no event: %.*s", (int)MIN2(n, (size_t)80), p);
        if (!json_get(&o, "k", &k) || k.n != REPORT_NONCE_LEN + 2 || !json_string_is(&k, r->nonce))
                return fault(r, FAULT_FORGED_EVENT, "an event with another nonce");
        if (!get_int(&o, "n", &seq))
                return fault(r, FAULT_FORGED_EVENT, "an event without a number");
        if (seq < r->next_seq)
                return fault(r, FAULT_SEQUENCE_REPEAT, "number %lld came again", (long long)seq);
        int q = 0;
        if (seq > r->next_seq)
                q = fault(r, FAULT_SEQUENCE_GAP, "number %lld came instead of %lld", (long long)seq, (long long)r->next_seq);
        r->next_seq = seq + (seq < INT64_MAX);
        if (q == 0 && r->ended)
                return fault(r, FAULT_EVENT_AFTER_END, "number %lld", (long long)seq);
        return q < 0 ? q : dispatch(r, &o);
}

int report_feed(struct report *r, const void *data, size_t n) {
        const char *p = data;
        int q = 0;
        r->bytes += n;
        if (r->bytes > REPORT_BYTES_MAX) {
                r->full = true;
                return fault(r, FAULT_REPORT_LIMIT, "more than %u bytes of events", REPORT_BYTES_MAX);
        }
        while (q == 0 && n > 0) {
                const char *newline = memchr(p, '\n', n);
                size_t part = newline ? (size_t)(newline - p) : n;
                if (!r->skipping && buf_add(&r->line, p, part) < 0) {
                        r->skipping = true;
                        q = fault(r, FAULT_REPORT_LIMIT, "a line of more than %u bytes", REPORT_LINE_MAX);
                }
                if (newline) {
                        if (!r->skipping && q == 0)
                                q = on_line(r, buf_str(&r->line), r->line.len);
                        r->skipping = false;
                        buf_reset(&r->line);
                        part++;
                }
                p += part;
                n -= part;
        }
        return q;
}
