"""The whole decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU; HF's names.

The state dict and `LlamaConfig.to_hf()` are what transformers.LlamaForCausalLM reads; nothing is
converted. B batch, T time, D hidden_size, H query heads, K key/value heads, E head_dim, F
intermediate_size, V vocab_size.

Numbers: under autocast matrix products are in its dtype; master weights, residual stream, norm
statistics, rotation and loss stay fp32 (a stream in bf16 loses what small blocks add:
docs/log/step.md). In fp32 the logits are those of transformers to rounding.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albor_core.config.shape import ModelShape
from albor_core.kernels.ops.rms_norm import rms_norm

IGNORED = -100  # label of a position that is not trained on, as in transformers
EMBEDDING_STD, HEAD_GAIN, LOGIT_STD = 0.02, 2.0, 0.16  # see init_weights
SCORED_BYTES = 1 << 28  # logits and what is made of them at one time, where nothing is trained
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
    mirrored: bool = True
    """Whether logits begin near 0 since the halves of the residual stream cancel in the head."""
    residual_in_fp32: bool = True
    """Under autocast; otherwise in autocast's dtype."""
    z_loss: float = 0.0
    """Weight of mean(log(sum(exp(logits)))^2) in the loss while training."""

    def to_hf(
        self,
        *,
        dtype: str = "float32",
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
    ) -> dict[str, Any]:
        """config.json for transformers 5; the plain `rope_theta` is for older readers."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tie_word_embeddings,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "mlp_bias": False,
            "initializer_range": self.initializer_range or init_std(self)["matrix"],
            "bos_token_id": bos_token_id,
            "eos_token_id": eos_token_id,
            "dtype": dtype,
        }


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """In the dtype of the matrix products that read it: rounded once for all of them."""
        kind = x.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return rms_norm(x, self.weight, self.eps, half)


class Rotary(nn.Module):
    """Tables (max_position_embeddings, E) of cos and sin, fp32, not saved.

    Always computed on the CPU and copied, so that every device rotates by the same bits; computed
    anew whenever the module is moved or cast, so that `model.bfloat16()` cannot round them and
    `to_empty` cannot leave them unset.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim, self.theta = config.head_dim, config.rope_theta
        self.length = config.max_position_embeddings
        self.register_buffer("cos", torch.empty(0), persistent=False)
        self.register_buffer("sin", torch.empty(0), persistent=False)
        self._fill()

    def _fill(self) -> None:
        device = self.cos.device
        if device.type == "meta":
            return
        pair = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device="cpu") / self.head_dim
        position = torch.arange(self.length, dtype=torch.float32, device="cpu")
        angle = torch.outer(position, 1.0 / self.theta**pair).repeat(1, 2)  # fp32, as transformers
        self.cos, self.sin = angle.cos().to(device), angle.sin().to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Rotary:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._fill()
        return self

    def forward(self, T: int) -> tuple[Tensor, Tensor]:
        if self.length < T:
            raise ValueError(f"{T} tokens in a row, but max_position_embeddings is {self.length}")
        return self.cos[:T], self.sin[:T]


def rotate(x_BHTE: Tensor, cos_TE: Tensor, sin_TE: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021, arXiv:2104.09864) of halves, not pairs, as HF Llama."""
    x = x_BHTE.float()
    low, high = x.chunk(2, dim=-1)
    return (x * cos_TE + torch.cat((-high, low), dim=-1) * sin_TE).to(x_BHTE.dtype)


class Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.groups = config.num_attention_heads // config.num_key_value_heads
        width, kv_width = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_width, bias=False)
        self.v_proj = nn.Linear(width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, T, D = x.shape
        heads = (B, T, -1, self.head_dim)
        q = rotate(self.q_proj(x).view(heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        is_half = q.dtype in (torch.bfloat16, torch.float16)
        # no fp32 kernel on a GPU shares kv heads: it would build T x T
        if self.groups > 1 and not is_half:
            k, v = (t.repeat_interleave(self.groups, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.groups > 1 and is_half
        )
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(B, T, D))
        return out


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

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.ran_eagerly = True
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Decoder(nn.Module):
    """Tokens to final hidden states: everything but the head."""

    def __init__(self, config: LlamaConfig, *, checkpoint_blocks: bool = False) -> None:
        super().__init__()
        self.checkpoint_blocks, self.is_wide = checkpoint_blocks, config.residual_in_fp32
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        if torch.is_autocast_enabled(kind := x.device.type):  # sharded, it is gathered in half
            x = x.float() if self.is_wide else x.to(torch.get_autocast_dtype(kind))
        cos, sin = self.rotary_emb(input_ids.shape[1])
        for layer in self.layers:
            if self.checkpoint_blocks and self.training and torch.is_grad_enabled():
                x = checkpoint(layer, x, cos, sin, use_reentrant=False, preserve_rng_state=False)
            else:
                x = layer(x, cos, sin)
        out: Tensor = self.norm(x)
        return out


class Llama(nn.Module):
    """A LLaMA-style language model; `init_weights` gives it its start."""

    def __init__(self, config: LlamaConfig, *, checkpoint_blocks: bool = False) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config, checkpoint_blocks=checkpoint_blocks)
        self.lm_head = (
            None
            if config.tie_word_embeddings
            else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        )

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """(logits (B, T, V), None), or with labels (None, loss): logits nobody needs are not kept.

        input_ids (B, T) int64. labels (B, T) int64, aligned with input_ids and shifted in here as
        transformers does: position t is scored on labels[:, t + 1]. IGNORED positions do not count.
        loss is fp32, the mean in nats per counted token, in training mode with z_loss; 0 when
        none counts. Without gradients it is added up piece by piece: of logits and what is made of
        them there are at most SCORED_BYTES. ValueError if T exceeds max_position_embeddings.
        """
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        h = self.model(input_ids)
        if labels is None:
            return F.linear(h, head.weight), None
        targets = shifted(labels)  # shifting logits would copy them
        if not torch.is_grad_enabled() and not self.training:
            return None, _score(h.flatten(0, 1), head.weight, targets)
        wide = F.linear(h, head.weight).float().flatten(0, 1)
        counted = targets != IGNORED
        loss = F.cross_entropy(wide, targets, ignore_index=IGNORED)
        loss = torch.where(counted.any(), loss, 0.0)  # the mean of nothing is NaN
        if self.training and self.config.z_loss:
            squares = wide.logsumexp(-1).square() * counted
            loss = loss + self.config.z_loss * squares.sum() / counted.sum().clamp_min(1)
        return None, loss


def shifted(labels: Tensor) -> Tensor:
    """(B T,) for each position of labels (B, T) the one that follows; IGNORED for the last."""
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED).flatten()


def _score(h: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of targets (N,) after hidden states h (N, D), fp32."""
    weight = head.to(h.dtype)
    rows = max(1, SCORED_BYTES // (8 * len(weight)))  # the logits in fp32 and their log-softmax
    total = torch.zeros((), dtype=torch.float64, device=h.device)
    pieces = zip(h.split(rows), targets.split(rows), strict=True)  # type: ignore[no-untyped-call]
    for piece, labels in pieces:
        logits = F.linear(piece, weight).float()
        total += F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return (total / (targets != IGNORED).sum().clamp_min(1)).float()


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
        "embedding": EMBEDDING_STD,
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
    return config.mirrored and config.initializer_range is None


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
                is_last = name == "model.norm.weight"
                parameter.copy_(final_norm(config) if is_last else torch.ones(()))
                continue
            role = role_of(name)
            draw = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
            draw.normal_(generator=_stream(seed, name)).mul_(stds[role])
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
    """Of a matrix, by its parameter's name: "embedding" (the head, too), "residual" where it writes
    to the residual stream, "matrix" where it reads that.
    """
    part = name.split(".")[-2]
    return {
        "embed_tokens": "embedding",
        "lm_head": "embedding",
        "o_proj": "residual",
        "down_proj": "residual",
    }.get(part, "matrix")


def param_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer, in named_parameters order: matrices decay, norms do not.

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
