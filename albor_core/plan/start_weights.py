"""The weights a run begins from, where `model.path` names some; checked without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albor_core.config.foreign_config import foreign_reasons, made_with
from albor_core.config.sections import InitializationConfig, ModelConfig
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.tensor_header import FLOATS, DamagedFileError, read_header
from albor_core.run.rundir import RunDir, is_run_id, read_json

FIELD, FILE = "model.path", "model.safetensors"
_SHOWN = 3  # tensors that do not fit


def start_weights(model: ModelConfig) -> Path | None:
    """Their file; None where the run begins from random weights."""
    return None if model.path == Path() else model.path / FILE


def weights_problems(
    model: ModelConfig,
    *,
    seq_len: int | None = None,
    file: str = "",
    checks_hash: bool = True,
) -> tuple[Problem, ...]:
    """Why a model of this architecture cannot begin from `model.path`; `file` is the config's.
    `seq_len`: of what it trains on, None for the longest it takes. `checks_hash`: reads all of a
    file that has a manifest beside it, gigabytes maybe.
    """
    found = start_weights(model)
    if found is None:
        return ()
    hint = f'name a directory with {FILE} in it, a checkpoint of a run say, or "."'
    if not found.exists():
        cut = (model.path / f"{FILE}.index.json").exists()
        what = "weights in several files are not read" if cut else f"no {FILE} in {model.path}"
        return (Problem(FIELD, what, hint, file),)
    if foreign := tuple(_foreign(found, model, seq_len, file)):
        return foreign
    try:
        misfits = list(_misfits(found, model))
        is_altered = checks_hash and not misfits and _is_altered(found)
    except OSError as error:
        return (Problem(FIELD, f"{found}: cannot be read: {error.strerror}", hint, file),)
    except DamagedFileError as error:
        reason = str(error).removeprefix(f"{found.name}: ")
        return (Problem(FIELD, f"{found} is damaged: {reason}", hint, file),)
    if is_altered:
        what = f"{found} is damaged: its bytes are not those that manifest.json beside it names"
        return (Problem(FIELD, what, "name another checkpoint", file),)
    if not misfits:
        return ()
    more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
    listed = f"{found} does not fit model.architecture: {', '.join(misfits[:_SHOWN])}{more}"
    return (Problem(FIELD, listed, "give the architecture that the weights have", file),)


def _foreign(found: Path, model: ModelConfig, seq_len: int | None, file: str) -> Iterator[Problem]:
    """What the config.json beside the weights says that no model here computes."""
    beside = found.with_name("config.json")
    about = read_json(beside)
    if about is None:
        if beside.exists():
            what = f"{beside} is not a JSON object that can be read"
            yield Problem(FIELD, what, "repair it: it says what the weights are", file)
        return
    shape = model.architecture.shape()
    longest = seq_len or shape.max_position_embeddings
    for reason, hint in foreign_reasons(about, shape, longest):
        yield Problem(FIELD, f"{beside}: {reason}", hint, file)


def _is_altered(found: Path) -> bool:
    """Whether a checkpoint's manifest says that other bytes were written. Raises OSError."""
    files = (read_json(found.with_name("manifest.json")) or {}).get("files")
    stated = files.get(FILE) if isinstance(files, dict) else None
    if not isinstance(stated, dict) or stated.get("algo") != "blake3":
        return False
    return fingerprint(found) != (stated.get("size"), f"blake3:{stated.get('hash')}")


def weights_notes(model: ModelConfig) -> Iterator[str]:
    """What the weights were made with and the config has otherwise, though they fit; what is taken
    for granted where nothing says what they are.
    """
    beside, shape = _beside(model), model.architecture
    for name in ("rope_theta", "rms_norm_eps"):
        value, now = made_with(beside, name), getattr(shape, name)
        if value is not None and value != now:
            yield f"the weights in {model.path} were made with {name} {value:g}, not {now:g}"
    begins = start_weights(model) is not None
    if begins and "model_type" not in beside:
        missing = "no model_type in" if beside else "no"
        yield (
            f"{missing} config.json beside the weights in {model.path}: taken for llama with "
            f"rope_theta {shape.rope_theta:g}, rms_norm_eps {shape.rms_norm_eps:g}, plain "
            "positions and silu"
        )
    if begins and model.initialization != InitializationConfig():
        yield f"model.initialization is not used: weights come from {model.path}"


def parent_run(model: ModelConfig) -> str | None:
    """The id of the run whose checkpoint the weights are; None for others."""
    file = start_weights(model)
    if file is None:
        return None
    folder = file.resolve().parent.parent
    run = RunDir(folder.parent)
    known = (read_json(run.run_json) or {}).get("id")  # the folder may be a copy of another name
    is_one = folder == run.checkpoints and isinstance(known, str) and is_run_id(known)
    return known if is_one else None


def _beside(model: ModelConfig) -> dict[str, Any]:
    """The config.json that transformers and our checkpoints put beside weights; empty without."""
    file = start_weights(model)
    return {} if file is None else read_json(file.with_name("config.json")) or {}


def refuse_misfits(model: ModelConfig, seq_len: int) -> None:
    """Raises ConfigError where `weights_problems` finds any."""
    if problems := weights_problems(model, seq_len=seq_len):
        first = problems[0]
        raise ConfigError(f"{FIELD}: {first.message}", hint=first.hint, problems=problems)


def _misfits(file: Path, model: ModelConfig) -> Iterator[str]:
    """What of a file is not what the model wants."""
    held, wanted = read_header(file), model.architecture.shape().tensor_shapes()
    for name, shape in wanted.items():
        if name not in held:
            yield f"{name} is missing"
        elif tuple(held[name]["shape"]) != shape:
            yield f"{name} is {held[name]['shape']}, not {[*shape]}"
        elif held[name]["dtype"] not in FLOATS:
            yield f"{name} holds {held[name]['dtype']}, no floats"
    yield from (f"{name} is not in the model" for name in held if name not in wanted)
    beside = _beside(model)
    for name in ("num_attention_heads", "num_key_value_heads"):  # other heads, the same matrices
        if beside.get(name) not in (None, now := getattr(model.architecture, name)):
            yield f"{name} is {beside[name]} in its config.json, not {now}"
