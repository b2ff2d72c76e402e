"""The one place that decides which backend runs an op here: the fastest that passes parity.

Decided once per (op, device, dtype) and process, before or at the op's first use, and kept. A
backend that does not compile or errs more than `parity` allows is logged, listed in
`Choice.rejected`, and never used. ALBOR_KERNELS=reference|triton, read at import, skips the race
but not the parity check.

Inside torch.compile the reference is traced and Inductor fuses it with its neighbours (residual
add, casts), which kernels it cannot see into forbid: forward and backward of a 350M model (B 16,
T 1024, bf16, whole model compiled, H200, torch 2.11) took 90.1 ms so and 91.5 ms with the Triton
RMSNorm, medians of interleaved rounds. Only ALBOR_KERNELS=triton overrules that, and nothing can
be checked there.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from albor_core.kernels.backend_override import forced_backend
from albor_core.kernels.parity import Deviation, Outputs, deviations, results
from albor_core.kernels.toolchain import HAS_TRITON, IS_INTERPRETED, KernelLaunch

log = logging.getLogger(__name__)

OPS = {
    "rms_norm": "norms.rms_norm",
    "add_rms_norm": "norms.add_rms_norm",
    "rope": "attention.rope",
    "rope_qkv": "attention.rope_qkv",
    "qk_norm": "norms.qk_norm",
    "attention": "attention.attention",
    "attention_128": "attention.attention",
    "swiglu": "mlp.swiglu",
    "swiglu_up": "mlp.swiglu_up",
    "swiglu_down": "mlp.swiglu_down",
    "cross_entropy": "cross_entropy",
    "embedding": "embedding",
    "adamw": "optim.adamw",
    "muon": "optim.muon",
    "fp8": "mlp.fp8",
}
"""The ops by name, each with its module in kernels/ops."""
FORCED = forced_backend(os.environ)
RACED = 5  # calls in a row, timed as one
HEAD_START_CYCLES = 10_000_000  # 5 ms of a GPU, in which a host launches RACED calls of any op


@dataclass(frozen=True)
class Op:
    """The description of an op for dispatch, parity and ahead-of-time compilation."""

    name: str
    reference: Callable[..., Outputs]
    triton: Callable[..., Outputs]
    cases: Callable[[torch.device, torch.dtype], Iterator[tuple[Tensor, ...]]]
    """Inputs for the parity check; the first is also the one that is timed."""
    launches: Callable[[str], tuple[KernelLaunch, ...]]
    """How its kernels are launched with "fp32", "bf16" or "fp16" activations."""
    instead: Callable[..., Outputs] | None = None
    """What runs where they do not, if that is not the reference: they race against it."""


@dataclass(frozen=True)
class Candidate:
    """The measurements of one backend of an op, the worst over results; None if not measured."""

    backend: str
    cosine: float | None = None
    rms_error: float | None = None
    """Against fp64, as fractions of the result, as the next."""
    max_error: float | None = None
    us: float | None = None
    """Forward and backward, microseconds."""


class FloorCost(NamedTuple):
    """The least cost of any implementation of the timed case."""

    bytes_moved: int
    """Each operand read and each result written once, forward and backward."""
    flops: int


class ParityVerdict(NamedTuple):
    """The result of a parity check of the kernels."""

    reason: str = ""
    """Why they may not be used, or ""."""
    candidates: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The chosen backend of an op, and the reason."""

    op: str
    backend: str
    """"triton", "reference" or "inductor" (the reference, traced by torch.compile)."""
    evidence: str
    device: str = ""
    dtype: str = ""
    rejected: tuple[str, ...] = ()
    """"backend: why", for each that may not be used here."""
    candidates: tuple[Candidate, ...] = ()
    cost: FloorCost | None = None
    """Of the case that was timed."""


Choices = dict[tuple[str, torch.device, torch.dtype, bool], Choice]
Check = Callable[[Op, torch.device, torch.dtype], ParityVerdict]
"""Whether Triton may run an op here."""
Timer = Callable[[Callable[..., Outputs], tuple[Tensor, ...]], float]
"""Milliseconds of a backend on some inputs."""


class Memory(Protocol):
    """Choices of earlier processes."""

    def read(self, op: str, device: torch.device, dtype: str) -> Choice | None:
        """One that holds here still, if there is one."""

    def write(self, choice: Choice, device: torch.device) -> None:
        """A choice between backends that both pass."""


_ops: dict[str, Op] = {}
_choices: Choices = {}
_pinned: dict[str, str] = {}
_pinned_because = "as in the attempt before"
_memory: Memory | None = None


def register(op: Op) -> None:
    """Called by each op's module at its end."""
    _ops[op.name] = op


def op(name: str) -> Op:
    """The op of that name; imports its module. KeyError for an unknown one."""
    if name not in _ops:
        if name not in OPS:
            raise KeyError(f"no op {name!r}; there are {', '.join(OPS)}")
        importlib.import_module(f"albor_core.kernels.ops.{OPS[name]}")
    return _ops[name]


def use_triton(name: str, *tensors: Tensor) -> bool:
    """Whether op `name` on such tensors runs its Triton kernels; decides at the first call."""
    if torch.compiler.is_compiling():
        return FORCED == "triton" and tensors[0].is_cuda
    return choose(name, tensors[0].device, tensors[0].dtype).backend == "triton"


def choose(
    name: str, device: torch.device | str, dtype: torch.dtype, *, compiled: bool = False
) -> Choice:
    """The backend of op `name` here.

    The first call on a GPU compiles, checks and races: seconds, and it syncs. `compiled` asks what
    runs inside torch.compile.
    """
    where = torch.device(device)
    key = (name, where, dtype, compiled)
    if key not in _choices:
        _choices[key] = _decide(op(name), where, dtype, compiled)
        if where.type == "cuda":
            torch.cuda.empty_cache()  # checking took blocks of sizes that no step asks for
    return _choices[key]


def obstacle(name: str, device: torch.device | str, dtype: torch.dtype) -> str:
    """Why the Triton kernels of op `name` may not run here, or "": they pass parity.

    Says nothing about speed: a step made of kernels is measured as a whole.
    """
    if FORCED == "reference":
        return "ALBOR_KERNELS=reference"
    if torch.device(device).type != "cuda" or not HAS_TRITON:
        return "needs Triton and a CUDA device"
    return "; ".join(choose(name, device, dtype).rejected)


def choices() -> tuple[Choice, ...]:
    """Everything decided so far, for the run's journal."""
    return tuple(_choices.values())


def taken(device: torch.device | str) -> dict[str, str]:
    """What was decided for devices of that type, as `pin` takes it: {"rms_norm float32": "triton"}.

    Not what torch.compile decides by itself.
    """
    kind = torch.device(device).type
    found = [c for c in choices() if torch.device(c.device).type == kind]
    return {f"{c.op} {c.dtype}": c.backend for c in found if c.backend != "inductor"}


def pin(backends: Mapping[str, str]) -> None:
    """Keep to these backends ("triton" or "reference") instead of racing; an op without a dtype
    means all of them.

    For a resumed run, which must not change bits: what `taken` gave the run before. Parity still
    decides whether one may be used. Forgets earlier choices.
    """
    global _pinned_because
    for name, backend in backends.items():
        if backend not in ("triton", "reference"):
            raise ValueError(f"cannot pin {name} to {backend!r}: 'triton' or 'reference'")
    _pinned.update(backends)
    _pinned_because = "as in the attempt before"
    _choices.clear()


def use_references(because: str) -> None:
    """Run every op by its reference from now on, unless ALBOR_KERNELS asks for kernels; `because`
    is the evidence. Forgets earlier choices.
    """
    global _pinned_because
    _pinned.clear()
    _pinned.update(dict.fromkeys(OPS, "reference"))
    _pinned_because = because
    _choices.clear()


def remember(memory: Memory | None) -> None:
    """Ask it before an op is examined, and tell it what was found."""
    global _memory
    _memory = memory


@contextmanager
def deciding_anew(
    *,
    check: Check | None = None,
    timer: Timer | None = None,
    choices: Choices | None = None,
    pinned: dict[str, str] | None = None,
) -> Iterator[None]:
    """Nothing is decided or remembered at the beginning, or `choices` and `pinned` are; what is
    decided, pinned or registered inside is forgotten after it. `check` and `timer` in place of
    parity and clock.
    """
    global _ops, _choices, _pinned, _pinned_because, _check, _timer, _memory
    kept = _ops, _choices, _pinned, _pinned_because, _check, _timer, _memory
    _ops, _memory = dict(_ops), None
    _choices = {} if choices is None else choices
    _pinned = {} if pinned is None else pinned
    _check, _timer = check or _check, timer or _timer
    try:
        yield
    finally:
        _ops, _choices, _pinned, _pinned_because, _check, _timer, _memory = kept


def _decide(op: Op, device: torch.device, dtype: torch.dtype, compiled: bool) -> Choice:
    kind = str(dtype).removeprefix("torch.")
    wanted, whence = _wanted(op, kind)

    def chosen(backend: str, evidence: str, *rejected: str) -> Choice:
        return Choice(op.name, backend, evidence, str(device), kind, rejected)

    if compiled and FORCED != "triton":
        return chosen("inductor", "torch.compile traces the reference and fuses it")
    if device.type != "cuda":
        if FORCED == "triton" and IS_INTERPRETED:
            return chosen(
                "triton", "ALBOR_KERNELS=triton in Triton's interpreter, not checked here"
            )
        return chosen("reference", f"{device.type}: Triton kernels need a CUDA device")
    if wanted == "reference":
        return chosen("reference", f"{whence}, not measured")
    if not HAS_TRITON:
        return chosen("reference", "Triton is not installed")
    unraced = whence if wanted == "triton" else ""
    if _memory is None:
        return _examined(op, device, dtype, chosen, unraced=unraced)
    if kept := _memory.read(op.name, device, kind):
        if not unraced:
            return kept
        return replace(kept, backend="triton", evidence=f"{unraced}; passed parity here before")
    choice = _examined(op, device, dtype, chosen, unraced=unraced)
    if any(one.us is not None for one in choice.candidates):  # it was raced
        _memory.write(choice, device)
    return choice


def _wanted(op: Op, kind: str) -> tuple[str, str]:
    """The backend that is to run an op in that dtype, or "", and who says so."""
    if FORCED:
        return FORCED, "asked for"
    return _pinned.get(f"{op.name} {kind}") or _pinned.get(op.name, ""), _pinned_because


def _examined(
    op: Op,
    device: torch.device,
    dtype: torch.dtype,
    chosen: Callable[..., Choice],
    *,
    unraced: str,
) -> Choice:
    """The choice by parity and, unless there is a reason why Triton is `unraced`, by speed."""
    reason, found = _check(op, device, dtype)
    if reason:
        log.warning("%s: triton on %s in %s is NOT used: %s", op.name, device, dtype, reason)
        choice = chosen("reference", "the only one left", f"triton: {reason}")
        return replace(choice, candidates=found)
    if unraced:
        return replace(chosen("triton", f"{unraced}; passes parity, not raced"), candidates=found)
    best, evidence, medians = _race(op, device, dtype)
    known = {c.backend: c for c in found}
    timed = tuple(
        replace(known.get(name, Candidate(name)), us=round(ms * 1000, 3))
        for name, ms in medians.items()
    )
    return replace(chosen(best, evidence), candidates=timed, cost=_cost(op, device, dtype))


def rejection(op: Op, device: torch.device, dtype: torch.dtype) -> str:
    """Why Triton may not run `op` here, or "". Not compiling or launching is a reason too."""
    return examine(op, device, dtype).reason


def examine(op: Op, device: torch.device, dtype: torch.dtype) -> ParityVerdict:
    """`rejection`, and how far both backends are from fp64, up to the case that broke the rule."""
    seen: list[Deviation] = []
    try:
        with torch.autocast(device.type, enabled=False):
            for case in op.cases(device, dtype):
                here = deviations(op.triton, op.reference, *case)
                seen += here
                if broken := [d for d in here if not d.is_accurate()]:
                    reason = f"{tuple(case[0].shape)}: {'; '.join(map(str, broken))}"
                    return ParityVerdict(reason, _candidates(seen, op))
    except Exception as error:
        # whatever Triton, ptxas or the driver raise, the run goes on without it
        return ParityVerdict(f"{type(error).__name__}: {str(error)[:300]}", _candidates(seen, op))
    return ParityVerdict("", _candidates(seen, op))


def _candidates(seen: list[Deviation], op: Op) -> tuple[Candidate, ...]:
    if not seen:
        return (Candidate("triton"), Candidate("reference"))
    triton = Candidate(
        "triton",
        min((d.cosine for d in seen), key=lambda c: -math.inf if math.isnan(c) else c),
        *(
            max(x, key=_nan_last)
            for x in ([d.kernel_rms for d in seen], [d.kernel_max for d in seen])
        ),
    )
    if op.instead is not None:  # the reference was measured, something else runs
        return triton, Candidate("reference")
    rms, largest = (
        max(x) for x in ([d.reference_rms for d in seen], [d.reference_max for d in seen])
    )
    return triton, Candidate("reference", None, rms, largest)


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _cost(op: Op, device: torch.device, dtype: torch.dtype) -> FloorCost | None:
    """The least cost of the op; None if torch cannot count the reference's operations."""
    case = next(iter(op.cases(device, dtype)))
    try:
        with torch.autocast(device.type, enabled=False), FlopCounterMode(display=False) as counter:
            made = results(op.reference, case)
    except Exception as error:  # a count must not cause a failure
        log.info("%s: its operations cannot be counted: %s", op.name, error)
        return None
    outs = [t for name, t in made.items() if name.startswith("output")]
    arriving = outs if len(made) > len(outs) else []
    flops = counter.get_total_flops()
    if op.name.startswith("attention"):
        flops //= 2  # it is causal: half of what is counted
    return FloorCost(sum(t.nbytes for t in (*case, *made.values(), *arriving)), flops)


def _race(op: Op, device: torch.device, dtype: torch.dtype) -> tuple[str, str, dict[str, float]]:
    """(fastest backend, evidence, milliseconds): forward and backward, medians of interleaved
    rounds.
    """
    case = next(iter(op.cases(device, dtype)))
    backends = {"triton": op.triton, "reference": op.instead or op.reference}
    rounds: dict[str, list[float]] = {name: [] for name in backends}
    with torch.autocast(device.type, enabled=False), torch.cuda.device(device):
        for _ in range(6):  # the first round warms up and is not counted
            for name, fn in backends.items():
                rounds[name].append(_timer(fn, case))
    medians = {name: statistics.median(times[1:]) for name, times in rounds.items()}
    best = min(medians, key=medians.__getitem__)
    shape = "x".join(map(str, case[0].shape))
    told = {"reference": "what runs instead"} if op.instead else {}
    times = ", ".join(f"{told.get(n, n)} {ms * 1000:.0f} us" for n, ms in medians.items())
    return best, f"passes parity; forward+backward of {shape} in {times}", medians


def milliseconds(fn: Callable[..., Outputs], inputs: tuple[Tensor, ...]) -> float:
    """Device time of one forward and backward, on copies: some ops write over their inputs."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        # The device is busy while the host launches: else its haste decides, not the kernels'.
        torch.cuda._sleep(HEAD_START_CYCLES)
        start.record()
        for _ in range(RACED):
            out = fn(*leaves)
            outs = out if isinstance(out, tuple) else (out,)
            if any(o.requires_grad for o in outs):
                torch.autograd.grad(outs, wanted, [o.detach() for o in outs], allow_unused=True)
        end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / RACED


_check: Check = examine
_timer: Timer = milliseconds
