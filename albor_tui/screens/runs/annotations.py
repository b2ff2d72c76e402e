"""What is written of many runs at once: tags, notes, names, pins, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_tui.model.desk import reference
from albor_tui.screens.base.run_actions import RunActionsScreen
from albor_tui.widgets.base import styled


class AnnotationsScreen(RunActionsScreen):
    """A screen whose keys annotate the runs they act on, or write files of them."""

    def action_tag(self) -> None:
        views = self.reveal_acted_on()

        def annotate(word: str) -> None:
            is_off = word.startswith("-") and len(word) > 1
            self.annotate(views, "untag" if is_off else "tag", word.removeprefix("-"))

        self._ask("Tag", views, "-tag takes it away", annotate)

    def action_note(self) -> None:
        views = self.reveal_acted_on()

        def annotate(text: str) -> None:
            self.annotate(views, "note", text)

        self._ask("Note on", views, "kept with the run, for ever", annotate)

    def action_rename(self) -> None:
        views = self.reveal_acted_on()
        if len(views) > 1:
            self.show_message("one run at a time has a new name", "$ink-muted")
            return

        def annotate(name: str) -> None:
            self.annotate(views, "rename", name, undo=views[0].name or views[0].id)

        self._ask(
            "Rename", views, "its id and folder stay", annotate, views[0].name if views else ""
        )

    def action_pin(self) -> None:
        views = self.reveal_acted_on()
        if views:
            self.annotate(views, "unpin" if all(v.is_pinned for v in views) else "pin")

    def action_export(self) -> None:
        views = self.reveal_acted_on()
        write = partial(self._write, "export", self.desk.export, views)
        self._ask("Export", views, ".csv, .jsonl or .parquet", write, f"{_stem(views)}.csv")

    def action_report(self) -> None:
        views = self.reveal_acted_on()
        write = partial(self._write, "report", self.desk.report, views)
        self._ask("Report on", views, "one page, no network", write, f"{_stem(views)}.html")

    def _write(
        self,
        verb: str,
        make: Callable[[Sequence[str], Path], str],
        views: Sequence[RunView],
        name: str,
    ) -> None:
        runs, out = tuple(map(reference, views)), Path(name).expanduser().absolute()
        self.act(verb, self._how_many(views), lambda: make(runs, out))

    def _how_many(self, views: Sequence[RunView]) -> str:
        return self.name_of(views[0]) if len(views) == 1 else f"{len(views)} runs"

    def _ask(
        self,
        verb: str,
        views: Sequence[RunView],
        hint: str,
        then: Callable[[str], None],
        value: str = "",
    ) -> None:
        """`then` takes what is typed, unless nothing is."""
        if not views:
            return
        question = Content.assemble(
            (f"{verb} ", "bold $ink"), styled.text(self._how_many(views), "bold $accent")
        )
        from albor_tui.screens.dialogs.prompt import PromptScreen

        self.app.push_screen(
            PromptScreen(question, hint, value), lambda said: None if said is None else then(said)
        )


def _stem(views: Sequence[RunView]) -> str:
    """A file name that is free of whatever a run may be called."""
    if len(views) == 1:
        return views[0].id
    return f"runs-{datetime.now(tz=UTC):%Y%m%d-%H%M%S}"
