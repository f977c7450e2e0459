/* TAP: "ok 1 - what # SKIP why", "not ok 2 - what # TODO why" (a failure that is expected). Sub-tests are indented, and stand before
 * the line of their parent, which sums them up. "Bail out!" is an error of its own name. */
#include "score/frameworks/tap.h"

#include <ctype.h>
#include <strings.h>

#include "score/frameworks/jest_report.h"

/* ---- one line -------------------------------------------------------------------------------------------------------- */

static bool directive(struct slice s, const char *word) { return s.n >= strlen(word) && strncasecmp(s.p, word, strlen(word)) == 0; }

struct result { struct slice name; enum test_status status; size_t depth, parent; bool has_children; };

#define TAP_GROUP_MAX 512       /* bytes of a parent's name that are kept */

/* "\#" and "\\" are the signs themselves. To be freed. */
static char *unescape(struct slice s, size_t max) {
        s.n = MIN2(s.n, max);
        char *to = malloc(s.n + 1);
        size_t at = 0;
        for (size_t i = 0; to && i < s.n; i++) {
                if (s.p[i] == '\\' && i + 1 < s.n && (s.p[i + 1] == '#' || s.p[i + 1] == '\\'))
                        i++;
                to[at++] = s.p[i];
        }
        if (to)
                to[at] = 0;
        return to;
}

static struct result result_line(struct slice s, bool ok) {
        struct result ret = {.status = ok ? TEST_PASSED : TEST_FAILED, .parent = SIZE_MAX};
        struct slice rest = s;
        for (const char *hash; (hash = slice_find(rest, " # "));) {
                rest = slice_from(rest, (size_t)(hash - rest.p) + 3);
                struct slice d = slice_trim(rest);
                if (!directive(d, "skip") && !directive(d, "todo"))
                        continue;
                ret.status = directive(d, "skip") ? TEST_SKIPPED : ok ? TEST_XPASSED : TEST_XFAILED;
                s.n = (size_t)(hash - s.p);
                break;
        }
        struct slice number = s = slice_trim(s);
        while (s.n && isdigit((unsigned char)s.p[0]))
                s = slice_from(s, 1);
        number.n -= s.n;
        s = slice_trim(s);
        if (slice_starts(s, "- "))
                s = slice_trim(slice_from(s, 2));
        ret.name = s.n ? s : number;
        return ret;
}

static bool parse_line(struct slice line, struct result *ret) {
        size_t blanks = 0;
        while (blanks < line.n && line.p[blanks] == ' ')
                blanks++;
        struct slice s = slice_from(line, blanks);
        if (slice_starts(s, "ok ") || slice_is(s, "ok"))
                *ret = result_line(slice_from(s, 2), true);
        else if (slice_starts(s, "not ok ") || slice_is(s, "not ok"))
                *ret = result_line(slice_from(s, 6), false);
        else if (slice_starts(line, "Bail out!"))
                *ret = (struct result){.name = slice_cut(line, 9), .status = TEST_ERROR, .parent = SIZE_MAX};
        else
                return false;
        ret->depth = blanks / 4;
        return blanks % 4 == 0 && ret->depth < TAP_DEPTH_MAX;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

struct reader {
        struct result *all; size_t n, alloc;
        size_t waiting[TAP_DEPTH_MAX + 1];      /* of each depth: the first result whose parent has not come yet, + 1; 0: none */
};

/* What waits one level deeper belongs to the result that has just come. */
static void adopt(struct reader *t, size_t parent) {
        size_t depth = t->all[parent].depth + 1;
        for (size_t i = t->waiting[depth]; i > 0 && i <= parent; i++)
                if (t->all[i - 1].depth == depth) {
                        t->all[i - 1].parent = parent;
                        t->all[parent].has_children = true;
                }
        memset(t->waiting + depth, 0, (ARRAY_SIZE(t->waiting) - depth) * sizeof(t->waiting[0]));
        if (!t->waiting[depth - 1])
                t->waiting[depth - 1] = parent + 1;
}

static int push(struct reader *t, const struct result *x) {
        if (t->n >= TEST_RESULTS_MAX)
                return -ENOSPC;
        if (t->n == t->alloc) {
                size_t want = t->alloc ? t->alloc * 2 : 64;
                struct result *grown = realloc(t->all, want * sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                t->all = grown;
                t->alloc = want;
        }
        t->all[t->n++] = *x;
        adopt(t, t->n - 1);
        return 0;
}

static int put(const struct reader *t, const struct result *x, struct sink *ret) {
        char *parts[TAP_DEPTH_MAX + 1];
        struct test_name name = {.n_groups = 0};
        size_t n = 0;
        int r = 0;
        for (const struct result *at = x; n < ARRAY_SIZE(parts); at = &t->all[at->parent]) {
                if (!(parts[n] = unescape(at->name, n == 0 ? SINK_NAME_MAX : TAP_GROUP_MAX)))
                        r = -ENOMEM;
                n++;
                if (at->parent == SIZE_MAX)
                        break;
        }
        for (size_t i = n - 1; i > 0 && r == 0; i--)
                name.groups[name.n_groups++] = parts[i];
        name.title = parts[0] ? report_path(ret, parts[0]) : NULL;      /* node names files that failed */
        if (r == 0)
                r = sink_put_name(ret, &name, NAME_PATH, x->status);
        for (size_t i = 0; i < n; i++)
                free(parts[i]);
        return r;
}

int tap_read(const char *text, bool nested, struct sink *ret, bool *ret_any) {
        struct reader t = {0};
        struct result x;
        struct slice line;
        bool any = false;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                any |= slice_starts(line, "TAP version ");
                if (parse_line(line, &x))
                        r = push(&t, &x);
        }
        for (size_t i = 0; r == 0 && i < t.n; i++)
                if (nested ? !t.all[i].has_children || (t.all[i].status != TEST_PASSED && t.all[i].depth == 0) : t.all[i].depth == 0)
                        r = nested ? put(&t, &t.all[i], ret) : text_put(ret, t.all[i].name, t.all[i].status);
        free(t.all);
        if (ret_any)
                *ret_any = any;
        return r;
}

/* "t/a.t .. ok", "t/b.t .. Failed 1/2 subtests": what prove says where it is not asked for more. */
static int parse_files(const char *text, struct sink *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                const char *dots = slice_find(line, " ..");
                if (!dots || slice_find(slice_cut(line, (size_t)(dots - line.p)), " "))
                        continue;
                struct slice rest = slice_from(line, (size_t)(dots - line.p));
                while (rest.n && (rest.p[0] == '.' || rest.p[0] == ' '))
                        rest = slice_from(rest, 1);
                struct slice id = slice_cut(line, (size_t)(dots - line.p));
                if (slice_is(slice_trim(rest), "ok"))
                        r = text_put(ret, id, TEST_PASSED);
                else if (slice_starts(rest, "skipped"))
                        r = text_put(ret, id, TEST_SKIPPED);
                else if (slice_starts(rest, "Failed ") || slice_starts(rest, "Dubious"))
                        r = text_put(ret, id, TEST_FAILED);
        }
        return r;
}

static int parse(const char *text, struct sink *ret) {
        bool versioned;
        int r = tap_read(text, false, ret, &versioned);
        ret->structured = r == 0 && (versioned || ret->tests->n > 0);
        return r == 0 && !ret->structured ? parse_files(text, ret) : r;
}

static bool detect(const char *text) { return strncmp(text, "TAP version ", 12) == 0 || strstr(text, "\nTAP version ") != NULL; }

const struct framework framework_tap = {
        .name = "tap", .words = (const char *const[]){"prove", "bats", "tape", NULL}, .detect = detect, .parse = parse, .route = "TAP",
        .variable = "HARNESS_VERBOSE", .value = "1", .variable_alone = true,
};
