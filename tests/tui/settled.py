"""Waiting for the cockpit to have drawn what it knows, without sleeping for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.pilot import Pilot

from albor_tui.widgets.chart.chart import Chart

PATIENCE_S = 20.0


async def until(pilot: Pilot, holds: Callable[[], bool], what: str = "") -> None:
    """Let the app run until `holds()`; fails after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what or "waited in vain"
        await pilot.pause(0.02)


async def settled(pilot: Pilot) -> None:
    """Until every chart on the screen shows its newest data, and still does when what was queued
    meanwhile (a search asks for curves, the curves paint) has been done."""
    screen = pilot.app.screen

    def is_painted() -> bool:
        return all(c.is_painted for c in screen.query(Chart) if c.region.height > 4)

    in_a_row = 0
    while in_a_row < 3:
        await until(pilot, is_painted, "a chart was never painted")
        await pilot.pause()
        in_a_row = in_a_row + 1 if is_painted() else 0
