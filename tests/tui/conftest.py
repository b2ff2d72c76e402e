"""Fixtures of the cockpit's tests: a frozen clock and an app on fixed data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fake_feed
import pytest

from albor_tui import glyphs
from albor_tui.app import AlborApp
from albor_tui.widgets import facts


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The wall clock stands still, the look is Unicode, no animation, no foreign home."""
    monkeypatch.setattr(facts, "now_wall", lambda: fake_feed.WALL)
    monkeypatch.setattr(glyphs, "current", glyphs.UNICODE)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))


@pytest.fixture
def source() -> fake_feed.FakeSource:
    """A source with one run in each state."""
    return fake_feed.FakeSource(fake_feed.rows())


@pytest.fixture
def cockpit(source: fake_feed.FakeSource) -> Callable[..., AlborApp]:
    """Makes the app on that source."""

    def make(**options: Any) -> AlborApp:
        return AlborApp(source, **options)

    return make
