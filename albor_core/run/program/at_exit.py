"""Be told that this process ends: at its exit, or by a signal that nobody else handles.

SIGTERM and SIGHUP are taken only where their default was in force, in the main thread; after the
callback the signal does what it always did, so the exit status is unchanged. A forked child
inherits the handler and is not asked.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

Callback = Callable[[signal.Signals | None, BaseException | None], None]
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_told: list[tuple[int, Callback]] = []


def watch(callback: Callback) -> None:
    """Call `callback(signal, None)` or, at exit, `callback(None, uncaught exception or None)`.

    Watching twice is watching once.
    """
    mine = (os.getpid(), callback)
    if mine not in _told:
        _told[:] = [entry for entry in _told if entry[0] == os.getpid()] + [mine]
        atexit.register(_at_exit)
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _on_signal)


def unwatch(callback: Callback) -> None:
    """Forget `callback`, and the signals with the last one."""
    _told[:] = [entry for entry in _told if entry[1] is not callback]
    if not _told:
        atexit.unregister(_at_exit)
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is _on_signal:
                    signal.signal(number, signal.SIG_DFL)


def _tell(number: signal.Signals | None, error: BaseException | None) -> None:
    for pid, callback in list(_told):
        if pid == os.getpid():
            callback(number, error)


def _at_exit() -> None:
    is_script = not hasattr(sys, "ps1")  # at a prompt the last error is an old story
    _tell(None, getattr(sys, "last_value", None) if is_script else None)


def _on_signal(number: int, frame: FrameType | None) -> None:
    try:
        _tell(signal.Signals(number), None)
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
