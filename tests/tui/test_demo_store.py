"""The home that `make ui` opens: full of what screens must bear, the same every time."""

from __future__ import annotations

import math
from pathlib import Path

import demo_store
import pytest
from settled import until

from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader
from albor_tui.app import AlborApp
from albor_tui.model.desk import LiveDesk, RunQuery
from albor_tui.model.source import LiveSource
from albor_tui.widgets.run_table import RunTable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "demo"
    monkeypatch.setenv("ALBOR_HOME", str(place))
    demo_store.build(place, runs=14, now=1_764_000_000.0)
    return place


@pytest.mark.slow
async def test_the_demo_store_has_alerts_nan_odd_names_and_every_deed_works_on_it(home):
    with Reader(global_store()) as reader:
        rows = reader.runs()
        alerts = reader.alerts()
    assert len(rows) == 14
    assert alerts
    assert any(not row.name.isascii() for row in rows)
    assert any(row.loss is not None and math.isnan(row.loss) for row in rows)
    desk, run = LiveDesk(), rows[0].id
    desk.annotate(run, "tag", "seen-by-test")
    assert desk.matching(RunQuery("tag:seen-by-test")).ids == {run}
    desk.annotate(alerts[0].run_id, "ack", alerts[0].id)
    board = desk.board()
    acked = {row.id: row.acked_by for row in board.poll() or () if row.run_id == alerts[0].run_id}
    assert acked[alerts[0].id]
    assert board.poll() is None
    board.close()
    played = desk.replay_rules(alerts[0].run_id, ("loss > 5",))
    assert played["rules"][0]["points"] == 150
    assert desk.find(run).status in ("completed", "stopped", "failed", "lost")
    async with AlborApp(LiveSource(None)).run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 14)
        assert any("seen-by-test" in view.tags for view in table.runs)
