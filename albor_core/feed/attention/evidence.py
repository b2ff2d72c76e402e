"""What stands behind an entry, read when it is wanted: the last lines, the stacks, the report, the
values around the alert. Bounded, and clean text.
"""

from __future__ import annotations

from pathlib import Path

from albor_core.feed.archive.crashes import CrashShelf
from albor_core.feed.attention.item import AttentionItem
from albor_core.feed.attention.marks import run_of
from albor_core.feed.run.tail import last_lines
from albor_core.run.errors import AlborError
from albor_core.run.rundir import RunDir
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import figure
from albor_core.store.file.paths import local_store
from albor_core.store.query.reader import Reader

LINES = 8
STACK_LINES = 30
AROUND = 10  # steps before and behind the one of an alert
_CHARS = 500


def evidence(item: AttentionItem) -> tuple[str, ...]:
    """Lines to show below an entry, "" between two parts; () where there is none. Never raises."""
    if not item.path or not Path(item.path).is_dir():
        return ()
    run = run_of(item)
    parts: list[list[str]] = []
    if item.kind in ("died", "failed", "lost", "restarted", "hung"):
        parts.append(_report(run))
    if item.kind == "hung":
        parts.append(_stacks(run))
    if item.kind in ("rule", "health", "non_finite", "budget") and item.step is not None:
        parts.append(_values(run, item))
    parts.append(last_lines(run.logs, LINES))
    lines: list[str] = []
    for part in filter(None, parts):
        lines += ["", *part] if lines else part
    return tuple(clean(line, limit=_CHARS) for line in lines)


def _report(run: RunDir) -> list[str]:
    """The newest crash report in a few lines."""
    for found in CrashShelf(run).look():
        said = [found.error or found.reason, found.hang]
        where = f"report: {found.path}"
        stacks = ["stacks:", *found.stacks[:STACK_LINES]] if found.stacks else []
        return [*filter(None, said), where, *stacks]
    return []


def _stacks(run: RunDir) -> list[str]:
    """The newest dump of a program's threads, where its guard has asked for one."""
    newest = max(run.logs.glob("a*.stacks"), default=None)
    return [] if newest is None else ["stacks:", *last_lines(newest, STACK_LINES)]


def _values(run: RunDir, item: AttentionItem) -> list[str]:
    """The metric of the alert, or the loss, around its step."""
    assert item.step is not None
    key = item.metric or "train/loss"
    lo, hi = item.step - AROUND, item.step + AROUND
    try:
        with Reader(local_store(run)) as reader:
            series = reader.series(run.own_id, key, lo=lo, hi=hi, max_points=4 * AROUND)
    except AlborError:
        return []
    pairs = zip(series.steps, series.last, strict=True)
    told = [f"  step {int(step):>8,}  {figure(value, key)}" for step, value in pairs]
    return [f"{key} around step {item.step:,}:", *told[-2 * AROUND :]] if told else []
