"""Which settings may differ when a run is resumed, and what was edited in config.yaml since then.

run.json remembers the hash of the file and what the command line set on top of it: by field, the
text that was set and what the file said there. Where the file says something else now, the edit
wins; elsewhere what was set stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albor_core.config.load import LoadedConfig, parse_config, with_defaults
from albor_core.config.text.strict_yaml import MAX_BYTES, load_yaml
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir, open_plain
from albor_core.run.values.flatten import Difference, diff_configs

# What may change between two attempts without changing where the weights go.
FREE = (
    "monitoring",
    "guard",
    "training.output_dir",
    "training.save_interval",
    "training.checkpoint",
    "training.log_interval",
    "training.eval_interval",
    "training.eval_batches",
    "training.num_threads",
    "training.early_stopping_patience",
    "training.sample_prompts",
    "training.parity",
    "training.nan_limit",
    "training.stability.loss_spike",
    "training.stability.max_rollbacks",
    "training.stability.noise_scale_interval",
    "training.device",
    "training.compile",
    "training.deterministic",
    "training.activation_checkpointing",
    "training.distributed",
)
# What a model with the same weights may go on with otherwise.
PLASTIC = ("max_position_embeddings", "rope_theta", "rms_norm_eps")


def binding(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved config that decides where the weights go."""
    return {
        path: value
        for path, _, value in diff_configs({}, resolved)
        if not any(path == free or path.startswith(f"{free}.") for free in FREE)
    }


def changed_fields(saved: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The fields of `binding` that differ between a checkpoint's config and the run's."""
    return diff_configs(binding(with_defaults(saved)), binding(now))


def never_allowed(changes: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Changes that are never allowed once there is a checkpoint: it has another model, optimizer or
    start.
    """
    return tuple(
        change
        for change in changes
        if change[0] in ("optimizer.name", "model.path")
        or (change[0].startswith("model.architecture.") and change[0].split(".")[2] not in PLASTIC)
    )


def change_refused(
    what: str, changes: tuple[Difference, ...], *, file: str, hint: str
) -> ConfigError:
    """The error that lists them: `what` happened to `file`."""
    listed = "; ".join(f"{path}: {old} -> {new}" for path, old, new in changes)
    return ConfigError(
        f"{file}: {what} ({listed})",
        hint=hint,
        problems=tuple(
            Problem(path, f"was {old}, is {new}", "", file) for path, old, new in changes
        ),
    )


def origin(loaded: LoadedConfig) -> dict[str, Any]:
    """The record for run.json that `edited` needs later."""
    data = load_yaml(loaded.raw, file=str(loaded.path)).data
    overrides = {}
    for text in loaded.overrides:
        path, _, value = text.partition("=")
        overrides[path.strip()] = {"set": value, "file": _value(data, path.strip())}
    return {"config_sha256": _digest(loaded.raw), "overrides": overrides}


def edited(run: RunDir) -> LoadedConfig | None:
    """The config of a run whose config.yaml is not the one it began with; None where it is, or
    where nothing is remembered of it. Raises ConfigError, with every problem of the file.
    """
    about = run.metadata()
    path, known = run.config_yaml, about.get("config_sha256")
    if known is None:
        return None
    raw = _read(path)
    if _digest(raw) == known:
        return None
    data = load_yaml(raw, file=str(path)).data
    kept = tuple(
        f"{field}={one['set']}"
        for field, one in about.get("overrides", {}).items()
        if _value(data, field) == one["file"]
    )
    return LoadedConfig(raw, parse_config(raw, file=str(path), overrides=kept), path, kept)


def set_later(run: RunDir, field: str, value: str) -> None:
    """Remember that the command line set `field` of a run that had begun. Raises ConfigError."""
    about, path = run.metadata(), run.config_yaml
    data = load_yaml(_read(path), file=str(path)).data
    overrides = {**about.get("overrides", {}), field: {"set": value, "file": _value(data, field)}}
    write_json(run.run_json, {**about, "overrides": overrides}, durable=True)


def _read(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="put the file back") from error


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _value(data: Any, path: str) -> str | None:
    """The value at a dotted path of a file, as text for comparison; None if there is none."""
    for part in path.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return repr(data)
