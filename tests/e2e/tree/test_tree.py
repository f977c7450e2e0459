"""The prepared tree: what is in it, and what making it shares, remembers and leaves."""
import subprocess
import threading

from tree_harness import COMMIT_TIME


def test_a_commit_becomes_a_tree_with_one_commit(store, repo):
    first = repo.commit({"a.txt": "one\n", "dir/b.sh": "#!/bin/sh\n"})
    repo.git("tag", "-a", "v1", "-m", "v1")
    repo.commit({"a.txt": "two\n", "later": "x"})
    got = store.get(1, repo.path, first)
    assert got.commit == first and got.tree_hash == repo.git("rev-parse", first + "^{tree}") and not got.cached
    assert store.out(1, "cat /testbed/a.txt; ls -A /testbed") == "one\n.git\na.txt\ndir\n"
    assert store.out(1, "cd /testbed && git status --porcelain && git rev-parse HEAD && git log --all --format=%H && git tag && git remote && git branch") == (
        f"{first}\n{first}\n* (no branch)\n")
    objects = store.out(1, "cd /testbed && git cat-file --batch-check='%(objecttype)' --batch-all-objects | sort | uniq -c | tr -s ' '")
    assert objects == " 2 blob\n 1 commit\n 2 tree\n"
    assert store.out(1, "ls /testbed/.git; cat /testbed/.git/config") == (
        "HEAD\nconfig\nindex\nobjects\nrefs\nshallow\n[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n")


def test_base_files_belong_to_root_and_carry_the_commits_time(store, repo):
    got = store.get(1, repo.path, repo.commit({"a": "1", "d/e": "2"}))
    assert got.time == COMMIT_TIME
    assert store.out(1, "cd /testbed && stat -c '%u %g %Y' a d d/e") == f"0 0 {COMMIT_TIME}\n" * 3


def test_a_commit_of_this_second_is_dated_before_any_patch(store, repo):
    repo.write({"a": "1"})
    repo.git("add", "-A")
    subprocess.run(["git", "commit", "-qm", "now"], cwd=repo.path, check=True,
                   env={"PATH": "/usr/bin:/bin", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"})
    store.get(1, repo.path, "HEAD")
    mtime, now = store.out(1, "stat -c %Y /testbed/a; date +%s").split()
    assert int(mtime) < int(now) - 1


def test_the_second_request_makes_nothing(fresh, repo):
    commit = repo.commit({"a": "1"})
    first = fresh.get(1, repo.path, commit)
    fresh.release(1)
    second = fresh.get(2, repo.path, commit)
    assert second.cached and second.layer == first.layer and fresh.layers() == [first.layer]


def test_runs_do_not_see_each_other(store, repo):
    store.get(1, repo.path, repo.commit({"a": "1"}))
    assert store.out(1, "echo changed >/testbed/a; rm -rf /testbed/.git; echo new >/testbed/new; cat /testbed/a") == "changed\n"
    assert store.out(1, "cat /testbed/a; ls -A /testbed") == "1.git\na\n"


def test_names_are_resolved_for_each_request(store, repo):
    first = repo.commit({"a": "1"})
    repo.git("tag", "-a", "v1", "-m", "annotated")
    assert store.get(1, repo.path, "main").commit == first
    second = repo.commit({"a": "2"})
    assert store.get(2, repo.path, "main").commit == second
    assert store.get(3, repo.path, "HEAD").commit == second
    assert store.get(4, repo.path, "v1").commit == first
    assert store.get(5, repo.path, first[:10]).commit == first
    assert store.get(6, repo.path, first.upper()).commit == first


def test_a_commit_at_no_tip_and_a_pull_request_head(store, repo):
    repo.commit({"a": "1"})
    repo.git("checkout", "-q", "--detach")
    lost = repo.commit({"a": "lost"})
    pull = repo.commit({"a": "pull"})
    repo.git("checkout", "-q", "main")
    repo.git("update-ref", "refs/pull/7/head", pull)
    assert store.get(1, repo.path, lost).commit == lost
    assert store.out(1, "cat /testbed/a") == "lost"
    assert store.get(2, repo.path, "refs/pull/7/head").commit == pull
    assert store.get(3, repo.path, "pull/7/head").commit == pull


def test_a_shallow_source_is_a_source(store, repo, place):
    repo.commit({"a": "1"})
    tip = repo.commit({"a": "2"})
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repo.path}", place / "shallow"], check=True, umask=0o022)
    assert store.get(1, place / "shallow", tip).commit == tip
    assert store.out(1, "cat /testbed/a; cd /testbed; git log --format=%H") == f"2{tip}\n"


def test_the_same_repository_by_another_name_is_the_same(store, repo, place):
    commit = repo.commit({"a": "1"})
    (place / "link").symlink_to(repo.path)
    first = store.get(1, repo.path, commit)
    assert store.get(2, f"file://{place}/./link/", commit).layer == first.layer


def test_what_cannot_be_had_has_its_code(fresh, repo, place):
    commit = repo.commit({"a": "1"})
    (place / "empty").mkdir()
    subprocess.run(["git", "init", "-q", place / "nothing"], check=True, umask=0o022)
    a = fresh.acquire(1, repo.path, "0123456789" * 4)
    assert (a.kind, a.code) == ("failed", "commit_not_found")
    a = fresh.acquire(2, repo.path, "no-such-branch")
    assert (a.kind, a.code) == ("failed", "commit_not_found")
    a = fresh.acquire(3, place / "empty", commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable")
    a = fresh.acquire(4, place / "nothing", "HEAD")
    assert (a.kind, a.code) == ("failed", "commit_not_found")
    a = fresh.acquire(5, "http://127.0.0.1:1/x", commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable") and "127.0.0.1" in a.text
    blob = repo.git("rev-parse", commit + ":a")
    a = fresh.acquire(7, repo.path, blob)
    assert (a.kind, a.code) == ("failed", "commit_not_found")
    assert fresh.layers() == []


def test_nothing_of_the_source_repository_runs(store, repo, place):
    mark = "touch /mirror/ran /incoming/ran /tree/ran /testbed/ran; exit 1"
    commit = repo.commit({
        ".gitattributes": "*.txt filter=evil diff=evil\n*.crlf text eol=crlf\n",
        "a.txt": "raw\n", "x.crlf": "a\n",
        ".gitmodules": '[submodule "s"]\n\tpath = s\n\turl = /nowhere\n\tupdate = !touch /testbed/ran\n',
    })
    for key in ("filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "core.sshCommand", "uploadpack.packObjectsHook", "diff.evil.textconv"):
        repo.git("config", key, mark)
    hooks = repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "reference-transaction", "pre-receive", "post-update", "update"):
        (hooks / hook).write_text(f"#!/bin/sh\n{mark}\n")
        (hooks / hook).chmod(0o755)
    store.get(1, repo.path, commit)
    assert store.out(1, "cat /testbed/a.txt; ls -A /testbed; od -An -tx1 /testbed/x.crlf; ls -A / | grep -c '^ran$' || true") == (
        "raw\n.git\n.gitattributes\n.gitmodules\na.txt\nx.crlf\n 61 0d 0a\n0\n")


def test_a_source_that_the_daemon_may_not_read_is_refused(store, open_store, repo, place):
    repo.commit({"a": "1"})
    (place / "secret").mkdir(mode=0o700)
    for url in (f"{place}/secret", "/root", "relative", "ext::sh -c true", "-x", f"{store.home}/trees", "/tmp", "/"):
        assert store.check(url).startswith("repo_url"), url
    assert store.check(repo.path, "-x").startswith("base_commit")
    assert store.check(repo.path) is None
    (place / "inside").mkdir()
    strict = open_store("strict", roots=[place / "inside"])
    assert store.check(f"{place}/absent") is None and strict.check(f"{place}/inside/absent").startswith("repo_url")
    assert strict.check(repo.path).startswith("repo_url")
    (place / "inside/link").symlink_to(repo.path)
    assert strict.check(place / "inside/link").startswith("repo_url")
    assert strict.check(place / "inside") is None
    a = strict.acquire(1, repo.path, "HEAD")
    assert a.kind == "refused" and a.text.startswith("repo_url")


def test_unreadable_objects_are_not_read_on_the_callers_behalf(store, repo):
    commit = repo.commit({"a": "1"})
    (repo.path / ".git").chmod(0o700)
    a = store.acquire(1, repo.path, commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable")


def test_requests_for_one_tree_share_its_making(fresh, repo):
    commit = repo.commit({"a": "1"})
    for n in range(20):
        fresh.ask(n, repo.path, commit, setup="echo made >>/testbed/made")
    answers = [fresh.answer(n) for n in range(20)]
    assert {a.kind for a in answers} == {"got"}
    assert len({(a.layer, a.setup) for a in answers}) == 1 and len(fresh.layers()) == 2


# ---- set-up ----


def test_setup_changes_are_in_the_layer_and_in_every_plane(store, repo):
    commit = repo.commit({"a": "1"})
    got = store.get(1, repo.path, commit, setup="pwd >/where; echo $BRIG_SETUP >>/where; echo x >/usr/local/made; echo y >/opt/made; rm a; id -u >>/where")
    assert store.out(1, "cat /where /usr/local/made /opt/made; ls -A /testbed") == "/testbed\nyes\n0\nx\ny\n.git\n"
    plain = store.get(2, repo.path, commit)
    assert plain.layer == got.layer and plain.setup == "-"
    assert store.out(2, "ls /testbed") == "a\n"


def test_setup_runs_once_and_a_different_one_is_another_layer(store, repo):
    commit = repo.commit({"a": "1"})
    first = store.get(1, repo.path, commit, setup="echo 1 >/one")
    again = store.get(2, repo.path, commit, setup="echo 1 >/one")
    other = store.get(3, repo.path, commit, setup="echo 2 >/two")
    assert again.cached and again.setup == first.setup
    assert other.setup != first.setup and other.layer == first.layer
    assert store.run(3, "cat /one")[0] != 0


def test_a_failed_setup_says_why_and_is_remembered(fresh, repo):
    commit = repo.commit({"a": "1"})
    setup = "echo looking; echo 'no such package: frobnicate' >&2; exit 7"
    a = fresh.acquire(1, repo.path, commit, setup=setup)
    assert (a.kind, a.code) == ("failed", "setup_failed")
    assert "status 7" in a.text and "frobnicate" in a.text and "looking" in a.text
    b = fresh.acquire(2, repo.path, commit, setup=setup)
    assert (b.code, b.text) == (a.code, a.text)
    assert len(fresh.layers()) == 1      # the tree stays


def test_a_setup_that_takes_too_long_is_stopped(fresh, repo):
    a = fresh.acquire(1, repo.path, repo.commit({"a": "1"}), setup="sleep 1000 & sleep 1000", timeout_ms=300)
    assert (a.kind, a.code) == ("failed", "setup_timeout")
    assert len(fresh.layers()) == 1


def test_what_a_setup_leaves_running_is_dead_in_the_layer(store, repo):
    store.get(1, repo.path, repo.commit({"a": "1"}), setup="(while :; do date >/testbed/alive; done) & echo done")
    assert store.out(1, "cat /testbed/alive >/tmp/1; pgrep -c sh || true")


def test_a_cancelled_request_leaves_nothing(fresh, repo):
    commit = repo.commit({"a": "1"})
    fresh.get(1, repo.path, commit)
    fresh.ask(2, repo.path, commit, setup="sleep 1000")
    fresh.cancel(2)
    assert len(fresh.layers()) == 1
    fresh.ask(3, repo.path, commit, setup="sleep 1000")       # the same key works again while the first is being removed
    fresh.ask(4, repo.path, commit, setup="echo ok")
    assert fresh.answer(4).kind == "got"
    fresh.cancel(3)


# ---- keeping ----


def test_layers_survive_a_restart(open_store, repo):
    commit = repo.commit({"a": "1"})
    s = open_store()
    first = s.get(1, repo.path, commit, setup="echo x >/made")
    s.close()
    s = open_store()
    again = s.get(1, repo.path, commit, setup="echo x >/made")
    assert again.cached and (again.layer, again.setup) == (first.layer, first.setup)
    assert s.out(1, "cat /made; cat /testbed/a; cd /testbed; git status --porcelain") == "x\n1"


def test_a_kill_in_the_middle_leaves_no_half_layer(open_store, repo):
    commit = repo.commit({"a": "1"})
    s = open_store()
    tree = s.get(1, repo.path, commit)
    s.ask(2, repo.path, commit, setup="sleep 1000")
    s.get(3, repo.path, commit)                               # the loop has begun with 2
    s.kill()
    s = open_store()
    assert s.layers() == [tree.layer]
    assert s.get(1, repo.path, commit, setup="echo fine >/made").kind == "got"


def test_the_least_used_layer_goes_first_and_never_one_in_use(open_store, repo):
    s = open_store(max_bytes=1)                               # nothing may stay that is not in use
    one, two = repo.commit({"a": "1"}), repo.commit({"a": "2"})
    first = s.get(1, repo.path, one)
    second = s.get(2, repo.path, two)
    assert s.layers() == sorted([first.layer, second.layer])
    s.release(2)
    third = s.get(3, repo.path, one)
    assert third.cached and s.out(1, "cat /testbed/a") == "1"
    again = s.get(4, repo.path, two)
    assert not again.cached and again.layer != second.layer


# ---- hostile contents ----


def evil_commit(repo, mktree):
    tree = repo.git("mktree", "--missing", input=mktree)
    return repo.git("commit-tree", tree, "-m", "evil")


def test_trees_that_no_git_may_check_out_are_refused(fresh, repo):
    repo.commit({"a": "1"})
    blob = repo.git("hash-object", "-w", "--stdin", input="x")
    sub = repo.git("mktree", input=f"100644 blob {blob}\tconfig\n")
    for i, name in enumerate((".git", ".GIT", "..", "git~1")):
        commit = evil_commit(repo, f"040000 tree {sub}\t{name}\n")
        a = fresh.acquire(i, repo.path, commit)
        assert (a.kind, a.code) == ("failed", "repo_unreachable") and "not sound" in a.text, (name, a)
    assert fresh.layers() == []


def test_links_in_a_tree_stay_in_it(store, repo):
    (repo.path / "out").symlink_to("/etc")
    (repo.path / "up").symlink_to("../../../..")
    long = "n" * 255
    commit = repo.commit({f"{long}/{long}": "deep", "line\nbreak": "1", "-rf": "2", "sp ace": "3"})
    store.get(1, repo.path, commit)
    assert store.out(1, f"readlink /testbed/out; cat /testbed/{long}/{long}; stat -c %Y -- '/testbed/-rf' /testbed/out") == f"/etc\ndeep{COMMIT_TIME}\n{COMMIT_TIME}\n"


def test_a_corrupt_source_is_not_joined(fresh, repo):
    commit = repo.commit({"a": "1" * 1000})
    blob = repo.git("rev-parse", commit + ":a")
    path = repo.path / ".git/objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    a = fresh.acquire(1, repo.path, commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable") and fresh.layers() == []


# ---- over the network ----


def test_http_by_hash_and_the_mirror_answers_without_it(store, repo, serve):
    server = serve()
    commit = repo.commit({"a": "1"})
    assert store.get(1, server.url(), commit).commit == commit
    before = len(server.requests)
    old = repo.git("rev-parse", commit)
    assert store.get(2, server.url(), old, path="/elsewhere").commit == commit      # another tree, the same mirror
    assert len(server.requests) == before


def test_http_server_that_shows_only_its_tips(store, repo, serve):
    server = serve(allow_any=False)
    repo.git("config", "uploadpack.allowAnySHA1InWant", "false")
    old = repo.commit({"a": "1"})
    repo.commit({"a": "2"})
    repo.git("checkout", "-q", "--detach")
    pull = repo.commit({"a": "pull"})
    repo.git("checkout", "-q", "main")
    repo.git("update-ref", "refs/pull/7/head", pull)
    assert store.get(1, server.url(), old).commit == old
    assert store.get(2, server.url(), pull).commit == pull


def test_concurrent_requests_share_one_fetch(store, repo, serve):
    server = serve()
    commit = repo.commit({"a": "1"})
    server.gate.clear()
    for n in range(10):
        store.ask(n, server.url(), commit)
    server.reached.acquire(timeout=30)
    server.gate.set()
    assert {store.answer(n).commit for n in range(10)} == {commit}
    assert server.fetches() <= 2, server.requests     # one fetch: ls-refs and pack


def test_credentials_are_used_and_found_nowhere(open_store, repo, serve, place):
    s = open_store()
    server = serve(password="user:hunter2secret")
    commit = repo.commit({"a": "1"})
    with_password = server.url(credentials="user:hunter2secret@")
    a = s.acquire(1, server.url(), commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable")
    assert s.get(2, with_password, commit).commit == commit
    a = s.acquire(3, server.url(credentials="user:wrongsecret@"), commit)      # the mirror has it; access is proved all the same
    assert (a.kind, a.code) == ("failed", "repo_unreachable")
    assert "wrongsecret" not in a.text
    a = s.acquire(4, server.url(), commit)
    assert (a.kind, a.code) == ("failed", "repo_unreachable")
    assert s.get(5, with_password, commit).cached
    s.close()
    found = subprocess.run(["grep", "-rlE", "hunter2secret|wrongsecret", s.home, s.log_path], capture_output=True, text=True)
    assert found.stdout == "" and found.returncode == 1


def test_a_redirect_does_not_get_the_credentials(store, repo, serve, place):
    import http.server
    target = serve(password="user:other")
    seen = []

    class Redirect(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", target.url() + self.path[len("/repo"):])
            self.send_header("Content-Length", "0")
            self.end_headers()

    front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=front.serve_forever, daemon=True).start()
    a = store.acquire(1, f"http://user:hunter2secret@127.0.0.1:{front.server_address[1]}/repo", repo.commit({"a": "1"}))
    front.shutdown()
    front.server_close()
    seen = [auth for _, _, auth in target.requests if auth]
    assert (a.kind, a.code) == ("failed", "repo_unreachable") and target.requests and seen == []


def test_an_open_setup_has_a_link_but_not_the_host(store, repo, serve):
    server = serve()
    commit = repo.commit({"a": "1"})
    reach = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {server.port}), 2)' 2>/dev/null && echo reached >>/net"
    command = f"tail -n +3 /proc/net/dev | cut -d: -f1 | sort >/net; {reach}; true"
    store.get(1, repo.path, commit, setup=command, network="open")
    links = store.out(1, "cat /net").split()
    assert len(links) == 2 and "lo" in links, links
    store.get(2, repo.path, commit, setup=command, network="none")
    assert store.out(2, "cat /net").split() == ["lo"]
    assert server.requests == []
