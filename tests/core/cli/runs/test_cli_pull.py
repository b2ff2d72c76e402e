"""`albor runs pull` and the import of run directories: whole, once, read-only, nobody else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import User, tree_hash, valid, validate
from far_host import FarHosts
from real_ssh import CommandServer

from albor_core.integrations.importers.copies.copied_runs import cut_torn, is_wanted
from albor_core.integrations.importers.copies.remote_folder import parse_place
from albor_core.run.errors import UsageError
from albor_core.run.files.ownership import distrust
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal, read_journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.query.reader import Reader
from albor_core.store.watch.watcher import is_watchable

LIVE = """
import sys
from albor_core import track
run = track.start("far", name="live")
run.log({"loss": 3.0}, step=1)
print(run.path, flush=True)
for line in sys.stdin:
    run.log({"loss": 1.0}, step=int(line))
    print("logged", flush=True)
run.close()
"""


@pytest.fixture
def hosts(tmp_path):
    return FarHosts(tmp_path / "hosts")


@pytest.fixture
def near(desk, hosts):
    """This host's user, from whom the others can be reached."""

    class Near(User):
        def environment(self, **more):
            return {**super().environment(), **hosts.environment(), **more}

    return Near(desk.folder, desk.home)


def made(
    user, name, *, steps=5, status="completed", experiment="far", loss=3.0, parent=None, **more
):
    """An ended run of a user, in their home unless `parent` is another folder."""
    os.environ["ALBOR_HOME"], mine = str(user.home), os.environ["ALBOR_HOME"]
    try:
        parent = parent or user.home / "runs"
        about = {"experiment": experiment, "name": name, "kind": "track", "argv": []}
        run = create_run(parent, name, **about)
    finally:
        os.environ["ALBOR_HOME"] = mine
    log(run, *range(1, steps + 1), loss=loss)
    ends(run, status)
    return run


def log(run, *steps, loss=3.0):
    journal = Journal(run.journal, attempt=1)
    journal.append("p", key="lr", value=loss / 10)
    for step in steps:
        journal.metrics(step, {"train/loss": loss - step / 10})
    journal.close()


def ends(run, status="completed"):
    code = 0 if status == "completed" else 1
    write_json(run.exit, {"schema": "albor.exit/1", "attempt": 1, "reason": status, "code": code})


def pulled(near, *words, code=0):
    result = near.quick("runs", "pull", *words, "--json")
    assert result.code == code, result
    return validate(result.document)


def own_files(folder):
    """What a run wrote itself, without the store that is made of it here."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".albor" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def changes(document):
    return {run["run"]: run["change"] for run in document["runs"]}


def points(home, run_id):
    """{step: value} of a run's loss, from its own store in that home."""
    path = Path(read_json(home / "runs" / f"{run_id}.json")["path"])
    with Reader(RunDir(path).store) as reader:
        return {step: value for step, value, _ in reader.points(path.name, "train/loss")}


# -- what comes, and what does not --------------------------------------------------------------


def test_runs_of_a_host_are_listed_here_with_all_their_points(near, hosts):
    far = hosts.add("gpu1")
    made(far, "one-1"), made(far, "two-2", status="failed")
    found = pulled(near, "gpu1")
    assert changes(found) == {"one-1": "new", "two-2": "new"}
    assert {run["run"]: run["status"] for run in found["runs"]} == {
        "one-1": "completed",
        "two-2": "failed",
    }
    assert points(near.home, "one-1") == {step: 3.0 - step / 10 for step in range(1, 6)}
    listed = valid(near.quick("runs", "ls", "--json"))
    assert {run["id"] for run in listed["runs"]} == {"one-1", "two-2"}
    shown = valid(near.quick("runs", "show", "one-1", "--json"))
    assert shown["pulled"]["host"] == "gpu1"
    assert "from gpu1" in near.quick("runs", "show", "one-1").out


def test_a_second_pull_changes_nothing(near, hosts):
    made(hosts.add("gpu1"), "one-1")
    pulled(near, "gpu1")
    before = tree_hash(near.home)
    found = pulled(near, "gpu1")
    assert changes(found) == {"one-1": "unchanged"} and found["runs"][0]["bytes"] == 0
    assert tree_hash(near.home) == before


def test_a_dry_run_says_what_would_come_and_writes_nothing(near, hosts):
    made(hosts.add("gpu1"), "one-1")
    before = tree_hash(near.home)
    found = pulled(near, "gpu1", "--dry-run")
    assert changes(found) == {"one-1": "new"} and found["runs"][0]["files"] >= 3
    assert tree_hash(near.home) == before


def test_what_could_start_or_act_stays_where_it_is(near, hosts):
    run = made(hosts.add("gpu1"), "one-1")
    write_json(run.launch, {"schema": "albor.launch/1", "argv": ["sh", "-c", "touch /tmp/x"]})
    (run.guard / "inbox" / "a.json").write_text("{}")
    (run.checkpoints / "step-00000005").mkdir()
    (run.checkpoints / "step-00000005" / "model.safetensors").write_bytes(b"weights")
    (run.logs / "a0001.log").write_text("a line\n")
    (run.path / "media" / "ab").mkdir(parents=True)
    (run.path / "media" / "ab" / "abcd.png").write_bytes(b"picture")
    (run.path / "notes of mine.txt").write_text("x")
    (run.crash_reports / "secret").symlink_to("/etc/passwd")
    pulled(near, "gpu1")
    copy = near.home / "hosts" / "gpu1" / "one-1"
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()}
    assert {name for name in files if not name.startswith(".albor/")} == {
        "exit.json",
        "journal.jsonl",
        "logs/a0001.log",
        "media/ab/abcd.png",
        "pulled.json",
        "run.json",
    }
    modes = {path.stat().st_mode & 0o077 for path in copy.rglob("*")}
    assert modes == {0}, "the owner's alone"
    pulled(near, "gpu1", "--checkpoints")
    assert (copy / "checkpoints" / "step-00000005" / "model.safetensors").read_bytes() == b"weights"


@pytest.mark.parametrize("by", ["tar", "rsync"])
def test_both_ways_bring_the_same_files(near, hosts, by):
    run = made(hosts.add("gpu1", rsync=by == "rsync"), "one-1", steps=500)
    (run.logs / "a0001.log").write_text("a line\n" * 1000)
    if by == "rsync":
        hosts.put_rsync()
    assert pulled(near, "gpu1")["by"] == by
    log(run, 501, 502)
    assert changes(pulled(near, "gpu1")) == {"one-1": "updated"}
    copy = near.home / "hosts" / "gpu1" / "one-1"
    for name in ("journal.jsonl", "logs/a0001.log", "exit.json", "run.json"):
        assert (copy / name).read_bytes() == (run.path / name).read_bytes(), name
    assert len(points(near.home, "one-1")) == 502


def test_the_real_ssh_client_brings_them_too(near, hosts):
    ssh = shutil.which("ssh")
    if ssh is None:
        pytest.skip("OpenSSH's client is not installed here")
    far = hosts.add("gpu1")
    folder = far.home / "it's $(touch pwned)"
    made(far, "one-1", steps=2000, parent=folder)
    with CommandServer(far.home) as server:
        hosts.put_program("ssh", server.client(ssh))
        assert changes(pulled(near, f"gpu1:{folder}")) == {"one-1": "new"}
        assert changes(pulled(near, "me@gpu1")) == {"one-1": "unchanged"}
    assert len(points(near.home, "one-1")) == 2000
    assert not list(hosts.folder.rglob("pwned"))


def test_a_live_run_comes_in_whole_lines_and_the_rest_next_time(near, hosts):
    far = hosts.add("gpu1")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", LIVE],
        env=far.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        run = RunDir(Path(process.stdout.readline().strip()))
        whole = run.journal.read_bytes()
        torn = b'{"t":"m","seq":99,"attempt":1,"step":2'
        with run.journal.open("ab") as file:
            file.write(torn)
        found = pulled(near, "gpu1")
        copy = RunDir(Path(found["runs"][0]["path"]))
        assert copy.journal.read_bytes() == whole
        assert found["runs"][0]["status"] == "unknown", "it ran when it was pulled"
        with run.journal.open("rb+") as file:
            file.truncate(len(whole))
        for step in (2, 3):
            process.stdin.write(f"{step}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "logged\n"
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    found = pulled(near, "gpu1")
    assert (found["runs"][0]["change"], found["runs"][0]["status"]) == ("updated", "completed")
    assert points(near.home, run.id) == {1: 3.0, 2: 1.0, 3: 1.0}


def test_an_end_never_comes_without_the_lines_before_it(near, hosts, monkeypatch):
    from albor_core.integrations.importers.copies.remote_folder import RemoteFolder

    run = made(hosts.add("gpu1"), "one-1")
    run.exit.unlink()
    fetch = RemoteFolder.fetch

    def ends_meanwhile(self, copies):
        log(run, 6)
        ends(run)
        fetch(self, copies)

    monkeypatch.setattr(RemoteFolder, "fetch", ends_meanwhile)
    copy = RunDir(Path(pulled(near, "gpu1")["runs"][0]["path"]))
    assert not copy.exit.exists() and max(points(near.home, "one-1")) == 6
    monkeypatch.setattr(RemoteFolder, "fetch", fetch)
    assert pulled(near, "gpu1")["runs"][0]["status"] == "completed"


# -- whose run it is ------------------------------------------------------------------------------


def test_runs_of_two_hosts_with_one_id_are_two_runs(near, hosts):
    made(hosts.add("gpu1"), "calm", loss=3.0), made(hosts.add("gpu2"), "calm", loss=7.0)
    mine = made(near, "calm", loss=5.0)
    first, second = pulled(near, "gpu1"), pulled(near, "gpu2")
    host = os.uname().nodename.lower()
    assert set(changes(first)) == {f"calm@{host}"}
    assert set(changes(second)) == {f"calm@{host}-2"}
    assert points(near.home, f"calm@{host}")[1] == 2.9
    assert points(near.home, f"calm@{host}-2")[1] == 6.9
    assert read_json(near.home / "runs" / "calm.json")["path"] == str(mine.path)
    again = pulled(near, "gpu2")
    assert changes(again) == {f"calm@{host}-2": "unchanged"}
    listed = valid(near.quick("runs", "ls", "--json"))
    assert {run["id"] for run in listed["runs"]} == {"calm", f"calm@{host}", f"calm@{host}-2"}


def test_two_runs_with_one_id_on_one_host_do_not_mix(near, hosts):
    far = hosts.add("gpu1")
    one = made(far, "calm", loss=3.0, parent=far.home / "a")
    (far.home / "runs" / "calm.json").rename(far.home / "runs" / "other.json")
    other = made(far, "calm", loss=7.0, parent=far.home / "b")
    assert one.path != other.path
    found = pulled(near, "gpu1")
    losses = {points(near.home, run["run"])[1] for run in found["runs"]}
    assert (len(found["runs"]), losses) == (2, {2.9, 6.9})
    assert set(changes(pulled(near, "gpu1")).values()) == {"unchanged"}


def test_one_run_by_two_names_of_its_host_is_one_run(near, hosts):
    run = made(hosts.add("gpu1"), "one-1")
    hosts.add("gpu1")
    hosts._known["gpu1.example.com"] = hosts._known["gpu1"]
    hosts._homes.write_text(json.dumps(hosts._known))
    pulled(near, "gpu1")
    log(run, 6)
    assert changes(pulled(near, "me@gpu1.example.com")) == {"one-1": "updated"}
    assert len(points(near.home, "one-1")) == 6
    assert [path.name for path in (near.home / "runs").glob("*.json")] == ["one-1.json"]


def test_a_run_that_is_of_this_home_is_left_alone(near, hosts):
    run = made(near, "one-1")
    hosts._known["me"] = (str(near.home), {})
    hosts._homes.write_text(json.dumps(hosts._known))
    before = tree_hash(run.path)
    assert changes(pulled(near, "me")) == {"one-1": "here"}
    assert tree_hash(run.path) == before and not (near.home / "hosts" / "me").exists()


def test_copies_of_other_hosts_are_not_passed_on(near, hosts):
    far, middle = hosts.add("gpu1"), hosts.add("gpu2")
    made(far, "one-1"), made(middle, "two-2")
    between = User(middle.folder, middle.home)
    assert between.quick("runs", "pull", "gpu1", **hosts.environment()).code == 0
    found = pulled(near, "gpu2")
    assert (set(changes(found)), found["skipped"]) == ({"two-2"}, 1)


def test_the_id_of_a_run_whose_folder_is_gone_stays_its_own(near, hosts):
    mine = made(near, "calm", loss=5.0)
    valid(near.quick("db", "rebuild", "--json"))
    shutil.rmtree(mine.path)
    made(hosts.add("gpu1"), "calm", loss=3.0)
    assert set(changes(pulled(near, "gpu1"))) == {f"calm@{os.uname().nodename.lower()}"}
    listed = valid(near.quick("runs", "ls", "--json"))
    assert "calm" in {run["id"] for run in listed["runs"]}


# -- read-only ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "tag", "one-1", "x"),
        ("runs", "note", "one-1", "x"),
        ("runs", "pin", "one-1"),
        ("runs", "rename", "one-1", "x"),
        ("alerts", "ack", "one-1", "all"),
        ("train", "resume", "one-1"),
        ("guard", "pause", "one-1"),
        ("guard", "checkpoint", "one-1"),
        ("guard", "retry", "one-1"),
        ("checkpoints", "prune", "one-1", "--yes"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_copy_is_read_only_and_says_whose_it_is(near, hosts, words):
    run = made(hosts.add("gpu1"), "one-1", status="failed")
    write_json(run.run_json, {**run.metadata(), "kind": "train"})
    alert = {"id": "r@1.5", "rule": "r", "action": "stop", "state": "fired", "message": "m"}
    journal = Journal(run.journal, attempt=1)
    journal.event("andon.alert", step=5, severity="error", **alert)
    journal.close()
    pulled(near, "gpu1")
    copy = near.home / "hosts" / "gpu1" / "one-1"
    before = own_files(copy)
    refused = near.quick(*words, "--json")
    assert refused.code == 8, refused
    assert "pulled from gpu1" in refused.error["message"]
    assert refused.error["hint"].startswith("on gpu1: albor ")
    assert own_files(copy) == before


def test_no_rule_of_a_copy_acts_and_no_guard_takes_it(near, hosts):
    made(hosts.add("gpu1"), "one-1")
    pulled(near, "gpu1")
    copy = RunDir(near.home / "hosts" / "gpu1" / "one-1")
    assert not is_watchable(copy)
    assert "was pulled from gpu1" in distrust(copy)


def test_attention_of_a_copy_is_seen_in_this_home_not_in_the_copy(near, hosts):
    made(hosts.add("gpu1"), "one-1", status="failed")
    pulled(near, "gpu1")
    copy = near.home / "hosts" / "gpu1" / "one-1"
    before = own_files(copy)
    assert near.quick("attention", "one-1").code == 4
    assert near.quick("attention", "ack", "one-1").code == 0
    assert near.quick("attention", "one-1").code == 0
    assert own_files(copy) == before


def test_a_copy_can_be_removed_and_comes_again(near, hosts):
    made(hosts.add("gpu1"), "one-1")
    pulled(near, "gpu1")
    assert near.quick("runs", "rm", "one-1", "--yes").code == 0
    assert changes(pulled(near, "gpu1")) == {"one-1": "new"}


def test_a_rebuild_keeps_copies_and_their_ids(near, hosts):
    made(near, "calm"), made(hosts.add("gpu1"), "calm", loss=3.0)
    (known,) = changes(pulled(near, "gpu1"))
    valid(near.quick("db", "rebuild", "--json"))
    listed = valid(near.quick("runs", "ls", "--json"))
    assert {run["id"] for run in listed["runs"]} == {"calm", known}


# -- what is asked for ----------------------------------------------------------------------------


def test_a_filter_is_that_of_the_list(near, hosts):
    far = hosts.add("gpu1")
    made(far, "good-1", loss=1.0), made(far, "bad-1", status="failed", loss=3.0)
    made(far, "other-1", experiment="else", loss=9.0)
    assert far.quick("runs", "tag", "other-1", "kept").code == 0
    for words, kept in (
        (("status:failed",), {"bad-1"}),
        (("experiment:far", "-name:bad"), {"good-1"}),
        (("train/loss<1",), {"good-1"}),
        (("lr>=0.3",), {"bad-1", "other-1"}),
        (("tag:kept",), {"other-1"}),
        (("experiment:far", "lr:0.3"), {"bad-1"}),
        (("name:nothing",), set()),
    ):
        found = pulled(near, "gpu1", *words, "--dry-run")
        assert set(changes(found)) == kept, words
        assert found["filtered_out"] == 3 - len(kept)


def test_a_folder_a_run_or_a_home_may_be_named(near, hosts):
    far = hosts.add("gpu1")
    folder = far.home / "it's $(touch pwned); a folder"
    run = made(far, "one-1", parent=folder)
    made(far, "two-2")
    shutil.rmtree(far.home / "runs" / "two-2" / ".albor", ignore_errors=True)
    for place in (folder, run.path, f"~/{folder.name}"):
        assert set(changes(pulled(near, f"gpu1:{place}", "--dry-run"))) == {"one-1"}, place
    for place in ("", ":", f":{far.home}", ":~"):
        found = pulled(near, f"gpu1{place}", "--dry-run")
        assert set(changes(found)) == {"one-1", "two-2"}, place
    assert changes(pulled(near, f"gpu1:{folder}")) == {"one-1": "new"}
    assert not list(hosts.folder.rglob("pwned")) and not list(near.folder.rglob("pwned"))


def test_no_name_of_anybody_is_part_of_a_command_line(near, hosts):
    far = hosts.add("gpu1")
    made(far, "one-1", parent=far.home / "$(id)")
    for name in ("$(id)", "-rf", "a;b", "x\ny"):
        shutil.copytree(far.home / "$(id)" / "one-1", far.home / "$(id)" / name)
    found = pulled(near, f"gpu1:{far.home}/$(id)")
    assert set(changes(found)) == {"one-1"}
    assert {tuple(words) for words in hosts.asked()} == {("-T", "--", "gpu1", "sh")}


@pytest.mark.parametrize(
    "place",
    [
        "-oProxyCommand=x",
        "a;b",
        "$(id)",
        "a b",
        "",
        ":/runs",
        "me@-x",
        "/mnt/runs",
        "h:a\nb",
        "[x]",
    ],
)
def test_what_is_not_a_host_is_refused_before_anything_is_asked(near, hosts, place):
    refused = near.quick("runs", "pull", "--json", "--", place)
    assert (refused.code, hosts.asked()) == (2, [])
    assert "cannot pull from" in refused.error["message"]


def test_hosts_as_ssh_knows_them_are_hosts():
    assert parse_place("me@gpu-1.example.com:/data/my runs") == (
        "me@gpu-1.example.com",
        "/data/my runs",
    )
    assert parse_place("[fe80::1%eth0]:runs") == ("[fe80::1%eth0]", "runs")
    assert parse_place("box:a:b") == ("box", "a:b")
    with pytest.raises(UsageError):
        parse_place("[fe80::1")


def test_a_wrong_filter_is_refused_before_anything_is_asked(near, hosts):
    hosts.add("gpu1")
    refused = near.quick("runs", "pull", "gpu1", "lr>=high", "--json")
    assert (refused.code, hosts.asked()) == (2, [])


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_host_that_does_not_answer_is_told_in_its_own_words(near, hosts):
    hosts.add("gpu1")
    refused = near.quick("runs", "pull", "gpu9", "--json")
    assert refused.code == 75
    assert "Could not resolve hostname gpu9" in refused.error["message"]
    assert refused.error["hint"] == "ssh gpu9 true"


def test_a_host_whose_find_cannot_list_is_told_and_not_taken_for_empty(near, hosts):
    made(hosts.add("gpu1"), "one-1")
    find = hosts.folder / "plain-bin" / "find"
    find.unlink()
    find.write_text("#!/bin/sh\necho 'find: unrecognized: -printf' >&2\nexit 1\n")
    find.chmod(0o755)
    refused = near.quick("runs", "pull", "gpu1", "--json")
    assert refused.code == 1 and "find is not GNU's" in refused.error["message"]
    assert refused.error["hint"] == "install findutils on gpu1"


def test_a_folder_that_is_not_there_is_not_found(near, hosts):
    hosts.add("gpu1")
    refused = near.quick("runs", "pull", "gpu1:/no/such", "--json")
    assert (refused.code, refused.error["code"]) == (3, "not_found")


@pytest.mark.parametrize("lie", ["nothing", "no bytes", "a link", "other files"])
def test_a_host_that_lists_a_journal_and_does_not_send_it_is_told_of(near, hosts, lie, monkeypatch):
    from albor_core.integrations.importers.copies import remote_folder

    run = made(hosts.add("gpu1"), "one-1")
    whole = run.journal.read_bytes()
    fetch = remote_folder.RemoteFolder.fetch

    def lies(self, copies):
        run.journal.unlink()
        if lie == "no bytes":
            run.journal.write_bytes(b"")
        elif lie == "a link":
            run.journal.symlink_to("run.json")
        elif lie == "other files":
            (run.path / "system.jsonl").write_bytes(whole)
        fetch(self, copies)

    monkeypatch.setattr(remote_folder.RemoteFolder, "fetch", lies)
    found = pulled(near, "gpu1", code=1)
    ((result,), (problem,)) = found["runs"], found["problems"]
    assert problem["message"].endswith(
        "1 file did not come as listed (journal.jsonl): copy it again"
    )
    copy = RunDir(Path(result["path"]))
    there = [path for path in (copy.run_json, copy.exit) if path.exists()]
    assert result["files"] == len(there)
    assert result["bytes"] == sum(path.stat().st_size for path in there)
    monkeypatch.setattr(remote_folder.RemoteFolder, "fetch", fetch)
    run.journal.unlink(missing_ok=True)
    run.journal.write_bytes(whole)
    assert pulled(near, "gpu1")["runs"][0]["files"] >= 1
    assert len(points(near.home, "one-1")) == 5


def test_a_host_that_sends_more_than_it_listed_is_stopped(near, hosts, monkeypatch):
    from albor_core.integrations.importers.copies import remote_folder

    run = made(hosts.add("gpu1"), "one-1")
    (run.path / "config.yaml").write_text("a: 1\n")
    endless = remote_folder._FILES + "cat /dev/zero\n"
    monkeypatch.setattr(remote_folder, "_FILES", endless)
    refused = near.quick("runs", "pull", "gpu1", "--json")
    assert (refused.code, refused.error["code"]) == (75, "try_again")
    assert "more than it listed" in refused.error["message"]


def test_a_file_that_is_larger_than_listed_does_not_come_by_half(near, hosts, monkeypatch):
    from albor_core.integrations.importers.copies import remote_folder

    run = made(hosts.add("gpu1"), "one-1")
    fetch = remote_folder.RemoteFolder.fetch
    (run.path / "config.yaml").write_text("a: 1\n")

    def grows(self, copies):
        (run.path / "config.yaml").write_text("a: 1\nb: 2\n")
        fetch(self, copies)

    monkeypatch.setattr(remote_folder.RemoteFolder, "fetch", grows)
    found = pulled(near, "gpu1", code=1)
    assert "(config.yaml)" in found["problems"][0]["message"]
    assert not (Path(found["runs"][0]["path"]) / "config.yaml").exists()


def test_a_plan_is_a_dry_run_and_names_the_folders_of_the_copies(near, hosts):
    made(hosts.add("gpu1"), "one-1")
    plan = pulled(near, "gpu1", "--plan")
    assert (plan["reads"], plan["problems"]) == (["gpu1:"], [])
    assert not (near.home / "hosts").exists()
    done = pulled(near, "gpu1")
    assert plan["writes"] == [one["path"] for one in done["runs"]]
    assert plan["bytes"] == sum(one["bytes"] for one in done["runs"]) > 0
    again = pulled(near, "gpu1", "--plan")
    assert (again["writes"], again["bytes"]) == ([], 0)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_connection_that_breaks_leaves_nothing_half_and_the_next_pull_the_rest(near, hosts, call):
    made(hosts.add("gpu1", cut=call), "one-1", steps=3000)
    refused = near.quick("runs", "pull", "gpu1", "--json")
    assert (refused.code, refused.error["code"]) == (75, "try_again"), refused
    assert valid(near.quick("runs", "ls", "--json"))["runs"] == []
    hosts.add("gpu1")
    assert changes(pulled(near, "gpu1")) == {"one-1": "new"}
    assert len(points(near.home, "one-1")) == 3000


def test_what_a_shell_says_at_its_start_does_not_matter(near, hosts):
    made(hosts.add("gpu1", banner="Welcome to gpu1\nend\nnone\n{}"), "one-1")
    assert changes(pulled(near, "gpu1")) == {"one-1": "new"}


def test_where_rsync_does_not_understand_the_other_side_tar_brings_it(near, hosts):
    made(hosts.add("gpu1", rsync=True), "one-1")
    hosts.put_program("rsync", "#!/bin/sh\necho 'is your shell clean?' >&2\nexit 2\n")
    found = pulled(near, "gpu1")
    assert (changes(found), found["by"]) == ({"one-1": "new"}, "tar")
    assert len(points(near.home, "one-1")) == 5


def test_a_disk_without_room_is_told_before_anything_is_copied(near, hosts, monkeypatch):
    made(hosts.add("gpu1"), "one-1")
    usage = shutil.disk_usage(near.home)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused = near.quick("runs", "pull", "gpu1", "--json")
    assert refused.code == 1 and "1.00 MiB free" in refused.error["message"]
    assert not (near.home / "hosts" / "gpu1").exists()


def test_a_damaged_run_costs_only_itself(near, hosts):
    far = hosts.add("gpu1")
    made(far, "one-1")
    bad = made(far, "two-2")
    write_json(bad.run_json, {**bad.metadata(), "id": "../one-1"})
    found = pulled(near, "gpu1", code=1)
    assert changes(found) == {"one-1": "new"}
    assert "two-2" in found["problems"][0]["message"]


def test_one_pull_at_a_time(near, hosts, hold):
    import fcntl

    hosts.add("gpu1")
    (near.home / "hosts").mkdir(parents=True)
    with (near.home / "hosts" / ".pull.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert near.quick("runs", "pull", "gpu1", "--json").code == 8


# -- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"", b""),
        (b"a\n", b"a\n"),
        (b"a\nb", b"a\n"),
        (b"b", b""),
        (b"a\n" + b"x" * 200_000, b"a\n"),
    ],
)
def test_a_file_of_lines_is_cut_behind_its_last_whole_one(tmp_path, content, kept):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    os.utime(path, (1000, 1000))
    cut_torn(path)
    assert (path.read_bytes(), path.stat().st_mtime) == (kept, 1000)


@pytest.mark.parametrize(
    "name",
    [
        "guard/launch.json", "guard/inbox/a.json", "run.lock", ".albor/experiments.db", "../x.json",
        "media/../../x", "/etc/passwd", "media/.hidden", "media/a\nb", "media/-rf", "logs/other",
        "pulled.json", "checkpoints/step-00000001/model.safetensors", "media/x.tmp", "other.json",
    ],
)  # fmt: skip
def test_only_files_that_tell_of_a_run_are_wanted(name):
    assert not is_wanted(name, checkpoints=False)


# -- folders of run directories -------------------------------------------------------------------


def brought(near, *words):
    return valid(near.quick("runs", "import", *words, "--json"))


def test_a_folder_of_runs_is_imported_once(near, tmp_path):
    far = User(tmp_path, tmp_path / "old-home")
    run = made(far, "one-1")
    for place in (far.home / "runs", far.home, run.path):
        before = tree_hash(near.home)
        (found,) = brought(near, place)["runs"]
        is_first = place == far.home / "runs"
        assert (found["source"], found["change"]) == ("albor", "new" if is_first else "unchanged")
        assert is_first or tree_hash(near.home) == before
    assert (found["points"], found["last_step"], found["status"]) == (5, 5, "completed")
    log(run, 6)
    (found,) = brought(near, run.path, "--from", "albor")["runs"]
    assert (found["change"], found["points"]) == ("extended", 6)
    assert sum(1 for line in read_journal(Path(found["path"]) / "journal.jsonl") if line.record)


def test_an_older_copy_takes_nothing_back(near, hosts, tmp_path):
    run = made(hosts.add("gpu1"), "one-1")
    shutil.copytree(run.path, tmp_path / "backup" / "one-1")
    log(run, 6, 7)
    pulled(near, "gpu1")
    (found,) = brought(near, tmp_path / "backup")["runs"]
    assert (found["change"], len(points(near.home, "one-1"))) == ("unchanged", 7)


def test_what_cannot_be_done_with_runs_of_albor_is_refused(near, tmp_path):
    far = User(tmp_path, tmp_path / "old-home")
    made(far, "one-1")
    before = tree_hash(near.home)
    for words, code in (
        ((far.home, "--experiment", "x"), 2),
        ((tmp_path / "nowhere", "--from", "albor"), 3),
        ((near.folder, "--from", "albor"), 7),
    ):
        refused = near.quick("runs", "import", *words, "--json")
        assert refused.code == code and refused.error["hint"], words
    assert tree_hash(near.home) == before


def test_a_copy_of_a_killed_run_of_this_host_is_lost_as_the_run_itself_is(near, tmp_path):
    far = User(tmp_path, tmp_path / "old-home")
    words, pipe = [sys.executable, "-c", LIVE], subprocess.PIPE
    script = subprocess.Popen(
        words, env=far.environment(), stdin=pipe, stdout=pipe, text=True, cwd=tmp_path
    )
    assert script.stdout is not None
    folder = Path(script.stdout.readline().strip())
    assert brought(near, folder)["runs"][0]["status"] == "unknown"
    script.kill()
    script.communicate()
    age_state(folder)
    (found,) = brought(near, folder)["runs"]
    assert found["status"] == far.quick("runs", "show", folder.name, "--json").document["status"]
    page = valid(near.quick("runs", "show", folder.name, "--json"))
    assert page["status"] == found["status"] == "lost"
    assert "lost" in near.quick("runs", "ls", "status:lost").out
    Journal(folder / "journal.jsonl", attempt=2).close()
    ends(RunDir(folder), "completed")
    assert near.quick("runs", "show", folder.name, "--json").document["status"] == "unknown", (
        "it has ended there since"
    )


def age_state(folder):
    """As if its last news were an hour old."""
    state = read_json(folder / "training_state.json")
    write_json(folder / "training_state.json", {**state, "wall": state["wall"] - 3600})
