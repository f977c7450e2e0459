/* SymPy's own runner (bin/test --verbose): "path.py[8]", then "test_x ok" with F, E, f (expected to fail), X (passed though), s, w, K and T; what a
 * test prints stands before its mark, the reason of a skip too. Behind the last file come sections, "____ path.py:test_x ____" for what failed. */
#include <ctype.h>

#include "score/text.h"

static bool mark_of(struct slice s, enum test_status *ret) {
        static const struct { const char *mark; enum test_status status; } marks[] = {
                {"ok", TEST_PASSED}, {"F", TEST_FAILED}, {"E", TEST_ERROR}, {"f", TEST_XFAILED}, {"X", TEST_XPASSED}, {"s", TEST_SKIPPED}, {"w", TEST_SKIPPED},
                {"K", TEST_ERROR}, {"T", TEST_FAILED},
        };
        for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
                if (slice_is(s, marks[i].mark)) {
                        *ret = marks[i].status;
                        return true;
                }
        return false;
}

/* Without the file's "[OK]" or "[FAIL]" at the end of its last line. */
static struct slice without_total(struct slice s) {
        static const char *const totals[] = {"[OK]", "[FAIL]"};
        s = slice_trim(s);
        for (size_t i = 0; i < ARRAY_SIZE(totals); i++) {
                size_t n = strlen(totals[i]);
                if (s.n >= n && memcmp(s.p + s.n - n, totals[i], n) == 0)
                        return slice_trim(slice_cut(s, s.n - n));
        }
        return s;
}

static struct slice last_word(struct slice s) {
        const char *blank = slice_find_last(s, " ");
        return blank ? slice_from(s, (size_t)(blank - s.p) + 1) : s;
}

static struct slice name_of(struct slice s) {
        size_t n = 0;
        while (n < s.n && (isalnum((unsigned char)s.p[n]) || s.p[n] == '_'))
                n++;
        return slice_starts(s, "test_") && (n == s.n || s.p[n] == ' ') ? slice_cut(s, n) : (struct slice){0};
}

/* Under the name alone, as data has it, or with its file. */
static int put(struct slice file, struct slice name, enum test_status st, struct sink *ret) {
        char id[512], one[1024], two[1024];
        snprintf(id, sizeof(id), "%.*s", (int)MIN2(name.n, sizeof(id) - 1), name.p);
        snprintf(one, sizeof(one), "%.*s:%s", (int)MIN2(file.n, sizeof(id) - 1), file.n ? file.p : "", id);
        snprintf(two, sizeof(two), "%.*s::%s", (int)MIN2(file.n, sizeof(id) - 1), file.n ? file.p : "", id);
        return sink_put(ret, (const char *const[]){id, one, two, NULL}, st);
}

static int section_line(struct slice s, struct sink *ret) {
        while (s.n && s.p[0] == '_')
                s = slice_from(s, 1);
        while (s.n && s.p[s.n - 1] == '_')
                s.n--;
        s = slice_trim(s);
        const char *colon = slice_find(s, ".py:");
        struct slice name = colon ? name_of(slice_from(s, (size_t)(colon - s.p) + 4)) : (struct slice){0};
        return name.n ? put(slice_cut(s, (size_t)(colon - s.p) + 3), name, TEST_FAILED, ret) : 0;
}

static bool is_file(struct slice s, struct slice *ret) {
        const char *open = slice_find_last(s, ".py[");
        if (!open || s.p[s.n - 1] != ']' || slice_find(s, " "))
                return false;
        *ret = slice_cut(s, (size_t)(open - s.p) + 3);
        return true;
}

static int parse(const char *text, struct sink *ret) {
        struct slice line, file = {0}, pending = {0};
        bool sections = false;
        enum test_status st;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                struct slice s = without_total(line), name = name_of(s);
                if (slice_starts(line, "____")) {
                        sections = true;
                        r = section_line(line, ret);
                } else if (sections)
                        continue;
                else if (s.n && is_file(s, &file))
                        pending.n = 0;
                else if (mark_of(last_word(s), &st) && (name.n || (pending.n && mark_of(s, &st)))) {
                        r = put(file, name.n ? name : pending, st, ret);
                        pending.n = 0;
                } else if (name.n)
                        pending = name;
        }
        return r;
}

static bool detect(const char *text) { return strstr(text, "= test process starts =") != NULL; }

const struct framework framework_sympy = {
        .name = "sympy", .python = true, .words = (const char *const[]){"bin/test -C", "bin/test --verbose", "bin/test -v", NULL}, .detect = detect, .parse = parse,
};
