"""What a careful person would change of a run that may start, and what is worth knowing of it."""

from __future__ import annotations

from collections.abc import Iterator

from albor_core.config.config import Config
from albor_core.config.sections.architecture import ArchitectureConfig
from albor_core.config.sections.training import TrainingConfig
from albor_core.plan.estimates import (
    LEAST_TOKENS_PER_PARAMETER,
    TOKENS_PER_PARAMETER,
    PlannedSteps,
)
from albor_core.plan.facts import PlanFacts
from albor_core.plan.recipes.cost import Cost
from albor_core.run.errors import Problem
from albor_core.run.values.quantity import counted

_WARMUP_SHARE = 0.10  # a run of ours never left its warm-up at 40 %
_WORTHWHILE_PASSES = 4  # repeated data teaches little beyond (Muennighoff et al., arXiv:2305.16264)


def plan_warnings(
    config: Config, facts: PlanFacts, steps: PlannedSteps, cost: Cost
) -> Iterator[Problem]:
    training, end = config.training, steps.max_steps
    if facts.gpu_idle and facts.device == "cpu":
        message = f"the run will train on the CPU: {facts.gpu_idle}"
        yield Problem("training.device", message, facts.gpu_remedy)
    if end and _WARMUP_SHARE < steps.warmup_steps / end < 1:
        message = f"the warm-up takes {steps.warmup_steps / end:.0%} of the run, more than 10 %"
        hint = f"at most {end // 10:,}: the learning rate is below its peak until then"
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
        yield Problem(
            "training.max_steps", message, f"train {needed:,} steps, or use a smaller model"
        )


def plan_notes(config: Config, facts: PlanFacts, steps: PlannedSteps, cost: Cost) -> Iterator[str]:
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
    """Settings of the config that have no effect, or another effect than they seem to."""
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
