"""By which param the runs of a workspace are grouped."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.screens.workspace.reading import ParamChoice
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

_MOST_LINES, _KEY = 14, 28


class ParamList(LineList):
    """The params, each with how many values it has and what they are; the first line is none."""

    def __init__(self, choices: Sequence[ParamChoice], chosen: str) -> None:
        super().__init__()
        self.choices, self.chosen = tuple(choices), chosen
        longest = max((cell_len(clean(one.key)) for one in choices), default=0)
        self._key = min(max(longest, 11), _KEY)

    def count(self) -> int:
        return len(self.choices) + 1

    def draw_line(self, index: int, width: int) -> Content:
        if index == 0:
            return self._line("not grouped", "", "", is_chosen=not self.chosen)
        one = self.choices[index - 1]
        count, values = str(len(one.labels)), "  ".join(one.labels)
        return self._line(one.key, count, values, is_chosen=one.key == self.chosen)

    def _line(self, key: str, count: str, values: str, *, is_chosen: bool) -> Content:
        name = styled.fit_middle(styled.text(key, "bold $ink" if is_chosen else "$ink"), self._key)
        return Content.assemble(
            (f"{glyphs.current.check if is_chosen else ' '} ", "$accent"),
            styled.fit(name, self._key),
            (f" {count:>4}  ", "$ink-muted"),
            styled.text(values, "$ink-muted"),
        )


class GroupChoice(ModalScreen["str | None"]):
    """Asks for the param; "" for no groups, None where nothing is to change."""

    BINDINGS = [
        Binding("enter,g", "choose", "Group"),
        Binding("escape,q", "cancel", "Cancel"),
    ]

    def __init__(self, choices: Sequence[ParamChoice], chosen: str) -> None:
        super().__init__()
        self._choices, self._chosen = choices, chosen

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog", classes="-choice") as dialog:
            dialog.border_title = Content("group by: what these runs differ in")
            listing = ParamList(self._choices, self._chosen)
            listing.styles.height = min(listing.count(), _MOST_LINES)
            yield listing
            keys = Content.assemble(
                ("enter", "bold $accent"), " group by it   ", ("esc", "bold $accent"), " as it was"
            )
            yield Static(keys, id="choices", markup=False)

    def on_mount(self) -> None:
        listing = self.query_one(ParamList)
        listing.focus()
        listing.lines_changed()
        keys = [one.key for one in self._choices]
        listing.cursor = 1 + keys.index(self._chosen) if self._chosen in keys else min(1, len(keys))

    @on(LineList.Chosen)
    def action_choose(self) -> None:
        at = self.query_one(ParamList).cursor
        self.dismiss(self._choices[at - 1].key if at else "")

    def action_cancel(self) -> None:
        self.dismiss(None)
