"""Wait until runs meet a condition, told by the kernel: no look between two events.

A run is looked at by its own files and locks alone, so that neither its index process nor a store
has to live. What ends a wait besides an event is time: the time-out, `no step for`, and of
`attention` what no file tells of (a loop that hangs), looked for each ATTENTION_S.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albor_core.feed.attention.of_run import was_stopped_by_rule
from albor_core.feed.attention.watch import entries_of
from albor_core.feed.run.diagnostic_files import DiagnosticFiles
from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.status import run_status
from albor_core.feed.view.run_view import RunView
from albor_core.feed.waiting.logged import LoggedSteps
from albor_core.feed.waiting.until import ENDED, Until
from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.liveness import Liveness
from albor_core.run.program import notified
from albor_core.run.program.notified import Notifier
from albor_core.run.rundir import FRESH_S, RunDir, read_json
from albor_core.run.status import GROUPS
from albor_core.run.values.lenient import finite, text
from albor_core.store.file.paths import file_system, is_remote

ATTENTION_S = 5.0
BATCH_S = 0.05  # after an event, for those that follow at once: 20 looks a second at most
_GONE = notified.DELETE_SELF | notified.MOVE_SELF
_COMES = notified.CREATE | notified.MOVED_TO | notified.MODIFY | notified.CLOSE_WRITE


@dataclass(frozen=True)
class RunStanding:
    """How a run stands to what is waited for. `outcome`: "met", "ended" (it can be met no more),
    "andon" (the same, since a rule stopped the run), "gone" (so is its folder), or "" for not yet.
    """

    run: str
    outcome: str = ""
    condition: str = ""
    value: float | None = None
    step: int | None = None
    wall: float | None = None
    status: str = ""
    detail: str = ""
    host: str = ""
    is_elsewhere: bool = False
    """Whether another host works on it, or did: no lock of it can be seen, only its files."""


class RunWait:
    """One run and what is waited for. Belongs to one thread; `look` raises nothing."""

    def __init__(self, run: RunDir, untils: Sequence[Until]) -> None:
        self.run, self._untils = run, tuple(untils)
        self._silences = [one for one in untils if one.silence_s is not None]
        self._by_value = [one for one in untils if one.reads_values]
        self._needs_lines = bool(self._silences or self._by_value)
        self._needs_attention = any(one.text == "attention" for one in untils)
        conditions = [one.condition for one in self._by_value if one.condition is not None]
        self._logged = LoggedSteps(run.journal, conditions)
        self._files, self._diagnostics = RunFiles(run), DiagnosticFiles(run)
        self._living = Liveness(None, None)
        about, copied_from = read_json(run.run_json) or {}, pulled_from(run)
        self._created, host = finite(about, "created"), copied_from or text(about, "host")
        self._file_system = file_system(run.path)
        is_elsewhere = bool(copied_from) or host not in ("", os.uname().nodename)
        self.standing = RunStanding(run.id, host=host, is_elsewhere=is_elsewhere)

    def look(self, now: float) -> RunStanding:
        """How it stands at `now`, UTC seconds. Locks come before lines: of a run that has let go
        all lines are there.
        """
        if not self.run.run_json.is_file():
            return self._say("gone", detail="its folder is gone", status="lost")
        self._living = self.run.liveness()
        has_ended = False
        if not self._living.is_alive:
            self.name_status()
            has_ended = self.standing.status in GROUPS["ended"]
        if self._needs_lines:
            self._logged.look()
        for until in self._untils:
            if self._meets(until, now, has_ended=has_ended):
                return self.standing
        if has_ended:
            by_rule = (view := self._view()) is not None and was_stopped_by_rule(view)
            return self._say("andon" if by_rule else "ended")
        return self.standing

    def name_status(self) -> None:
        """Say in `standing` what the run is doing; what met the condition stays beside it."""
        status, known = run_status(self.run), self.standing
        detail = known.detail if known.outcome else status.detail
        self.standing = replace(known, status=status.word, detail=detail)

    def due(self, now: float) -> float | None:
        """Seconds until time alone may change the result; None for never."""
        found = []
        if self._silences:
            since = self._silent_since(now)
            found += [(one.silence_s or 0.0) - (now - since) for one in self._silences]
        if self._needs_attention:
            found.append(ATTENTION_S)
        is_young = self._created is not None and 0 <= now - self._created < FRESH_S
        if self.standing.status == "queued" and is_young and self._created is not None:
            found.append(FRESH_S - (now - self._created) + 0.1)  # then it was never started
        return max(0.0, min(found)) if found else None

    def paths(self) -> dict[Path, int]:
        """The files and folders whose changes may change how it stands, and which changes."""
        run, alive = self.run, self._living.is_alive
        folder = _GONE | (0 if alive else _COMES)
        found = {run.path: folder}
        if alive:
            # to close a lock file is to let go of the lock; an end of the process is told by itself
            found |= dict.fromkeys((run.run_lock, run.guard_lock), notified.CLOSE_WRITE)
            if self._needs_lines or self._needs_attention:
                found[run.journal] = notified.MODIFY
                if not run.journal.exists():
                    found[run.path] |= notified.CREATE
        else:
            found[run.guard] = _COMES
        if self._needs_attention:
            files = (run.system, run.annotations, run.attempts)
            found |= dict.fromkeys(files, notified.MODIFY)
            found[run.guard] = _COMES
        return found

    def pids(self) -> set[int]:
        """Who holds its locks; 0: a process that is not visible here."""
        return {pid for pid in (self._living.trainer, self._living.guard) if pid is not None}

    @property
    def why_blind(self) -> str:
        """Why the kernel of this host cannot tell of what happens to it; "" where it can."""
        kind = self._file_system
        if is_remote(kind) and (self.standing.is_elsewhere or 0 in self.pids()):
            return f"{self.standing.host or 'another host'} writes to it over {kind}"
        return ""

    def _meets(self, until: Until, now: float, *, has_ended: bool) -> bool:
        if until.text == ENDED:
            if has_ended:
                self._say("met", until)
            return has_ended
        if until.reads_values:
            met = self._logged.met.get(self._by_value.index(until))
            if met is not None:
                self._say("met", until, value=met.value, step=met.step, wall=met.wall)
            return met is not None
        if until.silence_s is not None:
            silent = now - self._silent_since(now)
            is_silent = silent >= until.silence_s and not has_ended
            if is_silent:
                self._say("met", until, value=round(silent, 3), wall=now)
            return is_silent
        return self._needs_a_person(until)

    def _needs_a_person(self, until: Until) -> bool:
        entries = [item for item in entries_of(self._view()) if item.is_open]
        if entries:
            first = entries[0]
            detail = f"{first.word}: {first.summary}"
            self._say("met", until, step=first.step, wall=first.since_wall, detail=detail)
        return bool(entries)

    def _silent_since(self, now: float) -> float:
        """When the newest step was logged; without one, when the run was made."""
        known = self._logged.last_wall
        since = known if known is not None else self._created
        return now if since is None else min(since, now)

    def _view(self) -> RunView | None:
        """The run with its diagnostics, by its files alone."""
        view = self._files.view()
        return None if view is None else replace(view, diagnostics=self._diagnostics.read(view))

    def _say(self, outcome: str, until: Until | None = None, **rest: object) -> RunStanding:
        said = {"outcome": outcome, "condition": "" if until is None else until.text, **rest}
        self.standing = replace(self.standing, **said)  # type: ignore[arg-type]
        return self.standing


@dataclass(frozen=True)
class WaitResult:
    """How a wait ended. `outcome` is "met", "timeout" or one of Standing's; `decided` is the run
    that decided it: the last that met it, or the first that no longer can.
    """

    outcome: str
    decided: RunStanding
    standings: tuple[RunStanding, ...]
    wakeups: int
    why_blind: str


def wait_for(
    waits: Sequence[RunWait],
    notifier: Notifier,
    *,
    any_one: bool = False,
    timeout_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    tell_blind: Callable[[str], None] = lambda why: None,
) -> WaitResult:
    """Wait until all of the runs meet it, or `any_one` does, or none can any more.

    `tell_blind` hears why runs have to be looked at each INTERVAL_S, where they have to.
    """
    deadline = math.inf if timeout_s is None else clock() + timeout_s
    told = ""
    while True:
        open_ones = [one for one in waits if not one.standing.outcome]
        for one in open_ones:
            one.look(wall())
        outcome, place = _decided(waits, any_one=any_one)
        if outcome or clock() >= deadline:
            return _result(outcome or "timeout", place, waits, notifier)
        open_ones = [one for one in open_ones if not one.standing.outcome]
        paths = {path: mask for one in open_ones for path, mask in one.paths().items()}
        if notifier.want(paths, {pid for one in open_ones for pid in one.pids()}):
            continue
        notifier.blind = notifier.blind or _why_blind(open_ones)
        if notifier.blind and notifier.blind != told:
            told = notifier.blind
            tell_blind(told)
        limit = min(deadline - clock(), _next_due(open_ones, wall()))
        if notifier.wait(limit if limit < math.inf else None):
            time.sleep(BATCH_S)


def _result(outcome: str, place: int, waits: Sequence[RunWait], notifier: Notifier) -> WaitResult:
    for one in waits:
        if not one.standing.outcome or not one.standing.status:
            one.name_status()
    standings = tuple(one.standing for one in waits)
    wakeups = notifier.wakes + notifier.timeouts
    return WaitResult(outcome, standings[place], standings, wakeups, notifier.blind)


def _why_blind(waits: Sequence[RunWait]) -> str:
    return next((why for one in waits if (why := one.why_blind)), "")


def _next_due(waits: Sequence[RunWait], now: float) -> float:
    """Seconds until time alone may change the result of a wait; infinity for never."""
    return min((due for one in waits if (due := one.due(now)) is not None), default=math.inf)


def _decided(waits: Sequence[RunWait], *, any_one: bool) -> tuple[str, int]:
    """The outcome of all, "" for not yet, and the place of the run that decides or is missing."""
    outcomes = [one.standing.outcome for one in waits]
    met = [place for place, outcome in enumerate(outcomes) if outcome == "met"]
    failed = [place for place, outcome in enumerate(outcomes) if outcome not in ("", "met")]
    if met and (any_one or len(met) == len(waits)):
        return "met", max(met, key=lambda place: waits[place].standing.wall or 0.0)
    if failed and (not any_one or len(failed) == len(waits)):
        return outcomes[failed[0]], failed[0]
    return "", outcomes.index("")
