"""`albor kernels`: which backend runs each operation on this machine, and the evidence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.environment import check_forced_backend
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import (
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
    table,
)
from albor_core.cli.machine.kernels_gemm import GEMM, MatrixShape, bench_gemm
from albor_core.run.errors import AlborError, UsageError

if TYPE_CHECKING:
    from albor_core.documents.kernels import KernelsBenchDocument
    from albor_core.kernels.bench import Result, Sizes, Timed


@click.group(
    cls=LazyGroup,
    entries={
        "check": (f"{__name__}:check", "Check parity and speed of each candidate kernel."),
        "bench": (f"{__name__}:bench", "Time each candidate at the sizes of a model."),
        "show": (
            "albor_core.cli.machine.kernels_show:show",
            "Show which kernels a run took, and the parity of its model.",
        ),
    },
)
def kernels() -> None:
    """Show which kernel runs each operation here, and why.

    ALBOR_KERNELS=reference or ALBOR_KERNELS=triton in the environment, of these commands and of a
    run, skips the speed comparison and uses that backend wherever it passes parity.
    """


@kernels.command()
@json_option
def check(as_json: bool) -> None:
    """Check every candidate against fp64, time those that pass, print which one is used."""
    check_forced_backend()
    import torch

    from albor_core.kernels.backend_override import unmet_demand
    from albor_core.kernels.dispatch import OPS, choose

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    made = [choose(op, device, dtype) for op in OPS for dtype in dtypes]
    if unmet := unmet_demand(os.environ, device):
        print_note(unmet)
    if as_json:
        choices = [field_values(choice) for choice in made]
        emit({"schema": "albor.kernels.check/1", "unmet": unmet or None, "choices": choices})
        return
    rows = [(c.op, c.device, c.dtype, c.backend, c.evidence) for c in made]
    print_line(table(("op", "device", "dtype", "backend", "why"), rows))
    for choice in made:
        for why in choice.rejected:
            print_line(f"rejected: {choice.op} {choice.dtype}: {why}")


DTYPES = ("fp32", "bf16", "fp16")


@kernels.command()
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="NAME",
    help="Time only this op; repeatable. gemm: a step's matrix products.",
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="Use this dtype for activations.  [default: bf16 on a GPU, else fp32]",
)
@click.option("--rows", type=Count(1, 2**30), help="Tokens of a micro-batch.")
@click.option("--hidden", type=Count(2, 2**20), help="Width of the residual stream.")
@click.option("--intermediate", type=Count(1, 2**22), help="Width of the feed-forward layer.")
@click.option("--vocab", type=Count(2, 2**30), help="Size of the vocabulary.")
@click.option("--heads", type=Count(1, 2**16), help="Query heads.")
@click.option("--kv-heads", type=Count(1, 2**16), help="Key/value heads.")
@click.option("--layers", type=Count(1, 2**16), help="Layers of the model (gemm only).")
@click.option(
    "--shape",
    "shapes",
    type=MatrixShape(),
    multiple=True,
    help="Time (M, K) @ (K, N) instead of a step's products (gemm only); repeatable.",
)
@click.option("--rounds", type=Count(1, 1000), default=7, show_default=True)
@click.option(
    "--compile/--no-compile",
    "compiled",
    default=None,
    help="Also time torch.compile, or not.  [default: on a GPU only]",
)
@json_option
def bench(
    ops: tuple[str, ...],
    dtype: str | None,
    layers: int | None,
    shapes: tuple[tuple[int, int, int], ...],
    rounds: int,
    compiled: bool | None,
    as_json: bool,
    **given: int | None,
) -> None:
    """Time each op's candidates on this device, by default at the sizes of the 350M model on a GPU
    and at small ones on a CPU.

    `--op gemm` times the matrix products of a training step instead: as the fused step runs them,
    the fastest way through the libraries (the ceiling), and their share of that, of the best rate
    of a large square product (sustained) and of the data sheet's peak.
    """
    check_forced_backend()
    _check_together(ops, layers, shapes)
    import torch

    from albor_core.kernels import bench as room
    from albor_core.kernels.dispatch import OPS

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_gpu = device.type == "cuda"
    precision = dtype or ("bf16" if is_gpu else "fp32")
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    kind = kinds[precision]
    if unknown := [name for name in ops if name not in (*OPS, GEMM)]:
        raise UsageError(f"no op {unknown[0]!r}", hint=f"there are {', '.join((*OPS, GEMM))}")
    usual = room.LIKE_350M if is_gpu else room.FOR_A_CPU
    if GEMM in ops:
        sizes = _sizes(usual, given, ["attention"])
        beside = {**given, "layers": layers, "compile": compiled}
        bench_gemm(device, precision, kind, sizes, shapes, rounds, beside, as_json=as_json)
        return
    sizes = _sizes(usual, given, ops or OPS)
    races = is_gpu if compiled is None else compiled
    timed = partial(room.bench, sizes=sizes, device=device, dtype=kind, rounds=rounds)
    results = [_timed(name, sizes, partial(timed, compiled=races)) for name in ops or OPS]
    if as_json:
        document: KernelsBenchDocument = {
            "schema": "albor.kernels.bench/1",
            "device": torch.cuda.get_device_name(device) if is_gpu else "cpu",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "sizes": field_values(sizes),
            "rounds": rounds,
            "results": [field_values(result) for result in results],
        }
        emit(document)
        return
    _show(results)


def _timed(name: str, sizes: Sizes, bench: Callable[[str], Result]) -> Result:
    from albor_core.kernels import bench as room

    print_note(f"timing {name}")
    try:
        return bench(name)
    except (RuntimeError, MemoryError) as error:
        if not room.is_out_of_memory(error):
            raise
        asked = {size: getattr(sizes, size) for size in room.GROWS_WITH[name]}
        raise _too_large(name, asked) from error


def _check_together(
    ops: tuple[str, ...], layers: int | None, shapes: tuple[tuple[int, int, int], ...]
) -> None:
    """Raise UsageError for options of gemm without it, and for gemm beside others."""
    if GEMM in ops and set(ops) != {GEMM}:
        raise UsageError(
            "--op gemm cannot be timed together with other ops: its figures are others",
            hint="albor kernels bench --op gemm, and the others by themselves",
        )
    for option, value in (("--layers", layers), ("--shape", shapes)):
        if value and GEMM not in ops:
            raise UsageError(f"{option} needs --op gemm", hint="albor kernels bench --op gemm")


def _show(results: list[Result]) -> None:
    rows = []
    for result in results:
        base = next(c for c in result.candidates if c.backend == "reference")
        for one in result.candidates:
            why = shorten(one.why, 90, placeholder=" ...")
            mark = why or ("taken" if one.backend == result.chosen else "")
            shape = "x".join(map(str, result.shape))
            times = (_us(one.forward_us), _us(one.step_us), _ratio(base, one))
            rows.append((result.op, result.dtype, shape, one.backend, *times, mark))
    head = (
        "op",
        "dtype",
        "shape",
        "backend",
        "forward us",
        "with backward us",
        "times as fast",
        "",
    )
    print_line(table(head, rows))


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _ratio(base: Timed, one: Timed) -> str:
    """How many times as fast as the reference, by the longest way both were timed."""
    was, now = (base.step_us, one.step_us) if base.step_us else (base.forward_us, one.forward_us)
    return f"{was / now:.2f}" if was and now else "-"


def _sizes(usual: Sizes, given: Mapping[str, int | None], ops: Iterable[str]) -> Sizes:
    sizes = replace(usual, **{k: v for k, v in given.items() if v is not None})
    if problem := sizes.problem(ops):
        raise UsageError(problem, hint="--hidden / --heads is even, and --kv-heads divides --heads")
    return sizes


def _too_large(name: str, asked: Mapping[str, int]) -> AlborError:
    words = " and ".join(f"{size} {count:,}" for size, count in asked.items())
    return AlborError(
        f"{name}: {words} need more memory than there is here",
        hint="lower " + " or ".join(f"--{size}" for size in asked),
    )
