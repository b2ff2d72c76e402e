"""config.json as transformers has it: the shape that it tells, what is not built, and out again.

Tensor names and shapes alone tell no families apart: a Mistral whose window is felt, or a Gemma,
would load and answer wrongly. So a config.json is the truth about the weights beside it, and what
the decoder does not compute is refused by name. A key that says nothing out of the ordinary is left
alone. Pure; documents in, values out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from albor_core.config.shape import (
    FAMILIES,
    ROPE_FIELDS,
    SIZES,
    WINDOWS_BY_LAYER,
    ModelShape,
    RopeScaling,
)
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.values.lenient import is_number

READABLE = f"model_type {', '.join(FAMILIES[:-1])} and {FAMILIES[-1]} can be read"
MOST_LAYERS = 10_000  # each has names that a plan lists
_OTHER, _REPAIR = "name other weights", "repair config.json"
_QWEN_WINDOW, _FIRST_SLID = 4096, "max_window_layers"
_NAMES = ("sliding_attention", "full_attention")
"""What layer_types says of S and L."""
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
}
"""What transformers takes where a family's config does not say."""
_FIRST = "original_max_position_embeddings"
_ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
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
    "quantization_config": (),
}
"""Settings that this decoder has not, and what they are where they change nothing."""


_UNREAD = {"qwen2": ("attention_bias",)}
"""What transformers does not read in a family: its q, k and v have biases anyhow."""


def _odd_settings(about: Mapping[str, Any], unread: Collection[str]) -> Iterator[tuple[str, str]]:
    for name, neutral in _NEUTRAL.items():
        value = None if name in unread else about.get(name)
        if value is not None and value not in neutral:
            yield f"{name} {_told(value)} is not built", _OTHER


def refusals(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(what is not built, what to do) for each; nothing where the decoder computes what `about`
    does.
    """
    family = about.get("model_type")
    if family is not None and family not in FAMILIES:
        yield f"model_type {_told(family)} cannot be read", READABLE
        return  # what else it says follows from that
    made = about.get("architectures")
    if isinstance(made, list) and made and _CLASSES[family or "llama"] not in made:
        yield f"architectures {_told(made)} is not a language model that is built", READABLE
    if _is_contradictory(about):
        yield "rope_parameters and rope_scaling contradict each other", "take one of them out"
    else:
        yield from _rope_refusals(about)
    if family in WINDOWS_BY_LAYER:
        yield from _window_refusals(about)
    elif family == "mistral" and (what := _wrong_window(about.get("sliding_window"))):
        yield what, _REPAIR
    act = about.get("hidden_act", about.get("hidden_activation"))
    if act not in (None, "silu", "swish"):
        yield f"hidden_act {_told(act)} is not built", f"only silu is: {_OTHER}"
    yield from _odd_settings(about, _UNREAD.get(str(family), ()))


def _rope_refusals(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rope, kind = _rope(about), _rope_kind(about)
    if kind in (None, "default"):
        return
    if not isinstance(kind, str) or kind not in ROPE_FIELDS:
        built = ", ".join(("default", *ROPE_FIELDS))
        yield f"rope type {_told(kind)} is not built", f"built are {built}: {_OTHER}"
        return
    for name in ("mscale", "mscale_all_dim", "partial_rotary_factor"):
        if rope.get(name) not in (None, *([1] if name == "partial_rotary_factor" else [])):
            yield f"{name} of rope type {kind} is not built", _OTHER
    implied = () if rope.get(_FIRST) is not None else (_FIRST,)
    needed = [name for name in ROPE_FIELDS[kind][0] if name not in implied]
    if lacking := [name for name in needed if not is_number(rope.get(name))]:
        yield f"rope type {kind} needs {', '.join(lacking)}", "repair config.json"
    for name in ROPE_FIELDS[kind][1]:
        value = rope.get(name)
        if value is not None and not (is_number(value) or isinstance(value, bool)):
            yield f"{name} of rope type {kind} is {_told(value)}", "repair config.json"


def _wrong_window(window: object) -> str:
    """Why it is none; "" where it is one, or nothing."""
    is_right = window is None or (type(window) is int and window > 0)
    return "" if is_right else f"sliding_window {_told(window)} is not a whole number from 1"


def _window_refusals(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Refusals of a Qwen config whose sliding window transformers would read differently."""
    uses, types = about.get("use_sliding_window", False), about.get("layer_types")
    window, layers = about.get("sliding_window", _QWEN_WINDOW), about.get("num_hidden_layers")
    slides = isinstance(types, list) and _NAMES[0] in types
    if not isinstance(uses, bool):
        yield f"use_sliding_window {_told(uses)} is neither true nor false", _REPAIR
    elif slides and not (uses and window is not None):
        what = "layer_types has sliding_attention, and there is no window"
        yield what, "set use_sliding_window and sliding_window, or name full_attention alone"
    elif uses and (what := _wrong_window(window)):
        yield what, _REPAIR
    elif uses and types is None and type(first := about.get(_FIRST_SLID, 28)) is not int:
        yield f"{_FIRST_SLID} {_told(first)} is not a whole number", _REPAIR
    if types is not None:
        yield from _type_refusals(types, layers)


def _type_refusals(types: object, layers: object) -> Iterator[tuple[str, str]]:
    if not isinstance(types, list):
        yield f"layer_types {_told(types)} is not a list", _REPAIR
    elif other := [one for one in types if one not in _NAMES]:
        yield f"layer_types {_told(other[0])} is not built", f"built are {' and '.join(_NAMES)}"
    elif type(layers) is int and len(types) != layers:
        yield f"layer_types tells of {len(types)} layers, and there are {layers}", _REPAIR


def _windows(about: Mapping[str, Any]) -> dict[str, Any]:
    """sliding_window and window_pattern of a Qwen that nothing refuses, where some layer feels
    one.
    """
    window = about.get("sliding_window", _QWEN_WINDOW)
    longest = about.get("max_position_embeddings")
    layers, types = about.get("num_hidden_layers"), about.get("layer_types")
    first = about.get(_FIRST_SLID, 28)
    if about.get("use_sliding_window") is not True or type(window) is not int:
        return {}
    if type(layers) is not int or (types is None and type(first) is not int):
        return {}
    if isinstance(types, list):  # where they stand, nothing else says which
        pattern = "".join("S" if one == _NAMES[0] else "L" for one in types)
    else:
        pattern = "L" * min(first, layers) + "S" * (layers - first)
    is_felt = "S" in pattern and not (is_number(longest) and window >= longest)
    return {"sliding_window": window, "window_pattern": pattern} if is_felt else {}


def said_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an architecture that `about`, which nothing refuses, gives by itself."""
    found = {name: about[name] for name in SIZES if about.get(name) is not None}
    family = about.get("model_type")
    if family is not None:
        found["model_type"] = family
    if about.get("num_key_value_heads", 0) is None and "num_attention_heads" in found:
        found["num_key_value_heads"] = found["num_attention_heads"]
    for name in ("rms_norm_eps", "tie_word_embeddings", "head_dim"):
        if about.get(name) is not None:
            found[name] = about[name]
    if (theta := made_with(about, "rope_theta")) is not None:
        found["rope_theta"] = theta
    if family == "mistral" and "sliding_window" in about:
        found["sliding_window"] = about["sliding_window"]
    if family in WINDOWS_BY_LAYER:
        found |= _windows(about)
    if any(key in about for key in _ROPE_KEYS):
        found["rope_scaling"] = _scaling(about)
    return found


def architecture_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """`said_of`, and what transformers takes for the rest. Of one that is not whole only the
    first: it says nothing by leaving things out.
    """
    if any(about.get(name) is None for name in SIZES if name != "num_key_value_heads"):
        return said_of(about)
    family = about.get("model_type") or "llama"
    taken = {"model_type": family, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    found = {**taken, **_LEFT_OUT[family], **said_of(about)}
    found.setdefault("num_key_value_heads", found["num_attention_heads"])
    return found


def shape_of(about: Mapping[str, Any], file: str) -> ModelShape:
    """The shape that a whole config.json tells. Raises ConfigError with every problem."""
    if found := tuple(refusals(about)):
        problems = tuple(Problem("", what, hint, file) for what, hint in found)
        raise ConfigError(f"{file}: {found[0][0]}", hint=found[0][1], problems=problems)
    told = architecture_of(about)
    wrong = [
        Problem(name, f"must be a whole number, is {_told(told.get(name))}", "", file)
        for name in SIZES
        if type(told.get(name)) is not int
    ]
    wrong += [
        Problem(name, f"must be a number, is {_told(told[name])}", "", file)
        for name in ("rms_norm_eps", "rope_theta")
        if told.get(name) is not None and not is_number(told[name])
    ]
    if told.get("head_dim") is not None and type(told["head_dim"]) is not int:
        message = f"must be a whole number, is {_told(told['head_dim'])}"
        wrong.append(Problem("head_dim", message, "", file))
    if not isinstance(told.get("tie_word_embeddings", False), bool):
        message = f"must be true or false, is {_told(told['tie_word_embeddings'])}"
        wrong.append(Problem("tie_word_embeddings", message, "", file))
    if not wrong and told["num_hidden_layers"] > MOST_LAYERS:
        message = f"must be at most {MOST_LAYERS}, is {told['num_hidden_layers']}"
        wrong.append(Problem("num_hidden_layers", message, "", file))
    if wrong:
        first = wrong[0]
        message = f"{file}: {first.field} {first.message}"
        raise ConfigError(message, hint="repair config.json", problems=tuple(wrong))
    scaling = told.pop("rope_scaling", None)
    try:
        return ModelShape(**told, rope_scaling=scaling and RopeScaling(**scaling))
    except ConfigError as error:
        hint = error.hint or "repair config.json"
        raise ConfigError(f"{file}: {error.message}", hint=hint, problems=error.problems) from error


def made_with(about: Mapping[str, Any], name: str) -> int | float | None:
    """A number that weights were made with, wherever it stands."""
    value = _rope(about).get(name, about.get(name))
    return value if is_number(value) else None


def ids_said(about: Mapping[str, Any], role: str) -> tuple[int, ...]:
    """The ids that a document names under `role`, one or many."""
    return tuple(one for one in _ids(about.get(role)) if type(one) is int)


def hf_config(
    shape: ModelShape,
    *,
    initializer_range: float,
    dtype: str = "float32",
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """config.json of a shape. `rope_parameters` is for transformers 5; `rope_theta` and
    `rope_scaling` are for older readers.

    `about`: the one that the weights came with, whose other settings stay as they are. So do its
    ids, where they are those given or none is: several may end a text.
    """
    own: dict[str, Any] = {
        "architectures": [_CLASSES[shape.model_type]],
        "model_type": shape.model_type,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate_size,
        "vocab_size": shape.vocab_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "rms_norm_eps": shape.rms_norm_eps,
        **_rope_out(shape),
        "tie_word_embeddings": shape.tie_word_embeddings,
        "hidden_act": "silu",
        **_switches_out(shape),
        "initializer_range": initializer_range,
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "dtype": dtype,
    }
    if shape.model_type == "qwen2" and shape.query_width == shape.hidden_size:
        del own["head_dim"]  # it has no such setting
    if about is None:
        return own
    kept = {key: value for key, value in about.items() if key not in (*_ROPE_KEYS, "torch_dtype")}
    ids = {
        key: about.get(key)
        for key in ("bos_token_id", "eos_token_id")
        if own[key] is None or own[key] in _ids(about.get(key))
    }
    stays = {key: about[key] for key in _STAYS if key in about}
    return {**own, **{key: kept[key] for key in kept if key not in own}, **stays, **ids}


_STAYS = ("initializer_range", "attention_dropout", "hidden_act", "architectures")


def _ids(said: object) -> list[Any]:
    return said if isinstance(said, list) else [said]


def _rope_out(shape: ModelShape) -> dict[str, Any]:
    scaling, theta = shape.rope_scaling, shape.rope_theta
    if scaling is None:
        plain = {"rope_type": "default", "rope_theta": theta}
        return {"rope_parameters": plain, "rope_theta": theta}
    told = {"rope_type": scaling.rope_type, **scaling.said()}
    return {
        "rope_parameters": {**told, "rope_theta": theta},
        "rope_theta": theta,
        "rope_scaling": told,
    }


def _switches_out(shape: ModelShape) -> dict[str, Any]:
    """Switches that only some model families have."""
    match shape.model_type:
        case "mistral":
            return {"attention_dropout": 0.0, "sliding_window": shape.sliding_window}
        case "qwen2":
            return {"attention_dropout": 0.0, **_windows_out(shape)}
        case "qwen3":
            return {"attention_bias": False, "attention_dropout": 0.0, **_windows_out(shape)}
    return {"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False}


def _windows_out(shape: ModelShape) -> dict[str, Any]:
    if shape.sliding_window is None:
        return {"use_sliding_window": False}
    slides = [shape.slides(i) for i in range(shape.num_hidden_layers)]
    slid, full = _NAMES
    told = {
        "use_sliding_window": True,
        "sliding_window": shape.sliding_window,
        "layer_types": [slid if one else full for one in slides],
    }
    if slides == sorted(slides):  # what older readers can be told
        told["max_window_layers"] = slides.count(False)
    return told


def _is_contradictory(about: Mapping[str, Any]) -> bool:
    newer, older = (_normal(about.get(name)) for name in ("rope_parameters", "rope_scaling"))
    return newer is not None and older is not None and newer != older


def _normal(told: object) -> dict[str, Any] | None:
    """The rotary settings in one spelling, for comparison; without the base, which is compared by
    itself."""
    if not isinstance(told, dict) or not told:
        return None
    found = {key: one for key, one in told.items() if key not in ("type", "rope_theta")}
    return {**found, "rope_type": told.get("rope_type", told.get("type"))}


def _rope(about: Mapping[str, Any]) -> Mapping[str, Any]:
    told = about.get("rope_parameters") or about.get("rope_scaling")
    return told if isinstance(told, dict) else {}


def _rope_kind(about: Mapping[str, Any]) -> object:
    kind = _rope(about).get("rope_type")
    return _rope(about).get("type") if kind is None else kind  # the older spelling


def _scaling(about: Mapping[str, Any]) -> dict[str, Any] | None:
    rope, kind = _rope(about), _rope_kind(about)
    if not isinstance(kind, str) or kind not in ROPE_FIELDS:
        return None
    needed, more = ROPE_FIELDS[kind]
    told = {name: rope[name] for name in (*needed, *more) if rope.get(name) is not None}
    if _FIRST in needed:
        told.setdefault(_FIRST, about.get(_FIRST, about.get("max_position_embeddings")))
    return {"rope_type": kind, **told}


def _told(value: object) -> str:
    return repr(value)[:60]
