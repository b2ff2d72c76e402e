"""The whole decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU; HF's names.

One decoder for the families of config/shape.py, told apart by five switches: head_dim, biases of q,
k and v, norms of q and k, kind of rotation, window. The state dict and `LlamaConfig.to_hf()` are
what transformers' classes read; nothing is converted. B batch, T time, D hidden_size, H query
heads, K key/value heads, E head_dim, F intermediate_size, V vocab_size.

Numbers: under autocast matrix products are in its dtype; master weights, residual stream, norm
statistics, rotation and loss stay fp32 (a stream in bf16 loses what small blocks add:
docs/log/step.md). In fp32 the logits are those of transformers to rounding.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albor_core.config.hf_config import hf_config
from albor_core.config.shape import ModelShape
from albor_core.kernels.ops.norms.rms_norm import rms_norm
from albor_core.model.head import mean_nats, shifted
from albor_core.model.rotary import Rotary, rotate
from albor_core.model.visible_keys import seen_by_layers

SCORED_BYTES = 1 << 28  # logits and what is made of them at one time, where nothing is trained
EMBEDDING_STD, HEAD_GAIN, LOGIT_STD = 0.02, 2.0, 0.16  # see init_weights
HALF_JITTER = 1 / 256  # of what writes alike: less than a first step, and no rounding's luck
BLOCKS_RMS = 0.22  # of what 2 L blocks add to the residual stream, all matrices at scale 1


@dataclass(frozen=True)
class LlamaConfig(ModelShape):
    """A ModelShape and how its weights start."""

    initializer_range: float | None = None
    """Standard deviation of every matrix, embeddings included; None derives them (`init_std`)."""
    matrix_scale: float = 1.0
    """Of the matrices that read the residual stream."""
    residual_scale: float = 0.0
    """Of o_proj and down_proj, which then write to both halves of it alike; 0: barely anything."""
    embedding_std: float | None = None
    """Standard deviation of the embedding, and of the head unless `head_std` says it; either leaves
    nothing mirrored."""
    head_std: float | None = None
    mirrored: bool = True
    """Whether logits begin near 0 since the halves of the residual stream cancel in the head."""
    residual_in_fp32: bool = True
    """Under autocast; otherwise in autocast's dtype."""

    def to_hf(
        self,
        *,
        dtype: str = "float32",
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """config.json for transformers, as `hf_config`."""
        return hf_config(
            self,
            initializer_range=self.initializer_range or init_std(self)["matrix"],
            dtype=dtype,
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            about=about,
        )


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x; the result has the dtype of the matrix products that read it, and is rounded
        once."""
        kind = x.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return rms_norm(x, self.weight, self.eps, half)


class Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        width, wide, narrow = config.hidden_size, config.query_width, config.key_width
        self.q_proj = nn.Linear(width, wide, bias=config.qkv_bias)
        self.k_proj = nn.Linear(width, narrow, bias=config.qkv_bias)
        self.v_proj = nn.Linear(width, narrow, bias=config.qkv_bias)
        self.o_proj = nn.Linear(wide, width, bias=False)
        normed, eps = config.qk_norm, config.rms_norm_eps
        self.q_norm = RMSNorm(config.head_dim, eps) if normed else None
        self.k_norm = RMSNorm(config.head_dim, eps) if normed else None

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (B, H, T, E) and k (B, K, T, E), normed and turned, and v (B, K, T, E)."""
        B, T, _ = x.shape
        heads = (B, T, -1, self.head_dim)
        q, k = self.q_proj(x).view(heads), self.k_proj(x).view(heads)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q.transpose(1, 2), cos, sin), rotate(k.transpose(1, 2), cos, sin)
        return q, k, self.v_proj(x).view(heads).transpose(1, 2)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None = None) -> Tensor:
        """`seen` (T, T), or (B, 1, T, T): the keys that a query sees, where they are not all up to
        it.
        """
        B, T, _ = x.shape
        y = self.attend(*self.heads(x, cos, sin), seen)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(B, T, -1))
        return out

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        """(B, H, T, E)."""
        is_half = q.dtype in (torch.bfloat16, torch.float16)
        # no fp32 kernel on a GPU shares kv heads: it would build T x T
        if self.groups > 1 and not is_half:
            k, v = (t.repeat_interleave(self.groups, dim=1) for t in (k, v))
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=seen,
            is_causal=seen is None,
            enable_gqa=self.groups > 1 and is_half,
        )


class SwiGLU(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    ran_eagerly = False
    """Set by a forward that no compiled graph had replaced: a compiler gives up in silence."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, seen: Tensor | None = None) -> Tensor:
        if not torch.compiler.is_compiling():
            self.ran_eagerly = True
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, seen)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


def cut_in(segments: int, layers: int) -> list[slice]:
    """Slices of consecutive layers, as equal as possible."""
    starts = [layers * i // segments for i in range(segments + 1)] if segments else [0]
    return [slice(begin, end) for begin, end in pairwise(starts)]


class TokenEmbedding(nn.Embedding):
    """One that draws nothing on the meta device: there torch draws it, alone of all modules, by a
    way through torch._dynamo, whose import takes a start 1.4 s.
    """

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class Decoder(nn.Module):
    """Tokens to final hidden states: everything but the head."""

    def __init__(self, config: LlamaConfig, *, segments: int = 0) -> None:
        super().__init__()
        self.is_wide = config.residual_in_fp32
        self.segments = cut_in(segments, config.num_hidden_layers)
        self.shape: ModelShape = config
        self.embed_tokens = TokenEmbedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config)

    def embed(self, input_ids: Tensor) -> Tensor:
        """The embeddings, with which the residual stream begins."""
        x: Tensor = self.embed_tokens(input_ids)
        if torch.is_autocast_enabled(kind := x.device.type):  # sharded, it is gathered in half
            x = x.float() if self.is_wide else x.to(torch.get_autocast_dtype(kind))
        return x

    def forward(self, input_ids: Tensor, document: Tensor | None = None) -> Tensor:
        x = self.embed(input_ids)
        T = input_ids.shape[1]
        cos, sin = self.rotary_emb(T)
        seen = seen_by_layers(self.shape, T, x.device, document)
        if self.segments and self.training and torch.is_grad_enabled():
            for part in self.segments:
                x = checkpoint(
                    *(self._through, part, x, cos, sin, seen),
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
        else:
            for layer, mine in zip(self.layers, seen, strict=True):
                x = layer(x, cos, sin, mine)
        out: Tensor = self.norm(x)
        return out

    def _through(
        self, part: slice, x: Tensor, cos: Tensor, sin: Tensor, seen: list[Tensor | None]
    ) -> Tensor:
        """Run several consecutive blocks. The caller also keeps their input, as activation
        checkpointing has to."""
        for layer, mine in zip(list(self.layers)[part], seen[part], strict=True):
            x = layer(x, cos, sin, mine)
        return x


class Llama(nn.Module):
    """A LLaMA-style language model; `init_weights` gives it its start."""

    def __init__(self, config: LlamaConfig, *, segments: int = 0) -> None:
        """`segments`: parts of blocks that a backward computes again; 0: it keeps all."""
        super().__init__()
        self.config = config
        self.model = Decoder(config, segments=segments)
        self.lm_head = (
            None
            if config.tie_word_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )

    @property
    def head_weight(self) -> Tensor:
        """(V, D) whose rows score tokens: the embedding's, where it is tied."""
        return (self.model.embed_tokens if self.lm_head is None else self.lm_head).weight

    def logits(self, h: Tensor) -> Tensor:
        """(..., V) from hidden states behind the last norm."""
        return F.linear(h, self.head_weight)

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        document: Tensor | None = None,
        *,
        score: Callable[[Tensor, Tensor], Any] | None = None,
    ) -> tuple[Tensor | None, Any]:
        """(logits (B, T, V), None); with `score` (None, what that makes of hidden states (B, T, D)
        behind the last norm and of the head (V, D)): what is trained for, the model does not know.

        With labels it is measured, which keeps no logits: (None, mean nats per counted token), as
        `mean_nats`. input_ids (B, T) int64. labels (B, T) int64, aligned with input_ids and shifted
        as transformers does: position t is scored on labels[:, t + 1]. document (B, T), equal
        within a document: a token sees those of its own alone. ValueError if T exceeds
        max_position_embeddings.
        """
        h = self.model(input_ids) if document is None else self.model(input_ids, document)
        if score is not None:
            return None, score(h, self.head_weight)
        if labels is None:
            return self.logits(h), None
        pieces = None if self.training else SCORED_BYTES
        return None, mean_nats(h, self.head_weight, shifted(labels), pieces)


def init_std(config: LlamaConfig) -> dict[str, float]:
    """Standard deviations at the start, by role; `initializer_range` overrides all of them.

    "matrix", those that read the residual stream: `matrix_scale` x 0.64 / sqrt(D), at scale 1 the
    usual 0.02 at D = 1024, so that activations do not depend on the width. "residual", those that
    write to it (o_proj, down_proj): `residual_scale` times that, smaller by sqrt(2 L), so that the
    sum of 2 L blocks does not grow with depth (Radford et al. 2019, GPT-2, section 2.3); at scale 0
    what moves logits by LOGIT_STD. "embedding": also the head.
    """
    fixed = config.initializer_range
    if fixed is not None:
        return dict.fromkeys(("matrix", "residual", "embedding"), fixed)
    D, L = config.hidden_size, config.num_hidden_layers
    unit = 0.64 / math.sqrt(D)
    added = BLOCKS_RMS * config.matrix_scale**2  # SwiGLU, most of it, has two of them in a product
    quiet = LOGIT_STD / (HEAD_GAIN * math.sqrt(D) * added)
    return {
        "matrix": config.matrix_scale * unit,
        "residual": (config.residual_scale or quiet) * unit / math.sqrt(2 * L),
        "embedding": config.embedding_std or EMBEDDING_STD,
    }


def final_norm(config: LlamaConfig) -> Tensor:
    """(D,) the weight that the final norm starts with: 1 unless the start is mirrored, else a
    gain on the first half of the channels and minus that on the second. Over quiet blocks the gain
    is HEAD_GAIN; over loud ones it would make logits deviate by 0.64 at any width if nothing
    cancelled, since a narrow model learns slower with a gain of 1.
    """
    weight, D = torch.ones(config.hidden_size, device="cpu"), config.hidden_size
    if is_mirrored(config):
        loud = 0.64 / (EMBEDDING_STD * math.sqrt(D))
        weight *= loud if config.residual_scale else HEAD_GAIN
        weight[D // 2 :] *= -1
    return weight


def is_mirrored(config: LlamaConfig) -> bool:
    """Whether a start makes the halves of the residual stream cancel; see `init_weights`."""
    own = config.initializer_range, config.embedding_std, config.head_std
    return config.mirrored and all(std is None for std in own)


def init_weights(model: Llama, seed: int) -> None:
    """Fill every parameter from `seed` alone: the same bits on every device.

    Each tensor has its own stream (seed and name), drawn on the CPU in fp32: adding a layer changes
    no other.

    A tied embedding has two tasks. Where blocks read it, its rows are to be large, or a warm-up
    moves all of them together before they tell tokens apart; where it is the head, logits are to
    start near 0, so that the loss starts at ln V. So its rows (and an untied head's) hold each
    number twice, and the final norm counts the second half negative: what a token brings along
    cancels. What blocks write is either quiet, and a logit normal with variance LOGIT_STD^2, the
    loss ln V + LOGIT_STD^2 / 2; or as loud as `residual_scale` says, but alike for both halves up
    to HALF_JITTER, and logits are nearly 0. The halves part with the first step: their gradients
    have opposite signs. Without `mirrored` nothing is repeated and the final norm is 1, as in
    GPT-2. docs/concepts/starts.md tells the two starts, docs/log/step.md what they reach.
    """
    config = model.config
    stds, half = init_std(config), config.hidden_size // 2
    mirrors = is_mirrored(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                is_last, is_bias = name == "model.norm.weight", name.endswith(".bias")
                plain = torch.zeros(()) if is_bias else torch.ones(())
                parameter.copy_(final_norm(config) if is_last else plain)
                continue
            role = role_of(name)
            draw = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
            is_head = name == "lm_head.weight"
            std = config.head_std if is_head and config.head_std is not None else stds[role]
            draw.normal_(generator=_stream(seed, name)).mul_(std)
            if role == "embedding" and mirrors:
                draw[:, half:] = draw[:, :half]
            if role == "residual" and mirrors and config.residual_scale:
                repeat_rows(draw)
            parameter.copy_(draw)


def repeat_rows(draw: Tensor) -> None:
    """Make what writes to the second half of the stream that of the first, but for HALF_JITTER."""
    first, second = draw.chunk(2)
    second.mul_(HALF_JITTER).add_(first)


def _stream(seed: int, name: str) -> torch.Generator:
    key = zlib.crc32(f"{seed} {name}".encode())  # the CPU generator reads 32 bits of a seed
    return torch.Generator("cpu").manual_seed(key)


def role_of(name: str) -> str:
    """The role of a matrix, by its parameter's name: "embedding" (the head, too), "residual" if it
    writes to the residual stream, "matrix" if it reads that.
    """
    part = name.split(".")[-2]
    return {
        "embed_tokens": "embedding",
        "lm_head": "embedding",
        "o_proj": "residual",
        "down_proj": "residual",
    }.get(part, "matrix")


def param_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer, in named_parameters order: matrices decay, norms and biases do
    not.

    Embeddings are matrices here and decay: tied, they are the head, whose logits would otherwise
    grow unchecked (nanoGPT does the same). Frozen parameters are left out; an empty group is left
    out too.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
