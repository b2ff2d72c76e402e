"""How the screens look, cell by cell, on frozen data. `make golden` rewrites them after a look."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from screen_stage import run_ready, runs_ready
from settled import settled, until

from albor_tui.app import AlborApp
from albor_tui.screens.diff import DiffScreen

SIZES = [
    pytest.param((width, height), id=f"{width}x{height}")
    for width, height in ((80, 24), (120, 36), (160, 45), (200, 60))
]


@pytest.mark.parametrize("size", SIZES)
def test_runs(snap_compare, cockpit: Callable[..., AlborApp], size):
    assert snap_compare(cockpit(), terminal_size=size, run_before=runs_ready)


def test_runs_in_daylight(snap_compare, cockpit):
    assert snap_compare(cockpit(theme="light"), terminal_size=(120, 36), run_before=runs_ready)


def test_runs_in_ascii(snap_compare, cockpit, monkeypatch):
    from albor_tui.look import glyphs

    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    assert snap_compare(cockpit(), terminal_size=(100, 30), run_before=runs_ready)


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare, cockpit, source, size):
    source.show(())
    source.gpus = ()

    async def ready(pilot) -> None:
        empty = pilot.app.screen.query_one("#empty")
        await until(pilot, lambda: "albor demo" in str(empty.content))

    assert snap_compare(cockpit(), terminal_size=size, run_before=ready)


@pytest.mark.parametrize("size", SIZES)
def test_run(snap_compare, cockpit, source, size):
    view = source.rows[0]
    assert snap_compare(cockpit(run=view), terminal_size=size, run_before=run_ready)


@pytest.mark.parametrize("size", SIZES)
def test_diff(snap_compare, cockpit, size):
    async def ready(pilot) -> None:
        names = {"a": "code-125m", "b": "wide"}
        await pilot.app.push_screen(DiffScreen(("a", "b"), names))
        await until(pilot, lambda: pilot.app.screen._document is not None)
        await settled(pilot)

    assert snap_compare(cockpit(), terminal_size=size, run_before=ready)
