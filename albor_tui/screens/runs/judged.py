"""Which metric the runs of an experiment are judged by, as the list changes it."""

from __future__ import annotations

from textual.binding import Binding

from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.my_metric import known_metrics, leading_metric
from albor_tui.screens.base.metric_choice import MetricRound, choice_note
from albor_tui.screens.runs.annotations import AnnotationsScreen


class JudgedRunsScreen(AnnotationsScreen):
    """A list of runs with a key that judges an experiment by its next metric."""

    BINDINGS = [
        Binding("m", "metric", "Metric", show=False, tooltip="Judge this experiment by the next"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._round = MetricRound()

    @property
    def rows(self) -> tuple[RunView, ...]:
        """Every run known."""
        raise NotImplementedError

    def action_metric(self) -> None:
        """The next metric for the experiments of the runs that keys act on."""
        views, chosen = self.reveal_acted_on(), self.cockpit.views.metrics
        experiments = [*dict.fromkeys(view.experiment for view in views)]
        if not experiments:
            return
        first, rows = experiments[0], self.rows
        count = self._round.learn(known_metrics(first, rows, chosen), first)
        before = leading_metric(first, rows, chosen)
        mine = self._round.after(before, first)
        if not mine:
            self.show_message("nothing is known yet of what it logs", "$ink-muted")
            return
        if count > 1:
            for experiment in experiments:
                self.cockpit.views.set_metric(experiment, mine)
            self.poll_now()
        back = self._round.way_back(before, mine, first)
        said = choice_note(experiments, mine, before=before, way_back=back, is_only=count == 1)
        self.show_message(said, "$ink-muted")
