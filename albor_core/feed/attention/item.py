"""What needs a person, as values: one entry, the kinds that there are, and the whole of it.

An entry is derived and never stored; what people said about it (seen, muted) is kept by its id, so
an id names one trouble of one attempt: the same trouble of a later attempt is a new entry.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from albor_core.feed.view.run_view import plain
from albor_core.run.light_dataclass import dataclass

if TYPE_CHECKING:
    from albor_core.documents.alerts import AttentionFields

SEVERITIES = ("info", "warning", "error", "critical")
"""From "good to know" to "work is being lost now"."""


class TroubleKind(NamedTuple):
    """One kind of trouble. `helps` are actions of feed.run.offers, the most useful first: the entry
    names the first one that works on its run. Where none does, it names `key` and `command`, in
    which {run} and {host} are filled in.
    """

    word: str
    """What lists call it, after a name: "hung", "gpu hot"."""
    severity: str
    means: str
    helps: tuple[str, ...] = ()
    key: str = "enter"
    command: str = "albor runs show {run}"
    is_of_end: bool = False
    """Whether it is of a run that has ended: it stays until seen, resumed or a week old."""


KINDS: Mapping[str, TroubleKind] = {
    # the run itself
    "died": TroubleKind(
        "died", "error", "the program ended by an error or a signal", ("retry",), is_of_end=True
    ),
    "failed": TroubleKind(
        "failed",
        "error",
        "it could not start or go on: its config, data, checkpoint or place refused it",
        ("retry",),
        is_of_end=True,
    ),
    "lost": TroubleKind(
        "lost",
        "error",
        "no process works on it and no end was recorded, as after a power cut",
        ("retry",),
        is_of_end=True,
    ),
    "folder_gone": TroubleKind(
        "folder gone", "critical", "it is running, and its folder was deleted: nothing is kept"
    ),
    "hung": TroubleKind(
        "hung", "critical", "alive and without progress for longer than its limit", ("stop",)
    ),
    "silent": TroubleKind(
        "silent",
        "warning",
        "alive and silent for much longer than its own steps take",
        command="albor logs {run}",
    ),
    "restarted": TroubleKind(
        "restarted",
        "warning",
        "its guard started it again within the last hour",
        command="albor guard report {run}",
    ),
    "non_finite": TroubleKind(
        "NaN or Inf", "error", "a headline figure is not a number", ("stop",)
    ),
    "rule": TroubleKind(
        "rule fired", "warning", "one of its rules fired", (), "a", "albor alerts ls {run} --open"
    ),
    "brick": TroubleKind(
        "brick over budget",
        "warning",
        "a part of its step takes longer than its budget",
        (),
        "enter",
        "albor runs show {run}",
    ),
    "health": TroubleKind(
        "health", "warning", "its curve or its data looks wrong", (), "a",
        "albor alerts ls {run} --open",
    ),
    "checkpoint": TroubleKind(
        "checkpoint too old", "warning", "much work would be lost if it died now", ("checkpoint",)
    ),
    "checkpoint_failing": TroubleKind(
        "checkpoint failing", "error", "its checkpoints cannot be written", ("checkpoint",)
    ),
    "budget": TroubleKind(
        "budget running out", "warning", "its budget ends before its work does", ("stop",)
    ),
    "unguarded": TroubleKind(
        "guard gone", "warning", "its guard ended: nothing would restart it", ("retry",)
    ),
    "watching": TroubleKind(
        "partly watched",
        "error",
        "a rule or a place for its alerts cannot be used",
        (),
        "enter",
        "albor alerts rules {run}",
    ),
    "lines_lost": TroubleKind(
        "lines lost", "warning", "lines that it logged were taken by no disk", ()
    ),
    "console_lost": TroubleKind(
        "log incomplete", "warning", "its log lacks some of what it printed", ()
    ),
    # the machine
    "gpu_hot": TroubleKind("gpu hot", "warning", "a GPU is too warm", (), "", "albor gpu"),
    "gpu_throttled": TroubleKind(
        "gpu throttled", "warning", "a GPU is held back by heat or power", (), "", "albor gpu"
    ),
    "gpu_straggling": TroubleKind(
        "gpu straggling", "warning", "a GPU does less than its siblings", (), "", "albor gpu"
    ),
    "gpu_idle": TroubleKind(
        "gpu idle", "warning", "a GPU that a run holds does nothing", (), "", "albor gpu"
    ),
    "gpu_ecc": TroubleKind(
        "gpu memory errors", "error", "a GPU's memory has errors beyond repair", (), "", "albor gpu"
    ),
    "gpu_xid": TroubleKind(
        "gpu fault", "error", "the driver reported a fault of a GPU", (), "", "albor gpu"
    ),
    "home": TroubleKind(
        "home nearly full",
        "warning",
        "ALBOR_HOME comes near the size that ALBOR_HOME_MAX gives it",
        (),
        "",
        "albor doctor --disk",
    ),
    "home_cap": TroubleKind(
        "home cap unread",
        "warning",
        "ALBOR_HOME_MAX is not a size: a home that is nearly full is not reported",
        (),
        "",
        "albor doctor --disk",
    ),
    "disk": TroubleKind(
        "disk nearly full", "error", "soon nothing can be saved", (), "", "albor runs gc"
    ),
    "memory": TroubleKind(
        "memory nearly full", "error", "the system will soon kill a process", (), "", "albor doctor"
    ),
}  # fmt: skip


GPU_RULE = re.compile(r"gpu(\d+)-(hot|throttled|straggling|idle|ecc|xid)")
"""The `rule` of an alert that andon.health raises of a GPU."""


def word_of_gpu(kind: str, index: int) -> str:
    """ "gpu 5 hot"."""
    return KINDS[kind].word.replace("gpu", f"gpu {index}", 1)


@dataclass(frozen=True)
class AttentionItem:
    """One entry. `cost` says in words what `cost_gpu_hours` counts (lost, or at risk); texts that
    came from a run are raw, whoever prints them cleans them.
    """

    id: str
    kind: str
    word: str
    severity: str
    run_id: str = ""  # "" of a machine
    run_name: str = ""
    host: str = ""
    since_wall: float | None = None
    summary: str = ""
    cost_gpu_hours: float | None = None
    is_of_gpus: bool = True  # whether these are of GPUs, and not hours of a run that names none
    cost: str = ""
    cause: str = ""
    key: str = ""  # of the cockpit, on the run; "" where none helps
    command: str = ""
    acked_by: str = ""
    muted_until: float | None = None  # UTC seconds, in the future
    path: str = ""  # of the run, where evidence lies
    alert_ids: tuple[str, ...] = ()
    metric: str = ""  # of an alert, the key that it read
    step: int | None = None

    @property
    def is_of_run(self) -> bool:
        """Whether marks of it are kept with the run; those of a machine are kept in the home."""
        return bool(self.run_id) and self.id.startswith(f"{self.run_id}/")

    @property
    def ack(self) -> str:
        """The command that takes it out of the count as seen."""
        return f"albor attention ack {shlex.quote(self.id)}"

    @property
    def is_open(self) -> bool:
        """Whether it was neither seen nor muted."""
        return not self.acked_by and self.muted_until is None

    @property
    def rank(self) -> tuple[bool, int, float, str]:
        """Sorts entries as lists show them: open ones, the worst, the newest first."""
        worst = -SEVERITIES.index(self.severity) if self.severity in SEVERITIES else 0
        return not self.is_open, worst, -(self.since_wall or 0.0), self.id

    def to_json(self) -> AttentionFields:
        """Every field as strict JSON data, but for `is_of_gpus`, which `cost` says in words."""
        found: Any = {**plain(self), "is_open": self.is_open}
        del found["is_of_gpus"]
        return cast("AttentionFields", found)


@dataclass(frozen=True)
class SinceLooked:
    """What ended since a user last looked. `best` is the best of those that completed, where they
    are of one experiment and have one metric to be compared by.
    """

    wall: float | None = None  # when that was; None: never
    completed: int = 0
    died: int = 0
    stopped: int = 0
    best_run: str = ""
    best_value: float | None = None
    best_metric: str = ""

    @property
    def sentence(self) -> str:
        """ "5 completed (best val/loss: sweep-199 2.456), 1 stopped"; "" for nothing."""
        by = f" {self.best_metric}:" if self.best_metric else ""
        of = f" (best{by} {self.best_run} {self.best_value or 0.0:.4g})"
        best = "" if self.best_value is None else of
        parts = (
            f"{self.completed} completed{best}" if self.completed else "",
            f"{self.died} died" if self.died else "",
            f"{self.stopped} stopped" if self.stopped else "",
        )
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class AttentionList:
    """All that needs a person. `fine`, `not_watched` and `tells_only` are ids of active runs: those
    that are watched with nothing open, those that nothing watches, and those that are watched by
    what cannot act. `being_read` are ids of runs that ended a moment ago: what their last lines
    tell is not known yet.
    """

    items: tuple[AttentionItem, ...] = ()
    fine: tuple[str, ...] = ()
    not_watched: tuple[str, ...] = ()
    tells_only: tuple[str, ...] = ()
    being_read: tuple[str, ...] = ()
    since_last_looked: SinceLooked = SinceLooked()
    is_complete: bool = True  # False while runs are still being read: no all-clear yet
    problem: str = ""  # why something could not be looked at

    @property
    def open(self) -> tuple[AttentionItem, ...]:
        """The entries that were neither seen nor muted, the worst first."""
        return tuple(item for item in self.items if item.is_open)

    @property
    def severity(self) -> str:
        """The severity of the worst open entry; "" if there is none."""
        return next((item.severity for item in self.open), "")

    @property
    def gpu_hours(self) -> float:
        """Lost or at risk in all open entries."""
        return sum(item.cost_gpu_hours or 0.0 for item in self.open)

    @property
    def is_quiet(self) -> bool:
        """Whether everything was looked at, all that works is watched, and nothing is wrong."""
        is_sure = self.is_complete and not (self.problem or self.being_read)
        return is_sure and not self.open and not self.not_watched

    def of_run(self, run_id: str) -> tuple[AttentionItem, ...]:
        """The entries of one run, the worst first."""
        return tuple(item for item in self.items if item.run_id == run_id)


@dataclass(frozen=True)
class AttentionMarks:
    """Users' marks of entries, by entry id: who saw it, until when it is muted."""

    acked: Mapping[str, str] = field(default_factory=dict)
    muted: Mapping[str, float] = field(default_factory=dict)
    looked_wall: float | None = None  # when this user last looked
