"""A step of decoding in eight launches a block: fused kernels over joined weights.

`forward.decode` is the plain version, and what runs where a kernel does not pass parity. N
sequences, each one token; otherwise the letters of forward.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albor_core.kernels import dispatch
from albor_core.kernels.decode import attention as decode_attention
from albor_core.kernels.ops.mlp.swiglu import swiglu_forward
from albor_core.kernels.ops.norms.add_rms_norm import add_norm_forward
from albor_core.kernels.ops.norms.rms_norm import norm_forward
from albor_core.model.generate.cache import Cache
from albor_core.model.llama import DecoderLayer, Llama

OPS = ("rms_norm", "add_rms_norm", "swiglu")


def obstacle(model: Llama) -> str:
    """Why a model's steps are not made of these kernels on its device, or "". Takes seconds the
    first time: every kernel is compiled and held to its plain version.
    """
    weight = model.head_weight
    if any(p.requires_grad for p in model.parameters()):
        return "its weights are trained: they stay where they are"
    if model.config.head_dim > decode_attention.MAX_HEAD_DIM:
        return f"head_dim is above {decode_attention.MAX_HEAD_DIM}"
    for name in OPS:
        if why := dispatch.obstacle(name, weight.device, weight.dtype):
            return f"{name}: {why}"
    return _rejection(weight.device, weight.dtype)


@lru_cache
def _rejection(device: torch.device, dtype: torch.dtype) -> str:
    return dispatch.rejection(decode_attention.OP, device, dtype)


@dataclass(frozen=True)
class _Joined:
    """Projections of one input as one matrix."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def _join(*parts: nn.Linear) -> _Joined:
    """The parameters become views of the whole: nothing is held twice."""
    weight = _as_one([part.weight for part in parts])
    biases = [part.bias for part in parts if part.bias is not None]
    return _Joined(weight, _as_one(biases) if biases else None)


def _as_one(parameters: Sequence[Tensor]) -> Tensor:
    first, end = parameters[0], int(parameters[0].storage_offset())
    for one in parameters:
        if _place(one) != (_place(first)[0], end):
            break
        end += one.numel()
    else:  # joined before
        total = sum(len(one) for one in parameters)
        return first.detach().as_strided((total, *first.shape[1:]), first.stride())
    whole = torch.cat([one.detach() for one in parameters])
    rows = [len(one) for one in parameters]
    for one, part in zip(parameters, whole.split(rows), strict=True):  # type: ignore[no-untyped-call]
        one.data = part
    return whole


def _place(parameter: Tensor) -> tuple[int, int]:
    return parameter.untyped_storage().data_ptr(), int(parameter.storage_offset())


class FusedDecode:
    """Over a cache, of a model with frozen weights. Launches only, as a CUDA graph wants them."""

    def __init__(self, model: Llama, cache: Cache) -> None:
        """Moves the parameters' data; their values stay."""
        self._model, self._cache = model, cache
        self._layers = [cast(DecoderLayer, layer) for layer in model.model.layers]
        attentions = [layer.self_attn for layer in self._layers]
        self._qkv = [_join(one.q_proj, one.k_proj, one.v_proj) for one in attentions]
        self._gate_up = [_join(one.mlp.gate_proj, one.mlp.up_proj) for one in self._layers]

    @torch.no_grad()
    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits (N, V) after one more token of each of the first N slots."""
        model, eps = self._model, self._model.config.rms_norm_eps
        x = F.embedding(tokens, model.model.embed_tokens.weight)
        norms = [layer.input_layernorm.weight for layer in self._layers[1:]]
        y, _ = norm_forward(x, self._layers[0].input_layernorm.weight, eps)
        for number, following in enumerate([*norms, model.model.norm.weight]):
            layer = self._layers[number]
            added = layer.self_attn.o_proj(self._attend(number, y, positions))
            y, x, _ = add_norm_forward(added, x, layer.post_attention_layernorm.weight, eps)
            added = layer.mlp.down_proj(swiglu_forward(self._gate_up[number](y)))
            y, x, _ = add_norm_forward(added, x, following, eps)
        return model.logits(y)

    def _attend(self, number: int, y: Tensor, positions: Tensor) -> Tensor:
        attention, rotary = self._layers[number].self_attn, self._model.model.rotary_emb
        shape = self._model.config
        q_norm, k_norm = attention.q_norm, attention.k_norm
        return decode_attention.decode_attention(
            self._qkv[number](y),
            rotary.cos,
            rotary.sin,
            positions,
            self._cache.keys[number],
            self._cache.values[number],
            None if q_norm is None else q_norm.weight,
            None if k_norm is None else k_norm.weight,
            eps=self._model.config.rms_norm_eps,
            window=(shape.sliding_window or 0) if shape.slides(number) else 0,
        )
