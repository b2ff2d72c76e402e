"""The key of views, on screens of many runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual import work
from textual.binding import Binding

from albor_core.run.errors import AlborError
from albor_core.run.values.clean import clean
from albor_tui.messages import CommandReport
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.widgets.status_bar import TopBar

if TYPE_CHECKING:
    from albor_tui.screens.dialogs.views import ViewChoice

_CHARS, _IN_BAR = 40, 24


class NamedViewScreen(PollingScreen):
    """A screen whose filter, columns, order and groups can be named, and opened by that name."""

    SCREEN = "runs"
    """What a view says of where it was named: "runs" or "workspace"."""
    BINDINGS = [
        Binding("V", "views", "Views", show=False, tooltip="Views: name what is shown, open one")
    ]

    def keep_view(self, **changes: Any) -> None:
        """The user changed these fields of the view: the next start shows it so."""
        self.cockpit.views.update(**changes)
        self.show_view_name()

    def show_view_name(self) -> None:
        """Say in the top bar which view is shown."""
        views = self.cockpit.views
        name = clean(views.name, limit=_IN_BAR) if views.name in views.named else ""
        changed = ", changed" if views.is_changed else ""
        self.query_one(TopBar).shown_view = f'view "{name}"{changed}' if name else ""

    def on_screen_resume(self) -> None:
        self.show_view_name()

    def show_current_view(self) -> None:
        """Show `cockpit.views.current`, which was opened by its name."""

    @work(thread=True, exclusive=True, group="views", exit_on_error=False)
    def action_views(self) -> None:
        """Ask for a name, once it is known what others have named meanwhile."""
        self.cockpit.views.reload()
        self.app.call_from_thread(self._ask_for_view)

    def _ask_for_view(self) -> None:
        from albor_tui.screens.dialogs.views import ViewsDialog

        views = self.cockpit.views
        now = replace(views.current, screen=self.SCREEN)
        is_read_only = self.cockpit.is_read_only
        dialog = ViewsDialog(views.named, now, views.name, is_read_only=is_read_only)
        self.app.push_screen(dialog, self._decide)

    def _decide(self, choice: ViewChoice | None) -> None:
        if choice is None:
            return
        if choice.what == "open":
            self.cockpit.open_view(choice.name)
        else:
            self._write_view(choice)

    @work(thread=True, group="views", exit_on_error=False)
    def _write_view(self, choice: ViewChoice) -> None:
        name, views = clean(choice.name, limit=_CHARS), self.cockpit.views
        try:
            if choice.what == "save":
                views.save_as(choice.name, self.SCREEN)
            else:
                views.remove(choice.name)
        except AlborError as error:
            self.post_message(CommandReport(name, f"{choice.what} view", "refused", error.message))
        else:
            done = "V or ctrl+p opens it" if choice.what == "save" else ""
            self.post_message(CommandReport(name, f"{choice.what} view", "done", done))
            self.app.call_from_thread(self.show_view_name)
