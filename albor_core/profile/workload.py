"""The computation of a step of a config, as needed for figures of its speed; stored in the metadata
of its traces.

P num_parameters; B sequences of a micro-batch of one rank, T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from albor_core.config.shape import ModelShape
from albor_core.run.errors import ConfigError

if TYPE_CHECKING:
    from albor_core.config.config import Config

METADATA = "albor"
"""The key of a trace under which `Workload.to_json` stands."""
_VERSION = 1
_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "head_dim",
    "tie_word_embeddings",
    "model_type",
)


@dataclass(frozen=True)
class Workload:
    """A full step of one rank; None is unknown."""

    seq_len: int
    """T."""
    batch_size: int
    """B."""
    accumulation: int
    """Micro-batches of a step on one rank."""
    world_size: int
    precision: str
    """fp32, bf16, fp16 or fp8: of matrix products."""
    device_name: str | None = None
    """As its driver says; None: a CPU."""
    shape: ModelShape | None = None
    """None: of a model whose shape no config says."""
    recipe: str = ""
    """training.mode."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step of all ranks."""
        return self.seq_len * self.batch_size * self.accumulation * self.world_size

    def to_json(self) -> dict[str, Any]:
        sizes = {name: getattr(self.shape, name) for name in _SIZES} if self.shape else None
        return {"version": _VERSION, **asdict(self), "shape": sizes}


def workload_of(config: Config, device_name: str | None) -> Workload:
    """The workload of a full step of `config`, after its ramps."""
    share, architecture = config.share(), config.model.architecture
    return Workload(
        config.data.seq_len,
        share.batch_size,
        share.accumulation,
        share.world_size,
        config.training.mixed_precision,
        device_name,
        None if architecture is None else architecture.shape(),
        config.training.mode,
    )


def workload_from(said: object) -> Workload | None:
    """The workload that `Workload.to_json` wrote; None for anything else."""
    if not isinstance(said, Mapping) or said.get("version") != _VERSION:
        return None
    try:
        sizes = said["shape"]
        shape = None if sizes is None else ModelShape(**{name: sizes[name] for name in _SIZES})
        tokens, rows, micros = (int(said[n]) for n in ("seq_len", "batch_size", "accumulation"))
        device, precision = said["device_name"], str(said["precision"])
        ranks, recipe = int(said["world_size"]), str(said["recipe"])
    except (KeyError, TypeError, ValueError, ConfigError):  # of another version, or by hand
        return None
    if min(tokens, rows, micros, ranks) < 1:
        return None
    name = None if device is None else str(device)
    return Workload(tokens, rows, micros, ranks, precision, name, shape, recipe)
