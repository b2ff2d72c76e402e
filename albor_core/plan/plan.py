"""What a run would do and cost, and everything that would stop it: a pure function of config and
facts.

`problems` stop a run and come all at once; `warnings` are what a careful person would change;
`notes` are worth knowing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from albor_core.config.clock import Place
from albor_core.config.config import Config
from albor_core.config.sections.architecture import ArchitectureConfig
from albor_core.config.sections.training import TrainingConfig
from albor_core.plan.budgets import (
    Expenses,
    PlannedBudget,
    budget_notes,
    expenses,
    planned_budgets,
)
from albor_core.plan.curve import points, promise_of
from albor_core.plan.estimates import (
    LEAST_TOKENS_PER_PARAMETER,
    TOKENS_PER_PARAMETER,
    Disk,
    Duration,
    PlannedSteps,
    disk,
    duration,
    schedule,
)
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.memory import MemoryEstimate
from albor_core.plan.recipes.cost import Cost
from albor_core.plan.recipes.registry import cost_of
from albor_core.run.errors import Problem
from albor_core.run.values.quantity import byte_size, counted

SCHEMA = "albor.train.plan/1"
_WARMUP_SHARE = 0.10  # a run of ours never left its warm-up at 40 %
_WORTHWHILE_PASSES = 4  # repeated data teaches little beyond (Muennighoff et al., arXiv:2305.16264)


@dataclass(frozen=True)
class Plan:
    """The answer of `albor train plan`. A run may start when `problems` is empty."""

    config: Config
    facts: PlanFacts
    schedule: PlannedSteps
    cost: Cost
    disk: Disk
    duration: Duration | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    notes: tuple[str, ...]
    andon: tuple[str, ...]
    budgets: tuple[PlannedBudget, ...] = ()
    expenses: Expenses = field(default_factory=Expenses)

    @property
    def memory(self) -> MemoryEstimate | None:
        """None where only the run knows its model."""
        return self.cost.memory

    @property
    def parameters(self) -> int | None:
        """Trainable numbers."""
        return self.cost.parameters

    @property
    def max_steps(self) -> int | None:
        """Steps the run will take; None while the data is unknown and the config does not say."""
        return self.schedule.updates

    def data_facts(self) -> dict[str, Any]:
        """What data the run is made with, for run.json."""
        facts = self.facts
        tokenizer = None if facts.tokenizer is None else asdict(facts.tokenizer)
        return {
            "train": None if self.cost.shape is None else _split_json(facts.train),
            "val": None if facts.val is None or not self.cost.shape else _split_json(facts.val),
            "tokenizer": None
            if tokenizer is None
            else {**tokenizer, "path": str(tokenizer["path"])},
        }

    def _reading(self) -> dict[str, Any]:
        """How the rows of `data` are read; null where the run's own program reads."""
        data = self.config.data
        fim = None if data.fim is None else data.fim.model_dump(mode="json")
        told = {"shuffle": data.shuffle, "fim": fim, "document_mask": data.document_mask}
        return dict.fromkeys(told) if self.cost.shape is None else told

    def _learning_rate(self) -> list[list[float]] | None:
        promise = promise_of(self.config, self.schedule.max_steps)
        return None if promise is None else [[*point] for point in points(promise)]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON of schema albor.train.plan/1: bytes, seconds, null for unknown."""
        facts, shape = self.facts, self.cost.shape
        return {
            "schema": SCHEMA,
            "config": str(facts.config_path),
            "ok": not self.problems,
            "model": {
                "mode": self.config.training.mode,
                "parameters": self.cost.parameters,
                "flops_per_token": self.cost.flops_per_token,
                "precision": self.config.training.mixed_precision,
                "architecture": None if shape is None else asdict(shape),
            },
            "memory": _memory_json(self.memory, facts),
            "distributed": {
                **asdict(self.config.share()),
                "strategy": self.config.training.distributed.strategy,
            },
            "data": self.data_facts() | self._reading(),
            "training": {**asdict(self.schedule), "learning_rate": self._learning_rate()},
            "disk": {**asdict(self.disk), "total": self.disk.total},
            "device": {
                "kind": facts.device,
                "name": facts.device_name,
                "memory_bytes": facts.device_memory_bytes,
                "cpu_count": facts.cpu_count,
            },
            "code": {"commit": facts.git_commit, "dirty": facts.git_dirty},
            "time": None if self.duration is None else asdict(self.duration),
            "measured": None if facts.measured is None else asdict(facts.measured),
            "expenses": asdict(self.expenses),
            "problems": [asdict(problem) for problem in self.problems],
            "warnings": [asdict(warning) for warning in self.warnings],
            "notes": list(self.notes),
            "andon": list(self.andon),
            "budgets": [budget.to_json() for budget in self.budgets],
        }


def plan(
    config: Config,
    facts: PlanFacts,
    andon_notes: tuple[str, ...] = (),
    extra_problems: tuple[Problem, ...] = (),
    extra_notes: tuple[str, ...] = (),
    unit: int | None = None,
    place: Place | None = None,
    written: Callable[[str], str] | None = None,
) -> Plan:
    """Decide. `andon_notes`, `extra_problems`, `extra_notes` come from rooms above and are passed
    on; `unit` and `place` as in `schedule`; `written(field)`: where the config says it, as
    `file:line`.
    """
    steps = schedule(config, facts, unit, place)
    cost = cost_of(config, facts)
    space = disk(config, facts, steps.max_steps, cost.checkpoint)
    file = str(facts.config_path)
    problems = [
        *extra_problems,
        *facts.train.problems,
        *(facts.val.problems if facts.val is not None else ()),
        *_step_problems(config, steps),
        *_split_problems(config, facts.train, "data.train"),
        *(_split_problems(config, facts.val, "data.val") if facts.val is not None else ()),
        *_tokenizer_problems(config, facts),
        *_fim_problems(config, facts),
        *_packing_problems(config, facts),
        *_shuffle_problems(config, facts),
        *_device_problems(config, facts),
        *_memory_problems(config, facts, cost.memory, steps),
        *_disk_problems(config, facts, space),
    ]
    time = duration(config, facts, steps, cost.flops_per_token)
    spent = expenses(config, facts, time)
    budgets = planned_budgets(config, steps, time, spent, device=facts.device)
    return Plan(
        config=config,
        facts=facts,
        schedule=steps,
        cost=cost,
        disk=space,
        duration=time,
        problems=_placed(problems, file, written),
        warnings=_placed(_warnings(config, facts, steps, cost), file, written),
        notes=(
            *extra_notes,
            *_notes(config, facts, steps, cost),
            *budget_notes(budgets, steps.max_steps),
        ),
        andon=tuple(andon_notes),
        budgets=budgets,
        expenses=spent,
    )


def _placed(
    found: Iterable[Problem], file: str, written: Callable[[str], str] | None
) -> tuple[Problem, ...]:
    """Each with the place that it is written in; what names another file is right about that."""
    where = written or (lambda _: file)
    return tuple(
        replace(one, file=where(one.field)) if one.file in ("", file) else one for one in found
    )


def _memory_json(need: MemoryEstimate | None, facts: PlanFacts) -> dict[str, Any]:
    """Each figure, null where nothing is known of it."""
    if need is not None:
        return {**asdict(need), "total": need.total}
    unknown = dict.fromkeys((*(field.name for field in fields(MemoryEstimate)), "total"))
    return {**unknown, "capacity": facts.device_memory_bytes}


def _split_json(split: SplitFacts) -> dict[str, Any]:
    document = {key: value for key, value in vars(split).items() if key not in _NOT_TOLD}
    if split.parts:
        parts = [{"source": part.name, **_split_json(part)} for part in split.parts]
        document["sources"] = parts
    if split.sampled_bytes is not None:
        document |= {"sampled_bytes": split.sampled_bytes, "packing_seconds": split.packing_seconds}
    return {**document, "path": str(split.path)}


_SAMPLED = ("sampled_bytes", "packing_seconds")
_NOT_TOLD = ("problems", "parts", "name", "eos_token_id", *_SAMPLED)


def _step_problems(config: Config, steps: PlannedSteps) -> Iterator[Problem]:
    """That the data holds the steps, and the steps hold the warm-up."""
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
    """What the trainer would say of data.shuffle: documents as it begins."""
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
    """What train/ranks/placement.py and train/build.py would refuse before the first step."""
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
    if steps.sequences and steps.steps_per_epoch == 0:  # the same steps are no way out
        advice = "lower it as the data needs, and plan again"
    else:
        advice = _memory_advice(config, facts, need)
    yield Problem("data.batch_size", message, advice)


def _memory_advice(config: Config, facts: PlanFacts, need: MemoryEstimate) -> str:
    """What makes it fit and trains the same, at the least loss of speed, by trying all there is."""
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
    """Of `number`, the largest first; above 2^32 those below 2^16 and what they leave."""
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


def _warnings(
    config: Config, facts: PlanFacts, steps: PlannedSteps, cost: Cost
) -> Iterator[Problem]:
    training, end = config.training, steps.max_steps
    if facts.gpu_idle and facts.device == "cpu":
        message = f"the run will train on the CPU: {facts.gpu_idle}"
        yield Problem("training.device", message, facts.gpu_remedy)
    if end and _WARMUP_SHARE < steps.warmup_steps / end < 1:
        message = f"the warm-up takes {steps.warmup_steps / end:.0%} of the run, more than 10 %"
        hint = f"at most {end // 10:,}: the peak learning rate is what a run is there for"
        yield Problem("training.warmup_steps", message, hint)
    yield from _endless_ramps(training, end)
    yield from _too_few_tokens(steps, cost)
    is_ours = cost.shape is not None  # else its source may have data to validate on
    if steps.data_passes is not None and steps.data_passes > _WORTHWHILE_PASSES:
        message = f"every sequence is seen {steps.data_passes:.1f} times"
        yield Problem("training.max_steps", message, "beyond 4 passes more data helps more")
    yield from _read_often(config, facts, steps)
    yield from _data_warnings(config, facts, is_ours=is_ours)
    if is_ours and training.early_stopping_patience and not config.data.has_val:
        message = "early stopping needs a validation loss, and data.val is not set"
        yield Problem("training.early_stopping_patience", message, "set data.val")
    if config.data.has_val and end is not None and training.eval_interval > end:
        message = f"evaluated every {training.eval_interval:,} steps, but the run has {end:,}"
        yield Problem("training.eval_interval", message, "evaluated at the start and the end only")


def _endless_ramps(training: TrainingConfig, end: int | None) -> Iterator[Problem]:
    """Ramps that never come to their end."""
    whole = {"batch_ramp": "micro-batches", "seq_len_ramp": "rows"}
    for ramp, what in whole.items():
        stages = getattr(training, ramp)
        if stages and end and stages[-1].until >= end:
            message = f"lasts to step {stages[-1].until:,}, but the run has {end:,}"
            hint = f"an end before step {end:,}: none of its {what} is whole"
            yield Problem(f"training.{ramp}", message, hint)


def _read_often(config: Config, facts: PlanFacts, steps: PlannedSteps) -> Iterator[Problem]:
    """The sources of a mixture whose weight is more than they have sequences for."""
    if not facts.train.parts or steps.total_tokens is None:
        return
    stages, end = config.data.stages(), steps.total_tokens // config.data.seq_len
    ends = [*(first for first, _ in stages[1:]), end]
    for index, part in enumerate(facts.train.parts):
        drawn = sum(
            max(0, min(last, end) - first) * weights[part.name] / sum(weights.values())
            for (first, weights), last in zip(stages, ends, strict=True)
        )
        passes = drawn / (part.sequences_at(config.data.seq_len) or drawn or 1)
        if passes > _WORTHWHILE_PASSES:
            message = f"{part.name} is read {passes:.1f} times"
            hint = "beyond 4 passes more data helps more: lower its weight"
            yield Problem(f"data.mixture.{index}.weight", message, hint)


def _data_warnings(config: Config, facts: PlanFacts, *, is_ours: bool) -> Iterator[Problem]:
    for split in facts.train.parts or (facts.train,):
        row_len = split.row_len
        if row_len is not None and row_len > config.data.seq_len and row_len % config.data.seq_len:
            lost = row_len % config.data.seq_len / row_len
            message = f"rows of {row_len:,} tokens cut into {config.data.seq_len:,} lose {lost:.0%}"
            yield Problem("data.seq_len", message, "use a divisor of the row length")
        if is_ours and split.sequences is None and not split.problems:
            field = "data.mixture" if facts.train.parts else "data.train"
            message = f"{split.path} has no manifest: its sequences are unknown"
            yield Problem(field, message, f"albor data verify {split.path}")


def _too_few_tokens(steps: PlannedSteps, cost: Cost) -> Iterator[Problem]:
    """A model that sees too little to be worth its size: a rehearsal, or a slip in the steps."""
    if (parameters := cost.parameters) is None:
        return
    least = LEAST_TOKENS_PER_PARAMETER * parameters
    if steps.total_tokens is not None and steps.max_steps and steps.total_tokens < least:
        message = (
            f"{steps.total_tokens:,} tokens are {steps.total_tokens / parameters:.2g} per "
            f"parameter, fewer than {LEAST_TOKENS_PER_PARAMETER}"
        )
        needed = -(-least // steps.tokens_per_step)
        yield Problem("training.max_steps", message, f"{needed:,} steps would, or a smaller model")


def _notes(config: Config, facts: PlanFacts, steps: PlannedSteps, cost: Cost) -> Iterator[str]:
    if steps.total_tokens is not None and (parameters := cost.parameters) is not None:
        ratio = steps.total_tokens / parameters
        yield (
            f"{ratio:.2g} tokens per parameter; compute-optimal is about {TOKENS_PER_PARAMETER} "
            f"({parameters * TOKENS_PER_PARAMETER:,} tokens)"
        )
    if config.training.grad_clip is None and not config.training.stability.zclip:
        yield "gradients are not clipped (training.grad_clip, training.stability.zclip)"
    if not config.data.has_val and cost.shape is not None:
        yield "no validation data: the best checkpoint is unknown"
    if config.training.mixed_precision == "fp32" and not config.training.residual_in_fp32:
        yield "training.residual_in_fp32 has no effect where mixed_precision is fp32"
    is_known = cost.flops_per_token is not None  # else the class may have a form of it
    on_gpu = facts.device == "cuda" and config.training.mixed_precision == "bf16"
    if is_known and cost.obstacles and on_gpu:
        yield f"slower than it could be, the fused step is off: {'; '.join(cost.obstacles)}"
    yield from _without_effect(config, facts)
    if facts.measured is not None and facts.measured.capped:
        yield f"a GPU was held back by its power limit in {facts.measured.capped:.0%} of the probe"
    yield from _repository_notes(facts)


def _repository_notes(facts: PlanFacts) -> Iterator[str]:
    if facts.git_patched:
        yield "the repository has uncommitted changes: the run records them as a patch"
    if facts.git_untracked:
        yield (
            f"the repository has {facts.git_untracked:,} untracked paths; the run records the hash "
            "of code among them, and nothing of the rest"
        )


def _windows_without_effect(shape: ArchitectureConfig, seq_len: int) -> Iterator[str]:
    window, pattern = shape.sliding_window, shape.window_pattern
    if window is not None and window >= seq_len:
        yield f"a sliding_window of {window:,} changes nothing in rows of {seq_len:,}"
    if "L" in pattern and "L" not in pattern[: shape.num_hidden_layers]:
        yield f"no layer sees all: {counted(shape.num_hidden_layers, 'layer')} of {pattern}"


def _without_effect(config: Config, facts: PlanFacts) -> Iterator[str]:
    """What the config asks for and will not get, or not as it seems."""
    training, data = config.training, config.data
    if (shape := config.model.architecture) is not None:
        yield from _windows_without_effect(shape, data.seq_len)
    distributed, threads = training.distributed, training.num_threads
    if training.compile is True and facts.device == "cpu":
        yield "training.compile has no effect on a CPU"
    if config.monitoring.budgets.rate_per_gpu_hour is not None and facts.device == "cpu":
        yield "the rate of a GPU-hour has no effect on a CPU: what the run costs is not known"
    if distributed.strategy == "fsdp" and distributed.world_size == 1:
        yield "training.distributed.strategy fsdp has no effect with a world_size of 1"
    if data.val is not None and data.val.resolve() == data.train.resolve():
        yield (
            "data.val is data.train: the validation loss says nothing about data that the model "
            "has not seen"
        )
    if threads is not None and threads > facts.cpu_count:
        cores = counted(facts.cpu_count, "core")
        yield f"training.num_threads is {threads:,}, more than the {cores} here: slower, not faster"
