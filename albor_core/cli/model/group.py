"""`albor model`: what a folder of weights holds, whether it is whole, how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import clean, emit, json_option, print_line, table
from albor_core.run.errors import AlborError
from albor_core.run.values.quantity import byte_size, counted

_SHOWN = 20


@click.group(
    cls=LazyGroup,
    entries={
        "show": (f"{__name__}:show", "Show the family, shape, tensors and tokenizer."),
        "verify": (f"{__name__}:verify", "Ask nine questions: whole, finite, trained, distinct."),
        "compare": (f"{__name__}:compare", "Compare the settings and tensors of two models."),
        "weights": (f"{__name__}:weights", "Show how large and how spread the numbers are."),
    },
)
def model() -> None:
    """Inspect models: folders of safetensors with a config.json, and checkpoints of runs."""


@model.command()
@click.argument("folder", metavar="DIR|RUN")
@click.option("--hashes", is_flag=True, help="Read all bytes and hash each tensor (BLAKE3).")
@json_option
def show(folder: str, hashes: bool, as_json: bool) -> None:
    """Show what the model in DIR, or the newest checkpoint of RUN, consists of. Only headers are
    read, and pickled files are never opened.
    """
    from albor_core.cli.model.folder import model_folder
    from albor_core.model.hf.folder import open_model
    from albor_core.model.hf.folder import show as shown
    from albor_core.model.hf.verify import hash_of

    opened = open_model(model_folder(folder))
    tensors = opened.weights.tensors
    digests = {name: hash_of(held) for name, held in tensors.items()} if hashes else None
    found = shown(opened, digests)
    if as_json:
        document: Any = {"schema": "albor.model.show/1", **found}
        emit(document)
        return
    print_line(clean(found["path"]))
    for key, text in _facts(found):
        print_line(f"  {key:<12} {clean(text)}")
    rows = [
        (one["name"], one["dtype"], " x ".join(map(str, one["shape"])), one["blake3"] or "")
        for one in found["tensors"]
    ]
    heads = ("tensor", "dtype", "shape", "blake3")
    print_line()
    print_line(table(heads, rows) if hashes else table(heads[:3], [r[:3] for r in rows[:_SHOWN]]))
    if not hashes and len(rows) > _SHOWN:
        print_line(f"and {len(rows) - _SHOWN:,} more: --json lists all")


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    shape = found["shape"]
    yield "family", found["model_type"]
    yield "parameters", f"{found['parameters']:,}"
    sizes = f"{shape['num_hidden_layers']} layers, {shape['hidden_size']} wide, "
    sizes += f"{shape['num_attention_heads']} heads of {shape['head_dim']}, "
    yield (
        "shape",
        sizes + f"{shape['num_key_value_heads']} of keys, {shape['intermediate_size']} up",
    )
    yield "vocabulary", f"{shape['vocab_size']:,}{', tied' * shape['tie_word_embeddings']}"
    scaling = shape["rope_scaling"]
    kind = "plain" if scaling is None else f"{scaling['rope_type']} x {scaling['factor']:g}"
    rope = f"{kind}, theta {shape['rope_theta']:g}, up to {shape['max_position_embeddings']:,}"
    yield "positions", rope
    if shape["sliding_window"] is not None:
        pattern = shape["window_pattern"]
        yield "window", f"{shape['sliding_window']:,}{pattern and f', in layers S of {pattern}'}"
    named = {"qkv_bias": "biases of q, k and v", "qk_norm": "norms of q and k"}
    if has := [named[name] for name, one in found["switches"].items() if one]:
        yield "has", ", ".join(has)
    dtypes = ", ".join(f"{one['dtype']} ({one['tensors']})" for one in found["dtypes"])
    yield "dtypes", dtypes
    yield "files", f"{counted(len(found['files']), 'file')}, {byte_size(found['bytes'])}"
    told = found["tokenizer"]
    if told is None:
        yield "tokenizer", "none"
    else:
        yield "tokenizer", told["error"] or _tokens(told)
    if not found["fits"]:
        yield "fits", f"no: albor model verify {found['path']}"


def _tokens(told: dict[str, Any]) -> str:
    return f"{told['tokens']:,} tokens, eos {told['eos']}, bos {told['bos']}"


@model.command()
@click.argument("folder", metavar="DIR|RUN")
@json_option
def verify(folder: str, as_json: bool) -> int:
    """Read all of the model in DIR, or of the newest checkpoint of RUN, and answer nine questions.

    Changes nothing. Exits with 0 if every answer is yes, else 1; 3 if there is no model, 7 if it is
    pickled or an adapter.
    """
    from albor_core.cli.model.folder import model_folder
    from albor_core.model.hf.verify import to_json
    from albor_core.model.hf.verify import verify as verified

    path = model_folder(folder)
    checks = verified(path)
    if as_json:
        document: Any = {"schema": "albor.model.verify/1", **to_json(path, checks)}
        emit(document)
    else:
        words = {True: "yes", False: "NO", None: "-"}
        rows = [(one.name, words[one.ok], one.detail) for one in checks]
        print_line(clean(path))
        print_line(table(("check", "ok", "found"), rows))
        print_line(f"{sum(bool(one.ok) for one in checks)} of {len(checks)}")
    return 0 if all(one.ok for one in checks) else AlborError.exit_code


@model.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@json_option
def compare(a: str, b: str, as_json: bool) -> None:
    """Show how the models in A and B differ, each a directory or a run: settings, tensors that only
    one of them has, and how far each of the others has moved (relative L2, cosine).
    """
    from albor_core.cli.model.folder import model_folder
    from albor_core.model.hf.compare import compare as compared
    from albor_core.model.hf.folder import open_model

    found = compared(open_model(model_folder(a)), open_model(model_folder(b)))
    if as_json:
        document: Any = {"schema": "albor.model.compare/1", **found}
        emit(document)
        return
    if found["config"]:
        rows = [(one["field"], str(one["a"]), str(one["b"])) for one in found["config"]]
        print_line(table(("setting", "A", "B"), rows))
    counts = {kind.replace("_", " "): n for kind, n in found["counts"].items() if n}
    print_line(", ".join(f"{number:,} {kind}" for kind, number in counts.items()))
    if found["relative"]:
        print_line(f"relative difference {found['relative']:.3g}")
    other = [one for one in found["tensors"] if one["state"] != "equal"]
    other.sort(key=lambda one: -(one["relative"] or 0))
    if other:
        moved = [
            (one["name"], one["state"], _number(one["relative"]), _number(one["cosine"]))
            for one in other[:_SHOWN]
        ]
        heads = ("tensor", "state", "relative", "cosine")
        print_line(table(heads, moved, right=("relative", "cosine")))
    if len(other) > _SHOWN:
        print_line(f"and {len(other) - _SHOWN:,} more: --json lists all")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


@model.command()
@click.argument("folder", metavar="DIR|RUN")
@click.option("--tensor", help="Show one tensor: its figures and a histogram.")
@json_option
def weights(folder: str, tensor: str | None, as_json: bool) -> None:
    """Show statistics of the weights of the model in DIR, or of the newest checkpoint of RUN: the
    root mean square of each tensor by layer, or one tensor's figures and histogram.

    Of tensors with more than 262,144 elements a sample is read, the same one each time.
    """
    from albor_core.cli.model.folder import load_newest
    from albor_core.cli.model.weights_text import by_layer, one_tensor
    from albor_core.model.hf.weight_figures import to_json
    from albor_core.run.files.weight_files import open_weights

    _, found = load_newest(folder, lambda at: to_json(open_weights(at)))
    tensors = found["tensors"]
    lines = [*(by_layer(tensors) if tensor is None else one_tensor(tensors, tensor))]
    if as_json:
        kept = [one for one in tensors if tensor in (None, one["name"])]
        document: Any = {"schema": "albor.model.weights/1", **found, "tensors": kept}
        emit(document)
        return
    print_line(f"{clean(found['path'])}{': of a sample' * found['is_sampled']}")
    print_line("\n".join(lines))
