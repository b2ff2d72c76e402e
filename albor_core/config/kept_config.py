"""The config that a run goes on with, read back from its directory."""

from __future__ import annotations

import json
import shlex
from typing import Any

from albor_core.config.config import Config
from albor_core.config.load import load_config, parse_config
from albor_core.run import checkpoints
from albor_core.run.errors import ConfigError, NotFoundError, Problem, UsageError
from albor_core.run.rundir import RunDir, load_json, read_json


def config_of(run: RunDir) -> Config:
    """What `run` goes on with. Raises UsageError where `albor train` began no such run, and
    ConfigError where the file is damaged, or of an older version and would be refused today.
    """
    file = str(run.config_resolved)
    try:
        return parse_config(json.dumps(read_resolved(run)).encode(), file=file)
    except ConfigError as error:
        if not error.problems:  # said by `read_resolved`
            raise
        if _is_right(run):
            how = f"is damaged: {error.problems[0].field}: {error.problems[0].message}"
            raise _damaged(run, how, error.problems) from error
        error.hint = (
            f"fix {run.config_yaml}, then: albor train resume {run.id} --allow-config-change"
        )
        raise


def read_resolved(run: RunDir) -> dict[str, Any]:
    """config.resolved.json as it is. Raises as `config_of`."""
    path, is_ours = run.config_resolved, run.config_yaml.is_file()
    try:
        found = load_json(path)
    except FileNotFoundError as error:
        if is_ours:
            raise _damaged(run, "is gone") from error
        raise UsageError(
            f"{run.path}: no {path.name}, so this is not a run of `albor train`",
            hint="albor guard run -- CMD",
        ) from error
    except OSError as error:
        raise _damaged(run, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _damaged(run, f"is damaged: it {error}") from error
    if isinstance(found.get("guard"), dict):
        return found
    if is_ours:
        raise _damaged(run, "is damaged: it has no section guard")
    raise UsageError(
        f"{path}: no section guard, so this is not a run of `albor train`",
        hint="albor train apply CONFIG begins a new run",
    )


def _damaged(run: RunDir, how: str, problems: tuple[Problem, ...] = ()) -> ConfigError:
    newest = checkpoints.newest(run.checkpoints, is_readable=False)
    chosen = _overrides(run)
    if newest is not None:
        chosen["model.path"] = str(newest[1])
    sets = [word for field, value in chosen.items() for word in ("--set", f"{field}={value}")]
    again = shlex.join(["albor", "train", "apply", str(run.config_yaml), *sets])
    new = "a new run" if newest is None else "a new run from its weights"
    return ConfigError(
        f"{run.config_resolved} {how}",
        hint=f"put a copy of the file back; for {new}: {again}",
        problems=problems,
    )


def _is_right(run: RunDir) -> bool:
    """Whether the config that the run began with would be valid today."""
    chosen = tuple(f"{field}={value}" for field, value in _overrides(run).items())
    try:
        load_config(run.config_yaml, chosen)
    except (ConfigError, NotFoundError):
        return False
    return True


def _overrides(run: RunDir) -> dict[str, str]:
    """The overrides of the command line, by field."""
    said = (read_json(run.run_json) or {}).get("overrides") or {}
    return {field: one["set"] for field, one in said.items()}
