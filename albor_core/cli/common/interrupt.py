"""Ctrl-C while the program is being loaded: it leaves at once, with 130 and without a word.

Importing this module is what does it, so the entry point imports it before everything that takes
time; `loaded` hands Ctrl-C back to Python. Nothing is under way yet that could be left half done,
and a KeyboardInterrupt in the middle of a library's import would be printed as a failure of that
library.
"""

# ruff: noqa: E402  what is imported late is what takes time
from __future__ import annotations

import os
import sys
from types import TracebackType

INTERRUPTED = 130


def _without_a_word(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if kind is KeyboardInterrupt:
        os._exit(INTERRUPTED)
    sys.__excepthook__(kind, error, trace)


sys.excepthook = _without_a_word  # `import signal` takes 3 ms, in which Ctrl-C would show

# isort: split
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def loading() -> None:
    """Let Ctrl-C end the process from here on. A caller who ignores or handles it keeps that."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _set(_leave)


def loaded() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again from now on."""
    if signal.getsignal(signal.SIGINT) is _leave:
        _set(signal.default_int_handler)


@contextmanager
def while_loading() -> Iterator[None]:
    """`loading` for the time of one import."""
    mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    loading()
    try:
        yield
    finally:
        if mine:
            loaded()


def _set(handler: signal._HANDLER) -> None:
    with suppress(ValueError):  # not the main thread: Ctrl-C does not arrive here
        signal.signal(signal.SIGINT, handler)


loading()
sys.excepthook = sys.__excepthook__
