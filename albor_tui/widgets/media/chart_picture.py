"""What a chart shows, as a picture for a file: its window, smoothing and scale, its lines with
their names, and their colours, made darker where they are too pale for a light ground.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from rich.color import ColorParseError

from albor_core.picture.line_picture import LinePicture, PictureLine, PictureMark, time_unit
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.terminal.textual_private import title_text
from albor_tui.widgets.chart.canvas import ChartCanvas
from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.frame import ChartFrame
from albor_tui.widgets.chart.lines import project
from albor_tui.widgets.chart.plot import PlotLine

_DASHES = ("", "8 4", "2 2", "4 4", "12 4 4 4")  # as albor_tui/widgets/chart/dashes.py has them
_LIGHTEST = 0.3  # luminance of a line: its contrast with white is 3 to 1
_DARKER = 0.95
_GRAVE = ("alert", "warning", "restart", "rewind")
_FAINT = "-faint"
_CHARS = 60
_INK = "#16181d"


def chart_picture(chart: ChartCanvas) -> LinePicture | None:
    """The picture of a chart as it is on the screen; None where nothing is drawn."""
    frame = chart.frame
    if frame is None:
        return None
    look = replace(chart.look, axis=chart.axis, is_log=False)  # values: the picture has the scale
    traces = chart.data.traces
    noisy = sum(trace.is_noisy for trace in traces)
    title = chart_title(chart)
    lines: list[PictureLine] = []
    over: list[PictureLine] = []
    broken: list[float] = []
    for trace in traces:
        drawn = project((trace,), look, frame.x, frame.canvas_width)
        broken += drawn.broken
        points, *smooth = _raw_first(drawn.lines)
        tone = "raw" if smooth and noisy == 1 else trace.tone
        name = _name(trace, chart, title)
        is_band = trace.tone.endswith(_FAINT)
        under = _line(chart, trace, points, tone, name)
        part = "band" if is_band else "points"
        lines.append(replace(under, is_faint=is_band or bool(smooth), part=part))
        for one in smooth:
            made = _line(chart, trace, one, trace.tone, name)
            over.append(replace(made, part="smoothed"))
    unit, word = time_unit(frame.x.high) if chart.axis == "time" else (1.0, chart.x_word)
    y = (frame.y.low, frame.y.high)
    return LinePicture(
        title=title,
        x_label=word,
        lines=(*lines, *over),
        is_log=chart.look.is_log,
        x_range=(frame.x.low, frame.x.high),
        y_range=(_power(y[0]), _power(y[1])) if chart.look.is_log else y,
        broken=tuple(broken),
        marks=tuple(_marks(chart, frame)),
        note=_note(chart.look, is_smoothed=bool(over)),
        x_unit=unit,
    )


def chart_title(chart: ChartCanvas) -> str:
    """What the chart is of, as it stands above it: no pin, no value."""
    words = title_text(chart).removeprefix(glyphs.current.pin).strip().split("  ")[0]
    return clean(words, limit=200) or "chart"


def file_stem(title: str) -> str:
    """A name for the file of a chart, of harmless characters, and new each second."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-.")
    return f"{word[:_CHARS] or 'chart'}-{datetime.now(tz=UTC):%Y%m%d-%H%M%S}"


def _raw_first(lines: tuple[PlotLine, ...]) -> tuple[PlotLine, ...]:
    """The points of a trace, then the line that smooths them, if there is one."""
    return tuple(sorted(lines, key=lambda line: line.tone != "raw"))


def _name(trace: Trace, chart: ChartCanvas, title: str) -> str:
    """The name of a line in full; a band has that of the line on it."""
    label = trace.label
    if not label and trace.tone.endswith(_FAINT):
        tone = trace.tone.removesuffix(_FAINT)
        label = next((one.label for one in chart.data.traces if one.tone == tone), "")
    return clean(chart.data.names.get(label, label), limit=200) or title


def _line(chart: ChartCanvas, trace: Trace, line: PlotLine, tone: str, name: str) -> PictureLine:
    logged = {trace.x_at(step, chart.axis) for step in trace.x}
    return PictureLine(
        name=name,
        colour=_colour(chart, tone.removesuffix(_FAINT)),
        x=line.x,
        y=line.y,
        low=line.low,
        high=line.high,
        dash=_DASHES[line.dash % len(_DASHES)],
        between=frozenset(i for i, x in enumerate(line.x) if x not in logged),
    )


def _colour(chart: ChartCanvas, tone: str) -> str:
    """The colour of a tone in the present theme, dark enough for white paper."""
    style = chart.component_style(f"chart--{tone}")
    if style is None or style.color is None or style.color.is_default:
        return _INK
    try:
        channels = [part / 255 for part in style.color.get_truecolor()]
    except ColorParseError:
        return _INK
    while _light(channels) > _LIGHTEST:
        channels = [part * _DARKER for part in channels]
    return "#" + "".join(f"{round(part * 255):02x}" for part in channels)


def _light(channels: list[float]) -> float:
    """The relative luminance of a colour of sRGB."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else math.pow((c + 0.055) / 1.055, 2.4) for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _marks(chart: ChartCanvas, frame: ChartFrame) -> Iterator[PictureMark]:
    for mark in chart.data.marks:
        x = chart.x_at(mark.step)
        if frame.x.low <= x <= frame.x.high:
            yield PictureMark(x, mark.words, mark.kind in _GRAVE)


def _power(logarithm: float) -> float:
    return math.pow(10.0, min(max(logarithm, -300.0), 300.0))


def _note(look: Look, *, is_smoothed: bool) -> str:
    parts = (f"smoothed by {look.weight:g}" * is_smoothed, "logarithmic" * look.is_log)
    return ", ".join(part for part in parts if part)
