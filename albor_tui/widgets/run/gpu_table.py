"""Many GPUs in few cells: each with its number, the odd ones marked, the worst said in words. Pure.

What is said of a GPU is what attention judged, which looks at minutes; before that, what its newest
figures show by the same limits.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from textual.content import Content

from albor_core.andon.health.gpu import (
    HOT_C,
    IDLE_PERCENT,
    STRAGGLER_POINTS,
    STRAGGLER_RATIO,
)
from albor_core.feed.attention.item import AttentionItem
from albor_core.run.light_dataclass import dataclass
from albor_core.telemetry.sample import GpuSample
from albor_tui.look import glyphs, quantity
from albor_tui.look.naming import said_of
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.widgets.base import styled

LABEL, CELL = 3, 4  # cells of "gpu" and of " 100": eight GPUs in 35, sixteen in 67
_WIDE_LABEL = 5
_BAR_CELL = 11  # from here on a figure has a bar beside it
_BUSY = 30.0  # siblings that hardly work slow no GPU down
_HELD_BACK = ("thermal", "power brake", "hardware slowdown")
_ORDER = ("xid", "ecc", "throttled", "hot", "straggling", "idle", "")


@dataclass(frozen=True)
class GpuMark:
    """An anomaly of a GPU. `figure` is the row that shows it: load, heat, or "" for neither."""

    number: int
    kind: str
    words: str
    tone: str

    @property
    def figure(self) -> str:
        if self.kind in ("straggling", "idle"):
            return "load"
        return "heat" if self.kind in ("hot", "throttled") else ""


def gpu_marks(
    gpus: Sequence[GpuSample], items: Iterable[AttentionItem] = ()
) -> tuple[GpuMark, ...]:
    """The odd ones, the worst first, each once for load and once for heat."""
    found = {(mark.number, mark.figure): mark for mark in _by_figures(gpus)}
    known = {gpu.index for gpu in gpus}
    for item in items:
        kind, _, number = item.id.rpartition("/")[2].partition(":")
        if kind.startswith("gpu_") and number.isdigit() and int(number) in known and item.is_open:
            index, kind = int(number), kind.removeprefix("gpu_")
            tone = SEVERITY_TONE.get(item.severity, "$warning")
            mark = GpuMark(index, kind, said_of(item), tone)
            if (known_mark := found.get((index, mark.figure))) is not None:
                mark = replace(mark, words=known_mark.words)  # of this moment, and shorter
            found[index, mark.figure] = mark
    return tuple(sorted(found.values(), key=lambda m: (_ORDER.index(m.kind), m.number)))


def _by_figures(gpus: Sequence[GpuSample]) -> Iterable[GpuMark]:
    loads = {gpu.index: gpu.util_percent for gpu in gpus if gpu.util_percent is not None}
    for gpu in gpus:
        held = [reason for reason in gpu.throttle_reasons if reason.startswith(_HELD_BACK)]
        heat = "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} C"
        if held:
            words = ", ".join(part for part in (heat, f"throttled {held[0]}") if part)
            yield GpuMark(gpu.index, "throttled", words, "$warning")
        elif gpu.temperature_c is not None and gpu.temperature_c >= HOT_C:
            yield GpuMark(gpu.index, "hot", heat, "$warning")
        others = [load for index, load in loads.items() if index != gpu.index]
        mine = loads.get(gpu.index)
        if mine is None or not others:
            continue
        usual = statistics.median(others)
        is_behind = mine <= min(STRAGGLER_RATIO * usual, usual - STRAGGLER_POINTS)
        if usual >= _BUSY and is_behind and mine >= IDLE_PERCENT:  # an idle one may be unused
            yield GpuMark(
                gpu.index, "straggling", f"{mine:.0f} %, the others {usual:.0f} %", "$warning"
            )


def worst_words(marks: Sequence[GpuMark], count: int = 2) -> Content:
    """The worst of each kind first: "gpu 7 88 C, throttled thermal   gpu 5 41 %, ..."."""
    told = _one_of_each(marks)[:count]
    parts = [
        Content.assemble(
            (f"gpu {mark.number} ", f"bold {mark.tone}"), styled.text(mark.words, mark.tone)
        )
        for mark in told
    ]
    more = len(marks) - len(told)
    if more > 0:
        parts.append(Content.styled(f"{more} more", "$ink-muted"))
    return Content("   ").join(parts)


def _one_of_each(marks: Sequence[GpuMark]) -> list[GpuMark]:
    """The worst of each figure, and then the rest."""
    first = {mark.figure: mark for mark in reversed(marks)}
    return sorted(marks, key=lambda mark: first[mark.figure] is not mark)


def gpu_table(
    gpus: Sequence[GpuSample], width: int, height: int, marks: Sequence[GpuMark]
) -> list[Content]:
    """Every GPU in at most `height` lines: numbers, loads, then temperatures, memory and power for
    as long as there is room. Those that one line has no room for are in another bank of lines.
    """
    label = LABEL if (width - _WIDE_LABEL) // CELL < len(gpus) else _WIDE_LABEL
    count = -(-len(gpus) // max(1, (width - label) // CELL))
    if count > height:
        label = 0
        count = -(-len(gpus) // max(1, width // CELL))
    size = -(-len(gpus) // count)
    banks = [gpus[i : i + size] for i in range(0, len(gpus), size)]
    each = max(1, min(5, height // len(banks)))
    cell = max(CELL, min(20, (width - label) // size))
    by_figure = {(mark.number, mark.figure): mark for mark in marks}
    lines: list[Content] = []
    for bank in banks:
        if each == 1:
            name = f"{bank[0].index}-{bank[-1].index}" if label else ""
            lines.append(_line(name, [_load(g, cell, by_figure) for g in bank], cell, label))
            continue
        names = ("gpu", "load" if label > LABEL else "%", _heat_name(), "mem", "W")
        figures = (
            [Content.styled(str(gpu.index), "$ink-muted") for gpu in bank],
            [_load(gpu, cell, by_figure) for gpu in bank],
            [_heat(gpu, by_figure) for gpu in bank],
            [_memory(gpu, cell) for gpu in bank],
            [_plain(gpu.power_w) for gpu in bank],
        )
        rows = zip(names[:each], figures, strict=False)
        lines += [_line(name, cells, cell, label) for name, cells in rows]
    return lines[:height]


def _line(name: str, cells: Sequence[Content], cell: int, label: int) -> Content:
    fitted = [styled.fit(one, cell, "right") for one in cells]
    return Content("").join([Content.styled(name.ljust(label)[:label], "$ink-muted"), *fitted])


def _load(gpu: GpuSample, cell: int, marks: Mapping[tuple[int, str], GpuMark]) -> Content:
    mark = marks.get((gpu.index, "load"))
    tone = f"bold {mark.tone}" if mark is not None else "$ink"
    sign = glyphs.current.mark_low if mark is not None else ""
    number = Content.styled(f"{sign}{_figure(gpu.util_percent)}", tone)
    if cell < _BAR_CELL:
        return number
    share = None if gpu.util_percent is None else gpu.util_percent / 100
    bar = styled.bar(share, cell - 6, "$line-main" if mark is None else mark.tone)
    return bar + styled.fit(number, 5, "right")


def _heat(gpu: GpuSample, marks: Mapping[tuple[int, str], GpuMark]) -> Content:
    mark = marks.get((gpu.index, "heat"))
    if mark is None:
        return Content.styled(_figure(gpu.temperature_c), "$ink-muted")
    sign = glyphs.current.alert
    return Content.styled(f"{sign}{_figure(gpu.temperature_c)}", f"bold {mark.tone}")


def _memory(gpu: GpuSample, cell: int) -> Content:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    share = used / total if used is not None and total else None
    tone = "$ink-muted" if share is None or share < 0.92 else styled.load_tone(share, 0.92, 0.98)
    if cell >= _BAR_CELL:
        return Content.styled(quantity.byte_cell(used), tone)
    return Content.styled(quantity.percent(share).removesuffix("%"), tone)


def _plain(value: float | None) -> Content:
    return Content.styled(_figure(value), "$ink-muted")


def _figure(value: float | None) -> str:
    return glyphs.current.missing if value is None else f"{value:.0f}"


def _heat_name() -> str:
    return f"{glyphs.current.degree}C" if glyphs.current.degree else "C"
