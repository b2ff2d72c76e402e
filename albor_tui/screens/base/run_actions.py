"""Doing things to runs from a screen: in a thread, with each stage shown, undone where that is
possible and asked before where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from textual import work
from textual.content import Content

from albor_core.andon.bricks.budgets import check_bricks
from albor_core.andon.bricks.names import brick_name
from albor_core.feed.run.offers import Offer, Subject, offer, subject_of_view
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_core.run.exit import STOP_SIGNALS
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_tui.look import quantity
from albor_tui.look.naming import name_of
from albor_tui.messages import CommandReport
from albor_tui.model.desk import LiveDesk, reference
from albor_tui.screens.base.run_origins import RunOriginsScreen
from albor_tui.terminal.textual_private import bindings_of
from albor_tui.widgets.base import styled

_INVERSE = {"tag": "untag", "untag": "tag", "pin": "unpin", "unpin": "pin", "rename": "rename"}
_LISTED = 6
_CHARS = 80
MEANS = {  # of each key, the actions of feed.run.offers
    "pause": ("pause", "resume"),
    **{action: (action,) for action in ("checkpoint", "stop", "retry")},
}


@dataclass(frozen=True)
class UndoEntry:
    """An annotation that can be taken back."""

    runs: tuple[tuple[str, str], ...]  # reference, name
    kind: str
    value: str


class RunActionsScreen(RunOriginsScreen):
    """A screen whose keys act on runs."""

    def __init__(self) -> None:
        super().__init__()
        self._deeds: list[UndoEntry] = []
        self._named: tuple[tuple[bool, str], ...] = ()  # what the key bar was drawn for

    def ask_to_acknowledge(
        self, count: int, whose: str, then: Callable[[], None], *, noun: str = "alert"
    ) -> None:
        """Before several alerts are acknowledged: says what that means."""

        def decide(yes: bool | None) -> None:
            if yes:
                then()

        question = Content.styled(f"Acknowledge {quantity.counted(count, noun)}?", "bold $ink")
        means = f"They stay in the history of {whose}. This cannot be taken back."
        from albor_tui.screens.dialogs.confirm import ConfirmScreen

        self.app.push_screen(ConfirmScreen(question, means, decline="no"), decide)

    def acted_on(self) -> Sequence[RunView]:
        """The runs that a key would act on."""
        return ()

    def reveal_acted_on(self) -> Sequence[RunView]:
        """The same, after the user has seen which runs they are."""
        return self.acted_on()

    def action_stop(self) -> None:
        self.ask(self.reveal_acted_on(), "stop", "no, keep it running")

    def action_retry(self) -> None:
        self.ask(self.reveal_acted_on(), "retry")

    def action_checkpoint(self) -> None:
        self.order(self.reveal_acted_on(), "checkpoint")

    def action_pause(self) -> None:
        """Each run to the state of the first one's opposite, so that many move together."""
        views = self.reveal_acted_on()
        if views and views[0].status == "paused":
            self.resume(views)
        else:
            self.order(views, "pause")

    def shows_key(self, action: str) -> bool:
        if action in MEANS:
            return any(
                self.seems_offered(view, meant).is_possible
                for view in self.acted_on()
                for meant in MEANS[action]
            )
        return action != "undo" or bool(self._deeds)

    def key_word(self, action: str) -> str:
        """The label of a key with several meanings: the action that works now, if only one does."""
        meant = MEANS.get(action, ())
        if action == "retry" and any(one.status == "unguarded" for one in self.acted_on()):
            return "Guard"  # it runs: nothing is tried again
        if len(meant) < 2:
            return ""
        views = self.acted_on()
        possible = {a for a in meant for view in views if self.seems_offered(view, a).is_possible}
        return possible.pop() if len(possible) == 1 else ""

    def effect_of(self, action: str) -> str:
        """The effect of an action on its run; "" if its label is enough."""
        views = self.acted_on()
        if action not in MEANS or len(views) != 1:
            return ""
        offers = [self.seems_offered(views[0], meant) for meant in MEANS[action]]
        found = next((one for one in offers if one.is_possible), None)
        if found is None:
            return ""
        name = clean(self.name_of(views[0]), limit=_CHARS)
        return f"{found.action.capitalize()} {name}: it {found.does}"

    def refresh_key_bar(self) -> None:
        """Have the key bar drawn again if other keys are worth naming."""
        named = tuple(
            (self.shows_key(binding.action), self.key_word(binding.action))
            for binding in bindings_of(self)
        )
        if named != self._named:
            self._named = named
            self.refresh_bindings()

    def draw_offers(self) -> None:
        self.refresh_key_bar()

    def name_of(self, view: RunView) -> str:
        """The name of a run on this screen. A screen that knows other runs makes names unique."""
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
            self._deeds.append(UndoEntry(runs, kind, value if undo is None else undo))
            self.refresh_key_bar()
        self._annotate(runs, kind, value)

    def action_undo(self) -> None:
        if not self._deeds:
            self.show_message("nothing to undo", "$ink-muted")
            return
        last = self._deeds.pop()
        self.refresh_key_bar()
        self._annotate(last.runs, _INVERSE[last.kind], last.value)

    def _annotate(self, runs: Sequence[tuple[str, str]], kind: str, value: str) -> None:
        desk = self.desk

        def job() -> str:
            for run, _ in runs:
                desk.annotate(run, kind, value)
            return value if kind != "note" else ""

        self.act(kind, _together([name for _, name in runs]), job)

    # -- what can be done to runs ----------------------------------------------------------------

    def offered(self, view: RunView, action: str) -> Offer:
        """What a key does to a run now, or why it cannot. Reads files: for a key that was pressed,
        and not for what is drawn.
        """
        return self._offer(action, subject_of_view(view))

    def seems_offered(self, view: RunView, action: str) -> Offer:
        """The same by what was read before, to be drawn."""
        return self._offer(action, subject_of_view(view, self.origin_read(view)))

    def _offer(self, action: str, run: Subject) -> Offer:
        sent = self.cockpit.signals_sent.get((run.id, run.program), 0)
        return offer(action, run, signals_sent=sent)

    def order(self, views: Sequence[RunView], action: str, *, argument: str = "") -> None:
        """Carry out an action on each run that it can be done to, and say why not on the rest."""
        for view in views:
            offered, name = self.offered(view, action), self.name_of(view)
            if not offered.is_possible:
                self.post_message(CommandReport(name, action, "refused", reason(offered, view)))
            elif offered.order:
                self.send_command(replace(view, name=name), offered.order, argument)
            else:
                self._signal(view, name, offered.signal)

    def _signal(self, view: RunView, name: str, number: str) -> None:
        key, desk, run = (view.id, view.trainer_pid), self.desk, reference(view)
        self.cockpit.signals_sent[key] = STOP_SIGNALS.index(number) + 1
        self.act("stop", name, lambda: desk.stop(run, number))

    def ask(self, views: Sequence[RunView], action: str, decline: str = "no, leave it") -> None:
        """The same after a yes, for what costs work: what it means is said before."""
        offers = {view.id: self.offered(view, action) for view in views}
        ready = [view for view in views if offers[view.id].is_possible]
        spared = [view for view in views if not offers[view.id].is_possible]
        if not ready:
            self._refuse(action, spared, offers)
            return

        def decide(yes: bool | None) -> None:
            if not yes:
                return
            if action == "retry":
                self._retry(ready)
            else:
                self.order(ready, action)

        words = self._consequence(ready, offers)
        if spared:
            kept = _listed([f"{self.name_of(v)} ({offers[v.id].why_not})" for v in spared])
            words += f"\nLeft alone: {kept}."
        asked = question(action, ready, self.name_of)
        from albor_tui.screens.dialogs.confirm import ConfirmScreen

        self.app.push_screen(ConfirmScreen(asked, words, decline=decline), decide)

    def _refuse(self, action: str, spared: Sequence[RunView], offers: Mapping[str, Offer]) -> None:
        if len(spared) == 1:
            view = spared[0]
            why, name = reason(offers[view.id], view), self.name_of(view)
            self.post_message(CommandReport(name, action, "refused", why))
            return
        kept = [f"{self.name_of(view)}: {offers[view.id].why_not}" for view in spared]
        words = f"cannot {action} any of them: {_listed(kept)}" if kept else f"no run to {action}"
        self.show_message(words, "$warning")

    def _consequence(self, ready: Sequence[RunView], offers: Mapping[str, Offer]) -> str:
        """The consequences of an action, listed once for all runs with the same ones."""
        if len(ready) == 1:
            return f"It {offers[ready[0].id].does}."
        named: dict[str, list[str]] = {}
        for view in ready:
            named.setdefault(offers[view.id].does, []).append(self.name_of(view))
        if len(named) == 1:
            return f"\nEach {next(iter(named))}."
        return "".join(f"\n{_listed(names)}: {does}." for does, names in named.items())

    def resume(self, views: Sequence[RunView]) -> None:
        """Let paused runs go on; one that a part of its step has paused, as a person decides."""
        view, over = views[0], over_budget(views[0])
        if len(views) > 1 or not over or not self.offered(view, "resume").is_possible:
            self.order(views, "resume")
            return

        def decide(budget: str | None) -> None:
            if budget is not None:
                said = "" if budget == "as it is" else budget
                self.order(views, "resume", argument=",".join(f"{b}={said}" for b in over if said))

        asked = question("resume", [view], self.name_of)
        from albor_tui.screens.dialogs.confirm import ChoiceScreen

        self.app.push_screen(ChoiceScreen(asked, excess(view), OVERRULES), decide)

    def _retry(self, views: Sequence[RunView]) -> None:
        waiting = [view for view in views if self.offered(view, "retry").order]
        self.order(waiting, "retry")
        dead = [view for view in views if view not in waiting]
        runs = [(reference(view), self.name_of(view)) for view in dead]
        desk = self.desk
        if runs:
            self.act("retry", _together(name for _, name in runs), lambda: _resume(desk, runs))


OVERRULES = (
    ("y", "as it is", "continue as before; the same excess pauses the run again"),
    ("l", "learn", "learn: what it takes now is its budget from now on"),
    ("m", "mute", "mute: this part of the step never pauses the run again"),
)


def over_budget(view: RunView) -> list[str]:
    """The parts of its step that paused a run, the worst first."""
    if view.status != "paused":
        return []
    measured = {brick.name: brick.measured_ms for brick in view.bricks}
    budgets = {brick.name: brick.budget_ms for brick in view.bricks}
    return [brick_name(alert.metric) for alert in check_bricks(budgets, measured)]


def excess(view: RunView) -> str:
    """The times of the parts over their budgets, and these budgets."""
    bricks = {brick.name: brick for brick in view.bricks}
    over = [bricks[name] for name in over_budget(view)]
    told = "; ".join(
        f"{brick.name} takes {quantity.milliseconds(brick.measured_ms)}"
        f" of {quantity.milliseconds(brick.budget_ms)}"
        for brick in over
    )
    return f"It was paused for its step time: {told}."


def reason(offered: Offer, view: RunView) -> str:
    """Why something cannot be done; with the command that works, if one may be wanted."""
    wants = view.is_active != (offered.action == "retry") and view.status != "completed"
    return f"{offered.why_not} ({offered.instead})" if wants else offered.why_not


def question(
    cmd: str, views: Sequence[RunView], name: Callable[[RunView], str] = name_of
) -> Content:
    """`Stop NAME?`, or how many and which."""
    if len(views) == 1:
        view = views[0]
        where = "" if view.step is None else f" at step {quantity.count(view.step)}"
        return Content.assemble(
            (f"{cmd.capitalize()} ", "bold $ink"),
            styled.text(name(view), "bold $accent"),
            (f"{where}?", "bold $ink"),
        )
    lines = [Content.styled(f"{cmd.capitalize()} {len(views)} runs?", "bold $ink")]
    lines += [styled.text(f"  {name(v)}", "$accent") for v in views[:_LISTED]]
    if len(views) > _LISTED:
        lines.append(Content.styled(f"  and {len(views) - _LISTED} more", "$ink-muted"))
    return styled.rows(lines)


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(clean(word) for word in words[:_LISTED])
    return shown + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")


def _resume(desk: LiveDesk, runs: Sequence[tuple[str, str]]) -> str:
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
