"""What the config.json beside weights says that this decoder does not compute. Pure.

Tensor names and shapes alone tell no families apart: a Mistral whose window is felt, or a Gemma,
would load and answer wrongly. Keys are transformers'; one that says nothing out of the ordinary is
left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from albor_core.config.shape import ModelShape
from albor_core.run.values.lenient import is_number

READABLE = "model_type llama can be read, and mistral where its window holds data.seq_len"
_OTHER = "name other weights"
_FAMILIES = ("llama", "mistral")
_MISTRAL_WINDOW = 4096  # what transformers takes where a Mistral's config names none
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1,),
    # conventions of Gemma, Granite, Cohere, MiniCPM and relatives
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "scale_emb": (1,),
    "scale_depth": (),
    "use_qk_norm": (False,),
}
"""Settings that this decoder has not, and what they are where they change nothing."""


def foreign_reasons(
    about: Mapping[str, Any], shape: ModelShape, seq_len: int
) -> Iterator[tuple[str, str]]:
    """(what is not built, what to do) for each; nothing where `shape` computes what `about` does on
    sequences of `seq_len`.
    """
    family = about.get("model_type")
    if family not in (None, *_FAMILIES):
        yield f"model_type {_told(family)} cannot be read", READABLE
        return  # what else it says follows from that
    window = about.get("sliding_window", _MISTRAL_WINDOW if family == "mistral" else None)
    if is_number(window) and window < seq_len and about.get("use_sliding_window") is not False:
        hint = f"use data.seq_len={window}, or {_OTHER}"
        yield f"a sliding_window of {window:,} is not built, and data.seq_len is {seq_len:,}", hint
    kind = _rope(about).get("rope_type") or _rope(about).get("type")  # the older spelling
    if kind not in (None, "default"):
        yield f"rope type {_told(kind)} is not built", f"only plain positions are: {_OTHER}"
    act = about.get("hidden_act", about.get("hidden_activation"))
    if act not in (None, "silu", "swish"):
        yield f"hidden_act {_told(act)} is not built", f"only silu is: {_OTHER}"
    width = about.get("head_dim")
    if width not in (None, shape.head_dim):
        what = f"head_dim is {_told(width)}, not hidden_size / num_attention_heads"
        yield f"{what} = {shape.head_dim}", _OTHER
    for name, neutral in _NEUTRAL.items():
        value = about.get(name)
        if value is not None and value not in neutral:
            yield f"{name} {_told(value)} is not built", _OTHER


def made_with(about: Mapping[str, Any], name: str) -> int | float | None:
    """A number that weights were made with, wherever it stands."""
    value = _rope(about).get(name, about.get(name))
    return value if is_number(value) else None


def _rope(about: Mapping[str, Any]) -> Mapping[str, Any]:
    told = about.get("rope_parameters") or about.get("rope_scaling")
    return told if isinstance(told, dict) else {}


def _told(value: object) -> str:
    return repr(value)[:60]
