"""Views: what is shown now gets a name, and what was named before is opened again."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from albor_core.feed.workspace.views import MAX_NAME, View
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean, natural_place
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs
from albor_tui.model.views import shows_same
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

_MOST_LINES = 12
_NAME_CELLS = 28


@dataclass(frozen=True)
class ViewChoice:
    """What is to be done ("save", "open", "remove") with the view of a name."""

    what: str
    name: str


class ViewList(LineList):
    """The named views; what each shows beside its name."""

    def __init__(self, named: Mapping[str, View]) -> None:
        super().__init__()
        self.named = dict(sorted(named.items(), key=lambda one: natural_place(one[0].lower())))
        self.names = list(self.named)
        self._longest = max((cell_len(clean(name)) for name in self.names), default=0)
        self.marked = ""
        """The view that the next key would remove."""

    def count(self) -> int:
        return len(self.names)

    @property
    def shows_cursor(self) -> bool:
        return self.has_focus

    @property
    def current(self) -> str:
        return self.names[self.cursor] if self.names else ""

    def draw_line(self, index: int, width: int) -> Content:
        name = self.names[index]
        if name == self.marked:
            return Content.styled(f"press - again to remove {clean(name, limit=40)!r}", "$warning")
        head = styled.fit(styled.text(name, "$ink"), min(self._longest, _NAME_CELLS, width // 2))
        return Content.assemble(head, "  ", styled.text(summary(self.named[name]), "$ink-muted"))


class ViewsDialog(ModalScreen["ViewChoice | None"]):
    """Asks for a name, or for one of the named views. Where it `is_read_only`, only for the
    latter.
    """

    AUTO_FOCUS = ""
    BINDINGS = [
        Binding("enter", "open", "Open", tooltip="Open the highlighted view"),
        Binding("minus,delete", "remove", "Remove", tooltip="Remove the highlighted view"),
        Binding("down", "to_list", "List", show=False),
        Binding("up", "to_name", "Name", show=False),
        Binding("escape", "cancel", "Cancel"),
    ]

    def __init__(
        self, named: Mapping[str, View], now: View, name: str = "", *, is_read_only: bool = False
    ) -> None:
        super().__init__()
        self._named, self._now, self._name = named, now, name
        self._is_read_only = is_read_only
        self._asked = ""
        """The name whose view the next enter replaces."""

    def compose(self) -> ComposeResult:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        with Vertical(id="dialog", classes="-choice") as dialog:
            dialog.border_title = Content("views")
            if not self._is_read_only:
                yield Static(self._question(), id="question", markup=False)
                yield Input(
                    self._name,
                    placeholder="a name",
                    id="answer",
                    compact=True,
                    max_length=MAX_NAME,
                )
            listing = ViewList(self._named)
            listing.styles.height = min(max(1, listing.count()), _MOST_LINES)
            yield Static("", id="views-empty", markup=False)
            yield listing
            yield Static("", id="choices", markup=False)

    def _question(self) -> Content:
        shown = summary(self._now) or "every run, newest first"
        return Content.assemble(
            ("Name what is shown  ", "bold $ink"), styled.text(shown, "$ink-muted")
        )

    def on_mount(self) -> None:
        listing = self.query_one(ViewList)
        listing.display = bool(listing.count())
        empty = self.query_one("#views-empty", Static)
        empty.display = self._is_read_only and not listing.count()
        empty.update(Content.styled("No view has a name yet.", "$ink-muted"))
        if self._is_read_only:
            listing.focus()
        else:
            self.query_one("#answer", Input).focus()
        listing.lines_changed()
        self._show_keys()

    def on_descendant_focus(self) -> None:
        self._show_keys()

    @on(Input.Changed)
    def _name_changed(self) -> None:
        self._asked = ""
        self._show_keys()

    def _show_keys(self) -> None:
        """Say what the keys do where the focus is."""
        listing = self.query_one(ViewList)
        if self._asked and not listing.has_focus:
            self.query_one("#choices", Static).update(self._replacing())
            return
        keys: list[tuple[str, str]] = []
        if listing.has_focus:
            keys = [("enter", "opens it"), *([] if self._is_read_only else [("-", "removes it")])]
        elif not self._is_read_only:
            name = self._typed
            does = {
                "save": "saves",
                "open": "opens it as it is",
                "ask": "asks to replace that view",
            }
            keys = [("enter", does[self._meant])] if name else []
            keys += [(glyphs.current.arrow_down, "to open one")] if listing.count() else []
        keys.append(("esc", "cancels"))
        parts = [Content.assemble((key, "bold $accent"), f" {does}") for key, does in keys]
        self.query_one("#choices", Static).update(Content("   ").join(parts))

    @property
    def _typed(self) -> str:
        return "" if self._is_read_only else self.query_one("#answer", Input).value.strip()

    @property
    def _meant(self) -> str:
        """What enter does with the name in the field: "save", "open" the view that shows the same
        already, "ask" before another one is replaced.
        """
        saved = self._named.get(self._typed)
        if saved is None:
            return "save"
        return "open" if shows_same(saved, self._now) else "ask"

    def _replacing(self) -> Content:
        """What the next enter replaces, and by what."""
        name = clean(self._asked, limit=_NAME_CELLS)
        return Content.assemble(
            (f"{name!r} shows something else. ", "$warning"),
            ("enter", "bold $accent"),
            (" again replaces it   ", "$warning"),
            ("esc", "bold $accent"),
            " cancels",
        )

    @on(Input.Submitted)
    def save(self, event: Input.Submitted) -> None:
        event.stop()
        name, meant = self._typed, self._meant
        if not name:
            return
        if meant == "ask" and self._asked != name:
            self._asked = name
            self._show_keys()
            return
        self.dismiss(ViewChoice("open" if meant == "open" else "save", name))

    @on(LineList.Chosen)
    def action_open(self) -> None:
        listing = self.query_one(ViewList)
        if listing.has_focus and listing.current:
            self.dismiss(ViewChoice("open", listing.current))

    def action_remove(self) -> None:
        """Ask in the line itself; the second time, do it."""
        listing = self.query_one(ViewList)
        if self._is_read_only or not listing.has_focus:
            return
        if listing.marked == listing.current:
            self.dismiss(ViewChoice("remove", listing.current))
            return
        listing.marked = listing.current
        listing.refresh()

    @on(LineList.Moved)
    def clear_mark(self) -> None:
        listing = self.query_one(ViewList)
        if listing.marked and listing.marked != listing.current:
            listing.marked = ""
            listing.refresh()

    def action_to_list(self) -> None:
        listing = self.query_one(ViewList)
        if listing.count():
            listing.focus()

    def action_to_name(self) -> None:
        if not self._is_read_only:
            self.query_one("#answer", Input).focus()

    def action_cancel(self) -> None:
        self.dismiss(None)


def summary(view: View) -> str:
    """What a view shows, in one line: first what leaves runs out or puts them together."""
    parts = [view.screen] if view.screen == "workspace" else []
    parts += [f"{len(view.hidden)} hidden"] if view.hidden else []
    parts += [f"by {view.group}"] if view.group else []
    parts += [f"/{view.filter}"] if view.filter else []
    turned = ", turned round" if view.is_reversed else ""
    parts += [f"sort {view.sort or 'recent'}{turned}"] if view.sort or turned else []
    parts += [counted(len(view.columns), "column")] if view.columns else []
    return "  ".join(parts)
