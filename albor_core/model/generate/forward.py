"""The decoder's forward with a cache: prompts in one go (prefill), then a token at a time (decode).

The modules are llama.py's own; what differs is where keys come from. B sequences, T tokens, H query
heads in K groups of G, E head_dim, D hidden_size, V vocab_size, n cached tokens that are read.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.model.generate.cache import Cache
from albor_core.model.llama import Attention, DecoderLayer, Llama
from albor_core.model.visible_keys import kinds_of, seen_from

CHUNK = 4096
"""Tokens of a prompt that go through the decoder at one time."""


def prefill(model: Llama, cache: Cache, ids: Tensor, lengths: Tensor, slot: int) -> Tensor:
    """Logits (B, V) after the last token of each prompt; the cache of the slots from `slot` on is
    filled. ids (B, T) with anything behind a prompt's `lengths` (B,) tokens.
    """
    last = lengths - 1
    found: list[Tensor] = []
    for begin in range(0, ids.shape[1], CHUNK):
        piece = ids[:, begin : begin + CHUNK]
        h = _through(model, cache, piece, slot, begin)
        at = (last - begin).clamp(0, piece.shape[1] - 1)
        here = h[torch.arange(len(h), device=h.device), at]
        ends_here = (last >= begin)[:, None]
        found = [torch.where(ends_here, here, found[0])] if found else [here]
    return model.logits(model.model.norm(found[0]))


def _through(model: Llama, cache: Cache, ids: Tensor, slot: int, begin: int) -> Tensor:
    """Hidden states (B, T, D) of tokens at `begin`, `begin` + 1, ..., not yet normed."""
    B, T = ids.shape
    end = begin + T
    cos, sin = (table[begin:] for table in model.model.rotary_emb(end))
    shape, window = model.config, model.config.window(end)
    seen = {
        kind: _seen(window if kind else None, begin, end, ids.device) for kind in kinds_of(shape)
    }
    x = model.model.embed(ids)
    rows = slice(slot, slot + B)
    for number, block in enumerate(model.model.layers):
        layer = cast(DecoderLayer, block)
        q, k, v = layer.self_attn.heads(layer.input_layernorm(x), cos, sin)
        keys, values = cache.keys[number, rows], cache.values[number, rows]
        keys[:, begin:end], values[:, begin:end] = k.transpose(1, 2), v.transpose(1, 2)
        if begin:
            k, v = keys[:, :end].transpose(1, 2), values[:, :end].transpose(1, 2)
        x = _rest_of(layer, x, layer.self_attn.attend(q, k, v, seen[shape.slides(number)]))
    return x


def _seen(window: int | None, begin: int, end: int, device: torch.device) -> Tensor | None:
    """(T, n) whether a query at `begin` + row sees a key; None: all up to it, from 0 on."""
    if window is None and not begin:
        return None
    return seen_from(torch.arange(begin, end, device=device), end, window)


def decode(
    model: Llama, cache: Cache, tokens: Tensor, positions: Tensor, reach: int, *, is_even: bool
) -> Tensor:
    """Logits (B, V) after one more token of each of the first B slots.

    tokens, positions (B,) int64: the token and where it stands; both go into the cache. reach: no
    position is beyond it. is_even: all positions are reach - 1, so that nothing needs hiding.
    """
    B, config = len(tokens), model.config
    rotary = model.model.rotary_emb
    cos, sin = rotary.cos[positions][:, None, None], rotary.sin[positions][:, None, None]
    windows = {kind: config.window(reach) if kind else None for kind in kinds_of(config)}
    begins, seen = dict.fromkeys(windows, 0), dict[bool, Tensor | None](dict.fromkeys(windows))
    for kind, window in windows.items():
        if not is_even:
            seen[kind] = seen_from(positions, reach, window)[:, None, None]
        elif window is not None:
            begins[kind] = max(0, reach - window)
    rows = torch.arange(B, device=tokens.device)
    x = model.model.embed(tokens[:, None])
    for number, block in enumerate(model.model.layers):
        layer = cast(DecoderLayer, block)
        q, k, v = layer.self_attn.heads(layer.input_layernorm(x), cos, sin)
        keys, values = cache.keys[number], cache.values[number]
        if is_even:
            keys[:B, reach - 1], values[:B, reach - 1] = k[:, :, 0], v[:, :, 0]
        else:
            keys[rows, positions], values[rows, positions] = k[:, :, 0], v[:, :, 0]
        kind = config.slides(number)
        k, v = (held[:B, begins[kind] : reach].transpose(1, 2) for held in (keys, values))
        x = _rest_of(layer, x, _one_query(layer.self_attn, q, k, v, seen[kind]))
    return model.logits(model.model.norm(x[:, 0]))


def _one_query(
    attention: Attention, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None
) -> Tensor:
    """(B, H, 1, E): the heads of a group stand where queries of other times would, so that no key
    is copied.
    """
    B, H, _, E = q.shape
    y = F.scaled_dot_product_attention(
        q.view(B, H // attention.groups, attention.groups, E), k, v, attn_mask=seen
    )
    return y.reshape(B, H, 1, E)


def _rest_of(layer: DecoderLayer, x: Tensor, y_BHTE: Tensor) -> Tensor:
    """The layer behind its attention."""
    B, _, T, _ = y_BHTE.shape
    x = x + layer.self_attn.o_proj(y_BHTE.transpose(1, 2).reshape(B, T, -1))
    out: Tensor = x + layer.mlp(layer.post_attention_layernorm(x))
    return out
