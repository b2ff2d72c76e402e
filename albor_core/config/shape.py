"""The shape of a LLaMA-style decoder and the arithmetic that follows from it; no torch needed.

Field names are those of transformers.LlamaConfig. D hidden_size, L num_hidden_layers, H query
heads, K key/value heads, E head_dim = D / H, F intermediate_size, V vocab_size, T sequence length.
"""

from __future__ import annotations

from dataclasses import dataclass

from albor_core.run.errors import ConfigError, Problem

_COUNTS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)


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

    def __post_init__(self) -> None:
        if problems := self._problems():
            raise ConfigError(
                f"no decoder has this shape: {problems[0]}",
                hint=problems[0].hint,
                problems=problems,
            )

    def _problems(self) -> tuple[Problem, ...]:
        found = [
            Problem(name, f"must be at least 1, is {getattr(self, name)}")
            for name in _COUNTS
            if getattr(self, name) < 1
        ]
        found += [
            Problem(name, f"must be above 0, is {getattr(self, name)}")
            for name in ("rms_norm_eps", "rope_theta")
            if not getattr(self, name) > 0
        ]
        return tuple(found or self._head_problems())

    def _head_problems(self) -> list[Problem]:
        found = []
        width, heads, kv_heads = (
            self.hidden_size,
            self.num_attention_heads,
            self.num_key_value_heads,
        )
        if width % heads:
            found.append(
                Problem("hidden_size", f"{width} is not a multiple of num_attention_heads {heads}")
            )
        elif self.head_dim % 2:
            found.append(
                Problem(
                    "num_attention_heads",
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
        return found

    @property
    def head_dim(self) -> int:
        """E = D / H."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_block_matmul_parameters(self) -> int:
        """Weights of the seven matrices of one block: 2 D^2 + 2 D K E + 3 D F."""
        width, kv_width = self.hidden_size, self.num_key_value_heads * self.head_dim
        return width * (2 * width + 2 * kv_width + 3 * self.intermediate_size)

    @property
    def num_matmul_parameters(self) -> int:
        """Weights a token is multiplied with: all matrices of all blocks and the head, tied or not.

        The look-up in `embed_tokens` multiplies nothing and the norms' D (2 L + 1) weights are not
        matrices.
        """
        head = self.vocab_size * self.hidden_size
        return self.num_hidden_layers * self.num_block_matmul_parameters + head

    @property
    def num_parameters(self) -> int:
        """All trainable numbers; a tied head is counted once."""
        norms = (2 * self.num_hidden_layers + 1) * self.hidden_size
        untied_embedding = 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size
        return self.num_matmul_parameters + norms + untied_embedding

    @property
    def num_tensors(self) -> int:
        """Entries of the state dict: nine a block, the embedding, the last norm, an untied head."""
        return len(self.tensor_shapes())

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The state dict: shape by name, in HF Llama's names."""
        D, F, V = self.hidden_size, self.intermediate_size, self.vocab_size
        kv_width = self.num_key_value_heads * self.head_dim
        block = {
            "self_attn.q_proj": (D, D),
            "self_attn.k_proj": (kv_width, D),
            "self_attn.v_proj": (kv_width, D),
            "self_attn.o_proj": (D, D),
            "mlp.gate_proj": (F, D),
            "mlp.up_proj": (F, D),
            "mlp.down_proj": (D, F),
            "input_layernorm": (D,),
            "post_attention_layernorm": (D,),
        }
        return {
            "model.embed_tokens.weight": (V, D),
            **{
                f"model.layers.{layer}.{part}.weight": shape
                for layer in range(self.num_hidden_layers)
                for part, shape in block.items()
            },
            "model.norm.weight": (D,),
            **({} if self.tie_word_embeddings else {"lm_head.weight": (V, D)}),
        }

    def flops_per_token(self, seq_len: int) -> int:
        """Training FLOPs per token: 6 N + 12 L D T, with N = num_matmul_parameters.

        2 FLOPs per weight forward and 4 backward; attention scores and values are 4 D T forward and
        8 D T backward per layer. T is counted in full, causal or not, and activation checkpointing
        adds nothing: the convention of PaLM (Chowdhery et al. 2022, arXiv:2204.02311, appendix B)
        and nanoGPT. A causal kernel does half of the attention term, so MFU by this formula
        flatters long sequences.
        """
        attention = 12 * self.num_hidden_layers * self.hidden_size * seq_len
        return 6 * self.num_matmul_parameters + attention
