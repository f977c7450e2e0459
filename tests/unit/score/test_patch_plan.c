#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "score/apply_tree.h"
#include "tree_fixture.h"

#define NAMES(x) "--- a/" x "\n+++ b/" x "\n"

struct outcome { int r; enum patch_rung rung; struct error e; };

static struct outcome apply(struct trees *t, enum patch_mode mode, const char *text) {
        struct patch_source src = { tree_source_read, &t->live };
        struct patch_plan plan = { 0 };
        struct outcome o = { 0 };
        o.r = patch_plan(text, strlen(text), mode, &src, &plan, &o.e);
        if (o.r == 0)
                o.r = tree_write(t->live, &plan, &o.e);
        o.rung = plan.rung;
        plan_release(&plan);
        return o;
}

struct rung_case { const char *name; enum patch_rung rung; const char *before, *patch, *after; };

static void each_rung_takes_what_the_one_before_does_not(void **state) {
        static const struct rung_case cases[] = {
                { "strict", RUNG_STRICT, "a\nb\nc\n", NAMES("f") "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n" },
                { "shifted", RUNG_STRICT, "x\ny\nz\n1\na\nb\nc\nd\n", NAMES("f") "@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n", "x\ny\nz\n1\na\nB\nc\nd\n" },
                { "counts", RUNG_RECOUNT, "a\nb\nc\n", NAMES("f") "@@ -1,8 +1,9 @@\n a\n-b\n+B\n c\n", "a\nB\nc\n" },
                { "counts, elsewhere", RUNG_RECOUNT, "1\n2\n3\na\nb\nc\n", NAMES("f") "@@ -1,8 +1,9 @@\n a\n-b\n+B\n c\n", "1\n2\n3\na\nB\nc\n" },
                { "crlf patch, lf file", RUNG_RECOUNT, "a\nb\nc\n", "--- a/f\r\n+++ b/f\r\n@@ -1,3 +1,3 @@\r\n a\r\n-b\r\n+B\r\n c\r\n", "a\nB\nc\n" },
                { "crlf body, lf file", RUNG_RECOUNT, "a\nb\nc\n", NAMES("f") "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r\n", "a\nB\nc\n" },
                { "lf patch, crlf file", RUNG_RECOUNT, "a\r\nb\r\nc\r\n", NAMES("f") "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+D\n c\n", "a\r\nB\r\nD\r\nc\r\n" },
                { "no newline at the file's end, unmarked", RUNG_RECOUNT, "a\nb\nc", NAMES("f") "@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d\n", "a\nB\nc\nd\n" },
                { "blank context that was never there", RUNG_RECOUNT, "a\nb\n", NAMES("f") "@@ -1,9 +1,9 @@\n a\n-b\n+B\n\n", "a\nB\n" },
                { "white space", RUNG_WHITESPACE, "if x:\n\treturn  1 \nend\n", NAMES("f") "@@ -1,3 +1,3 @@\n if x:\n-    return 1\n+    return 2\n end\n", "if x:\n    return 2\nend\n" },
                { "three-way", RUNG_THREE_WAY, "a\nb2\nc\nd\ne\nf\ng\n", NAMES("f") "@@ -1,6 +1,6 @@\n a\n b\n c\n-d\n+D\n e\n f\n", "a\nb2\nc\nD\ne\nf\ng\n" },
                { "fuzzy", RUNG_FUZZY, "x\nc\nd\ny\n", NAMES("f") "@@ -1,3 +1,4 @@\n q\n c\n+new\n z\n", "x\nc\nnew\nd\ny\n" },
        };
        struct trees *t = *state;
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                const struct rung_case *c = &cases[i];
                put(t->live, "f", c->before);
                struct outcome o = apply(t, PATCH_LADDER, c->patch);
                if (o.r < 0 || o.rung != c->rung)
                        fail_msg("%s: %d by rung %d: %s", c->name, o.r, o.rung, o.e.text);
                expect_text(t->live, "f", c->after);
        }
}

static void the_default_mode_ends_at_repair(void **state) {
        struct trees *t = *state;
        put(t->live, "f", "x\nc\nd\ny\n");
        struct outcome o = apply(t, PATCH_REPAIR, NAMES("f") "@@ -1,4 +1,5 @@\n q\n c\n+new\n d\n z\n");
        assert_int_equal(o.r, -EBADMSG);
        assert_string_equal(o.e.text, "f: the hunk at line 3 of the patch (line 1 of the file) does not apply");
        o = apply(t, PATCH_STRICT, NAMES("f") "@@ -1,9 +1,9 @@\n x\n-c\n+C\n d\n");
        assert_int_equal(o.r, -EBADMSG);
        expect_text(t->live, "f", "x\nc\nd\ny\n");
}

static void what_could_go_to_two_places_goes_to_none(void **state) {
        struct trees *t = *state;
        put(t->live, "f", "0\na\nb\n1\na\nb\n2\n");
        struct outcome o = apply(t, PATCH_LADDER, NAMES("f") "@@ -9,7 +9,7 @@\n a\n-b\n+B\n");
        assert_int_equal(o.r, -EBADMSG);
        assert_non_null(strstr(o.e.text, "fits in more than one place"));
        expect_text(t->live, "f", "0\na\nb\n1\na\nb\n2\n");
}

static void a_patch_that_was_applied_before_is_told(void **state) {
        static const char patch[] = NAMES("f") "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n";
        struct trees *t = *state;
        put(t->live, "f", "a\nB\nc\n");
        struct outcome o = apply(t, PATCH_REPAIR, patch);
        assert_int_equal(o.r, -EBADMSG);
        assert_int_equal(strncmp(o.e.text, "already applied (it applies in reverse): f: ", 43), 0);
}

static void one_bad_hunk_leaves_the_tree_alone(void **state) {
        struct trees *t = *state;
        put(t->live, "f", "a\n");
        put(t->live, "g", "a\n");
        assert_int_equal(apply(t, PATCH_REPAIR, NAMES("f") "@@ -1 +1 @@\n-a\n+b\n" NAMES("g") "@@ -1 +1 @@\n-q\n+b\n").r, -EBADMSG);
        expect_text(t->live, "f", "a\n");
}

static void no_patch_at_all_applies(void **state) {
        assert_int_equal(apply(*state, PATCH_STRICT, "").r, 0);
        assert_int_equal(apply(*state, PATCH_STRICT, " \n\n").r, 0);
}

static void modes_links_and_empty_files_are_made(void **state) {
        struct trees *t = *state;
        put(t->live, "s", "x\n");
        struct outcome o = apply(t, PATCH_STRICT,
                "diff --git a/s b/s\nold mode 100644\nnew mode 100755\n"
                "diff --git a/d/e b/d/e\nnew file mode 100644\n"
                "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+../up\n\\ No newline at end of file\n");
        assert_int_equal(o.r, 0);
        assert_int_equal(mode_of(t->live, "s"), 0100755);
        expect_text(t->live, "d/e", "");
        char target[16] = "";
        assert_int_equal(readlinkat(t->live, "l", target, sizeof target), 5);
        assert_string_equal(target, "../up");
}

static void renames_swap_and_empty_directories_go(void **state) {
        struct trees *t = *state;
        put(t->live, "a", "A\n");
        put(t->live, "b", "B\n");
        put(t->live, "only/one", "x\n");
        struct outcome o = apply(t, PATCH_STRICT, "diff --git a/a b/b\nrename from a\nrename to b\ndiff --git a/b b/a\nrename from b\nrename to a\n"
                "diff --git a/only/one b/two\nrename from only/one\nrename to two\n");
        assert_int_equal(o.r, 0);
        expect_text(t->live, "a", "B\n");
        expect_text(t->live, "b", "A\n");
        assert_false(is_there(t->live, "only"));
}

static void hard_links_outside_keep_their_contents(void **state) {
        struct trees *t = *state;
        put(t->base, "f", "a\n");
        assert_int_equal(linkat(t->base, "f", t->live, "f", 0), 0);
        assert_int_equal(apply(t, PATCH_STRICT, NAMES("f") "@@ -1 +1 @@\n-a\n+b\n").r, 0);
        expect_text(t->live, "f", "b\n");
        expect_text(t->base, "f", "a\n");
}

/* ---- attacks ---------------------------------------------------------------------------------------------------------- */

#define NEW(path, line) "diff --git a/" path " b/" path "\nnew file mode 100644\n--- /dev/null\n+++ b/" path "\n@@ -0,0 +1 @@\n+" line "\n"
#define LINK(path, target) "diff --git a/" path " b/" path "\nnew file mode 120000\n--- /dev/null\n+++ b/" path "\n@@ -0,0 +1 @@\n+" target "\n\\ No newline at end of file\n"

static void writing_through_a_link_of_the_same_patch_is_refused(void **state) {
        struct trees *t = *state;
        struct outcome o = apply(t, PATCH_LADDER, LINK("d", "../base") NEW("d/x", "evil"));
        assert_int_equal(o.r, -EPERM);
        assert_string_equal(o.e.text, "d/x: the patch writes below d, which it makes a symbolic link");
        assert_int_equal(apply(t, PATCH_LADDER, NEW("d/x", "evil") LINK("d", "../base")).r, -EPERM);
        assert_false(is_there(t->base, "x"));
        assert_false(is_there(t->live, "d"));
}

static void writing_through_a_link_of_the_tree_is_refused(void **state) {
        struct trees *t = *state;
        put(t->base, "f", "a\n");
        assert_int_equal(symlinkat("../base", t->live, "d"), 0);
        assert_int_equal(apply(t, PATCH_LADDER, NEW("d/x", "evil")).r, -EPERM);
        assert_int_equal(apply(t, PATCH_LADDER, NAMES("d/f") "@@ -1 +1 @@\n-a\n+evil\n").r, -EPERM);
        assert_int_equal(apply(t, PATCH_LADDER, "diff --git a/d/f b/d/f\ndeleted file mode 100644\n--- a/d/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n").r, -EPERM);
        expect_text(t->base, "f", "a\n");
}

static void a_link_is_replaced_not_followed(void **state) {
        struct trees *t = *state;
        put(t->base, "f", "a\n");
        assert_int_equal(symlinkat("../base/f", t->live, "l"), 0);
        assert_int_equal(apply(t, PATCH_STRICT, "diff --git a/l b/l\ndeleted file mode 120000\n--- a/l\n+++ /dev/null\n@@ -1 +0,0 @@\n-../base/f\n\\ No newline at end of file\n" NEW("l", "mine")).r, 0);
        expect_text(t->base, "f", "a\n");
        expect_text(t->live, "l", "mine\n");
        assert_int_equal(mode_of(t->live, "l"), 0100644);
}

static void collisions_of_names_are_refused(void **state) {
        assert_int_equal(apply(*state, PATCH_LADDER, NEW("x", "1") NEW("x", "2")).r, -EPERM);
        assert_int_equal(apply(*state, PATCH_LADDER, NEW("y", "1") NEW("y/z", "2")).r, -EPERM);
        assert_false(is_there(((struct trees *)*state)->live, "x"));
}

static void a_fifo_in_the_way_is_not_opened(void **state) {
        struct trees *t = *state;
        assert_int_equal(mkfifoat(t->live, "p", 0600), 0);
        struct outcome o = apply(t, PATCH_LADDER, NAMES("p") "@@ -1 +1 @@\n-a\n+b\n");
        assert_int_equal(o.r, -EBADMSG);
        assert_string_equal(o.e.text, "p: is neither file nor link (line 1 of the patch)");
}

static void a_search_without_end_is_cut_off(void **state) {
        struct trees *t = *state;
        struct buf file = BUF_INIT(8u << 20), patch = BUF_INIT(8u << 20);
        for (int i = 0; i < 200000; i++)
                assert_int_equal(buf_adds(&file, "x\n"), 0);
        assert_int_equal(buf_adds(&patch, NAMES("f")), 0);
        for (int i = 0; i < 20000; i++)
                assert_int_equal(buf_printf(&patch, "@@ -%d,3 +%d,2 @@\n x\n-y\n x\n", 100000, 100000), 0);
        put(t->live, "f", file.data);
        struct outcome o = apply(t, PATCH_LADDER, patch.data);
        assert_true(o.r == -EBADMSG || o.r == -EPERM);
        buf_reset(&patch);
        assert_int_equal(buf_adds(&patch, NAMES("f")), 0);
        for (int i = 0; i < 20000; i++)
                assert_int_equal(buf_printf(&patch, "@@ -%d,3 +%d,4 @@\n x\n+y\n x\n x\n", 190000, 190000), 0);
        o = apply(t, PATCH_LADDER, patch.data);
        assert_int_equal(o.r, -EPERM);
        assert_string_equal(o.e.text, "f: takes too long to apply");
        buf_release(&file);
        buf_release(&patch);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, trees_setup, trees_teardown)
        const struct CMUnitTest tests[] = {
                T(each_rung_takes_what_the_one_before_does_not), T(the_default_mode_ends_at_repair), T(what_could_go_to_two_places_goes_to_none),
                T(a_patch_that_was_applied_before_is_told), T(one_bad_hunk_leaves_the_tree_alone), T(no_patch_at_all_applies),
                T(modes_links_and_empty_files_are_made), T(renames_swap_and_empty_directories_go), T(hard_links_outside_keep_their_contents),
                T(writing_through_a_link_of_the_same_patch_is_refused), T(writing_through_a_link_of_the_tree_is_refused),
                T(a_link_is_replaced_not_followed), T(collisions_of_names_are_refused), T(a_fifo_in_the_way_is_not_opened), T(a_search_without_end_is_cut_off),
        };
        return cmocka_run_group_tests_name("score/patch_plan", tests, NULL, NULL);
}
