"""`albor bench`: how fast a model reads prompts and writes tokens on this machine."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import clean, emit, json_option, number, print_line, table
from albor_core.cli.model.folder import opens_model
from albor_core.cli.model.generate import dtype_name, out_of_memory, place_of, place_options
from albor_core.cli.plans.file_plan import model_source, plans
from albor_core.run.errors import UsageError
from albor_core.run.values.quantity import byte_size

if TYPE_CHECKING:
    from albor_core.documents.model import BenchFigures, TransformersFigures
    from albor_core.model.generate.measure import Load, MeasuredLoad
    from albor_core.model.llama import Llama

_HEADS = ("batch", "context", "prefill tok/s", "ms/token p50", "p99", "tok/s", "of the law")
_PEER = ("transformers tok/s", "ratio")


@click.command()
@click.argument("folder", metavar="DIR|RUN")
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, metavar="N",
              show_default="1 and 8",
              help="Generate N texts at once; repeatable.")  # fmt: skip
@click.option("--context", "contexts", type=click.IntRange(1), multiple=True, metavar="N",
              show_default="128", help="Measure after N context tokens; repeatable.")  # fmt: skip
@click.option("--new-tokens", type=click.IntRange(2), metavar="N", show_default="64",
              help="Generate N tokens for each text.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True,
              help="Repeat each measurement N times, alternating with transformers.")  # fmt: skip
@click.option("--alone", is_flag=True, help="Do not measure transformers, even if it is installed.")
@place_options
@json_option
@plans(lambda told: [model_source(told["folder"])], lambda _: [], opens_model)
def bench(
    folder: str,
    batches: tuple[int, ...],
    contexts: tuple[int, ...],
    new_tokens: int | None,
    rounds: int,
    alone: bool,
    device: str,
    dtype: str,
    as_json: bool,
) -> None:
    """Time the model in DIR, or the newest checkpoint of RUN, on random prompts: prefill, the time
    of a token at p50 and p99 by batch and context, and the share of the bandwidth bound, the least
    time in which the device can read weights and cache.

    transformers' generate is timed in turn with it, if it is installed.
    """
    from albor_core.cli.model.folder import load_newest
    from albor_core.model.generate.measure import measure, read_bandwidth
    from albor_core.model.generate.peer import Peer, is_installed
    from albor_core.model.hf.folder import open_model
    from albor_core.model.hf.tensors import load_model

    where = place_of(device, dtype)
    with out_of_memory():
        path, model = load_newest(
            folder, lambda at: load_model(open_model(at), device=where[0], dtype=where[1])
        )
        loads = _loads(model, batches or (1, 8), contexts, new_tokens)
        peer = None
        if is_installed() and not alone:
            peer = Peer.load(path, device=where[0], dtype=where[1])
        bandwidth = read_bandwidth(where[0])
        found = [measure(model, load, peer=peer, rounds=rounds) for load in loads]
    about = _about(model, bandwidth)
    rows = [_row(one, bandwidth) for one in found]
    if as_json:
        place = {"model": str(path), "device": where[0].type, "dtype": dtype_name(where[1])}
        document: Any = {"schema": "albor.bench/1", **place, **about, "rounds": rounds}
        emit(document | {"measured": rows})
        return
    print_line(f"{clean(path)}: {about['parameters']:,} parameters in {dtype_name(where[1])}")
    print_line(f"{clean(about['device_name'])} reads {byte_size(int(bandwidth))} a second")
    heads = (*_HEADS, *_PEER) if peer is not None else _HEADS
    print_line(table(heads, [_cells(row)[: len(heads)] for row in rows], right=heads))


def _loads(
    model: Llama, batches: tuple[int, ...], contexts: tuple[int, ...], new_tokens: int | None
) -> list[Load]:
    """Every batch with every context. Raises UsageError for what does not fit the model's."""
    from albor_core.model.generate.measure import Load

    longest = model.config.max_position_embeddings
    contexts = contexts or (max(1, min(128, longest // 2)),)
    new = new_tokens or max(2, min(64, longest - max(contexts)))
    if max(contexts) + new > longest:
        what = f"{max(contexts):,} tokens of context and {new:,} new ones"
        hint = f"the model's context is {longest:,}: take fewer"
        raise UsageError(f"{what} are more than the model can take", hint=hint)
    return [Load(batch, context, new) for context, batch in product(contexts, batches)]


def _about(model: Llama, bandwidth: float) -> dict[str, Any]:
    import torch

    device = model.head_weight.device
    is_gpu = device.type == "cuda"
    return {
        "model_type": model.config.model_type,
        "parameters": model.config.num_parameters,
        "device_name": torch.cuda.get_device_name(device) if is_gpu else "CPU",
        "threads": None if is_gpu else torch.get_num_threads(),
        "bytes_per_s": bandwidth,
    }


def _row(one: MeasuredLoad, bandwidth: float) -> BenchFigures:
    law_s = one.step_bytes / bandwidth
    theirs: TransformersFigures | None = None
    if one.peer_s is not None:
        tokens = one.load.batch * one.load.new_tokens
        theirs = {"tokens_per_s": tokens / one.peer_s, "ratio": one.peer_s / one.total_s}
    return {
        "batch": one.load.batch,
        "context": one.load.context,
        "new_tokens": one.load.new_tokens,
        "prefill_tokens_per_s": one.load.batch * one.load.context / one.prefill_s,
        "step_ms_p50": 1000 * one.step_s(0.5),
        "step_ms_p99": 1000 * one.step_s(0.99),
        "decode_tokens_per_s": one.load.batch / one.step_s(0.5),
        "tokens_per_s": one.load.batch * one.load.new_tokens / one.total_s,
        "law": {
            "bytes": one.step_bytes,
            "ms": 1000 * law_s,
            "share": law_s / one.step_s(0.5),
        },
        "transformers": theirs,
    }


def _cells(row: BenchFigures) -> tuple[str, ...]:
    theirs = row["transformers"] or {"tokens_per_s": None, "ratio": None}
    return (
        f"{row['batch']:,}",
        f"{row['context']:,}",
        number(row["prefill_tokens_per_s"], ",.0f"),
        number(row["step_ms_p50"], ".3f"),
        number(row["step_ms_p99"], ".3f"),
        number(row["tokens_per_s"], ",.0f"),
        number(row["law"]["share"], ".0%"),
        number(theirs["tokens_per_s"], ",.0f"),
        number(theirs["ratio"], ".2f"),
    )
