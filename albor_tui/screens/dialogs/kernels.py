"""What runs each op of a run and why, and how far its whole model is from the CPU in fp32.

`albor kernels show` reads it from the run's journal, in a process of its own.
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
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_core.run.errors import AlborError
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs
from albor_tui.model.command import Cancelled
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

Op = Mapping[str, Any]
Read = Callable[[str, threading.Event], Mapping[str, Any]]
_NAME, _BY, _NUMBER = 23, 10, 9  # cells of "cross_entropy bfloat16", "reference" and a figure


class OpList(LineList):
    """A list with a line per op, below a line of headings."""

    ops: reactive[tuple[Op, ...]] = reactive((), init=False, repaint=False)

    @property
    def current(self) -> Op | None:
        at = self.cursor - 1
        return self.ops[at] if 0 <= at < len(self.ops) else None

    def count(self) -> int:
        return len(self.ops) + 1 if self.ops else 0

    def can_stand(self, index: int) -> bool:
        return index > 0

    def watch_ops(self) -> None:
        self.lines_changed()

    def draw_line(self, index: int, width: int) -> Content:
        if index == 0:
            heads = ("cosine", "us", "of floor", "gain")
            words = "op".ljust(_NAME) + "by".ljust(_BY) + _right(heads)
            return Content.styled(words, "$ink-muted")
        op = self.ops[index - 1]
        one, gain = chosen(op), speed_up(op)
        numbers = (
            _figure(one.get("cosine"), ".6f"),
            _figure(one.get("us"), ".4g"),
            _figure(one.get("floor_share"), ".0%"),
            "" if gain is None else f"{gain:.1f}x",
        )
        return Content.assemble(
            styled.fit(styled.text(f"{op['op']} ", "bold $ink") + _dtype(op), _NAME),
            styled.fit(styled.text(op["backend"], _tone(op)), _BY),
            (_right(numbers), "$ink"),
        )


class KernelsScreen(ModalScreen[None]):
    """The kernels of one run; arrow keys move through its ops."""

    BINDINGS = [Binding("escape,q,enter,o", "dismiss", "Close")]

    @dataclass
    class Answered(Message):
        """The recorded kernels of the run, or the error."""

        document: Mapping[str, Any] | None = None
        problem: str = ""

    def __init__(self, run: str, name: str, read: Read) -> None:
        super().__init__()
        self._run, self._called, self._read = run, name, read
        self._unwanted = threading.Event()

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Container(id="kernels") as dialog:
            dialog.border_title = Content(f"kernels of {self._called}")
            dialog.border_subtitle = Content("another op with the arrows, esc closes")
            yield Static(styled.loading(), id="parity", markup=False)
            yield OpList(id="ops")
            yield Static(id="one-op", markup=False)

    def on_mount(self) -> None:
        self.query_one(OpList).focus()
        self._look()

    def on_unmount(self) -> None:
        self._unwanted.set()

    @work(thread=True, exit_on_error=False)
    def _look(self) -> None:
        try:
            document = self._read(self._run, self._unwanted)
        except Cancelled:
            return
        except AlborError as error:
            self.post_message(self.Answered(problem=error.message))
            return
        self.post_message(self.Answered(document))

    @on(Answered)
    def _show_answer(self, message: Answered) -> None:
        about = self.query_one("#parity", Static)
        if message.document is None:
            about.update(styled.text(message.problem, "$error"))
            return
        about.update(styled.rows(parity_lines(message.document)))
        self.query_one(OpList).ops = tuple(message.document["ops"])

    @on(LineList.Moved)
    def _show_op(self) -> None:
        if (op := self.query_one(OpList).current) is not None:
            self.query_one("#one-op", Static).update(styled.rows(op_lines(op)))


def parity_lines(document: Mapping[str, Any]) -> list[Content]:
    """The comparisons of the whole model, what was rejected, and what could not be read."""
    lost = document.get("damaged_lines", 0)
    skipped = f"{counted(lost, 'damaged line')} of the run's journal skipped"
    told = [styled.text(skipped, "$warning")] if lost else []
    if not document["ops"] and not document["parity"]:
        return [Content.styled("This run recorded no kernels.", "bold $ink"), *told]
    lines = [
        *told,
        Content.styled("the whole model against the plain one on the CPU, fp32", "$ink-muted"),
    ]
    lines += [_parity(one) for one in document["parity"]]
    for one in document["rejected"]:
        what = f"{one['op']} {one['dtype']}".strip()
        lines.append(styled.text(f"rejected: {what}: {one.get('reason', '')}", "$warning"))
    return lines


def _parity(one: Mapping[str, Any]) -> Content:
    when = styled.text(f"at {one['at']}".ljust(13), "bold $ink")
    if one.get("skipped"):
        return when + styled.text(f"not compared: {one['skipped']}", "$ink-muted")
    rounded = one.get("rounded_cosine")
    words = f"cosine {_figure(one['cosine'], '.6f' if rounded is None else '.4f')}"
    words += "" if rounded is None else f" (rounding: {rounded:.4f})"
    loss, exact = one.get("loss"), one.get("reference_loss")
    if loss is not None and exact is not None:
        words += f"  loss {loss:.4f} ({loss - exact:+.0e})"
    return when + styled.text(words, "$warning" if one["is_bad"] else "$success")


def op_lines(op: Op) -> list[Content]:
    """Why it is run like that, and what else was measured."""
    lines = [styled.text(op.get("evidence") or "no reason was recorded", "$ink")]
    for one in op.get("candidates") or ():
        words = (
            str(one.get("backend")).ljust(_BY),
            f"rms error {_figure(one.get('rms_error'), '.1e')}",
            f"   {_figure(one.get('us'), '.4g')} us",
            f"   {_figure(one.get('floor_share'), '.0%')} of its floor",
        )
        lines.append(styled.text("".join(words), "$ink-muted"))
    return lines


def chosen(op: Op) -> Mapping[str, Any]:
    """The measurements of the backend that runs the op."""
    measured: dict[str, Mapping[str, Any]]
    measured = {one.get("backend"): one for one in op.get("candidates") or ()}
    return measured.get(op["backend"], {})


def speed_up(op: Op) -> float | None:
    """How often faster it is than the next candidate."""
    mine = chosen(op).get("us")
    others = [
        one["us"]
        for one in op.get("candidates") or ()
        if one.get("backend") != op["backend"] and one.get("us")
    ]
    return min(others) / mine if mine and others else None


def _tone(op: Op) -> str:
    return "$success" if op["backend"] == "triton" else "$ink-muted"


def _dtype(op: Op) -> Content:
    return styled.text(op.get("dtype", ""), "$ink-muted")


def _right(words: Sequence[str]) -> str:
    return "".join(word.rjust(_NUMBER) for word in words)


def _figure(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else glyphs.current.missing
