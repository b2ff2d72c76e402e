"""The shape of a LLaMA-style decoder and the arithmetic that follows from it; no torch needed.

One decoder with switches serves the families that transformers calls llama, mistral, qwen2 and
qwen3: width of a head, biases of q, k and v, norms of q and k, kind of rotation, window. Fields are
named as in transformers' configs. D hidden_size, L num_hidden_layers, H query heads, K key/value
heads, E head_dim, F intermediate_size, V vocab_size, T sequence length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from albor_core.run.errors import ConfigError, Problem

MOST_POSITIONS = 1 << 24  # each has a row of sines and cosines
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)

Family = Literal["llama", "mistral", "qwen2", "qwen3"]
FAMILIES: tuple[str, ...] = get_args(Family)
WINDOWS_BY_LAYER = ("qwen2", "qwen3")
"""Families whose config.json says of each layer whether it slides."""
RopeKind = Literal["linear", "llama3", "yarn"]
ROPE_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "linear": (("factor",), ("original_max_position_embeddings",)),
    "llama3": (
        ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
        (),
    ),
    "yarn": (
        ("factor", "original_max_position_embeddings"),
        ("attention_factor", "beta_fast", "beta_slow", "truncate"),
    ),
}
"""Of each kind of rotation beside the plain one: what it needs, and what it may say besides."""
_ALL_ROPE_FIELDS = sorted({name for lists in ROPE_FIELDS.values() for one in lists for name in one})


@dataclass(frozen=True)
class RopeScaling:
    """A rotation that reaches further than the plain one; names and formulas are transformers'."""

    rope_type: RopeKind
    factor: float = 1.0
    original_max_position_embeddings: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    truncate: bool | None = None

    def said(self) -> dict[str, float | int | bool]:
        """The entries beside `rope_type` in a config.json, with transformers' names."""
        needed, more = ROPE_FIELDS[self.rope_type]
        values = {name: getattr(self, name) for name in (*needed, *more)}
        return {name: value for name, value in values.items() if value is not None}

    def problems(self, prefix: str) -> list[Problem]:
        """Missing, meaningless or impossible settings; fields begin with `prefix`."""
        needed, more = ROPE_FIELDS[self.rope_type]
        found = [
            Problem(f"{prefix}.{name}", f"is required by rope_type {self.rope_type}")
            for name in needed
            if getattr(self, name) is None
        ]
        found += [
            Problem(f"{prefix}.{name}", f"means nothing to rope_type {self.rope_type}", "leave out")
            for name in _ALL_ROPE_FIELDS
            if name not in (*needed, *more) and getattr(self, name) is not None
        ]
        found += [
            Problem(f"{prefix}.{name}", f"must be above 0, is {value}")
            for name, value in self.said().items()
            if not isinstance(value, bool) and not value > 0
        ]
        if not found and self.factor < 1:
            found.append(Problem(f"{prefix}.factor", f"must be at least 1, is {self.factor:g}"))
        low, high = self.low_freq_factor, self.high_freq_factor
        if low is not None and high is not None and not high > low:
            message = f"must be above low_freq_factor {low:g}, is {high:g}"
            found.append(Problem(f"{prefix}.high_freq_factor", message))
        return found


@dataclass(frozen=True)
class ModelShape:
    """A decoder's shape. Raises ConfigError with every problem at once if there is no such one."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = True
    model_type: Family = "llama"
    """transformers' name of the family: it decides on biases and on norms of q and k."""
    head_dim: int = 0
    """E; of 0 becomes D / H."""
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    """Tokens that a position sees, itself included, in layers that slide; None: all before it."""
    window_pattern: str = ""
    """S for a layer that slides and L for one that sees all, over and over through the layers; as
    long as they are once it is here. "": all slide."""

    def __post_init__(self) -> None:
        if not self.head_dim and self.num_attention_heads > 0:
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)
        if problems := self._problems():
            raise ConfigError(
                f"no decoder has this shape: {problems[0]}",
                hint=problems[0].hint,
                problems=problems,
            )
        layers = self.num_hidden_layers
        whole = (self.window_pattern * layers)[:layers]
        object.__setattr__(self, "window_pattern", whole if "L" in whole else "")

    def _problems(self) -> tuple[Problem, ...]:
        found = [
            Problem(name, f"must be at least 1, is {getattr(self, name)}")
            for name in SIZES
            if getattr(self, name) < 1
        ]
        if self.model_type not in FAMILIES:
            hint = f"built are {', '.join(FAMILIES)}"
            found.append(Problem("model_type", f"{self.model_type!r} is not built", hint))
        found += [
            Problem(name, f"must be above 0, is {getattr(self, name)}")
            for name in ("rms_norm_eps", "rope_theta")
            if not getattr(self, name) > 0
        ]
        if self.max_position_embeddings > MOST_POSITIONS:
            what = f"must be at most {MOST_POSITIONS:,}, is {self.max_position_embeddings:,}"
            found.append(Problem("max_position_embeddings", what))
        return tuple(found or self._head_problems())

    def _head_problems(self) -> list[Problem]:
        found = []
        width, heads, kv_heads = (
            self.hidden_size,
            self.num_attention_heads,
            self.num_key_value_heads,
        )
        is_divided = self.head_dim == width // heads  # not said otherwise
        if is_divided and width % heads:
            found.append(
                Problem("hidden_size", f"{width} is not a multiple of num_attention_heads {heads}")
            )
        elif self.head_dim % 2:
            found.append(
                Problem(
                    "num_attention_heads" if is_divided else "head_dim",
                    f"head_dim {self.head_dim} is odd",
                    "rotary embedding turns pairs: choose heads that leave an even head_dim",
                )
            )
        if heads % kv_heads:
            found.append(
                Problem(
                    "num_key_value_heads",
                    f"{kv_heads} does not divide num_attention_heads {heads}",
                    f"use a divisor of {heads}",
                )
            )
        return found + self._switch_problems()

    def _switch_problems(self) -> list[Problem]:
        found = [] if self.rope_scaling is None else self.rope_scaling.problems("rope_scaling")
        if self.rope_scaling and self.rope_scaling.rope_type == "yarn" and self.rope_theta <= 1:
            found.append(Problem("rope_theta", f"must be above 1 for yarn, is {self.rope_theta}"))
        return [*found, *self._window_problems()]

    def _window_problems(self) -> Iterator[Problem]:
        window, pattern = self.sliding_window, self.window_pattern
        if window is not None and self.model_type == "llama":
            hint = "leave it out, or set model_type to mistral, qwen2 or qwen3"
            yield Problem("sliding_window", f"{window}, but model_type is llama", hint)
        elif window is not None and window < 1:
            yield Problem("sliding_window", f"must be at least 1, is {window}")
        if not pattern:
            return
        if strange := set(pattern) - {"S", "L"}:
            what = f"{pattern[:40]!r} has {min(strange)!r}, and layers are S or L"
            yield Problem("window_pattern", what, "SSSL, for example")
        elif window is None:
            hint = "set sliding_window, or leave it out"
            yield Problem("window_pattern", f"{pattern[:40]}, but there is no sliding_window", hint)
        elif self.model_type not in WINDOWS_BY_LAYER:
            hint = f"{' and '.join(WINDOWS_BY_LAYER)} have: leave it out"
            what = f"{pattern[:40]}, but {self.model_type} has no windows by layer"
            yield Problem("window_pattern", what, hint)
        elif "S" not in pattern[: self.num_hidden_layers]:
            hint = "leave sliding_window out where nothing slides"
            yield Problem("window_pattern", f"{pattern[:40]}: no layer slides", hint)

    @property
    def qkv_bias(self) -> bool:
        """Whether q, k and v have biases."""
        return self.model_type == "qwen2"

    @property
    def qk_norm(self) -> bool:
        """Whether each head of q and k is normed before it is turned."""
        return self.model_type == "qwen3"

    @property
    def query_width(self) -> int:
        """H E, what q makes and o reads: D in most."""
        return self.num_attention_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """K E."""
        return self.num_key_value_heads * self.head_dim

    def slides(self, layer: int) -> bool:
        """Whether a layer sees `sliding_window` tokens alone."""
        return self.sliding_window is not None and self.window_pattern[layer : layer + 1] != "L"

    def window(self, seq_len: int) -> int | None:
        """The window, where sequences of `seq_len` feel it in layers that slide."""
        felt = self.sliding_window is not None and self.sliding_window < seq_len
        return self.sliding_window if felt else None

    @property
    def num_block_matmul_parameters(self) -> int:
        """Weights of the seven matrices of one block: 2 D H E + 2 D K E + 3 D F."""
        mixed = 2 * self.query_width + 2 * self.key_width
        return self.hidden_size * (mixed + 3 * self.intermediate_size)

    @property
    def num_block_vector_parameters(self) -> int:
        """Numbers of one block that are in no matrix: two norms, biases, norms of q and k."""
        biases = self.query_width + 2 * self.key_width if self.qkv_bias else 0
        return 2 * self.hidden_size + biases + (2 * self.head_dim if self.qk_norm else 0)

    @property
    def num_matmul_parameters(self) -> int:
        """Weights a token is multiplied with: all matrices of all blocks and the head, tied or not.

        The look-up in `embed_tokens` multiplies nothing, and norms and biases are not matrices.
        """
        head = self.vocab_size * self.hidden_size
        return self.num_hidden_layers * self.num_block_matmul_parameters + head

    @property
    def num_parameters(self) -> int:
        """All trainable numbers; a tied head is counted once."""
        vectors = self.num_hidden_layers * self.num_block_vector_parameters + self.hidden_size
        untied_embedding = 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size
        return self.num_matmul_parameters + vectors + untied_embedding

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The state dict: shape by name, in the names that all four families share."""
        D, F, V = self.hidden_size, self.intermediate_size, self.vocab_size
        wide, narrow, E = self.query_width, self.key_width, self.head_dim
        block: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (wide, D),
            "self_attn.k_proj.weight": (narrow, D),
            "self_attn.v_proj.weight": (narrow, D),
            "self_attn.o_proj.weight": (D, wide),
            "mlp.gate_proj.weight": (F, D),
            "mlp.up_proj.weight": (F, D),
            "mlp.down_proj.weight": (D, F),
            "input_layernorm.weight": (D,),
            "post_attention_layernorm.weight": (D,),
        }
        if self.qkv_bias:
            block |= {
                "self_attn.q_proj.bias": (wide,),
                "self_attn.k_proj.bias": (narrow,),
                "self_attn.v_proj.bias": (narrow,),
            }
        if self.qk_norm:
            block |= {"self_attn.q_norm.weight": (E,), "self_attn.k_norm.weight": (E,)}
        return {
            "model.embed_tokens.weight": (V, D),
            **{
                f"model.layers.{layer}.{part}": shape
                for layer in range(self.num_hidden_layers)
                for part, shape in block.items()
            },
            "model.norm.weight": (D,),
            **({} if self.tie_word_embeddings else {"lm_head.weight": (V, D)}),
        }

    def flops_per_token(self, seq_len: int) -> int:
        """Training FLOPs per token: 6 N + 12 L H E T, with N = num_matmul_parameters.

        2 FLOPs per weight forward and 4 backward; attention scores and values are 4 H E T forward
        and 8 H E T backward per layer. T is counted in full, causal or not, and activation
        checkpointing adds nothing: the convention of PaLM (Chowdhery et al. 2022, arXiv:2204.02311,
        appendix B) and nanoGPT. A causal kernel does half of the attention term, so MFU by this
        formula flatters long sequences.
        """
        attention = 12 * self.num_hidden_layers * self.query_width * seq_len
        return 6 * self.num_matmul_parameters + attention
