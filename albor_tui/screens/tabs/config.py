"""What the run was told to do: its file beside what every field became."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.archive.config_sheet import ConfigView
from albor_core.feed.view.run_view import RunView
from albor_tui.look import glyphs
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.run.config_lists import FieldList, FileList, FoundList
from albor_tui.widgets.search_line import SearchLine
from albor_tui.widgets.status_bar import StatusBar

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive

_ORIGIN = {
    "file": "set in config.yaml, line {line}",
    "default": "the default",
    "elsewhere": "set by --set, or worked out from other fields",
    "recorded": "as the run recorded it",
}


@dataclass(frozen=True)
class ConfigWanted:
    """The config of the run."""

    PERIOD_S: ClassVar[float | None] = 2.0

    def put(self, archive: RunArchive) -> ConfigView:
        return archive.config()


class ConfigPage(Page):
    """Both sides where there is room; on a narrow terminal one at a time."""

    BINDINGS = [
        Binding("slash", "search", "Search", key_display="/", tooltip="Search keys and values"),
        Binding("n", "match(1)", "Next", tooltip="Next match"),
        Binding("N", "match(-1)", "Previous", show=False, tooltip="Match before"),
        Binding("o", "changed", "Changed", tooltip="Only what is not its default, or all"),
        Binding("v", "side", "File", tooltip="The file, or the fields it became"),
    ]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._config: ConfigView | None = None
        self._changed_only = False
        self._side = "fields"

    def compose(self) -> ComposeResult:
        with Container(id="config-body"):
            yield FieldList(id="config-fields")
            yield FileList(id="config-file")
        yield Static(id="config-about", markup=False)
        yield Static(id="no-config", classes="empty", markup=False)
        yield SearchLine(id="config-search")

    def enter(self) -> None:
        self._arrange()
        self.ask(ConfigWanted())
        self._list().focus()

    def show_view(self, view: RunView) -> None:
        if self._config is not None and not (self._config.fields or self._config.lines):
            self._arrange()  # what is said of a run without one depends on the run

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, ConfigView)
        self._config = answer
        self._arrange()
        self.refresh_bindings()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    @property
    def _is_narrow(self) -> bool:
        return self.screen.has_class("-narrow")

    def _list(self) -> FoundList:
        return self.query_one(
            "#config-file" if self._side == "file" else "#config-fields", FoundList
        )

    def _arrange(self) -> None:
        config = self._config or ConfigView()
        fields, file = self.query_one(FieldList), self.query_one(FileList)
        fields.show(config.fields, changed_only=self._changed_only)
        file.show(config.lines)
        has_any = bool(config.fields or config.lines)
        both = not self._is_narrow and bool(config.lines) and bool(config.fields)
        if not both and not (config.fields if self._side == "fields" else config.lines):
            self._side = "file" if config.lines else "fields"
        fields.display = has_any and (both or self._side == "fields")
        file.display = has_any and (both or self._side == "file")
        empty = self.query_one("#no-config", Static)
        empty.display = not has_any
        self.query_one("#config-body").display = has_any
        if not has_any:
            self.say_empty(empty, lambda: _nothing(self.view, config))
        changed = sum(field.is_changed for field in config.fields)
        told = f"{glyphs.current.selected} {changed} not the default"
        fields.border_title = Content.assemble(
            ("fields ", "bold $ink"),
            (f"{len(config.fields)}", "$ink-muted"),
            *((("   ", "$ink-muted"), (told, "$accent")) if _has_defaults(config) else ()),
        )
        file.border_title = Content.assemble(
            ("config.yaml ", "bold $ink"), (f"{len(config.lines)} lines", "$ink-muted")
        )
        file.border_subtitle = Content.styled(config.problem, "$warning")
        self._show_selected()

    @on(LineList.Moved)
    def _show_selected(self) -> None:
        """The whole of the field under the cursor: values may be longer than a line."""
        field, about = self.query_one(FieldList).current, self.query_one("#config-about", Static)
        about.display = field is not None and self._side == "fields"
        if field is None:
            return
        origin = _ORIGIN.get(field.origin, field.origin).format(line=field.line)
        default = f"   default {field.default}" if field.is_changed and field.default else ""
        width = max(10, self.content_size.width - 2)
        lines = [
            Content.assemble(
                styled.text(field.key, "bold $accent"),
                styled.text(f"   {origin}{default}", "$ink-muted"),
            ),
            styled.text(field.value, "$ink"),
        ]
        about.update(styled.rows([styled.fit(line, width) for line in lines]))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        config = self._config or ConfigView()
        if action == "changed":
            return _has_defaults(config)
        if action == "side":
            return bool(config.lines and config.fields)
        return super().check_action(action, parameters)

    def action_changed(self) -> None:
        self._changed_only = not self._changed_only
        self._arrange()

    def action_side(self) -> None:
        self._side = "fields" if self._side == "file" else "file"
        self._arrange()
        self._list().focus()

    def action_search(self) -> None:
        self.query_one(SearchLine).open()

    def action_match(self, by: int) -> None:
        focused = self.screen.focused
        listing = focused if isinstance(focused, FoundList) else self._list()
        if not listing.next_match(by):
            words = "nothing found" if listing.needle else "/ searches"
            self.screen.query_one(StatusBar).show_message(words, "$ink-muted")

    @on(SearchLine.Typed)
    def search(self, message: SearchLine.Typed) -> None:
        message.stop()
        for listing in self.query(FoundList):
            listing.search(message.words)

    @on(SearchLine.Left)
    def leave_search(self, message: SearchLine.Left) -> None:
        message.stop()
        self._list().focus()


def _has_defaults(config: ConfigView) -> bool:
    """Whether it is known of any field what it would be by default."""
    return any(field.origin != "recorded" for field in config.fields)


def _nothing(view: RunView, config: ConfigView) -> Content:
    lines = [Content.styled("This run has no config.", "bold $ink")]
    if config.problem:
        lines.append(styled.text(config.problem, "$warning"))
    if view.kind == "train":
        words = "config.yaml and config.resolved.json are gone from its folder:"
        lines += [Content.styled(words, "$ink-muted"), styled.text(view.path, "$ink-muted")]
    else:
        words = "A supervised program may record one: albor_core.track.start(config={...})"
        lines.append(Content.styled(words, "$ink-muted"))
    return styled.rows(lines)
