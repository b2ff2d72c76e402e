"""The one list of what needs a person now, derived from values: pure, so that a test can ask about
any situation.

Looked at are runs at work and runs that ended within KEPT_S. A run that its user stopped or that
completed is only a trouble where lines of it were lost, or something that fired was neither over
nor seen; of an imported one only that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, nan
from zlib import crc32

from albor_core.andon.rules.sources import RULES_FILE
from albor_core.feed.attention.item import AttentionItem, AttentionList, AttentionMarks, SinceLooked
from albor_core.feed.attention.machine import MachineView
from albor_core.feed.attention.of_machine import machine_items
from albor_core.feed.attention.of_run import ended_items, live_items
from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import LOSSES

KEPT_S = 7 * 86400.0
"""How long the end of a run stays in the list while it is neither seen nor resumed."""
_ENDED_BADLY = ("failed", "lost", "stopped")


def is_candidate(view: RunView, now: float) -> bool:
    """Whether a run may have an entry, so that its diagnostics need to be read."""
    if view.kind == "imported":
        return view.alerts_open > 0
    if view.is_active:
        return True
    has_lost = view.lines_lost or view.console_bytes_lost
    is_trouble = view.status in _ENDED_BADLY or (view.status == "completed" and has_lost)
    return bool(is_trouble or view.alerts_open) and now - (ended_at(view) or 0.0) < KEPT_S


def ended_at(view: RunView) -> float | None:
    """When a run ended, or was last heard of."""
    return next((w for w in (view.ended_wall, view.last_wall, view.created) if w is not None), None)


def attention(
    runs: Iterable[RunView],
    machine: MachineView,
    marks: AttentionMarks,
    *,
    now: float,
    since: SinceLooked | None = None,
    being_read: tuple[str, ...] = (),
    is_complete: bool = True,
    problem: str = "",
) -> AttentionList:
    """All entries of `runs`, whose diagnostics are read, and of the machines.

    `now` is wall time.
    """
    rows = tuple(runs)
    looked_at = [view for view in rows if is_candidate(view, now)]
    items: list[AttentionItem] = []
    for view in looked_at:
        gpus = machine.run_gpus.get(view.id) or view.diagnostics.ranks
        found = live_items if view.is_active else ended_items
        items += (_marked(item, view, marks, now) for item in found(view, gpus, now))
    items = _of_one_file(items, marks, now)
    of_machines = [_marked(one, None, marks, now) for one in machine_items(machine, rows, now)]
    said = {(one.host, one.word) for one in of_machines}  # GPUs that alerts of runs tell of, too
    items = [item for item in items if (item.host, item.word) not in said] + of_machines
    items.sort(key=lambda item: item.rank)
    troubled = {item.run_id for item in items if item.is_open}
    active = [view for view in looked_at if view.is_active]
    watched = [view for view in active if view.diagnostics.watched.is_watched]
    return AttentionList(
        items=tuple(items),
        fine=tuple(view.id for view in watched if view.id not in troubled),
        not_watched=tuple(v.id for v in active if not v.diagnostics.watched.is_watched),
        tells_only=tuple(view.id for view in watched if not view.diagnostics.watched.acts),
        being_read=being_read,
        since_last_looked=since_looked(rows, marks.looked_wall) if since is None else since,
        is_complete=is_complete,
        problem=problem,
    )


def _of_one_file(
    items: list[AttentionItem], marks: AttentionMarks, now: float
) -> list[AttentionItem]:
    """What is wrong with the user's rules.yaml is wrong for all runs: one entry a host and text."""
    shared: dict[tuple[str, str], list[AttentionItem]] = {}
    for item in items:
        if item.kind == "watching" and RULES_FILE in item.summary:
            shared.setdefault((item.host, item.summary), []).append(item)
    told = {item.id for same in shared.values() for item in same}
    kept = [item for item in items if item.id not in told]
    for (host, summary), same in shared.items():
        count = f" (for {len(same)} runs)" if len(same) > 1 else ""
        one = replace(
            same[0],
            id=f"{host}/watching:{crc32(summary.encode(errors='replace')):08x}",
            summary=f"{summary}{count}",
            key="",
            run_id="",
            run_name="",
            path="",
        )
        kept.append(_marked(one, None, marks, now))
    return kept


def since_looked(
    runs: Iterable[RunView], looked: float | None, chosen: Mapping[str, str] | None = None
) -> SinceLooked:
    """Runs that ended since `looked`; none are counted for a user who never looked. `chosen` are
    the metrics that a person judges experiments by.
    """
    if looked is None:
        return SinceLooked()
    ended = [v for v in runs if _has_ended(v) and (v.ended_wall or v.last_wall or 0.0) > looked]
    completed = [view for view in ended if view.status == "completed"]
    best, metric, value = _best(completed, chosen or {})
    return SinceLooked(
        wall=looked,
        completed=len(completed),
        died=sum(view.status in ("failed", "lost") for view in ended),
        stopped=sum(view.status == "stopped" for view in ended),
        best_run="" if best is None else best.name or best.id,
        best_value=value,
        best_metric=metric,
    )


def _has_ended(view: RunView) -> bool:
    return view.status in ("completed", *_ENDED_BADLY) and view.kind != "imported"


def _best(
    runs: Sequence[RunView], chosen: Mapping[str, str]
) -> tuple[RunView | None, str, float | None]:
    """The best of runs that can be compared, by what, and its value: several of one experiment that
    have the same metric first, and it says which way is better; else none. A loss of exactly 0 is
    not the best of anything.
    """
    figures = {view.id: one for view in runs if (one := _figure(view, chosen)) is not None}
    kinds = {(view.experiment, *figures.get(view.id, ("", "", 0.0))[:2]) for view in runs}
    finite = [view for view in runs if isfinite(figures.get(view.id, ("", "", nan))[2])]
    if len(runs) < 2 or len(kinds) != 1 or not finite:
        return None, "", None
    _, metric, way = kinds.pop()
    pick = max if way == "max" else min
    best = pick(finite, key=lambda view: figures[view.id][2])
    return best, metric, figures[best.id][2]


def _figure(view: RunView, chosen: Mapping[str, str]) -> tuple[str, str, float] | None:
    """The metric that a run is judged by, which way it is better, and its value."""
    mine = (one for one in view.metrics if one.name == chosen.get(view.experiment))
    one = next(mine, next(iter(view.metrics), None))
    if one is None or one.name in LOSSES:
        val = view.val_loss if view.best_val_loss is None else view.best_val_loss
        for name, value in (("val/loss", val), ("train/loss", view.loss)):
            if value is not None:
                return name, "min", _unless_zero(value)
    if one is None or one.better is None or one.last is None:
        return None
    is_loss = "loss" in one.name.lower() and one.better == "min"
    return one.name, one.better, _unless_zero(one.last) if is_loss else one.last


def _unless_zero(loss: float) -> float:
    """NaN for a loss of exactly 0, which no run is ranked by."""
    return loss if loss else nan


def _marked(
    item: AttentionItem, view: RunView | None, marks: AttentionMarks, now: float
) -> AttentionItem:
    """The entry with what was said about it: by a mark of the run, or by one of the machine."""
    acked = marks.acked.get(item.id, "")
    until = marks.muted.get(item.id, 0.0)
    if view is not None:
        acked = view.diagnostics.acked.get(item.id, acked)
        until = max(until, view.diagnostics.muted.get(item.id, 0.0))
    return replace(item, acked_by=acked, muted_until=until if until > now else None)


def narrowed(found: AttentionList, run_ids: Sequence[str]) -> AttentionList:
    """The same of a few runs alone."""
    wanted = frozenset(run_ids)

    def kept(ids: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
        return tuple(one for one in ids if one in wanted)

    return replace(
        found,
        items=tuple(item for item in found.items if item.run_id in wanted),
        fine=kept(found.fine),
        not_watched=kept(found.not_watched),
        tells_only=kept(found.tells_only),
        being_read=kept(found.being_read),
        since_last_looked=SinceLooked(),
    )
