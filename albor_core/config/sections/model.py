"""The section `model`: what is trained, from which weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from albor_core.config.hf_config import architecture_of, refusals
from albor_core.config.sections.architecture import ArchitectureConfig
from albor_core.config.sections.numbers import Deviation, Scale, ScaleOrZero
from albor_core.config.sections.section import CROSS_CHECK, Section
from albor_core.config.shape import SIZES
from albor_core.run.errors import Problem
from albor_core.run.rundir import read_json

QUIETEST = 0.01  # below it blocks that write alike are quieter than those that need not


class InitializationConfig(Section):
    """How random weights begin."""

    matrix: Scale = 1.0
    """Standard deviation of q, k, v, gate and up projections, times 0.64 / sqrt(hidden_size)."""
    residual: ScaleOrZero = 0.0
    """That of o and down projections, times 0.64 / sqrt(2 num_hidden_layers hidden_size), both
    halves of the residual stream getting the same; 0: just enough to be heard, else at least
    0.01."""

    mirrored: bool = True
    """Whether the halves of the residual stream begin alike and cancel in the head, so that the
    loss begins at the logarithm of the vocabulary; false: embeddings of standard deviation 0.02 and
    norms of 1, as in GPT-2."""
    embedding: Deviation | None = None
    """Standard deviation of the embedding, where nothing is mirrored; without it 0.02."""
    head: Deviation | None = None
    """That of a head of its own."""

    def problems(self) -> Iterator[Problem]:
        if 0 < self.residual < QUIETEST:
            message = f"must be 0 or at least {QUIETEST:g}, is {self.residual:g}"
            yield Problem("residual", message)
        for field in ("embedding", "head") if self.mirrored else ():
            if getattr(self, field) is not None:
                message = "is given, and a mirrored start has embedding and head of its own"
                yield Problem(field, message, "set model.initialization.mirrored to false")


class ModelConfig(Section):
    """What is trained."""

    path: Path = Path()
    """Directory of weights to start from: a checkpoint of a run, or what transformers saved of a
    Llama, Mistral, Qwen2 or Qwen3, in one safetensors file or many; "." starts from random
    weights."""
    mode: Literal["transformer"] = "transformer"
    """Kind of model."""
    architecture: ArchitectureConfig = Field(default=None)  # type: ignore[assignment]
    """Shape of the decoder; where `path` names weights, their config.json says it. A class of
    your own in training.mode may do without."""
    initialization: InitializationConfig = Field(default_factory=InitializationConfig)
    """Random weights; not used where `path` names others."""

    @model_validator(mode="before")
    @classmethod
    def _as_the_weights_are(cls, value: Any) -> Any:
        """What the architecture leaves out, from the config.json of the weights."""
        if not isinstance(value, Mapping):
            return value
        path, said = value.get("path"), value.get("architecture")
        if not isinstance(path, str | Path) or Path(path) == Path():
            return value
        if not isinstance(said, Mapping | None):
            return value
        names = {ArchitectureConfig.ALIASES.get(str(name), str(name)) for name in said or ()}
        about = read_json(Path(path) / "config.json")
        wrong = _unread(Path(path), about)
        if wrong and (said is None or names.issuperset(SIZES)):
            return value  # `unknown_shape`; or weights that are looked at where a run begins
        told = {} if wrong else architecture_of(about or {})
        if wrong := wrong or _lacking(Path(path), names.union(told)):
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": wrong})
        return {**value, "architecture": _joined(told, said or {}, names)}

    def unknown_shape(self) -> Iterator[Problem]:
        """Why the `architecture` is unknown; fields as in the whole config."""
        if self.path == Path():
            yield Problem("model.architecture", "is required")
            return
        for one in _unread(self.path, read_json(self.path / "config.json")):
            yield replace(one, field=f"model.{one.field}")


def _unread(folder: Path, about: Mapping[str, Any] | None) -> tuple[Problem, ...]:
    """Why `about`, the config.json of a folder of weights, says no shape."""
    if about is not None:
        return tuple(Problem("path", what, hint) for what, hint in refusals(about))
    hint = "name a directory of weights with a config.json, or give model.architecture whole"
    return (Problem("path", f"no config.json that can be read in {folder}", hint),)


def _lacking(folder: Path, known: Collection[str]) -> tuple[Problem, ...]:
    """What is needed for a shape and neither the config.json of the weights nor the config says."""
    lacking = ", ".join(name for name in SIZES if name not in known)
    what = f"{folder / 'config.json'} does not say {lacking}"
    hint = "repair it, or say it in model.architecture"
    return (Problem("path", what, hint),) if lacking else ()


def _joined(
    told: Mapping[str, Any], said: Mapping[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """What a config says, by `names`, and for the rest what the config.json of weights told. That
    the families differ is refused where the weights are looked at; here the window of theirs would
    be blamed for it.
    """
    is_foreign = said.get("model_type", told.get("model_type")) != told.get("model_type")
    left_out = {"sliding_window", "window_pattern"} if is_foreign else set()
    return {**{key: told[key] for key in told if key not in {*names, *left_out}}, **said}
