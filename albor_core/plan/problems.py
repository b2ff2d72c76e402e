"""Everything that would stop a run, and what would help: each found by itself, all said at once."""

from __future__ import annotations

import math
from collections.abc import Iterator

from albor_core.config.config import Config
from albor_core.plan.estimates import Disk, PlannedSteps
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.memory import MemoryEstimate
from albor_core.plan.recipes.registry import cost_of
from albor_core.run.errors import Problem
from albor_core.run.values.quantity import byte_size, counted


def plan_problems(
    config: Config,
    facts: PlanFacts,
    steps: PlannedSteps,
    memory: MemoryEstimate | None,
    space: Disk,
) -> Iterator[Problem]:
    """`memory` and `space` are what the run needs of both."""
    yield from facts.train.problems
    yield from facts.val.problems if facts.val is not None else ()
    yield from _step_problems(config, steps)
    yield from _split_problems(config, facts.train, "data.train")
    yield from _split_problems(config, facts.val, "data.val") if facts.val is not None else ()
    yield from _tokenizer_problems(config, facts)
    yield from _fim_problems(config, facts)
    yield from _packing_problems(config, facts)
    yield from _shuffle_problems(config, facts)
    yield from _device_problems(config, facts)
    yield from _memory_problems(config, facts, memory, steps)
    yield from _disk_problems(config, facts, space)


def _step_problems(config: Config, steps: PlannedSteps) -> Iterator[Problem]:
    """Problems if the data does not hold the steps, or the steps do not hold the warm-up."""
    epochs, wanted = config.training.epochs, config.training.max_steps
    per_epoch, reachable = steps.steps_per_epoch, steps.reachable_steps
    if steps.sequences == 0:
        return  # nothing to train on, which the checks of the split say with its cause
    if per_epoch == 0:
        per_step = steps.tokens_per_step // config.data.seq_len
        message = f"one step takes {per_step:,} sequences and the data holds {steps.sequences:,}"
        hint = f"at most {steps.sequences:,} in all: lower it or training.gradient_accumulation"
        yield Problem("data.batch_size", message, hint)
        return
    if per_epoch and reachable is not None and wanted is not None and reachable < wanted:
        message = (
            f"{wanted:,} steps cannot be reached: {counted(epochs, 'epoch')} of "
            f"{per_epoch:,} steps end at {reachable:,}"
        )
        enough = -(-wanted // per_epoch)
        hint = f"set training.epochs to {enough:,}, or training.max_steps to {reachable:,}"
        yield Problem("training.max_steps", message, hint)
    end = steps.max_steps if reachable is None else min(steps.max_steps or reachable, reachable)
    if end is not None and steps.warmup_steps >= end:
        message = f"the warm-up of {steps.warmup_steps:,} steps never completes in {end:,} steps"
        hint = f"about 10 %: training.warmup_steps={max(1, end // 10)}"
        yield Problem("training.warmup_steps", message, hint)


def _split_problems(config: Config, split: SplitFacts, field: str) -> Iterator[Problem]:
    shape = config.model.architecture
    if shape is None:
        return  # whatever a class of the user's own reads
    if split.parts:
        whole = "data.mixture" if field == "data.train" else "data.val_mixture"
        for index, part in enumerate(split.parts):
            yield from _split_problems(config, part, f"{whole}.{index}.path")
        return
    seq_len, vocab = config.data.seq_len, shape.vocab_size
    if split.row_len is not None and split.row_len < seq_len and split.sequences:
        message = (
            f"{seq_len:,} is longer than the {split.row_len:,} tokens of a row in {split.path}"
        )
        yield Problem("data.seq_len", message, f"use data.seq_len={split.row_len}, or pack again")
    if split.sequences == 0:
        yield Problem(field, f"{split.path} holds no sequences", "pack a larger corpus")
    if split.max_id is not None and split.max_id >= vocab:
        message = f"{vocab:,}, but {split.path} holds token id {split.max_id:,}"
        hint = f"use at least {max(split.max_id + 1, split.vocab_size or 0)}"
        yield Problem("model.architecture.vocab_size", message, hint)
    elif split.vocab_size is not None and split.vocab_size > vocab:
        message = f"{vocab:,}, but {split.path} was packed with {split.vocab_size:,} tokens"
        yield Problem("model.architecture.vocab_size", message, f"use {split.vocab_size}")


def _tokenizer_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    tokenizer = facts.tokenizer
    if tokenizer is None:
        return
    if tokenizer.error:
        hint = "albor tokenizer apply CORPUS --vocab-size N --out FILE, or leave it out"
        yield Problem("data.tokenizer", tokenizer.error, hint)
        return
    vocab = None if (shape := config.model.architecture) is None else shape.vocab_size
    if vocab is not None and tokenizer.vocab_size is not None and tokenizer.vocab_size > vocab:
        message = f"{vocab:,}, but {tokenizer.path} has {tokenizer.vocab_size:,} tokens"
        hint = f"use model.architecture.vocab_size={tokenizer.vocab_size}"
        yield Problem("model.architecture.vocab_size", message, hint)
    packed = facts.train.tokenizer_sha256
    if packed is not None and tokenizer.sha256 is not None and packed != tokenizer.sha256:
        message = f"{tokenizer.path} is not the tokenizer {facts.train.path} was packed with"
        yield Problem("data.tokenizer", message, "name that one, or pack again")


def _fim_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    if config.data.fim is None:
        return
    yield from facts.fim_problems
    for split in facts.train.parts or (facts.train,):
        if split.sequences is not None and split.eos_token_id is None:
            message = f"nothing says which token ends a document in {split.path}"
            yield Problem("data.fim", message, "pack it again, or leave data.fim out")


def _packing_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    """Shards of `concat` are what is there anyway, where nothing else is asked for."""
    wanted = config.data.packing
    for split in facts.train.parts or (facts.train,):
        if wanted != "concat" and split.packing not in (None, wanted):
            message = f"{split.path} was packed by {split.packing}, not by {wanted}"
            hint = f"albor data pretokenize ... --packing {wanted}, or leave data.packing out"
            yield Problem("data.packing", message, hint)


def _shuffle_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    """The trainer's requirements of data.shuffle: documents, checked before the start."""
    if config.data.shuffle != "documents":
        return
    field, seq_len = "data.shuffle", config.data.seq_len
    for split in facts.train.parts or (facts.train,):
        if split.sequences is None:
            continue
        if split.packing not in (None, "concat"):
            message = (
                f"{split.path} was packed by {split.packing}, and documents are joined by concat"
            )
            yield Problem(field, message, "pack it by concat, or leave data.shuffle out")
        if split.row_len is not None and split.row_len > seq_len and split.row_len % seq_len:
            message = (
                f"data.seq_len {seq_len:,} does not divide the {split.row_len:,} tokens of a row "
                f"in {split.path}, and what is left of each is missing where documents are joined"
            )
            yield Problem(field, message, f"use data.seq_len={split.row_len}, or a divisor")
        if split.eos_token_id is None and split.bos_token_id is None:
            message = f"nothing says which token stands between documents in {split.path}"
            yield Problem(field, message, "pack it again, or leave data.shuffle out")


def _device_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    if not facts.torch_available:
        yield Problem("", "torch is not installed here", "pip install 'albor[train]'")
    if facts.gpu_missing:
        why = f"cuda: {facts.gpu_idle or 'this machine has no GPU'}"
        fix = facts.gpu_remedy or "albor gpu says why"
        yield Problem("training.device", why, f"{fix}; training.device=cpu trains without")
    yield from _precision_problems(config, facts)
    yield from _rank_problems(config, facts)


def _precision_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    """Problems that train/ranks/placement.py and train/build.py would raise before the first
    step."""
    field, precision = "training.mixed_precision", config.training.mixed_precision
    idle = f": {facts.gpu_idle}" if facts.gpu_idle else ""
    if precision == "fp16" and facts.device == "cpu":
        hint = facts.gpu_remedy or "use training.mixed_precision=fp32 or bf16 on a CPU"
        yield Problem(field, f"fp16 needs a GPU for its loss scaling{idle}", hint)
    if precision == "fp8" and (obstacles := cost_of(config, facts).obstacles):
        message = f"fp8 cannot be used here: {'; '.join(obstacles)}{idle}"
        yield Problem(field, message, "use training.mixed_precision=bf16, or fix that")


def _rank_problems(config: Config, facts: PlanFacts) -> Iterator[Problem]:
    field, ranks = "training.distributed.world_size", config.training.distributed.world_size
    if ranks == 1:
        return
    if facts.torch_available and not facts.accelerate_available:
        message = f"{ranks} ranks need accelerate, which is not installed here"
        yield Problem(field, message, "pip install 'albor[train]'")
    if facts.device == "cuda" and facts.device_count is not None and facts.device_count < ranks:
        message = f"{ranks} ranks, but there {_are(facts.device_count)} here (albor gpu)"
        hint = f"use {field}={facts.device_count}: the global batch and the steps stay the same"
        yield Problem(field, message, hint)


def _are(gpus: int) -> str:
    return "is 1 GPU" if gpus == 1 else f"are {gpus} GPUs"


def _memory_problems(
    config: Config, facts: PlanFacts, need: MemoryEstimate | None, steps: PlannedSteps
) -> Iterator[Problem]:
    if need is None or not need.missing:
        return
    where = facts.device_name or facts.device
    message = (
        f"needs about {byte_size(need.total)}, {byte_size(need.missing)} more than "
        f"the {byte_size(need.capacity)} of {where}"
    )
    if steps.sequences and steps.steps_per_epoch == 0:  # the same steps do not help
        advice = "lower it as the data needs, and plan again"
    else:
        advice = _memory_advice(config, facts, need)
    yield Problem("data.batch_size", message, advice)


def _memory_advice(config: Config, facts: PlanFacts, need: MemoryEstimate) -> str:
    """The setting that makes it fit with the least loss of speed and equal training, found by
    trying all."""
    known = set(_precision_problems(config, facts))  # said by themselves
    fitting = [
        (words, changed)
        for words, changed in _smaller(config)
        if next(changed.problems(), None) is None
        and known.issuperset(_precision_problems(changed, facts))
        and not _needs(changed, facts).missing
    ]
    if not fitting:
        if need.fixed > (need.capacity or 0):
            fixed = byte_size(need.fixed)
            return f"weights and optimizer alone take {fixed}: a smaller model or a larger device"
        return "no smaller micro-batch fits: shorter sequences, a smaller model or a larger device"
    words, changed = max(fitting, key=lambda one: _relative_speed(one[1], facts))
    loses = need.step == "fused" and _needs(changed, facts).step != "fused"
    return f"{words} would fit{', without the fused step' if loses else ''}"


def _needs(config: Config, facts: PlanFacts) -> MemoryEstimate:
    found = cost_of(config, facts).memory
    assert found is not None, "advice is of what is known"
    return found


def _smaller(config: Config) -> Iterator[tuple[str, Config]]:
    """Configs that need less memory for the same steps, in words: smaller micro-batches of the same
    global batch, blocks recomputed, weights spread over the ranks.
    """
    training, data = config.training, config.data
    distributed = training.distributed
    layers = config.model.architecture.num_hidden_layers
    sequences = data.batch_size * training.gradient_accumulation
    sharded = distributed.world_size > 1 and distributed.strategy == "ddp"
    for batch in _divisors(sequences, up_to=data.batch_size):
        for segments in dict.fromkeys((training.activation_checkpointing, max(2, layers), True)):
            for strategy in (distributed.strategy, *(["fsdp"] if sharded else [])):
                words = []
                if strategy != distributed.strategy:
                    words.append(f"training.distributed.strategy={strategy}")
                if segments != training.activation_checkpointing:
                    words.append(f"training.activation_checkpointing={str(segments).lower()}")
                if batch != data.batch_size:
                    accumulated = f"training.gradient_accumulation={sequences // batch}"
                    words.append(f"data.batch_size={batch} with {accumulated}")
                changed = _with(
                    _with(config, "data", batch_size=batch),
                    "training",
                    gradient_accumulation=sequences // batch,
                    activation_checkpointing=segments,
                    distributed=distributed.model_copy(update={"strategy": strategy}),
                )
                if words:
                    yield " and ".join(words), changed


def _divisors(number: int, *, up_to: int) -> list[int]:
    """Divisors of `number`, the largest first; above 2^32 those below 2^16 and their cofactors."""
    small = [n for n in range(1, min(math.isqrt(number), 1 << 16) + 1) if number % n == 0]
    found = {*small, *(number // n for n in small)}
    return sorted((n for n in found if n <= up_to), reverse=True)


def _relative_speed(config: Config, facts: PlanFacts) -> float:
    """For ranking alone. Micro-batches of t tokens: t / (t + 900), fitted to docs/performance.md (B
    4, 16, 64); recomputing a forward is a third of the work again; the fused step was 1.05 to 1.25
    times as fast as the compiled one.
    """
    tokens = config.share().batch_size * config.data.seq_len
    speed = tokens / (tokens + 900)
    if config.training.activation_checkpointing:
        speed *= 0.75
    if config.training.distributed.strategy == "fsdp":
        speed *= 0.9
    return speed if cost_of(config, facts).obstacles else speed * 1.1


def _with(config: Config, section: str, **changes: object) -> Config:
    changed = getattr(config, section).model_copy(update=changes)
    return config.model_copy(update={section: changed})


def _disk_problems(config: Config, facts: PlanFacts, space: Disk) -> Iterator[Problem]:
    folder = config.training.output_dir
    if not facts.output_writable:
        yield Problem("training.output_dir", f"{folder} cannot be written", "choose another folder")
    elif (
        space.checkpoint and space.missing
    ):  # of a place that takes nothing, what is free says nothing
        message = (
            f"{space.copies} checkpoints of {byte_size(space.checkpoint)} need "
            f"{byte_size(space.total)}, {byte_size(space.missing)} more than is free at {folder}"
        )
        fits = space.copies - -(-space.missing // space.checkpoint) - 2
        keep = config.training.checkpoint
        if keep.keep_every is not None:
            hint = "leave out training.checkpoint.keep_every, or free space"
        elif fits >= 1:
            hint = f"training.checkpoint.keep={fits} would fit, or free space"
        else:
            hint = "free space, or set training.output_dir to a larger disk"
        yield Problem("training.checkpoint.keep", message, hint)
