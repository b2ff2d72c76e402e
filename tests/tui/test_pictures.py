"""The pictures of README and docs are what the screens show, on frozen data.

pytest tests/tui/test_pictures.py --snapshot-update     writes docs/pictures anew
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_data
import fake_feed
import incident
import pytest
from picture import picture
from screen_stage import board, data_room, form, ready, run_ready, runs_ready
from screen_stage import counted as counted
from settled import settled, until

from albor_tui.screens.attention import AttentionScreen
from albor_tui.screens.dialogs.help import HelpScreen
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.run import TABS
from albor_tui.widgets.attention_panels import AttentionTable, EvidenceView

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDE, SMALL = (160, 45), (80, 24)
TAB_NAMES = [tab.key for tab in TABS if tab.key != "overview"]


async def compared(pilot) -> None:
    names = {"a": "code-125m", "b": "wide"}
    await pilot.app.push_screen(DiffScreen(("a", "b"), names))
    await until(pilot, lambda: pilot.app.screen._document is not None)
    await settled(pilot)


async def helped(pilot) -> None:
    await runs_ready(pilot)
    await pilot.press("question_mark")
    await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
    await pilot.pause()


async def looked(pilot) -> None:
    await pilot.press("exclamation_mark")
    await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: screen.query(AttentionTable) and screen.current is not None)
    await pilot.press("down", "down")
    await until(pilot, lambda: "train.py" in screen.query_one(EvidenceView).text)
    await settled(pilot)


SCREENS = {
    "attention": ({}, looked),
    "runs": ({}, runs_ready),
    "run": ({"run": True}, run_ready),
    "diff": ({}, compared),
    "launch": ({}, form),
    "andon": ({}, board),
    "data-room": ({}, data_room),
    "help": ({}, helped),
}
PICTURES = [
    *((name, name, WIDE, "dark") for name in SCREENS),
    *((f"run-{name}", name, WIDE, "dark") for name in TAB_NAMES),
    *((f"{name}-light", name, WIDE, "light") for name in ("runs", "run", "diff")),
    *((f"{name}-80x24", name, SMALL, "dark") for name in ("runs", "run", "data-room")),
]


@pytest.mark.parametrize(("name", "screen", "size", "theme"), PICTURES, ids=lambda v: str(v))
async def test_a_picture_is_what_the_screen_shows(
    cockpit, source, desk, request, name, screen, size, theme
):
    if screen == "attention":
        source.rows, source.gpus = incident.runs(), incident.eight_gpus()
        source.troubles = incident.attention()
        desk.stands_behind = {f"{source.rows[1].id}/died": incident.EVIDENCE}
    busy = replace(source.rows[0], events=fake_feed.EVENTS)
    source.show((busy, *source.rows[1:]))
    source.data = fake_data.MIXED_DATA
    options, wait = SCREENS.get(screen, ({"run": True, "tab": screen}, None))
    if "run" in options:
        options = {**options, "run": busy}
    app = cockpit(theme=theme, **options)
    async with app.run_test(size=size) as pilot:
        await (wait or ready(source, screen))(pilot)
        drawn = picture(app, f"albor-tui: {name}")
    path = FOLDER / f"{name}.svg"
    if request.config.getoption("--snapshot-update"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn)
    assert path.is_file(), "pytest tests/tui/test_pictures.py --snapshot-update"
    assert path.read_text() == drawn, f"{name} looks different now: look at it, then update it"
    assert len(drawn) < 150_000


def test_no_picture_is_left_of_a_screen_that_is_gone():
    assert {path.stem for path in FOLDER.glob("*.svg")} == {name for name, *_ in PICTURES}
