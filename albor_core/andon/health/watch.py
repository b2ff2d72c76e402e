"""The health of one attempt as a fold: steps and samples in, alerts and descriptions out. Pure.

The loop of `albor train` or the index process feeds it. No alert of health acts: each only
notifies. A trouble raises an alert once when it begins, and clears it once when it ends.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from albor_core.andon.actions import ACTIONS
from albor_core.andon.alert import Alert, alert_from
from albor_core.andon.health import tokens
from albor_core.andon.health.drift import MODERATE, SIGNIFICANT
from albor_core.andon.health.eta import KalmanEta
from albor_core.andon.health.expected_loss import ABOVE, ExpectedLoss
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.gpu import GpuTrouble, GpuWatch, MachineReading
from albor_core.andon.health.gradients import (
    NOISE_KEY,
    SMALL,
    ZCLIP_KEY,
    ClipShare,
    NoiseWatch,
    NormWatch,
)
from albor_core.andon.health.pace import SLOW, SpeedWatch, ZeroWatch
from albor_core.andon.health.plateau import LEAST, PlateauWatch
from albor_core.andon.health.schedule import LR_KEY, ScheduleWatch
from albor_core.run.values.directions import is_reward, is_speed, is_whole_loss
from albor_core.run.values.metrics import MAX_NAMES

LOSS_KEY, TOKENS_KEY, DRIFT_KEY = "train/loss", "train/tokens", "data/token_psi"
SPEED_KEY = "perf/tokens_per_s"
_ZERO = "-is-zero"
_MOST = 8  # speeds of one attempt that are watched, and losses: those that it logged first
_TELLS = next(iter(ACTIONS))  # the weakest
_GAPS = 31
_PAUSE, _LEAST_PAUSE_S = 3.0, 10.0


class _Found(NamedTuple):
    """A trouble that is present now."""

    severity: str
    kind: str
    metric: str
    value: float
    threshold: float
    message: str


class HealthWatch:
    """The health of one attempt of one run."""

    def __init__(self, facts: HealthFacts) -> None:
        self.facts = facts
        warmup = 0.0 if facts.promise is None else facts.promise.warmup_steps
        self._gpus = GpuWatch(facts.own_gpus)
        self._expected = ExpectedLoss(facts.earlier, num_steps=facts.num_steps, warmup=warmup)
        self._plateau, self._norms = PlateauWatch(), NormWatch()
        self._noise, self._clips = NoiseWatch(facts.tokens_per_step), ClipShare()
        self._schedule, self._eta = ScheduleWatch(facts.promise), KalmanEta()
        self._zeros: dict[str, ZeroWatch] = {}
        self._speeds: dict[str, SpeedWatch] = {}
        self._has_rewards = False
        self._names: set[str] = set()  # judged by what they say, MAX_NAMES of them
        self._psi: float | None = None
        self._open: dict[str, Alert] = {}
        self._step, self._wall = 0, math.nan
        self._gaps: deque[float] = deque(maxlen=_GAPS)

    # -- facts in ------------------------------------------------------------------------------

    def take_step(self, step: int, values: Mapping[str, float], wall: float) -> tuple[Alert, ...]:
        """Judge the values of a step, or of a log interval that ends there, by journal key."""
        if not self.facts.is_enabled:
            return ()
        steps = max(0, step - self._step)
        if wall > self._wall:
            self._gaps.append(wall - self._wall)
        self._wall = wall
        said = [*self.take_zeros(step, values)]
        self._eta.take(step, wall)
        if (loss := values.get(LOSS_KEY)) is not None:
            if self._expected.take(step, loss) is not None:
                said += self._settle("expected-loss", self._loss_is_above())
            if self._plateau.take(step, loss) is not None:
                said += self._settle("plateau", self._loss_is_flat())
        if rates := {key: values[key] for key in self._speeds if key in values}:
            said += self._settle("slower", self._is_slow(rates))
        if (rate := values.get(LR_KEY)) is not None:
            self._schedule.take(self._planned_step(step, values), rate)
            said += self._settle("lr-schedule", self._rate_is_off())
        if (noise := values.get(NOISE_KEY)) is not None:
            self._noise.take(noise)
            said += self._settle("noise-scale", self._batch_is_small())
        if (psi := values.get(DRIFT_KEY)) is not None:
            self._psi = psi
            said += self._settle("token-drift", self._tokens_drift())
        if (clipped := values.get(ZCLIP_KEY)) is not None:
            self._clips.take(steps, clipped)
        self._norms.take(values)
        if (troubles := self._norms.look()) is not None:
            found = {
                f"{one.kind}-{one.key.rpartition('/')[2]}": _Found(
                    "warning", "health", one.key, one.value, one.usual, one.words
                )
                for one in troubles
            }
            said += self._settle_all(("vanishing-", "exploding-"), found, "gradients")
        return tuple(said)

    def _judge_names(self, values: Mapping[str, float]) -> None:
        """Choose which losses and speeds to watch among names that were not logged before."""
        new = [key for key in values if key not in self._names]
        for key in new[: MAX_NAMES - len(self._names)]:
            self._names.add(key)
            self._has_rewards = self._has_rewards or is_reward(key)
            is_judged = is_whole_loss(key) and not self.facts.may_be_zero
            if is_judged and len(self._zeros) < _MOST:
                self._zeros.setdefault(key, ZeroWatch())
            if is_speed(key) and len(self._speeds) < _MOST:
                self._speeds[key] = SpeedWatch()

    def take_zeros(self, step: int, values: Mapping[str, float]) -> Iterator[Alert]:
        """As `take_step`, but only for losses that are exactly 0."""
        self._step = step
        self._judge_names(values)
        for key, zero in self._zeros.items():
            if key not in values:
                continue
            is_long = zero.take(values[key]) and not self._has_rewards
            yield from self._settle(_zero_rule(key), _of_zero(key, zero) if is_long else None)

    def end(self) -> Iterator[Alert]:
        """Judge the end of the attempt: losses that ended in zeros."""
        if not self.facts.is_enabled or self._has_rewards:
            return
        for key, zero in self._zeros.items():
            rule = _zero_rule(key)
            if zero.is_at_end() and rule not in self._open:
                yield from self._settle(rule, _of_zero(key, zero))

    def _planned_step(self, step: int, values: Mapping[str, float]) -> float:
        """The position in the schedule: steps with another batch size than the schedule's are
        converted by their tokens."""
        size, tokens = self.facts.tokens_per_planned_step, values.get(TOKENS_KEY)
        return step if size is None or tokens is None else tokens / size

    def take_clock(self, wall: float, machine: Sequence[MachineReading]) -> tuple[Alert, ...]:
        """Judge samples since the last call, oldest first; samples seen before are ignored."""
        if not self.facts.is_enabled:
            return ()
        for sample in machine:
            self._gpus.take(sample, at_work=self._is_at_work(sample.wall))
        found = {f"gpu{one.index}-{one.kind}": _of_gpu(one) for one in self._gpus.found()}
        return tuple(self._settle_all(("gpu",), found, "gpu"))

    def owns(self, gpus: Collection[int] | None) -> None:
        """Set the GPUs of the run, if they become known only while it runs."""
        self._gpus.own = None if gpus is None else frozenset(gpus)

    def _is_at_work(self, wall: float) -> bool:
        """Whether the next step was not yet overdue: longer pauses are evaluations, saves or
        waits."""
        if len(self._gaps) < 3:
            return False
        usual = statistics.median(self._gaps)
        return wall - self._wall <= max(_PAUSE * usual, _LEAST_PAUSE_S)

    # -- what is wrong -------------------------------------------------------------------------

    def _loss_is_above(self) -> _Found | None:
        found = self._expected.newest
        if found is None or found.word != ABOVE:
            return None
        words = f"loss {found.words}"
        return _Found("warning", "health", LOSS_KEY, found.value, found.high, words)

    def _loss_is_flat(self) -> _Found | None:
        found = self._plateau.newest
        if found is None or not found.is_plateau:
            return None
        words = f"loss has stopped falling: {found.words}"
        return _Found("warning", "health", LOSS_KEY, found.improvement, LEAST, words)

    def _is_slow(self, rates: Mapping[str, float]) -> _Found | None:
        for key, rate in rates.items():
            self._speeds[key].take(rate)
        for key, speed in self._speeds.items():
            if speed.is_slow:
                unit = "tokens/s" if key == SPEED_KEY else key
                usual = f"{speed.usual:,.4g}"
                words = f"much slower than it was: {speed.newest:,.4g} {unit}, usually {usual}"
                return _Found("warning", "health", key, speed.newest, SLOW * speed.usual, words)
        return None

    def _rate_is_off(self) -> _Found | None:
        rate = self._schedule
        if not rate.is_off:
            return None
        words = f"learning rate is off its schedule: {rate.words}"
        return _Found("error", "health", LR_KEY, rate.value, rate.promised, words)

    def _batch_is_small(self) -> _Found | None:
        ratio = self._noise.ratio
        if ratio is None or ratio <= SMALL:
            return None
        return _Found("warning", "health", NOISE_KEY, ratio, SMALL, self._noise.words)

    def _tokens_drift(self) -> _Found | None:
        if self._psi is None or not self._psi >= SIGNIFICANT:
            return None
        words = f"token distribution has shifted: PSI {self._psi:.2g} (threshold {SIGNIFICANT:g})"
        return _Found("warning", "health", DRIFT_KEY, self._psi, SIGNIFICANT, words)

    # -- alerts --------------------------------------------------------------------------------

    def _settle(self, rule: str, found: _Found | None) -> Iterable[Alert]:
        """Raise or clear the alert of one trouble, compared with what was raised before."""
        if found is None and rule not in self._open:
            return ()
        there = {} if found is None else {rule: found}
        return self._settle_all((rule,), there, _check_of(rule))

    def _settle_all(
        self, families: tuple[str, ...], found: Mapping[str, _Found], check: str
    ) -> Iterator[Alert]:
        """The same for all troubles whose rules begin with `families`: new ones raise alerts, ended
        ones clear them."""
        if check in self.facts.ignore:
            return
        for rule in [r for r in self._open if r.startswith(families) and r not in found]:
            yield replace(self._open.pop(rule), state="cleared", step=self._step)
        for rule, one in found.items():
            if rule not in self._open:
                self._open[rule] = self._alert(rule, one)
                yield self._open[rule]

    def _alert(self, rule: str, found: _Found) -> Alert:
        return Alert(
            id=f"{rule}@{self.facts.attempt}.{self._step}",
            rule=rule,
            kind=found.kind,
            severity=found.severity,
            action=_TELLS,
            metric=found.metric,
            value=found.value,
            threshold=found.threshold,
            message=found.message,
            step=self._step,
        )

    @property
    def open(self) -> tuple[Alert, ...]:
        """Alerts that were raised and not yet cleared."""
        return tuple(self._open.values())

    # -- words out -----------------------------------------------------------------------------

    def words(self) -> Mapping[str, str]:
        """Descriptions for the Run screen, by title: {"expected loss": "on track"}; unknown ones
        are left out.
        """
        ratio = self.tokens_per_parameter
        found = {
            "expected loss": "" if self._expected.newest is None else self._expected.newest.words,
            "trend": "" if self._plateau.newest is None else self._plateau.newest.words,
            "learning rate": self._schedule.words,
            "gradient noise": self._noise.words,
            "clipping": self._clips.words,
            "token drift": "" if self._psi is None else _drift_words(self._psi),
            "tokens": "" if ratio is None else tokens.words(ratio),
        }
        return {title: text for title, text in found.items() if text}

    @property
    def tokens_per_parameter(self) -> float | None:
        """Tokens per parameter at the planned end; None if the end or the model is unknown."""
        facts = self.facts
        if facts.num_steps is None or facts.tokens_per_step is None:
            return None
        planned = facts.num_steps * facts.tokens_per_step
        return tokens.tokens_per_parameter(planned, facts.parameters)

    def finish(self) -> dict[str, float] | None:
        """Seconds left and the wall time of the end, each with its 90 % interval; None while
        unknown.
        """
        if self.facts.num_steps is None:
            return None
        left = self._eta.left(max(0, self.facts.num_steps - self._step))
        if left is None:
            return None
        seconds, low, high = left
        return {
            "seconds": seconds,
            "seconds_low": low,
            "seconds_high": high,
            "wall": self._wall + seconds,
            "wall_low": self._wall + low,
            "wall_high": self._wall + high,
        }

    def summary(self) -> dict[str, Any]:
        """The health as plain data for a state file or watch.json (schema: health in
        albor.watch/1)."""
        expected = self._expected.newest
        return {
            "words": dict(self.words()),
            "expected_loss": None if expected is None else expected.to_json(),
            "finish": self.finish(),
            "tokens_per_parameter": self.tokens_per_parameter,
            "open": [alert.rule for alert in self.open],
        }

    # -- what outlives the process -------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "eta": self._eta.to_json(),
            "expected": self._expected.to_json(),
            "plateau": self._plateau.to_json(),
            "norms": self._norms.to_json(),
            "has_rewards": self._has_rewards,
            "zeros": {key: [one.count, one.zeros] for key, one in self._zeros.items()},
            "open": [alert.to_json() for alert in self.open],
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned in an earlier process; missing parts begin
        anew."""
        self._step = int(saved.get("step") or 0)
        for name, part in (
            ("eta", self._eta),
            ("expected", self._expected),
            ("plateau", self._plateau),
            ("norms", self._norms),
        ):
            if saved.get(name):
                part.load(saved[name])
        self._has_rewards = bool(saved.get("has_rewards"))
        for key, counts in (saved.get("zeros") or {}).items():
            self._zeros[key] = ZeroWatch(*map(int, counts))
        self._open = {str(one["rule"]): alert_from(one) for one in saved.get("open") or ()}


_CHECK_OF = {
    "expected-loss": "expected_loss",
    "lr-schedule": "schedule",
    "noise-scale": "noise",
    "token-drift": "drift",
    "slower": "speed",
}


def _check_of(rule: str) -> str:
    return "plateau" if rule.endswith(_ZERO) else _CHECK_OF.get(rule, rule)


def _zero_rule(key: str) -> str:
    name = "loss" if key == LOSS_KEY else "".join(c if c.isalnum() else "-" for c in key)[:60]
    return f"{name}{_ZERO}"


def _of_zero(key: str, zero: ZeroWatch) -> _Found:
    name = "loss" if key == LOSS_KEY else key
    words = f"{name} is exactly 0, {zero.zeros} times in a row: are all labels ignored?"
    return _Found("error", "health", key, 0.0, 0.0, words)


def _of_gpu(trouble: GpuTrouble) -> _Found:
    return _Found(
        "error" if trouble.kind in ("ecc", "xid") else "warning",
        "machine",
        f"gpu{trouble.index}.{trouble.kind}",
        trouble.value,
        0.0 if trouble.against is None else trouble.against,
        f"GPU {trouble.index} {trouble.kind}: {trouble.words}",
    )


def _drift_words(psi: float) -> str:
    status = "none" if psi < MODERATE else "moderate" if psi < SIGNIFICANT else "significant"
    return f"{status}: PSI {psi:.2g}"
