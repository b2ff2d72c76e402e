"""What hides runs or makes them old stands above the list for as long as it does."""

from __future__ import annotations

import time

import fake_feed
import pytest
from settled import until
from textual.widgets import Static

from albor_tui.app import AlborApp
from albor_tui.model.source import LiveSource
from albor_tui.widgets import status_bar
from albor_tui.widgets.run_table import RunTable

TROUBLE = (
    "experiments.db: damaged (file is not a database) since 14:05; albor db rebuild;"
    " rows as of 14:03"
)


def text_of(screen) -> str:
    strips = screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_a_lost_store_is_told_until_it_is_back(cockpit, source, monkeypatch, size):
    monkeypatch.setattr(status_bar, "STAYS_S", 0.01)
    async with cockpit().run_test(size=size) as pilot:
        screen = pilot.app.screen
        table = screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        rows, top = table.region.height, screen.query_one("#list").region.y
        source.trouble = TROUBLE
        source.show(source.rows)
        await until(pilot, lambda: "since 14:05" in text_of(screen))
        await pilot.pause(0.1)
        words = " ".join(text_of(screen).split())
        for part in ("damaged", "albor db rebuild", "rows as of 14:03"):
            assert part in words, "it went, or does not fit"
        assert screen.query_one("#list").region.y - top == (2 if size[0] == 80 else 1)
        assert table.region.height >= rows - 2
        assert screen.query_one("KeyBar").region.bottom == size[1]
        source.trouble = ""
        source.show(source.rows)
        await until(pilot, lambda: "since 14:05" not in text_of(screen))
        await until(pilot, lambda: screen.query_one("#list").region.y == top)


async def test_no_runs_and_a_lost_store_is_not_called_an_empty_home(cockpit, source):
    source.rows, source.trouble = (), TROUBLE
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "No run can be shown" in text_of(pilot.app.screen))
        assert "albor db rebuild" in " ".join(text_of(pilot.app.screen).split())
        assert "albor demo" not in text_of(pilot.app.screen)


async def test_a_real_store_that_is_no_store_is_told(tmp_path):
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    (home / "experiments.db").write_bytes(b"this is no database" * 100)
    async with AlborApp(LiveSource(None)).run_test(size=(80, 24)) as pilot:
        line = pilot.app.screen.query_one("#problem", Static)
        await until(pilot, lambda: line.display)
        assert time.strftime("%H:") in str(line.content)


async def test_a_run_without_an_age_but_with_steps_is_not_called_without_news(cockpit, source):
    odd = fake_feed.training(age_s=None, is_live=False)
    source.show((odd,))
    async with cockpit(run=odd).run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "15,280" in text_of(pilot.app.screen))
        assert "no news yet" not in text_of(pilot.app.screen)
