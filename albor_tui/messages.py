"""The facts that cross screens. Widgets nest their own messages.

Frequent ones replace their predecessor while it waits: a slow terminal skips stale frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from textual.message import Message

from albor_core.feed.view.run_view import RunsView, RunView
from albor_core.run.light_dataclass import dataclass
from albor_core.store.rows.series import Series

if TYPE_CHECKING:
    from albor_core.config.reference import FieldDoc
    from albor_core.feed.attention.item import AttentionItem, AttentionList
    from albor_core.store.rows.rows import AlertRow
    from albor_tui.model.desk import Matches, RunQuery
    from albor_tui.model.launchpad import Checked, ConfigFile


@dataclass
class RunsChanged(Message):
    """The present view of the feed of all runs."""

    view: RunsView

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RunsChanged)


@dataclass
class AttentionChanged(Message):
    """The present attention list, and the runs of its entries beside all active ones."""

    found: AttentionList
    views: tuple[RunView, ...] = ()

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, AttentionChanged)


@dataclass
class EvidenceFound(Message):
    """The evidence of an entry: last lines, stacks and report, and the curve of a metric."""

    item: AttentionItem
    lines: tuple[str, ...]
    metric: str = ""
    curve: Series | None = None


@dataclass
class RunChanged(Message):
    """The present view of the feed of one run, and its damaged files."""

    view: RunView
    problem: str = ""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RunChanged) and message.view.id == self.view.id


@dataclass
class CurvesChanged(Message):
    """Curves of one run by metric key, for charts."""

    run_id: str
    curves: dict[str, Series]

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, CurvesChanged) and message.run_id == self.run_id


@dataclass
class PinAsked(Message):
    """A metric is to stand for its run, or to do so no longer."""

    metric: str


@dataclass
class LogArrived(Message):
    """New lines of a run's log, raw. Not replaceable: each line is shown once."""

    run_id: str
    lines: tuple[str, ...]


@dataclass
class FilterAnswered(Message):
    """The runs that the store keeps for a `RunQuery`, None where it cannot be understood."""

    question: RunQuery
    found: Matches | None
    problem: str = ""


@dataclass
class AlertsChanged(Message):
    """Every alert of every run, newest first."""

    alerts: tuple[AlertRow, ...]
    problem: str = ""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, AlertsChanged)


@dataclass
class RulesReplayed(Message):
    """The alerts that rules would have raised for a run: an albor.alerts.test document, or the
    error."""

    run_id: str
    document: dict[str, Any] | None
    problem: str = ""
    watched: tuple[str, ...] = ()  # budgets that can stop it too, in sentences


@dataclass
class PastFound(Message):
    """The run of an alert as it is now, and the curve that the alert is about."""

    run_id: str
    metric: str
    view: RunView | None
    curves: dict[str, Series]
    problem: str = ""


@dataclass
class ConfigsFound(Message):
    """Configs that could be launched."""

    configs: tuple[ConfigFile, ...]


@dataclass
class ConfigChecked(Message):
    """The fields of a config with their values and problems. `turn` counts the edits."""

    turn: int
    fields: tuple[FieldDoc, ...]
    checked: Checked


@dataclass
class PlanMade(Message):
    """An albor.train.plan document, or why there is none."""

    turn: int
    document: dict[str, Any] | None
    problem: str = ""


@dataclass
class RunFound(Message):
    """A request to open a run."""

    view: RunView


@dataclass
class OriginRead(Message):
    """The origin of a run, as feed.run.offers.origin_of gives it; None: it could not be read."""

    run_id: str
    path: str
    origin: Mapping[str, Any] | None


@dataclass
class CommandReport(Message):
    """How a command to a run's guard fares: sent, accepted, done, refused, no guard, no answer."""

    run_name: str
    cmd: str
    status: str
    detail: str = ""


@dataclass
class DiffReady(Message):
    """A finished comparison as its albor.runs.diff document, or why there is none."""

    document: dict[str, Any] | None
    problem: str = ""
