"""The machine of a run in full, as lines: each GPU, then the host. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from textual.content import Content

from albor_core.telemetry.sample import GpuSample, HostSample
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.run.gpu_panel import aligned_lines
from albor_tui.widgets.run.gpu_table import GpuMark

Past = Mapping[str, Sequence[float]]
_NAME, _NUMBERS = 9, 22
_ROW = 90  # cells of a line of a GPU, beside which its past has room
MOST_BLOCKS = 2  # more GPUs have one line each
HOT_C, WARM_C = 88, 80
_LOGGED_NAME, _NEWEST, _SCALE = 12, 10, 22
_PAST_AT = _LOGGED_NAME + _NEWEST + _SCALE + 4  # cells before the past of a logged figure
_MOST_PAST, _LEAST_AXIS = 120, 12  # cells
_STEADY = 0.01  # of a figure: a smaller change is none
_LOGGED: Mapping[str, tuple[str, Callable[[float], str], float | None]] = {
    "util_percent": ("load", lambda v: f"{v:.0f} %", 100.0),
    "memory_bytes": ("memory", quantity.byte_size, None),
    "power_w": ("power", lambda v: f"{v:.0f} W", None),
    "temperature_c": ("heat", lambda v: f"{v:.0f} C", 100.0),
    "cpu_percent": ("cpu", lambda v: f"{v:.0f} %", 100.0),
    "rss_bytes": ("memory", quantity.byte_size, None),
    "threads": ("threads", quantity.count, None),
    "memory_available_bytes": ("memory left", quantity.byte_size, None),
    "disk_free_bytes": ("disk left", quantity.byte_size, None),
}
"""Of each figure that is kept: its words, how it is written, and the top of its trace."""


def system_lines(
    gpus: Sequence[GpuSample],
    host: HostSample | None,
    past: Past,
    width: int,
    why_none: str,
    marks: Sequence[GpuMark] = (),
) -> list[Content]:
    """Everything known; `past` holds values by metric key (gpu0/util_percent), oldest first."""
    lines: list[Content] = []
    if len(gpus) > MOST_BLOCKS:
        lines += [*gpu_rows(gpus, past, width, marks), Content("")]
    else:
        for gpu in gpus:
            lines += [*gpu_block(gpu, past, width), Content("")]
    if not gpus:
        lines += [
            Content.styled("no GPU", "bold $ink"),
            styled.text(why_none, "$ink-muted"),
            Content(""),
        ]
    return lines + host_block(host, past, width)


def logged_lines(
    past: Past, width: int, span: tuple[float, float] | None = None, unit: str = "step"
) -> list[Content]:
    """What the index process kept of a run whose program tells no figures: the newest of each, its
    scale, and its past, over the steps (or seconds, says `unit`) of `span`. [] where nothing is
    kept.
    """
    room = min(max(0, width - _PAST_AT), _MOST_PAST)
    groups: dict[str, list[tuple[str, str]]] = {}
    for key in sorted(past, key=_logged_order):
        whose, _, figure = key.partition("/")
        if figure in _LOGGED and past[key]:
            groups.setdefault(whose, []).append((figure, key))
    lines: list[Content] = []
    for whose, figures in groups.items():
        number = whose.removeprefix("gpu")
        name = f"gpu {number}" if number != whose else whose
        lines.append(Content.styled(name, "bold $accent"))
        for figure, key in figures:
            words, show, top = _LOGGED[figure]
            head = Content.assemble(
                (words.ljust(_LOGGED_NAME), "$ink-muted"),
                (show(past[key][-1]).rjust(_NEWEST), "$ink"),
            )
            lines.append(head + "  " + _scaled(past[key], room, show, top))
        lines.append(Content(""))
    longest = max((len(past[key]) for found in groups.values() for _, key in found), default=0)
    axis = min(room, longest)
    if span is None or axis < _LEAST_AXIS:
        return lines[:-1]
    first, last = (quantity.count(round(end)) for end in span)
    first = f"{unit.removesuffix('s')} {first} "
    lines[-1] = Content.styled(
        f"{' ' * _PAST_AT}{first}{last:>{max(0, axis - len(first))}}", "$ink-muted"
    )
    return lines


def _scaled(
    values: Sequence[float], width: int, show: Callable[[float], str], top: float | None
) -> Content:
    """A sparkline of values with its range: from 0 to `top` if that is known, else from the lowest
    to the highest; a constant figure is a line at the bottom."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = (0.0, top) if top else (min(finite, default=0.0), max(finite, default=0.0))
    is_steady = high - low <= _STEADY * abs(high)
    scale = "steady" if is_steady else f"{show(low)} to {show(high)}"
    drawn = Content.styled(glyphs.current.spark[0] * min(len(finite), width), "$line-spark")
    if not is_steady:
        known = [mean for mean in glyphs.means_of(values, width) if mean is not None]
        drawn = trace(known, width, high, low=low)
    return Content.styled(scale.ljust(_SCALE), "$ink-faint") + "  " + drawn


def _logged_order(key: str) -> tuple[bool, bool, int, str]:
    """The program first, then GPUs by their number, then the host."""
    number = re.match(r"gpu(\d+)/", key)
    is_host = key.startswith("host/")
    return is_host, number is not None, int(number[1]) if number else 0, key


def gpu_rows(
    gpus: Sequence[GpuSample], past: Past, width: int, marks: Sequence[GpuMark]
) -> list[Content]:
    """One line a GPU with its load over time, what is odd in words, and who uses them."""
    traced = min(60, width - _ROW) if width >= _ROW + 20 else 0
    lines = []
    room = width - traced - 2  # a scroll bar may come
    for gpu, row in zip(gpus, aligned_lines(gpus, room), strict=True):
        line = styled.fit(row, room + 2)
        if traced:
            line += trace(past.get(f"gpu{gpu.index}/util_percent") or (), traced, 100)
        lines.append(line)
    if marks:
        lines.append(Content(""))
    lines += [
        Content.assemble(
            (f"gpu {mark.number}".ljust(_NAME), f"bold {mark.tone}"),
            styled.text(mark.words, mark.tone),
        )
        for mark in marks
    ]
    users = [(gpu.index, process) for gpu in gpus for process in gpu.processes]
    if users:
        lines.append(Content(""))
    for at, (index, process) in enumerate(users):
        lines.append(
            Content.assemble(
                (("processes" if at == 0 else "").ljust(_NAME), "$ink-muted"),
                (f" gpu {index:<3}", "$ink-muted"),
                (f"{process.pid:>8}  ", "$ink-muted"),
                (quantity.byte_size(process.memory_bytes).rjust(9), "$ink"),
                styled.text(f"  {process.name or glyphs.current.missing}", "$ink"),
            )
        )
    return lines


def gpu_block(gpu: GpuSample, past: Past, width: int) -> list[Content]:
    """The block of a GPU: six lines, and one more per process."""
    key = f"gpu{gpu.index}"
    util = None if gpu.util_percent is None else gpu.util_percent / 100
    memory = _share(gpu.memory_used_bytes, gpu.memory_total_bytes)
    power = _share(gpu.power_w, gpu.power_limit_w)
    heat = None if gpu.temperature_c is None else gpu.temperature_c / 100
    total = gpu.memory_total_bytes
    used = f"{quantity.byte_size(gpu.memory_used_bytes)} / {quantity.byte_size(total)}"
    watts = f"{_whole(gpu.power_w)} / {_whole(gpu.power_limit_w)} W"
    head = Content.assemble(
        (f"gpu {gpu.index}  ", "bold $accent"),
        styled.text(gpu.name or glyphs.current.missing, "bold $ink"),
        styled.text(f"   {gpu.uuid}" if gpu.uuid and width > 90 else "", "$ink-faint"),
    )
    return [
        styled.pair(head, _throttle(gpu), width),
        _gauge(
            "load", util, quantity.percent(util), "$line-main", past.get(f"{key}/util_percent"),
            100, width,
        ),
        _gauge(
            "memory", memory, used, styled.load_tone(memory, 0.92, 0.98),
            past.get(f"{key}/memory_bytes"), total, width,
        ),
        _gauge(
            "power", power, watts, styled.load_tone(power, 0.97, 1.02), past.get(f"{key}/power_w"),
            gpu.power_limit_w, width,
        ),
        _gauge(
            "temp", heat, _heat(gpu.temperature_c), _heat_tone(gpu.temperature_c),
            past.get(f"{key}/temperature_c"), 100, width,
        ),
        Content.assemble(
            ("clocks".ljust(_NAME), "$ink-muted"),
            (f"sm {_whole(gpu.sm_clock_mhz)} MHz   memory {_whole(gpu.memory_clock_mhz)} MHz",
             "$ink"),
        ),
        *_processes(gpu),
    ]  # fmt: skip


def host_block(host: HostSample | None, past: Past, width: int) -> list[Content]:
    """The host on six lines."""
    head = Content.styled("host", "bold $accent")
    if host is None:
        return [head, Content.styled("no figures of the host", "$ink-muted")]
    cpu = None if host.cpu_percent is None else host.cpu_percent / 100
    total = host.memory_total_bytes
    used = None
    if total and host.memory_available_bytes is not None:
        used = total - host.memory_available_bytes
    ram, mine = _share(used, total), _share(host.rss_bytes, total)
    return [
        head,
        _gauge(
            "cpu", cpu, quantity.percent(cpu), styled.load_tone(cpu, 0.9, 1.01),
            past.get("host/cpu_percent"), 100, width,
        ),
        _gauge(
            "ram", ram, f"{quantity.byte_size(used)} / {quantity.byte_size(total)}",
            styled.load_tone(ram), past.get("host/used_bytes"), total, width,
        ),
        _gauge(
            "this run", mine, quantity.byte_size(host.rss_bytes), "$line-val",
            past.get("host/rss_bytes"), None, width,
        ),
        _fact("disk", f"{quantity.byte_size(host.disk_free_bytes)} free where the run lies"),
        _fact("load", quantity.ratio(host.load1)),
    ]  # fmt: skip


def _gauge(
    name: str,
    share: float | None,
    numbers: str,
    tone: str,
    past: Sequence[float] | None,
    top: float | None,
    width: int,
) -> Content:
    """Name, bar, numbers, and the past in what room is left."""
    room = width - _NAME - _NUMBERS
    bars = max(8, room // 2)
    drawn = trace(past or (), max(0, room - bars), top)
    return Content.assemble(
        (name.ljust(_NAME), "$ink-muted"),
        styled.bar(share, bars, tone),
        (f"  {numbers}".ljust(_NUMBERS), "$ink"),
        " " * (room - bars - drawn.cell_length) if drawn.plain else "",  # newest at the right
        drawn,
    )


def trace(values: Sequence[float], width: int, top: float | None, *, low: float = 0.0) -> Content:
    """The newest values as small columns between `low` and `top` (None: their maximum)."""
    finite = [v for v in values if math.isfinite(v)][-width:] if width > 0 else []
    steps = glyphs.current.spark
    high = top if top and math.isfinite(top) and top > 0 else max(finite, default=0.0)
    if not finite or high <= low:
        return Content("")
    last = len(steps) - 1
    drawn = "".join(
        steps[round(min(max((v - low) / (high - low), 0.0), 1.0) * last)] for v in finite
    )
    return Content.assemble((drawn[:-1], "$line-spark"), (drawn[-1:], "$line-main"))


def _fact(name: str, words: str) -> Content:
    return Content.assemble((name.ljust(_NAME), "$ink-muted"), styled.text(words, "$ink"))


def _processes(gpu: GpuSample) -> list[Content]:
    if not gpu.processes:
        return [_fact("processes", "none that can be seen")]
    return [
        Content.assemble(
            (("processes" if i == 0 else "").ljust(_NAME), "$ink-muted"),
            (f" {process.pid:>8}  ", "$ink-muted"),
            (quantity.byte_size(process.memory_bytes).rjust(8), "$ink"),
            styled.text(f"  {process.name or glyphs.current.missing}", "$ink"),
        )
        for i, process in enumerate(gpu.processes)
    ]


def _throttle(gpu: GpuSample) -> Content:
    if not gpu.throttle_reasons:
        return Content.styled("not throttled", "$ink-muted")
    return styled.text("throttled: " + ", ".join(gpu.throttle_reasons), "bold $warning")


def _share(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _whole(value: float | None) -> str:
    return glyphs.current.missing if value is None else quantity.count(value).replace(",", "")


def _heat(celsius: float | None) -> str:
    return f"{_whole(celsius)} {glyphs.current.degree}C"


def _heat_tone(celsius: float | None) -> str:
    if celsius is None:
        return "$ink-faint"
    return "$error" if celsius >= HOT_C else "$warning" if celsius >= WARM_C else "$success"
