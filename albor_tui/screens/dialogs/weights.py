"""The weights of a checkpoint: how large each part is in each layer, how spread one tensor is.

`albor model weights` reads them, in a process of its own: the cockpit knows no tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_core.run.errors import AlborError
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import figure, percent
from albor_tui.look import glyphs, quantity
from albor_tui.model.command import Cancelled
from albor_tui.widgets.base import styled
from albor_tui.widgets.distribution.heat_map import HeatData, HeatMap
from albor_tui.widgets.distribution.histogram import Histogram, HistogramData

Tensor = Mapping[str, Any]
Read = Callable[[str, threading.Event], Mapping[str, Any]]


class WeightsScreen(ModalScreen[None]):
    """The weights of one folder; arrow keys move through its tensors."""

    BINDINGS = [
        Binding("escape,q,enter,w", "dismiss", "Close"),
        Binding("down,j", "move(1)", "Next", tooltip="The next tensor"),
        Binding("up,k", "move(-1)", "Before", tooltip="The tensor before"),
    ]

    @dataclass
    class Answered(Message):
        """The statistics of the weights, or the error."""

        tensors: tuple[Tensor, ...] = ()
        problem: str = ""

    def __init__(self, name: str, path: str, read: Read) -> None:
        super().__init__()
        self._checkpoint, self._folder, self._read = name, path, read
        self._tensors: tuple[Tensor, ...] = ()
        self._at = 0
        self._unwanted = threading.Event()

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Container(id="weights") as dialog:
            dialog.border_title = Content(f"weights of {self._checkpoint}")
            dialog.border_subtitle = Content("another tensor with the arrows, esc closes")
            yield HeatMap("root mean square, a row a part, a column a layer", id="by-layer")
            yield Histogram("", id="spread")
            yield Static(styled.loading(), id="one-tensor", markup=False)

    def on_mount(self) -> None:
        self._look()

    def on_unmount(self) -> None:
        self._unwanted.set()

    @work(thread=True, exit_on_error=False)
    def _look(self) -> None:
        try:
            document = self._read(self._folder, self._unwanted)
        except Cancelled:
            return
        except AlborError as error:
            self.post_message(self.Answered(problem=error.message))
            return
        self.post_message(self.Answered(tuple(document["tensors"])))

    @on(Answered)
    def _show_answer(self, message: Answered) -> None:
        if message.problem or not message.tensors:
            words = message.problem or "no tensor here holds floats"
            self.query_one("#one-tensor", Static).update(styled.text(words, "$error"))
            self.query_one(HeatMap).data, self.query_one(Histogram).data = _NO_MAP, _NO_SPREAD
            return
        self._tensors = message.tensors
        self.query_one(HeatMap).data = by_layer(self._tensors)
        self._show_tensor()

    def action_move(self, by: int) -> None:
        if self._tensors:
            self._at = (self._at + by) % len(self._tensors)
            self._show_tensor()

    def _show_tensor(self) -> None:
        one, spread = self._tensors[self._at], self.query_one(Histogram)
        spread.border_title = Content(clean(one["name"]))
        spread.data = histogram_of(one)
        self.query_one("#one-tensor", Static).update(styled.text(_words(one), "$ink-muted"))


_NO_MAP, _NO_SPREAD = HeatData(empty=""), HistogramData(empty="")


def by_layer(tensors: Sequence[Tensor]) -> HeatData:
    """A heat map of matrices by layer. Norm weights are left out: they are near 1 and would
    dominate the colours."""
    inside = [one for one in tensors if one["layer"] is not None and len(one["shape"]) > 1]
    parts = [*dict.fromkeys(one["part"] for one in inside)]
    layers = sorted({one["layer"] for one in inside})
    rms = {(one["part"], one["layer"]): one["rms"] for one in inside}
    return HeatData(
        tuple(part.rpartition(".")[2] for part in parts),
        tuple(map(str, layers)),
        tuple(tuple(rms.get((part, layer)) for layer in layers) for part in parts),
        empty="no layers here",
    )


def histogram_of(one: Tensor) -> HistogramData:
    """The histogram of one tensor, with bins of equal width."""
    low, high = one["edges"]
    width = (high - low) / len(one["counts"])
    edges = tuple(low + i * width for i in range(len(one["counts"]) + 1))
    counts = tuple(map(float, one["counts"]))
    return HistogramData(edges, counts, one["nonfinite"], empty="nothing measured")


def _words(one: Tensor) -> str:
    shape = " x ".join(map(str, one["shape"]))
    sampled = f", {quantity.count(one['read'])} of them read" * (one["read"] < one["count"])
    said = (
        f"{one['dtype']} {shape}{sampled}   rms {figure(one['rms'])}   mean {figure(one['mean'])}"
    )
    zeros = f"   {percent(one['zeros'], 1)} zeros" if one["zeros"] else ""
    return said + zeros + (f"   {one['nonfinite']} not finite" if one["nonfinite"] else "")
