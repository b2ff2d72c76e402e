"""`albor kernels bench --op gemm`: a step's matrix products, and what the libraries reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

from albor_core.cli.common.output import emit, print_line, print_note, table
from albor_core.run.errors import AlborError, UsageError
from albor_core.run.values.quantity import UNKNOWN, byte_size, fine, percent
from albor_core.telemetry.peaks import device_peaks

if TYPE_CHECKING:
    import torch

    from albor_core.kernels.bench import Sizes
    from albor_core.kernels.gemm import Gemm, GemmTime

GEMM = "gemm"
LARGEST = 2**30  # of a side
LAYERS = {"cuda": 24, "cpu": 4}  # of the model whose sizes are timed by default
Shape = tuple[int, int, int]


class MatrixShape(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """M,N,K of a product, each written as a number in a config."""

    name = "M,N,K"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shape:
        from albor_core.run.values.numbers import parse_count

        try:
            m, n, k = (parse_count(part) for part in str(value).split(","))
        except ValueError:
            self.fail(
                f"{value!r} is not M,N,K: three whole numbers such as 4096,4096,1K", param, ctx
            )
        if not all(1 <= side <= LARGEST for side in (m, n, k)):
            self.fail(f"{value}: M, N and K are from 1 to {LARGEST:,}", param, ctx)
        return m, n, k


def bench_gemm(
    device: torch.device,
    precision: str,
    kind: torch.dtype,
    sizes: Sizes,
    shapes: tuple[Shape, ...],
    rounds: int,
    beside: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Time and print them, in `kind`, which a config calls `precision`. `beside` are the other
    options, None where they were not given. Raises UsageError for those without a meaning here,
    AlborError where there is not memory enough.
    """
    import torch

    from albor_core.kernels import gemm
    from albor_core.model.fused import LOGITS_BYTES

    _check_meaning([name for name, value in beside.items() if value is not None], bool(shapes))
    is_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if is_gpu else None
    depth = cast(int, beside["layers"] or LAYERS[device.type])
    pieces = max(1, LOGITS_BYTES // (sizes.vocab * kind.itemsize))
    if shapes:
        wanted = [one for shape in shapes for one in gemm.shape_products(*shape)]
    else:
        wanted = [*gemm.step_products(sizes, depth, pieces)]
    _check_room([*wanted, gemm.square(device)], device, kind.itemsize, is_of_step=not shapes)
    best, times = _timed(wanted, device, kind, rounds, is_of_step=not shapes)
    sheet = sheet_flops(name, precision)
    document: Any = {
        "schema": "albor.kernels.gemm/1",
        "device": name or "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dtype": precision,
        "sizes": None if shapes else asdict(sizes),
        "layers": None if shapes else depth,
        "rounds": rounds,
        "sustained_size": gemm.square(device).m,
        "sustained_tflops": _rounded(best, 1e12),
        "datasheet_tflops": _rounded(sheet, 1e12),
        "ceiling_share": None if shapes else _rounded(gemm.step_share(times)),
        "products": [_product(time, best, sheet) for time in times],
    }
    if as_json:
        emit(document)
        return
    _show(document)


def _timed(
    wanted: list[Gemm], device: torch.device, kind: torch.dtype, rounds: int, *, is_of_step: bool
) -> tuple[float | None, list[GemmTime]]:
    """The sustained peak in FLOP/s, and each product's times. Raises AlborError."""
    from albor_core.kernels import gemm
    from albor_core.kernels.bench import is_out_of_memory

    times: list[GemmTime] = []
    product = gemm.square(device)
    try:
        print_note("timing a large square product")
        best = gemm.sustained(device, kind, rounds=rounds)
        for product in wanted:
            sides = f"{product.m} x {product.n} x {product.k}"
            print_note(f"timing {product.name} {product.when}, {sides} {product.layout}")
            times.append(gemm.time_gemm(product, device, kind, rounds=rounds))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise _too_large(product, is_of_step) from error
    return best, times


def sheet_flops(device_name: str | None, precision: str) -> float | None:
    """The data sheet's peak of products in that precision; None if unknown."""
    peaks = device_peaks(device_name)
    return None if peaks is None else peaks.fp32 if precision == "fp32" else peaks.half


def _check_meaning(asked: list[str], has_shapes: bool) -> None:
    words = [f"--{name.replace('_', '-')}" for name in asked]
    if "--compile" in words:
        raise UsageError(
            "--compile and --no-compile have no meaning for --op gemm: only libraries race there",
            hint="leave it out",
        )
    if has_shapes and words:
        raise UsageError(
            f"{words[0]} has no meaning beside --shape: sizes of a model are not timed",
            hint=f"leave out --shape or {words[0]}",
        )


def _check_room(products: list[Gemm], device: torch.device, size: int, *, is_of_step: bool) -> None:
    """Raise AlborError before an operating system would rather end the process."""
    import psutil
    import torch

    is_gpu = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if is_gpu else psutil.virtual_memory().available
    largest = max(products, key=lambda one: one.bytes(size))
    if largest.bytes(size) > free:
        raise _too_large(largest, is_of_step, byte_size(largest.bytes(size)), byte_size(free))


def _too_large(product: Gemm, is_of_step: bool, need: str = "", free: str = "") -> AlborError:
    told = f"about {need}, and {free} is free" if need else "more memory than there is here"
    lower = "lower --rows, --hidden, --intermediate or --vocab" if is_of_step else "lower --shape"
    if product.name == "square":  # timed whatever is asked for
        lower = "end what else holds memory here: nvidia-smi, or ps aux --sort=-rss"
    return AlborError(
        f"cannot time {product.name} {product.when}: {product.m:,} x {product.n:,} x {product.k:,}"
        f" needs {told}",
        hint=lower,
    )


def _product(time: GemmTime, best: float | None, sheet: float | None) -> dict[str, Any]:
    gemm, ceiling, rate = time.gemm, time.ceiling, time.rate
    return {
        "name": gemm.name,
        "pass": gemm.when,
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "layout": gemm.layout,
        "per_step": gemm.per_step,
        "ours": time.ours.route,
        "us": time.ours.us,
        "why": time.ours.why,
        "tflops": _rounded(rate, 1e12),
        "ceiling": ceiling.route if ceiling else None,
        "ceiling_us": ceiling.us if ceiling else None,
        "ceiling_share": _rounded(time.share),
        "sustained_share": _rounded(rate / best if rate and best else None),
        "datasheet_share": _rounded(rate / sheet if rate and sheet else None),
        "routes": [one._asdict() for one in time.routes],
    }


def _rounded(value: float | None, unit: float = 1.0) -> float | None:
    """A number rounded to significant digits, not decimals: the share of a tiny product is small,
    not 0."""
    return None if value is None else float(f"{value / unit:.5g}")


HEADERS = (
    *("product", "pass", "M", "N", "K", "layout", "x", "us", "TFLOP/s"),
    *("of ceiling", "of sustained", "of data sheet", "ours", "ceiling"),
)


def _show(document: dict[str, Any]) -> None:
    rows = []
    for one in document["products"]:
        shares = (one["ceiling_share"], one["sustained_share"], one["datasheet_share"])
        best = one["ceiling"] and f"{one['ceiling']} {_figure(one['ceiling_us'])} us"
        rows.append(
            (
                *(one["name"], one["pass"], *(str(one[side]) for side in "mnk"), one["layout"]),
                *(str(one["per_step"]), _figure(one["us"]), _figure(one["tflops"])),
                *(percent(share, 1) for share in shares),
                *(one["why"] or one["ours"], best or UNKNOWN),
            )
        )
    print_line(table(HEADERS, rows, right=HEADERS[2:5] + HEADERS[6:12]))
    print_line("")
    for one in document["products"]:
        for route in one["routes"]:
            if route["why"]:
                print_line(
                    f"not timed: {one['name']} {one['pass']}, {route['route']}: {route['why']}"
                )
    side = document["sustained_size"]
    peak = f"sustained peak: {_figure(document['sustained_tflops'])} TFLOP/s ({side} cubed)"
    sheet = document["datasheet_tflops"]
    print_line(f"{peak}; data sheet: {_figure(sheet)}{' TFLOP/s' if sheet else ''}")
    if document["sizes"]:
        share = percent(document["ceiling_share"], 1)
        words = f"{document['layers']} layers, weighted by time"
        print_line(f"a step's products run at {share} of the ceiling ({words})")


def _figure(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return fine(value, 3) if abs(value) < 0.1 else f"{value:.4g}"
