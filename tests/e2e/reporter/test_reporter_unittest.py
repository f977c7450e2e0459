def cases(tree):
    tree.write("pkg/__init__.py", "")
    tree.write("pkg/test_a.py", """
        import unittest
        class T(unittest.TestCase):
            def test_ok(self): "Says what it does."
            def test_bad(self): self.fail()
            def test_error(self): raise RuntimeError
            @unittest.skip("x")
            def test_skip(self): pass
            @unittest.expectedFailure
            def test_xfail(self): self.fail()
            @unittest.expectedFailure
            def test_xpass(self): pass
            def test_sub(self):
                for i in range(3):
                    with self.subTest(i=i):
                        self.assertNotEqual(i, 1)
        class Broken(unittest.TestCase):
            @classmethod
            def setUpClass(cls): raise RuntimeError
            def test_1(self): pass
            def test_2(self): pass
        class BreaksAfter(unittest.TestCase):
            @classmethod
            def tearDownClass(cls): raise RuntimeError
            def test_1(self): pass
        class TearDown(unittest.TestCase):
            def tearDown(self): raise RuntimeError
            def test_1(self): pass
        """)


def status(phases):
    for bad in "ef":
        if bad in phases[1::2]:
            return bad
    return phases[1::2][:1]


def test_outcomes(tree):
    cases(tree)
    o = tree.run("-v", "pkg.test_a", framework="unittest")
    got = {i.replace("pkg.test_a.", ""): status(p) for i, p in o.tests.items()}
    assert got == {"T.test_ok": "p", "T.test_bad": "f", "T.test_error": "e", "T.test_skip": "s", "T.test_xfail": "x", "T.test_xpass": "f",
                   "T.test_sub": "f", "Broken.test_1": "e", "Broken.test_2": "e", "BreaksAfter.test_1": "e", "TearDown.test_1": "e"}
    assert o.status == 1 == o.end["x"]


def test_both_spellings_of_ids_select(tree):
    cases(tree)
    o = tree.run(framework="unittest", ids=["test_ok (pkg.test_a.T)", "pkg.test_a.T.test_xfail", "test_skip (pkg.test_a.T.test_skip)"])
    assert sorted(o.tests) == ["pkg.test_a.T.test_ok", "pkg.test_a.T.test_skip", "pkg.test_a.T.test_xfail"]
    assert o.status == 0


def test_a_missing_id_does_not_disturb_the_others(tree):
    cases(tree)
    o = tree.run(framework="unittest", ids=["pkg.test_a.T.test_ok", "pkg.test_a.T.test_gone", "pkg.test_a.Gone.test_x"])
    assert list(o.tests) == ["pkg.test_a.T.test_ok"] and o.status == 0


def test_a_name_that_the_command_gives_and_is_not_there_fails_as_without_us(tree):
    cases(tree)
    o = tree.run("pkg.test_a.T.test_ok", "pkg.test_a.T.test_gone", framework="unittest")
    assert o.tests == {"pkg.test_a.T.test_ok": "cp"} and o.status == o.end["x"] == 1
    assert o.missing == ["pkg.test_a.T.test_gone"] and o.of("other") == []


def test_two_missing_names_that_end_alike_are_two(tree):
    cases(tree)
    o = tree.run("pkg.test_a.Gone.test_x", "pkg.test_a.T.test_x", "pkg.test_a.T.test_ok", framework="unittest")
    assert o.missing == ["pkg.test_a.Gone", "pkg.test_a.T.test_x"] or o.missing == ["pkg.test_a.Gone.test_x", "pkg.test_a.T.test_x"]


def test_a_module_that_cannot_be_imported_is_told(tree):
    cases(tree)
    tree.write("pkg/test_b.py", "import nothing_like_it\n")
    o = tree.run(framework="unittest", ids=["pkg.test_a.T.test_ok", "pkg.test_b.T.test_x"])
    assert len(o.of("broken")) == 1 and "nothing_like_it" in o.of("broken")[0]["text"]
    assert o.tests["pkg.test_a.T.test_ok"] == "cp" and o.status == 1


def test_files_mode_runs_whole_modules(tree):
    cases(tree)
    o = tree.run(framework="unittest", ids=["pkg.test_a.T.test_ok"], run="files")
    assert len(o.tests) == 11


def test_discovery_without_names(tree):
    cases(tree)
    assert len(tree.run(framework="unittest").tests) == 11


def test_leaving_by_os_exit_leaves_no_end(tree):
    tree.write("test_a.py", "import os, unittest\nclass T(unittest.TestCase):\n    def test_x(self): os._exit(0)\n")
    o = tree.run("test_a", framework="unittest")
    assert o.status == 0 and o.end is None


def test_a_shadow_of_unittest_does_not_run(tree):
    tree.write("unittest.py", "import os\nos._exit(0)\n")
    tree.write("test_a.py", "import unittest\nclass T(unittest.TestCase):\n    def test_x(self): self.fail()\n")
    assert tree.run("test_a", framework="unittest").status == 1


def test_collecting_only_lists(tree):
    cases(tree)
    o = tree.run("pkg.test_a", framework="unittest", mode="collect")
    assert len(o.ids) == 11 and not o.of("test") and o.end["x"] == 0
