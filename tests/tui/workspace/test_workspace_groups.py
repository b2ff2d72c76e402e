"""The groups of a workspace are those of the list and of the command line."""

from __future__ import annotations

import contextlib
import io
import json
import sys

import pytest
from sweep import ended

from albor_core.cli.main import run as run_command
from albor_core.feed.runs.cells import CellsWanted
from albor_core.feed.runs.column_values import is_stored
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.indexer import Indexer
from albor_tui.model.source import LiveSource
from albor_tui.model.workspace import Workspace
from albor_tui.screens.runs.grouping import grouped
from albor_tui.screens.workspace.lines import drawn_groups
from albor_tui.screens.workspace.reading import (
    WorkspaceQuestion,
    WorkspaceReader,
    param_choices,
)

PARAMS = (
    {"optim.lr": 1e-3, "betas.0": 1, "betas.1": 2, "wide": True, "seed": 1},
    {"optim.lr": "1e-3", "betas.0": 1, "betas.1": 2, "wide": True, "seed": 2},
    {"optim.lr": 0.01, "betas.0": 1, "betas.1": 2, "wide": False, "wd": 0.1, "seed": 1},
    {"optim.lr": 0.01, "betas.0": 3, "betas.1": 4},
)
GROUPS = {
    "optim.lr": {"0.001": 2, "0.01": 2},
    "betas": {"[1, 2]": 3, "[3, 4]": 1},
    "wide": {"false": 1, "true": 2, "missing": 1},
    "wd": {"0.1": 1, "missing": 3},
    "seed": {"1": 2, "2": 1, "missing": 1},
    "status": {"completed": 3, "failed": 1},
    "tags": {"base": 1, "missing": 3},
    "experiment": {"Other": 1, "sweep": 3},
    "val/mse:min": {"0.125": 2, "0.25": 2},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    home = tmp_path_factory.mktemp("kinds") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(home))
        for n, params in enumerate(PARAMS):
            curve = [(10, 0.125 * (1 + n % 2)), (20, 0.5 + n / 4)]
            why, experiment = ("failed", "Other") if n == 3 else ("completed", "sweep")
            ended(home, f"r{n}", {"val/mse": curve}, params, reason=why, experiment=experiment)
        run = RunDir(home / "runs" / "r0")
        annotate(run, "tag", "base")
        with Indexer(run, global_store()) as indexer:
            indexer.drain()
    return home


@pytest.mark.parametrize("key", GROUPS)
def test_list_workspace_and_command_line_have_the_same_groups_and_means(place, key, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(place))
    source = LiveSource(None)
    overview = source.overview()
    views = overview.complete().rows
    asked = tuple(one for one in ("val/mse", key) if is_stored(one))
    seen = frozenset(view.id for view in views)
    cells = overview.cells.read(CellsWanted(of_all=asked, visible=seen), views)
    lines = grouped(views, key, cells, metric="val/mse")[1].lines
    overview.close()

    reader = WorkspaceReader(source, views)
    facts = reader.poll(WorkspaceQuestion("val/mse", group=key))
    reader.close()
    state = Workspace.begin([view.id for view in facts.views], group=key)
    groups = drawn_groups(state, facts)
    assert {one.label: len(one.runs) for one in groups} == GROUPS[key]
    assert [(line.label, line.count) for line in lines] == [
        (one.label, len(one.runs)) for one in groups
    ]
    means = [float(line.cells[1].plain.split()[0]) for line in lines]
    assert means == pytest.approx([one.band.mean for one in groups], abs=1e-3)

    words = ["albor", "runs", "ls", "--group-by", key, "--columns", "val/mse", "--json"]
    monkeypatch.setattr(sys, "argv", words)
    with contextlib.redirect_stdout(out := io.StringIO()), contextlib.suppress(SystemExit):
        run_command()
    told = json.loads(out.getvalue())["grouped_by"]["groups"]
    assert {one["label"]: one["bands"]["val/mse"]["mean"] for one in told} == {
        one.label: one.band.mean for one in groups
    }
    assert {one["label"]: len(one["runs"]) for one in told} == GROUPS[key]
    if ":" not in key:
        offered = {one.key: {*one.labels} for one in param_choices(facts.params, seen, views)}
        assert offered[key] == {*GROUPS[key]}
