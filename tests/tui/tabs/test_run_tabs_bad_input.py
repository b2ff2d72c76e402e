"""A run directory that is damaged, half written, from the future or gone, on every tab: the screen
says what is wrong and lives."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import check_cells
from settled import until

from albor_core.feed.view.run_view import RunView
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer
from albor_tui.app import AlborApp
from albor_tui.model.source import LiveSource
from albor_tui.screens.run import TABS

STATE = {
    "schema": "albor.state/1", "run_id": "odd", "attempt": 1, "nonce": "n", "pid": 1, "seq": 3,
    "phase": "training", "global_step": 40, "max_steps": 100, "loss": 2.5, "wall": 1_700_000_000.0,
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run with a bit of everything, that nobody works on."""
    made = create_run(
        tmp_path / "out",
        "odd",
        experiment="e",
        name="odd",
        kind="train",
        argv=["x"],
        config=b"optimizer:\n  lr: 1e-3\n",
        resolved={"optimizer": {"lr": 0.001, "weight_decay": 0.3}},
        created=1_700_000_000.0,
    )
    journal = Journal(made.journal, attempt=1)
    journal.event("run.start", step=0)
    for step in range(1, 41):
        journal.metrics(step, {"train/loss": 3 - step / 100, "brick/data_ms": 2.0})
    journal.append("s", step=20, prompt="def f", text="(x):\n    return x")
    journal.close()
    made.state.write_text(json.dumps(STATE))
    made.log(1).write_text("first line\nsecond line\n")
    folder = made.checkpoints / "step-00000020"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"12345")
    files = {"model.safetensors": {"size": 5}}
    (folder / "manifest.json").write_text(json.dumps({"step": 20, "files": files}))
    with Indexer(made, global_store()) as indexer:
        indexer.drain()
    return made


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def from_the_future(run: RunDir) -> None:
    run.state.write_text(json.dumps({**STATE, "schema": "albor.state/9", "loss": {"new": "shape"}}))
    with sqlite3.connect(run.store) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


def half_written(run: RunDir) -> None:
    for path in (run.state, run.config_resolved, run.run_json, run.journal, run.exit):
        if path.exists():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_other_types(run: RunDir) -> None:
    """Fields that are not what they should be: words for numbers, lists for mappings."""
    odd = {key: ["x"] for key in STATE} | {"schema": "albor.state/1", "loss_history": {"a": 1}}
    odd |= {"gpu": [3, {"name": 7, "processes": {}}], "bricks_ms": [1], "checkpoint": "no"}
    run.state.write_text(json.dumps(odd))
    run.config_resolved.write_text('["a list"]')
    (run.checkpoints / "step-00000020" / "manifest.json").write_text('{"step": "x", "files": []}')
    run.attempts.write_text('{"t":"attempt.start","attempt":"one"}\n[1]\nnull\n')


def pipes_and_folders(run: RunDir) -> None:
    """Where files should be: reading a pipe would block for ever."""
    for path in (run.state, run.config_yaml, run.config_resolved, run.log(1), run.journal):
        path.unlink()
        os.mkfifo(path)
    shutil.rmtree(run.checkpoints)
    run.checkpoints.write_text("not a folder")
    run.exit.mkdir()


def without_store(run: RunDir) -> None:
    run.store.unlink()


def with_broken_store(run: RunDir) -> None:
    garbage(run.store)


def of_garbage(run: RunDir) -> None:
    for path in (run.state, run.config_yaml, run.config_resolved, run.journal, run.log(1)):
        garbage(path)


def gone(run: RunDir) -> None:
    shutil.rmtree(run.path)


DAMAGES: list[Callable[[RunDir], None]] = [
    from_the_future, half_written, of_other_types, pipes_and_folders, without_store,
    with_broken_store, of_garbage, gone,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
async def test_every_tab_of_a_damaged_run_says_something_and_no_exception(run, damage):
    damage(run)
    app = AlborApp(LiveSource(), run=RunView(id=run.id, path=str(run.path)))
    async with app.run_test(size=(100, 30)) as pilot:
        screen = app.screen
        for tab in TABS:
            await screen.action_tab(tab.key)
            page = screen.page
            await until(pilot, lambda p=page: p.is_attached and p.region.height > 0)
            await pilot.pause(0.3)
            shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
            assert "cannot" not in shown or "cannot be" in shown, f"{tab.key}:\n{shown}"
            assert "Error" not in shown.replace("OutOfMemoryError", ""), f"{tab.key}:\n{shown}"
            check_cells(app)
        assert app.is_running


async def test_a_run_whose_state_vanishes_stops_being_live_and_says_since_when(run):
    run.state.unlink()
    app = AlborApp(LiveSource(), run=RunView(id=run.id, path=str(run.path)))
    async with app.run_test(size=(100, 30)) as pilot:
        head = app.screen.query_one("#head")
        await until(pilot, lambda: "lost" in str(head.render()))
        assert "running" not in str(head.render())
        assert "last news" in str(head.render())
        assert "eta" not in str(head.render())
