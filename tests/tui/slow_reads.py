"""A brake on what the cockpit reads, and what a frame may not say before it was read.

Every file below a home that is opened or listed, and every question to a store, passes
`Brake.hold` first, in whatever thread it is asked: a test makes a disk and a store as slow as it
likes, or stops them altogether. `recorded` keeps each frame of a cockpit as text.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from albor_tui.app import AlborApp

FILES, STORE = "files", "store"
_READS = frozenset({"open", "os.listdir", "os.scandir"})
_brake: Brake | None = None  # an audit hook stays for ever: this says whether it does anything


class Brake:
    """Calls `hold(kind)` before each read below `home`, kind being FILES or STORE, outside the main
    thread. The main thread draws: what it reads itself is written down in `on_main`.
    """

    def __init__(self, home: str, hold: Callable[[str], None]) -> None:
        self.home, self.hold = home, hold
        self.on_main: list[str] = []

    def reads(self, kind: str, what: str) -> None:
        if threading.current_thread() is threading.main_thread():
            self.on_main.append(f"{kind} {what}")
        else:
            self.hold(kind)


class SlowConnection(sqlite3.Connection):
    """A connection whose every question passes the brake."""

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if _brake is not None:
            _brake.reads(STORE, str(args[0])[:60])
        return super().execute(*args)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _brake is None or event not in _READS or not args:
        return
    path = args[0]
    if isinstance(path, str | bytes) and os.fsdecode(path).startswith(_brake.home):
        _brake.reads(FILES, os.fsdecode(path))


_is_hooked = False


@contextmanager
def braked(home: object, hold: Callable[[str], None]) -> Iterator[Brake]:
    """Everything below `home` passes `hold` within the block."""
    global _brake, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_hook)
        _is_hooked = True
    connect = sqlite3.connect

    def slow(*args: Any, **options: Any) -> sqlite3.Connection:
        return connect(*args, **{"factory": SlowConnection, **options})

    _brake = made = Brake(os.fspath(home), hold)  # type: ignore[call-overload]
    sqlite3.connect = slow  # type: ignore[assignment]
    try:
        yield made
    finally:
        _brake, sqlite3.connect = None, connect


class Gate:
    """Holds readers of the closed kinds until they are opened."""

    def __init__(self, *closed: str) -> None:
        self._changed = threading.Condition()
        self._closed = frozenset(closed)
        self._waiting = 0

    def hold(self, kind: str) -> None:
        with self._changed:
            if kind not in self._closed:
                return
            self._waiting += 1
            self._changed.wait_for(lambda: kind not in self._closed)
            self._waiting -= 1

    @property
    def holds(self) -> bool:
        """Whether a reader waits at it."""
        with self._changed:
            return self._waiting > 0

    def close_only(self, *closed: str) -> None:
        with self._changed:
            self._closed = frozenset(closed)
            self._changed.notify_all()


def recorded(app: AlborApp) -> list[tuple[str, str]]:
    """Every frame that `app` draws from now on: the screen's name, and its lines as one text."""
    frames: list[tuple[str, str]] = []
    display = app._display

    def keep(screen: Any, renderable: Any) -> None:
        display(screen, renderable)
        if renderable is not None and screen is app.screen:
            frames.append((_name_of(screen), shown_on(screen)))

    app._display = keep  # type: ignore[method-assign]
    return frames


def shown_on(screen: Any) -> str:
    """The lines of a screen as one text."""
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


def _name_of(screen: Any) -> str:
    name = type(screen).__name__.removesuffix("Screen").lower()
    return f"{name} {screen.tab}" if hasattr(screen, "tab") else name


_KINDS = (
    "alerts?|metrics?|points|news|output|samples?|timings|checkpoints?|attempts?|figures|events?"
    "|config|data|runs?|rules?|log|report|sources?|card|notes?|tags?|active run|open alerts?"
    "|crash|end|kernels|trace|GPU"
)
_NEGATIVE = re.compile(
    rf"\bno (?:{_KINDS})\b|\bnothing \w+|\bnone yet\b|\bguard +none\b|\bcheckpoint +none\b"
    r"|\bnot (?:watched|recorded|verified|judged)\b|\blost\b|\bqueued\b|\bnever\b|\bno news\b"
    r"|(?<![\w.,])0 of 0\b|\b(?:alerts|runs|events all|data sets|fields|samples|sources) 0\b"
    r"|\b0 (?:runs|alerts|metrics|events|points|restarts)\b|\bhas no\b|\bnone of\b"
    r"|\bage of its news unknown\b|\bready to start\b",
    re.IGNORECASE,
)
_BADGE = re.compile(r"! (\d+) *(so far)?")


def claims(text: str) -> frozenset[str]:
    """The negative facts that a frame states, each as it states it, in small letters."""
    return frozenset(" ".join(found[0].lower().split()) for found in _NEGATIVE.finditer(text))


def badge(text: str) -> int | None:
    """What the badge counts, where it does not say that it is still counting."""
    found = _BADGE.search(text.partition("\n")[0])
    return None if found is None or found[2] else int(found[1])


def lies(
    frames: Collection[tuple[str, str]], truth: dict[str, frozenset[str]], needs: int | None = None
) -> list[tuple[str, str, str]]:
    """What frames say that the settled screens (`truth`, by name) do not: screen, claim, frame.
    `needs` is how many entries attention has when all was read."""
    found = []
    for name, text in frames:
        for claim in sorted(claims(text) - truth.get(name, frozenset())):
            found.append((name, claim, text))
        counted = badge(text)
        if needs is not None and counted is not None and counted < needs:
            found.append((name, f"badge ! {counted} of {needs}", text))
    return found
