"""The weights a run begins from, where `model.path` names some; checked without torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from albor_core.config.hf_config import ids_said, made_with, refusals, said_of
from albor_core.config.resume_changes import PLASTIC
from albor_core.config.sections.model import ModelConfig
from albor_core.plan.continued import run_of_checkpoint, unused_start
from albor_core.plan.facts import tokenizer_facts
from albor_core.run.errors import AlborError, ConfigError, Problem
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.tensor_header import FLOATS
from albor_core.run.files.weight_files import (
    GENERATION,
    WeightFiles,
    open_weights,
    without_tied_head,
)
from albor_core.run.rundir import read_json

FIELD = "model.path"
_SHOWN = 3  # tensors that do not fit


def start_weights(model: ModelConfig) -> Path | None:
    """Their folder; None where the run begins from random weights."""
    return None if model.path == Path() else model.path


def weights_problems(
    model: ModelConfig, *, file: str = "", checks_hash: bool = True, knows_model: bool = True
) -> tuple[Problem, ...]:
    """Why a model of this architecture cannot begin from `model.path`; `file` is the config's.
    `checks_hash`: reads all of what has a manifest beside it, gigabytes maybe; `knows_model`:
    whether the architecture is all there is, so that names and shapes can be held to it.
    """
    folder = start_weights(model)
    if folder is None:
        return ()
    try:
        found = open_weights(folder)
        misfits: list[str] = []
        if knows_model:
            if foreign := tuple(_foreign(folder, model, file)):
                return foreign
            found = without_tied_head(found, is_tied=model.architecture.tie_word_embeddings)
            misfits = [*_misfits(found, model), *_too_many_ids(folder, model)]
        altered = next(_altered(found), None) if checks_hash and not misfits else None
    except AlborError as error:
        return (Problem(FIELD, error.message, error.hint, file),)
    except OSError as error:
        where, hint = error.filename or folder, "make it readable, or name other weights"
        return (Problem(FIELD, f"{where}: cannot be read: {error.strerror}", hint, file),)
    if altered is not None:
        what = f"{altered} is damaged: its bytes are not those that manifest.json beside it names"
        return (Problem(FIELD, what, "name another checkpoint", file),)
    if not misfits:
        return ()
    more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
    where = found.files[0] if len(found.files) == 1 else folder
    listed = f"{where} does not fit model.architecture: {', '.join(misfits[:_SHOWN])}{more}"
    return (Problem(FIELD, listed, "give the architecture that the weights have", file),)


def _foreign(folder: Path, model: ModelConfig, file: str) -> Iterator[Problem]:
    """What the config.json beside the weights says that no model here computes, or that
    model.architecture has otherwise.
    """
    beside = folder / "config.json"
    about = read_json(beside)
    if about is None:
        if beside.exists():
            what = f"{beside} is not a JSON object that can be read"
            yield Problem(FIELD, what, "repair it: it says what the weights are", file)
        return
    built = True
    for reason, hint in refusals(about):
        built = False
        yield Problem(FIELD, f"{beside}: {reason}", hint, file)
    if not built:
        return
    ours, hint = asdict(model.architecture.shape()), "leave it out: config.json says it"
    ours["rope_scaling"] = model.architecture.rope_scaling and _without_nothing(
        ours["rope_scaling"]
    )
    for name, value in said_of(about).items():
        if name not in PLASTIC and value != ours[name]:
            field = f"model.architecture.{name}"
            now = "none" if ours[name] is None else ours[name]
            yield Problem(field, f"is {now}, and {beside} says {value}", hint, file)


def _without_nothing(said: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}


def _too_many_ids(folder: Path, model: ModelConfig) -> Iterator[str]:
    """Problems of token ids without a row in the embedding: of a tokenizer beside the weights, or
    of end tokens."""
    path, rows = folder / "tokenizer.json", model.architecture.vocab_size
    told = tokenizer_facts(path).vocab_size if path.is_file() else None
    if told is not None and told > rows:
        yield f"its tokenizer.json has {told:,} tokens, above vocab_size {rows:,}"
    for name in ("config.json", GENERATION):
        for number in ids_said(read_json(folder / name) or {}, "eos_token_id"):
            if not 0 <= number < rows:
                yield f"eos_token_id {number:,} of its {name} is outside vocab_size {rows:,}"


def _altered(found: WeightFiles) -> Iterator[Path]:
    """The files of which a checkpoint's manifest says that other bytes were written. Raises
    OSError.
    """
    files = (read_json(found.folder / "manifest.json") or {}).get("files")
    for file in (one for one in found.files if one.parent == found.folder):
        stated = files.get(file.name) if isinstance(files, dict) else None
        if not isinstance(stated, dict) or stated.get("algo") != "blake3":
            continue
        if fingerprint(file) != (stated.get("size"), f"blake3:{stated.get('hash')}"):
            yield file


def weights_notes(model: ModelConfig) -> Iterator[str]:
    """What the weights were made with and the config has otherwise, though they fit; what is taken
    for granted where nothing says what they are.
    """
    beside, shape = _beside(model), model.architecture
    for name in PLASTIC[1:]:
        value, now = made_with(beside, name), getattr(shape, name)
        if value is not None and value != now:
            yield f"the weights in {model.path} were made with {name} {value:g}, not {now:g}"
    begins = start_weights(model) is not None
    if begins and "model_type" not in beside:
        missing = "no model_type in" if beside else "no"
        plain = "" if shape.rope_scaling else ", plain positions"
        yield (
            f"{missing} config.json beside the weights in {model.path}: taken for "
            f"{shape.model_type} with rope_theta {shape.rope_theta:g}, rms_norm_eps "
            f"{shape.rms_norm_eps:g}{plain} and silu"
        )
    yield from unused_start(model.initialization, start_weights(model))


def parent_run(model: ModelConfig) -> str | None:
    """The id of the run whose checkpoint the weights are; None for others."""
    found = start_weights(model)
    return None if found is None else run_of_checkpoint(found)


def _beside(model: ModelConfig) -> dict[str, Any]:
    """The config.json that transformers and our checkpoints put beside weights; empty without."""
    folder = start_weights(model)
    return {} if folder is None else read_json(folder / "config.json") or {}


def refuse_misfits(model: ModelConfig) -> None:
    """Raise ConfigError if `weights_problems` finds any."""
    if problems := weights_problems(model):
        first = problems[0]
        field = first.field or FIELD
        raise ConfigError(f"{field}: {first.message}", hint=first.hint, problems=problems)


def _misfits(found: WeightFiles, model: ModelConfig) -> Iterator[str]:
    """Mismatches of the weights with the model."""
    held, wanted = found.tensors, model.architecture.shape().tensor_shapes()
    for name, shape in wanted.items():
        if name not in held:
            yield f"{name} is missing"
        elif held[name].shape != shape:
            yield f"{name} is {[*held[name].shape]}, not {[*shape]}"
        elif held[name].dtype not in FLOATS:
            yield f"{name} holds {held[name].dtype}, no floats"
    yield from (f"{name} is not in the model" for name in held if name not in wanted)
