"""From a config to a run: pick one, change fields, see what it would cost, go.

Every change is checked against the config models at once and planned a moment later by
`albor train plan`, the same code that starts it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Input

from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError, ConfigError
from albor_tui.look import quantity
from albor_tui.messages import (
    CommandReport,
    ConfigChecked,
    ConfigsFound,
    PlanMade,
    RunFound,
)
from albor_tui.model.command import Cancelled
from albor_tui.model.launchpad import Checked
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.dialogs.prompt import PromptScreen
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.config_form import NAME, ConfigForm, ConfigList
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.plan_panel import PlanPanel
from albor_tui.widgets.status_bar import StatusBar, TopBar

DEBOUNCE_S = 0.5


class LaunchScreen(PollingScreen):
    """Starts a run; the run goes on whether or not the cockpit does."""

    BINDINGS = [
        Binding("escape,q", "back", "Back", tooltip="Back: from a field, the form, this screen"),
        Binding("enter", "edit", "Choose", tooltip="Choose the config; change the field"),
        Binding("space", "next_choice", "Next value", tooltip="Next of the values it may have"),
        Binding("slash", "find", "Find", key_display="/", tooltip="Find a field by words"),
        Binding("r", "reset", "Reset", tooltip="Back to what the file says"),
        Binding("g", "go", "Go", tooltip="Start the run; shows its plan and asks first"),
        Binding("o", "other", "Other file", tooltip="Type the path of a config"),
        Binding("tab", "app.focus_next", "Focus", show=False, tooltip="Form or plan"),
        Binding("z", "zoom", "Zoom", tooltip="The focused panel alone, and back"),
    ]

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self._path = path
        self._overrides: dict[str, str] = {}
        self._run_name = ""
        self._typed = ""  # the field that the line at the bottom belongs to
        self._checked: Checked | None = None
        self._plan: dict[str, object] | None = None
        self._turn = 0  # counts edits: an answer to an older question is dropped
        self._cancel = threading.Event()
        self._is_starting = False
        self._is_listed = False  # whether the configs were looked for

    def compose(self) -> ComposeResult:
        yield TopBar("runs", "launch")
        with Container(id="list"):
            yield ConfigList(id="configs")
            yield ConfigForm(id="form")
            yield Input(id="edit", compact=True, select_on_focus=False)
        yield PlanPanel(id="plan")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#edit", Input).display = False
        super().on_mount()
        if self._path is None:
            self._show_stage()
        else:
            self._open(self._path)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("next_choice", "find", "reset", "go"):  # there is no form yet
            return self._path is not None
        return super().check_action(action, parameters)

    def follow(self) -> None:
        """Nothing here moves by itself: the configs are listed once."""
        self.post_message(ConfigsFound(self.cockpit.launchpad.configs()))

    def on_unmount(self) -> None:
        self._cancel.set()

    def _show_stage(self) -> None:
        is_form = self._path is not None
        self.query_one(ConfigList).display = not is_form
        self.query_one(ConfigForm).display = is_form
        self.query_one(PlanPanel).display = is_form
        top = self.query_one(TopBar)
        top.crumbs = ("runs", "launch", *([str(self._path)] if is_form else []))
        top.refresh()
        self.query_one(ConfigForm if is_form else ConfigList).focus()
        self.refresh_bindings()
        self._title()

    def _title(self) -> None:
        title = [("fields" if self._path else "configs", "bold $ink")]
        if self._path is None and not self._is_listed:
            title.append((" loading", "$ink-muted"))
        if self._overrides:
            title.append((f" {len(self._overrides)} changed", "$accent"))
        listing = self.query_one("#list")
        listing.border_title = Content.assemble(*title)
        field = self.query_one(ConfigForm).current if self._path else None
        words = "" if field is None else f"{field.key}   {field.type}"
        listing.border_subtitle = Content(words)

    @on(ConfigsFound)
    def show_configs(self, message: ConfigsFound) -> None:
        self.query_one(ConfigList).configs = message.configs
        self._is_listed = True
        self._title()
        if not message.configs:
            self.show_message("no config in ./configs; o types a path", "$warning")

    def _open(self, path: Path) -> None:
        self._path, self._overrides, self._checked = path, {}, None
        self._show_stage()
        self._changed()

    def _changed(self) -> None:
        """Check the fields now and plan when the edits rest."""
        self._turn += 1
        self._cancel.set()
        self._cancel = threading.Event()
        self._plan = None
        self.query_one(PlanPanel).is_old = True
        self._title()
        if self._path is not None:
            texts = tuple(f"{key}={value}" for key, value in self._overrides.items())
            self._examine(self._turn, self._path, texts, self._cancel)

    @work(thread=True, group="plan", exit_on_error=False)
    def _examine(
        self, turn: int, path: Path, overrides: tuple[str, ...], cancelled: threading.Event
    ) -> None:
        try:
            checked = self.cockpit.launchpad.check(path, overrides)
            fields = self.cockpit.launchpad.fields(checked.values)
            self.post_message(ConfigChecked(turn, fields, checked))
            if cancelled.wait(DEBOUNCE_S):
                return
            self.post_message(
                PlanMade(turn, self.cockpit.launchpad.plan(path, overrides, cancelled))
            )
        except Cancelled:
            return
        except ConfigError as error:
            words = "; ".join(f"{p.field}: {p.message}" for p in error.problems)
            self.post_message(PlanMade(turn, None, words or error.message))
        except AlborError as error:
            self.post_message(PlanMade(turn, None, error.message))

    @on(ConfigChecked)
    def show_fields(self, message: ConfigChecked) -> None:
        if message.turn != self._turn:
            return
        self._checked = message.checked
        values = {**message.checked.values, NAME: self._run_name}
        form = self.query_one(ConfigForm)
        form.show(message.fields, values, frozenset(self._overrides), message.checked.problems)

    @on(PlanMade)
    def show_plan(self, message: PlanMade) -> None:
        if message.turn != self._turn:
            return
        panel = self.query_one(PlanPanel)
        self._plan = message.document
        panel.is_old, panel.problem, panel.document = False, message.problem, message.document

    @on(LineList.Moved)
    def name_field(self) -> None:
        self._title()

    @on(LineList.Chosen)
    def action_edit(self) -> None:
        chosen = self.query_one(ConfigList).current
        if self._path is None:
            if chosen is not None:
                self._open(chosen.path)
            return
        form = self.query_one(ConfigForm)
        if form.is_on_name:
            self._type(NAME, self._run_name, "a name for people; the run id is made from it")
        elif (field := form.current) is not None:
            if field.choices:
                self.action_next_choice()
            else:
                value = form.value(field.key)
                self._type(field.key, "" if value == "null" else value, field.type)

    def _type(self, key: str, value: str, hint: str) -> None:
        if self.maximized is not None:  # it would hide the line
            self.minimize()
        box = self.query_one("#edit", Input)
        self._typed = key
        box.value, box.placeholder = value, Content(hint).plain
        box.display = True
        box.focus()
        box.cursor_position = len(value)

    @on(Input.Submitted, "#edit")
    def take_value(self, event: Input.Submitted) -> None:
        key = self._typed
        self._leave_box()
        if key == "/":
            self.query_one(ConfigForm).find(event.value)
        elif key == NAME:
            self._run_name = event.value.strip()
            self._changed()
        elif event.value.strip() == "":
            self._forget(key)
        else:
            self._set(key, event.value.strip())

    def _leave_box(self) -> None:
        self.query_one("#edit", Input).display = False
        self.query_one(ConfigForm).focus()

    def _set(self, key: str, value: str) -> None:
        if self.query_one(ConfigForm).value(key) != value:
            self._overrides[key] = value
            self._changed()

    def _forget(self, key: str) -> None:
        if self._overrides.pop(key, None) is not None:
            self._changed()

    def action_next_choice(self) -> None:
        form = self.query_one(ConfigForm)
        field = form.current
        if field is None or not field.choices:
            return
        now = form.value(field.key).strip('"')
        at = field.choices.index(now) if now in field.choices else -1
        self._set(field.key, field.choices[(at + 1) % len(field.choices)])

    def action_find(self) -> None:
        if self._path is not None:
            self._type("/", "", "words in the name or meaning of a field; nothing shows all")

    def action_reset(self) -> None:
        field = self.query_one(ConfigForm).current
        if field is not None:
            self._forget(field.key)

    def action_other(self) -> None:
        def go(text: str | None) -> None:
            if text is not None:
                self._open(Path(text).expanduser())

        question = Content.styled("Which config?", "bold $ink")
        self.app.push_screen(PromptScreen(question, "path of a YAML file"), go)

    def action_go(self) -> None:
        if self._path is None or self._is_starting:
            return
        if self._plan is None:
            self.show_message("the plan is not ready, or has problems: see there", "$warning")
            return
        if self._plan["problems"]:
            self.show_message("there are problems: nothing can be started", "$error")
            return

        def decide(yes: bool | None) -> None:
            if yes and self._path is not None:
                self._is_starting = True
                texts = tuple(f"{key}={value}" for key, value in self._overrides.items())
                self._launch(self._path, texts, self._run_name)

        question = Content.assemble(
            ("Start ", "bold $ink"),
            styled.text(self._run_name or self._path.stem, "bold $accent"),
            ("?", "bold $ink"),
        )
        self.app.push_screen(ConfirmScreen(question, _cost(self._plan), decline="no"), decide)

    @work(thread=True, group="start", exit_on_error=False)
    def _launch(self, path: Path, overrides: tuple[str, ...], name: str) -> None:
        shown = name or path.stem
        self.post_message(CommandReport(shown, "start", "sent"))
        try:
            run_id, folder = self.cockpit.launchpad.start(path, overrides, name)
        except AlborError as error:
            hint = f" ({error.hint})" if error.hint else ""
            self.post_message(CommandReport(shown, "start", "refused", error.message + hint))
            self._is_starting = False
        else:
            self.post_message(CommandReport(shown, "start", "done", run_id))
            self.post_message(RunFound(RunView(id=run_id, name=shown, path=folder)))

    @on(RunFound)
    def open_run(self, message: RunFound) -> None:
        self.app.switch_screen(self.cockpit.run_screen(message.view))

    def action_back(self) -> None:
        form = self.query_one(ConfigForm)
        if self.query_one("#edit", Input).display:
            self._leave_box()
        elif self.maximized is not None:
            self.minimize()
        elif form.is_filtered:
            form.find("")
        elif self._path is not None and not self._overrides:
            self._path = None
            self._cancel.set()
            self._show_stage()
        elif self._overrides:
            self._ask_to_drop()
        else:
            self.app.pop_screen()

    def _ask_to_drop(self) -> None:
        def decide(yes: bool | None) -> None:
            if yes:
                self._path, self._overrides = None, {}
                self._cancel.set()
                self._show_stage()

        count = len(self._overrides)
        question = Content.styled(f"Drop {quantity.counted(count, 'changed field')}?", "bold $ink")
        kept = "The file itself was not touched."
        self.app.push_screen(ConfirmScreen(question, kept, decline="no"), decide)


def _cost(plan: dict[str, object]) -> str:
    """Time and memory of a plan in one line."""
    took = cast("dict[str, float] | None", plan["time"])
    memory = cast("dict[str, float]", plan["memory"])
    about = f"About {quantity.duration(took['seconds'])}" if took else "Duration unknown"
    return f"{about}, {quantity.byte_size(memory['total'])} of memory. It runs without the cockpit."
