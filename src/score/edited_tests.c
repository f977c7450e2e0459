#include "score/edited_tests.h"

#include <string.h>

#include "base/strv.h"
#include "score/patch.h"

static int add_all(char ***v, size_t *n, const struct framework *f, char *const *ids) {
        int r = 0;
        for (; r == 0 && ids && *ids; ids++)
                r = strv_append_take(v, n, framework_canonical(f, *ids));
        return r;
}

/* Does any of the sorted ids begin with this? */
static bool any_begins(char *const *sorted, size_t n, const char *start) {
        size_t low = 0, high = n;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (strcmp(sorted[mid], start) < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < n && strncmp(sorted[low], start, strlen(start)) == 0;
}

/* "tests/test_a.py" is named by "tests/test_a.py::x" and by "tests.test_a.Class.x". */
static bool is_named(char *const *sorted, size_t n, const char *path) {
        char text[PATCH_PATH_MAX + 4];
        size_t len = strlen(path);
        if (len <= 3 || len + 3 > sizeof(text) || strcmp(path + len - 3, ".py") != 0)
                return false;
        snprintf(text, sizeof(text), "%s::", path);
        if (any_begins(sorted, n, text))
                return true;
        for (char *p = text; *p; p++)
                *p = *p == '/' ? '.' : *p;
        text[len - 2] = 0;              /* the dot stays */
        return any_begins(sorted, n, text);
}

int edited_tests_find(const struct score_request *q, const struct framework *f, const struct apply_result *a, struct findings *findings) {
        _cleanup_strv_ char **ids = NULL;
        size_t n = 0;
        int r = add_all(&ids, &n, f, q->fail_to_pass);
        if (r == 0)
                r = add_all(&ids, &n, f, q->pass_to_pass);
        if (r < 0 || n == 0)
                return r;
        strv_sort(ids);
        for (char **p = a->touched; r == 0 && p && *p; p++)
                if (is_named(ids, n, *p) && !strv_contains((const char *const *)a->test_files, *p) && !strv_contains((const char *const *)a->restored, *p))
                        r = findings_add(findings, INTEGRITY_SUSPECT, "test_file_edited", *p, "the request's ids name it; left as patched");
        return r;
}
