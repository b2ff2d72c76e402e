"""`albor data batch` finds data by paths that are relative to where the run was started."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.data.load import step_batch
from albor_core.run.home.new_run import create_run


class _Made:
    step = 3
    rows = ()


def test_a_batch_is_read_where_the_run_was_started(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(tmp_path / "out", "r", experiment="e", name="r", kind="train", argv=["x"])
    home = tmp_path / "started"
    home.mkdir()
    run.launch.write_text(json.dumps({"cwd": str(home)}))
    read_in = []
    monkeypatch.setattr(step_batch, "step_batch", lambda *_: read_in.append(Path.cwd()) or _Made)
    before = Path.cwd()
    done = CliRunner().invoke(cli, ["data", "batch", str(run.path), "--json"])
    assert done.exit_code == 0, done.output
    assert read_in == [home] and Path.cwd() == before
