"""How long ago runs ended: it goes on, and costs only the cells that read differently."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import pytest
from settled import until
from textual.geometry import Region

from albor_tui.widgets import run_table
from albor_tui.widgets.run_table import RunTable

WALL = fake_feed.WALL


@pytest.fixture
def clock(monkeypatch, source):
    """A clock that is set; the ended runs have last words at known moments."""
    now = [WALL]
    monkeypatch.setattr(run_table, "now_wall", lambda: now[0])
    source.show(
        tuple(
            view if view.is_live else replace(view, last_wall=WALL - (view.age_s or 0))
            for view in source.rows
        )
    )
    return now


def text_of(table: RunTable, name: str) -> str:
    lines = (table.render_line(row + 1).text for row in range(len(table.runs)))
    return next(line for line in lines if name in line)


async def test_the_age_of_an_ended_run_goes_on_without_any_news(cockpit, clock):
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        assert "43m ago" in text_of(table, "sweep-lr-3e3")
        refreshed: list[Region] = []
        real = table.refresh
        table.refresh = lambda *regions, **kw: refreshed.extend(regions) or real(*regions, **kw)
        clock[0] += 60
        table.refresh_ages()
        assert "44m ago" in text_of(table, "sweep-lr-3e3")
        assert "1h ago" in text_of(table, "sweep-lr-1e3")
        # 43m to 44m; the run that waits has ended no time ago
        assert sum(region.area for region in refreshed) == 1, "only the cells that differ"
        refreshed.clear()
        table.refresh_ages()
        assert refreshed == []


async def test_ages_are_looked_at_once_a_minute_and_not_more_often(cockpit, clock, monkeypatch):
    assert run_table.AGES_S == 60.0
    monkeypatch.setattr(run_table, "AGES_S", 0.05)
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        clock[0] += 7200
        await until(pilot, lambda: "2h ago" in text_of(table, "sweep-lr-3e3"))


async def test_a_clock_that_was_set_back_makes_no_run_younger_than_it_came(cockpit, clock):
    clock[0] -= 86_400
    async with cockpit().run_test(size=(120, 40)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        assert "43m ago" in text_of(table, "sweep-lr-3e3")
