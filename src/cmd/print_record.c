#include <string.h>

#include "cmd/print_record.h"
#include "base/utf8.h"

#define LABEL_WIDTH 14
#define IDS_SHOWN 20
#define OUTPUT_LINES 15
#define OUTPUT_BYTES 4000
#define TEXT_MAX (64u << 20)

static const char *const no_label = "";

static void label(FILE *to, const char *name) {
        fprintf(to, "  %-*s", LABEL_WIDTH, name);
}

/* Control characters (C0, DEL, C1) as '?'; tabs as a space. Line feeds only where the caller splits at them. */
static void put_safe(FILE *to, const char *p, size_t n) {
        for (size_t i = 0; i < n;) {
                bool valid;
                size_t step = utf8_step(p + i, n - i, &valid);
                unsigned char c = (unsigned char)p[i];
                bool c1 = step == 2 && c == 0xc2 && (unsigned char)p[i + 1] < 0xa0;
                if (!valid || c1 || (c < 0x20 && c != '\t') || c == 0x7f)
                        fputc('?', to);
                else if (c == '\t')
                        fputc(' ', to);
                else
                        fwrite(p + i, 1, step, to);
                i += step;
        }
}

static void put_string(FILE *to, const struct json *v) {
        _cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
        if (json_string(v, &b) == 0)
                put_safe(to, buf_str(&b), b.len);
        else
                put_safe(to, v->p, MIN2(v->n, (size_t)200));     /* a number, a boolean, null */
}

static bool get(const struct json *o, const char *key, struct json *ret) {
        return json_get(o, key, ret) && ret->type != JSON_NULL;
}

static bool get_text(const struct json *o, const char *key, enum json_type type, struct json *ret) {
        return get(o, key, ret) && ret->type == type;
}

static int64_t number(const struct json *o, const char *key) {
        struct json v;
        int64_t n = 0;
        double d;
        if (!get(o, key, &v))
                return 0;
        if (json_int(&v, &n) == 0)
                return n;
        return json_double(&v, &d) == 0 ? (int64_t)d : 0;
}

static bool is_true(const struct json *o, const char *key) {
        struct json v;
        bool b = false;
        return get(o, key, &v) && json_bool(&v, &b) == 0 && b;
}

static void line(FILE *to, const char *name, const struct json *o, const char *key) {
        struct json v;
        if (!get(o, key, &v) || (v.type == JSON_STRING && v.n == 2))
                return;
        label(to, name);
        put_string(to, &v);
        fputc('\n', to);
}

/* The items of a list, each on its own line. */
static void items(FILE *to, const char *name, const struct json *list, const char *mark) {
        struct json item;
        size_t n = 0, all = json_count(list);
        for (struct json_iter it = json_iter(list); json_next_item(&it, &item) && n < IDS_SHOWN; n++) {
                label(to, n == 0 ? name : no_label);
                fputs(mark, to);
                put_string(to, &item);
                fputc('\n', to);
        }
        if (all > n) {
                label(to, no_label);
                fprintf(to, "%sand %zu more\n", mark, all - n);
        }
}

static void expectation(FILE *to, const struct json *record, const char *key) {
        struct json v, good, bad;
        if (!get(record, key, &v) || !json_get(&v, "success", &good) || !json_get(&v, "failure", &bad))
                return;
        size_t passed = json_count(&good), failed = json_count(&bad);
        if (passed + failed == 0)
                return;
        label(to, key);
        fprintf(to, "%zu of %zu\n", passed, passed + failed);
        items(to, no_label, &bad, "not passed: ");
}

static void tests(FILE *to, const struct json *record) {
        struct json channel, all;
        size_t n = get(record, "tests", &all) ? json_count(&all) : 0;
        label(to, "tests");
        fprintf(to, "%lld passed, %lld failed", (long long)number(record, "tests_passed"), (long long)number(record, "tests_failed"));
        int64_t others = (int64_t)n - number(record, "tests_passed") - number(record, "tests_failed");
        if (others > 0)
                fprintf(to, ", %lld other", (long long)others);
        if (get(record, "report_channel", &channel)) {
                fputs("; heard over: ", to);
                put_string(to, &channel);
        }
        fputc('\n', to);
        expectation(to, record, "fail_to_pass");
        expectation(to, record, "pass_to_pass");
}

static void patches(FILE *to, const struct json *record) {
        struct json rung, list;
        label(to, "patch");
        fputs(is_true(record, "patch_applied") ? "applied" : "not applied", to);
        if (get(record, "patch_rung", &rung)) {
                fputs(", ", to);
                put_string(to, &rung);
        }
        /* True where there was none, too. */
        fputs(is_true(record, "test_patch_applied") ? "\n" : "; test patch not applied\n", to);
        if (get(record, "restored", &list))
                items(to, "restored", &list, "");
}

static void integrity(FILE *to, const struct json *record) {
        struct json v, verdict, list, item, field;
        if (!get(record, "integrity", &v) || !get(&v, "verdict", &verdict))
                return;
        label(to, "integrity");
        put_string(to, &verdict);
        fputc('\n', to);
        if (!get(&v, "findings", &list))
                return;
        for (struct json_iter it = json_iter(&list); json_next_item(&it, &item);) {
                static const char *const keys[] = { "kind", "path", "detail" };
                label(to, no_label);
                for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                        if (get(&item, keys[i], &field)) {
                                fputs(i ? " " : "", to);
                                put_string(to, &field);
                        }
                fputc('\n', to);
        }
}

static void fault(FILE *to, const struct json *record) {
        struct json v, code, message;
        if (!get_text(record, "error", JSON_OBJECT, &v))
                return;
        label(to, "error");
        if (get(&v, "code", &code))
                put_string(to, &code);
        if (get(&v, "message", &message)) {
                fputs(": ", to);
                put_string(to, &message);
        }
        fputc('\n', to);
}

static void measures(FILE *to, const struct json *record) {
        static const char *const steps[] = { "queued_ms", "prepare_ms", "apply_ms", "test_ms", "report_ms" };
        struct json v;
        if (get(record, "timing", &v)) {
                label(to, "time, ms");
                for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
                        fprintf(to, "%s%.*s %lld", i ? ", " : "", (int)strlen(steps[i]) - 3, steps[i], (long long)number(&v, steps[i]));
                fputc('\n', to);
        }
        if (get(record, "usage", &v)) {
                label(to, "used");
                fprintf(to, "cpu %lld ms, memory %lld MiB, processes %lld\n", (long long)number(&v, "cpu_ms"),
                        (long long)number(&v, "memory_peak_bytes") >> 20, (long long)number(&v, "pids_peak"));
        }
}

/* The last lines of a text, marked so that they cannot pass for lines of the table. */
static void tail(FILE *to, const char *name, const struct json *v) {
        _cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
        if (json_string(v, &b) < 0 || b.len == 0)
                return;
        const char *p = buf_str(&b), *end = p + b.len, *from = end;
        if (end[-1] == '\n')
                from = --end;
        for (size_t lines = 0; from > p && (size_t)(end - from) < OUTPUT_BYTES; from--)
                if (from[-1] == '\n' && ++lines == OUTPUT_LINES)
                        break;
        fprintf(to, "  end of %s:\n", name);
        while (from < end) {
                const char *lf = memchr(from, '\n', (size_t)(end - from)), *stop = lf ? lf : end;
                fputs("    | ", to);
                put_safe(to, from, (size_t)(stop - from));
                fputc('\n', to);
                from = lf ? lf + 1 : end;
        }
}

void print_record(FILE *to, const struct json *record, bool output) {
        struct json v;
        bool resolved = is_true(record, "resolved");
        fprintf(to, "%s", resolved ? "RESOLVED" : "NOT RESOLVED");
        if (!resolved && get(record, "outcome", &v)) {
                fputs(": ", to);
                put_string(to, &v);
        }
        fputc('\n', to);
        line(to, "reason", record, "reason");
        line(to, "repository", record, "repo_url");
        line(to, "commit", record, "base_commit");
        line(to, "command", record, "test_command");
        line(to, "exit status", record, "exit_code");
        tests(to, record);
        patches(to, record);
        integrity(to, record);
        if (get(record, "limits_hit", &v))
                items(to, "limit hit", &v, "");
        if (get(record, "unverified", &v))
                items(to, "unverified", &v, "");
        line(to, "lint errors", record, "lint_errors");
        fault(to, record);
        measures(to, record);
        line(to, "task", record, "task_id");
        line(to, "evidence", record, "evidence");
        if (output && !resolved && get(record, "stdout", &v))
                tail(to, "stdout", &v);
        if (output && !resolved && get(record, "stderr", &v))
                tail(to, "stderr", &v);
}

void print_differences(FILE *to, const struct json *comparison) {
        struct json list, item, what, was, now;
        size_t n = 0;
        if (!json_get(comparison, "differences", &list) || json_count(&list) == 0) {
                fputs("THE SAME\n", to);
                return;
        }
        fputs("DIFFERENT\n", to);
        for (struct json_iter it = json_iter(&list); n < DIFFERENCES_SHOWN && json_next_item(&it, &item); n++) {
                if (!json_get(&item, "what", &what) || !json_get(&item, "was", &was) || !json_get(&item, "now", &now))
                        continue;
                fputs("  ", to);
                put_string(to, &what);
                fputs(": ", to);
                put_string(to, &now);
                fputs(", was ", to);
                put_string(to, &was);
                fputc('\n', to);
        }
        if (json_count(&list) > n)
                fprintf(to, "  and %zu more\n", json_count(&list) - n);
}

int record_exit_status(const struct json *record) {
        struct json v;
        if (is_true(record, "resolved"))
                return 0;
        return get(record, "outcome", &v) && json_string_is(&v, "infra_error") ? 2 : 1;
}
