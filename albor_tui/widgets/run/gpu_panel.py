"""GPUs and host: how full, how hot, how fast, and who throttles them."""

from __future__ import annotations

from textual.content import Content
from textual.reactive import reactive

from albor_core.telemetry.sample import GpuSample, HostSample
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import meters
from albor_tui.widgets.base.panel import Panel

_PAIR = 12  # columns of "512Mi/80.0Gi"


class GpuPanel(Panel):
    """One or two lines per GPU, then the host."""

    HEADING = "machine"
    gpus: reactive[tuple[GpuSample, ...]] = reactive((), init=False, repaint=False)
    host: reactive[HostSample | None] = reactive(None, init=False, repaint=False)
    why_none: reactive[str] = reactive("", init=False, repaint=False)

    def watch_gpus(self) -> None:
        self.changed()

    def watch_host(self) -> None:
        self.changed()

    def watch_why_none(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        lines: list[Content] = []
        dense = len(self.gpus) * 2 + 2 > height
        for gpu in self.gpus:
            lines += [gpu_line(gpu, width)] if dense else gpu_lines(gpu, width)
        if not self.gpus:
            lines.append(meters.text(self.why_none or "no GPU", "$ink-muted"))
        lines = meters.cut(lines, height, "GPU") if dense else lines
        room = height - len(lines)
        lines += host_lines(self.host, width)[: max(0, room)]
        return meters.rows([meters.fit(line, width) for line in lines])


class GpuStrip(Panel):
    """All GPUs of this machine in as few lines as fit, for the top of the list of runs."""

    HEADING = "gpu"
    gpus: reactive[tuple[GpuSample, ...]] = reactive((), init=False, repaint=False)
    why_none: reactive[str] = reactive("loading", init=False, repaint=False)

    def on_mount(self) -> None:
        self.watch_gpus()

    def watch_gpus(self) -> None:
        self.set_class(not self.gpus, "-none")  # on a short screen it then has no frame
        self.styles.height = 2 + min(4, self._lines_needed()) if self.gpus else None
        self.changed()

    def watch_why_none(self) -> None:
        self.changed()

    def _lines_needed(self) -> int:
        per_line = 2 if self.content_size.width >= 150 and len(self.gpus) > 1 else 1
        return -(-len(self.gpus) // per_line)

    def draw(self, width: int, height: int) -> Content:
        if not self.gpus:
            return meters.text(self.why_none or "no GPU on this machine", "$ink-muted")
        if width >= 150 and len(self.gpus) > 1:
            half = (width - 3) // 2
            cells = [meters.fit(gpu_line(gpu, half), half) for gpu in self.gpus]
            most = 2 * (height - 1)
            cells = cells if len(cells) <= 2 * height else meters.cut(cells, most + 1, "GPU")
            lines = [Content("   ").join(cells[i : i + 2]) for i in range(0, len(cells), 2)]
        else:
            lines = meters.cut([gpu_line(gpu, width) for gpu in self.gpus], height, "GPU")
        return meters.rows(lines)


def gpu_line(gpu: GpuSample, width: int) -> Content:
    """One GPU on one line: load, memory, power, temperature; bars shrink with the width."""
    util = None if gpu.util_percent is None else gpu.util_percent / 100
    memory = _share(gpu.memory_used_bytes, gpu.memory_total_bytes)
    name = _short_name(gpu.name)
    head = Content.assemble((f"{gpu.index} ", "$ink-muted"), meters.text(name, "$ink"))
    numbers = _memory(gpu)
    tail = Content.assemble(
        (_power(gpu).rjust(9), "$ink-muted"), "  ", _temperature(gpu), _throttled(gpu)
    )
    fixed = 12 + 5 + 2 + 1 + _PAIR + 2 + tail.cell_length  # the two bars share the rest
    bars = max(4, (width - fixed) // 2)
    return Content.assemble(
        meters.fit(head, 12),
        meters.bar(util, bars, "$line-main"),
        (quantity.percent(util).rjust(5), "$ink"),
        "  ",
        meters.bar(memory, bars, meters.load_tone(memory, 0.92, 0.98)),
        (f" {numbers}  ", "$ink"),
        tail,
    )


def gpu_lines(gpu: GpuSample, width: int) -> list[Content]:
    """One GPU on two lines, for the panel of a run."""
    util = None if gpu.util_percent is None else gpu.util_percent / 100
    memory = _share(gpu.memory_used_bytes, gpu.memory_total_bytes)
    name = Content.assemble(
        (f"gpu {gpu.index} ", "$ink-muted"), meters.text(_short_name(gpu.name), "$ink")
    )
    facts = Content.assemble((_power(gpu), "$ink-muted"), "  ", _temperature(gpu), _throttled(gpu))
    bars = max(4, (width - 5 - 12 - 6) // 2)
    load = Content.assemble(
        ("load ", "$ink-muted"),
        meters.bar(util, bars, "$line-main"),
        (quantity.percent(util).rjust(5), "$ink"),
    )
    used = Content.assemble(
        meters.bar(memory, max(4, width - load.cell_length - 2 - _PAIR), "$success"),
        (_memory(gpu), "$ink"),
    )
    return [meters.pair(name, facts, width), load + "  " + used]


def host_lines(host: HostSample | None, width: int) -> list[Content]:
    """CPU and memory of the host, this run's share, free disk."""
    if host is None:
        return []
    used = None
    if host.memory_total_bytes and host.memory_available_bytes is not None:
        used = host.memory_total_bytes - host.memory_available_bytes
    memory = _share(used, host.memory_total_bytes)
    cpu = None if host.cpu_percent is None else host.cpu_percent / 100
    bars = max(2, (width - 5 - 5 - 2 - 4 - _PAIR) // 2)
    first = Content.assemble(
        ("cpu  ", "$ink-muted"),
        meters.bar(cpu, bars, meters.load_tone(cpu, 0.9, 1.01)),
        (quantity.percent(cpu).rjust(5), "$ink"),
        ("  ram ", "$ink-muted"),
        meters.bar(memory, max(2, width - bars - 10 - 6 - _PAIR), meters.load_tone(memory)),
        (_pair(used, host.memory_total_bytes), "$ink"),
    )
    second = Content.assemble(
        ("rss ", "$ink-muted"),
        (quantity.byte_cell(host.rss_bytes), "$ink"),
        ("   disk ", "$ink-muted"),
        (quantity.byte_cell(host.disk_free_bytes), "$ink"),
        ("   load ", "$ink-muted"),
        (quantity.ratio(host.load1), "$ink"),
    )
    return [first, second]


def _share(used: float | None, total: float | None) -> float | None:
    return used / total if used is not None and total else None


def _short_name(name: str | None) -> str:
    if not name:
        return glyphs.current.missing
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ").split("-")[0].split(" ")[0]


def _memory(gpu: GpuSample) -> str:
    return _pair(gpu.memory_used_bytes, gpu.memory_total_bytes)


def _pair(used: float | None, total: float | None) -> str:
    """Used and total bytes, a common unit only once: 61.2/80.0Gi, 512Mi/80.0Gi."""
    parts, whole = quantity.byte_cell(used), quantity.byte_cell(total)
    if parts[-2:] == whole[-2:] and whole.endswith("i"):
        parts = parts[:-2]
    return f"{parts}/{whole}".rjust(_PAIR)


def _power(gpu: GpuSample) -> str:
    if gpu.power_w is None:
        return glyphs.current.missing
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
    return f"{gpu.power_w:.0f}{limit}W"


def _temperature(gpu: GpuSample) -> Content:
    if gpu.temperature_c is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    hot = gpu.temperature_c
    tone = "$error" if hot >= 88 else "$warning" if hot >= 80 else "$ink-muted"
    return Content.styled(f"{hot:.0f}{glyphs.current.degree}C", tone)


def _throttled(gpu: GpuSample) -> Content:
    if not gpu.throttle_reasons:
        return Content("")
    return meters.text(" " + gpu.throttle_reasons[0], "$warning")
