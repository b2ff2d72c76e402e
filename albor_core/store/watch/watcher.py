"""Watches one run that lives, for the loop of its index process, which calls `look` each second.

    lines of the journal -> rules over steps, NaN, silence, health \
    machine's ring, /proc -> rules over the clock, GPUs, disk, memory  -> tell -> act
                          -> figures                                   /

To tell is a line of system.jsonl and whatever `sender` does; to act is to ask the guard. Both
happen once however often the index process is killed: what the rules remember is kept with the byte
of the journal they had read, and what system.jsonl says since then is not said again. A command of
a rule is noted before it runs, so that it never runs twice.

Nothing raises: what goes wrong is a problem in watch.json, said once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.channels.kept_sinks import rules_stamp
from albor_core.andon.health.curve import Curve
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.watch import HealthWatch
from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.files.watch_file import PULSE_S, Watch, write_watch
from albor_core.run.home.registry import is_begun_here
from albor_core.run.liveness import Liveness
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.run.values.directions import is_validation
from albor_core.run.values.lenient import finite_of, real, whole_of
from albor_core.store.watch.built_in import BuiltIn, BuiltInTrouble
from albor_core.store.watch.chosen_metrics import ChosenMetrics
from albor_core.store.watch.live_rules import LiveRules, live_rules, withdrawn
from albor_core.store.watch.machine_figures import (
    machine_series,
    own_gpus,
    program_series,
    rule_figures,
)
from albor_core.store.watch.program_budgets import ProgramBudgets
from albor_core.store.watch.system_file import SystemFile
from albor_core.store.watch.telling import AlertSender, Telling
from albor_core.store.watch.watch_memory import WatchedJournal, WatchMemory
from albor_core.telemetry.host import disk_free, sample_host
from albor_core.telemetry.machine_ring import FRESH_S, MachineSample, newest_sample
from albor_core.telemetry.machine_sampler import MachineSampler
from albor_core.telemetry.program_processes import ProgramProcesses, ProgramSample
from albor_core.telemetry.sample import GpuSample

EACH_S = 1.0
MACHINE_S = 2.0
SAVE_S = 10.0
PROGRAM_S = 5.0
LAST_ALERTS_S = 8.0  # how long the end of a run waits for its last alerts to arrive
_MOST_LINES = 5000  # of one look
_MOST_PROBLEMS = 10


class Watcher:
    """Belongs to the thread of the index process. `run` is known by the id this home gives it."""

    def __init__(
        self,
        run: RunDir,
        *,
        sampler: MachineSampler | None = None,
        sender: AlertSender | None = None,
        rules: LiveRules | None = None,
        earlier: Sequence[Curve] = (),
    ) -> None:
        """`earlier` are losses of earlier runs of the same config."""
        self._run, self._sampler, self._earlier = run, sampler, earlier
        about = run.metadata()
        self._kind = str(about.get("kind") or "")
        launched_here = is_begun_here(run)
        self._chosen = ChosenMetrics(run, about)
        self._created = finite_of(about.get("created")) or time.time()
        self._launched_here = launched_here
        self._stamp = None if rules else rules_stamp()
        self._rules: LiveRules = rules or live_rules(run, self._kind, launched_here=launched_here)
        self._file = SystemFile(run, created=self._created)
        self._telling = Telling(
            run,
            self._file,
            self._rules,
            kind=self._kind,
            launched_here=launched_here,
            sender=sender,
        )
        self._program = ProgramProcesses(spared=(os.getpid(),))
        self._attempt = 1
        self._engine = self._rules.engine(1)
        self._health = HealthWatch(self._facts(1))
        self._budgets = ProgramBudgets(self._monitoring())
        self._built_in = BuiltIn(self._chosen.names)
        self._step = 0
        self._step_wall: float | None = None
        self._journal = WatchedJournal(run)
        self._memory = WatchMemory(run, self._journal)
        self._problems: list[str] = []
        self._newest: ProgramSample | None = None
        self._has_guard = False
        self._machine: MachineSample | None = None
        self._machine_at = self._machine_wall = 0.0
        self._look_at = self._clock_at = self._save_at = self._pulse_at = self._program_at = 0.0
        self._pulsed: tuple[Any, ...] = ()
        self._recall()

    # -- the loop's hook -----------------------------------------------------------------------

    def look(
        self, living: Liveness, *, mono: float | None = None, wall: float | None = None
    ) -> bool:
        """Look at what is new; whether more waits. Called often, does something each EACH_S of
        `mono`. The times are now where they are not given.
        """
        now = time.monotonic() if mono is None else mono
        if now < self._look_at:
            return False
        self._look_at = now + EACH_S
        try:
            return self._look(living, now, time.time() if wall is None else wall)
        except Exception as error:  # whatever a rule or a library does: the run goes on
            self._complain(f"watching: {type(error).__name__}: {error}")
            return False

    def finish(self) -> None:
        """The run is over: tell what its last lines say. Nothing can act any more."""
        try:
            while self._read_lines():
                pass
            self._end(time.time())
            self._telling.finish()
            self._telling.send_news()
            self._telling.close(LAST_ALERTS_S)
            self._pulse(time.time(), time.monotonic())  # whether they arrived
        except Exception as error:
            self._complain(f"watching: {type(error).__name__}: {error}")
        self.close()

    def _end(self, wall: float) -> None:
        """What the last lines say; what was of the machine ends with the run."""
        self._tell_troubles(self._built_in.finish(), wall)
        if self._kind != "train":  # its loop has said it
            self._tell_all(self._health.end(), wall)
        for alert in self._health.open:
            if alert.kind == "machine":
                self._tell(alert, wall, is_over=True)

    def close(self) -> None:
        """This process ends, or has nothing more to watch: keep what is remembered."""
        try:
            self._telling.note_commands()
            self._telling.close(0.0)
            self._file.close()
            self._save()
        except Exception as error:
            self._complain(f"watching: {type(error).__name__}: {error}")

    def _look(self, living: Liveness, now: float, wall: float) -> bool:
        self._has_guard = living.guard is not None
        if self._stamp is not None and (stamp := rules_stamp()) != self._stamp:
            self._stamp = stamp
            self._take_rules(wall)
        more = self._read_lines()
        if not more:
            self._tell_troubles(self._built_in.wait(wall), wall)
        if living.is_alive and now >= self._clock_at:
            self._clock_at = now + MACHINE_S
            self._take_clock(wall, now, living)
        if not more:  # what was over again by the end of the file is told and not acted upon
            self._telling.act(has_guard=self._has_guard)
        self._telling.note_commands()
        self._telling.send_news()
        self._file.tend()
        if now >= self._save_at and not more:  # with what was told, done as well
            self._save_at = now + SAVE_S
            self._save()
        self._pulse(wall, now)
        return more

    def _take_rules(self, wall: float) -> None:
        """rules.yaml was edited: what rules that stay remember stays, and what others told of is
        over.
        """
        rules = live_rules(
            self._run, self._kind, launched_here=self._launched_here, before=self._rules
        )
        was, memory = {rule.id for rule in self._rules.rules}, self._engine.to_json()
        gone = was - {rule.id for rule in rules.rules}
        engine = rules.engine(self._attempt)
        engine.load(memory)
        for alert_rule in tuple(self._telling.open):
            known = self._rules.rule_of(alert_rule)
            if known is not None and known.id in gone:
                self._tell(withdrawn(known, alert_rule, self._attempt, self._step), wall)
        self._rules, self._engine = rules, engine
        self._telling.take_rules(rules)
        self._save_at = 0.0

    # -- lines ---------------------------------------------------------------------------------

    def _read_lines(self) -> bool:
        """Take the next lines of the journal; whether more wait."""
        for count, (end, record) in enumerate(self._journal.lines()):
            if count == _MOST_LINES:
                return True
            self._journal.offset = end
            if record is not None:
                self._take_line(record)
        return False

    def _take_line(self, record: Mapping[str, Any]) -> None:
        attempt = whole_of(record.get("attempt"))
        if attempt is not None and attempt > self._attempt:
            self._begin(attempt)
        step, wall = whole_of(record.get("step")), finite_of(record.get("wall"))
        self._chosen.take(record)
        if record.get("t") == "e" and self._kind == "train" and self._telling.pass_on(record):
            self._save_at = 0.0
        if record.get("t") != "m" or step is None or wall is None:
            return
        values = {
            key: real(value)
            for key, value in record["v"].items()
            if isinstance(value, int | float) and key.isprintable()
        }
        self._step, self._step_wall = step, wall
        self._budgets.take_step(values)
        self._tell_all(self._engine.take_step(step, values, wall), wall)
        of_health = self._health.take_step(step, values, wall)
        if self._kind == "train":  # its loop has said it, and skips steps that are not finite
            values = {key: value for key, value in values.items() if is_validation(key)}
        else:
            self._tell_all(of_health, wall)
        self._built_in.choose(self._chosen.look())
        self._tell_troubles(self._built_in.take_step(values, wall, step), wall)

    def _begin(self, attempt: int) -> None:
        """Another attempt: its alerts have its number; what the rules remember stays. What was
        wrong with the program that ended is over.
        """
        wall = time.time()
        for trouble in self._built_in.end():
            self._tell(trouble.alert(self._attempt, self._step), wall, is_over=True)
        for alert in self._health.open:
            self._tell(alert, wall, is_over=True)
        engine, memory = self._rules.engine(attempt), self._engine.to_json()
        engine.load(memory)
        health = HealthWatch(self._facts(attempt))
        health.load({**self._health.to_json(), "open": []})
        if attempt > self._attempt:
            self._budgets.begin(attempt)
        self._attempt, self._engine, self._health = attempt, engine, health
        self._file.attempt = attempt
        self._built_in = BuiltIn(self._chosen.names)
        self._step_wall = None

    def _facts(self, attempt: int) -> HealthFacts:
        config = read_json(self._run.config_resolved) or {}
        return HealthFacts.from_config(config, attempt=attempt, earlier=self._earlier)

    def _monitoring(self) -> Mapping[str, Any]:
        found = (read_json(self._run.config_resolved) or {}).get("monitoring")
        return found if isinstance(found, dict) else {}

    # -- the clock and the machine ---------------------------------------------------------------

    def _take_clock(self, wall: float, now: float, living: Liveness) -> None:
        sample = newest_sample(after=self._machine_wall)
        if sample is not None:
            self._machine, self._machine_at, self._machine_wall = sample, now, sample.wall
        newest = self._machine if now - self._machine_at <= FRESH_S else None
        seen = () if newest is None else newest.gpus
        if now >= self._program_at and living.trainer:
            self._program_at = now + PROGRAM_S
            self._newest = self._program.sample(living.trainer, seen)
        self._judge(wall, now, living, newest, seen)

    def _judge(
        self,
        wall: float,
        now: float,
        living: Liveness,
        newest: MachineSample | None,
        seen: Sequence[GpuSample],
    ) -> None:
        """Rules, health, budgets and what is built in, of one look at the machine."""
        host = sample_host(self._run.path) if newest is None else newest.system
        host = replace(host, disk_free_bytes=disk_free(self._run.path))
        own = own_gpus([newest] if newest is not None else [], self._newest)
        figures = rule_figures(own[0].gpus if own else (), host)
        is_paused = self._is_paused()
        if self._step_wall is not None and not is_paused:
            figures["seconds_since_step"] = max(0.0, wall - self._step_wall)
        self._tell_all(self._engine.take_clock(wall, figures), wall)
        held = None if self._newest is None else self._newest.gpus
        self._health.owns(held)
        self._tell_all(self._health.take_clock(wall, own), wall)
        if self._kind != "train":  # its loop counts
            of_budgets = self._budgets.take_clock(
                wall,
                own,
                held or (),
                is_alive=living.trainer is not None and not is_paused,
                step=self._step,
                num_steps=self._health.facts.num_steps,
            )
            self._tell_all(of_budgets, wall)
        troubles = self._built_in.take_clock(
            wall,
            is_paused=is_paused or self._kind == "train",  # the guard's limits are the trainer's
            disk_free=host.disk_free_bytes,
            memory_free=host.memory_available_bytes,
            memory_total=host.memory_total_bytes,
        )
        self._tell_troubles(troubles, wall)
        if self._file.wants_figures(now):
            # the trainer's own journal has the machine, by steps
            of_host = {} if self._kind == "train" else machine_series(seen, host)
            self._file.figures({**of_host, **program_series(self._newest)}, wall)

    def _is_paused(self) -> bool:
        state = read_state(self._run.state)
        if state is not None and state.get("phase") == "paused":
            return True
        guard = read_json(self._run.guard_json) or {}
        return guard.get("state") == "paused" if self._has_guard else False

    def _tell(self, alert: Alert, wall: float, *, is_over: bool = False) -> None:
        if self._telling.tell(alert, wall, is_over=is_over):
            self._save_at = 0.0  # kept at once: the memory is to know of it

    def _tell_all(self, alerts: Iterable[Alert], wall: float) -> None:
        for alert in alerts:
            self._tell(alert, wall)

    def _tell_troubles(self, troubles: Iterable[BuiltInTrouble], wall: float) -> None:
        for trouble in troubles:
            self._tell(trouble.alert(self._attempt, self._step), wall, is_over=trouble.is_over)

    # -- what outlives this process --------------------------------------------------------------

    def _save(self) -> None:
        remembered = {
            "attempt": self._attempt,
            "step": self._step,
            "step_wall": self._step_wall,
            "rules": list(self._rules.texts),
            "engine": self._engine.to_json(),
            "health": self._health.to_json(),
            "built_in": self._built_in.to_json(),
            "budgets": self._budgets.to_json(),
            "open": self._telling.open,
        }
        self._memory.keep(remembered)

    def _recall(self) -> None:
        """Go on where an earlier index process was killed."""
        found, is_same = self._memory.kept()
        if is_same and found.get("rules") == list(self._rules.texts):
            try:
                self._load(found)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                self._complain(f"{self._memory.path}: {error}; beginning anew")
                self._forget()
        elif found:
            self._forget()
        open_alerts = found.get("open") if self._journal.offset else None
        start = (whole_of(found.get("system")) or 0) if self._journal.offset else 0
        known = open_alerts if isinstance(open_alerts, dict) else {}
        with contextlib.suppress(OSError):
            self._telling.recall({str(k): str(v) for k, v in known.items()}, start)

    def _load(self, found: Mapping[str, Any]) -> None:
        self._begin(max(1, whole_of(found.get("attempt")) or 1))
        self._engine.load(found["engine"])
        self._health.load(found["health"])
        self._built_in.load(found["built_in"])
        if found.get("budgets"):
            self._budgets.load(found["budgets"])
        self._step = whole_of(found.get("step")) or 0
        self._step_wall = finite_of(found.get("step_wall"))
        self._memory.resume_at(found)

    def _forget(self) -> None:
        self._attempt, self._journal.offset, self._step, self._step_wall = 1, 0, 0, None
        self._engine = self._rules.engine(1)
        self._health, self._built_in = HealthWatch(self._facts(1)), BuiltIn(self._chosen.names)
        self._budgets = ProgramBudgets(self._monitoring())

    # -- watch.json ------------------------------------------------------------------------------

    def _pulse(self, wall: float, now: float) -> None:
        watch = self._watch(wall)
        fields = replace(watch, wall=0.0, finish=None, budgets=())  # they always move
        if now < self._pulse_at and (fields,) == self._pulsed:
            return
        self._pulse_at = now + PULSE_S
        self._pulsed = (fields,)
        with contextlib.suppress(OSError):
            write_watch(self._run, watch)

    def _watch(self, wall: float) -> Watch:
        problems = (*self._rules.problems, *self._telling.sink_problems(), *self._problems)
        problems += tuple(p for p in (self._file.problem,) if p)
        if self._sampler is not None and self._sampler.problem:
            problems += (self._sampler.problem,)
        texts = self._rules.texts
        return Watch(
            pid=os.getpid(),
            wall=wall,
            by="loop" if self._kind == "train" else "index",
            rules=len(texts),
            rule_texts=texts,
            acts=self._has_guard,
            why_tells_only="" if self._has_guard else "no guard",
            sinks=self._telling.sinks(),
            samples_machine=self._sampler is not None and self._sampler.holds,
            lines_lost=self._file.lost,
            words=self._health.words(),
            finish=None if self._kind == "train" else self._health.finish(),
            budgets=() if self._kind == "train" else tuple(self._budgets.summary()),
            problems=problems,
        )

    def _complain(self, message: str) -> None:
        if message in self._problems:
            return
        self._problems = [*self._problems, message][-_MOST_PROBLEMS:]
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"index: {message}\n")
            sys.stderr.flush()


def is_watchable(run: RunDir) -> bool:
    """Whether rules are evaluated for it: not for what was only read in."""
    return run.metadata().get("kind") != "imported" and not pulled_from(run)
