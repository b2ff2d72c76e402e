"""Doing things to runs from a screen: in a thread, with each stage shown, undone where that is
possible and asked before where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from textual import work
from textual.content import Content

from albor_core.feed.clean import clean
from albor_core.feed.view import RunView
from albor_core.run.errors import AlborError
from albor_tui import quantity
from albor_tui.desk import Desk, reference
from albor_tui.messages import CommandReport
from albor_tui.naming import name_of
from albor_tui.screens.confirm import ConfirmScreen
from albor_tui.screens.polling import PollingScreen
from albor_tui.widgets import meters

_INVERSE = {"tag": "untag", "untag": "tag", "pin": "unpin", "unpin": "pin", "rename": "rename"}
_LISTED = 6
_AT_WORK = ("pause", "checkpoint", "stop")
_STANDING = {
    "completed": "it is complete",
    "stopped": "it was stopped",
    "failed": "it has failed",
    "lost": "it is lost, nobody works on it",
    "unknown": "it ran on another machine, and whether it still does is not known here",
    "queued": "it has not started yet",
}
RETRYING = "goes on from its newest checkpoint, under a new guard where it has none."


class HasDesk(Protocol):
    """What an acting screen asks of the app it is on."""

    desk: Desk


@dataclass(frozen=True)
class Deed:
    """An annotation that can be taken back."""

    runs: tuple[tuple[str, str], ...]  # reference, name
    kind: str
    value: str


def acknowledge_question(count: int, whose: str) -> tuple[Content, str]:
    """What is asked before several alerts are acknowledged, and what that means."""
    question = Content.styled(f"Acknowledge {count} alerts?", "bold $ink")
    return question, f"They stay in the history of {whose}. This cannot be taken back."


class ActingScreen(PollingScreen):
    """A screen whose keys act on runs."""

    def __init__(self) -> None:
        super().__init__()
        self._deeds: list[Deed] = []
        self._named: tuple[bool, ...] = ()  # what the key bar was drawn for

    @property
    def desk(self) -> Desk:
        return cast("HasDesk", self.app).desk

    def acted_on(self) -> Sequence[RunView]:
        """The runs that a key would act on."""
        return ()

    def is_worth_naming(self, action: str) -> bool:
        if action in _AT_WORK:
            return any(view.is_active for view in self.acted_on())
        if action == "retry":
            return any(why_no_retry(view) == "" for view in self.acted_on())
        return action != "undo" or bool(self._deeds)

    def mind_keys(self) -> None:
        """Have the key bar drawn again if other keys are worth naming."""
        named = tuple(self.is_worth_naming(binding.action) for _, binding in self._bindings)
        if named != self._named:
            self._named = named
            self.refresh_bindings()

    def name_of(self, view: RunView) -> str:
        """What a run is called here. A screen that knows other runs tells them apart."""
        return name_of(view)

    @work(thread=True, group="act", exit_on_error=False)
    def act(self, cmd: str, name: str, job: Callable[[], str]) -> None:
        """Run `job` in a thread; it returns the last word about it. Raises nothing."""
        self.post_message(CommandReport(name, cmd, "sent"))
        try:
            detail = job()
        except (AlborError, OSError) as error:
            self.post_message(CommandReport(name, cmd, "refused", _words(error)))
        else:
            self.post_message(CommandReport(name, cmd, "done", detail))

    def annotate(
        self, views: Sequence[RunView], kind: str, value: str = "", *, undo: str | None = None
    ) -> None:
        """Say something about runs; the key for undo takes it back where it can be taken back, by
        saying `undo` instead of `value` where that is given.
        """
        runs = tuple((reference(view), self.name_of(view)) for view in views)
        if kind in _INVERSE:
            self._deeds.append(Deed(runs, kind, value if undo is None else undo))
            self.mind_keys()
        self._annotate(runs, kind, value)

    def action_undo(self) -> None:
        if not self._deeds:
            self.say("nothing to undo", "$ink-muted")
            return
        last = self._deeds.pop()
        self.mind_keys()
        self._annotate(last.runs, _INVERSE[last.kind], last.value)

    def _annotate(self, runs: Sequence[tuple[str, str]], kind: str, value: str) -> None:
        desk = self.desk

        def job() -> str:
            for run, _ in runs:
                desk.annotate(run, kind, value)
            return value if kind != "note" else ""

        self.act(kind, _together([name for _, name in runs]), job)

    def order(self, views: Sequence[RunView], cmd: str) -> None:
        """A command to the guards of those that have one."""
        for view in views:
            name = self.name_of(view)
            if view.is_active:
                self.send_command(replace(view, name=name), cmd)
            else:
                self.post_message(CommandReport(name, cmd, "no guard", standing(view)))

    def order_after_asking(self, views: Sequence[RunView], cmd: str, consequence: str) -> None:
        """The same for what costs work, after a yes; `consequence` goes on from `It`."""
        active = [view for view in views if view.is_active]
        if not active:
            self.order(views, cmd)
            return

        def decide(yes: bool | None) -> None:
            if yes:
                self.order(active, cmd)

        asked = question(cmd, active, self.name_of)
        consequence = f"It {consequence}" if len(active) == 1 else f"\nEach {consequence}"
        self.app.push_screen(ConfirmScreen(asked, consequence), decide)

    def retry(self, views: Sequence[RunView]) -> None:
        """Start again what ended too early, after a yes: at once where a guard waits for its time,
        else under a new guard. What is complete or at work is left alone."""
        spared = {view.id: why for view in views if (why := why_no_retry(view))}
        ready = [view for view in views if view.id not in spared]
        kept = [f"{self.name_of(view)} {spared[view.id]}" for view in views if view.id in spared]
        if not ready:
            self.say(_spared(kept) if kept else "no run to retry", "$warning")
            return

        def decide(yes: bool | None) -> None:
            if yes:
                self._retry(ready)

        who = "It" if len(ready) == 1 else "\nEach"
        words = f"{who} {RETRYING}" + (f"\nLeft alone: {_listed(kept)}." if kept else "")
        asked = question("retry", ready, self.name_of)
        self.app.push_screen(ConfirmScreen(asked, words, decline="no, leave it"), decide)

    def _retry(self, views: Sequence[RunView]) -> None:
        for view in views:
            if view.status == "restarting":
                self.order([view], "retry_now")
        dead = [view for view in views if view.status != "restarting"]
        runs = [(reference(view), self.name_of(view)) for view in dead]
        desk = self.desk
        if runs:
            self.act("retry", _together(name for _, name in runs), lambda: _resume(desk, runs))


def standing(view: RunView) -> str:
    """How it stands with a run that nobody works on, to go behind a name and a colon."""
    return _STANDING.get(view.status, f"it is {view.status}")


def question(
    cmd: str, views: Sequence[RunView], name: Callable[[RunView], str] = name_of
) -> Content:
    """`Stop NAME?`, or how many and which."""
    if len(views) == 1:
        view = views[0]
        where = "" if view.step is None else f" at step {quantity.count(view.step)}"
        return Content.assemble(
            (f"{cmd.capitalize()} ", "bold $ink"),
            meters.text(name(view), "bold $accent"),
            (f"{where}?", "bold $ink"),
        )
    lines = [Content.styled(f"{cmd.capitalize()} {len(views)} runs?", "bold $ink")]
    lines += [meters.text(f"  {name(v)}", "$accent") for v in views[:_LISTED]]
    if len(views) > _LISTED:
        lines.append(Content.styled(f"  and {len(views) - _LISTED} more", "$ink-muted"))
    return meters.rows(lines)


def why_no_retry(view: RunView) -> str:
    """Why a run is not started again, "" if it may be."""
    if view.status == "completed":
        return "is complete"
    return f"is {view.status}" if view.is_active and view.status != "restarting" else ""


def _spared(kept: Sequence[str]) -> str:
    return f"{_listed(kept)}: there is nothing to retry"


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(clean(word) for word in words[:_LISTED])
    return shown + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")


def _resume(desk: Desk, runs: Sequence[tuple[str, str]]) -> str:
    """Start runs again, one after the other; one that cannot be does not keep the rest waiting.
    Raises AlborError where any could not."""
    refused: list[str] = []
    said = ""
    for run, name in runs:
        try:
            said = desk.resume(run)
        except (AlborError, OSError) as error:
            refused.append(_words(error) if len(runs) == 1 else f"{name}: {_words(error)}")
    if refused:
        started = len(runs) - len(refused)
        raise AlborError("; ".join(refused) + (f"; {started} started" if started else ""))
    return said if len(runs) == 1 else f"{len(runs)} guards have started them again"


def _together(names: Iterable[str]) -> str:
    found = list(names)
    return found[0] if len(found) == 1 else f"{len(found)} runs"


def _words(error: AlborError | OSError) -> str:
    if isinstance(error, AlborError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return str(error)
