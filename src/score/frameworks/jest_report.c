/* {"testResults": [{"name": path, "status": ..., "assertionResults": [{"ancestorTitles": [...], "title": ..., "status": ...}]}]} */
#include "score/frameworks/jest_report.h"

#include <string.h>

#include "base/json.h"

static bool take(const struct json *v, char *ret, size_t size) {
        _cleanup_buf_ struct buf b = BUF_INIT(size - 1);
        ret[0] = 0;
        if (json_string(v, &b) < 0)
                return false;
        memcpy(ret, buf_str(&b), b.len);
        ret[b.len] = 0;
        return true;
}

bool report_text(const struct json *o, const char *key, char *ret, size_t size) {
        struct json v;
        ret[0] = 0;
        return json_get(o, key, &v) && take(&v, ret, size);
}

const char *report_path(const struct sink *s, const char *path) {
        size_t n = s->tree ? strlen(s->tree) : 0;
        return n && strncmp(path, s->tree, n) == 0 && path[n] == '/' ? path + n + 1 : path;
}

static enum test_status status_of(const struct json *test) {
        static const struct { const char *text; enum test_status status; } all[] = {
                {"passed", TEST_PASSED}, {"failed", TEST_FAILED}, {"pending", TEST_SKIPPED}, {"skipped", TEST_SKIPPED}, {"todo", TEST_SKIPPED}, {"disabled", TEST_SKIPPED},
        };
        struct json v;
        for (size_t i = 0; json_get(test, "status", &v) && i < ARRAY_SIZE(all); i++)
                if (json_string_is(&v, all[i].text))
                        return all[i].status;
        return TEST_ERROR;
}

struct texts { char file[JEST_TEXT_MAX], title[JEST_TEXT_MAX], groups[SINK_GROUPS_MAX][JEST_TEXT_MAX]; };

static int put_test(const struct json *test, const char *file, enum name_form own, struct texts *t, struct sink *ret) {
        struct test_name name = {.file = file, .title = t->title};
        struct json ancestors = {0}, one;
        if (!report_text(test, "title", t->title, sizeof(t->title)))
                return -EBADMSG;
        json_get(test, "ancestorTitles", &ancestors);
        for (struct json_iter it = json_iter(&ancestors); name.n_groups < SINK_GROUPS_MAX && json_next_item(&it, &one);) {
                char *to = t->groups[name.n_groups];
                if (!take(&one, to, JEST_TEXT_MAX))
                        return -EBADMSG;
                if (to[0])
                        name.groups[name.n_groups++] = to;
        }
        return sink_put_name(ret, &name, own, status_of(test));
}

/* A file that could not be run has no tests: an error under the file's name. */
static int put_file(const struct json *file, enum name_form own, struct texts *t, struct sink *ret) {
        struct json tests = {0}, one, status;
        int r = 0;
        report_text(file, "name", t->file, sizeof(t->file));
        const char *path = report_path(ret, t->file);
        json_get(file, "assertionResults", &tests);
        if (tests.type != JSON_ARRAY)
                return -EBADMSG;
        if (json_count(&tests) == 0 && json_get(file, "status", &status) && json_string_is(&status, "failed"))
                return sink_put(ret, (const char *const[]){path, NULL}, TEST_ERROR);
        for (struct json_iter it = json_iter(&tests); r == 0 && json_next_item(&it, &one);)
                r = put_test(&one, path, own, t, ret);
        return r;
}

int jest_report(const char *p, size_t n, enum name_form own, struct sink *ret) {
        struct json o, files = {0}, one;
        if (json_parse(p, n, &o, NULL) < 0 || !json_get(&o, "testResults", &files) || files.type != JSON_ARRAY)
                return -EBADMSG;
        _cleanup_free_ struct texts *t = malloc(sizeof(*t));
        int r = t ? 0 : -ENOMEM;
        for (struct json_iter it = json_iter(&files); r == 0 && json_next_item(&it, &one);)
                r = put_file(&one, own, t, ret);
        return r;
}
