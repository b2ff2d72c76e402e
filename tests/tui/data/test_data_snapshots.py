"""How the Data room looks, cell by cell, on frozen data."""

from __future__ import annotations

import pytest
from screen_stage import data_room
from settled import settled

from albor_tui.look import glyphs

SIZES = [
    pytest.param((width, height), id=f"{width}x{height}")
    for width, height in ((80, 24), (120, 36), (160, 45))
]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_room(snap_compare, cockpit, size):
    assert snap_compare(cockpit(), terminal_size=size, run_before=data_room)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["2", "3", "4"])
def test_part_on_a_small_screen(snap_compare, cockpit, part):
    async def turned(pilot) -> None:
        await data_room(pilot)
        await pilot.press(part)
        await settled(pilot)

    assert snap_compare(cockpit(), terminal_size=(80, 24), run_before=turned)


@pytest.mark.slow
def test_room_in_daylight(snap_compare, cockpit):
    app = cockpit(theme="light")
    assert snap_compare(app, terminal_size=(120, 36), run_before=data_room)


@pytest.mark.slow
def test_room_in_ascii(snap_compare, cockpit, monkeypatch):
    monkeypatch.setattr(glyphs, "current", glyphs.ASCII)
    assert snap_compare(cockpit(), terminal_size=(100, 30), run_before=data_room)
