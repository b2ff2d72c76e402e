"""What the Run screen shows is in the documents of `--once` and `--json`, under the same name.

The panels draw a run that writes down which of its fields they read; each is then looked for.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import is_dataclass, replace

import fake_feed
import pytest
import sim_run

from albor_core.feed.run.detail import RunFeed
from albor_core.feed.snapshot import document, runs_document
from albor_core.feed.view.run_view import RunsView, RunView, plain
from albor_core.run.rundir import RunDir
from albor_tui.main import main
from albor_tui.widgets.run import alerts, guard_panel, panels
from albor_tui.widgets.run.gpu_panel import gpu_line, gpu_lines, host_lines
from albor_tui.widgets.run.run_preview import RunPreview
from albor_tui.widgets.run.system_lines import system_lines
from albor_tui.widgets.run_columns import COLUMNS

PANELS = (
    *(
        panels.Head,
        panels.Vitals,
        panels.BricksPanel,
        guard_panel.GuardPanel,
        alerts.Alerts,
        alerts.AlertBanner,
    ),
    RunPreview,
)
ELSEWHERE = ("alerts", "attempts", "guard")  # beside `now`, not in it
DIAGNOSTICS = "diagnostics."  # what watches it is there in words, and its ranks are of its config
NAMES = {"exit_class": "kind", "acked_by": "is_acknowledged"}  # of a row, in the document
SIZES = ((40, 6), (200, 30))


class Watched:
    """A frozen value whose fields, and those of what it holds, note in `read` that they were
    looked at. A property reads the fields that it is made of."""

    def __init__(self, value: object, read: dict[str, object], path: str = "") -> None:
        self._value, self._read, self._path = value, read, path

    def __getattr__(self, name: str) -> object:
        known = getattr(type(self._value), name, None)
        if isinstance(known, property):
            return known.fget(self)
        path = f"{self._path}.{name}".lstrip(".")
        return self._noted(getattr(self._value, name), path)

    def _noted(self, value: object, path: str) -> object:
        if is_dataclass(value):
            return Watched(value, self._read, path)
        if isinstance(value, tuple) and value and is_dataclass(value[0]):
            return tuple(self._noted(one, f"{path}.{i}") for i, one in enumerate(value))
        self._read[path] = value
        return value


def drawn(view: RunView) -> dict[str, object]:
    """Every field that the Run screen's head, tiles and panels read, with its value."""
    read: dict[str, object] = {}
    watched = Watched(view, read)
    for panel in PANELS:
        for width, height in SIZES:
            panel().show(watched, width, height)
    for gpu in watched.gpu:
        gpu_line(gpu, 100)
        gpu_lines(gpu, 100)
    if view.system is not None:
        host_lines(watched.system, 100)
    system_lines(watched.gpu, watched.system if view.system else None, {}, 100, view.device)
    read["device"] = view.device  # the overview says it where there is no GPU
    return read


def found(told: object, path: str) -> object:
    """The value at a path of a document; KeyError where there is none."""
    for part in path.split("."):
        if isinstance(told, list) and part.isdecimal() and int(part) < len(told):
            told = told[int(part)]
        elif isinstance(told, Mapping) and part in told:
            told = told[part]
        else:
            raise KeyError(path)
    return told


def place(path: str) -> str:
    """Where a field of a run stands in its document."""
    *above, name = path.split(".")
    path = ".".join((*above, NAMES.get(name, name)))
    return path if path.split(".")[0] in ELSEWHERE else f"now.{path}"


def shown(path: str, value: object) -> object:
    """A field's value as the document has it."""
    if path.endswith(".acked_by"):
        return value is not None
    is_word = path.split(".")[-1] in ("exit_class", "action", "reason", "metric")
    return value or "" if is_word else plain(value)


def busy() -> RunView:
    """A run of which everything is known."""
    view = fake_feed.training(alerts_open=1, severity="warning", last_alert=fake_feed.ALERT.message)
    point = replace(view.checkpoint, failures=2, in_flight=True, last_path="step-00015000")
    return replace(view, alerts=(fake_feed.ALERT,), events=fake_feed.EVENTS, checkpoint=point)


RUNS = {
    "busy": busy(),
    "over": fake_feed.rows()[3],
    "quiet": replace(busy(), gpu=(), system=None, alerts=(), guard=None, guard_pid=None),
    "bare": RunView(id="bare"),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> RunDir:
    folder = tmp_path_factory.mktemp("documents")
    subprocess.run(
        [sys.executable, sim_run.__file__, str(folder), "--steps", "40", "--rate", "0",
         "--rich"],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    return RunDir(next(folder.iterdir()))


@pytest.mark.parametrize("name", RUNS)
def test_every_field_that_the_run_screen_shows_is_in_the_document(name, ended):
    feed = RunFeed(ended)  # for what is not of the view
    try:
        told = json.loads(json.dumps(document(RUNS[name], feed), allow_nan=False))
    finally:
        feed.close()
    read = drawn(RUNS[name])
    for path, value in read.items():
        if not path.startswith(DIAGNOSTICS):
            assert found(told, place(path)) == shown(path, value), path
    if any(path.startswith(DIAGNOSTICS) for path in read):
        view = RUNS[name]
        assert told["watched"] == (view.diagnostics.watched.words if view.is_active else "")


def test_the_panels_read_what_they_are_known_to_show():
    read = drawn(busy())
    assert {
        *("loss", "loss_ema", "val_loss", "val_ppl", "lr", "grad_norm", "mfu", "step_ms", "epoch"),
        *("tokens", "tokens_per_s", "batch_size", "eta_s", "elapsed_s", "step", "max_steps"),
        *("progress", "status", "detail", "phase", "device", "guards", "guard", "guard_pid"),
        *("attempt", "attempts_total", "attempts.0.exit_class", "attempts.0.reason", "severity"),
        *("checkpoint.last_step", "checkpoint.best_value", "checkpoint.failures"),
        *("bricks.3.measured_ms", "bricks.3.budget_ms", "alerts.0.message", "alerts_open"),
        *("gpu.0.power_w", "gpu.0.throttle_reasons", "gpu.0.processes.0.pid"),
        *("system.rss_bytes", "system.disk_free_bytes", "system.load1", "path", "last_alert"),
    } <= set(read)


@pytest.mark.parametrize("flags", [("--once",), ("--once", "--json")], ids=" ".join)
def test_the_program_prints_what_the_screen_of_that_run_shows(ended, capsys, flags):
    feed = RunFeed(ended)
    try:
        view = feed.poll()
    finally:
        feed.close()
    assert main([*flags, str(ended.path)]) == 0
    told = json.loads(capsys.readouterr().out)
    read = drawn(view)
    assert read.keys() >= {"loss", "lr", "alerts.0.message", "bricks.0.measured_ms"}
    age = read.pop("age_s")
    assert found(told, "now.age_s") >= age  # it grows
    for path, value in read.items():
        if not path.startswith(DIAGNOSTICS):
            assert found(told, place(path)) == shown(path, value), path


def test_a_stream_prints_the_same_fields(ended):
    words = [sys.executable, "-m", "albor_tui.main", "--json", str(ended.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        told = json.loads(program.stdout.readline())
        program.stdout.close()
        program.wait(timeout=20)
    feed = RunFeed(ended)
    try:
        read = drawn(feed.poll())
    finally:
        feed.close()
    for path in read:
        if not path.startswith(DIAGNOSTICS):
            found(told, place(path))


@pytest.mark.parametrize("name", RUNS)
def test_every_field_that_the_list_of_runs_shows_is_in_its_document(name):
    read: dict[str, object] = {}
    watched = Watched(RUNS[name], read)
    for column in COLUMNS:
        column.cell(watched, 12)
    for width, height in SIZES:
        RunPreview().show(watched, width, height)
    told = json.loads(json.dumps(runs_document(RunsView(rows=(RUNS[name],))), allow_nan=False))
    assert {"loss", "status", "step"} <= set(read)
    for path, value in read.items():
        assert found(told["runs"][0], path) == plain(value), path


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--once >&-", 0, ""),
        (
            "--once >/dev/full",
            1,
            "cannot write to stdout: No space left on device\nfree some space",
        ),
        (
            "--json >/dev/full",
            1,
            "cannot write to stdout: No space left on device\nfree some space",
        ),
        ("--once no-such-run >/dev/full", 3, "no run 'no-such-run'"),
        ("--once no-such-run >&-", 3, ""),
    ],
)
def test_a_stdout_that_takes_nothing_gets_a_sentence(words, code, says):
    line = f"{shlex.quote(sys.executable)} -m albor_tui.main {words}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=30)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert done.stderr.startswith(f"albor-tui: {says}" if says else "")
