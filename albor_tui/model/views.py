"""The view that the cockpit shows, kept in views.yaml: the last one, and those with a name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from albor_core.feed.workspace.views import FILE, View, Views, ViewsFile
from albor_core.run.errors import AlborError
from albor_core.run.home.folders import albor_home
from albor_tui.error_log import note

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUIET_S = 0.3  # between a change and its write: a filter changes with each key
_KEEPS = ("theme", "smoothing", "tab")  # a view that says nothing of these leaves them as they are


class ViewKeeper:
    """Screens read what they show first from `current`, and call `update` with what the user
    changed; a thread writes it. For the app's own thread, where it does not say otherwise. Without
    a file, or where it `is_read_only`, nothing is written.
    """

    def __init__(self, file: ViewsFile | None = None, *, is_read_only: bool = False) -> None:
        self.current = View()
        self.name = ""
        """The view that was opened or saved last."""
        self.named: Mapping[str, View] = {}
        self.metrics: Mapping[str, str] = {}
        """By experiment, the metric that its runs are judged by, where the user chose one."""
        self.problem = ""
        """What is wrong with the file, in one line."""
        self.on_problem: Callable[[str], object] = lambda problem: None
        """Called with a problem of the thread that writes, in that thread."""
        self._file, self._is_read_only = file, is_read_only
        self._changes: dict[str, Any] = {}
        self._writes: list[Callable[[], None]] = []
        self._has_work = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def load(self, *, with_filter: bool = True) -> None:
        """Read the file, and begin with its last view; a damaged file is renamed. For any thread,
        before there is an app.
        """
        if self._file is None:
            return
        found = self._file.read()
        self.named, self.metrics, self.problem = found.named, found.metrics, found.problem
        self.current = found.last if with_filter else replace(found.last, filter="")
        if not found.is_damaged:
            return
        try:
            kept = "" if self._is_read_only else self._file.set_aside()
        except AlborError:
            kept = ""
        self.problem += f"; kept as {kept}, the default is shown" if kept else ""

    def reload(self) -> None:
        """Know the views that other cockpits saved. In any thread; reads the file."""
        if self._file is not None:
            found = self._file.read()
            if not (found.is_damaged or found.is_closed):
                self.named = found.named

    @property
    def is_changed(self) -> bool:
        """Whether something else is shown than what has the name."""
        saved = self.named.get(self.name)
        return saved is not None and not shows_same(saved, self.current, on_any_screen=True)

    def update(self, **changes: Any) -> None:
        """The user changed these fields of the view."""
        new = replace(self.current, **changes)
        if new == self.current:
            return
        self._show(new)

    def open(self, name: str) -> View:
        """Show a named view: it is the current one. Raises NotFoundError."""
        path = albor_home() / FILE if self._file is None else self._file.path
        new = _filled(Views(named=self.named).view(name, path), self.current)
        self._show(new)
        self.name = name
        return new

    def save_as(self, name: str, screen: str = "") -> None:
        """Name what is shown, on that screen. Writes the file: for a worker's thread. Raises
        AlborError.
        """
        now = replace(self.current, screen=screen)
        if self._file is not None and not self._is_read_only:
            self._file.save(name, now)
        self.named = {**self.named, name: now}
        self.name = name

    def remove(self, name: str) -> None:
        """Take a named view away. Writes the file: for a worker's thread. Raises AlborError."""
        if self._file is not None and not self._is_read_only:
            self._file.remove(name)
        self.named = {one: view for one, view in self.named.items() if one != name}
        self.name = "" if self.name == name else self.name

    def set_metric(self, experiment: str, key: str) -> None:
        """Judge the runs of an experiment by another metric; "" for the usual one."""
        chosen = {one: own for one, own in self.metrics.items() if one != experiment}
        self.metrics = chosen | ({experiment: key} if key else {})
        if self._file is not None:
            self._write(partial(self._file.set_metric, experiment, key))

    def close(self) -> None:
        """Write what is not written yet, and end the thread."""
        with self._has_work:
            self._is_closed = True
            self._has_work.notify()
        if self._thread is not None:
            self._thread.join()

    # -- the thread that writes ------------------------------------------------------------------

    def _show(self, new: View) -> None:
        names = [one.name for one in fields(View)]
        old, self.current = self.current, new
        changed = {
            one: getattr(new, one) for one in names if getattr(new, one) != getattr(old, one)
        }
        with self._has_work:
            self._changes |= changed
        self._write(None)

    def _write(self, write: Callable[[], None] | None) -> None:
        if self._file is None or self._is_read_only or self._is_closed:
            return
        with self._has_work:
            if write is not None:
                self._writes.append(write)
            self._has_work.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="views", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        assert self._file is not None
        while True:
            with self._has_work:
                self._has_work.wait_for(lambda: self._is_closed or self._changes or self._writes)
                self._has_work.wait_for(lambda: self._is_closed, _QUIET_S)
                writes, self._writes = self._writes, []
                if self._changes:
                    writes.append(partial(self._file.remember, self._changes))
                    self._changes = {}
                is_last = self._is_closed
            self._do(writes)
            if is_last:
                return

    def _do(self, writes: Sequence[Callable[[], None]]) -> None:
        try:
            for write in writes:
                write()
        except AlborError as error:
            if error.message != self.problem:  # said once
                self.problem = error.message
                self.on_problem(error.message)
        except Exception as error:  # nothing that is shown depends on it
            note("views cannot be written", error)


def shows_same(saved: View, now: View, *, on_any_screen: bool = False) -> bool:
    """Whether a named view shows what is shown `now`."""
    if on_any_screen or not saved.screen:
        now = replace(now, screen=saved.screen)
    return _filled(saved, now) == now


def _filled(view: View, now: View) -> View:
    """A view, with the present state of what it says nothing of."""
    silent = [one for one in _KEEPS if getattr(view, one) in ("", None)]
    return replace(view, **{one: getattr(now, one) for one in silent})
