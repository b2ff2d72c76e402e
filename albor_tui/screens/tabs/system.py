"""The machine that the run is on: its GPUs in full, and the host."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from albor_core.feed.view.run_view import RunView
from albor_core.telemetry.sample import HostSample
from albor_tui.screens.tabs.charts import CurvesFound
from albor_tui.screens.tabs.page import PacedPage
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.chart.curves import span_of, unit_of
from albor_tui.widgets.run.gpu_table import gpu_marks
from albor_tui.widgets.run.system_lines import logged_lines, system_lines

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive

POINTS = 120
_KEY = re.compile(
    r"gpu\d+/(util_percent|memory_bytes|power_w|temperature_c)"
    r"|host/(rss_bytes|cpu_percent|memory_available_bytes|disk_free_bytes)"
    r"|program/(cpu_percent|rss_bytes|threads)"
)


@dataclass(frozen=True)
class MachineWanted:
    """The past of every GPU and of the host, as of `mark`."""

    mark: tuple[int | None, int | None]

    PERIOD_S: ClassVar[float | None] = None

    def put(self, archive: RunArchive) -> CurvesFound:
        known = archive.keys()
        keys = tuple(key for key in known if _KEY.fullmatch(key))
        return CurvesFound(keys, archive.curves(keys, points=POINTS))


class MachineSheet(ScrolledLines):
    """Draws its page's view for its own width."""

    def resized(self, width: int) -> None:
        page = self.query_ancestor(SystemPage)
        page.draw(width)


class SystemPage(PacedPage):
    """The tab with telemetry. The history of the host's load covers only the time that this cockpit
    was open."""

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._stored: dict[str, Sequence[float]] = {}
        self._span: tuple[float, float] | None = None  # the first and the last step of those
        self._unit = "step"
        self._seen: dict[str, deque[float]] = {}
        self._newest: HostSample | None = None

    def compose(self) -> ComposeResult:
        yield MachineSheet("machine", id="machine-sheet")

    def enter(self) -> None:
        super().enter()
        self.query_one(MachineSheet).focus()

    def show_view(self, view: RunView) -> None:
        self._remember(view)
        sheet = self.query_one(MachineSheet)
        if sheet.room:
            self.draw(sheet.room)
        super().show_view(view)

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, CurvesFound)
        self._stored = {key: curve.mean for key, curve in answer.curves.items()}
        self._span, self._unit = span_of(answer.curves), unit_of(answer.curves)
        sheet = self.query_one(MachineSheet)
        if sheet.room:
            self.draw(sheet.room)

    def draw(self, width: int) -> None:
        """Show the machine in lines of `width` cells."""
        view, past = self.view, {**self._seen, **self._stored}
        marks, logged = gpu_marks(view.gpu, self.troubles), []
        if view.system is None:
            logged = logged_lines(self._stored, width, self._span, self._unit)
        if self.is_loading and not (view.gpu and view.system):
            logged = logged or [styled.loading()]
        lines = logged or system_lines(view.gpu, view.system, past, width, why_no_gpu(view), marks)
        self.query_one(MachineSheet).show(lines)

    def question_now(self) -> MachineWanted:
        return MachineWanted((self.view.attempt, self.view.step))

    def _remember(self, view: RunView) -> None:
        host = view.system
        if host is None or not view.is_live or host is self._newest:
            return
        self._newest = host
        total, free = host.memory_total_bytes, host.memory_available_bytes
        used = total - free if total is not None and free is not None else None
        for key, value in (("host/cpu_percent", host.cpu_percent), ("host/used_bytes", used)):
            if value is not None:
                self._seen.setdefault(key, deque(maxlen=POINTS)).append(float(value))


def why_no_gpu(view: RunView) -> str:
    """Why there is no GPU to be seen, in words."""
    device = view.device or "unknown"
    if device.startswith("cpu"):
        return "This run trains on the processor: training.device is cpu, or no GPU was found."
    if not view.is_active and view.status != "queued" and view.kind != "train":
        return f"The run is {view.status}, and no figures of its machine were kept."
    if not view.is_active and view.status != "queued":
        return f"The run is {view.status}; its last news names no GPU (device {device})."
    if view.system is None and view.kind != "train":
        if view.diagnostics.watched.by == "index":
            return "None yet: its index process takes them every ten seconds."
        return "Nothing takes its figures now; albor gpu shows the GPUs of this machine."
    if view.system is None:
        return "None yet: they come with the first step, if monitoring.system.enabled."
    return f"No GPU in its figures; device {device}. albor gpu shows those of this machine."
