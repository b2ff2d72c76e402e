"""Which colour, dash and letter stands for a run: the same on every screen and after a restart.

A run gets the first free place of its experiment the first time it is drawn, and keeps it for good
in `ALBOR_HOME/run-colours.json`, also once it is removed. Of two runs of different experiments that
have one place and are drawn together one moves, once, to another dash of its colour. That file is a
convenience: one that is damaged, foreign or cannot be written costs nothing but the same colours
after a restart.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import string
import tempfile
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from albor_core.run.light_dataclass import dataclass

RUN_TONES = ("main", "val", "second", "third", "fourth", "fifth", "sixth", "seventh")
DASHES = 5  # solid, and the patterns of albor_tui/widgets/chart/dashes.py
LETTERS = string.ascii_uppercase + string.ascii_lowercase
FILE = "run-colours.json"
MOST_KEPT = 4_000  # runs in the file, the latest drawn
_MAX_BYTES = 1 << 20
_FRAME, _BETWEEN = (b'{"runs": [', b"]}"), b", "
_PATIENCE_S = 0.2  # for the file, before the first run is drawn


@dataclass(frozen=True)
class RunStyle:
    """How the line of a run is drawn. `tone` is one of `RUN_TONES`, a class of the stylesheet;
    `dash` 0 is solid; the letter tells where there is no colour."""

    tone: str
    dash: int
    letter: str

    @property
    def colour(self) -> str:
        """The tone as a style of text."""
        return f"$line-{self.tone}"


class DrawnRun(Protocol):
    """A run of which a style is asked."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def experiment(self) -> str:
        """Its experiment, which shares eight colours."""


class RunColours:
    """Gives runs their styles. Used by the event loop; the file is read and written in threads."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._places: dict[str, dict[str, int]] = {}  # by experiment and run
        self._order: dict[tuple[str, str], None] = {}  # experiment and run, the latest drawn last
        self._taken: dict[str, set[int]] = {}  # places, by experiment
        self._free: dict[str, itertools.count[int]] = {}
        self._lock = threading.Lock()
        self._changed: set[tuple[str, str]] = set()  # what the file does not have so
        self._writer: threading.Thread | None = None
        self._kept: dict[str, dict[str, int]] | None = None  # what the file had, until it is used
        self._reader = threading.Thread(target=self._read, name="colours", daemon=True)
        self._reader.start()

    def styles(self, runs: Sequence[DrawnRun | tuple[str, str]]) -> dict[str, RunStyle]:
        """The style of each run, by its id; a run is given as it is, or as (id, experiment). Of two
        that share a place one gets another dash."""
        self._take_kept()
        asked = dict(
            run if isinstance(run, tuple) else (run.id, run.experiment or "") for run in runs
        )
        placed = {run: self._place(run, experiment) for run, experiment in asked.items()}
        # whoever comes first keeps its own dash: an order that sorting a list does not change
        order = sorted(placed, key=lambda one: (placed[one], asked[one], one))
        self._part(order, asked, placed)
        if self._changed:
            self._save()
        found: dict[str, RunStyle] = {}
        letters: set[str] = set()
        for run in order:
            place = placed[run]
            known = (LETTERS[(place + more) % len(LETTERS)] for more in range(len(LETTERS)))
            letter = next((one for one in known if one not in letters), LETTERS[place % 52])
            letters.add(letter)
            found[run] = RunStyle(*_look(place), letter)
        return {run: found[run] for run in asked}

    def close(self) -> None:
        """Wait, not for long, until what is new is in the file."""
        if (writer := self._writer) is not None:
            writer.join(1.0)

    def _part(self, order: Sequence[str], asked: Mapping[str, str], placed: dict[str, int]) -> None:
        """Move those that look like one before them to a dash that none has, for good: what a run
        looks like does not depend on which others are drawn with it the next time."""
        owners: dict[tuple[str, int], str] = {}
        for run in order:
            owners.setdefault(_look(placed[run]), run)
        for run in order:
            place, taken = placed[run], self._taken[asked[run]]
            if owners[_look(place)] == run:
                continue
            others = (place + more * len(RUN_TONES) for more in range(1, DASHES))
            free = next((one for one in others if _look(one) not in owners), None)
            if free is None:
                continue
            while free in taken:
                free += len(RUN_TONES) * DASHES
            taken.add(free)
            owners[_look(free)] = run
            placed[run] = self._places[asked[run]][run] = free
            self._changed.add((asked[run], run))

    def _place(self, run: str, experiment: str) -> int:
        places = self._places.setdefault(experiment, {})
        if run not in places:
            free = self._free.setdefault(experiment, itertools.count())
            taken = self._taken.setdefault(experiment, set())
            places[run] = next(place for place in free if place not in taken)
            taken.add(places[run])
            self._changed.add((experiment, run))
        self._order.pop((experiment, run), None)
        self._order[experiment, run] = None
        return places[run]

    def _read(self) -> None:
        self._kept = _read(self._file) if self._file is not None else {}

    def _take_kept(self) -> None:
        """Take over what the file had, once it has been read; a file that hangs is not waited for,
        but holds also for what was drawn meanwhile."""
        if self._reader.is_alive():
            self._reader.join(_PATIENCE_S if not self._places else 0.0)
        kept, self._kept = self._kept, None
        for experiment, places in (kept or {}).items():
            known = self._places.setdefault(experiment, {})
            for run, place in places.items():
                known[run] = place
                self._taken.setdefault(experiment, set()).add(place)
                self._order.setdefault((experiment, run))
                self._changed.discard((experiment, run))

    def _save(self) -> None:
        if self._reader.is_alive():
            return  # the next time
        changed, self._changed = frozenset(self._changed), set()
        if self._file is None:
            return
        latest = list(self._order)[-MOST_KEPT:]
        places = [(experiment, run, self._places[experiment][run]) for experiment, run in latest]
        earlier = self._writer

        def write() -> None:
            if earlier is not None:
                earlier.join()
            with self._lock, contextlib.suppress(OSError, ValueError):
                _write(self._file, places, changed)

        self._writer = threading.Thread(target=write, name="colours", daemon=True)
        self._writer.start()


def _read(file: Path | None) -> dict[str, dict[str, int]]:
    """Places by experiment and run; what cannot be read is left out."""
    try:
        with file.open("rb") as stream:  # type: ignore[union-attr]
            entries = json.loads(stream.read(_MAX_BYTES))["runs"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    found: dict[str, dict[str, int]] = {}
    for entry in entries if isinstance(entries, list) else ():
        if _is_entry(entry):
            found.setdefault(entry[0], {})[entry[1]] = entry[2]
    return found


def _is_entry(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 3):
        return False
    is_named = isinstance(entry[0], str) and isinstance(entry[1], str)
    return is_named and type(entry[2]) is int and 0 <= entry[2] < 1_000_000


def _look(place: int) -> tuple[str, int]:
    """Tone and dash of a place."""
    return RUN_TONES[place % len(RUN_TONES)], place // len(RUN_TONES) % DASHES


def _write(
    file: Path | None, places: Iterable[tuple[str, str, int]], changed: Collection[tuple[str, str]]
) -> None:
    """All of it or nothing, with what another cockpit wrote since, which holds for all that was not
    `changed` here."""
    assert file is not None
    ours = {(experiment, run): place for experiment, run, place in places}
    theirs = {(e, run): place for e, known in _read(file).items() for run, place in known.items()}
    old = {key: theirs.get(key, place) for key, place in ours.items() if key not in changed}
    earlier = [(*key, place) for key, place in theirs.items() if key not in ours]
    both = [*earlier, *((*key, place) for key, place in {**ours, **old}.items())]
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".run-colours.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(_dumped(both))
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _dumped(entries: Sequence[tuple[str, str, int]]) -> bytes:
    """The file with the latest entries, as many as are read again."""
    kept, room = list[bytes](), _MAX_BYTES - len(_FRAME[0] + _FRAME[1])
    for entry in reversed(entries[-MOST_KEPT:]):
        raw = json.dumps(entry, ensure_ascii=False).encode(errors="surrogatepass")
        room -= len(raw) + len(_BETWEEN)
        if room < 0:
            break
        kept.append(raw)
    return _BETWEEN.join(kept[::-1]).join(_FRAME)
