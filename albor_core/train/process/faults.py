"""Faults on purpose, for tests, demonstrations and drills: `ALBOR_FAULTS=point:action@step[-step]`.

    data:sleep=0.5@20-25     the data brick of steps 20 to 25 takes half a second longer, and so
                             with every other brick (andon/bricks/names.py); `forward` in
                             `forward+loss` where that is one
    loss:nan@12  loss:x10@30 the loss of a step, and so its gradient
    grad:x100@30             its gradient alone
    step:exit=3@7            leave after 7 steps     step:segv@0  step:kill@4  step:sleep_forever@9
    step:raise@5             an ordinary exception
    ckpt:kill@4              die when the checkpoint of step 4 is published and nothing is pruned

Several are separated by commas; `#2` at the end restricts one to the second attempt. Steps are
counted as in the journal: bricks sleep while step N is computed, those between steps after it;
`step` acts when N steps are done; `loss` and `grad` sit in the N-th batch of the data, which is
that of step N until a rollback leaves batches behind. Nothing happens when the variable is unset; a
production environment refuses it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from albor_core.andon.bricks.names import BRICKS, Brick, parts_of
from albor_core.run.errors import UsageError

POINTS: Mapping[str, frozenset[str]] = {
    **{brick: frozenset({"sleep"}) for brick in BRICKS},
    "loss": frozenset({"nan", "x", "sleep"}),
    "grad": frozenset({"nan", "x"}),
    "step": frozenset({"sleep", "exit", "segv", "kill", "raise", "sleep_forever"}),
    "ckpt": frozenset({"kill", "sleep"}),
}
_WITH_VALUE = frozenset({"sleep", "x", "exit"})
_FAULT = re.compile(r"(\w+):(?:(x)([\d.]+)|(\w+?)(?:=([\d.]+))?)@(\d+)(?:-(\d+))?(?:#(\d+))?")


class InjectedError(RuntimeError):
    """Raised by `step:raise`."""


@dataclass(frozen=True)
class Fault:
    """One planned fault at `point`, for steps first..last of `attempt` (None: of all)."""

    point: str
    action: str
    value: float
    first: int
    last: int
    attempt: int | None


class Faults:
    """The plan of one process; `at` is a dictionary look-up when there is none."""

    def __init__(self, faults: tuple[Fault, ...] = (), *, attempt: int = 1) -> None:
        self._by_point: dict[str, list[Fault]] = {}
        for fault in faults:
            if fault.attempt in (None, attempt):
                self._by_point.setdefault(fault.point, []).append(fault)

    def at(self, point: str, step: int) -> None:
        """Sleep, die or raise here if the plan says so."""
        for fault in self._by_point.get(point, ()):
            if fault.first <= step <= fault.last:
                _act(fault)

    def slowed(self, brick: Brick, step: int) -> Brick:
        """`brick`, with the delays of that step inside."""
        if not self._by_point.keys() & {*BRICKS}:
            return brick

        @contextmanager
        def slow(name: str) -> Iterator[None]:
            with brick(name):
                for part in parts_of(name):
                    self.at(part, step)
                yield

        return slow

    def factor(self, point: str, position: int) -> float:
        """What to multiply the loss or the gradient ("grad") of a batch with; 1.0 is nothing."""
        factor = 1.0
        for fault in self._by_point.get(point, ()):
            if fault.action != "sleep" and fault.first <= position <= fault.last:
                factor *= float("nan") if fault.action == "nan" else fault.value
        return factor


def faults_from(environ: Mapping[str, str], *, attempt: int) -> Faults:
    """The plan in `ALBOR_FAULTS`. Raises UsageError for a bad plan, and for any in production."""
    text = environ.get("ALBOR_FAULTS", "").strip()
    if not text:
        return Faults()
    if environ.get("ALBOR_ENV") == "production":
        raise UsageError(
            "ALBOR_FAULTS is set in a production environment", hint="unset ALBOR_FAULTS"
        )
    return Faults(tuple(_parse(part.strip()) for part in text.split(",")), attempt=attempt)


def _parse(text: str) -> Fault:
    match = _FAULT.fullmatch(text)
    if match is not None:
        point, times, factor, word, value, first, last, attempt = match.groups()
        action = times or word
        with suppress(ValueError):  # 1.2.3, and integers that Python does not read
            fault = Fault(
                point,
                action,
                float(factor or value or 0.0),
                int(first),
                int(last or first),
                int(attempt) if attempt else None,
            )
            is_known = action in POINTS.get(point, frozenset()) and fault.first <= fault.last
            has_value = bool(factor or value) == (action in _WITH_VALUE)
            is_whole = action != "exit" or fault.value in range(256)
            if is_known and has_value and is_whole and fault.attempt != 0:
                return fault
    raise UsageError(
        f"ALBOR_FAULTS: {text!r} is not point:action@step[-step][#attempt]",
        hint="for example data:sleep=0.5@20-25",
    )


def _act(fault: Fault) -> None:
    match fault.action:
        case "sleep":
            time.sleep(fault.value)
        case "sleep_forever":
            while True:
                time.sleep(60)
        case "exit":
            os._exit(int(fault.value))
        case "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise InjectedError(f"injected at step {fault.first}")
