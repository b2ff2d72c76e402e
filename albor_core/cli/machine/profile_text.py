"""The report of `albor profile` in lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from albor_core.cli.common.output import number, table
from albor_core.run.values.quantity import byte_size, counted, fine, percent

if TYPE_CHECKING:
    from albor_core.profile.report import Report
    from albor_core.profile.roofline import Product

_SLOWER = "traced steps are slower than others"


def render(report: Report, *, kernels: int, width: int | None) -> Iterator[str]:
    """The lines; tables are cut to `width`."""
    found = report.breakdown
    yield (
        f"{report.device}: {counted(found.steps, 'step')}, {found.step_us / 1e3:.3f} ms a step "
        f"({_SLOWER})"
    )
    for one in report.missing:
        yield f"missing: {one}"
    for part in (_phases(report), _coverage(report), _kernels(report, kernels, width)):
        yield from ("", *part)
    yield from ("", *_calls(report))
    model = [*_roofline(report), *_mfu(report)]
    yield from ("", *model) if model else ()


def _phases(report: Report) -> Iterator[str]:
    found = report.breakdown
    if not found.phases:
        yield "phases: none are named in the trace"
        return
    work = "device ms" if found.is_gpu else "in operators"
    heads = ("phase", "host ms", work, "share", "launches", "syncs")
    rows = []
    for one in found.phases:
        mine = one.busy if found.is_gpu else one.host
        times = (f"{report.ms(one.host):.3f}", f"{report.ms(one.busy):.3f}")
        counts = (_per(one.launches, found.steps), _per(one.syncs, found.steps))
        rows.append((one.name, *times, percent(mine / found.wall, 1), *counts))
    yield from table(heads, rows, right=heads[1:]).splitlines()
    whose = "of the device" if found.is_gpu else "of the host"
    yield f"a step; the share is {whose}, of the step's wall time"


def _coverage(report: Report) -> Iterator[str]:
    found = report.breakdown
    yield (
        f"{percent(found.coverage, 1)} of a step is explained: "
        f"{percent(found.busy / found.wall, 1)} {'kernels' if found.is_gpu else 'operators'}, "
        f"{percent(found.named_idle / found.wall, 1)} idle for a known cause"
    )
    if found.idle:
        heads = ("idle", "ms", "share")
        rows = [
            (one.why, f"{report.ms(one.time):.3f}", percent(one.time / found.wall, 1))
            for one in found.idle
        ]
        yield from table(heads, rows, right=heads[1:]).splitlines()


def _kernels(report: Report, limit: int, width: int | None) -> Iterator[str]:
    found = report.breakdown
    kind = "kernel" if found.is_gpu else "operator (its own time)"
    heads = (kind, "share", "total ms", "a step", "mean us")
    rows = [
        (
            one.name,
            percent(one.time / found.wall, 1),
            f"{one.time / 1e3:.3f}",
            _per(one.count, found.steps),
            f"{one.time / one.count:.1f}",
        )
        for one in found.kernels[:limit]
    ]
    yield from table(heads, rows, right=heads[1:], limit=width).splitlines()
    if len(found.kernels) > limit:
        yield f"and {len(found.kernels) - limit} more: --kernels {len(found.kernels)}"


def _per(count: int, steps: int) -> str:
    """A count per step: whole if it is, else with one digit."""
    return f"{count / steps:,.0f}" if count % steps == 0 else f"{count / steps:,.1f}"


def _calls(report: Report) -> Iterator[str]:
    found, steps = report.breakdown, report.breakdown.steps
    if found.is_gpu:
        graphs = _per(found.graph_launches, steps)
        yield f"launches a step: {_per(found.launches, steps)}, and {graphs} of graphs"
    waits = [f"{name} {_per(count, steps)}" for name, count in found.syncs.items()]
    waits.append(f"item() {_per(found.items, steps)}")
    yield f"synchronizations a step: {', '.join(waits)}"
    for one in found.copies:
        yield (
            f"copies {one.direction}: {_per(one.count, steps)} a step, "
            f"{byte_size(one.bytes / steps)}, {number(one.gb_per_s, '.2f')} GB/s"
        )
    told = [f"{name} {value:,}" for name, value in found.counters.items() if value]
    if told:
        yield f"counted in all: {', '.join(told)}"


def _roofline(report: Report) -> Iterator[str]:
    made = report.roofline
    if made is None:
        return
    if made.ridge is None:
        yield f"products in {made.precision}; the peaks of {made.device} are not known"
    else:
        peak, moved = (made.peak_flops or 0) / 1e12, (made.bandwidth or 0) / 1e12
        yield (
            f"products in {made.precision} against {peak:.1f} TFLOP/s and {moved:.3f} TB/s: "
            f"ridge point {made.ridge:.0f} FLOP/byte"
        )
    heads = ("product", "pass", "M", "N", "K", "GFLOP", "MB", "FLOP/byte", "bound", "floor us",
             "measured us", "a step")  # fmt: skip
    rows = [_product(one) for one in made.products]
    yield from table(heads, rows, right=[h for h in heads[2:] if h != "bound"]).splitlines()
    if any(one.shares_with and one.measured_us is not None for one in made.products):
        yield "* products of the same sizes, which this trace does not tell apart: their mean"


def _product(one: Product) -> tuple[str, ...]:
    mark = "*" if one.shares_with and one.measured_us is not None else ""
    return (
        one.name,
        one.when,
        *(f"{size:,}" for size in (one.m, one.n, one.k)),
        _above_0(one.flops / 1e9, 3),
        _above_0(one.bytes / 1e6, 2),
        _above_0(one.intensity, 1),
        one.bound or "not known",
        _above_0(one.floor_us, 1),
        _above_0(one.measured_us, 1) + mark,
        f"{one.per_step:,}",
    )


def _above_0(value: float | None, decimals: int) -> str:
    """A figure of a product, which is small in a tiny model and 0 in none."""
    if value is not None and 0 < value < 1:
        return fine(value, decimals)
    return number(value, f".{decimals}f")


def _mfu(report: Report) -> Iterator[str]:
    made = report.utilisation
    if made is None:
        return
    yield (
        f"P = {made.parameters:,} parameters, {made.matmul_parameters:,} of them in products: "
        f"{made.flops_per_step:.4g} FLOPs a step"
    )
    for name, peak in (("half-precision", made.half_peak), ("fp32", made.fp32_peak)):
        share = made.of(peak)
        if peak is None or share is None:
            yield f"MFU, {name}: peak not known"
        else:
            yield f"MFU, {name}: {percent(share, 1)} of {peak / 1e12:.1f} TFLOP/s"
