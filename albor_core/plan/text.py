"""A plan as text: what it is, what it needs, what is wrong with it. ASCII but for
the curve on terminals that have more, about 78 columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from albor_core.config.config import Config
from albor_core.config.sections.model import InitializationConfig
from albor_core.plan.curve import drawn, promise_of
from albor_core.plan.estimates import Duration
from albor_core.plan.facts import SplitFacts
from albor_core.plan.memory import MemoryEstimate
from albor_core.plan.plan import Plan
from albor_core.plan.start_weights import start_weights
from albor_core.run.errors import Problem
from albor_core.run.values.quantity import (
    byte_size,
    counted,
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


def render(plan: Plan, width: int = _WIDTH, *, is_ascii: bool = True) -> str:
    """All sections; a verdict last, so that it is what the reader sees above the prompt. The curve
    of the learning rate is `width` cells wide.
    """
    sections = (
        *(_model(plan), _memory(plan), _data(plan)),
        [*_training(plan), *_curve(plan, width, is_ascii=is_ascii)],
        _costs(plan),
    )
    lines = ["", "  Albor Train Plan", f"  {plan.facts.config_path}", _RULE]
    for section in sections:
        lines += [*section, _RULE]
    lines += _listed("Andon", plan.andon)
    lines += _listed("Notes", plan.notes)
    lines += _explained("Warnings", plan.warnings)
    lines += _explained("Problems", plan.problems)
    count = len(plan.problems)
    verdict = f"{counted(count, 'problem')}: not ready" if count else "Ready"
    return "\n".join([*lines, f"  {verdict}", ""])


def _row(label: str, value: str) -> str:
    return f"  {label:<14}{value}"


def _model(plan: Plan) -> Iterator[str]:
    yield _row("Model:", plan.cost.title)
    count = plan.parameters
    known = "not known" if count is None else f"{count:,} (~{short_count(count)})"
    yield _row("Parameters:", known)
    begin = plan.config.model.initialization
    if (
        plan.cost.shape
        and begin != InitializationConfig()
        and start_weights(plan.config.model) is None
    ):
        scales = f"matrix {begin.matrix:g}, residual {begin.residual:g}"
        for what, std in (("embedding", begin.embedding), ("head", begin.head)):
            scales += "" if std is None else f", {what} of deviation {std:g}"
        yield _row("Weights:", f"random, {scales}{'' if begin.mirrored else ', not mirrored'}")
    precision = plan.config.training.mixed_precision
    stream = "" if plan.config.training.residual_in_fp32 else ", residual stream too"
    yield _row("Precision:", precision if precision == "fp32" else f"{precision} mixed{stream}")
    name = f" ({plan.facts.device_name})" if plan.facts.device_name else ""
    yield _row("Device:", f"{plan.facts.device}{name}")
    if plan.facts.device == "cuda":
        yield _row("Step:", _STEPS["plain" if plan.memory is None else plan.memory.step])
    share, strategy = plan.config.share(), plan.config.training.distributed.strategy
    if share.world_size > 1:
        each = f"{share.batch_size} sequences x {share.accumulation} micro-batches a step"
        yield _row("Ranks:", f"{share.world_size} by {strategy}, each {each}")


def _memory(plan: Plan) -> Iterator[str]:
    need, data, share = plan.memory, plan.config.data, plan.config.share()
    if need is None:
        yield _row("Memory:", "not known")
        return
    yield "  Memory (estimate):" if share.world_size == 1 else "  Memory of a rank (estimate):"
    remat = "recomputed, " if plan.config.training.activation_checkpointing else ""
    is_muon, is_fused = plan.config.optimizer.name == "muon", need.step == "fused"
    sums = ", fp32 sums" if share.accumulation > 1 else ""
    rows = [
        ("Weights", need.weights, _kinds_of_weights(plan)),
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


def _kinds_of_weights(plan: Plan) -> str:
    numbers = plan.facts.numbers
    beside = 0 if numbers is None else numbers.counts.bytes_beside
    return f"fp32; {byte_size(beside)} of it frozen beside or packed" if beside else "fp32"


def _beside_steps(need: MemoryEstimate) -> str:
    """How an evaluation's memory counts."""
    if need.keeps_activations:
        return "beside the activations of CUDA graphs"
    return "reuses activation memory"


def _data(plan: Plan) -> Iterator[str]:
    facts, shape = plan.facts, plan.cost.shape
    yield "  Data:"
    if shape is None:
        yield f"    {'Source':<13}{plan.config.training.mode}"
    else:
        yield from _splits("Train", facts.train)
        yield from _splits("Val", facts.val)
        yield from _weights(plan)
        yield from _reading(plan)
    tokenizer = facts.tokenizer
    if tokenizer is None:
        yield f"    {'Tokenizer':<13}none"
    elif tokenizer.vocab_size is None:
        yield f"    {'Tokenizer':<13}{tokenizer.path} unreadable"
    else:
        size = tokenizer.vocab_size
        yield f"    {'Tokenizer':<13}{tokenizer.path}"
        if shape is None:
            return
        vocab = shape.vocab_size
        sign = "=" if size == vocab else "<" if size < vocab else ">"
        yield f"    {'Vocabulary':<13}{size:,} {sign} {vocab:,} of the model"


def _splits(title: str, split: SplitFacts | None) -> Iterator[str]:
    if split is None:
        yield f"    {title:<13}none"
        return
    for part in split.parts or (split,):
        yield f"    {title:<13}{_split(part)}"
        title = ""


def _weights(plan: Plan) -> Iterator[str]:
    """The share of sequences from each source of a mixture."""
    data, title = plan.config.data, "Mixture"
    stages = data.stages()
    for first, weights in stages:
        total = sum(weights.values())
        shares = ", ".join(f"{name} {percent(w / total, 1)}" for name, w in weights.items())
        yield f"    {title:<13}{f'from sequence {first:,}: ' if len(stages) > 1 else ''}{shares}"
        title = ""


def _reading(plan: Plan) -> Iterator[str]:
    """How rows are read, if not in the usual way."""
    data = plan.config.data
    if data.shuffle != "rows":
        yield f"    {'Shuffled':<13}{data.shuffle}, joined and cut anew in each epoch"
    if data.document_mask:
        yield f"    {'Documents':<13}kept apart: a token sees its own alone"
    if data.fim is not None:
        rate = percent(data.fim.rate, 0)
        yield f"    {'Fill-in':<13}{rate} of the documents, {data.fim.format}"


def _split(split: SplitFacts) -> str:
    if split.problems and split.sequences is None:
        return f"{split.path} unusable"
    if split.sequences is None:
        return f"{split.path} (no manifest: sequences unknown)"
    parts = [f"{split.sequences:,} rows of {split.row_len:,}"]
    if split.shards is not None:
        parts.append(counted(split.shards, "file"))
    if split.bytes is not None:
        parts.append(byte_size(split.bytes))
    if split.sampled_bytes is None:
        return f"{split.path} ({', '.join(parts)})"
    known = f"by {byte_size(split.sampled_bytes)} of its text"
    took = duration(max(1.0, split.packing_seconds or 0.0))
    return f"{split.path} (about {', '.join(parts)}, {known}; apply packs it first, about {took})"


def _training(plan: Plan) -> Iterator[str]:
    steps, config = plan.schedule, plan.config
    data, training = config.data, config.training
    mine = config.share()
    per_step = f"{mine.batch_size} x {mine.accumulation} x {data.seq_len}"
    if mine.world_size > 1:
        per_step = f"{mine.world_size} ranks x {per_step}"
    yield "  Training:"
    yield f"    {'Global batch':<13}{steps.tokens_per_step:,} tokens ({per_step})"
    yield from _epochs(plan)
    if steps.max_steps is None or steps.total_tokens is None:
        yield f"    {'Total steps':<13}unknown"
        return
    more = f" ({steps.updates:,} with the smaller ones of the ramp)" if training.batch_ramp else ""
    yield f"    {'Total steps':<13}{steps.max_steps:,}{more}"
    yield f"    {'Total tokens':<13}{steps.total_tokens:,} (~{short_count(steps.total_tokens)})"
    if steps.done_tokens:
        done, left = steps.done_tokens, steps.total_tokens - steps.done_tokens
        at = f"step {done // steps.tokens_per_step:,} of {training.continue_from}"
        yield f"    {'Begins at':<13}{at}"
        yield f"    {'Left':<13}{left:,} tokens"
    yield from _rates(plan, steps.max_steps)
    yield from _ramps(config)
    yield f"    {'Checkpoints':<13}{steps.checkpoints:,} (every {training.save_interval:,} steps)"


def _epochs(plan: Plan) -> Iterator[str]:
    """Whether the epochs hold as many steps as are asked for."""
    steps, epochs = plan.schedule, plan.config.training.epochs
    if steps.steps_per_epoch is None or steps.reachable_steps is None:
        return
    end = ""
    if (most := plan.config.training.max_steps) is not None:
        is_enough = steps.reachable_steps >= most
        end = f"{'; max_steps stops at' if is_enough else ', fewer than max_steps,'} {most:,}"
    each, all_of_them = f"{steps.steps_per_epoch:,} steps", f"{steps.reachable_steps:,}"
    if plan.config.data.mixture:  # its steps reach over the ends of epochs
        each, all_of_them = f"{steps.sequences or 0:,} sequences", f"{all_of_them} steps"
    yield f"    {'Epochs':<13}{epochs:,} x {each} = {all_of_them}{end}"


def _rates(plan: Plan, max_steps: int) -> Iterator[str]:
    steps, training, optimizer = plan.schedule, plan.config.training, plan.config.optimizer
    share = steps.warmup_steps / max_steps if max_steps else 0.0
    yield f"    {'Warmup':<13}{steps.warmup_steps:,} steps ({percent(share, 1)})"
    schedule = f"{training.lr_scheduler}, peak {optimizer.lr:g}"
    floor = "" if training.lr_scheduler == "constant" else f", end {optimizer.min_lr:g}"
    held = "" if training.decay_steps is None else f" in the last {training.decay_steps:,} steps"
    yield f"    {'LR':<13}{schedule}{floor}{held}"
    own = {"hidden matrices": optimizer.muon_lr, **optimizer.own_lr}
    peaks = [f"{what} {lr:g}" for what, lr in own.items() if lr is not None]
    if peaks:
        yield f"    {'Other peaks':<13}{', '.join(peaks)}"


def _ramps(config: Config) -> Iterator[str]:
    data, training = config.data, config.training
    if training.batch_ramp:
        stages = (
            f"{data.batch_size * one.gradient_accumulation * data.seq_len:,} to step {one.until:,}"
            for one in training.batch_ramp
        )
        yield f"    {'Batch ramp':<13}{', '.join(stages)} (tokens a step)"
    if training.seq_len_ramp:
        cut = (f"{one.seq_len:,} to step {one.until:,}" for one in training.seq_len_ramp)
        yield f"    {'Lengths':<13}{', '.join(cut)}, then {data.seq_len:,}"


def _curve(plan: Plan, width: int, *, is_ascii: bool) -> Iterator[str]:
    if (promise := promise_of(plan.config, plan.schedule.max_steps)) is not None:
        yield "  Learning rate:"
        yield from drawn(plan.config, promise, width, is_ascii=is_ascii)


def _costs(plan: Plan) -> Iterator[str]:
    space, free = plan.disk, f"{byte_size(plan.disk.free, unknown='unknown')} free"
    if space.checkpoint is None:
        yield _row("Disk:", f"{space.copies} checkpoints at once, of a size not known, {free}")
    else:
        yield _row(
            "Disk:",
            f"{byte_size(space.total)} ({space.copies} checkpoints of "
            f"{byte_size(space.checkpoint)} at once), {free}",
        )
    if space.journal:
        recorded = f"journal about {byte_size(space.journal)}, stores {byte_size(space.stores)}"
        yield _row("", f"{'of it ' if space.checkpoint else ''}{recorded}")
    if space.cache:
        yield _row("", f"and a token cache of {byte_size(space.cache)} in ALBOR_HOME, if not there")
    if plan.duration is None:
        what = "device rate or length" if plan.cost.flops_per_token else "cost of a step"
        yield _row("Wall time:", f"unknown ({what} not known)")
        yield _row("Speed:", "unknown")
    else:
        yield from _time(plan.duration)
    yield from _expenses(plan)
    for number, budget in enumerate(plan.budgets):
        yield _row("" if number else "Budgets:", budget.words)


def _time(time: Duration) -> Iterator[str]:
    between = f"between {duration(time.low_s)} and {duration(time.high_s)}"
    yield _row("Wall time:", f"about {duration(time.seconds)}, {between}")
    how = {"formula": "assuming", "runs": "measured:", "probe": "measured:"}[time.source]
    for number, line in enumerate(textwrap.wrap(f"{how} {time.assumption}", _WIDTH - 16)):
        yield _row("", line if not number else f"  {line}")
    step, speed = milliseconds(time.step_ms), time.tokens_per_s
    yield _row("Speed:", f"about {step} a step, {rate(speed, 'tokens')}, by the same")


def _expenses(plan: Plan) -> Iterator[str]:
    spent = plan.expenses
    if spent.energy_kwh is not None and spent.watts is not None:
        how = "measured" if spent.watts_source == "measured" else "at most: their limit"
        watts = f"GPUs at {spent.watts:,.0f} W, {how}"
        yield _row("Energy:", f"{spent.energy_kwh:,.3g} kWh ({watts})")
    elif plan.facts.device == "cuda":
        what = "wall time" if plan.duration is None else "power of the GPU"
        yield _row("Energy:", f"unknown ({what} not known)")
    if spent.money is not None and spent.gpu_hours is not None:
        cost = f"{spent.money:,.2f} {spent.currency}".rstrip()
        yield _row("Cost:", f"about {cost} for {spent.gpu_hours:,.3g} GPU-hours")


def _listed(title: str, items: Iterable[str]) -> list[str]:
    lines = [line for item in items for line in _wrapped(item, "    - ")]
    return [f"  {title}:", *lines] if lines else []


def _explained(title: str, found: Iterable[Problem]) -> list[str]:
    """Each with its fix on a line of its own."""
    lines: list[str] = []
    for one in found:
        said = ": ".join(part for part in (_line(one), one.field, one.message) if part)
        lines += _wrapped(said, "    - ")
        lines += _wrapped(one.hint, "      > ") if one.hint else []
    return [f"  {title}:", *lines] if lines else []


def _line(one: Problem) -> str:
    """Of the config, which the head names; what is set on the command line in its own words."""
    line = one.file.rpartition(":")[2]
    return f"line {line}" if line.isdecimal() else one.file if one.file[:2] == "--" else ""


def _wrapped(text: str, bullet: str) -> list[str]:
    indent = " " * len(bullet)
    return textwrap.wrap(
        text, _WIDTH, initial_indent=bullet, subsequent_indent=indent, break_on_hyphens=False
    )
