"""Which of several open alerts has been seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_tui.look import glyphs
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.run.alerts import alert_line

if TYPE_CHECKING:
    from albor_core.store.rows.rows import AlertRow

_MOST_LINES = 14


class OpenAlerts(LineList):
    """The open alerts, the worst first."""

    def __init__(self, alerts: tuple[AlertRow, ...]) -> None:
        super().__init__()
        self.alerts = alerts

    def count(self) -> int:
        return len(self.alerts)

    def draw_line(self, index: int, width: int) -> Content:
        return alert_line(self.alerts[index], width)


class AlertChoice(ModalScreen["tuple[AlertRow, ...] | None"]):
    """A question which alert to acknowledge: one, all, or None."""

    BINDINGS = [
        Binding("a,enter", "choose", "Ack", tooltip="Acknowledge this one"),
        Binding("A", "all", "Ack all", tooltip="Acknowledge all; asks first"),
        Binding("escape,q", "cancel", "Cancel"),
    ]

    def __init__(self, alerts: tuple[AlertRow, ...]) -> None:
        super().__init__()
        self._alerts = alerts

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog", classes="-choice") as dialog:
            dialog.border_title = Content("open alerts")
            listing = OpenAlerts(self._alerts)
            listing.styles.height = min(len(self._alerts), _MOST_LINES)
            yield listing
            keys = Content.assemble(
                ("a", "bold $accent"), " acknowledge this one   ",
                ("A", "bold $accent"), " all   ",
                ("esc", "bold $accent"), " none",
            )  # fmt: skip
            yield Static(keys, id="choices", markup=False)

    def on_mount(self) -> None:
        listing = self.query_one(OpenAlerts)
        listing.focus()
        listing.lines_changed()

    @on(LineList.Chosen)
    def action_choose(self) -> None:
        self.dismiss((self._alerts[self.query_one(OpenAlerts).cursor],))

    def action_all(self) -> None:
        self.dismiss(self._alerts)

    def action_cancel(self) -> None:
        self.dismiss(None)
