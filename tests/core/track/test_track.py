"""The public tracker: what a foreign loop said is there, whatever became of the loop."""

import json
import math
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from albor_core import track
from albor_core.feed.run.status import run_status
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.errors import AlborError, InUseError, UsageError
from albor_core.run.journal import read_journal
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.paths import global_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader
from albor_core.track.tracked_run import TICK_S

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"torch", "numpy", "pydantic", "yaml", "click", "pyarrow", "textual", "psutil"}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Not a guarded run, and no index process to wait for: `settle` indexes where a test asks."""
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def records(run, kind=None):
    found = [line.record for line in read_journal(RunDir(run.path).journal)]
    return [record for record in found if kind is None or record["t"] == kind]


def points(run, key):
    """(step, value) as the store has them once all is indexed."""
    drain_index(RunDir(Path(run.path)))
    with Reader(RunDir(Path(run.path)).store) as reader:
        return [point[:2] for point in reader.points(run.id, key)]


def wait_until(claim, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not (found := claim()):
        assert time.monotonic() < deadline, claim
        time.sleep(0.02)
    return found


def ended_row(run):
    """Its row in the global store once it says how the run ended. Until then an index process may
    have made that store's file and not yet its tables.
    """
    try:
        with Reader(global_store()) as reader:
            found = [row for row in reader.runs() if row.id == run.id]
    except AlborError:
        return None
    return found and found[0].ended_status and found[0]


HEAD = """
import os, sys, time, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it comes ignored, rightly left so
from albor_core import track
def begin(**facts):
    run = track.start(**facts)
    with open(os.environ["WHERE"], "w") as file:
        file.write(str(run.path) + "\\n")
    return run
"""
UNINDEXED = """
from albor_core.guard.process.index_process import IndexProcess
IndexProcess.tend = lambda self: None
"""


@pytest.fixture
def script(tmp_path):
    """Starts a program of its own that tracks by `begin`: the run's directory, the process."""
    started = []

    def start(body, head=HEAD + UNINDEXED):
        where = tmp_path / f"where-{len(started)}"
        process = subprocess.Popen(
            [sys.executable, "-c", head + body],
            cwd=ROOT,
            env={**os.environ, "WHERE": str(where)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        wait_until(lambda: where.is_file() and where.read_text().endswith("\n"))
        return RunDir(Path(where.read_text().strip())), process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_three_lines_make_a_run_that_every_list_shows(albor_home):
    with track.start("tiny", name="first", config={"lr": 3e-4, "model": {"d": 32}}) as run:
        for step in range(1, 4):
            run.log({"loss": 1.0 / step, "acc": step}, step=step)
    assert points(run, "train/loss") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    with Reader(global_store()) as reader:
        row = reader.run(run.id)
        assert reader.params(run.id) == {"lr": 3e-4, "model.d": 32}
    assert (row.kind, row.name, row.experiment) == ("track", "first", "tiny")
    assert (row.ended_status, row.last_step, row.loss, row.attempts) == ("completed", 3, 1 / 3, 1)
    assert run_status(RunDir(run.path)).word == "completed"
    assert Path(run.path).parent == albor_home / "runs"


def test_the_live_state_shows_the_newest_values_while_it_runs():
    run = track.start(max_steps=10)
    state = RunDir(run.path).state
    run.log({"loss": 2.0, "lr": 0.1}, step=1)
    run.log({"loss": float("nan")}, step=2)
    wait_until(lambda: (read_json(state) or {}).get("global_step") == 2)
    now = read_json(state)
    assert (now["phase"], now["loss"], now["loss_text"]) == ("training", None, "nan")
    assert (now["learning_rate"], now["progress_percent"]) == (0.1, 20.0)
    before = now["seq"]
    time.sleep(2.5 * TICK_S)  # a loop that says nothing gives no sign of life
    assert read_json(state)["seq"] == before
    run.close()
    assert read_json(state)["phase"] == "completed"


def test_steps_have_one_rule_each():
    with track.start() as run:
        run.log({"x": 1.0})
        run.log({"x": 2.0})
        run.log({"x": 5.0}, step=5)
        run.log({"y": 0.5}, step=5)
        run.log({"x": 50.0}, step=5)
        run.log({"x": 20.0}, step=2)
        run.log({"x": 3.0}, step=-1)
        run.log({"x": 4.0}, step=2**70)
        run.log({"x": 6.0}, step=7.0)
        run.log({"x": 7.0}, step=float("nan"))
        run.log({"x": 8.0}, step="nine")
    assert points(run, "x") == [
        *((1, 1.0), (2, 20.0), (3, 3.0), (4, 4.0), (5, 50.0), (7, 6.0), (8, 7.0), (9, 8.0)),
    ]
    assert points(run, "y") == [(5, 0.5)]
    (odd,) = [e for e in records(run, "e") if e["name"] == "track.odd"][-1:]
    assert odd["data"]["counts"] == {"step_repeated": 1, "step_backwards": 1, "bad_step": 4}


@pytest.mark.parametrize(
    "values",
    [None, 3.0, [], "text", {}, {1: 2.0}, {None: 1}, {"a": object()}, {"a\x00": 1.0}, {"": 1}],
    ids=lambda value: type(value).__name__,  # an object's address differs in each process
)
def test_nothing_that_is_logged_raises(values):
    with track.start() as run:
        run.log(values)
        run.log({"fine": 1.0})
    assert points(run, "fine")[-1][1] == 1.0


def test_odd_values_are_counted_where_doctor_finds_them():
    with track.start() as run:
        run.log({"loss": "low", "ok": 1.0})
    events = [e for e in records(run, "e") if e["name"] == "track.odd"]
    assert events[-1]["severity"] == "warning"
    assert events[-1]["data"]["counts"] == {"not_a_number": 1}
    assert events[-1]["data"]["examples"] == {"not_a_number": "loss = low"}


def test_an_exception_is_recorded_and_passes_through():
    with pytest.raises(ZeroDivisionError), track.start() as run:
        run.log({"x": 1.0})
        1 / 0  # noqa: B018
    words = read_json(RunDir(run.path).exit)
    assert (words["reason"], words["code"], words["error"]["type"]) == (
        *("exception", 1, "ZeroDivisionError"),
    )
    assert run_status(RunDir(run.path)).word == "failed"


def test_a_keyboard_interrupt_is_a_stop_and_exit_zero_is_none():
    with pytest.raises(KeyboardInterrupt), track.start() as run:
        raise KeyboardInterrupt
    assert run_status(RunDir(run.path)).word == "stopped"
    with pytest.raises(SystemExit), track.start() as run:
        sys.exit(0)
    assert run_status(RunDir(run.path)).word == "completed"
    with pytest.raises(SystemExit), track.start() as run:
        sys.exit(3)
    assert run_status(RunDir(run.path)).word == "failed"


def test_closing_twice_is_closing_once_and_later_words_are_refused_with_one_warning():
    run = track.start()
    run.close("stopped", "enough")
    run.close()
    with pytest.warns(UserWarning, match="after it was closed"):
        run.log({"x": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.log({"x": 2.0})
        run.event("late")
    assert [e["data"]["status"] for e in records(run, "e") if e["name"] == "run.end"] == ["stopped"]
    with track.start() as another, pytest.raises(UsageError, match="completed, stopped, failed"):
        another.close("great")


def test_a_forked_child_changes_nothing():
    with track.start() as run:
        run.log({"x": 1.0}, step=1)
        child = os.fork()
        if child == 0:
            warnings.simplefilter("ignore")
            run.log({"x": 9.0}, step=2)
            run.event("from the child")
            run.close("failed")
            os._exit(0)
        os.waitpid(child, 0)
        assert not run._is_closed
        run.log({"x": 2.0}, step=2)
    assert points(run, "x") == [(1, 1.0), (2, 2.0)]
    assert {record["t"] for record in records(run)} == {"e", "m"}


def test_events_samples_and_artefacts_are_kept(tmp_path):
    model = tmp_path / "model.bin"
    model.write_bytes(b"weights" * 1000)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("one")
    (folder / "link").symlink_to(model)
    with track.start() as run:
        run.log({"x": 1.0}, step=7)
        run.event("data.epoch", epoch=2, odd=object(), nan=float("nan"))
        run.event("andon.alert", id="fake")
        run.event("sample", size=3)
        run.sample("once upon a time", prompt="once")
        digest = run.artifact(model, kind="checkpoint")
        assert run.artifact(folder) not in (None, digest)
        os.mkfifo(tmp_path / "pipe")
        assert run.artifact(tmp_path / "pipe") is None
        assert run.artifact(tmp_path / "nothing") is None
    drain_index(RunDir(run.path))
    with Reader(RunDir(run.path).store) as reader:
        found = {a.name: a for a in reader.artifacts(run.id)}
        names = [event.name for event in reader.events(run.id)]
        assert [(s.prompt, s.text, s.step) for s in reader.samples(run.id)] == [
            ("once", "once upon a time", 7)
        ]
        assert reader.alerts(run.id) == ()
    assert (found["model.bin"].bytes, found["model.bin"].hash) == (7000, digest)
    assert digest.startswith("blake3:")
    assert found["folder"].bytes == 3
    assert names.count("artifact.failed") == 2
    assert {"data.epoch", "user.andon.alert", "user.sample"} <= set(names)


def test_an_artefact_with_the_hash_of_the_reference_implementation(tmp_path):
    from blake3 import blake3

    path = tmp_path / "big"
    path.write_bytes(os.urandom((3 << 20) + 17))
    with track.start() as run:
        assert run.artifact(path) == f"blake3:{blake3(path.read_bytes()).hexdigest()}"


def test_a_short_secret_is_not_recorded_and_numbers_under_such_a_name_are(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py", "--password", "q1", "--lr", "0.1"])
    with track.start(config={"db": {"password": "q1"}, "token_weights": [1.55, 2.0]}) as run:
        run.params({"api_key": "q1"})
    params = {p["key"]: p["value"] for p in records(run, "p")}
    assert params == {
        "db.password": "[redacted]",
        "token_weights.0": 1.55,
        "token_weights.1": 2.0,
        "api_key": "[redacted]",
    }
    told = json.loads(run.dir.run_json.read_text())
    assert told["argv"] == ["train.py", "--password", "[redacted]", "--lr", "0.1"]


def test_a_config_may_be_many_things_and_secrets_are_not_recorded(monkeypatch, albor_home):
    import argparse
    import dataclasses

    @dataclasses.dataclass
    class Settings:
        lr: float
        hub_token: str

    canary = "canary-5ab1c2d3e4f5a6b7"
    monkeypatch.setenv("MY_SECRET_KEY", canary)
    for config in (
        Settings(0.1, canary),
        argparse.Namespace(lr=0.1, note=f"x{canary}y"),
        {"lr": 0.1, "url": f"https://user:{canary}@host/"},
    ):
        with track.start(config=config) as run:
            run.log({"x": 1.0})
        with pytest.raises(UsageError):
            track.start(config=3)
        params = {p["key"]: p["value"] for p in records(run, "p")}
        assert params["lr"] == 0.1
    for path in albor_home.rglob("*"):
        if path.is_file():
            assert canary.encode() not in path.read_bytes(), path


def test_nobody_else_can_read_a_run_whatever_the_umask(albor_home):
    old = os.umask(0)
    try:
        with track.start() as run:
            run.log({"x": 1.0})
    finally:
        os.umask(old)
    for path in (Path(run.path), *Path(run.path).rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.slow
def test_64_starts_at_once_are_64_runs(script):
    many = "made = [begin(name='same') for _ in range(16)]\nprint(len({run.id for run in made}))\n"
    started = [script(many) for _ in range(4)]
    counts = [int(process.communicate(timeout=60)[0]) for _, process in started]
    assert counts == [16] * 4
    runs = {path.name for path in started[0][0].path.parent.iterdir() if path.is_dir()}
    assert len(runs) == 64


def test_the_tracker_loads_nothing_heavy():
    code = "import sys; from albor_core import track; track.start().close(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert not {name.split(".")[0] for name in done.stdout.split()} & HEAVY


@pytest.mark.parametrize("ending, word, code", [
    ("", "completed", 0),
    ("raise RuntimeError('boom')", "failed", 1),
    ("raise KeyboardInterrupt", "stopped", -signal.SIGINT),
    ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", "stopped", -signal.SIGTERM),
    ("os.kill(os.getpid(), signal.SIGHUP); time.sleep(9)", "stopped", -signal.SIGHUP),
    ("os.kill(os.getpid(), signal.SIGKILL)", "lost", -signal.SIGKILL),
])  # fmt: skip
def test_a_program_that_never_closes_ends_as_it_ended(ending, word, code, script):
    run, process = script(f"begin().log({{'x': 1.0}})\n{ending}")
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert run_status(run).word == word


def test_a_handler_of_the_program_stays_the_programs(script):
    run, process = script(
        "signal.signal(signal.SIGTERM, lambda *_: print('mine'))\n"
        "run = begin()\nos.kill(os.getpid(), signal.SIGTERM)\nrun.close()\n"
        "print(signal.getsignal(signal.SIGHUP) is signal.SIG_DFL)"
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out.split()) == (0, ["mine", "True"]), err
    assert run_status(run).word == "completed"


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_step_and_doubles_none(script):
    body = (
        "run = begin()\n"
        "for step in range(1, 10**9):\n"
        "    run.log({f'k{n}': step + n / 8 for n in range(8)}, step=step)\n"
        "    os.write(1, b'%d\\n' % step)\n"
    )
    for wait_s in (0.02, 0.05, 0.1, 0.2, 0.4):
        run, process = script(body)
        time.sleep(wait_s)  # the moment of the kill
        process.kill()
        out, _ = process.communicate(timeout=60)
        acknowledged = int(([0, *out.split("\n")[:-1]])[-1])
        steps = [step for step, _ in points(run, "k7")]
        assert steps == list(range(1, len(steps) + 1))
        assert acknowledged <= len(steps) <= acknowledged + 1
        assert run_status(run).word == "lost"


def test_two_processes_of_one_guarded_program_cannot_both_write(monkeypatch, albor_home):
    from albor_core.run.home.new_run import create_run

    run = create_run(albor_home / "runs", "g1", experiment="e", name="g", kind="guard", argv=["x"])
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from pathlib import Path\n"
         "from albor_core.run.liveness import take_lock\n"
         "take_lock(Path(sys.argv[1])); take_lock(Path(sys.argv[2])); print(1, flush=True)\n"
         "sys.stdin.read()",
         str(run.run_lock), str(run.store.parent / "track.lock")],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout.readline() == b"1\n"
    monkeypatch.setenv("ALBOR_RUN_DIR", str(run.path))
    monkeypatch.setenv("ALBOR_ATTEMPT", "1")
    monkeypatch.setenv("ALBOR_NONCE", "n")
    with pytest.raises(InUseError, match=f"process {holder.pid}") as refused:
        track.start()
    assert "rank 0" in refused.value.hint
    holder.communicate(timeout=30)
    with track.start() as own:  # nobody works on g1 any more: its words are stale
        assert own.id != "g1"


@pytest.mark.slow
def test_a_guarded_script_joins_its_guards_run_and_a_second_life_rewinds(tmp_path):
    loop = tmp_path / "loop.py"
    loop.write_text(
        "import os, time\nfrom albor_core import track\n"
        "again = int(os.environ['ALBOR_ATTEMPT']) > 1\n"
        "with track.start(config={'lr': 1}) as run:\n"
        "    for step in range(4 if again else 1, 7):\n"
        "        run.log({'x': 100.0 + step if again else step}, step=step)\n"
        "    if not again:\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    albor = [sys.executable, "-m", "albor_core.cli"]
    done = subprocess.run(
        [*albor, "guard", "run", "--name", "joined", "--option", "backoff_s=[0.05]", "--option",
         "poll_s=0.05", "--json", "--", sys.executable, str(loop)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [*albor, "runs", "show", "joined", "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    found = json.loads(shown.stdout)
    assert [point[:2] for point in found["points"]["x"]] == [
        *([1, 1.0], [2, 2.0], [3, 3.0], [4, 104.0], [5, 105.0], [6, 106.0]),
    ]
    assert [attempt["signal"] for attempt in found["attempts"]] == ["SIGKILL", None]
    assert (found["status"], found["params"], found["run"]["kind"]) == (
        *("completed", {"lr": 1}, "guard"),
    )


MOVED_HOME = """
from albor_core.guard.process.index_process import IndexProcess
tend, IndexProcess.tend = IndexProcess.tend, lambda self: None
run = begin()
os.environ["ALBOR_HOME"] += "-of-another"
IndexProcess.tend = tend
run.log({'loss': 1.5}, step=3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "body", ["begin().log({'loss': 1.5}, step=3)", MOVED_HOME], ids=["plain", "moved"]
)
def test_the_index_process_brings_a_run_into_the_stores_by_itself(script, body):
    """The stores are those of the home where the run began."""
    run, process = script(body, head=HEAD)
    assert process.wait(timeout=60) == 0

    assert wait_until(lambda: ended_row(run), timeout_s=120.0).loss == 1.5
    wait_until(lambda: lock_holder(run.index_lock) is None)


INDEX_DIES = """
run = begin()
while (pid := lock_holder(run.dir.index_lock)) is None:
    time.sleep(0.01)
run._sidecar._next_start_s = 1e12  # as long as its next start is off, nothing is indexed
os.kill(pid, signal.SIGKILL)
while run._sidecar._process is not None:
    time.sleep(0.01)
for step in range(1, 601):
    run.log({"loss": 1.0 / step}, step=step)
"""


@pytest.mark.slow
def test_an_index_process_that_died_before_the_end_is_started_again_at_the_end(script):
    run, process = script(
        INDEX_DIES, head=HEAD + "from albor_core.run.liveness import lock_holder\n"
    )
    assert process.wait(timeout=60) == 0

    assert wait_until(lambda: ended_row(run), timeout_s=120.0).loss == 1 / 600


def test_a_run_that_began_from_another_is_found_by_it():
    with track.start("pretrain") as base:
        base.log({"loss": 2.0})
    with track.start("finetune", parent=base.id) as run:
        run.log({"loss": 1.0})
    drain_index(run.dir)
    with Reader(global_store()) as reader:
        assert reader.parents([run.id, base.id]) == {run.id: base.id}
    with pytest.raises(UsageError, match="is not a run id"):
        track.start("finetune", parent="../elsewhere")


def test_secrets_in_events_and_samples_are_not_recorded(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "canary-of-the-environment")
    with track.start() as run:
        run.event("login", token="canary-one", url="https://bob:canary-two@host/x", count=3)
        run.sample("she said canary-of-the-environment", prompt="the password: is invented")
    said = run.dir.journal.read_text()
    assert "canary" not in said
    assert "https://[redacted]@host/x" in said
    assert '"count":3' in said
    assert "the password: is invented" in said


@pytest.mark.parametrize("steps", ["100", -3, 0.5, math.nan, [7], object()])
def test_what_is_not_a_number_of_steps_is_refused_before_anything_is_made(albor_home, steps):
    with pytest.raises(UsageError, match="is not a number of steps"):
        track.start(max_steps=steps)
    assert not [*albor_home.rglob("run.json")]


@pytest.mark.parametrize(("steps", "known"), [(7, 7), (1e3, 1000), (None, None)])
def test_steps_are_counted_in_whole_numbers(steps, known):
    with track.start(max_steps=steps) as run:
        assert run.dir.metadata()["max_steps"] == known


@pytest.mark.slow
def test_a_run_whose_end_fails_does_not_take_the_end_of_the_others(script):
    run, process = script(
        "first = begin()\n"
        "other = track.start(name='other')\n"
        "first.close = first.end = None  # what calls it raises\n"
    )
    assert process.wait(60) == 0
    reasons = {
        found.name: json.loads((found / "exit.json").read_text())["reason"]
        for found in run.path.parent.iterdir()
        if (found / "exit.json").is_file() and (found / "exit.json").stat().st_size
    }
    assert list(reasons.values()) == ["completed"] and run.path.name not in reasons
