#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strv.h"
#include "score/apply_command.h"
#include "score/apply_job.h"
#include "score/apply_report.h"
#include "score/apply_wire.h"
#include "tree_fixture.h"

#define EDIT(path, old, new) "diff --git a/" path " b/" path "\n--- a/" path "\n+++ b/" path "\n@@ -1 +1 @@\n-" old "\n+" new "\n"
#define NEW(path, line) "diff --git a/" path " b/" path "\nnew file mode 100644\n--- /dev/null\n+++ b/" path "\n@@ -0,0 +1 @@\n+" line "\n"
#define GONE(path, line) "diff --git a/" path " b/" path "\ndeleted file mode 100644\n--- a/" path "\n+++ /dev/null\n@@ -1 +0,0 @@\n-" line "\n"
#define LINK(path, target) "diff --git a/" path " b/" path "\nnew file mode 120000\n--- /dev/null\n+++ b/" path "\n@@ -0,0 +1 @@\n+" target "\n\\ No newline at end of file\n"

/* The whole way: job, frames, report. */
static struct apply_result run_job(struct apply_job *j) {
        struct buf out = BUF_INIT(16u << 20);
        struct apply_result res = { 0 };
        struct error e = { 0 };
        j->out = &out;
        int r = apply_job_run(j, &e);
        if (r == 0) {

                assert_int_equal(frame_adds(&out, FRAME_END, ""), 0);
                r = apply_report_read(out.data, out.len, j->mode, &res, &e);
        }
        if (r < 0)
                fail_msg("%d: %s", r, e.text);
        buf_release(&out);
        return res;
}

static struct apply_result run(struct trees *t, const char *patch, const char *test_patch) {
        struct apply_job j = { .tree = t->live, .base = t->base, .patch = patch, .patch_len = strlen(patch), .test_patch = test_patch, .test_patch_len = strlen(test_patch),
                               .diff = true, .diff_max = 1u << 20 };
        return run_job(&j);
}

static void expect_list(char **list, const char *expect) {
        char text[512] = "";
        for (size_t n = 0; list && *list; list++)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? " " : "", *list);
        assert_string_equal(text, expect);
}

static void expect_finding(const struct apply_result *r, const char *kind, const char *path) {
        for (size_t i = 0; i < r->findings.n; i++)
                if (strcmp(r->findings.items[i].kind, kind) == 0 && r->findings.items[i].path && strcmp(r->findings.items[i].path, path) == 0)
                        return;
        fail_msg("no finding %s of %s among %zu", kind, path, r->findings.n);
}

static void both_patches_are_applied(void **state) {
        struct trees *t = *state;
        put_both(t, "src.py", "a\n");
        put_both(t, "tests/test_x.py", "t\n");
        struct apply_result r = run(t, EDIT("src.py", "a", "b"), EDIT("tests/test_x.py", "t", "u") NEW("tests/new.py", "n"));
        assert_true(r.patch_applied && r.test_patch_applied && !r.patch_refused);
        assert_int_equal(r.rung, RUNG_STRICT);
        expect_list(r.touched, "src.py");
        expect_list(r.test_files, "tests/new.py tests/test_x.py");
        expect_list(r.restored, "");
        assert_int_equal(r.findings.n, 0);
        assert_string_equal(r.diff, "diff --git a/src.py b/src.py\n--- a/src.py\n+++ b/src.py\n@@ -1 +1 @@\n-a\n+b\n");
        expect_text(t->live, "src.py", "b\n");
        expect_text(t->live, "tests/test_x.py", "u\n");
        expect_text(t->live, "tests/new.py", "n\n");
        apply_result_release(&r);
}

static void a_rejected_patch_leaves_base_and_tests(void **state) {
        struct trees *t = *state;
        put_both(t, "src.py", "a\n");
        struct apply_result r = run(t, EDIT("src.py", "q", "b"), NEW("test_x.py", "t"));
        assert_true(!r.patch_applied && !r.patch_refused && r.test_patch_applied);
        assert_non_null(strstr(r.patch_reason, "src.py"));
        expect_text(t->live, "src.py", "a\n");
        expect_text(t->live, "test_x.py", "t\n");
        apply_result_release(&r);
        r = run(t, NEW("../out", "x"), "");
        assert_true(!r.patch_applied && r.patch_refused);
        apply_result_release(&r);
}

static void edits_of_gold_paths_are_put_back(void **state) {
        struct trees *t = *state;
        put_both(t, "t/a.py", "a\n");
        put_both(t, "t/b.py", "b\n");
        struct apply_result r = run(t, EDIT("t/a.py", "a", "cheat") GONE("t/b.py", "b") NEW("t/c.py", "early"), EDIT("t/a.py", "a", "A") EDIT("t/b.py", "b", "B") NEW("t/c.py", "C"));
        assert_true(r.patch_applied && r.test_patch_applied);
        expect_list(r.restored, "t/a.py t/b.py t/c.py");
        expect_finding(&r, "test_file_edited", "t/c.py");
        assert_int_equal(r.findings.verdict, INTEGRITY_SUSPECT);
        expect_text(t->live, "t/a.py", "A\n");
        expect_text(t->live, "t/b.py", "B\n");
        expect_text(t->live, "t/c.py", "C\n");
        assert_non_null(strstr(r.diff, "+cheat"));
        assert_null(strstr(r.diff, "+C\n"));
        apply_result_release(&r);
}

static void both_sides_of_a_gold_rename_are_put_back(void **state) {
        struct trees *t = *state;
        put_both(t, "old.py", "a\n");
        struct apply_result r = run(t, EDIT("old.py", "a", "x") NEW("new.py", "y"), "diff --git a/old.py b/new.py\nrename from old.py\nrename to new.py\n");
        assert_true(r.test_patch_applied);
        expect_list(r.restored, "new.py old.py");
        expect_text(t->live, "new.py", "a\n");
        assert_false(is_there(t->live, "old.py"));
        apply_result_release(&r);
}

static void a_link_out_of_the_tree_in_place_of_the_tests_is_replaced(void **state) {
        struct trees *t = *state;
        put(t->base, "outside", "safe\n");
        put_both(t, "tests/x.py", "x\n");
        struct apply_result r = run(t, GONE("tests/x.py", "x") LINK("tests", "/tmp"), EDIT("tests/x.py", "x", "X") NEW("tests/sub/brig-new.py", "n"));
        assert_true(r.patch_applied && r.test_patch_applied);
        assert_true(S_ISDIR(mode_of(t->live, "tests")));
        expect_text(t->live, "tests/x.py", "X\n");
        expect_text(t->live, "tests/sub/brig-new.py", "n\n");
        assert_int_equal(access("/tmp/sub/brig-new.py", F_OK), -1);
        apply_result_release(&r);
}

static void a_file_in_place_of_a_new_test_directory_is_removed(void **state) {
        struct trees *t = *state;
        struct apply_result r = run(t, NEW("tests", "in the way"), NEW("tests/x.py", "x"));
        assert_true(r.test_patch_applied);
        expect_list(r.restored, "tests/x.py");
        expect_text(t->live, "tests/x.py", "x\n");
        apply_result_release(&r);
}

static void whatever_stands_at_a_gold_path_is_removed(void **state) {
        struct trees *t = *state;
        put(t->live, "dir.py/deep/er", "x\n");
        assert_int_equal(mkfifoat(t->live, "fifo.py", 0600), 0);
        assert_int_equal(symlinkat("/etc/passwd", t->live, "link.py"), 0);
        assert_int_equal(symlinkat("../base", t->live, "dir.py/out"), 0);
        put(t->base, "kept", "k\n");
        struct apply_result r = run(t, "", NEW("dir.py", "d") NEW("fifo.py", "f") NEW("link.py", "l"));
        assert_true(r.test_patch_applied);
        expect_text(t->live, "dir.py", "d\n");
        expect_text(t->live, "fifo.py", "f\n");
        expect_text(t->live, "link.py", "l\n");
        expect_text(t->base, "kept", "k\n");
        apply_result_release(&r);
}

static void a_base_link_at_a_gold_parent_is_no_way_out(void **state) {
        struct trees *t = *state;
        assert_int_equal(symlinkat("../base", t->live, "d"), 0);
        assert_int_equal(symlinkat("../base", t->base, "d"), 0);
        struct apply_result r = run(t, "", NEW("d/x.py", "x"));
        assert_false(r.test_patch_applied);
        assert_non_null(r.test_patch_reason);
        assert_false(is_there(t->base, "x.py"));
        apply_result_release(&r);
}

static void a_gold_patch_that_does_not_apply_is_said(void **state) {
        struct trees *t = *state;
        put_both(t, "test_x.py", "t\n");
        struct apply_result r = run(t, "", EDIT("test_x.py", "q", "u"));
        assert_true(r.patch_applied && !r.test_patch_applied);
        assert_non_null(strstr(r.test_patch_reason, "test_x.py"));
        apply_result_release(&r);
}

static void protected_paths_go_back(void **state) {
        static char *protect[] = { (char *)"data", (char *)"one.txt", NULL };
        static const char patch[] = EDIT("data/a", "a", "x") NEW("data/sub/new", "n") EDIT("one.txt", "1", "2") EDIT("free", "f", "g");
        struct trees *t = *state;
        put_both(t, "data/a", "a\n");
        put_both(t, "one.txt", "1\n");
        put_both(t, "free", "f\n");
        struct apply_job j = { .tree = t->live, .base = t->base, .patch = patch, .patch_len = strlen(patch), .test_patch = "", .protect = protect };
        struct apply_result r = run_job(&j);
        expect_list(r.restored, "data/a data/sub/new one.txt");
        expect_text(t->live, "data/a", "a\n");
        expect_text(t->live, "free", "g\n");
        assert_false(is_there(t->live, "data/sub/new"));
        apply_result_release(&r);
}

static void runner_configuration_goes_back(void **state) {
        struct trees *t = *state;
        put_both(t, "conftest.py", "c\n");
        put_both(t, "pkg/__init__.py", "p\n");
        struct apply_result r = run(t, EDIT("conftest.py", "c", "evil") NEW("sub/conftest.py", "evil") NEW("pytest.ini", "[pytest]") NEW("sitecustomize.py", "evil") NEW("x.pth", "import os") NEW("pytest.py", "evil")
                NEW("_pytest/__init__.py", "evil") NEW("json.py", "shadow") NEW("pkg/json.py", "fine") NEW("pkg/fix.py", "fine") NEW("a/__pycache__/b.cpython-311.pyc", "old"), "");
        expect_list(r.restored, "_pytest/__init__.py a/__pycache__/b.cpython-311.pyc conftest.py pytest.ini pytest.py sitecustomize.py sub/conftest.py x.pth");
        expect_finding(&r, "runner_config_changed", "conftest.py");
        expect_finding(&r, "shadowing_module", "pytest.py");
        expect_finding(&r, "shadowing_module", "json.py");
        expect_finding(&r, "stale_bytecode", "a/__pycache__/b.cpython-311.pyc");
        assert_int_equal(r.findings.n, 9);
        expect_text(t->live, "conftest.py", "c\n");
        expect_text(t->live, "json.py", "shadow\n");
        expect_text(t->live, "pkg/json.py", "fine\n");
        apply_result_release(&r);
}

static void a_link_may_be_a_module_of_the_runners(void **state) {
        struct trees *t = *state;
        struct apply_result r = run(t, NEW("evil/__init__.py", "evil") LINK("pytest", "evil") LINK("json", "evil") LINK("bin", "evil"), "");
        expect_list(r.restored, "pytest");
        expect_list(r.new_modules, "bin evil/__init__.py json pytest");
        expect_finding(&r, "shadowing_module", "pytest");
        expect_finding(&r, "shadowing_module", "json");
        assert_int_equal(r.findings.n, 2);
        assert_false(is_there(t->live, "pytest"));
        apply_result_release(&r);
}

static void what_stands_before_a_module_of_the_base(void **state) {
        struct trees *t = *state;
        static char *protect[] = { (char *)"keep.py", NULL };
        put_both(t, "a/conftest.py", "c\n");
        put_both(t, "a/test_x.py", "t\n");
        put_both(t, "keep.py", "k\n");
        put_both(t, "moved.py", "m\n");
        static const char patch[] = NEW("a/conftest/__init__.py", "evil") NEW("b/conftest.abi3.so", "evil") NEW("a/test_x/__init__.py", "evil") NEW("a/test_x.abi3.so", "evil")
                NEW("a/test_x.gen.py", "fine") NEW("keep/__init__.py", "evil") GONE("moved.py", "m") NEW("moved/__init__.py", "fine");
        struct apply_job j = { .tree = t->live, .base = t->base, .patch = patch, .patch_len = strlen(patch), .test_patch = "", .protect = protect };
        struct apply_result r = run_job(&j);
        expect_list(r.restored, "a/conftest/__init__.py b/conftest.abi3.so keep/__init__.py");
        expect_finding(&r, "runner_config_changed", "a/conftest/__init__.py");
        expect_finding(&r, "runner_config_changed", "b/conftest.abi3.so");
        expect_finding(&r, "shadowing_module", "a/test_x/__init__.py");
        expect_finding(&r, "shadowing_module", "a/test_x.abi3.so");
        expect_finding(&r, "shadowing_module", "keep/__init__.py");
        assert_int_equal(r.findings.n, 5);
        apply_result_release(&r);
}

static void a_directory_does_not_become_a_package_to_hide_a_shadow(void **state) {
        struct trees *t = *state;
        put_both(t, "src/a.py", "a\n");
        put_both(t, "pkg/__init__.py", "p\n");
        struct apply_result r = run(t, NEW("src/__init__.py", "") NEW("src/pytest.py", "evil") NEW("src/attr/__init__.py", "evil") NEW("new/__init__.py", "") NEW("new/pytest.py", "fine")
                NEW("pkg/sub/__init__.py", "") NEW("pkg/sub/pytest.py", "fine") NEW("pkg/b.py", "fine"), "");
        expect_list(r.restored, "src/pytest.py");
        expect_finding(&r, "shadowing_module", "src/attr/__init__.py");
        assert_int_equal(r.findings.n, 2);
        expect_text(t->live, "new/pytest.py", "fine\n");
        expect_text(t->live, "pkg/sub/pytest.py", "fine\n");
        apply_result_release(&r);
}

static void what_is_installed_in_the_tree_goes_back(void **state) {
        struct trees *t = *state;
        put_both(t, ".venv/pyvenv.cfg", "home\n");
        put_both(t, ".venv/lib/python3/site-packages/_pytest/runner.py", "r\n");
        put_both(t, "node_modules/jest/index.js", "j\n");
        put_both(t, "tests/data/site-packages/a.py", "a\n");
        struct apply_result r = run(t, EDIT(".venv/lib/python3/site-packages/_pytest/runner.py", "r", "evil") EDIT(".venv/pyvenv.cfg", "home", "evil") NEW(".venv/bin/python", "evil")
                EDIT("node_modules/jest/index.js", "j", "evil") EDIT("tests/data/site-packages/a.py", "a", "b"), "");
        expect_list(r.restored, ".venv/bin/python .venv/lib/python3/site-packages/_pytest/runner.py .venv/pyvenv.cfg node_modules/jest/index.js");
        expect_finding(&r, "runner_config_changed", ".venv/bin/python");
        expect_text(t->live, "tests/data/site-packages/a.py", "b\n");
        apply_result_release(&r);
}

static void allowed_and_gold_configuration_stays(void **state) {
        static char *allow[] = { (char *)"a/conftest.py", NULL };
        static const char patch[] = NEW("a/conftest.py", "mine") NEW("b/conftest.py", "mine"), gold[] = NEW("b/conftest.py", "gold");
        struct trees *t = *state;
        struct apply_job j = { .tree = t->live, .base = t->base, .patch = patch, .patch_len = strlen(patch), .test_patch = gold, .test_patch_len = strlen(gold), .allow = allow };
        struct apply_result r = run_job(&j);
        expect_list(r.restored, "b/conftest.py");
        expect_text(t->live, "a/conftest.py", "mine\n");
        expect_text(t->live, "b/conftest.py", "gold\n");
        apply_result_release(&r);
}

static void shared_configuration_stays_and_the_base_section_is_handed_over(void **state) {
        struct trees *t = *state;
        put_both(t, "setup.cfg", "[metadata]\n");
        put_both(t, "tox.ini", "[pytest]\n");
        struct apply_result r = run(t, "--- a/setup.cfg\n+++ b/setup.cfg\n@@ -1 +1,2 @@\n [metadata]\n+name = x\n--- a/tox.ini\n+++ b/tox.ini\n@@ -1 +1,2 @@\n [pytest]\n+addopts = -p evil\n" NEW("pyproject.toml", "[tool.pytest.ini_options]"), "");
        expect_list(r.restored, "");
        assert_int_equal(r.n_base_config, 3);
        assert_string_equal(r.base_config[0].path, "pyproject.toml");
        assert_null(r.base_config[0].data);
        assert_string_equal(r.base_config[1].data, "[metadata]\n");
        assert_string_equal(r.base_config[2].data, "[pytest]\n");
        assert_int_equal(r.findings.n, 2);
        expect_finding(&r, "runner_section_changed", "tox.ini");
        expect_finding(&r, "runner_section_changed", "pyproject.toml");
        expect_text(t->live, "tox.ini", "[pytest]\naddopts = -p evil\n");
        apply_result_release(&r);
}

static void a_runner_that_is_the_project_itself_is_no_shadow(void **state) {
        struct trees *t = *state;
        put_both(t, "src/_pytest/__init__.py", "i\n");
        put_both(t, "src/_pytest/a.py", "a\n");
        struct apply_result r = run(t, EDIT("src/_pytest/a.py", "a", "b") NEW("src/_pytest/json.py", "n") EDIT("src/_pytest/__init__.py", "i", "j"), "");
        expect_list(r.restored, "");
        assert_int_equal(r.findings.n, 0);
        apply_result_release(&r);
}

static void the_diff_is_cut_at_its_limit(void **state) {
        struct trees *t = *state;
        static const char patch[] = NEW("a", "1") NEW("b", "2");
        struct apply_job j = { .tree = t->live, .base = t->base, .patch = patch, .patch_len = strlen(patch), .test_patch = "", .diff = true, .diff_max = 100 };
        struct apply_result r = run_job(&j);
        assert_true(r.diff_truncated);
        assert_true(r.diff_len <= 100 && r.diff_len > 0 && r.diff[r.diff_len - 1] == '\n');
        apply_result_release(&r);
}

static void an_undone_patch_is_refused_and_its_paths_go_back(void **state) {
        struct trees *t = *state;
        static const char patch[] = EDIT("a", "1", "2") NEW("b", "x");
        put(t->base, "a", "1\n");
        put(t->live, "a", "half");
        put(t->live, "b", "half");
        struct apply_job j = { .tree = t->live, .base = t->base, .patch = patch, .patch_len = strlen(patch), .test_patch = "", .undo = "too much" };
        struct apply_result r = run_job(&j);
        assert_true(r.patch_refused && !r.patch_applied && r.test_patch_applied);
        assert_string_equal(r.patch_reason, "too much");
        expect_text(t->live, "a", "1\n");
        assert_false(is_there(t->live, "b"));
        apply_result_release(&r);
}

static void restored_files_carry_the_time_of_the_base(void **state) {
        struct trees *t = *state;
        put_both(t, "conftest.py", "c\n");
        const struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
        assert_int_equal(utimensat(t->base, "conftest.py", old, 0), 0);
        struct apply_result r = run(t, EDIT("conftest.py", "c", "d"), "");
        struct stat st;
        assert_int_equal(fstatat(t->live, "conftest.py", &st, 0), 0);
        assert_int_equal(st.st_mtime, 1000);
        apply_result_release(&r);
}

static void a_text_runs_what_it_gives_to_an_interpreter(void **state) {
        static const struct { const char *text; bool runs; } cases[] = {
                {"test:\n\tpython3 ci/run.py -v\n", true}, {"\t@$(PYTHON) -u ci/run.py\n", true}, {"./ci/run.py\n", true}, {"cd ci && python run.py\n", true},
                {"python -m ci.run\n", true}, {"coverage run ci/run.py\n", true}, {"sh -c 'python \"ci/run.py\"'\n", true},
                {"python3 -m flake8 ci/run.py\n", false}, {"all: ci/run.py\n", false}, {"ci/run.py: x\n", false}, {"# see run.py\n", false}, {"python3 ci/run.pyc\n", false},
                {"python3 other/run.py\n", false}, {"python3 ci/rerun.py\n", false}, {"", false},
        };
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
                if (command_text_runs(cases[i].text, strlen(cases[i].text), "ci/run.py") != cases[i].runs)
                        fail_msg("%s", cases[i].text);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, trees_setup, trees_teardown)
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_text_runs_what_it_gives_to_an_interpreter),
                T(both_patches_are_applied), T(a_rejected_patch_leaves_base_and_tests), T(edits_of_gold_paths_are_put_back), T(both_sides_of_a_gold_rename_are_put_back),
                T(a_link_out_of_the_tree_in_place_of_the_tests_is_replaced), T(a_file_in_place_of_a_new_test_directory_is_removed), T(whatever_stands_at_a_gold_path_is_removed),
                T(a_base_link_at_a_gold_parent_is_no_way_out), T(a_gold_patch_that_does_not_apply_is_said), T(protected_paths_go_back), T(runner_configuration_goes_back), T(a_link_may_be_a_module_of_the_runners),
                T(what_stands_before_a_module_of_the_base), T(a_directory_does_not_become_a_package_to_hide_a_shadow), T(what_is_installed_in_the_tree_goes_back),
                T(allowed_and_gold_configuration_stays), T(shared_configuration_stays_and_the_base_section_is_handed_over), T(a_runner_that_is_the_project_itself_is_no_shadow),
                T(the_diff_is_cut_at_its_limit), T(an_undone_patch_is_refused_and_its_paths_go_back), T(restored_files_carry_the_time_of_the_base),
        };
        return cmocka_run_group_tests_name("score/apply_job", tests, NULL, NULL);
}
