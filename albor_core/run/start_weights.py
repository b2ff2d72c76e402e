"""The weights a run begins from, where `model.path` names some; checked without torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from albor_core.run.errors import ConfigError, Problem
from albor_core.run.sections import ModelConfig
from albor_core.run.tensor_header import FLOATS, DamagedFileError, read_header

FIELD, FILE = "model.path", "model.safetensors"
_SHOWN = 3  # tensors that do not fit


def start_weights(model: ModelConfig) -> Path | None:
    """Their file; None where the run begins from random weights."""
    return None if model.path == Path() else model.path / FILE


def weights_problems(model: ModelConfig, *, file: str = "") -> tuple[Problem, ...]:
    """Why a model of this architecture cannot begin from `model.path`; `file` is the config's."""
    found = start_weights(model)
    if found is None:
        return ()
    hint = f'name a directory with {FILE} in it, a checkpoint of a run say, or "."'
    if not found.exists():
        return (Problem(FIELD, f"no {FILE} in {model.path}", hint, file),)
    try:
        misfits = list(_misfits(found, model))
    except OSError as error:
        return (Problem(FIELD, f"{found}: cannot be read: {error.strerror}", hint, file),)
    except DamagedFileError as error:
        reason = str(error).removeprefix(f"{found.name}: ")
        return (Problem(FIELD, f"{found} is damaged: {reason}", hint, file),)
    if not misfits:
        return ()
    more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
    listed = f"{found} does not fit model.architecture: {', '.join(misfits[:_SHOWN])}{more}"
    return (Problem(FIELD, listed, "give the architecture that the weights have", file),)


def refuse_misfits(model: ModelConfig) -> None:
    """Raises ConfigError where `weights_problems` finds any."""
    if problems := weights_problems(model):
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
