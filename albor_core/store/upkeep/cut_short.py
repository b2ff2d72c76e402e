"""What a run's files lack of what is known of them: lines that were cut off, or all.

A journal is the truth as long as it is whole. Where its end is gone, the store that was made from
it knows more, and so do the run's last words.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError
from albor_core.run.exit import read_exit
from albor_core.run.rundir import RunDir, open_plain
from albor_core.run.values.lenient import integer
from albor_core.store.file.connect import problems
from albor_core.store.file.paths import local_store
from albor_core.store.index.catch_up import positions_of
from albor_core.store.index.sources import files_of, is_cut, parse_journal

_TAIL_BYTES = 256 << 10


def cut_short(run: RunDir, all_runs: Path) -> str:
    """What is missing of an ended run, and where the rest is: in its own store, in that of all
    runs, or nowhere; "" where nothing is.
    """
    own = _of_store(run, local_store(run), run.own_id)
    return own or _of_store(run, all_runs, run.id) or lost_end(run)


def only_in(run: RunDir, store: Path, run_id: str) -> str:
    """As `cut_short`, where this store, which calls the run `run_id`, has the rest and is whole:
    then no rebuild may take it from there.
    """
    what = _of_store(run, store, run_id)
    return what if what and not problems(store) else ""


def _of_store(run: RunDir, store: Path, run_id: str) -> str:
    try:
        positions = positions_of(store, run_id)
    except (AlborError, sqlite3.Error):
        return ""
    files = files_of(run)
    cut = [name for name, position in positions.items() if is_cut(files[name], position)]
    if not cut or run.liveness().is_alive:
        return ""
    if "journal" in cut:
        return f"{_ends(run)}; the rest is in {store} alone"
    path, known = files[cut[0]], positions[cut[0]]
    is_there = os.path.lexists(path)
    what = f"{path.name} has less than {known.offset} bytes" if is_there else f"{path.name} is gone"
    return f"{what}; the rest of its {known.lines} lines is in {store} alone"


def lost_end(run: RunDir) -> str:
    """What the journal of an ended run lacks by the run's last words."""
    words = read_exit(run) or {}
    ended = integer(words, "step")
    if not ended or integer(words, "lines_lost") or run.liveness().is_alive:
        return ""
    lines = _tail(run.journal)
    has_end = any(
        line.get("name") == "run.end" and line.get("attempt") == words.get("attempt")
        for line in lines
    )
    return "" if has_end or _last_step(lines) >= ended else f"{_ends(run)}; the rest is gone"


def _ends(run: RunDir) -> str:
    words, lines = read_exit(run) or {}, _tail(run.journal)
    ended = integer(words, "step")
    where = f"ends at {_last_step(lines)}" if lines else "is gone or empty"
    return (
        f"its journal {where}" if ended is None else f"ended at step {ended}, its journal {where}"
    )


def _last_step(lines: list[dict[str, Any]]) -> int:
    return max((integer(line, "step") or 0 for line in lines), default=0)


def _tail(journal: Path) -> list[dict[str, Any]]:
    """The last whole lines, oldest first; none where it cannot be read."""
    try:
        with open_plain(journal) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            raw = file.read(_TAIL_BYTES)
    except OSError:
        return []
    found = (parse_journal(line + b"\n") for line in raw.split(b"\n"))
    return [record for record in found if record is not None]
