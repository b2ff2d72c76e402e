"""A run that is gone on with: one run, each step once, whatever became of the attempt before."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core import track
from albor_core.cli.main import cli
from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.status import run_status
from albor_core.feed.runs.listed_status import now_of
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.errors import AlborError, InUseError, NotFoundError, UsageError
from albor_core.run.exit import read_exit
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.attempts import NO_END
from albor_core.store.query.filter import parse_filter
from albor_core.store.query.reader import Reader
from albor_core.track import recorded

ROOT = Path(__file__).resolve().parents[3]
ALBOR = [sys.executable, "-m", "albor_core.cli"]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Not a guarded run, and no index process: a test indexes where it asks."""
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setenv("ALBOR_CONSOLE", "0")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def points(run, key):
    drain_index(RunDir(run.path))
    with Reader(RunDir(run.path).store) as reader:
        return [point[:2] for point in reader.points(run.id, key)]


def row_of(run):
    drain_index(RunDir(run.path))
    with Reader(global_store()) as reader:
        return reader.run(run.id)


def records(run, kind=None):
    found = [line.record for line in read_journal(RunDir(run.path).journal)]
    return [record for record in found if kind is None or record["t"] == kind]


def events(run, name):
    return [e for e in records(run, "e") if e["name"] == name]


def train(run, steps, scale=1.0):
    for step in steps:
        run.log({"loss": scale * step, "lr": 0.1}, step=step)


def killed(tmp_path, body, **settings):
    """A run of id `r` whose program was killed after `body`."""
    code = (
        "import os, sys\n"
        "from albor_core import track\n"
        "from albor_core.guard.process.index_process import IndexProcess\n"
        "IndexProcess.tend = lambda self: None\n"
        f"run = track.start(id='r', resume='allow', **{settings!r})\n{body}\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    return RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / "r")


# -- by its id -----------------------------------------------------------------------------------


def test_an_id_names_the_run(albor_home):
    with track.start(id="mine.1") as run:
        train(run, [1])
    assert (run.id, run.path) == ("mine.1", albor_home / "runs" / "mine.1")


@pytest.mark.parametrize("bad", ["", "../x", "A", "a b", "a@b", "x" * 65, 7])
def test_what_cannot_name_a_run_is_refused_and_nothing_is_made(bad, albor_home):
    with pytest.raises(UsageError, match="cannot name a run"):
        track.start(id=bad)
    assert not albor_home.exists() or not [*albor_home.rglob("run.json")]


def test_an_id_that_exists_is_refused_and_the_refusal_names_the_way():
    run = track.start(id="x")
    run.close()
    before = run.dir.journal.read_bytes()
    with pytest.raises(InUseError, match=r"(?s)exists.*resume='allow'"):
        track.start(id="x")
    assert run.dir.journal.read_bytes() == before


def test_allow_makes_the_run_once_and_goes_on_with_it_then():
    for steps in (range(1, 4), range(4, 7)):
        with track.start(id="x", resume="allow") as run:
            train(run, steps)
    assert points(run, "train/loss") == [(step, float(step)) for step in range(1, 7)]
    row = row_of(run)
    assert (row.attempts, row.ended_status, row.last_step) == (2, "completed", 6)


def test_must_needs_a_run_that_is_there(tmp_path):
    with pytest.raises(NotFoundError, match="no such run"):
        track.start(id="x", resume="must", dir=tmp_path)
    with pytest.raises(UsageError, match="needs the id"):
        track.start(resume="must")
    with pytest.raises(UsageError, match="one of never, allow, must"):
        track.start(id="x", resume="always")
    assert not [*tmp_path.iterdir()]


def test_a_run_elsewhere_is_found_in_its_folder_and_by_the_home(tmp_path, monkeypatch):
    with track.start(id="x", dir=tmp_path / "runs") as run:
        train(run, [1])
    with track.start(id="x", resume="must") as again:
        assert (again.path, again.step) == (run.path, 1)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "another"))
    with track.start(id="x", resume="must", dir=tmp_path / "runs") as again:
        train(again, [2])
    assert (tmp_path / "another" / "runs" / "x.json").is_file()
    assert row_of(again).attempts == 3


def test_a_run_at_work_is_refused_with_who_works_on_it(tmp_path):
    code = (
        "import sys\nfrom albor_core import track\n"
        "run = track.start(id='r')\nprint(1, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "ALBOR_CONSOLE": "0"},
    ) as other:  # fmt: skip
        assert other.stdout.readline() == b"1\n"
        for how in ("never", "allow", "must"):
            with pytest.raises(InUseError, match=f"process {other.pid} works on it"):
                track.start(id="r", resume=how)
        other.communicate(timeout=60)
    with track.start(id="r", resume="must") as run:
        assert run._attempt.attempt == 2


@pytest.mark.slow
def test_programs_that_start_the_same_run_at_once_are_one_at_a_time():
    code = (
        "import sys\nfrom albor_core import track\n"
        "from albor_core.guard.process.index_process import IndexProcess\n"
        "from albor_core.run.errors import InUseError\n"
        "IndexProcess.tend = lambda self: None\n"
        "print(0, flush=True)\nsys.stdin.readline()\n"
        "try:\n    run = track.start(id='r', resume='allow')\n"
        "except InUseError:\n    print('refused', flush=True)\n"
        "else:\n    print('mine', flush=True)\n    sys.stdin.read()\n    run.log({'x': 1.0})\n"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]  # fmt: skip
    for other in others:
        assert other.stdout.readline() == "0\n"
    for other in others:
        other.stdin.write("\n")
        other.stdin.flush()
    said = [other.stdout.readline().strip() for other in others]
    ends = [other.communicate(timeout=60) for other in others]
    assert sorted(said) == ["mine", *["refused"] * 5], ends
    run = RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / "r")
    lines = [line.record for line in read_journal(run.journal)]
    assert [line["seq"] for line in lines] == [*range(1, len(lines) + 1)]
    assert run_status(run).word == "completed"


def test_a_run_that_this_program_tracks_is_refused_and_keeps_its_lock(tmp_path):
    link = tmp_path / "link"
    with track.start(id="x", dir=tmp_path / "runs") as run:
        link.symlink_to(tmp_path / "runs")
        for folder in (None, tmp_path / "runs", link):
            with pytest.raises(InUseError, match="this program tracks it already"):
                track.start(id="x", resume="allow", dir=folder)
        probe = "import sys; from pathlib import Path; from albor_core.run.liveness import *; "
        probe += "print(lock_holder(Path(sys.argv[1])))"
        shown = subprocess.run(
            [sys.executable, "-c", probe, str(run.dir.run_lock)],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert shown.stdout.strip() == str(os.getpid())


def test_a_copy_of_another_host_is_not_written_into():
    with track.start(id="x") as run:
        train(run, [1])
    (run.path / "pulled.json").write_text('{"schema": "albor.pulled/1", "host": "box"}')
    with pytest.raises(InUseError, match="pulled from box"):
        track.start(id="x", resume="must")


def test_a_run_that_cannot_be_written_is_one_message_and_no_lock_is_left():
    with track.start(id="x") as run:
        train(run, [1])
    run.dir.journal.unlink()
    run.dir.journal.mkdir()
    with pytest.raises(AlborError, match=r"cannot resume 'x': /.*: Is a directory"):
        track.start(id="x", resume="must")
    run.dir.journal.rmdir()
    with track.start(id="x", resume="must"):
        pass


def test_threads_that_start_the_same_run_at_once_are_one_at_a_time():
    def work():
        ready.wait()
        try:
            made.append(track.start(id="x", resume="allow"))
        except InUseError as error:
            refused.append(error.message)

    made, refused, ready = [], [], threading.Barrier(8)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 7)
    made[0].finish()


def test_words_that_no_disk_takes_stop_no_training(monkeypatch, capsys):
    def refuse(*args, **words):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("albor_core.store.index.annotations.append_annotation", refuse)
    with track.start(id="x", tags=["a"]) as run:
        train(run, [1])
    assert "is not written down" in capsys.readouterr().err
    assert points(run, "train/loss") == [(1, 1.0)]


def test_a_program_in_the_folder_of_its_run_may_start_another(monkeypatch):
    with track.start(id="x") as run:
        monkeypatch.chdir(run.path)
        with track.start(id="y") as other:
            assert other.id == "y"


# -- each step once ------------------------------------------------------------------------------


def test_training_that_begins_again_takes_back_what_it_says_again():
    with track.start(id="x") as run:
        train(run, range(1, 11))
        run.log({"val_loss": 0.5}, step=10)
    with track.start(id="x", resume="must") as run:
        assert run.step == 10
        train(run, range(6, 9), scale=100.0)
        assert run.step == 8
    expected = [*((s, float(s)) for s in range(1, 6)), *((s, 100.0 * s) for s in range(6, 9))]
    assert points(run, "train/loss") == expected
    assert points(run, "val/loss") == []
    assert row_of(run).last_step == 8
    assert not events(run, "track.odd")


def test_an_evaluation_next_morning_takes_nothing_back():
    with track.start(id="x") as run:
        train(run, range(1, 11))
    with track.start(id="x", resume="must") as run:
        for step in (2, 4, 10):
            run.log({"test/acc": 1.0 / step}, step=step)
            assert run.step == 10
        run.log({"loss": 7.0})
    assert points(run, "test/acc") == [(2, 0.5), (4, 0.25), (10, 0.1)]
    assert points(run, "train/loss") == [*((s, float(s)) for s in range(1, 11)), (11, 7.0)]
    assert not records(run, "r")
    assert not events(run, "track.odd")
    row = row_of(run)
    assert (row.attempts, row.last_step, row.ended_status) == (2, 11, "completed")


def test_a_metric_that_ended_before_the_step_is_new_again():
    with track.start(id="x") as run:
        run.log({"warmup": 1.0}, step=3)
        train(run, range(4, 8))
    with track.start(id="x", resume="must") as run:
        run.log({"warmup": 2.0}, step=5)
    assert [step for step, _ in points(run, "train/loss")] == [4, 5, 6, 7]
    assert points(run, "warmup") == [(3, 1.0), (5, 2.0)]


def test_values_without_a_step_go_on_after_the_last():
    with track.start(id="x") as run:
        train(run, [40])
    with track.start(id="x", resume="allow") as run:
        run.log({"loss": 1.0})
    assert points(run, "train/loss") == [(40, 40.0), (41, 1.0)]


def test_a_killed_attempt_is_gone_on_with_from_what_no_index_has_seen(tmp_path):
    run = killed(tmp_path, "[run.log({'loss': 1.0 * s}, step=s) for s in range(1, 31)]")
    assert run_status(run).word == "lost"
    drain_index(run)
    again = "[run.log({'loss': 10.0 * s}, step=s) for s in range(21, 26)]"
    killed(tmp_path, again)
    killed(tmp_path, "assert run.step == 25; run.log({'loss': 5.0}, step=23)")
    with track.start(id="r", resume="must") as last:
        assert (last.step, last._attempt.attempt) == (23, 4)
    expected = [*((s, float(s)) for s in range(1, 21)), (21, 210.0), (22, 220.0), (23, 5.0)]
    assert points(last, "train/loss") == expected


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "unindexed"])
def test_what_a_run_recorded_is_the_same_by_its_store_and_by_its_journal(is_indexed):
    with track.start(id="x") as run:
        train(run, range(1, 101))
        run.log({"val_loss": 1.0, "odd name": 2}, step=50)
    if is_indexed:
        drain_index(run.dir)
    with track.start(id="x", resume="must") as run:
        train(run, range(60, 62))
    found = recorded.recorded(run.dir)
    assert found.newest == {"train/loss": 61, "optim/lr": 61, "val/loss": 50, "odd name": 50}
    assert found.last_step == 61
    drain_index(run.dir)
    assert recorded.recorded(run.dir).newest == found.newest


def test_a_long_journal_without_a_store_is_read_from_its_end(monkeypatch):
    monkeypatch.setattr(recorded, "MOST_UNREAD", 2000)
    with track.start(id="x") as run:
        train(run, range(1, 101))
    found = recorded.recorded(run.dir)
    assert found.last_step == 100
    assert found.has_any_from(98, {"train/loss": 0})


# -- what viewers see ----------------------------------------------------------------------------


def test_a_resumed_run_is_running_then_lost_if_it_is_killed_then_what_it_ended_as(tmp_path):
    with track.start(id="r") as run:
        train(run, range(1, 4))
    assert row_of(run).ended_status == "completed"
    code = (
        "import sys\nfrom albor_core import track\n"
        "run = track.start(id='r', resume='must')\nprint(1, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "ALBOR_CONSOLE": "0"},
    ) as other:  # fmt: skip
        assert other.stdout.readline() == b"1\n"
        assert read_exit(run.dir)["attempt"] == 1
        assert run_status(run.dir).word == "running"
        status, shown, _ = now_of(row_of(run))
        assert (status.word, shown.last_step, shown.loss) == ("running", 3, 3.0)
        other.kill()
        other.communicate(timeout=60)
    found = run_status(run.dir)
    assert (found.word, found.detail) == ("lost", "attempt 2 ended without an exit record")
    assert RunFiles(run.dir).view().ended_wall is None  # that of attempt 1 is another's
    row = row_of(run)
    assert (row.ended_status, row.attempts) == (None, 2)
    with track.start(id="r", resume="must") as run:
        train(run, [4])
    row = row_of(run)
    assert (row.ended_status, row.attempts, read_exit(run.dir)["attempt"]) == ("completed", 3, 3)
    assert run_status(run.dir).word == "completed"


def test_an_attempt_that_was_killed_says_so_and_how_long_it_lasted(tmp_path):
    killed(tmp_path, "run.log({'loss': 1.0}, step=1)")
    for word in ("lost", "completed"):
        told = json.loads(CliRunner().invoke(cli, ["runs", "show", "r", "--json"]).stdout)
        assert (told["status"], len(told["attempts"])) == (word, 1 + (word == "completed"))
        first = told["attempts"][0]
        assert (first["ended"], first["reason"]) == (None, NO_END)
        assert first["started"] < first["last_wall"] <= told["run"]["last_wall"]
        page = CliRunner().invoke(cli, ["runs", "show", "r"]).stdout
        assert re.search(rf"\n +1  .* \d\w+ +lost +1  {NO_END[:20]}", page), page
        with track.start(id="r", resume="allow") as run:
            train(run, [2])


def test_the_live_state_goes_on_where_it_was():
    with track.start(id="x", max_steps=20) as run:
        train(run, range(1, 11))
    before = read_state(run.dir.state)
    with track.start(id="x", resume="must") as run:
        now = read_state(run.dir.state)
        assert (now["attempt"], now["phase"], now["max_steps"]) == (2, "initializing", 20)
        for key in ("global_step", "loss", "learning_rate", "history_steps"):
            assert now[key] == before[key], key
        train(run, [5])
    after = read_state(run.dir.state)
    assert (after["global_step"], after["loss"], after["max_steps"]) == (5, 5.0, 20)
    assert max(after["history_steps"]) == 5


def test_a_resumed_run_may_go_on_for_longer():
    with track.start(id="x", max_steps=10) as run:
        train(run, [10])
    with track.start(id="x", resume="must", max_steps=20) as run:
        train(run, [11])
    assert row_of(run).max_steps == 20


def test_a_rebuilt_store_says_the_same_of_a_resumed_run():
    with track.start(id="x", tags=["a"], group="g") as run:
        train(run, range(1, 6))
    row_of(run)
    with track.start(id="x", resume="must", tags=["b"], job_type="eval") as run:
        train(run, [3])
    row_of(run)

    def told():
        shown = [
            subprocess.run(
                [*ALBOR, "runs", "show", "x", "--json"],
                cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
            ).stdout
        ]  # fmt: skip
        return json.loads(shown[0])

    before = told()
    done = subprocess.run(
        [*ALBOR, "db", "rebuild"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert told() == before
    assert [one["attempt"] for one in before["attempts"]] == [1, 2]
    assert before["tags"] == ["a", "b"]


# -- what was said of it -------------------------------------------------------------------------


def test_tags_notes_group_and_job_type_are_found_by_filters():
    with track.start(
        "e", id="x", tags=["ablation", "b"], notes="first\ntry", group="sweep-1", job_type="train"
    ) as run:
        train(run, [1])
    with track.start("e", id="y") as other:
        train(other, [1])
    row_of(run), row_of(other)
    with Reader(global_store()) as reader:
        for words in ("tag:ablation", "group:sweep-1", "group:sweep*", "job_type:train"):
            assert {r.id for r in reader.runs(where=parse_filter(words))} == {"x"}, words
        assert {r.id for r in reader.runs(where=parse_filter("-group:sweep-1"))} == {"y"}
        assert [note.text for note in reader.notes("x")] == ["first\ntry"]
        assert reader.detail("x").facts["group"] == "sweep-1"


def test_a_resumed_run_keeps_what_was_said_and_adds_to_it():
    with track.start("e", "name", {"lr": 1, "seed": 3}, id="x", tags=["a"], notes="n") as run:
        pass
    with track.start("e", "name", {"lr": 2}, id="x", resume="must", tags=["a", "b"], notes="n"):
        pass
    row_of(run)
    said = [json.loads(line) for line in run.dir.annotations.read_text().splitlines()]
    assert [(one["t"], one["value"]) for one in said] == [
        ("tag", "a"), ("note", "n"), ("tag", "b"),
    ]  # fmt: skip
    with Reader(global_store()) as reader:
        assert reader.params("x") == {"lr": 2, "seed": 3}
    assert not events(run, "track.unused")


def test_other_notes_take_the_place_of_the_programs_and_not_of_a_persons():
    with track.start(id="x", notes="first") as run:
        annotate(run.dir, "note", "of a person")
    with track.start(id="x", resume="must", notes="second"):
        pass
    row_of(run)
    with Reader(global_store()) as reader:
        assert [note.text for note in reader.notes("x")] == ["second", "of a person"]
    annotate(run.dir, "note.edit", {"at": 0, "text": "edited"})
    with track.start(id="x", resume="must", notes="third"):
        pass
    row_of(run)
    with Reader(global_store()) as reader:
        assert [note.text for note in reader.notes("x")] == ["edited", "of a person", "third"]


def test_a_group_that_is_said_again_after_another_is_the_group():
    for group in ("a", "b", "a"):
        with track.start(id="x", resume="allow", group=group) as run:
            pass
    row_of(run)
    with Reader(global_store()) as reader:
        assert reader.detail("x").facts["group"] == "a"


def test_what_a_resumed_run_began_otherwise_is_said(capfd):
    with track.start("e", "name", id="x") as run:
        pass
    with track.start("other", "another", id="x", resume="must"):
        pass
    (unused,) = events(run, "track.unused")
    assert unused["data"] == {"experiment": "other", "name": "another"}
    assert "is not used: x began otherwise" in capfd.readouterr().err
    assert row_of(run).experiment == "e"


@pytest.mark.parametrize("words, match", [
    ({"tags": "one"}, "give a list of words"),
    ({"tags": 5}, "give a list of words"),
    ({"tags": [" "]}, "tag: needs a text"),
    ({"tags": [3]}, "tag: needs a text"),
    ({"group": "x" * 65}, "group: needs a text of 1 to 64"),
    ({"job_type": ""}, "job_type: needs a text"),
])  # fmt: skip
def test_words_that_cannot_be_kept_are_refused_and_nothing_is_made(words, match, albor_home):
    with pytest.raises(UsageError, match=match):
        track.start(**words)
    assert not [*albor_home.rglob("run.json")]


# -- runs of other programs ----------------------------------------------------------------------


@pytest.fixture
def foreign(albor_home):
    """An ended run of `albor train` that came to step 2, and was stopped there."""

    def make(kind="train", reason="stopped", code=0):
        run = create_run(albor_home / "runs", "f", experiment="e", name="f", kind=kind, argv=["x"])
        from albor_core.run.exit import exit_document, write_exit
        from albor_core.run.journal import Journal

        journal = Journal(run.journal, attempt=1)
        journal.event("run.start", attempt=1)
        for step in (1, 2):
            journal.metrics(step, {"train/loss": 1.0 * step})
        journal.close()
        words = exit_document(
            run, 1, "n", code=code, reason=reason, step=2, message="at step 2", wall=1.0
        )
        write_exit(run, words)
        return run

    return make


@pytest.mark.parametrize("kind, command", [
    ("train", "albor train resume f"), ("guard", "albor guard retry f"),
])  # fmt: skip
def test_a_run_that_another_command_goes_on_with_is_refused_with_that_command(
    kind, command, foreign
):
    foreign(kind)
    with pytest.raises(UsageError, match=f"{command}.*resume='must' to log into it") as refused:
        track.start(id="f", resume="allow")
    assert refused.value.hint == command


@pytest.mark.parametrize("kind", ["train", "guard", "imported"])
@pytest.mark.parametrize("reason, code, word", [
    ("completed", 0, "completed"), ("stopped", 0, "stopped"), ("gpu_memory", 1, "failed"),
])  # fmt: skip
def test_an_evaluation_of_any_ended_run_leaves_its_end_as_it_was(kind, reason, code, word, foreign):
    run = foreign(kind, reason, code)
    with track.start(id="f", resume="must") as late:
        late.log({"test/acc": 0.9}, step=2)
    with pytest.raises(ZeroDivisionError), track.start(id="f", resume="must") as late:
        late.log({"test/f1": 0.8}, step=2)
        1 / 0  # noqa: B018
    words = read_exit(run)
    assert (words["reason"], words["code"], words["attempt"], words["step"]) == (
        *(reason, code, 3, 2),
    )
    assert points(late, "test/acc") == [(2, 0.9)]
    assert points(late, "train/loss") == [(1, 1.0), (2, 2.0)]
    row = row_of(late)
    assert (row.ended_status, row.attempts, row.kind) == (word, 3, kind)
    assert run_status(run).word == word


def test_an_evaluation_of_a_run_that_vanished_does_not_complete_it(foreign):
    run = foreign()
    run.exit.unlink()
    with track.start(id="f", resume="must") as late:
        late.log({"test/acc": 0.9}, step=2)
    assert run_status(run).word == "failed"
    assert row_of(late).ended_reason == "lost"


@pytest.mark.slow
def test_a_run_of_a_guard_is_evaluated_next_morning(tmp_path):
    loop = tmp_path / "loop.py"
    loop.write_text(
        "from albor_core import track\n"
        "with track.start(id='other') as run:\n"
        "    for step in range(1, 5):\n        run.log({'x': step}, step=step)\n"
    )
    words = [*ALBOR, "guard", "run", "--name", "g", "--option", "poll_s=0.05", "--json", "--",
             sys.executable, str(loop)]  # fmt: skip
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = RunDir(Path(os.environ["ALBOR_HOME"]) / "runs" / "g")
    (unused,) = [
        r.record for r in read_journal(run.journal) if r.record.get("name") == "track.unused"
    ]
    assert unused["data"] == {"id": "other"}
    probe = (
        "import sys\nfrom pathlib import Path\nfrom albor_core.run.rundir import RunDir\n"
        "from albor_core.feed.run.status import run_status\n"
        "print(run_status(RunDir(Path(sys.argv[1]))).word)"
    )
    with track.start(id="g", resume="must", tags=["evaluated"]) as late:
        late.log({"test/acc": 0.5}, step=4)
        seen = subprocess.run(
            [sys.executable, "-c", probe, str(run.path)],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert seen.stdout == "running\n"
    assert run_status(run).word == "completed"
    row = row_of(late)
    assert (row.ended_status, row.attempts, row.kind) == ("completed", 2, "guard")
    again = subprocess.run(
        [*words[:5], "--resume-or-start", *words[5:]],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (again.returncode, "complete, nothing to do" in again.stderr) == (0, True), again.stderr


def test_the_resolved_config_of_the_first_attempt_stays():
    with track.start(id="x", config={"lr": 1}) as run:
        pass
    with track.start(id="x", resume="must", config={"lr": 2}):
        pass
    assert read_json(run.dir.config_resolved) == {"lr": 1}


def test_a_traceback_of_a_refusal_ends_with_the_next_step():
    """In a notebook nobody prints the hint."""
    with track.start(id="cell", console=False):
        for how in ("never", "must"):
            with pytest.raises(InUseError) as caught:
                track.start(id="cell", resume=how, console=False)
            assert (
                "next: run.finish() ends the first" in traceback.format_exception(caught.value)[-1]
            )
    with pytest.raises(InUseError) as caught:
        track.start(id="cell", console=False)
    assert "next: resume='allow' continues it" in traceback.format_exception(caught.value)[-1]
