"""What a chart shows, as a picture for a file: its window, smoothing and scale, its lines with
their names, and their colours, made darker where they are too pale for a light ground.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rich.color import ColorParseError

from albor_core.picture.line_picture import LinePicture, PictureLine, PictureMark, time_unit
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.terminal.textual_private import title_text
from albor_tui.widgets.chart.canvas import TONES, ChartCanvas
from albor_tui.widgets.chart.chart import FINE_POINTS
from albor_tui.widgets.chart.data import ChartData, Look, Trace
from albor_tui.widgets.chart.frame import ChartFrame
from albor_tui.widgets.chart.lines import DrawnLines, project
from albor_tui.widgets.chart.plot import MANY, PlotLine

_DASHES = ("", "8 4", "2 2", "4 4", "12 4 4 4")  # as albor_tui/widgets/chart/dashes.py has them
_LIGHTEST = 0.3  # luminance of a line: its contrast with white is 3 to 1
_DARKER = 0.95
_GRAVE = ("alert", "warning", "restart", "rewind")
_COLUMNS = FINE_POINTS // 2  # of two dots each: no line is put into buckets again
_CHARS, _NAME = 60, 200
_INK = "#16181d"


@dataclass(frozen=True)
class ChartSketch:
    """What a chart shows, without its widget: any thread may draw it, with finer lines."""

    title: str
    data: ChartData
    look: Look
    frame: ChartFrame
    x_word: str
    colours: Mapping[str, str]

    @classmethod
    def from_chart(cls, chart: ChartCanvas, subject: str = "") -> ChartSketch | None:
        """A chart as it is on the screen, of the run or the runs that `subject` names; None where
        nothing is drawn."""
        if chart.frame is None:
            return None
        title = chart_title(chart)
        return cls(
            f"{title} of {clean(subject, limit=_CHARS)}" if subject else title,
            chart.data,
            replace(chart.look, axis=chart.axis),
            chart.frame,
            chart.x_word,
            {tone: _colour(chart, tone) for tone in TONES},
        )

    def picture(self, finer: Sequence[Trace] = ()) -> LinePicture:
        """Its picture, of each line the finer one where there is one."""
        found = {(*_kind(trace), trace.is_band): trace for trace in finer}
        pairs = [(own, found.get((*_kind(own), own.is_band), own)) for own in self.data.traces]
        traces = [other if len(other.x) >= len(own.x) else own for own, other in pairs]
        lines = self._lines(traces)
        frame, look = self.frame, self.look
        unit, word = time_unit(frame.x.high) if look.axis == "time" else (1.0, self.x_word)
        broken = (at for trace in traces for at in self._project(trace).broken)
        return LinePicture(
            title=self.title,
            x_label=word,
            lines=lines,
            is_log=look.is_log,
            x_range=(frame.x.low, frame.x.high),
            y_range=self._y_range(lines),
            broken=tuple(broken),
            marks=tuple(self._marks(traces)),
            note=_note(look, is_smoothed=any(line.part == "smoothed" for line in lines)),
            x_unit=unit,
            order=tuple(clean(name, limit=_NAME) for name in self.data.names.values()),
        )

    def _project(self, trace: Trace) -> DrawnLines:
        look = replace(self.look, is_log=False)  # values: the picture has the scale
        return project((trace,), look, self.frame.x, max(self.frame.canvas_width, _COLUMNS))

    def _lines(self, traces: Sequence[Trace]) -> tuple[PictureLine, ...]:
        """The lines from the bottom to the top. A band is that of the line on it; the points of
        many noisy lines are in CSV alone, as on the screen."""
        noisy = sum(trace.is_noisy and self.look.weight > 0 for trace in traces)
        bands = {_kind(trace): trace for trace in traces if trace.is_band}
        lines: list[PictureLine] = []
        over: list[PictureLine] = []
        for trace in traces:
            if trace.is_band:
                continue
            band = bands.get(_kind(trace))
            if band is not None and band.x == trace.x:
                trace = replace(trace, low=band.low, high=band.high)
            drawn = self._project(trace)
            points, *smooth = _raw_first(drawn.lines)
            tone = "raw" if smooth and noisy == 1 else trace.tone
            part = "points" if band is None else "mean"
            under = replace(self._line(trace, points, tone), is_faint=bool(smooth), part=part)
            lines.append(replace(under, is_hidden=bool(smooth) and noisy > MANY))
            over += [replace(self._line(trace, o, trace.tone), part="smoothed") for o in smooth]
        return (*lines, *over)

    def _line(self, trace: Trace, line: PlotLine, tone: str) -> PictureLine:
        logged = {trace.x_at(step, self.look.axis) for step in trace.x}
        label = trace.label
        return PictureLine(
            name=clean(self.data.names.get(label, label), limit=_NAME) or self.title,
            colour=self.colours.get(tone.removesuffix("-faint"), _INK),
            x=line.x,
            y=line.y,
            low=line.low,
            high=line.high,
            dash=_DASHES[line.dash % len(_DASHES)],
            between=frozenset(i for i, x in enumerate(line.x) if x not in logged),
            about=self.data.about.get(label, ""),
        )

    def _y_range(self, lines: Sequence[PictureLine]) -> tuple[float, float]:
        """The y axis of the screen, and what finer lines have beyond it; a robust one as it is."""
        y, is_log = self.frame.y, self.look.is_log
        low, high = (_power(y.low), _power(y.high)) if is_log else (y.low, y.high)
        if self.look.is_robust:
            return low, high
        parts = (
            part for line in lines if not line.is_hidden for part in (line.y, line.low, line.high)
        )
        values = [v for part in parts for v in part if math.isfinite(v) and (v > 0 or not is_log)]
        return min([low, *values]), max([high, *values])

    def _marks(self, traces: Sequence[Trace]) -> Iterator[PictureMark]:
        axis, x = self.look.axis, self.frame.x
        ruled = next((trace for trace in traces if axis in trace.rulers), None)
        for mark in self.data.marks:
            at = mark.step if ruled is None else ruled.x_at(mark.step, axis)
            if x.low <= at <= x.high:
                yield PictureMark(at, mark.words, mark.kind in _GRAVE)


def _kind(trace: Trace) -> tuple[str, str]:
    """What a band has in common with the line on it."""
    return trace.label, trace.tone


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


def _power(logarithm: float) -> float:
    return math.pow(10.0, min(max(logarithm, -300.0), 300.0))


def _note(look: Look, *, is_smoothed: bool) -> str:
    parts = (f"smoothed by {look.weight:g}" * is_smoothed, "logarithmic" * look.is_log)
    return ", ".join(part for part in parts if part)
