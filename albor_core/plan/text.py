"""A plan as text: what it is, what it needs, what is wrong with it. ASCII, about 78 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from albor_core.config.sections import InitializationConfig
from albor_core.plan.facts import SplitFacts
from albor_core.plan.memory import MemoryEstimate
from albor_core.plan.plan import Plan
from albor_core.plan.start_weights import start_weights
from albor_core.run.errors import Problem
from albor_core.run.values.quantity import (
    byte_size,
    duration,
    milliseconds,
    percent,
    rate,
    short_count,
)

_WIDTH = 78
_RULE = "  " + "-" * 60
_STEPS = {
    "fused": "fused kernels (model/fused.py), if they pass here",
    "compiled": "torch.compile",
    "plain": "PyTorch",
}


def render(plan: Plan) -> str:
    """All sections; a verdict last, so that it is what the reader sees above the prompt."""
    sections = (_model(plan), _memory(plan), _data(plan), _training(plan), _costs(plan))
    lines = ["", "  Albor Train Plan", f"  {plan.facts.config_path}", _RULE]
    for section in sections:
        lines += [*section, _RULE]
    lines += _listed("Andon", plan.andon)
    lines += _listed("Notes", plan.notes)
    lines += _explained("Warnings", plan.warnings)
    lines += _explained("Problems", plan.problems)
    count = len(plan.problems)
    verdict = f"{count} problem{'s' * (count > 1)}: not ready" if count else "Ready"
    return "\n".join([*lines, f"  {verdict}", ""])


def _row(label: str, value: str) -> str:
    return f"  {label:<14}{value}"


def _model(plan: Plan) -> Iterator[str]:
    shape = plan.config.model.architecture
    yield _row(
        "Model:",
        f"llama ({shape.num_hidden_layers}L, {shape.hidden_size}H, "
        f"{shape.num_attention_heads}A, {shape.num_key_value_heads}KV)",
    )
    yield _row("Parameters:", f"{plan.parameters:,} (~{short_count(plan.parameters)})")
    begin = plan.config.model.initialization
    if begin != InitializationConfig() and start_weights(plan.config.model) is None:
        scales = f"matrix {begin.matrix:g}, residual {begin.residual:g}"
        yield _row("Weights:", f"random, {scales}{'' if begin.mirrored else ', not mirrored'}")
    precision = plan.config.training.mixed_precision
    stream = "" if plan.config.training.residual_in_fp32 else ", residual stream too"
    yield _row("Precision:", precision if precision == "fp32" else f"{precision} mixed{stream}")
    name = f" ({plan.facts.device_name})" if plan.facts.device_name else ""
    yield _row("Device:", f"{plan.facts.device}{name}")
    if plan.facts.device == "cuda":
        yield _row("Step:", _STEPS[plan.memory.step])
    share, strategy = plan.config.share(), plan.config.training.distributed.strategy
    if share.world_size > 1:
        each = f"{share.batch_size} sequences x {share.accumulation} micro-batches a step"
        yield _row("Ranks:", f"{share.world_size} by {strategy}, each {each}")


def _memory(plan: Plan) -> Iterator[str]:
    need, data, share = plan.memory, plan.config.data, plan.config.share()
    yield "  Memory (estimate):" if share.world_size == 1 else "  Memory of a rank (estimate):"
    remat = "recomputed, " if plan.config.training.activation_checkpointing else ""
    is_muon, is_fused = plan.config.optimizer.name == "muon", need.step == "fused"
    sums = ", fp32 sums" if share.accumulation > 1 else ""
    rows = [
        ("Weights", need.weights, "fp32"),
        (
            "Optimizer",
            need.optimizer,
            "Muon fp32 momentum, AdamW m+v for the rest" if is_muon else "AdamW fp32 m+v",
        ),
        ("Gradients", need.gradients, f"bf16{sums}" if is_fused else "fp32"),
        ("Half copies", need.half_copies, plan.config.training.mixed_precision),
        ("Activations", need.activations, f"{remat}batch={share.batch_size}, seq={data.seq_len}"),
        ("Start", need.start, "comparing steps before the first"),
        ("Evaluation", need.evaluation, _beside_steps(need)),
        ("GPU overhead", need.overhead, "context, workspaces"),
    ]
    for label, size, remark in rows:
        if size:
            yield f"    {label:<13}{byte_size(size):>10}   ({remark})"
    if need.capacity is None:
        yield f"    {'Total':<13}{byte_size(need.total):>10}   (device memory unknown)"
        return
    of = f"{percent(need.total / need.capacity, 1)} of {byte_size(need.capacity)}"
    yield f"    {'Total':<13}{byte_size(need.total):>10}   ({of})"
    if need.missing:
        yield f"    {'Missing':<13}{byte_size(need.missing):>10}"
    else:
        yield f"    {'Headroom':<13}{byte_size(need.capacity - need.total):>10}"


def _beside_steps(need: MemoryEstimate) -> str:
    """How an evaluation's memory counts."""
    if need.keeps_activations:
        return "beside the activations of CUDA graphs"
    return "in the place of activations, not beside them"


def _data(plan: Plan) -> Iterator[str]:
    facts, vocab = plan.facts, plan.config.model.architecture.vocab_size
    yield "  Data:"
    yield f"    {'Train':<13}{_split(facts.train)}"
    yield f"    {'Val':<13}{'none' if facts.val is None else _split(facts.val)}"
    tokenizer = facts.tokenizer
    if tokenizer is None:
        yield f"    {'Tokenizer':<13}none"
    elif tokenizer.vocab_size is None:
        yield f"    {'Tokenizer':<13}{tokenizer.path} unreadable"
    else:
        size = tokenizer.vocab_size
        sign = "=" if size == vocab else "<" if size < vocab else ">"
        yield f"    {'Tokenizer':<13}{tokenizer.path}"
        yield f"    {'Vocabulary':<13}{size:,} {sign} {vocab:,} of the model"


def _split(split: SplitFacts) -> str:
    if split.problems and split.sequences is None:
        return f"{split.path} unusable"
    if split.sequences is None:
        return f"{split.path} (no manifest: sequences unknown)"
    parts = [f"{split.sequences:,} rows of {split.row_len:,}"]
    if split.shards is not None:
        parts.append(f"{split.shards:,} file{'s' * (split.shards != 1)}")
    if split.bytes is not None:
        parts.append(byte_size(split.bytes))
    return f"{split.path} ({', '.join(parts)})"


def _training(plan: Plan) -> Iterator[str]:
    steps, config = plan.schedule, plan.config
    data, training = config.data, config.training
    mine = config.share()
    per_step = f"{mine.batch_size} x {mine.accumulation} x {data.seq_len}"
    if mine.world_size > 1:
        per_step = f"{mine.world_size} ranks x {per_step}"
    yield "  Training:"
    yield f"    {'Global batch':<13}{steps.tokens_per_step:,} tokens ({per_step})"
    if steps.steps_per_epoch is not None and steps.reachable_steps is not None:
        sign = ">=" if steps.reachable_steps >= (steps.max_steps or 0) else "<"
        yield (
            f"    {'Epochs':<13}{training.epochs:,} x {steps.steps_per_epoch:,} steps = "
            f"{steps.reachable_steps:,} {sign} {steps.max_steps or 0:,}"
        )
    if steps.max_steps is None or steps.total_tokens is None:
        yield f"    {'Total steps':<13}unknown"
        return
    yield f"    {'Total steps':<13}{steps.max_steps:,}"
    yield f"    {'Total tokens':<13}{steps.total_tokens:,} (~{short_count(steps.total_tokens)})"
    share = steps.warmup_steps / steps.max_steps if steps.max_steps else 0.0
    yield f"    {'Warmup':<13}{steps.warmup_steps:,} steps ({percent(share, 1)})"
    schedule = f"{training.lr_scheduler}, peak {config.optimizer.lr:g}"
    floor = "" if training.lr_scheduler == "constant" else f", end {config.optimizer.min_lr:g}"
    yield f"    {'LR':<13}{schedule}{floor}"
    yield f"    {'Checkpoints':<13}{steps.checkpoints:,} (every {training.save_interval:,} steps)"


def _costs(plan: Plan) -> Iterator[str]:
    space = plan.disk
    yield _row(
        "Disk:",
        f"{byte_size(space.total)} ({space.copies} checkpoints of {byte_size(space.checkpoint)} "
        f"at once), {byte_size(space.free, unknown='unknown')} free",
    )
    if plan.duration is None:
        yield _row("Wall time:", "unknown (device rate or length not known)")
        yield _row("Speed:", "unknown")
    else:
        yield _row("Wall time:", f"about {duration(plan.duration.seconds)}, an estimate")
        yield _row("", f"assuming {plan.duration.assumption}")
        step, speed = milliseconds(plan.duration.step_ms), plan.duration.tokens_per_s
        yield _row("Speed:", f"about {step} a step, {rate(speed, 'tokens')}, by the same")


def _listed(title: str, items: Iterable[str]) -> list[str]:
    lines = [line for item in items for line in _wrapped(item, "    - ")]
    return [f"  {title}:", *lines] if lines else []


def _explained(title: str, found: Iterable[Problem]) -> list[str]:
    """Each with its fix on a line of its own."""
    lines: list[str] = []
    for one in found:
        lines += _wrapped(f"{one.field}: {one.message}" if one.field else one.message, "    - ")
        lines += _wrapped(one.hint, "      > ") if one.hint else []
    return [f"  {title}:", *lines] if lines else []


def _wrapped(text: str, bullet: str) -> list[str]:
    indent = " " * len(bullet)
    return textwrap.wrap(
        text, _WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False
    )
