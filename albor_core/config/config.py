"""A whole training config, and what does not fit together between its sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import Field, ValidationError, field_validator

from albor_core.config.microbatches import MAX_RANKS, RankShare, share_of, world_sizes
from albor_core.config.recipes.registry import recipe_problems, settings_of, settings_type
from albor_core.config.sections.data import DataConfig
from albor_core.config.sections.guard import GuardConfig
from albor_core.config.sections.model import ModelConfig
from albor_core.config.sections.monitoring import MonitoringConfig
from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.config.sections.section import Section
from albor_core.config.sections.training import TrainingConfig
from albor_core.config.text.fields import FieldTree
from albor_core.config.text.problems import Places, field_problems
from albor_core.config.text.strict_yaml import YamlDocument
from albor_core.run.errors import Problem


class Config(Section):
    """Everything a training run needs to know."""

    model: ModelConfig = Field(default_factory=ModelConfig)
    """What is trained."""
    data: DataConfig
    """Token shards."""
    optimizer: OptimizerConfig
    """The optimizer and its learning rate."""
    training: TrainingConfig
    """The loop."""
    monitoring: MonitoringConfig = Field(default_factory=MonitoringConfig)
    """What is watched."""
    guard: GuardConfig = Field(default_factory=GuardConfig)
    """The supervisor."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Settings of the recipe that training.mode names: one of Albor refuses what it does not have,
    a class of your own gets the section as it is written here."""

    @field_validator("recipe", mode="before")
    @classmethod
    def _empty_is_none_set(cls, value: object) -> object:
        return {} if value is None else value

    def problems(self) -> Iterator[Problem]:
        yield from problems_between(dict(self), self.training.mode)

    def share(self) -> RankShare:
        """The share of each rank in a step."""
        size, accumulation = self.data.batch_size, self.training.gradient_accumulation
        found = share_of(size, accumulation, self.training.distributed.world_size)
        assert found is not None, "refused by `problems`"
        return found

    @property
    def sequences_per_step(self) -> int:
        """Sequences per step of all ranks together."""
        return self.data.batch_size * self.training.gradient_accumulation

    def on_ranks(self, world_size: int) -> Config:
        """The same run on so many ranks; `problems` says whether it can be."""
        distributed = self.training.distributed.model_copy(update={"world_size": world_size})
        training = self.training.model_copy(update={"distributed": distributed})
        return self.model_copy(update={"training": training})

    def fitting_ranks(self, near: int) -> list[int]:
        """The two numbers of ranks that the run could go on with nearest to `near`, nearest first;
        fewer where there are fewer.
        """
        nearest = sorted(range(1, MAX_RANKS + 1), key=lambda n: abs(n - near))
        fits = (n for n in nearest if next(self.on_ranks(n).problems(), None) is None)
        return [*islice(fits, 2)]

    def resolved(self) -> dict[str, Any]:
        """Every field with every default, as plain JSON, but for what a recipe does without."""
        found = self.model_dump(mode="json")
        found["recipe"] = settings_of(self.training.mode, self.recipe)
        if self.model.architecture is None:
            del found["model"]["architecture"]
        if "train" not in self.data.model_fields_set:
            del found["data"]["train"]
        return found


def problems_between(sections: Mapping[str, Any], mode: str) -> Iterator[Problem]:
    """What does not fit together among sections that are right by themselves; some may be away.
    `mode`: training.mode.
    """
    data, training = sections.get("data"), sections.get("training")
    yield from recipe_problems(mode, sections)
    yield from _settings_problems(settings_type(mode), sections.get("recipe") or {})
    if training and (optimizer := sections.get("optimizer")):
        yield from _update_problems(optimizer, training)
    if data and training:
        yield from _sample_problems(data, training)
        yield from _sharing_problems(data, training)
        yield from _ramp_problems(data, training)


def _settings_problems(settings: type[Section] | None, given: Mapping[str, Any]) -> list[Problem]:
    if settings is None:
        return []
    try:
        settings.model_validate(dict(given))
    except ValidationError as error:
        # where they stand is said by the caller, as of all sections
        nowhere = Places(YamlDocument(None), {}, "", FieldTree(Config, settings))
        return field_problems(error, nowhere, above=("recipe",))
    return []


def _sample_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    if training.sample_prompts and data.tokenizer is None:
        message = "samples need a tokenizer, and data.tokenizer is not set"
        yield Problem("training.sample_prompts", message, "set data.tokenizer")


def _update_problems(optimizer: OptimizerConfig, training: TrainingConfig) -> Iterator[Problem]:
    if optimizer.muon_beta2 is not None and training.distributed.is_sharded:
        message = "NorMuon needs matrices whole, and training.distributed.strategy is fsdp"
        yield Problem("optimizer.muon_beta2", message, "leave it out, or let the strategy be ddp")


def _ramp_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    size, ranks = data.batch_size, training.distributed.world_size
    for stage in training.batch_ramp:
        if share_of(size, stage.gradient_accumulation, ranks) is None:
            sequences = size * stage.gradient_accumulation
            message = f"{ranks} ranks cannot share a batch of {sequences} sequences evenly"
            yield Problem("training.batch_ramp", message, "begin with more micro-batches")
    for one in training.seq_len_ramp:
        if one.seq_len >= data.seq_len or data.seq_len % one.seq_len:
            message = f"{one.seq_len} is not a divisor of data.seq_len {data.seq_len} below it"
            yield Problem("training.seq_len_ramp", message, f"{data.seq_len // 2}, for example")
    for field in ("document_mask", "fim") if training.seq_len_ramp else ():
        if getattr(data, field):
            message = "cannot be combined with training.seq_len_ramp"
            yield Problem(f"data.{field}", message, "leave one of them out")


def _sharing_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    size, accumulation = data.batch_size, training.gradient_accumulation
    ranks = training.distributed.world_size
    share = share_of(size, accumulation, ranks)
    if share is None:
        fits = world_sizes(size, accumulation, ranks)
        message = (
            f"{ranks} ranks cannot share a global batch of {size * accumulation} sequences "
            f"(data.batch_size {size} x training.gradient_accumulation {accumulation}) evenly"
        )
        hint = f"{fits[-1]} would, or training.gradient_accumulation={ranks}"
        yield Problem("training.distributed.world_size", message, hint)
        return
    splits = share.batch_size % 2 == 0 or share.accumulation > 1
    if training.stability.noise_scale_interval is not None and not splits:
        message = "the gradient noise scale needs a batch that can be halved"
        hint = "use an even data.batch_size, or gradient_accumulation"
        yield Problem("training.stability.noise_scale_interval", message, hint)
