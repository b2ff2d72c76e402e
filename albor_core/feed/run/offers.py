"""What can be done to a run, what each would do, and why the rest cannot be done.

One answer for keys, dialogs, palette, hints and commands, so that none of them promises what
another refuses. Pure, but for asking whether a folder is a copy: whoever acts looks at the run
again.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from albor_core.feed.view.run_status import LIVE_WORDS, LOADING, RunStatus
from albor_core.feed.view.run_view import RunView
from albor_core.run.exit import STOP_SIGNALS
from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.guard_state import read_guard
from albor_core.run.home.registry import NOT_LAUNCHED_HERE, is_launched_here, resumed_by_config
from albor_core.run.home.runs import placed
from albor_core.run.light_dataclass import dataclass
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.status import STATUSES
from albor_core.run.values.clean import MARK

ACTIONS = ("pause", "resume", "checkpoint", "stop", "retry")
_RERUN = "albor guard run -- CMD"


@dataclass(frozen=True)
class Subject:
    """The facts of a run that decide which actions are possible."""

    id: str
    kind: str = "train"  # train, guard (any program), track (a loop without a guard), imported
    word: str = "running"  # of run.status.STATUSES
    program: int | None = None  # who holds the run's lock; 0: not visible from here
    guard: int | None = None
    guard_state: str = ""
    host: str = ""
    command: tuple[str, ...] = ()  # what was run, as run.json keeps it
    pulled_from: str = ""  # the host of which it is a copy
    path: str = ""
    is_launched_here: bool = True  # by this home's user: what it names may be started

    @property
    def is_active(self) -> bool:
        return self.word in LIVE_WORDS

    @property
    def is_elsewhere(self) -> bool:
        return self.host not in ("", os.uname().nodename)


@dataclass(frozen=True)
class Offer:
    """One action on one run: what it would do, or why it cannot be done and what works instead."""

    action: str
    does: str = ""  # goes on from "it": "finishes its step and ends"
    why_not: str = ""  # goes on from "cannot stop NAME: "
    instead: str = ""  # a command that works for this run
    signal: str = ""  # of STOP_SIGNALS, where no guard carries it out
    order: str = ""  # the word for the guard, where one carries it out

    @property
    def is_possible(self) -> bool:
        return not self.why_not


def offer(action: str, run: Subject, *, signals_sent: int = 0) -> Offer:
    """What `action` (one of ACTIONS) means for `run` now. `signals_sent`: how many of STOP_SIGNALS
    its unguarded program got already, so that asking again is asking for the next.
    """
    if run.pulled_from:
        why = f"it was pulled from {run.pulled_from} and is read-only here"
        return Offer(action, why_not=why, instead=way_on(run))
    if run.word == LOADING:
        why = "it is still being read"
        return Offer(action, why_not=why, instead=f"albor guard status {run.id}")
    if action == "stop":
        return _stop(run, signals_sent)
    return _retry(run) if action == "retry" else _order(action, run)


def way_on(run: Subject) -> str:
    """The command that goes on with an ended run or starts its program again; where neither can be,
    the one that shows it.
    """
    if run.pulled_from:
        return f"on {run.pulled_from}: albor guard status {run.id.partition('@')[0]}"
    found = _retry(run)
    if found.instead:
        return found.instead
    return f"albor train resume {run.id}" if run.kind == "train" else f"albor guard retry {run.id}"


def standing(word: str) -> str:
    """How it stands with a run that no process works on, to go behind a name and a colon."""
    known = STATUSES.get(word)
    return (known and known.standing) or f"it is {word}"


def _order(action: str, run: Subject) -> Offer:
    """Pause, resume, checkpoint: what only a guard passes on."""
    if not run.is_active:
        return Offer(action, why_not=standing(run.word), instead=way_on(run))
    if run.guard is None:
        return Offer(action, why_not=f"{_no_guard(run)}, which {action} needs", instead=_gain(run))
    if run.word == "restarting":
        return Offer(action, why_not="it waits for its next attempt", instead=way_on(run))
    if run.guard_state == "stopping":
        return Offer(action, why_not="it is stopping", instead=f"albor guard status {run.id}")
    is_ours = run.kind == "train"
    if action == "checkpoint":
        why = (
            ""
            if is_ours
            else "its guard cannot ask any other program than `albor train` for checkpoints"
        )
        return Offer(
            action,
            does="writes a checkpoint after its step",
            why_not=why,
            instead="" if is_ours else f"albor guard status {run.id}",
            order=action,
        )
    is_paused = run.word == "paused"
    if action == "pause":
        does = "finishes its step and waits" if is_ours else "is frozen between two instructions"
        why = "it is paused already" if is_paused else ""
        instead = f"albor guard resume {run.id}" if is_paused else ""
        does = f"{does}; memory and position are kept"
    else:
        does = "continues from where it was paused"
        why = "" if is_paused else f"it is {run.word}, not paused"
        instead = "" if is_paused else f"albor guard status {run.id}"
    return Offer(action, does=does, why_not=why, instead=instead, order=action)


def _stop(run: Subject, sent: int) -> Offer:
    if not run.is_active:
        return Offer("stop", why_not=standing(run.word), instead=way_on(run))
    if run.guard is not None:
        return _stop_by_guard(run)
    if run.program is None:
        where = f"on {run.host}: " if run.is_elsewhere else ""
        why = f"it runs on {run.host}" if where else "no file records its process"
        return Offer("stop", why_not=why, instead=f"{where}albor guard stop {run.id}")
    if run.program == 0:
        why = "its process is not visible from here (another host or container)"
        return Offer("stop", why_not=why, instead=f"there: albor guard stop {run.id}")
    name = STOP_SIGNALS[min(sent, len(STOP_SIGNALS) - 1)]
    last = STOP_SIGNALS[min(sent, len(STOP_SIGNALS)) - 1] if sent else ""
    before = f"was sent SIG{last} and has not ended: it " if last else ""
    return Offer("stop", does=f"{before}{_signalled(run, name)}", signal=name)


def _signalled(run: Subject, name: str) -> str:
    gets = f"gets SIG{name} (process {run.program})"
    if name == "KILL":
        return f"{gets}, which ends it at once: unsaved work is lost"
    if name == "INT":
        return f"{gets}, as Ctrl-C would send"
    if run.kind == "train":
        return f"{gets}: it finishes its step, writes a checkpoint and ends. Resuming is possible"
    return f"{gets}, which ends a program that does not handle it; asked again it gets SIGINT"


def _stop_by_guard(run: Subject) -> Offer:
    if run.guard_state == "stopping":
        does = (
            "was asked to stop and has not ended: it is killed now, with all that it started;"
            " unsaved work is lost"
        )
        return Offer("stop", does=does, order="stop_now")
    if run.word == "restarting":
        does = "waits for its next attempt, which is then not made"
    elif run.kind == "train":
        does = "finishes its step, writes a checkpoint and ends. Resuming is possible"
    else:
        does = "gets SIGTERM from its guard, and SIGKILL if it has not ended in time"
    return Offer("stop", does=does, order="stop")


def _retry(run: Subject) -> Offer:
    if run.word == "completed" and run.kind != "imported":
        return Offer("retry", why_not="it is complete", instead=f"albor runs show {run.id}")
    if run.word == "restarting" and run.guard is not None:
        return Offer("retry", does="starts its next attempt now", order="retry_now")
    if run.kind not in ("train", "guard"):
        return _no_retry(run)
    if run.word == "unknown":
        there = f"on {run.host}: albor guard status {run.id}"
        return Offer("retry", why_not=standing(run.word), instead=there)
    if run.is_active and (run.guard is not None or run.program is None):
        return Offer("retry", why_not=f"it is {run.word}", instead=f"albor guard status {run.id}")
    if not run.is_launched_here:
        return Offer("retry", why_not=NOT_LAUNCHED_HERE, instead=_anew(run))
    if run.is_active:
        return Offer("retry", does="continues as it is, under a new guard")
    if run.kind == "train":
        return Offer("retry", does="continues from its newest checkpoint, under a new guard")
    if has_secret(run.command):
        why = "its command line held a secret, which is not kept"
        return Offer("retry", why_not=why, instead=_RERUN)
    words = shlex.join(run.command)
    return Offer("retry", does=f"runs its command again as a new attempt: {words or 'as it was'}")


def _anew(run: Subject) -> str:
    """The command by which the user says in words of their own what is started."""
    if run.kind == "train":
        return resumed_by_config(run.path)
    return _RERUN


def _no_retry(run: Subject) -> Offer:
    if run.is_active:
        why = f"it is {run.word}"
    elif run.kind == "imported":
        why = "it was imported: its program is not known here"
    else:
        why = "it was tracked by its own program, which has to be started again"
    return Offer("retry", why_not=why, instead=f"albor runs show {run.id}")


def _no_guard(run: Subject) -> str:
    return "its guard is gone" if run.kind in ("train", "guard") else "it has no guard"


def _gain(run: Subject) -> str:
    """The command that gives a live run a guard, or another that works."""
    if run.kind in ("train", "guard"):
        return way_on(run)
    return f"albor guard stop {run.id}"


def has_secret(command: Sequence[str]) -> bool:
    """Whether words of a command line were left out where it is kept."""
    return any(MARK in word for word in command)


def has_guard_gone(view: RunView) -> bool:
    """Whether a run at work had a guard, and has it no more."""
    had_one = view.guard is not None and view.kind in ("train", "guard")
    is_seen = view.trainer_pid is not None  # by its lock: that of another host says nothing
    return view.is_active and view.guard_pid is None and had_one and is_seen


def subject_of_view(view: RunView, origin: Mapping[str, Any] | None = None) -> Subject:
    """A run as a screen knows it. Without its `origin_of`, reads that from files."""
    return Subject(
        id=view.id,
        kind=view.kind,
        word=view.status,
        program=view.trainer_pid,
        guard=view.guard_pid,
        guard_state=str((view.guard or {}).get("state") or ""),
        host=view.host,
        command=view.command,
        **(origin_of(view.id, view.path) if origin is None else origin),
    )


def origin_of(run_id: str, path: str) -> dict[str, Any]:
    """Facts on disk about a run's origin, as fields of its Subject. Reads files."""
    return _origin(placed(run_id, path) if path else None)


def _origin(run: RunDir | None) -> dict[str, Any]:
    if run is None:
        return {}
    copied_from = pulled_from(run)
    is_ours = bool(copied_from) or is_launched_here(run)
    return {"path": str(run.path), "pulled_from": copied_from, "is_launched_here": is_ours}


def subject_of_run(run: RunDir, status: RunStatus | None = None) -> Subject:
    """A run as its folder and its locks tell of it now. Reads files, and is loaded with them."""
    from albor_core.feed.run.status import run_status  # noqa: PLC0415
    from albor_core.run.values.lenient import sequence  # noqa: PLC0415

    found = status or run_status(run)
    about = read_json(run.run_json) or {}
    guard = read_guard(run) or {}
    return Subject(
        id=run.id,
        kind=str(about.get("kind") or "train"),
        word=found.word,
        program=found.trainer_pid,
        guard=found.guard_pid,
        guard_state=str(guard.get("state") or ""),
        host=str(about.get("host") or ""),
        command=tuple(map(str, sequence(about, "argv"))),
        **_origin(run),
    )
