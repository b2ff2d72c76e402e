"""The head of a chart: its metric, the newest value, and where that goes. Pure."""

from __future__ import annotations

import math

from textual.content import Content

from albor_core.run.values.directions import direction
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.chart.reading import exact

TAIL = 0.2  # of a line, whose slope is told
_LEAST = 5  # points of it
_SURE = 2.0  # standard errors: a slope that is not so many is none
_DIGITS = 4


def chart_head(data: ChartData, key: str) -> Content:
    """The key, the newest value and its slope per thousand steps over the last fifth: of the line
    that is lifted, of the only one, or of the best of many, where the key says what is better. A
    value that is not the newest of the run has its step."""
    title = styled.text(key)
    line, words = _told(data, key)
    if line is None:
        return title
    value = line.newest
    if not math.isfinite(value):
        return Content.assemble(title, "  ", (exact(value), "bold $error"))
    parts = [title, Content.styled(f"{words}{exact(value, digits=_DIGITS)}", "$ink")]
    if _ends_early(line, data):
        parts.append(Content.styled(f"at {quantity.si(line.x[-1])}", "$ink-muted"))
    if slope := slope_text(line):
        parts.append(Content.styled(slope, "$ink-muted"))
    return Content("  ").join(parts)


def _told(data: ChartData, key: str) -> tuple[Trace | None, str]:
    """The line of which the head tells, and what stands before its value."""
    lines = [trace for trace in data.traces if trace.x and not trace.is_band]
    lifted = [trace for trace in lines if data.lifted and trace.label == data.lifted]
    if lifted or len(lines) < 2:
        return next(iter((*lifted, *lines)), None), ""
    better = direction(key)
    finite = [trace for trace in lines if math.isfinite(trace.newest)]
    if better is None or not finite:
        return None, ""
    choose = min if better == "min" else max
    return choose(finite, key=lambda trace: trace.newest), "best "


def _ends_early(line: Trace, data: ChartData) -> bool:
    """Whether the run goes on beyond what is known of a line, as where a window of it is shown."""
    apart = (line.x[-1] - line.x[0]) / max(1, len(line.x) - 1)
    return data.extent is not None and data.extent[1] - line.x[-1] > 2 * apart


def slope_text(line: Trace) -> str:
    """How far a line goes in a thousand steps, with an arrow; "" where too little is known."""
    first = line.x[-1] - (line.x[-1] - line.x[0]) * TAIL
    known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if x >= first and math.isfinite(y)]
    if len(known) < _LEAST:
        return ""
    count = len(known)
    middle, mean = math.fsum(x for x, _ in known) / count, math.fsum(y for _, y in known) / count
    spread = math.fsum((x - middle) ** 2 for x, _ in known)
    if not spread > 0:
        return ""
    slope = math.fsum((x - middle) * (y - mean) for x, y in known) / spread
    rest = math.fsum((y - mean - slope * (x - middle)) ** 2 for x, y in known)
    if not math.isfinite(slope * rest):
        return ""
    unit = "/ks" if line.unit == "seconds" else "/k"
    if abs(slope) <= _SURE * math.sqrt(rest / (count - 2) / spread):
        return f"~0{unit}"
    arrow = glyphs.current.arrow_up if slope > 0 else glyphs.current.arrow_down
    return f"{arrow}{exact(abs(slope) * 1000, digits=2)}{unit}"
