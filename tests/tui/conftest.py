"""Fixtures of the cockpit's tests: a frozen clock and an app on fixed data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import fake_data
import fake_desk
import fake_feed
import pytest
from textual.widgets import Input

from albor_core.feed.run import offers
from albor_tui.app import AlborApp
from albor_tui.look import glyphs
from albor_tui.screens.tabs import samples
from albor_tui.widgets import alert_panels, attention_panels
from albor_tui.widgets.data import set_list
from albor_tui.widgets.run import card_list, checkpoint_list, event_list, guard_panel, panels


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The wall clock stands still, the look is Unicode, no animation, no foreign home; the fixed
    runs, which have no files, count as launched by it.
    """
    asked = offers.is_launched_here
    monkeypatch.setattr(
        offers, "is_launched_here", lambda run: run.path.parent == fake_feed.RUNS or asked(run)
    )
    monkeypatch.setattr(Input, "_toggle_cursor", lambda box: None)  # a cursor that does not blink
    monkeypatch.setattr(panels, "now_wall", lambda: fake_feed.WALL)
    monkeypatch.setattr(alert_panels, "now_wall", lambda: fake_feed.WALL)
    monkeypatch.setattr(attention_panels, "now_wall", lambda: fake_feed.WALL)
    for module in (card_list, checkpoint_list, event_list, guard_panel, samples, set_list):
        monkeypatch.setattr(module, "now_wall", lambda: fake_feed.WALL)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(glyphs, "current", glyphs.UNICODE)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))


@pytest.fixture
def source() -> fake_feed.FakeSource:
    """A source with one run in each state."""
    made = fake_feed.FakeSource(fake_feed.rows())
    made.data = fake_data.RUN_DATA
    return made


@pytest.fixture
def desk() -> fake_desk.FakeDesk:
    """A desk that writes down what it was asked to do."""
    return fake_desk.FakeDesk()


@pytest.fixture
def launchpad() -> fake_desk.FakeLaunchpad:
    """A launchpad that starts nothing."""
    return fake_desk.FakeLaunchpad()


@pytest.fixture
def cockpit(
    source: fake_feed.FakeSource, desk: fake_desk.FakeDesk, launchpad: fake_desk.FakeLaunchpad
) -> Callable[..., AlborApp]:
    """Makes the app on that source."""

    def make(**options: Any) -> AlborApp:
        return AlborApp(source, **{"desk": desk, "launchpad": launchpad, **options})

    return make
