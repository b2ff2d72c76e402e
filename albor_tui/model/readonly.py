"""A cockpit that can look and do nothing: what is served to a browser unless more is asked for.

Keys that do something are not named, and refused with the reason on the status line; behind them
every action is refused once more where it would be done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_tui.messages import CommandReport
from albor_tui.model.desk import LiveDesk
from albor_tui.model.launchpad import LiveLaunchpad
from albor_tui.model.source import LiveSource

if TYPE_CHECKING:
    from albor_core.picture.line_picture import LinePicture

WHY = "read-only"
HINT = "start it without --read-only, in a browser with --allow-control"
ACTING = frozenset(
    (
        *("stop", "pause", "checkpoint", "retry", "launch", "export", "report", "picture"),
        *("tag", "note", "edit_note", "remove_note", "rename", "pin", "undo", "mute"),
        "acknowledge",
        "acknowledge_all",
        "verify",  # it changes nothing, and may keep a disk busy for hours
    )
)
"""Actions of screens that act on runs or write files."""


def _refuse() -> NoReturn:
    raise AlborError(WHY, hint=HINT)


class ReadOnlySource(LiveSource):
    """Shows everything, commands nothing."""

    def command(self, view: RunView, cmd: str, argument: str = "") -> Iterator[CommandReport]:
        yield CommandReport(view.name or view.id, cmd, "refused", f"{WHY}; {HINT}")

    def acknowledge(self, view: RunView, alert_id: str) -> None:
        _refuse()


class ReadOnlyDesk(LiveDesk):
    """Answers questions, writes nothing, anywhere."""

    def annotate(self, run: str, kind: str, value: str = "") -> str:
        _refuse()

    def edit_note(self, run: str, number: int, text: str) -> None:
        _refuse()

    def set_tags(self, run: str, tags: Sequence[str], before: Sequence[str]) -> None:
        _refuse()

    def acknowledge(self, item: AttentionItem) -> None:
        _refuse()

    def mute(self, item: AttentionItem, until: float) -> None:
        _refuse()

    def note_look(self) -> None:
        """Nothing is written, not even when the user looked."""

    def resume(self, run: str) -> str:
        _refuse()

    def stop(self, run: str, number: str) -> str:
        _refuse()

    def verify_data(self, path: str, cancelled: threading.Event) -> tuple[str, ...]:
        _refuse()

    def export(self, runs: Sequence[str], out: Path) -> str:
        _refuse()

    def draw(self, picture: LinePicture, out: Path) -> None:
        _refuse()

    def report(self, runs: Sequence[str], out: Path) -> str:
        _refuse()


class ReadOnlyLaunchpad(LiveLaunchpad):
    """Reads no file that a stranger names and starts nothing."""

    def check(self, path: Path, overrides: Sequence[str]) -> Any:
        _refuse()

    def plan(
        self, path: Path, overrides: Sequence[str], cancelled: threading.Event
    ) -> dict[str, Any]:
        _refuse()

    def start(self, path: Path, overrides: Sequence[str], name: str) -> tuple[str, str]:
        _refuse()
