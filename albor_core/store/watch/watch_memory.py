"""What a watch remembers when its process ends: watch-memory.json beside watch.json, with the byte
of the journal that it had read.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from albor_core.run.files.whole_file import write_json
from albor_core.run.journal import parse_line
from albor_core.run.rundir import RunDir, open_plain, read_json
from albor_core.run.values.lenient import whole_of


class WatchedJournal:
    """The lines of a run's journal from `offset` on, which whoever took them moves."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self.offset = 0

    def lines(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Where each whole line ends, and its record."""
        try:
            with open_plain(self._run.journal) as file:
                if os.fstat(file.fileno()).st_size < self.offset:  # another file: all of it
                    self.offset = 0
                file.seek(self.offset)
                end = self.offset
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return
                    end += len(raw)
                    yield end, parse_line(raw, orjson.loads)
        except OSError:
            return

    def head(self) -> int:
        """What tells this journal from another in its place."""
        try:
            with open_plain(self._run.journal) as file:
                return zlib.crc32(file.readline(1 << 16))
        except OSError:
            return 0


class WatchMemory:
    """The one writer of watch-memory.json."""

    def __init__(self, run: RunDir, journal: WatchedJournal) -> None:
        self._run, self._journal = run, journal
        self.path = run.watch.with_name("watch-memory.json")

    def keep(self, remembered: Mapping[str, Any]) -> None:
        """Write what is remembered at this byte of the journal and this size of system.jsonl."""
        document = {
            "schema": "albor.watch-memory/1",
            "journal": {"offset": self._journal.offset, "head": self._journal.head()},
            "system": self._system_size(),
            **remembered,
        }
        with contextlib.suppress(OSError):  # a full disk: lines since the last one are read again
            write_json(self.path, _strict(document))

    def kept(self) -> tuple[dict[str, Any], bool]:
        """What was kept, and whether it is of this journal."""
        found = read_json(self.path) or {}
        journal = found.get("journal")
        return found, isinstance(journal, dict) and journal.get("head") == self._journal.head()

    def resume_at(self, found: Mapping[str, Any]) -> None:
        """Have the journal go on where it was when this was kept."""
        self._journal.offset = whole_of(found["journal"].get("offset")) or 0

    def _system_size(self) -> int:
        try:
            return self._run.system.stat().st_size
        except OSError:
            return 0


def _strict(value: Any) -> Any:
    """Plain JSON; NaN and Inf as the words that float() reads."""
    if isinstance(value, float) and not (value == value and abs(value) != float("inf")):
        return repr(value)
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
