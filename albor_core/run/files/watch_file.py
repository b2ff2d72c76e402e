""".albor/watch.json (schema albor.watch/1): who watches a run, by which rules, and who could act.

Written whole by the run's index process when it changes and at least every PULSE_S. It is not a
sign of life by itself: `is_watched` asks the lock of the index process too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from albor_core.run.files.whole_file import write_json
from albor_core.run.light_dataclass import dataclass
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import finite_of, text_of, whole_of

SCHEMA = "albor.watch/1"
PULSE_S = 10.0
FRESH_S = 30.0


@dataclass(frozen=True)
class SinkState:
    """Where alerts go, and whether the last one arrived."""

    name: str
    ok: bool = True
    why: str = ""
    since: float | None = None


@dataclass(frozen=True)
class Watch:
    """`by` is who evaluates the rules over steps: "loop" (the trainer) or "index". `acts` is false
    where nothing can stop or pause the program; then `why_tells_only` says why. `problems` are what
    went wrong while watching; the run goes on.
    """

    pid: int
    wall: float
    by: str = "index"
    rules: int = 0
    rule_texts: tuple[str, ...] = ()
    acts: bool = False
    why_tells_only: str = ""
    sinks: tuple[SinkState, ...] = ()
    samples_machine: bool = False
    lines_lost: int = 0
    words: Mapping[str, str] | None = None
    """What health says of the run: "expected loss" -> "on track"."""
    finish: Mapping[str, float] | None = None
    """When the run ends, as `HealthWatch.finish`."""
    budgets: tuple[Mapping[str, Any], ...] = ()
    """What it used, as `BudgetLedger.summary`."""
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


def write_watch(run: RunDir, watch: Watch) -> None:
    """Replace it. Raises OSError."""
    write_json(run.watch, watch.to_json())


def read_watch(run: RunDir) -> Watch | None:
    """The last report of the index process; None if there is no readable one."""
    return watch_of(read_json(run.watch) or {})


def watch_of(found: Mapping[str, Any]) -> Watch | None:
    """The same of the document that was read."""
    if found.get("schema") != SCHEMA:
        return None
    words = found.get("words")
    return Watch(
        pid=whole_of(found.get("pid")) or 0,
        wall=finite_of(found.get("wall")) or 0.0,
        by="loop" if found.get("by") == "loop" else "index",
        rules=whole_of(found.get("rules")) or 0,
        rule_texts=_texts(found.get("rule_texts")),
        acts=found.get("acts") is True,
        why_tells_only=text_of(found.get("why_tells_only")) or "",
        sinks=tuple(_sink(one) for one in _list(found.get("sinks")) if isinstance(one, dict)),
        samples_machine=found.get("samples_machine") is True,
        lines_lost=whole_of(found.get("lines_lost")) or 0,
        words={str(k): str(v) for k, v in words.items()} if isinstance(words, dict) else None,
        finish=_numbers(found.get("finish")),
        budgets=tuple(one for one in _list(found.get("budgets")) if isinstance(one, dict)),
        problems=_texts(found.get("problems")),
    )


def is_watched(run: RunDir, watch: Watch | None, *, now: float | None = None) -> bool:
    """Whether an index process lives and said so lately. Not for the process that holds
    index.lock itself: looking would drop it.
    """
    now = time.time() if now is None else now
    is_fresh = watch is not None and abs(now - watch.wall) < FRESH_S
    return is_fresh and lock_holder(run.index_lock) is not None


def _sink(found: Mapping[str, Any]) -> SinkState:
    return SinkState(
        name=text_of(found.get("name")) or "",
        ok=found.get("ok") is True,
        why=text_of(found.get("why")) or "",
        since=finite_of(found.get("since")),
    )


def _numbers(value: object) -> dict[str, float] | None:
    if not isinstance(value, dict):
        return None
    return {str(k): number for k, v in value.items() if (number := finite_of(v)) is not None}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in _list(value) if isinstance(one, str))
