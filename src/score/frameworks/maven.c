/* Maven's surefire and failsafe, Gradle: the XML files that they leave in the tree, those that are newer than the command's start. Text: Maven names what
 * failed ("[ERROR] pkg.Class.method -- Time elapsed: 0.1 s <<< FAILURE!"), Gradle what it is told to ("Class > method() PASSED"). */
#include "score/frameworks/junit.h"
#include "score/text.h"

/* "method()" and "method(int)[1]" are JUnit 5's names; the method alone is a spelling too. */
static int put(struct sink *s, const struct junit_case *c) {
        char *parenthesis = strchr(c->name, '(');
        bool plain = parenthesis && parenthesis[1] == ')' && !parenthesis[2];
        _cleanup_free_ char *method = plain ? strndup(c->name, (size_t)(parenthesis - c->name)) : strdup(c->name);
        return method ? sink_put_method(s, c->class, method, c->status) : -ENOMEM;
}

static int report(const char *p, size_t n, struct sink *ret) { return junit_read(p, n, put, ret); }

static int put_words(struct slice class, struct slice method, enum test_status st, struct sink *ret) {
        _cleanup_free_ char *c = strndup(class.p, class.n), *m = strndup(method.p, method.n);
        return c && m ? put(ret, &(struct junit_case){c, m, st}) : -ENOMEM;
}

/* Behind "[ERROR] "; older ones write "method(pkg.Class)  Time elapsed: ...". */
static int failed_line(struct slice s, struct sink *ret) {
        enum test_status st = slice_find(s, "<<< ERROR!") ? TEST_ERROR : TEST_FAILED;
        const char *end = slice_find(s, " Time elapsed:");
        if (!end || !slice_find(s, "<<< "))
                return 0;
        s = slice_trim(slice_cut(s, (size_t)(end - s.p)));
        if (s.n > 3 && memcmp(s.p + s.n - 3, " --", 3) == 0)
                s = slice_trim(slice_cut(s, s.n - 3));
        const char *open = slice_find_last(s, "("), *dot;
        if (open && s.p[s.n - 1] == ')' && open + 2 < s.p + s.n)
                return put_words(slice_cut(slice_from(s, (size_t)(open - s.p) + 1), (size_t)(s.p + s.n - open) - 2), slice_cut(s, (size_t)(open - s.p)), st, ret);
        dot = slice_find_last(s, ".");
        return dot ? put_words(slice_cut(s, (size_t)(dot - s.p)), slice_from(s, (size_t)(dot - s.p) + 1), st, ret) : 0;
}

static int gradle_line(struct slice s, struct sink *ret) {
        static const struct { const char *word; enum test_status status; } words[] = {{" PASSED", TEST_PASSED}, {" FAILED", TEST_FAILED}, {" SKIPPED", TEST_SKIPPED}};
        const char *sign = slice_find(s, " > ");
        for (size_t i = 0; sign && i < ARRAY_SIZE(words); i++) {
                size_t n = strlen(words[i].word);
                if (s.n > n && memcmp(s.p + s.n - n, words[i].word, n) == 0 && s.p + s.n - n > sign + 3)
                        return put_words(slice_cut(s, (size_t)(sign - s.p)), slice_cut(slice_from(s, (size_t)(sign - s.p) + 3), (size_t)(s.p + s.n - n - sign) - 3), words[i].status, ret);
        }
        return 0;
}

static int parse(const char *text, struct sink *ret) {
        struct slice line;
        int r = 0;
        while (r == 0 && text_line(&text, &line)) {
                if (slice_starts(line, "[ERROR] ") || slice_find(line, "<<< "))
                        r = failed_line(slice_starts(line, "[ERROR] ") ? slice_from(line, 8) : line, ret);
                else
                        r = gradle_line(line, ret);
        }
        return r;
}

static bool passed(const char *text) {
        const char *last = NULL;
        for (const char *at = text; (at = strstr(at, "Tests run: ")); at++)
                last = at;
        return last && last[11] >= '1' && last[11] <= '9' && strstr(last, "Failures: 0, Errors: 0") && !strstr(text, "BUILD FAILURE");
}

static bool detect(const char *text) { return strstr(text, " T E S T S\n") && strstr(text, "Tests run: "); }

const struct framework framework_maven = {
        .name = "maven", .words = (const char *const[]){"mvn", "mvnw", "gradle", "gradlew", NULL}, .detect = detect, .parse = parse, .passed = passed,
        .route = "JUnit XML",
        .collect = "find . -type f -name 'TEST-*.xml' '(' -path '*/surefire-reports/*' -o -path '*/failsafe-reports/*' -o -path '*/test-results/*' ')' "
                   "-newer " FRAMEWORK_STARTED " -exec cat '{}' + >" FRAMEWORK_REPORT,
        .report = report,
};
