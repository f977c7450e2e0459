#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "score/patch.h"

/* A patch as one line: each file "kind old>new [mode>mode]" and its hunks "(start,count start,count lines)". */
static void describe(const struct patch *p, struct buf *b) {
        static const char *const kinds[] = { "modify", "create", "delete", "rename", "copy" };
        for (size_t i = 0; i < p->n_files; i++) {
                const struct patch_file *f = &p->files[i];
                buf_printf(b, "%s%s %s>%s", i ? "; " : "", kinds[f->kind], f->old_path ? f->old_path : "-", f->new_path ? f->new_path : "-");
                if (f->old_mode || f->new_mode)
                        buf_printf(b, " %o>%o", f->old_mode, f->new_mode);
                for (size_t k = f->first; k < f->first + f->n; k++) {
                        const struct patch_hunk *h = &p->hunks[k];
                        buf_printf(b, " (%u,%u %u,%u ", h->old_start, h->old_count, h->new_start, h->new_count);
                        for (size_t l = h->first; l < h->first + h->n; l++)
                                buf_printf(b, "%c%.*s", " -+"[p->lines[l].kind] , (int)p->lines[l].len, p->lines[l].p);
                        for (char *c = b->data; *c; c++)
                                if (*c == '\n')
                                        *c = '|';
                        buf_adds(b, ")");
                }
        }
        for (size_t i = 0; i < p->n_notes; i++)
                buf_printf(b, "; note %s", p->notes[i]);
}

struct parse_case { const char *name; enum patch_level level; const char *text, *expect; };

static void check(const struct parse_case *c, size_t n) {
        for (size_t i = 0; i < n; i++, c++) {
                struct patch p = { 0 };
                struct error e = { 0 };
                _cleanup_buf_ struct buf b = BUF_INIT(65536);
                int r = patch_parse(c->text, strlen(c->text), c->level, &p, &e);
                if (r < 0)
                        buf_printf(&b, "%s: %s", r == -EPERM ? "refused" : "bad", e.text);
                else
                        describe(&p, &b);
                if (strcmp(buf_str(&b), c->expect) != 0)
                        fail_msg("%s:\n  got    %s\n  expect %s", c->name, buf_str(&b), c->expect);
                patch_release(&p);
        }
}

#define GIT(x) "diff --git a/" x " b/" x "\n"
#define NAMES(x) "--- a/" x "\n+++ b/" x "\n"
#define STRICT PATCH_PARSE_STRICT
#define REPAIR PATCH_PARSE_REPAIR

static void git_sections_are_read(void **state) {
        static const struct parse_case cases[] = {
                { "edit", STRICT, "From: x\n\n" GIT("src/x.c") "index 1234..5678 100644\n" NAMES("src/x.c") "@@ -1,2 +1,2 @@ f()\n a\n-b\n+c\n",
                  "modify src/x.c>src/x.c 100644>0 (1,2 1,2  a|-b|+c|)" },
                { "two files and hunks", STRICT, GIT("x") NAMES("x") "@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n" GIT("y") NAMES("y") "@@ -0,0 +1 @@\n+y\n",
                  "modify x>x (1,1 1,1 -a|+b|) (9,1 9,1 -c|+d|); modify y>y (0,0 1,1 +y|)" },
                { "create", STRICT, GIT("n.py") "new file mode 100755\nindex 0000000..1\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n+a\n+\n", "create ->n.py 0>100755 (0,0 1,2 +a|+|)" },
                { "create empty", STRICT, GIT("e m") "new file mode 100664\nindex 0000000..e69de29\n", "create ->e m 0>100644" },
                { "delete", STRICT, GIT("d") "deleted file mode 100644\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n", "delete d>- 100644>0 (1,1 0,0 -x)" },
                { "rename", STRICT, "diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n", "rename o>n" },
                { "rename and edit", STRICT, "diff --git a/o b/n\nsimilarity index 90%\nrename from o\nrename to n\n--- a/o\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n", "rename o>n (1,1 1,1 -a|+b|)" },
                { "copy", STRICT, "diff --git a/o b/n\ncopy from o\ncopy to n\n", "copy o>n" },
                { "mode", STRICT, GIT("s.sh") "old mode 100644\nnew mode 100755\n", "modify s.sh>s.sh 100644>100755" },
                { "mode masked", STRICT, GIT("s.sh") "old mode 100600\nnew mode 104777\n", "modify s.sh>s.sh 100644>100755" },
                { "quoted", STRICT, "diff --git \"a/\\303\\251 x\" \"b/\\303\\251 x\"\n--- \"a/\\303\\251 x\"\n+++ \"b/\\303\\251 x\"\n@@ -1 +1 @@\n-a\n+b\n", "modify \xc3\xa9 x>\xc3\xa9 x (1,1 1,1 -a|+b|)" },
                { "spaces and tab", STRICT, GIT("my file") "--- a/my file\t\n+++ b/my file\t\n@@ -1 +1 @@\n-a\n+b\n", "modify my file>my file (1,1 1,1 -a|+b|)" },
                { "symlink", STRICT, GIT("l") "new file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n", "create ->l 0>120000 (0,0 1,1 +x)" },
                { "binary left out", STRICT, GIT("i.png") "index 1..2 100644\nBinary files a/i.png and b/i.png differ\n" GIT("x") NAMES("x") "@@ -1 +1 @@\n-a\n+b\n",
                  "modify x>x (1,1 1,1 -a|+b|); note i.png: binary contents are not in the patch; its section was left out" },
                { "submodule without its mode", STRICT, GIT("m") NAMES("m") "@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n", "; note m: a submodule; its section was left out" },
                { "submodule log", STRICT, "Submodule m 123..456:\n  > x\n", "; note a submodule's log at line 1; it was left out" },
                { "submodule left out", STRICT, GIT("m") "index 1..2 160000\n" NAMES("m") "@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n", "; note m: a submodule; its section was left out" },
        };
        check(cases, ARRAY_SIZE(cases));
}

static void plain_diffs_are_read(void **state) {
        static const struct parse_case cases[] = {
                { "stamps", STRICT, "diff -ru a/x b/x\n--- a/x\t2024-01-02 03:04:05.0 +0000\n+++ b/x\t2024-01-02 03:04:06.0 +0000\n@@ -1 +1 @@\n-a\n+b\n", "modify x>x (1,1 1,1 -a|+b|)" },
                { "stamps without tab", STRICT, "--- o/x y 2024-01-02 03:04:05\n+++ n/x y 2024-01-02 03:04:05\n@@ -1 +1 @@\n-a\n+b\n", "modify x y>x y (1,1 1,1 -a|+b|)" },
                { "top level without prefix", STRICT, "--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", "modify x>x (1,1 1,1 -a|+b|)" },
                { "orig", STRICT, "--- x.orig\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", "modify x>x (1,1 1,1 -a|+b|)" },
                { "dev null", STRICT, "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n--- a/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n", "create ->x (0,0 1,1 +b|); delete y>- (1,1 0,0 -b|)" },
                { "epoch", STRICT, "--- a/x\t1970-01-01 00:00:00.0 +0000\n+++ b/x\t2024-01-02 03:04:05\n@@ -0,0 +1 @@\n+b\n", "create ->x (0,0 1,1 +b|)" },
                { "blank context", STRICT, NAMES("x") "@@ -1,3 +1,3 @@\n-a\n+b\n\n c\n", "modify x>x (1,3 1,3 -a|+b| | c|)" },
                { "a deleted line that looks like a header", STRICT, NAMES("x") "@@ -1,2 +1 @@\n--- a\n-++ b\n+c\n", "modify x>x (1,2 1,1 --- a|-++ b|+c|)" },
        };
        check(cases, ARRAY_SIZE(cases));
}

static void strict_refuses_what_repair_reads(void **state) {
        static const char *const bad[] = {
                NAMES("x") "@@ -1,9 +1,9 @@\n a\n-b\n+c\n", NAMES("x") "@@ -1 +1 @@\n-a\n+b\n+c\n", NAMES("x") "@@ -1 +1 @@\n-a\n+b", "--- a/x\n+++ b/x\n@@ @@\n-a\n+b\n",
        };
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct patch p = { 0 };
                struct error e;
                if (patch_parse(bad[i], strlen(bad[i]), STRICT, &p, &e) != -EBADMSG)
                        fail_msg("strict read: %s", bad[i]);
                assert_int_equal(patch_parse(bad[i], strlen(bad[i]), REPAIR, &p, &e), 0);
                assert_true(p.repaired);
                patch_release(&p);
        }
}

static void mangled_patches_are_repaired(void **state) {
        static const struct parse_case cases[] = {
                { "fence", REPAIR, "Here is the fix:\n\n```diff\n" GIT("x") NAMES("x") "@@ -1,1 +1,1 @@\n-a\n+b\n```\n- I fixed it\n", "modify x>x (1,1 1,1 -a|+b|)" },
                { "fence not closed", REPAIR, "~~~\n" NAMES("x") "@@ -1 +1 @@\n-a\n+b", "modify x>x (1,1 1,1 -a|+b|)" },
                { "crlf", REPAIR, "--- a/x\r\n+++ b/x\r\n@@ -1 +1 @@\r\n-a\r\n+b\r\n", "modify x>x (1,1 1,1 -a|+b|)" },
                { "counts", REPAIR, NAMES("x") "@@ -3,7 +3,9 @@\n a\n-b\n+c\n d\n" NAMES("y") "@@ -1,2 +1 @@\n-a\n+b\n", "modify x>x (3,3 3,3  a|-b|+c| d|); modify y>y (1,1 1,1 -a|+b|)" },
                { "blank context lost at the end", REPAIR, NAMES("x") "@@ -3,3 +3,3 @@\n a\n-b\n+c", "modify x>x (3,3 3,3  a|-b|+c| |)" },
                { "no numbers", REPAIR, NAMES("x") "@@ def f():\n a\n-b\n+c\n", "modify x>x (0,2 0,2  a|-b|+c|)" },
                { "no prefix", REPAIR, "diff --git src/x src/x\n--- src/x\n+++ src/x\n@@ -1 +1 @@\n-a\n+b\n", "modify src/x>src/x (1,1 1,1 -a|+b|)" },
                { "no prefix, new", REPAIR, "--- /dev/null\n+++ src/x\n@@ -0,0 +1 @@\n+b\n", "create ->src/x (0,0 1,1 +b|)" },
                { "no mode line", REPAIR, GIT("x") "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", "create ->x (0,0 1,1 +b|)" },
                { "nothing but the git line", REPAIR, GIT("x") "@@ -1 +1 @@\n-a\n+b\n", "modify x>x (1,1 1,1 -a|+b|)" },
                { "signature", REPAIR, NAMES("x") "@@ -1,9 +1,9 @@\n a\n-b\n+c\n-- \n2.39.5\n\n", "modify x>x (1,2 1,2  a|-b|+c|)" },
        };
        check(cases, ARRAY_SIZE(cases));
}

static void refusals_name_path_and_line(void **state) {
        static const struct parse_case cases[] = {
                { "dotdot", REPAIR, NAMES("../x") "@@ -1 +1 @@\n-a\n+b\n", "refused: the patch names \"../x\" at line 1, which is refused: it leaves the tree with \"..\"" },
                { "absolute", REPAIR, "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "refused: the patch names \"/etc/passwd\" at line 1, which is refused: it is absolute" },
                { "absolute, strict", STRICT, "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n", "refused: the patch names \"/etc/passwd\" at line 1, which is refused: it is absolute" },
                { "git", STRICT, GIT("x") NAMES("x") "@@ -1 +1 @@\n-a\n+b\n" GIT(".git/hooks/pre-commit") "new file mode 100755\n--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+x\n",
                  "refused: the patch names \".git/hooks/pre-commit\" at line 7, which is refused: it names the repository's own .git" },
                { "rename to", STRICT, "diff --git a/o b/n\nrename from o\nrename to a/../../n\n", "refused: the patch names \"a/../../n\" at line 1, which is refused: it leaves the tree with \"..\"" },
                { "device", STRICT, GIT("d") "new file mode 060644\n", "refused: file mode 60644 at line 2 of the patch is refused" },
                { "quoted nul", STRICT, "--- \"a/x\\000y\"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "refused: a name with a NUL byte at line 1 of the patch" },
        };
        check(cases, ARRAY_SIZE(cases));
}

static void what_is_no_patch_is_said_to_be_none(void **state) {
        static const struct parse_case cases[] = {
                { "prose", REPAIR, "I could not fix it.\n", "bad: this is not a patch: no file header in 20 bytes" },
                { "headless", STRICT, "@@ -1 +1 @@\n-a\n+b\n", "bad: a hunk without a file header at line 1 of the patch" },
                { "nothing", STRICT, GIT("x") "index 1..2\n", "bad: x: the section at line 1 changes nothing" },
                { "two names", STRICT, "diff --git a/x b/y\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "bad: a section with two file names that is no rename at line 4 of the patch" },
                { "names disagree", STRICT, "diff --git a/o b/n\nrename from o\nrename to n\n--- a/q\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n", "bad: an old file name that does not agree with the header at line 6 of the patch" },
                { "no change", REPAIR, NAMES("x") "@@ -1 +1 @@\n a\n", "bad: x: the hunk at line 3 changes nothing" },
        };
        check(cases, ARRAY_SIZE(cases));
}

static void too_many_files_are_refused(void **state) {
        struct buf b = BUF_INIT(8u << 20);
        for (unsigned i = 0; i <= PATCH_FILES_MAX; i++)
                assert_int_equal(buf_printf(&b, "diff --git a/f%u b/f%u\nnew file mode 100644\n", i, i), 0);
        struct patch p = { 0 };
        struct error e;
        assert_int_equal(patch_parse(b.data, b.len, STRICT, &p, &e), -EPERM);
        assert_string_equal(e.text, "the patch touches more than 10000 files (line 20001)");
        assert_int_equal(patch_parse(b.data, b.len - 40, STRICT, &p, &e), 0);
        patch_release(&p);
        buf_release(&b);
}


static void binary_bodies_are_read(void **state) {
        static const char text[] = GIT("b") "new file mode 100644\nindex 0000000000000000000000000000000000000000..85025d98693fe77b700bcf818dfd8fcd13c4e961\nGIT binary patch\n"
                "literal 5\nMcmZQzWMXCk000>P3jhEB\n\nliteral 0\nHcmV?d00001\n\n";
        struct patch p = { 0 };
        struct error e;
        int r = patch_parse(text, sizeof text - 1, STRICT, &p, &e);
        if (r < 0)
                fail_msg("%s", e.text);
        assert_int_equal(p.files[0].binary_len, 5);
        patch_release(&p);
        static const char bomb[] = GIT("b") "new file mode 100644\nGIT binary patch\nliteral 999999999999\nHcmV?d00001\n\n";
        assert_int_equal(patch_parse(bomb, sizeof bomb - 1, STRICT, &p, &e), -EPERM);
        static const char lie[] = GIT("b") "new file mode 100644\nGIT binary patch\nliteral 3\nHcmV?d00001\n\n";
        assert_int_equal(patch_parse(lie, sizeof lie - 1, STRICT, &p, &e), -EBADMSG);
}

static void blobs_are_named_as_git_names_them(void **state) {
        char oid[41], big[1000];
        patch_blob_oid("", 0, oid);
        assert_string_equal(oid, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        patch_blob_oid("hello\n", 6, oid);
        assert_string_equal(oid, "ce013625030ba8dba906f756967f9e9ca394464a");
        memset(big, 'x', sizeof big);
        patch_blob_oid(big, sizeof big, oid);
        assert_string_equal(oid, "14c7dfdd4258dec5c0e9d2e919bd249bd674be1f");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(git_sections_are_read),
                cmocka_unit_test(plain_diffs_are_read),
                cmocka_unit_test(strict_refuses_what_repair_reads),
                cmocka_unit_test(mangled_patches_are_repaired),
                cmocka_unit_test(refusals_name_path_and_line),
                cmocka_unit_test(what_is_no_patch_is_said_to_be_none),
                cmocka_unit_test(too_many_files_are_refused),
                cmocka_unit_test(binary_bodies_are_read),
                cmocka_unit_test(blobs_are_named_as_git_names_them),
        };
        return cmocka_run_group_tests_name("score/patch_parse", tests, NULL, NULL);
}
