"""One run, live: loss first, then everything that explains it."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Footer

from albor_core.feed.view import Curve, RunView
from albor_tui import glyphs, quantity
from albor_tui.messages import CurvesChanged, LogArrived, RunChanged
from albor_tui.screens.confirm import ConfirmScreen
from albor_tui.screens.curves import KEYS, MAX_POINTS, loss_chart, single_chart
from albor_tui.screens.polling import PollingScreen
from albor_tui.widgets import meters
from albor_tui.widgets.chart import Chart
from albor_tui.widgets.facts import AlertBanner, Alerts, Bricks, GuardPanel, Head, Vitals, ordered
from albor_tui.widgets.gpu_panel import GpuPanel
from albor_tui.widgets.log_tail import LogTail
from albor_tui.widgets.status_bar import StatusBar, TopBar

# the order of panels in the grid: a narrow terminal shows what is alive on its first page
_WIDE = ("loss", "machine", "bricks", "lr", "grad", "speed", "log", "guard", "alerts")
_NARROW = ("loss", "machine", "guard", "log", "bricks", "alerts", "lr", "grad", "speed")


class RunScreen(PollingScreen):
    """Follows one run until it is left. Acts on it only through its guard."""

    PERIOD_S = 0.5
    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to the list"),
        Binding("p", "pause", "Pause", tooltip="Pause or resume, through the guard"),
        Binding("c", "checkpoint", "Checkpoint", tooltip="Write a checkpoint now"),
        Binding("k", "stop", "Stop", tooltip="Stop after a checkpoint; asks first"),
        Binding("a", "acknowledge", "Ack", tooltip="Acknowledge the worst open alert"),
        Binding("z", "zoom", "Zoom", tooltip="Give the focused panel the whole screen, and back"),
        Binding("l", "focus_log", "Log", show=False, tooltip="Go to the log"),
    ]

    def __init__(self, view: RunView) -> None:
        super().__init__()
        self._view = view
        self._curves: dict[str, Curve] = {}

    def compose(self) -> ComposeResult:
        yield TopBar("runs", self._view.name or self._view.id)
        yield Head(id="head")
        yield Vitals(id="vitals")
        yield AlertBanner(id="banner")
        with Container(id="body"):
            yield Chart(id="loss")
            yield GpuPanel(id="machine")
            yield Bricks(id="bricks")
            yield Chart("learning rate", id="lr")
            yield Chart("gradient norm", id="grad")
            yield Chart("tokens/s", id="speed")
            yield LogTail(id="log")
            yield GuardPanel(id="guard")
            yield Alerts(id="alerts")
        yield StatusBar()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#loss", Chart).focus()
        self._set_titles()
        self._show()
        self._draw()
        super().on_mount()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    def _arrange(self) -> None:
        body = self.query_one("#body", Container)
        wanted = _NARROW if self.has_class("-narrow") else _WIDE
        if wanted != tuple(child.id for child in body.children):
            for name in wanted:
                body.move_child(self.query_one(f"#{name}"), after=len(body.children) - 1)

    def follow(self) -> None:
        follower = self.source.follow(self._view)
        drawn: tuple[object, ...] | None = None
        try:
            for _ in self.ticking():
                view = follower.poll()
                if view is not None:
                    self.post_message(RunChanged(view))
                    mark = (view.attempt, view.step, view.val_loss)
                    if mark != drawn:
                        drawn = mark
                        self.post_message(CurvesChanged(view.id, follower.curves(KEYS, MAX_POINTS)))
                lines = tuple(follower.log())
                if lines:
                    self.post_message(LogArrived(self._view.id, lines))
        finally:
            follower.close()

    @on(RunChanged)
    def show_run(self, message: RunChanged) -> None:
        self._view = message.view
        self._show()

    @on(CurvesChanged)
    def show_curves(self, message: CurvesChanged) -> None:
        self._curves = message.curves
        self._draw()

    @on(LogArrived)
    def show_log(self, message: LogArrived) -> None:
        self.query_one(LogTail).add(message.lines)

    def _show(self) -> None:
        view = self._view
        for panel in (Head, Vitals, AlertBanner, Bricks, GuardPanel, Alerts):
            self.query_one(panel).view = view
        machine = self.query_one(GpuPanel)
        machine.gpus, machine.host = view.gpu, view.system
        machine.why_none = f"no GPU in use; device {view.device or 'unknown'}"

    def _set_titles(self) -> None:
        """Once: a title that moves with the numbers would redraw its whole chart each time."""
        mark = glyphs.current.legend
        self.query_one("#loss", Chart).border_title = Content.assemble(
            ("loss ", "bold $ink"),
            (f" {mark} raw", "$line-raw"),
            (f"  {mark} smoothed", "$line-main"),
            (f"  {mark} validation", "$line-val"),
        )

    def _draw(self) -> None:
        view, curves = self._view, self._curves
        self.query_one("#loss", Chart).data = loss_chart(view, curves)
        self.query_one("#lr", Chart).data = single_chart(
            view, curves.get("optim/lr"), "second", history=view.lr_history, is_noisy=False
        )
        self.query_one("#grad", Chart).data = single_chart(
            view, curves.get("optim/grad_norm"), "fourth", history=view.grad_norm_history
        )
        self.query_one("#speed", Chart).data = single_chart(
            view, curves.get("perf/tokens_per_s"), "third"
        )

    def action_back(self) -> None:
        if self.maximized is not None:
            self.minimize()
        else:
            self.app.pop_screen()

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused)

    def action_focus_log(self) -> None:
        self.query_one(LogTail).focus()

    def action_pause(self) -> None:
        self._send("resume" if self._view.status == "paused" else "pause")

    def action_checkpoint(self) -> None:
        self._send("checkpoint")

    def action_stop(self) -> None:
        if not self._view.is_active:
            self._send("stop")
            return

        def decide(yes: bool | None) -> None:
            if yes:
                self._send("stop")

        self.app.push_screen(ConfirmScreen(*stop_question(self._view)), decide)

    def action_acknowledge(self) -> None:
        opened = [alert for alert in ordered(self._view.alerts) if not alert.is_acknowledged]
        if not opened:
            self.say("no open alert", "$ink-muted")
            return
        self.send_acknowledgement(self._view, opened[0].id)

    def _send(self, cmd: str) -> None:
        if not self._view.is_active:
            name = self._view.name or self._view.id
            self.say(f"{name} is {self._view.status}: nobody is there to {cmd} it", "$warning")
            return
        self.send_command(self._view, cmd)


def stop_question(view: RunView) -> tuple[Content, str]:
    """What is asked before a run is stopped, and what stopping means."""
    question = Content.assemble(
        ("Stop ", "bold $ink"),
        meters.text(view.name or view.id, "bold $accent"),
        ("?", "bold $ink"),
    )
    step = quantity.count(view.step)
    return question, f"It finishes step {step}, writes a checkpoint and ends. Resuming is possible."
