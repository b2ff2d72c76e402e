"""What a run tells the world: lines of its journal, and the live state file.

The loop calls; nothing here decides. The state file is replaced at most four times a second, and
at least once a second while steps go on, whatever the log interval: its `seq` is the heartbeat.
"""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.bricks.coverage import COVERAGE_KEY
from albor_core.andon.bricks.names import BRICKS, brick_key
from albor_core.andon.health.eta import KalmanEta
from albor_core.andon.severity import CALM, worst
from albor_core.config.config import Config
from albor_core.run.headlines import LIVE, RECORDED
from albor_core.run.journal import Journal
from albor_core.run.state import StateWriter
from albor_core.run.values.flatten import flatten
from albor_core.train.observe.console import EchoingJournal, StepConsole
from albor_core.train.observe.figures import LOSS_BETA, Ema, Histories
from albor_core.train.observe.sampler import Machine
from albor_core.train.process.attempt import Attempt

MIN_GAP_S = 0.25
HEARTBEAT_S = 1.0
_SAID_S = 0.05  # parts of a start that are shorter are in the journal alone
_VALIDATED = tuple((one.state, one.key) for one in LIVE if one.key.startswith("val/"))
"""Fields of the state file and the figures of a validation that they show."""
NOT_VALIDATED: Mapping[str, None] = dict.fromkeys((*(one for one, _ in _VALIDATED), "val_step"))
"""These fields before the first validation."""
_PASSING = ("training", "checkpointing")
"""Phases of a loop at work, which does not wait for the disk."""


class Reporter:
    """Journal and live state of one attempt. Belongs to the main thread."""

    def __init__(
        self, attempt: Attempt, config: Config, state: StateWriter, *, num_steps: int
    ) -> None:
        self.console = StepConsole(num_steps)
        self.journal: Journal = EchoingJournal(
            attempt.run.journal, attempt=attempt.number, console=self.console
        )
        self.state = state
        self.config, self.num_steps = config, num_steps
        self.loss_ema, self.eta = Ema(LOSS_BETA), KalmanEta()
        self.histories = Histories(("step", *(one.name for one in RECORDED)))
        self.elapsed_before = float(state.fields.get("elapsed_seconds") or 0.0)
        self._began = time.monotonic()
        self._published = -math.inf
        self.share = 0.0
        """Of the run that is done, 0 to 1."""
        self._severity = CALM
        self._sequences = 0
        self._left = math.inf
        self._counted = (0, 0)  # sequences, and the tokens until then: they may have been others
        state.fields.update(self._static(attempt))

    def _static(self, attempt: Attempt) -> dict[str, Any]:
        """Fields that are known from the start; the rest begin as unknown."""
        unknown = dict.fromkeys(
            (
                *(one.state for one in LIVE),
                *("val_step", "eta_seconds", "eta_low_seconds", "eta_high_seconds"),
                *("gpu", "system", "bricks_ms", "brick_coverage", "loss_text"),
            )
        )
        return {
            **unknown,
            "global_step": 0,
            "max_steps": self.num_steps,
            "progress_percent": 0.0,
            "tokens": 0,
            "elapsed_seconds": 0.0,
            "brick_budgets_ms": {},
            "brick_learned_ms": {},
            "health": {},
            "checkpoint": {"last": None, "best": None, "in_flight": False, "failures": 0},
            "guards": {"nan_skipped": 0, "zclip": None, "rollbacks": 0},
            "andon": {"severity": CALM, "last_alert": None},
            "journal": {"pending": 0, "dropped": 0, "error": None},
            "optimizer_name": self.config.optimizer.name,
            "batch_size": self.config.data.batch_size,
            "model_path": str(self.config.model.path),
            "checkpoint_path": str(attempt.run.checkpoints),
            "executable_path": sys.executable,
        }

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of all attempts of the run."""
        return self.elapsed_before + time.monotonic() - self._began

    # -- live state ----------------------------------------------------------------------------

    def phase(self, name: str, *, limit_s: float | None = None) -> None:
        """Enter a phase, unless we are in it; always published."""
        if name != self.state.current_phase:
            self._refresh()
            self.state.phase(name, limit_s=limit_s, waits=name not in _PASSING)
            self._published = time.monotonic()

    def at_step(
        self, step: int, *, last: int, sequences: int, left: float, share: float, epoch: float
    ) -> None:
        """The loop got this far, to `share` of the run, with `left` steps to go as the config
        counts them; `beat` tells, once what is known of the step is known.
        """
        self._sequences, self._left = sequences, left
        self.num_steps = self.console.num_steps = last
        fields, self.share = self.state.fields, share
        fields["global_step"], fields["tokens"] = step, self.tokens
        fields["epoch"] = round(epoch, 4)
        fields["max_steps"], fields["progress_percent"] = last, round(100 * share, 2)

    def beat(self, *, gap_s: float | None = None) -> None:
        """Publish if the last time is `gap_s` (HEARTBEAT_S) ago; the disk is not waited for."""
        gap_s = HEARTBEAT_S if gap_s is None else gap_s
        if time.monotonic() - self._published >= gap_s:
            self._refresh()
            self.state.publish(waits=False)
            self._published = time.monotonic()

    def keep_alive(self) -> None:
        """The sign of life of a paused loop."""
        if time.monotonic() - self._published >= HEARTBEAT_S:
            self._refresh()
            self.state.keep_alive()
            self._published = time.monotonic()

    def _refresh(self) -> None:
        left = self.eta.left(self._left)
        if left is not None:
            names = ("eta_seconds", "eta_low_seconds", "eta_high_seconds")
            rounded = (round(seconds, 1) for seconds in left)
            self.state.fields |= zip(names, rounded, strict=True)
        self.state.fields["elapsed_seconds"] = round(self.elapsed_s, 1)
        self.state.fields["journal"] = {
            "pending": self.journal.pending,
            "dropped": self.journal.dropped,
            "error": self.journal.error,
        }

    # -- journal -------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Tokens trained on so far: the x-axis of comparisons."""
        since, before = self._counted
        return before + (self._sequences - since) * self.config.data.seq_len

    def interval(
        self,
        step: int,
        values: Mapping[str, float],
        *,
        bricks_ms: Mapping[str, float],
        machine: Machine | None,
        health: Mapping[str, str],
        budgets: Sequence[Mapping[str, Any]],
    ) -> None:
        """Journal one log interval and show it; `health` as `HealthWatch.words`, `budgets` as
        `RunBudgets.fields`.
        """
        extra = machine.metrics() if machine is not None else {}
        bricks = {brick_key(name): round(ms, 4) for name, ms in bricks_ms.items()}
        self.journal.metrics(step, {**values, **bricks, **extra})
        self.console.interval(step, values)
        loss = values["train/loss"]
        self.histories.add(step, *(values[one.key] for one in RECORDED))
        columns = self.histories.columns()
        self.state.fields |= {
            **{one.state: values[one.key] for one in LIVE if one.key in values},
            "loss_text": None if math.isfinite(loss) else str(loss),  # JSON has no such number
            "loss_ema": self.loss_ema.value,
            "bricks_ms": {name: round(ms, 3) for name, ms in bricks_ms.items()},
            "brick_coverage": values.get(COVERAGE_KEY),
            "history_steps": columns["step"],
            **{one.history: columns[one.name] for one in RECORDED},
            "health": dict(health),
            "budgets": list(budgets),
            **(machine.state() if machine is not None else {}),
        }
        self.beat(gap_s=MIN_GAP_S)

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        self.journal.metrics(step, values)
        words = [f"loss {values['val/loss']:.4f}"]
        words += [f"ppl {values['val/ppl']:.2f}"] if "val/ppl" in values else []
        words += [f"bpb {values['val/bpb']:.4f}"] if "val/bpb" in values else []
        self.console.print_line(step, f"validation  {'  '.join(words)}")
        self.state.fields |= {one: values.get(key) for one, key in _VALIDATED} | {"val_step": step}

    def first_step(self, step: int, seconds: Mapping[str, float]) -> None:
        """What the start of this attempt took, part by part, from the process to this step."""
        total = sum(seconds.values())
        data = {f"{name}_s": round(one, 2) for name, one in seconds.items()}
        self.journal.append(
            "e",
            step=step,
            name="run.first_step",
            severity=CALM,
            data={"total_s": round(total, 2), **data},
        )
        parts = (f"{name} {one:.1f}" for name, one in seconds.items() if one >= _SAID_S)
        self.console.print_line(step, f"first step after {total:.1f} s: {', '.join(parts)}")

    def alert(self, alert: Alert) -> None:
        """An alert as an event and as the severity of the run."""
        data = alert.to_json()
        self.journal.append(
            "e", step=alert.step, name=alert.event, severity=alert.severity, data=data
        )
        if alert.state == "cleared":
            self.console.print_line(alert.step, f"{alert.rule}: over")
            return
        self.console.print_line(alert.step, f"[{alert.severity}] {alert.rule}: {alert.message}")
        self._severity = worst((self._severity, alert.severity))
        self.state.fields["andon"] = {"severity": self._severity, "last_alert": data}

    def show_budgets(
        self, budgets_ms: Mapping[str, float], learned_ms: Mapping[str, float] | None = None
    ) -> None:
        """What each brick may take; one that is not there has no budget. `learned_ms`: what those
        without one may take by what they took at first.
        """
        learned = {name: round(ms, 3) for name, ms in (learned_ms or {}).items()}
        self.state.fields["brick_learned_ms"] = learned
        names = (*BRICKS, *(name for name in budgets_ms if name not in BRICKS))
        self.state.fields["brick_budgets_ms"] = {name: budgets_ms.get(name) for name in names}

    def calm(self) -> None:
        """A person resumed the run: what was wrong is dealt with."""
        self._severity = CALM
        self.state.fields["andon"] = {**self.state.fields["andon"], "severity": CALM}

    def params(self, resolved: Mapping[str, Any]) -> None:
        """Every field of the config, one line each."""
        for key, value in flatten(resolved).items():
            self.journal.append("p", key=key, value=value)

    # -- what of it goes into a checkpoint -----------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "loss_ema": self.loss_ema.to_json(),
            "histories": self.histories.to_json(),
            "elapsed_s": self.elapsed_s,
            **{one: self.state.fields[one] for one, _ in _VALIDATED},
            "val_step": self.state.fields["val_step"],
        }

    def load(self, saved: Mapping[str, Any], *, sequences: int, tokens: int) -> None:
        """What `to_json` gave after that many of both."""
        self._counted, self._sequences = (sequences, tokens), sequences
        self.loss_ema.load(saved["loss_ema"])
        self.histories.load(saved["histories"])
        passed = float(saved["elapsed_s"]) - self.elapsed_s
        self.elapsed_before += max(0.0, passed)  # a rollback gives no time back
        self.state.fields |= {one: saved.get(one) for one, _ in _VALIDATED}
        self.state.fields["val_step"] = saved.get("val_step")

    def forget(self) -> None:
        """Reset the figures to step 0, except for elapsed time."""
        self._counted, self._sequences = (0, 0), 0
        self.loss_ema.load([0.0, 0.0])
        self.histories = Histories(self.histories.names)
        self.state.fields |= NOT_VALIDATED

    def forget_validation(self) -> None:
        """What was found on other data stands for nothing."""
        self.state.fields |= {one: None for one, _ in _VALIDATED}


def versions(torch_version: str) -> dict[str, str]:
    """What the numbers of this attempt depend on."""
    return {"python": platform.python_version(), "torch": torch_version}
