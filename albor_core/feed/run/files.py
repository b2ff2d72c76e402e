"""One run read from its files, cheaply again and again: stat first, read only what changed.

The result is a RunView whose numbers come from training_state.json, of a run that is over also from
the end of its journal, whose word comes from the locks and whose names come from run.json. Every
value is taken for its type: a field that is not what it
should be is unknown, since any program may have written the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from albor_core.andon.bricks.names import brick_name, budgets_of, fit_budgets
from albor_core.andon.severity import severity_of
from albor_core.feed.run.status import NO_NEWS_S, Evidence, judge, lost_there
from albor_core.feed.run.terminal import terminal_of
from albor_core.feed.run.watched import watching
from albor_core.feed.view.newest import (
    NewestFigures,
    figures_of_journal,
    figures_of_state,
    is_past_end,
    metrics_of_state,
    newest,
    share_done,
    whole_tokens,
)
from albor_core.feed.view.run_view import (
    LIVE_WORDS,
    BrickView,
    BudgetView,
    CheckpointView,
    RunStatus,
    RunView,
)
from albor_core.run.files.pulled_file import read_pulled
from albor_core.run.guard_state import GUARD_ENDS
from albor_core.run.headlines import LIVE, RECORDED
from albor_core.run.rundir import RunDir, load_json
from albor_core.run.state import SCHEMA, Freshness, load_state
from albor_core.run.values.clean import clean
from albor_core.run.values.lenient import (
    NOTHING,
    Document,
    finite,
    history,
    integer,
    mapping,
    number,
    sequence,
    text,
)
from albor_core.run.values.main_metrics import main_metrics
from albor_core.telemetry.sample import GpuSample, HostSample, gpu_from_json, host_from_json

RUN_SCHEMA = "albor.run/1"
LIVE_S = 15.0  # older news is shown with its age and never as of this moment


def file_mark(path: Path) -> tuple[int, int, int] | None:
    """Another one once a file was replaced or written; None while there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class CachedJson:
    """A JSON file that is read again only when it was replaced or written."""

    def __init__(self, path: Path, load: Callable[[Path], dict[str, Any]] = load_json) -> None:
        self.path = path
        self.flaw = ""  # why a file that is there could not be read
        self._load = load
        self._mark: tuple[int, int, int] | None = None
        self._value: dict[str, Any] | None = None

    def get(self) -> dict[str, Any] | None:
        """The newest document, None if there is none that can be read."""
        mark = file_mark(self.path)
        if mark is None:
            self._mark, self._value, self.flaw = None, None, ""
        elif mark != self._mark:
            self._mark, self._value, self.flaw = mark, *self._read()
        return self._value

    def _read(self) -> tuple[dict[str, Any] | None, str]:
        try:
            return self._load(self.path), ""
        except OSError as error:
            return None, f"{self.path.name} cannot be read: {error.strerror}"
        except ValueError as error:
            return None, f"{self.path.name} {error}"


class RunFiles:
    """The files of one run. Keeps its own clock of silence, so keep the object between polls.

    Not for the process that holds the run's locks: looking at a lock would drop it.
    """

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.metadata = CachedJson(run.run_json)
        self.resolved = CachedJson(run.config_resolved)
        self.state = CachedJson(run.state, load_state)
        self.guard = CachedJson(run.guard_json)
        self.exit = CachedJson(run.exit)
        self.watch = CachedJson(run.watch)
        self.about: Document = NOTHING  # run.json as the last view was built from it
        self.flaw = ""  # what is wrong with it now, since when, and what to do
        self._freshness = Freshness()
        self._built: tuple[tuple[object, ...], RunView] | None = None

    def evidence(self, ended: str | None = None, has_steps: bool = False) -> Evidence:
        """The evidence for the status. Locks are read between two reads of the state."""
        state = self.state.get()
        locks = self.run.liveness()
        if locks.trainer is None:
            state = self.state.get()  # its last words may have come after the first look
        pulled = read_pulled(self.run)
        return Evidence(
            locks=locks,
            state=state,
            guard=self.guard.get(),
            exit=self.exit.get(),
            age_s=self._freshness.age_s(state),
            created=finite(self.about, "created"),
            host=text(self.about, "host"),
            ended=ended,
            state_flaw=self.state.flaw or _foreign_state(state or NOTHING),
            has_steps=has_steps,
            pulled=pulled,
            lost_there=lost_there(pulled, self.about),
        )

    def view(self, ended: str | None = None, has_steps: bool = False) -> RunView | None:
        """The run as its files tell it; None if this is not (or no longer) a run directory.

        `ended` and `has_steps` are what a store knows of it: its end, and whether it had steps.
        """
        self.flaw = self._look_at_about()
        if self.flaw and not self._is_run():
            self.flaw = ""  # the caller says what is left of it
            return None
        evidence = self.evidence(ended, has_steps)
        status = judge(evidence)
        resolved, watch = self.resolved.get(), self.watch.get()
        others = (self.state.flaw, self.guard.flaw, self.exit.flaw, self.resolved.flaw)
        flaws = tuple(flaw for flaw in (self.flaw, *others) if flaw)
        documents = (self.about, resolved, evidence.state, evidence.guard, watch)
        is_over = status.word not in LIVE_WORDS
        written = _size_of(self.run.journal) if is_over else None
        mark = (*map(id, documents), id(evidence.exit), status, flaws, written)
        if self._built is not None and self._built[0] == mark:  # only time went by
            return _aged(self._built[1], evidence, status)
        told = figures_of_journal(self.run.journal) if is_over else NewestFigures()
        view = build_view(
            self.run, self.about, resolved or NOTHING, evidence, status, flaws, told, watch
        )
        self._built = (mark, view)
        return view

    def _look_at_about(self) -> str:
        """Read run.json into `about`; what is wrong with it, and then `about` is as it was."""
        about = self.metadata.get()
        if about is not None:
            self.about = about
            return _foreign(about, "run.json", RUN_SCHEMA)
        what = self.metadata.flaw or "run.json is missing"
        if self.flaw.startswith(f"{what} since "):
            return self.flaw
        return f"{what} since {time.strftime('%H:%M')}; put it back from a copy"

    def _is_run(self) -> bool:
        """Whether a folder without a readable run.json is a run all the same."""
        if not self.run.path.is_dir():
            return False
        is_known = self.about is not NOTHING or self.metadata.flaw != ""
        return is_known or self.run.liveness().is_alive


def build_view(
    run: RunDir,
    meta: Document,
    resolved: Document,
    evidence: Evidence,
    status: RunStatus,
    flaws: tuple[str, ...] = (),
    told: NewestFigures = NewestFigures(),  # noqa: B008  frozen
    watch: Document | None = None,
) -> RunView:
    """All documents of a run as one view; `flaws` are of those that could not be read, `told` what
    its journal says, `watch` what its index process makes of it. Pure but for the wall clock.
    """
    state = evidence.state or NOTHING
    alive = status.word in LIVE_WORDS
    now, max_steps = newest(figures_of_state(state), told), _max_steps(state, resolved, meta)
    is_past = is_past_end(now.step, max_steps)
    time_left = NOTHING if is_past else _time_left(status, evidence)
    if evidence.is_starting:
        now = now.without_steps()
    andon, attempt = mapping(state, "andon"), evidence.attempt or None
    watch = watch or NOTHING
    view = RunView(
        **_figures(state, now),
        metrics=main_metrics(metrics_of_state(state)),
        id=run.id,
        name=text(meta, "name") or run.id,
        experiment=text(meta, "experiment"),
        kind=text(meta, "kind") or "train",
        path=str(run.path),
        host=text(meta, "host"),
        created=finite(meta, "created"),
        seed=integer(meta, "seed"),
        git_commit=_commit(meta),
        command=tuple(map(str, sequence(meta, "argv"))),
        terminal=terminal_of(resolved),
        status=status.word,
        detail=_detail(status, flaws, state),
        last_wall=_last_wall(evidence, now, alive),
        phase=_phase(evidence) if alive else None,
        attempt=attempt,
        attempts_total=attempt,
        is_starting=evidence.is_starting,
        step=now.step,
        max_steps=max_steps,
        progress=None if evidence.is_starting else _progress(now.step, max_steps, state),
        val_step=now.val_step,
        eta_s=number(time_left, "eta_seconds"),
        eta_low_s=number(time_left, "eta_low_seconds"),
        eta_high_s=number(time_left, "eta_high_seconds"),
        **_finish(time_left, _end_seen(watch, alive, is_past)),
        elapsed_s=number(state, "elapsed_seconds"),
        severity=severity_of(andon.get("severity")),
        last_alert=_alert_text(andon),
        last_alert_step=integer(mapping(andon, "last_alert"), "step"),
        rules_watching=watching(meta.get("kind"), resolved, watch).total,
        device=text(state, "device") or text(mapping(resolved, "training"), "device"),
        gpu=_gpus(state),
        system=_system(state),
        bricks=_bricks(state, resolved),
        brick_coverage=number(state, "brick_coverage"),
        health=_health(state, watch),
        budgets=_budgets(sequence(state, "budgets") or sequence(watch, "budgets")),
        checkpoint=_checkpoint(mapping(state, "checkpoint")),
        guards=dict(mapping(state, "guards")),
        guard=evidence.guard,
        optimizer=text(state, "optimizer_name"),
        batch_size=integer(state, "batch_size"),
        model_path=text(state, "model_path"),
        trainer_pid=status.trainer_pid,
        guard_pid=status.guard_pid,
        ended_wall=None if alive else _ended_wall(evidence),
        lines_lost=0 if alive else _lines_lost(evidence),
    )
    return _aged(view, evidence, status)


def _phase(evidence: Evidence) -> str | None:
    """The phase that the newest attempt reports; None before its first report."""
    return text(evidence.current_state or NOTHING, "phase") or None


def _health(state: Document, watch: Document) -> dict[str, str]:
    """The health as the trainer describes it, or else its index process."""
    found = mapping(state, "health") or mapping(watch, "words")
    return {title: str(words) for title, words in found.items()}


def _ended_wall(evidence: Evidence) -> float | None:
    return number(evidence.of_newest(evidence.exit) or NOTHING, "wall")


def _lines_lost(evidence: Evidence) -> int:
    """The number of lost lines that the newest attempt reported."""
    words = evidence.exit or NOTHING
    is_old = (integer(words, "attempt") or 0) < (evidence.attempt or 0)
    return 0 if is_old else integer(words, "lines_lost") or 0


def _figures(state: Document, now: NewestFigures) -> dict[str, Any]:
    """The headline figures, of which `now` knows some better than the state file, and what those
    were lately.
    """
    return {
        **{one.name: number(state, one.state) for one in LIVE},
        **whole_tokens(now.fields()),
        **{one.history: history(state, one.history) for one in RECORDED},
    }


def _end_seen(watch: Document, alive: bool, is_past: bool) -> Document:
    """When the index process expects the end of a run at work that has one before it."""
    return mapping(watch, "finish") if alive and not is_past else NOTHING


def _time_left(status: RunStatus, evidence: Evidence) -> Document:
    """The state file, where what it says of the time left is of the present."""
    is_at_work = status.word in ("running", "unguarded") and not evidence.is_starting
    is_heard = is_at_work and status.silent_s is None
    return (evidence.state or NOTHING) if is_heard else NOTHING


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _detail(status: RunStatus, flaws: tuple[str, ...], state: Document) -> str:
    unsaid = (flaw for flaw in (*flaws, _foreign_state(state)) if flaw not in status.detail)
    return "; ".join(part for part in (status.detail, *unsaid) if part)


def _foreign_state(state: Document) -> str:
    return _foreign(state, "its state file", SCHEMA)


def _foreign(document: Document, name: str, ours: str) -> str:
    """A note about a file that another version of Albor wrote."""
    schema = text(document, "schema")
    if schema in ("", ours):
        return ""
    return f"{name} is {clean(schema, limit=40)}, of another version: upgrade albor"


def _aged(view: RunView, evidence: Evidence, status: RunStatus) -> RunView:
    """The same view a moment later: how old its news is, and whether it still counts as live."""
    state = evidence.state or NOTHING
    is_active = status.word in LIVE_WORDS
    age = _age(evidence, view.last_wall, is_active)
    is_ours = evidence.current_state is not None and not _foreign_state(state)
    is_live = is_active and status.word != "stalled" and is_ours and _is_fresh(age, state)
    return replace(
        view,
        age_s=age,
        is_live=is_live,
        is_silent=status.silent_s is not None,
        elapsed_s=_elapsed(view, evidence, age if is_active and is_ours and not is_live else None),
    )


def _elapsed(view: RunView, evidence: Evidence, silent_s: float | None) -> float | None:
    """How long it has worked: the time goes on for a program that does not say so. Of one that says
    nothing at all, the time since its run was made, until its guard saw it end.
    """
    said = number(evidence.state or NOTHING, "elapsed_seconds")
    if said is not None:
        return said if silent_s is None else said + silent_s
    if evidence.state or not evidence.guard or view.created is None:
        return None
    until = time.time() if view.status in LIVE_WORDS else view.last_wall
    return None if until is None else max(0.0, until - view.created)


def _age(evidence: Evidence, last_wall: float | None, alive: bool) -> float | None:
    """The age of the newest record, by our own clock while the run is active, by the wall clock for
    old ones."""
    if alive and evidence.age_s is not None:
        return evidence.age_s
    return evidence.age_s if last_wall is None else max(0.0, time.time() - last_wall)


def _last_wall(evidence: Evidence, now: NewestFigures, alive: bool) -> float | None:
    """When it last gave news; without a state file a run that has ended did so with its end, of
    which the guard knows that of a program without an exit.json.
    """
    if now.wall is not None or alive:
        return now.wall
    said = finite(evidence.of_newest(evidence.exit) or NOTHING, "wall")
    is_told = said is not None or text(evidence.guard or NOTHING, "state") not in GUARD_ENDS
    return said if is_told else finite(evidence.guard or NOTHING, "wall")


def _is_fresh(age: float | None, state: Document) -> bool:
    """Whether news of this age is fresh: up to LIVE_S, or three slow steps, but never past
    NO_NEWS_S.
    """
    slow = (number(state, "step_ms") or 0.0) / 1000 * 3
    return age is not None and age <= min(NO_NEWS_S, max(LIVE_S, slow))


def _max_steps(state: Document, resolved: Document, meta: Document) -> int | None:
    sources = (state, mapping(resolved, "training"), meta)
    return next((n for source in sources if (n := integer(source, "max_steps")) is not None), None)


def _progress(step: int | None, max_steps: int | None, state: Document) -> float | None:
    if is_past_end(step, max_steps):
        return None  # the program counts on, and 100 % would be said of no end
    percent = number(state, "progress_percent")
    share = None if percent is None else min(1.0, max(0.0, percent / 100))
    return share if (done := share_done(step, max_steps)) is None else done


def _commit(meta: Document) -> str:
    git = meta.get("git")
    return text(meta, "git_commit") or (text(git, "commit") if isinstance(git, Mapping) else "")


def _alert_text(andon: Document) -> str:
    last = andon.get("last_alert")
    if isinstance(last, Mapping):
        return text(last, "message") or text(last, "id")
    return last if isinstance(last, str) else ""


def _gpus(state: Document) -> tuple[GpuSample, ...]:
    told = enumerate(sequence(state, "gpu"))
    return tuple(gpu_from_json(entry, at) for at, entry in told if isinstance(entry, dict))


def _system(state: Document) -> HostSample | None:
    """The host's figures: the trainer puts them where the host's name is at first."""
    found = mapping(state, "system") or mapping(state, "host")
    return host_from_json(found) if found else None


def _bricks(state: Document, resolved: Document) -> tuple[BrickView, ...]:
    """The bricks of the live state, with the budgets it has, or else the config's."""
    planned = budgets_of(mapping(mapping(resolved, "monitoring"), "bricks"))
    told, learned = mapping(state, "brick_budgets_ms"), mapping(state, "brick_learned_ms")
    measured = mapping(state, "bricks_ms")
    fitted = fit_budgets(planned, {*map(brick_name, measured)})
    budgets = {**fitted, **{brick_name(key): number(told, key) for key in told}}
    return tuple(
        BrickView(
            brick_name(key),
            number(measured, key),
            budgets.get(brick_name(key)),
            number(learned, key),
        )
        for key in measured
    )


def _finish(state: Document, watched: Document) -> dict[str, Any]:
    """The clock time of the end: the trainer's, or what its index process expects."""
    found: dict[str, Any] = {
        "finish_wall": finite(watched, "wall"),
        "finish_low_wall": finite(watched, "wall_low"),
        "finish_high_wall": finite(watched, "wall_high"),
    }
    since = finite(state, "wall")
    names = ("eta_seconds", "eta_low_seconds", "eta_high_seconds")
    for field, name in zip(found, names, strict=True):
        if since is not None and (left := finite(state, name)) is not None:
            found[field] = since + left
    return found


def _budgets(told: Sequence[Any]) -> tuple[BudgetView, ...]:
    return tuple(
        BudgetView(
            text(one, "amount"),
            text(one, "unit"),
            finite(one, "used"),
            finite(one, "limit"),
            finite(one, "soft"),
            text(one, "action"),
            finite(one, "at_completion"),
            finite(one, "exhausted_wall"),
        )
        for one in told
        if isinstance(one, Mapping)
    )


def _checkpoint(found: Document) -> CheckpointView:
    last, best = mapping(found, "last"), mapping(found, "best")
    return CheckpointView(
        last_step=integer(last, "step"),
        last_path=text(last, "path") or None,
        last_wall=number(last, "wall"),
        best_step=integer(best, "step"),
        best_value=number(best, "value"),
        in_flight=bool(found.get("in_flight")),
        failures=integer(found, "failures") or 0,
    )
