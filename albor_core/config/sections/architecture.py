"""The section `model.architecture`: the shape of a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from albor_core.config.hf_config import MOST_LAYERS
from albor_core.config.sections.numbers import REAL, Count, Epsilon, Layers
from albor_core.config.sections.section import CROSS_CHECK, Section
from albor_core.config.shape import Family, ModelShape, RopeKind, RopeScaling
from albor_core.run.errors import ConfigError, Problem


class RopeScalingConfig(Section):
    """A rotation that reaches further than the plain one; names are those of transformers."""

    rope_type: RopeKind
    """`linear` slows all wavelengths down, `llama3` those that are long, `yarn` by a ramp."""
    factor: Annotated[float, Field(ge=1, le=1e6), REAL]
    """How much longer a context is than the first one."""
    original_max_position_embeddings: Count | None = None
    """Length of the first context; `llama3` and `yarn` need it."""
    low_freq_factor: Annotated[float, Field(gt=0, le=1e6), REAL] | None = None
    """Turns in the first context up to which `llama3` slows down in full."""
    high_freq_factor: Annotated[float, Field(gt=0, le=1e6), REAL] | None = None
    """Turns in the first context from which `llama3` slows nothing down."""
    attention_factor: Annotated[float, Field(gt=0, le=1e3), REAL] | None = None
    """What `yarn` multiplies cos and sin by; without it 0.1 ln(factor) + 1."""
    beta_fast: Annotated[float, Field(gt=0, le=1e6), REAL] | None = None
    """Turns from which `yarn` slows nothing down; without it 32."""
    beta_slow: Annotated[float, Field(gt=0, le=1e6), REAL] | None = None
    """Turns up to which `yarn` slows down in full; without it 1."""
    truncate: bool | None = None
    """Whether `yarn` rounds the ends of its ramp to whole pairs; without it true."""

    def scaling(self) -> RopeScaling:
        return RopeScaling(**self.model_dump())


BIASES_ON: Final = (True, "true", "yes", "on")
BIASES_OFF: Final = (False, "false", "no", "off")


class ArchitectureConfig(Section):
    """Shape of a decoder; names are those of transformers' configs. num_layers, num_heads,
    num_kv_heads and max_seq_length are read as well. What it leaves out comes from the config.json
    in model.path, if that names weights. There are no biases but those of qwen2 on q, k and v:
    use_bias or attention_bias true says so there; elsewhere, as mlp_bias, they may say false."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "max_seq_length": "max_position_embeddings",
    }
    BIASES: ClassVar[tuple[str, ...]] = ("use_bias", "attention_bias", "mlp_bias")

    hidden_size: Count
    """Width of the residual stream."""
    num_hidden_layers: Layers
    """Decoder blocks."""
    num_attention_heads: Count
    """Query heads; divides hidden_size."""
    num_key_value_heads: Count
    """Key/value heads (grouped-query attention); divides num_attention_heads."""
    intermediate_size: Count
    """Width of the SwiGLU feed-forward layer."""
    vocab_size: Count
    """Rows of the embedding; at least the tokenizer's vocabulary."""
    max_position_embeddings: Count
    """Longest sequence the model is meant for."""
    rms_norm_eps: Epsilon = 1e-5
    """Added to the mean square in RMSNorm."""
    rope_theta: Annotated[float, Field(ge=1, le=1e12), REAL] = 10000.0
    """Base of the rotary embedding's wavelengths."""
    tie_word_embeddings: bool = True
    """Whether the output head shares the embedding's weights."""
    model_type: Family = "llama"
    """Family, in transformers' name: `qwen2` has biases on q, k and v, `qwen3` norms each head of q
    and k; `mistral` may have a sliding_window, `qwen2` and `qwen3` one in some layers."""
    head_dim: Count | None = None
    """Width of a head; without it hidden_size / num_attention_heads."""
    rope_scaling: RopeScalingConfig | None = None
    """Rotation for contexts longer than the first one; without it the plain one."""
    sliding_window: Count | None = None
    """Tokens that a position sees, itself included; without it all before it."""
    window_pattern: Annotated[str, Field(max_length=MOST_LAYERS)] = ""
    """Which layers of a `qwen2` or `qwen3` see sliding_window tokens (S) and which all (L), again
    and again: with SSSL every fourth sees all. Without it all slide."""

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, value: Any) -> Any:
        """Fields under the names that other configs have for them, and what may only be off."""
        if not isinstance(value, Mapping):
            return value
        found, wrong = dict(value), []
        for alias, name in cls.ALIASES.items():
            if alias not in found:
                continue
            said = found.pop(alias)
            if found.setdefault(name, said) != said:
                message = f"is {said}, but {name} is {found[name]}"
                wrong.append(Problem(alias, message, "they are the same setting: keep one"))
        for name in cls.BIASES:
            wrong += _untrue_bias(name, found.pop(name, None), found.get("model_type"))
        if wrong:
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": tuple(wrong)})
        return found

    def shape(self) -> ModelShape:
        """The same numbers with the arithmetic that follows from them."""
        scaling = None if self.rope_scaling is None else self.rope_scaling.scaling()
        told = self.model_dump(exclude={"rope_scaling", "head_dim"})
        return ModelShape(**told, head_dim=self.head_dim or 0, rope_scaling=scaling)

    def problems(self) -> Iterator[Problem]:
        try:
            self.shape()
        except ConfigError as error:
            yield from error.problems


def _untrue_bias(name: str, said: object, family: object) -> Iterator[Problem]:
    """A config's word on biases that is not so in its family: qwen2 has them on q, k and v."""
    if said is None:
        return
    has, is_on = family == "qwen2", said not in BIASES_OFF
    if is_on and said not in BIASES_ON:
        yield Problem(name, f"must be true or false, is {said!r}", "leave it out")
    elif name == "mlp_bias":
        if is_on:
            what = "must be false: no family here has biases in its feed-forward layers"
            yield Problem(name, what, "leave it out, or say false")
    elif is_on and not has:
        what = f"must be false: a {family or 'llama'} has no biases here"
        yield Problem(name, what, "model_type: qwen2 has them on q, k and v; or say false")
    elif has and not is_on:
        what = "must be true: qwen2 has biases on q, k and v"
        yield Problem(name, what, "leave it out, or choose model_type: llama, which has none")
