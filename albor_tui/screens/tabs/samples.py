"""What the model wrote while it learned: each prompt with its completion."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.archive.archive import RunArchive, Told
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.clean import clean
from albor_core.store.rows.rows import SampleRow
from albor_tui.look import glyphs, quantity
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.base.scrolled_lines import ScrolledLines

now_wall = time.time  # replaced in tests
_CHARS = 20_000


@dataclass(frozen=True)
class SamplesWanted:
    """The newest samples."""

    PERIOD_S: ClassVar[float | None] = 1.0

    def put(self, archive: RunArchive) -> Told:
        return archive.samples()


class SampleList(LineList):
    """A list with a line per sample, newest first."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.samples: tuple[SampleRow, ...] = ()

    def show(self, samples: tuple[SampleRow, ...]) -> None:
        """The cursor stays on its sample, or on the newest where it was there."""
        if samples == self.samples:
            return
        grown = len(samples) - len(self.samples)
        at = self.cursor + grown if self.cursor and grown > 0 else self.cursor
        self.samples = samples
        self.set_reactive(LineList.cursor, min(at, max(0, len(samples) - 1)))
        self.lines_changed()

    @property
    def current(self) -> SampleRow | None:
        return self.samples[self.cursor] if self.cursor < len(self.samples) else None

    def count(self) -> int:
        return len(self.samples)

    def draw_line(self, index: int, width: int) -> Content:
        sample = self.samples[index]
        age = glyphs.current.missing
        if sample.wall is not None:
            age = quantity.age(max(0.0, now_wall() - sample.wall))
        return Content.assemble(
            (quantity.count(sample.step).rjust(9), "bold $ink"),
            (age.rjust(5), "$ink-muted"),
            "  ",
            styled.text(_first_line(sample.prompt), "$secondary"),
            styled.text(f" {_first_line(sample.text)}", "$ink"),
        )


class SampleSheet(ScrolledLines):
    """The full text of one sample, its lines folded to the width."""

    def __init__(self, *, id: str) -> None:
        super().__init__("sample", id=id)
        self._sample: SampleRow | None = None

    def show_sample(self, sample: SampleRow | None) -> None:
        if sample != self._sample:
            self._sample = sample
            self.scroll_home(animate=False, immediate=True)
            step = quantity.count(sample.step if sample else None)
            self.border_title = Content.assemble(
                ("sample ", "bold $ink"), (f"of step {step}", "$ink-muted")
            )
        self.resized(self.room)

    def resized(self, width: int) -> None:
        if self._sample is None or width < 8:
            self.show([])
            return
        prompt = _folded(self._sample.prompt, width - 2, "$secondary")
        text = _folded(self._sample.text, width - 2, "$ink")
        bar = Content.styled(f"{glyphs.current.axis} ", "$secondary")
        body = Content.styled(f"{glyphs.current.axis} ", "$line-main")
        lines = [Content.styled("prompt", "$ink-muted")]
        lines += [bar + line for line in prompt] or [Content.styled("(none)", "$ink-faint")]
        lines += [Content(""), Content.styled("completion", "$ink-muted")]
        lines += [body + line for line in text] or [Content.styled("(empty)", "$ink-faint")]
        self.show(lines)


class SamplesPage(Page):
    """A list, and the one under the cursor in full."""

    BINDINGS = [Binding("enter", "read", "Read", tooltip="Go to the text; enter again goes back")]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._told: Told | None = None

    def compose(self) -> ComposeResult:
        with Container(id="sample-frame", classes="frame"):
            yield SampleList(id="sample-list")
        yield SampleSheet(id="sample-text")
        yield Static(id="no-sample", classes="empty", markup=False)

    def enter(self) -> None:
        self.ask(SamplesWanted())
        self._arrange()
        self.query_one(SampleList).focus()

    def show_view(self, view: RunView) -> None:
        if self._told is not None and not self._told.samples:
            self._arrange()  # what is said of a run without any depends on the run

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, Told)
        had = self._told is not None and bool(self._told.samples)
        self._told = answer
        if had != bool(answer.samples):
            self.refresh_bindings()
        self._arrange()

    def _arrange(self) -> None:
        samples = tuple(reversed(self._told.samples)) if self._told is not None else ()
        frame, empty = self.query_one("#sample-frame"), self.query_one("#no-sample", Static)
        frame.display = self.query_one("#sample-text").display = bool(samples)
        empty.display = not samples
        if not samples:
            self.say_empty(empty, lambda: _nothing(self.view))
            return
        frame.border_title = Content.assemble(
            ("samples ", "bold $ink"), (f"{len(samples)}", "$ink-muted")
        )
        self.query_one(SampleList).show(samples)
        self._read()

    @on(LineList.Moved)
    def _read(self) -> None:
        self.query_one(SampleSheet).show_sample(self.query_one(SampleList).current)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "read":
            return self._told is not None and bool(self._told.samples)
        return super().check_action(action, parameters)

    def action_read(self) -> None:
        listing, sheet = self.query_one(SampleList), self.query_one(SampleSheet)
        (sheet if listing.has_focus else listing).focus()


def _first_line(text: str) -> str:
    return clean(" ".join(text[:400].split()), limit=200)


def _folded(text: str, width: int, tone: str) -> list[Content]:
    """Text as lines of `width` cells; its own line breaks stay."""
    lines = text[:_CHARS].rstrip("\n").expandtabs(4).split("\n")
    found: list[Content] = []
    for line in lines:
        safe = clean(line)
        found += Content.styled(safe, tone).wrap(width) if safe else [Content("")]
    return found if text else []


def _nothing(view: RunView) -> Content:
    lines = [Content.styled("No samples.", "bold $ink")]
    if view.kind == "train":
        words = "To have some at each evaluation: --set 'training.sample_prompts=[\"def \"]'"
    else:
        words = 'From your own loop: run.sample(text, prompt="def ", step=step)'
    return styled.rows([*lines, Content.styled(words, "$ink-muted")])
