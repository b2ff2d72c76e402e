"""Be told that this process ends: at its exit, or by a signal without another handler.

SIGTERM and SIGHUP are taken only where their default was in force, in the main thread; after the
callback the signal does what it always did, so the exit status is unchanged. A forked child
inherits the handler and is not asked.

Python keeps no trace of a SystemExit that ends a program, so `sys.exit`, `exit` and `quit` say it
here on their way; `raise SystemExit` is not seen.
"""

from __future__ import annotations

import atexit
import builtins
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

Callback = Callable[[signal.Signals | None, BaseException | None], None]
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_QUITTER: Any = type(getattr(builtins, "exit", None))  # of `exit` and `quit`, where site made them


class _Watch(NamedTuple):
    pid: int
    callback: Callback
    asked: Callable[[SystemExit], None]


_told: list[_Watch] = []
_before: dict[str, Any] = {}  # what `sys.exit` and the others were, where ours were put


def watch(callback: Callback, asked: Callable[[SystemExit], None]) -> None:
    """Call `callback(signal, None)` or, at exit, `callback(None, uncaught exception or None)`.
    `asked(SystemExit)` is called when the main thread asks to leave; the program may catch that.

    Watching twice is watching once.
    """
    mine = _Watch(os.getpid(), callback, asked)
    if all((one.pid, one.callback) != mine[:2] for one in _told):
        _told[:] = [one for one in _told if one.pid == mine.pid] + [mine]
        atexit.register(_at_exit)
        _finish_with_worker()
    _hear_exit()
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _on_signal)


def unwatch(callback: Callback) -> None:
    """Forget `callback`, and the signals with the last one."""
    _told[:] = [one for one in _told if one.callback is not callback]
    if not _told:
        atexit.unregister(_at_exit)
        if sys.exit is _exit:
            sys.exit = _before.pop("exit")
        if vars(_QUITTER).get("__call__") is _quit:
            _QUITTER.__call__ = _before.pop("quit")
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is _on_signal:
                    signal.signal(number, signal.SIG_DFL)


def _hear_exit() -> None:
    """Once: where another library has put its own before ours, that calls ours still."""
    if "exit" not in _before:
        _before["exit"], sys.exit = sys.exit, _exit
    if "quit" not in _before and _QUITTER.__name__ == "Quitter":
        _before["quit"], _QUITTER.__call__ = _QUITTER.__call__, _quit


def _exit(status: Any = None, /) -> Any:
    _tell_asked(status)
    return _before["exit"](status)


def _quit(self: Any, code: Any = None) -> Any:
    _tell_asked(code)
    return _before["quit"](self, code)


def _tell_asked(code: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # elsewhere it ends the thread alone
        for pid, _, asked in list(_told):
            if pid == os.getpid():
                asked(SystemExit(code))


def _finish_with_worker() -> None:
    """A worker of multiprocessing leaves by `os._exit`, after its own finalizers."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize  # noqa: PLC0415  loaded already

        Finalize(None, _at_worker_end, exitpriority=0)


def _at_worker_end() -> None:
    _call_back(None, sys.exc_info()[1])  # what left the worker's function is on its way still


def _call_back(number: signal.Signals | None, error: BaseException | None) -> None:
    for pid, callback, _ in list(_told):
        if pid == os.getpid():
            callback(number, error)


def _at_exit() -> None:
    is_script = not hasattr(sys, "ps1")  # at a prompt the last error is an old story
    _call_back(None, getattr(sys, "last_value", None) if is_script else None)


def _on_signal(number: int, frame: FrameType | None) -> None:
    try:
        _call_back(signal.Signals(number), None)
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
