"""How each tab of a run looks, cell by cell, on frozen data."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import pytest
from screen_stage import ASKS, answered, ready
from screen_stage import counted as counted
from settled import until

from albor_tui.look import glyphs
from albor_tui.screens.run import TABS

SIZES = [
    pytest.param((width, height), id=f"{width}x{height}")
    for width, height in ((80, 24), (120, 36), (200, 60))
]
KEYS = [tab.key for tab in TABS if tab.key not in ("overview", "charts")]  # those have their own


@pytest.fixture
def busy(source):
    """A run to which something has happened."""
    old = source.rows[0]
    view = replace(old, events=fake_feed.EVENTS)
    source.show((view, *source.rows[1:]))
    return view


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("key", KEYS)
def test_tab(snap_compare, cockpit, source, busy, key, size):
    app = cockpit(run=busy, tab=key)
    assert snap_compare(app, terminal_size=size, run_before=ready(source, key))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["config", "events"])
def test_tab_in_daylight(snap_compare, cockpit, source, busy, key):
    app = cockpit(run=busy, tab=key, theme="light")
    assert snap_compare(app, terminal_size=(120, 36), run_before=ready(source, key))


@pytest.mark.slow
def test_tab_in_ascii(snap_compare, cockpit, source, busy, monkeypatch):
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    app = cockpit(run=busy, tab="checkpoints")
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready(source, "checkpoints"))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["logs", "checkpoints"])
def test_tab_of_a_run_that_has_not_begun(snap_compare, cockpit, source, key):
    source.logs, source.shelf = {}, fake_feed.ShelfView()
    queued = next(view for view in source.rows if view.status == "queued")

    async def wait(pilot) -> None:
        await until(pilot, lambda: source.asked[ASKS.get(key, key)] > 0)
        await answered(pilot)

    app = cockpit(run=queued, tab=key)
    assert snap_compare(app, terminal_size=(80, 24), run_before=wait)


@pytest.mark.slow
def test_alerts_to_choose_from(snap_compare, cockpit, source):
    alerts = tuple(
        replace(fake_feed.ALERT, id=f"a{i}", severity=severity, step=15_000 + i, message=words)
        for i, (severity, words) in enumerate(
            (
                ("warning", "gradient_norm > 5: 7.31"),
                ("error", "loss > 10: inf"),
                ("warning", "optimizer takes 61.2 ms, over 2x its budget of 25 ms"),
            )
        )
    )
    view = replace(source.rows[0], alerts=alerts, alerts_open=3, severity="error")
    source.show((view, *source.rows[1:]))

    async def wait(pilot) -> None:
        await ready(source, "events")(pilot)
        await pilot.press("a")
        await pilot.pause()

    app = cockpit(run=view, tab="events")
    assert snap_compare(app, terminal_size=(100, 30), run_before=wait)
