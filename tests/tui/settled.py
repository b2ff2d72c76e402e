"""Waiting for the cockpit to have drawn what it knows, without sleeping for a guessed time."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.pilot import Pilot

from albor_tui.widgets.chart import Chart

PATIENCE_S = 20.0


async def until(pilot: Pilot, holds: Callable[[], bool], what: str = "") -> None:
    """Let the app run until `holds()`; fails after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what or "waited in vain"
        await pilot.pause(0.02)


async def settled(pilot: Pilot) -> None:
    """Until every chart on the screen shows its newest data and nothing is queued."""
    screen = pilot.app.screen
    await until(
        pilot,
        lambda: all(c.is_painted for c in screen.query(Chart) if c.region.height > 4),
        "a chart was never painted",
    )
    await pilot.pause()
