import os

import pytest


def test_outcomes_of_all_phases(tree):
    tree.write("test_a.py", """
        import pytest
        def test_ok(): pass
        def test_bad(): assert 0
        @pytest.mark.skip(reason="x")
        def test_skip(): pass
        @pytest.mark.xfail
        def test_xfail(): assert 0
        @pytest.mark.xfail
        def test_xpass(): pass
        @pytest.mark.xfail(strict=True)
        def test_strict(): pass
        @pytest.fixture
        def broken(): raise RuntimeError
        def test_setup(broken): pass
        @pytest.fixture
        def breaks_after():
            yield
            raise RuntimeError
        def test_teardown(breaks_after): pass
        """)
    o = tree.run("-q", "-p", "no:cacheprovider")
    assert o.tests == {
        "test_a.py::test_ok": "spcptp", "test_a.py::test_bad": "spcftp", "test_a.py::test_skip": "sstp", "test_a.py::test_xfail": "spcxtp",
        "test_a.py::test_xpass": "spcXtp", "test_a.py::test_strict": "spcftp", "test_a.py::test_setup": "sftp",
        "test_a.py::test_teardown": "spcptf"}
    assert o.end["x"] == o.status == 1 and o.end["tests"] == 8 and o.end["bad"] == 4
    assert o.events[0]["e"] == "start" and o.events[0]["tree"] == []


def test_selection_by_ids_with_spaces_brackets_and_cut_off_ones(tree):
    tree.write("tests/test_a.py", """
        import pytest
        @pytest.mark.parametrize("v", ["a b", "x[y]", "a - b", "long one", "long two", "é\\n"])
        def test_p(v): pass
        def test_other(): pass
        class TestC:
            def test_m(self): pass
        """)
    o = tree.run("tests/test_a.py::test_p[a b]", "./tests/test_a.py::test_p[x[y]]", "tests/test_a.py::test_p[long ", "tests/test_a.py::TestC",
                 "tests/test_a.py::gone", "tests/nowhere.py::test_x", "[100%]")
    assert sorted(o.tests) == ["tests/test_a.py::TestC::test_m", "tests/test_a.py::test_p[a b]", "tests/test_a.py::test_p[long one]",
                               "tests/test_a.py::test_p[long two]", "tests/test_a.py::test_p[x[y]]"]
    assert o.status == o.end["x"] == 4 and o.end["tests"] == 5   # as pytest has it where a named test is not found
    assert o.missing == ["tests/nowhere.py::test_x", "tests/test_a.py::gone"]


def test_all_that_is_named_being_there_is_a_pass(tree):
    tree.write("test_a.py", "import pytest\nclass TestC:\n    def test_m(self): pass\n@pytest.mark.parametrize('v', ['a b', 'c'])\ndef test_p(v): pass\n")
    o = tree.run("test_a.py", "test_a.py::TestC", "./test_a.py::test_p", "test_a.py::test_p[a b]", "test_a.py::test_p[a ")
    assert len(o.tests) == 3 and o.status == o.end["x"] == 0 and o.missing == []


def test_when_nothing_that_is_named_is_there_the_status_is_the_runners_own(tree):
    tree.write("test_a.py", "def test_x(): pass\n")
    for names in (["test_a.py::gone"], ["nowhere.py::test_x"]):
        o = tree.run(*names)
        assert (o.status, o.missing, o.tests) == (4, names, {})


def test_a_missing_name_is_told_in_files_mode_too(tree):
    tree.write("test_a.py", "def test_x(): pass\ndef test_y(): pass\n")
    o = tree.run("test_a.py::test_x", "test_a.py::gone", run="files")
    assert len(o.tests) == 2 and o.missing == ["test_a.py::gone"] and o.status == 4
    assert tree.run("test_a.py::test_x", run="files").status == 0


def test_ids_of_the_plan_select_and_files_mode_runs_whole_files(tree):
    tree.write("test_a.py", "def test_x(): pass\ndef test_y(): pass\n")
    tree.write("test_b.py", "def test_z(): pass\n")
    assert list(tree.run(ids=["test_a.py::test_y"]).tests) == ["test_a.py::test_y"]
    assert list(tree.run(ids=["test_a.py::test_y"], run="files").tests) == ["test_a.py::test_x", "test_a.py::test_y"]


def test_no_id_that_exists_runs_nothing(tree):
    tree.write("test_a.py", "def test_x(): pass\n")
    o = tree.run(ids=["test_gone.py::test_y"])
    assert o.tests == {} and o.status == 5 == o.end["x"]


def test_a_file_that_cannot_be_imported_is_told_and_the_others_run(tree):
    tree.write("test_a.py", "import nothing_like_it\ndef test_x(): pass\n")
    tree.write("test_b.py", "def test_z(): pass\n")
    o = tree.run("--continue-on-collection-errors", ids=["test_a.py::test_x", "test_b.py::test_z"])
    assert [e["path"] for e in o.of("broken")] == ["test_a.py"] and "nothing_like_it" in o.of("broken")[0]["text"]
    assert o.tests == {"test_b.py::test_z": "spcptp"}


def test_a_file_skipped_as_a_whole_is_told(tree):
    tree.write("test_a.py", "import pytest\npytest.skip('no', allow_module_level=True)\n")
    o = tree.run()
    assert [e["path"] for e in o.of("skipped")] == ["test_a.py"]


def test_class_setup_failure_is_an_error_of_each_test(tree):
    tree.write("test_a.py", """
        import unittest
        class T(unittest.TestCase):
            @classmethod
            def setUpClass(cls): raise RuntimeError
            def test_1(self): pass
            def test_2(self): pass
        """)
    assert set(p[:2] for p in tree.run().tests.values()) == {"sf"}


def test_leaving_by_os_exit_leaves_no_end(tree):
    tree.write("test_a.py", "import os\ndef test_x(): pass\ndef test_y(): os._exit(0)\ndef test_z(): pass\n")
    o = tree.run()
    assert o.status == 0 and o.end is None
    assert o.tests == {"test_a.py::test_x": "spcptp"} and [e["i"] for e in o.of("run")] == [0, 1]


def test_leaving_at_import_leaves_no_end(tree):
    tree.write("test_a.py", "import os\nos._exit(0)\n")
    o = tree.run()
    assert o.status == 0 and o.end is None and not o.of("collected")


def test_atexit_does_not_change_the_status(tree):
    tree.write("test_a.py", "import atexit, os\natexit.register(os._exit, 0)\ndef test_x(): assert 0\n")
    o = tree.run()
    assert o.status == 1 == o.end["x"]


def test_patched_modules_and_builtins_do_not_reach_the_reporter(tree):
    tree.write("test_a.py", """
        import builtins, json, os, pytest, time
        @pytest.mark.xfail
        def test_x():
            def no(*a, **k): raise RuntimeError
            json.dumps = json.loads = time.perf_counter = time.time = os.write = no
            real = hasattr
            builtins.hasattr = lambda o, name: name != "wasxfail" and real(o, name)
            assert 0
        """)
    o = tree.run("-p", "no:cacheprovider")
    assert o.tests == {"test_a.py::test_x": "spcxtp"}
    assert o.end is not None, o.out + o.err
    assert o.end["x"] == 0


def test_a_fork_of_the_runner_reports_nothing(tree):
    tree.write("test_a.py", """
        import os
        def test_x():
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
        def test_y(): pass
        """)
    o = tree.run("-p", "no:cacheprovider")
    assert o.tests == {"test_a.py::test_x": "spcptp", "test_a.py::test_y": "spcptp"} and o.end["tests"] == 2


def test_children_do_not_inherit_the_channel_nor_see_the_plan(tree):
    tree.write("test_a.py", """
        import os, subprocess, sys
        def test_x():
            listed = subprocess.check_output(["/bin/ls", "/proc/self/fd"], close_fds=False).decode().split()
            assert all(int(fd) < 100 for fd in listed), listed
        """)
    o = tree.run()
    assert o.tests == {"test_a.py::test_x": "spcptp"}, o.out


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "pytest.py", "_pytest/__init__.py", "json.py", "unittest.py", "site.py",
                                  "pluggy.py", "encodings/__init__.py"])
def test_shadowing_modules_of_the_tree_do_not_run_before_the_runner(tree, name):
    tree.write(name, "import os\nos._exit(0)\n")
    tree.write("test_a.py", "def test_x(): assert 0\n")
    o = tree.run(distrust=[name], env={})
    assert o.status == 1 and o.tests == {"test_a.py::test_x": "spcftp"}, o.err


def test_a_path_entry_of_the_image_into_the_tree_does_not_honour_its_sitecustomize(tree, tmp_path):
    """What `pip install -e` leaves in site-packages."""
    venv = tmp_path / "venv"
    import subprocess
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", "--system-site-packages", str(venv)], check=True)
    packages = next(venv.glob("lib/python3*/site-packages"))
    (packages / "editable.pth").write_text(str(tree.path) + "\n")
    tree.write("sitecustomize.py", "import os\nos._exit(0)\n")
    tree.write("test_a.py", "import sys\ndef test_x(): assert sys.prefix == %r\n" % str(venv))
    tree.python = str(venv / "bin" / "python")
    o = tree.run()
    assert o.tests == {"test_a.py::test_x": "spcptp"}, o.out + o.err


def test_a_tree_that_is_a_part_of_the_runner_is_what_gets_tested(tree):
    """The project under test is pluggy: its tests must see the tree's copy."""
    import pluggy
    source = os.path.dirname(pluggy.__file__)
    for name in os.listdir(source):
        if name.endswith(".py"):
            tree.write("pluggy/" + name, open(os.path.join(source, name)).read())
    tree.write("test_a.py", "import pluggy, os\ndef test_x(): assert pluggy.__file__ == os.path.abspath('pluggy/__init__.py')\n")
    o = tree.run()
    assert o.tests == {"test_a.py::test_x": "spcptp"}, o.out + o.err
    assert o.events[0]["tree"] == ["pluggy"]


def test_the_path_and_main_module_are_those_of_python_m(tree):
    tree.write("lib/helper.py", "x = 1\n")
    tree.write("test_a.py", """
        import os, sys, helper
        def test_x():
            assert sys.path[0] in (os.getcwd(), os.path.dirname(os.path.abspath(__file__)))
            assert os.getcwd() in sys.path and os.environ["PYTHONPATH"] == "lib"
            assert not [p for p in sys.path if p.endswith("score/python")]
            assert sys.modules["__main__"].__file__.endswith("pytest/__main__.py")
            import multiprocessing
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.apply(os.getpid) != os.getpid()
        """)
    o = tree.run(environment={"PYTHONPATH": "lib"})
    assert o.tests == {"test_a.py::test_x": "spcptp"}, o.out + o.err


def test_redirections_are_done(tree):
    tree.write("test_a.py", "import sys\ndef test_x(): pass\n")
    o = tree.run("-q", redirects=[[1, ">", "out.txt"], [2, ">&", "1"]])
    assert o.out == o.err == "" and "1 passed" in (tree.path / "out.txt").read_text()


def test_the_runners_section_of_a_shared_file_is_read_as_at_base(tree):
    tree.write("src/lib.py", "x = 1\n")
    patched = '[tool.pytest.ini_options]\npython_functions = "nothing_*"\naddopts = "-p no:nothing --deselect test_a.py::test_x"\n'
    tree.write("pyproject.toml", patched)
    tree.write("test_a.py", "import lib\ndef test_x(): pass\ndef check_y(): pass\n")
    base = '[tool.pytest.ini_options]\npythonpath = ["src"]\npython_functions = ["test_*", "check_*"]\n'
    o = tree.run(base_config=[["pyproject.toml", base]])
    assert o.tests == {"test_a.py::test_x": "spcptp", "test_a.py::check_y": "spcptp"}, o.out + o.err
    assert (tree.path / "pyproject.toml").read_text() == patched
    assert not list(tree.path.glob(".brig*"))
    assert tree.run().status != 0


def test_a_section_that_base_does_not_have_is_not_read(tree):
    tree.write("setup.cfg", "[tool:pytest]\naddopts = --collect-only\n")
    tree.write("tests/test_a.py", "def test_x(): pass\n")
    o = tree.run("tests/test_a.py", base_config=[["setup.cfg", None]])
    assert o.tests == {"tests/test_a.py::test_x": "spcptp"}, o.out + o.err


def test_ids_are_spelled_from_the_working_directory_when_the_root_is_below(tree):
    tree.write("tests/pytest.ini", "[pytest]\n")
    tree.write("tests/test_a.py", "def test_x(): pass\n")
    assert list(tree.run("tests/test_a.py::test_x").tests) == ["tests/test_a.py::test_x"]


def test_collecting_only_lists(tree):
    tree.write("test_a.py", "def test_x(): raise SystemExit\n")
    o = tree.run(mode="collect")
    assert o.ids == ["test_a.py::test_x"] and not o.of("test") and o.end["x"] == 0


def test_a_usage_error_is_the_runners(tree):
    o = tree.run("--no-such-option")
    assert o.status == 4 == o.end["x"]


def test_an_id_with_odd_characters_is_carried(tree):
    tree.write("test_a.py", """
        import pytest
        @pytest.mark.parametrize("v", ["\\udc80", "é", "a\\tb", "x" * 5000], ids=["\\udc80", "é", "a\\tb", "x" * 5000])
        def test_p(v): pass
        """)
    o = tree.run()
    assert o.end is not None and o.end["tests"] == 4
    assert "test_a.py::test_p[" + "x" * 5000 + "]" in o.ids


def test_many_tests_keep_their_order(tree):
    tree.write("test_a.py", "import pytest\n@pytest.mark.parametrize('v', range(300))\ndef test_p(v): pass\n")
    o = tree.run()
    assert o.ids == ["test_a.py::test_p[%d]" % i for i in range(300)]
    assert [e["i"] for e in o.of("test")] == list(range(300)) and o.of("collected")[0]["count"] == 300
