"""The config of a run: its file as it was written, and what every field became.

A field's default is asked of the config models of this version; a run of another version may have
fields that they do not know, and those have none.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.feed.run.files import CachedJson, file_mark
from albor_core.run.errors import ConfigError
from albor_core.run.rundir import RunDir
from albor_core.run.values.clean import clean
from albor_core.run.values.flatten import bare, bare_leaves

MOST_BYTES = 1 << 20
LINE_CHARS = 2000
MOST_FIELDS = 5000


@dataclass(frozen=True)
class FieldView:
    """One field: its dotted key, its value as JSON or a bare word, its default (None: unknown or
    none). `origin` is "file", "default", "elsewhere" (--set, or computed from other fields) or
    "recorded": a program's own config, whose defaults are not known."""

    key: str
    value: str
    default: str | None = None
    origin: str = "default"
    is_changed: bool = False  # is not what it would be by default
    line: int | None = None  # of the file, from 1


@dataclass(frozen=True)
class ConfigView:
    """A run's config. `lines` are clean text; `problem` says why something is missing."""

    lines: tuple[str, ...] = ()
    fields: tuple[FieldView, ...] = ()
    problem: str = ""


class ConfigSheet:
    """Reads again what changed; a config does not, but a run directory may vanish. Never raises."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._resolved = CachedJson(run.config_resolved)
        self._made: tuple[tuple[object, ...], ConfigView] | None = None

    def look(self, params: Mapping[str, Any] | None = None) -> ConfigView:
        """The config; `params` are what the store remembers, for a run whose files are gone."""
        resolved = self._resolved.get()
        mark = (file_mark(self._run.config_yaml), id(resolved), _params_mark(params))
        if self._made is None or self._made[0] != mark:
            self._made = (mark, self._make(resolved, params or {}))
        return self._made[1]

    def _make(self, resolved: Mapping[str, Any] | None, params: Mapping[str, Any]) -> ConfigView:
        raw, problem = _read(self._run.config_yaml)
        places = _places(raw) if raw is not None else {}
        values = bare_leaves(resolved) if resolved is not None else _shown(params)
        known = _defaults(values.get("training.mode")) if resolved is not None else {}
        fields = tuple(
            _field(key, value, known.get(key), places.get(key))
            for key, value in list(values.items())[:MOST_FIELDS]
        )
        if resolved is None and not fields and raw is not None:
            problem = "config.resolved.json is missing or damaged: what the fields became is gone"
        return ConfigView(_lines(raw or b""), fields, problem)


def _field(key: str, value: str, doc: tuple[str, bool] | None, line: int | None) -> FieldView:
    default, is_required = doc if doc is not None else (None, False)
    same = default is not None and _same(value, default)
    unwritten = "default" if same or default is None else "elsewhere"
    origin = unwritten if line is None else "file"
    if doc is None and line is None:
        origin = "recorded"
    changed = default is not None and not is_required and not same
    if default == "computed":  # by whom is only known where the file says so
        changed, origin = line is not None, "file" if line is not None else "default"
    return FieldView(key, value, None if is_required else default, origin, changed, line)


def _same(value: str, default: str) -> bool:
    if value == default or (value == "null" and default in ("none", "computed")):
        return True
    if default == json.dumps(value):
        return True
    try:
        return bool(float(value) == float(default))
    except ValueError:
        return False


def _defaults(mode: str | None) -> dict[str, tuple[str, bool]]:
    """Default and whether it is required, by key, under a training.mode; 0.1 s at the first call
    for the models.
    """
    from albor_core.config.reference import field_docs  # noqa: PLC0415  imports pydantic

    found = field_docs() if mode is None else field_docs(mode)
    return {doc.key: (doc.default, doc.is_required) for doc in found}


def _shown(params: Mapping[str, Any]) -> dict[str, str]:
    return {k: bare(v) for k, v in params.items()}


def _places(raw: bytes) -> dict[str, int]:
    """The line of each key in the file; empty if it is not a readable config."""
    from albor_core.config.text.strict_yaml import load_yaml  # noqa: PLC0415  imports yaml

    try:
        lines = load_yaml(raw, file="config.yaml").lines
    except ConfigError:
        return {}
    return {".".join(map(str, path)): line for path, line in lines.items()}


def _read(path: Path) -> tuple[bytes | None, str]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"config.yaml cannot be read: {error.strerror}"
    with os.fdopen(fd, "rb", closefd=True) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None, "config.yaml is not a file"
        raw = file.read(MOST_BYTES + 1)
    cut = "only its first 1 MiB is shown" if len(raw) > MOST_BYTES else ""
    return raw[:MOST_BYTES], cut


def _lines(raw: bytes) -> tuple[str, ...]:
    text = raw.decode("utf-8", "replace")
    return tuple(clean(line.expandtabs(4), limit=LINE_CHARS) for line in text.split("\n"))[
        : -1 if text.endswith("\n") or not text else None
    ]


def _params_mark(params: Mapping[str, Any] | None) -> int:
    return 0 if not params else len(params)
