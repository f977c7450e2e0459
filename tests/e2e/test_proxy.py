"""Repositories are fetched through the operator's proxy."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "tree"))
from tree_harness import GitServer  # noqa: E402

ELSEWHERE = "http://nowhere.invalid/repository"      # only the proxy knows where that is


def fetched(d, repository, url):
    return d.result(d.submit(repository.request(repo_url=url, test_command="true")))


def test_a_repository_comes_through_the_proxy_and_its_password_is_shown_nowhere(brig, repository):
    server = GitServer(repository.path.parent)
    try:
        address = ELSEWHERE.replace("repository", repository.path.name)
        d = brig(BRIG_REPO_PROXY=f"http://user:hunter2@127.0.0.1:{server.port}")
        record = fetched(d, repository, address)
        assert record["outcome"] == "resolved", record
        assert any(path.startswith("http://nowhere.invalid/") for _, path, _ in server.requests), server.requests
        assert "hunter2" not in str(record) + d.stderr()
    finally:
        server.stop()


def test_no_proxy_names_what_is_fetched_without_it(brig, repository):
    server = GitServer(repository.path.parent)
    try:
        d = brig(BRIG_REPO_PROXY=f"http://127.0.0.1:{server.port}", BRIG_REPO_NO_PROXY="nowhere.invalid")
        record = fetched(d, repository, ELSEWHERE)
        assert record["error"]["code"] == "repo_unreachable" and server.requests == [], record
    finally:
        server.stop()
