"""Where the run could go on from: its checkpoints, good and bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.archive.checkpoints import SavedView, ShelfView
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.lenient import text
from albor_tui.look import quantity
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.run.checkpoint_list import STATE_TONE, CheckpointList
from albor_tui.widgets.run.panels import yet

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_tui.screens.base.run_actions import RunActionsScreen

_MEANS = {
    "verified": "all files were read back and verified after the save",
    "whole": "sizes match; contents not verified",
    "writing": "not finished: it counts when it has its final name",
    "damaged": "never loaded, never deleted: a resume takes the newest good one",
}


@dataclass(frozen=True)
class ShelfWanted:
    """A request for the contents of the checkpoint folder."""

    PERIOD_S: ClassVar[float | None] = 1.0

    def put(self, archive: RunArchive) -> ShelfView:
        return archive.checkpoints()


class CheckpointsPage(Page):
    """A list, and everything about the one under the cursor."""

    BINDINGS = [Binding("w", "weights", "Weights", tooltip="How large and how spread they are")]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._shelf: ShelfView | None = None

    def compose(self) -> ComposeResult:
        with Container(id="checkpoint-frame", classes="frame"):
            yield CheckpointList(id="checkpoint-list")
        yield ScrolledLines("this checkpoint", id="checkpoint-about")
        yield Static(id="no-checkpoint", classes="empty", markup=False)

    def enter(self) -> None:
        self.ask(ShelfWanted())
        self._arrange()
        self.query_one(CheckpointList).focus()

    def show_view(self, view: RunView) -> None:
        if self._shelf is not None and not self._shelf.saved:
            self._arrange()

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, ShelfView)
        self._shelf = answer
        self._arrange()

    def _arrange(self) -> None:
        shelf = self._shelf or ShelfView()
        is_empty = not shelf.saved
        self.query_one("#checkpoint-frame").display = not is_empty
        self.query_one("#checkpoint-about").display = not is_empty
        empty = self.query_one("#no-checkpoint", Static)
        empty.display = is_empty
        if is_empty:
            self.say_empty(empty, lambda: _nothing(self.view, shelf))
            return
        good = sum(one.state in ("verified", "whole") for one in shelf.saved)
        bad = sum(one.state == "damaged" for one in shelf.saved)
        size = sum(one.num_bytes or 0 for one in shelf.saved)
        frame = self.query_one("#checkpoint-frame")
        frame.border_title = Content.assemble(
            ("checkpoints ", "bold $ink"),
            (f"{good} good   {quantity.byte_size(size)}", "$ink-muted"),
            (f"   {bad} damaged", "$error") if bad else "",
            (f"   {len(shelf.failed)} saves failed", "$error") if shelf.failed else "",
        )
        gone = max(0, shelf.written - good - bad)
        words = f"{shelf.written} written, {gone} removed as newer ones came" if gone else ""
        frame.border_subtitle = Content.styled(words, "$ink-muted")
        self.query_one(CheckpointList).saved = shelf.saved
        self._show_selected()

    @on(LineList.Moved)
    def _show_selected(self) -> None:
        one = self.query_one(CheckpointList).current
        if one is not None:
            self.query_one("#checkpoint-about", ScrolledLines).show(
                _about(one, self._shelf or ShelfView(), self.view.id)
            )
        self.refresh_bindings()

    def action_weights(self) -> None:
        if (one := self._readable()) is not None:
            from albor_tui.screens.dialogs.weights import WeightsScreen  # loaded when it is wanted

            read = cast("RunActionsScreen", self.screen).desk.weights
            self.app.push_screen(WeightsScreen(one.name, one.path, read))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "weights":
            return self._readable() is not None
        return super().check_action(action, parameters)

    def _readable(self) -> SavedView | None:
        """The one under the cursor, if it can be looked into."""
        found = self.query(CheckpointList)
        one = found.first().current if found else None
        return one if one is not None and one.state in ("verified", "whole") else None


def _about(one: SavedView, shelf: ShelfView, run_id: str) -> list[Content]:
    tone = STATE_TONE.get(one.state, "$warning")
    facts = [
        (
            "state",
            styled.text(one.state, tone) + styled.text(f"   {_MEANS[one.state]}", "$ink-muted"),
        ),
    ]
    if one.reason:
        facts.append(("reason", styled.text(one.reason, "$error")))
    if one.wall is not None:
        facts.append(("saved", styled.text(quantity.clock(one.wall), "$ink")))
    facts.append(("folder", styled.text(one.path, "$ink")))
    if one.is_latest:
        facts.append(("resume", styled.text(f"albor train resume {run_id}", "$ink")))
    if shelf.failed:
        last = shelf.failed[-1]
        words = (
            f"step {quantity.count(last.step)}: {text(last.data, 'reason') or 'no reason given'}"
        )
        facts.append(("failed", styled.text(words, "$error")))
    return [Content.assemble((f"{name:<8}", "$ink-muted"), value) for name, value in facts]


def _nothing(view: RunView, shelf: ShelfView) -> Content:
    lines = [Content.styled(f"No checkpoint{yet(view)}.", "bold $ink")]
    if shelf.problem:
        lines = [styled.text(shelf.problem, "bold $warning")]
    if shelf.failed:
        reason = text(shelf.failed[-1].data, "reason")
        lines.append(styled.text(f"{len(shelf.failed)} saves failed: {reason}", "$error"))
    if view.kind != "train":
        lines.append(
            Content.styled(
                "Albor writes them for its own trainer only (train apply).", "$ink-muted"
            )
        )
    elif view.is_active:
        lines.append(Content.styled("c writes one now.", "$ink-muted"))
    elif view.status == "queued":
        lines.append(Content.styled("The run has not started.", "$ink-muted"))
    elif not shelf.problem:
        lines.append(Content.styled("A restart would begin at step 0.", "$ink-muted"))
    return styled.rows(lines)
