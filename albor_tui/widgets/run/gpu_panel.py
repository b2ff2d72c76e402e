"""GPUs and host: how full, how hot, how fast, and who throttles them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.reactive import reactive

from albor_core.feed.attention.item import AttentionItem
from albor_core.telemetry.sample import GpuSample, HostSample
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.panel import Panel
from albor_tui.widgets.run.gpu_table import CELL, LABEL, gpu_marks, gpu_table, worst_words

_PAIR = 12  # columns of "512Mi/80.0Gi"
_LINE = 70  # columns from which a line of a GPU has room for all it says


class GpuPanel(Panel):
    """A panel with one or two lines per GPU, then the host."""

    HEADING = "machine"
    gpus: reactive[tuple[GpuSample, ...]] = reactive((), init=False, repaint=False)
    host: reactive[HostSample | None] = reactive(None, init=False, repaint=False)
    why_none: reactive[str] = reactive("loading", init=False, repaint=False)
    judged: reactive[tuple[AttentionItem, ...]] = reactive((), init=False, repaint=False)
    """What attention says of them."""

    def watch_gpus(self) -> None:
        entitle(self, self.HEADING, self.gpus, self.judged)
        self.changed()

    def watch_judged(self) -> None:
        self.watch_gpus()

    def watch_host(self) -> None:
        self.changed()

    def watch_why_none(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        lines: list[Content] = []
        count = len(self.gpus)
        if count * 2 + (2 if count > 1 else 0) <= height:
            lines += [line for gpu in self.gpus for line in gpu_lines(gpu, width)]
        elif count == 1 or (count <= height and width >= _LINE):
            lines += aligned_lines(self.gpus, width)
        else:
            room = min(height, max(3, height - 2))  # the host has what is left
            lines += gpu_table(self.gpus, width, room, gpu_marks(self.gpus, self.judged))
        if not self.gpus:
            lines.append(styled.text(self.why_none or "no GPU", "$ink-muted"))
        room = height - len(lines)
        lines += host_lines(self.host, width)[: max(0, room)]
        return styled.rows([styled.fit(line, width) for line in lines])


class GpuStrip(Panel):
    """All GPUs of this machine in as few lines as fit, for the top of the list of runs. None is
    left out, and the title says which of them is odd."""

    HEADING = "gpu"
    gpus: reactive[tuple[GpuSample, ...]] = reactive((), init=False, repaint=False)
    why_none: reactive[str] = reactive("loading", init=False, repaint=False)
    judged: reactive[tuple[AttentionItem, ...]] = reactive((), init=False, repaint=False)

    def on_mount(self) -> None:
        self.watch_gpus()

    def on_resize(self) -> None:
        self.styles.height = self._height()
        super().on_resize()

    def watch_gpus(self) -> None:
        self.set_class(not self.gpus, "-none")  # on a short screen it then has no frame
        self.styles.height = self._height()
        entitle(self, self.HEADING, self.gpus, self.judged)
        self.changed()

    def watch_judged(self) -> None:
        self.watch_gpus()

    def watch_why_none(self) -> None:
        self.changed()

    def _height(self) -> int | None:
        """The height: a line per GPU if there are few, else that of a table."""
        if not self.gpus or not self.is_attached:
            return None
        most = 4 if self.screen.size.height >= 34 else 2
        width = max(1, self.size.width - 4)
        lines = -(-len(self.gpus) // _per_line(len(self.gpus), width))
        if lines <= most:
            return 2 + lines
        banks = -(-len(self.gpus) * CELL // max(CELL, width - LABEL))
        return 2 + min(4, most + 1) * banks

    def draw(self, width: int, height: int) -> Content:
        if not self.gpus:
            return styled.text(self.why_none or "no GPU on this machine", "$ink-muted")
        per_line = _per_line(len(self.gpus), width)
        if -(-len(self.gpus) // per_line) > height:
            marks = gpu_marks(self.gpus, self.judged)
            return styled.rows(gpu_table(self.gpus, width, height, marks))
        if per_line == 1:
            return styled.rows(aligned_lines(self.gpus, width))
        half = (width - 3) // 2
        cells = [styled.fit(line, half) for line in aligned_lines(self.gpus, half)]
        return styled.rows([Content("   ").join(cells[i : i + 2]) for i in range(0, len(cells), 2)])


def _per_line(count: int, width: int) -> int:
    return 2 if width >= 150 and count > 1 else 1


def entitle(
    panel: Panel, heading: str, gpus: Sequence[GpuSample], judged: Sequence[AttentionItem]
) -> None:
    """Say in a panel's title which GPUs are odd, where there are several to look through."""
    marks = gpu_marks(gpus, judged) if len(gpus) > 1 else ()
    title = Content.styled(heading, "bold $ink")
    if not marks:
        panel.entitle(title)
        return
    room = panel.size.width - 6
    name = Content("") if heading == "gpu" else title + "  "  # they begin with it
    told = [name + worst_words(marks, count) for count in (3, 2, 1)]
    told += [worst_words(marks, 2), worst_words(marks, 1), worst_words(marks[:1], 1)]
    panel.entitle(next((words for words in told if words.cell_length <= room), told[-1]))


def aligned_lines(gpus: Sequence[GpuSample], width: int) -> list[Content]:
    """Each GPU on one line, with bars of one length."""
    most = max((_tail(gpu).cell_length for gpu in gpus), default=0)
    return [gpu_line(gpu, width, most) for gpu in gpus]


def _tail(gpu: GpuSample) -> Content:
    return Content.assemble(
        (_power(gpu).rjust(9), "$ink-muted"), "  ", _temperature(gpu), _throttled(gpu)
    )


def gpu_line(gpu: GpuSample, width: int, tail_cells: int = 0) -> Content:
    """One GPU on one line: load, memory, power, temperature; bars shrink with the width."""
    util = None if gpu.util_percent is None else gpu.util_percent / 100
    memory = _share(gpu.memory_used_bytes, gpu.memory_total_bytes)
    name = _short_name(gpu.name)
    head = Content.assemble((f"{gpu.index} ", "$ink-muted"), styled.text(name, "$ink"))
    numbers = _memory(gpu)
    tail = _tail(gpu)
    tail = tail.pad_right(max(0, tail_cells - tail.cell_length))
    fixed = 12 + 5 + 2 + 1 + _PAIR + 2 + tail.cell_length  # the two bars share the rest
    bars = max(4, (width - fixed) // 2)
    return Content.assemble(
        styled.fit(head, 12),
        styled.bar(util, bars, "$line-main"),
        (quantity.percent(util).rjust(5), "$ink"),
        "  ",
        styled.bar(memory, bars, styled.load_tone(memory, 0.92, 0.98)),
        (f" {numbers}  ", "$ink"),
        tail,
    )


def gpu_lines(gpu: GpuSample, width: int) -> list[Content]:
    """The two lines of a GPU, for the panel of a run."""
    util = None if gpu.util_percent is None else gpu.util_percent / 100
    memory = _share(gpu.memory_used_bytes, gpu.memory_total_bytes)
    name = Content.assemble(
        (f"gpu {gpu.index} ", "$ink-muted"), styled.text(_short_name(gpu.name), "$ink")
    )
    facts = Content.assemble((_power(gpu), "$ink-muted"), "  ", _temperature(gpu), _throttled(gpu))
    bars = max(4, (width - 5 - 12 - 6) // 2)
    load = Content.assemble(
        ("load ", "$ink-muted"),
        styled.bar(util, bars, "$line-main"),
        (quantity.percent(util).rjust(5), "$ink"),
    )
    used = Content.assemble(
        styled.bar(memory, max(4, width - load.cell_length - 2 - _PAIR), "$success"),
        (_memory(gpu), "$ink"),
    )
    return [styled.pair(name, facts, width), load + "  " + used]


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
        styled.bar(cpu, bars, styled.load_tone(cpu, 0.9, 1.01)),
        (quantity.percent(cpu).rjust(5), "$ink"),
        ("  ram ", "$ink-muted"),
        styled.bar(memory, max(2, width - bars - 10 - 6 - _PAIR), styled.load_tone(memory)),
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
    return styled.text(" " + gpu.throttle_reasons[0], "$warning")
