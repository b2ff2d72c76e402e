"""What a run tells the world: lines of its journal, and the live state file.

The loop calls; nothing here decides. The state file is replaced at most four times a second, and
at least once a second while steps go on, whatever the log interval: its `seq` is the heartbeat.
"""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Mapping
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.bricks import BRICKS
from albor_core.config.load import Config
from albor_core.run.headlines import LIVE, RECORDED
from albor_core.run.journal import Journal
from albor_core.run.state import StateWriter
from albor_core.run.values.flatten import flatten
from albor_core.train.observe.console import Console, EchoingJournal
from albor_core.train.observe.figures import LOSS_BETA, STEP_BETA, Ema, Histories
from albor_core.train.observe.sampler import Machine
from albor_core.train.process.attempt import Attempt

MIN_GAP_S = 0.25
HEARTBEAT_S = 1.0
_PASSING = ("training", "checkpointing")
"""Phases of a loop at work, which does not wait for the disk."""
_COLOURS = ("green", "info", "yellow", "red")


class Reporter:
    """Journal and live state of one life. Belongs to the main thread."""

    def __init__(
        self, life: Attempt, config: Config, state: StateWriter, *, num_steps: int
    ) -> None:
        self.console = Console(num_steps)
        self.journal: Journal = EchoingJournal(
            life.run.journal, attempt=life.attempt, console=self.console
        )
        self.state = state
        self.config, self.num_steps = config, num_steps
        self.loss_ema, self.step_s = Ema(LOSS_BETA), Ema(STEP_BETA)
        self.histories = Histories(("step", *(one.name for one in RECORDED)))
        self.elapsed_before = float(state.fields.get("elapsed_seconds") or 0.0)
        self._began = time.monotonic()
        self._published = -math.inf
        self._severity = "green"
        self._tokens_per_step = (
            config.data.batch_size * config.data.seq_len * config.training.gradient_accumulation
        )
        self._counted = (0, 0)  # a step, and the tokens until then: steps may have been smaller
        state.fields.update(self._static(life))

    def _static(self, life: Attempt) -> dict[str, Any]:
        """Fields that are known from the start; the rest begin as unknown."""
        unknown = dict.fromkeys(
            (
                *(one.state for one in LIVE),
                *("val_step", "eta_seconds", "gpu", "system", "bricks_ms", "loss_text"),
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
            "checkpoint": {"last": None, "best": None, "in_flight": False, "failures": 0},
            "guards": {"nan_skipped": 0, "zclip": None, "rollbacks": 0},
            "andon": {"severity": "green", "last_alert": None},
            "journal": {"pending": 0, "dropped": 0, "error": None},
            "optimizer_name": self.config.optimizer.name,
            "batch_size": self.config.data.batch_size,
            "model_path": str(self.config.model.path),
            "checkpoint_path": str(life.run.checkpoints),
            "executable_path": sys.executable,
        }

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of all lives of the run."""
        return self.elapsed_before + time.monotonic() - self._began

    # -- live state ----------------------------------------------------------------------------

    def phase(self, name: str, *, limit_s: float | None = None) -> None:
        """Enter a phase, unless we are in it; always published."""
        if name != self.state.current_phase:
            self._refresh()
            self.state.phase(name, limit_s=limit_s, waits=name not in _PASSING)
            self._published = time.monotonic()

    def at_step(self, step: int, *, last: int, share: float, epoch: float) -> None:
        """The loop got this far, to `share` of the run; `beat` tells, once what is known of the
        step is known.
        """
        self.num_steps = self.console.num_steps = last
        fields = self.state.fields
        fields["global_step"], fields["tokens"] = step, self.tokens(step)
        fields["epoch"] = round(epoch, 4)
        fields["max_steps"], fields["progress_percent"] = last, round(100 * share, 2)
        if self.step_s.value is not None:
            fields["eta_seconds"] = round((self.num_steps - step) * self.step_s.value, 1)

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
        self.state.fields["elapsed_seconds"] = round(self.elapsed_s, 1)
        self.state.fields["journal"] = {
            "pending": self.journal.pending,
            "dropped": self.journal.dropped,
            "error": self.journal.error,
        }

    # -- journal -------------------------------------------------------------------------------

    def tokens(self, step: int) -> int:
        """Tokens trained on after `step` steps: the x-axis of comparisons."""
        since, before = self._counted
        return before + (step - since) * self._tokens_per_step

    def interval(
        self,
        step: int,
        values: Mapping[str, float],
        *,
        bricks_ms: Mapping[str, float],
        machine: Machine | None,
    ) -> None:
        """Journal one log interval and show it."""
        extra = machine.metrics() if machine is not None else {}
        bricks = {f"brick/{name}_ms": round(ms, 4) for name, ms in bricks_ms.items()}
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
            "history_steps": columns["step"],
            **{one.history: columns[one.name] for one in RECORDED},
            **(machine.state() if machine is not None else {}),
        }
        self.beat(gap_s=MIN_GAP_S)

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        self.journal.metrics(step, values)
        self.console.say(
            step, f"validation  loss {values['val/loss']:.4f}  ppl {values['val/ppl']:.2f}"
        )
        told = {"val_loss": values["val/loss"], "val_ppl": values["val/ppl"], "val_step": step}
        self.state.fields |= told

    def alert(self, alert: Alert) -> None:
        """An alert as an event and as the colour of the run."""
        data = alert.to_json()
        self.journal.append(
            "e", step=alert.step, name="andon.alert", severity=alert.severity, data=data
        )
        self.console.say(alert.step, f"[{alert.severity}] {alert.rule}: {alert.message}")
        self._severity = max(self._severity, alert.severity, key=_COLOURS.index)
        self.state.fields["andon"] = {"severity": self._severity, "last_alert": data}

    def show_budgets(self, budgets_ms: Mapping[str, float]) -> None:
        """What each brick of a step may take; one that is not there has no budget."""
        self.state.fields["brick_budgets_ms"] = {name: budgets_ms.get(name) for name in BRICKS}

    def calm(self) -> None:
        """A person resumed the run: what was red is dealt with."""
        self._severity = "green"
        self.state.fields["andon"] = {**self.state.fields["andon"], "severity": "green"}

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
            "val_loss": self.state.fields["val_loss"],
            "val_ppl": self.state.fields["val_ppl"],
            "val_step": self.state.fields["val_step"],
        }

    def load(self, saved: Mapping[str, Any], *, step: int, tokens: int) -> None:
        """What `to_json` gave at `step`, after that many tokens."""
        self._counted = (step, tokens)
        self.loss_ema.load(saved["loss_ema"])
        self.histories.load(saved["histories"])
        passed = float(saved["elapsed_s"]) - self.elapsed_s
        self.elapsed_before += max(0.0, passed)  # a rollback gives no time back
        told = {"val_loss": saved["val_loss"], "val_ppl": saved["val_ppl"]}
        self.state.fields |= {**told, "val_step": saved.get("val_step")}

    def forget(self) -> None:
        """As at step 0; the time that has passed has passed."""
        self._counted = (0, 0)
        self.loss_ema.load([0.0, 0.0])
        self.histories = Histories(self.histories.names)
        self.state.fields |= {"val_loss": None, "val_ppl": None, "val_step": None}


def versions(torch_version: str) -> dict[str, str]:
    """What the numbers of this life depend on."""
    return {"python": platform.python_version(), "torch": torch_version}
