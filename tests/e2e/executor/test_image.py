"""A directory as the image: below a place that the operator names, and nowhere else."""
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest
from brigd import Daemon, Repository


def add_program(root, program):
    """Copies a program with the libraries it needs."""
    needed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for path in [program, *re.findall(r"(/\S+) \(", needed)]:
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)


@pytest.fixture(scope="module")
def images():
    top = pathlib.Path(tempfile.mkdtemp(prefix="brig-images-", dir="/tmp"))
    top.chmod(0o755)
    (top / "small").mkdir()
    for program in ("/bin/sh", "/bin/cat"):
        add_program(top / "small", program)
    (top / "small" / "marker").write_text("of the image\n")
    yield top
    shutil.rmtree(top)


def test_a_directory_is_the_root_of_the_run_and_stays_as_it_is(images):
    with Daemon(BRIG_IMAGE_ROOTS=str(images)) as d:
        repo = Repository(d.top / "repo")
        command = "cat /marker calc.py && echo changed > /marker && cat /marker; cat /usr/bin/python3"
        record = d.result(d.submit(repo.request(image=str(images / "small"), test_command=command)))
        assert record["stdout"].startswith("of the image\ndef add") and record["stdout"].endswith("changed\n"), record
        assert "No such file" in record["stderr"] and record["exit_code"] == 1
        assert (images / "small" / "marker").read_text() == "of the image\n"
        for outside in (images.parent, f"{images}-other"):
            record = d.result(d.submit(repo.request(image=str(outside), test_command="true")))
            assert record["error"]["code"] == "image_not_found", record
