"""The spans of a run, read off its files as far as they have come.

The journal is read in pieces, and after each of them what guard and watcher wrote up to then, so
that an attempt is over only when all that was said of it is known. What was read is remembered as
of the begin of the window that is open: whoever goes on from there gives it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from albor_core.profile.trace import read_trace
from albor_core.run.errors import AlborError
from albor_core.run.journal import parse_line
from albor_core.run.rundir import RunDir, not_plain, open_plain
from albor_core.store.spans.fold import SpanFold
from albor_core.store.spans.profile import ProfiledSteps, profile_of
from albor_core.store.spans.span import Span

BATCH = 512
"""Spans that are given out together, or some more: OpenTelemetry's own size of a batch."""
_MOST_LINES = 5000  # of one piece of the journal
_MAX_LINE = 1 << 20
_FILES = ("journal", "attempts", "system")


@dataclass(frozen=True)
class _Mark:
    """How far each file was read, and what the fold knew by then."""

    offsets: dict[str, int]
    fold: dict[str, Any]


class SpanReader:
    """Follows one run's files. Belongs to one thread. Raises NotFoundError without a run."""

    def __init__(self, run: RunDir, memory: Mapping[str, Any] | None = None) -> None:
        """`memory` is what `memory` said of another reader; anything else begins anew."""
        self._run = run
        self.about = run.metadata()
        self._paths = {"journal": run.journal, "attempts": run.attempts, "system": run.system}
        self._begin()
        if memory:
            self._recall(memory)

    def _begin(self) -> None:
        self.fold = SpanFold(self.about, self._read_profile)
        self._offsets = dict.fromkeys(_FILES, 0)
        self._keep()

    def _recall(self, memory: Mapping[str, Any]) -> None:
        try:
            offsets = {name: int(memory["offsets"][name]) for name in _FILES}
            self.fold.load(memory["fold"])
        except (LookupError, TypeError, ValueError, AttributeError):
            self._begin()
            return
        self._offsets = offsets
        self._keep()

    def _keep(self) -> None:
        self._mark = _Mark(dict(self._offsets), self.fold.to_json())

    def memory(self) -> dict[str, Any]:
        """What the next reader goes on from: all spans that are complete by then were given out."""
        return {"offsets": self._mark.offsets, "fold": self._mark.fold}

    def batch(self) -> list[Span]:
        """The next spans: BATCH or a few more where there are as many, else what there is now."""
        made: list[Span] = []
        while len(made) < BATCH:
            if any(_size(path) < self._offsets[name] for name, path in self._paths.items()):
                self._begin()  # another file: all of it
            has_more = self._read_journal(len(made))
            self._read("attempts", self.fold.take_attempts, _parse_plain)
            self._read("system", self.fold.take_system, _parse_journal)
            self.fold.settle()
            made += self.fold.taken()
            if not has_more:
                break
        return made

    def finish(self, *, is_alive: bool = False) -> list[Span]:
        """What is left when `batch` gives nothing any more; see `SpanFold.finish`."""
        self.fold.finish(is_alive=is_alive)
        self._keep()
        return self.fold.taken()

    def spans(self, *, is_alive: bool = False) -> Iterator[Span]:
        """All of them, the run's own last."""
        while made := self.batch():
            yield from made
        yield from self.finish(is_alive=is_alive)

    def _read_journal(self, num_made: int) -> bool:
        """Take a piece of the journal; whether more of it waits."""
        windows = 0
        for count, (start, end, record) in enumerate(self._lines("journal", _parse_journal)):
            if count == _MOST_LINES:
                return True
            if record is not None and self.fold.closes(record):
                self.fold.close_window()
                self._offsets["journal"] = start
                self._keep()
                windows += 1
                if num_made + 8 * windows >= BATCH:
                    return True
            if record is not None:
                self.fold.take_journal(record)
            self._offsets["journal"] = end
        return False

    def _read(
        self,
        name: str,
        take: Callable[[Mapping[str, Any]], None],
        parse: Callable[[bytes], dict[str, Any] | None],
    ) -> None:
        for _, end, record in self._lines(name, parse):
            if record is not None:
                take(record)
            self._offsets[name] = end

    def _lines(
        self, name: str, parse: Callable[[bytes], dict[str, Any] | None]
    ) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
        """(begin, end, record or None where it is damaged) of each whole line that is new."""
        try:
            with open_plain(self._paths[name]) as file:
                at = self._offsets[name]
                file.seek(at)
                while raw := file.readline(_MAX_LINE):
                    if not raw.endswith(b"\n") and len(raw) < _MAX_LINE:
                        return
                    yield at, at + len(raw), parse(raw)
                    at += len(raw)
        except OSError:
            return

    def _read_profile(self, name: str) -> ProfiledSteps | None:
        path = self._run.traces / name
        try:
            return None if not_plain(path) else profile_of(read_trace(path))
        except AlborError:  # it was removed, or is damaged: its steps have their windows
            return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _parse_journal(raw: bytes) -> dict[str, Any] | None:
    try:
        return parse_line(raw, orjson.loads)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _parse_plain(raw: bytes) -> dict[str, Any] | None:
    try:
        found = orjson.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
