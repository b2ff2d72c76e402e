"""A training config: bytes in, one frozen `Config` out, or every problem at once.

Relative paths in a config are relative to the directory the command is run in. Numbers may be
written `32_768`, `32K`, `10B` or `3e-4` (see `numbers`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from albor_core.config.config import Config, problems_between
from albor_core.config.recipes.registry import DEFAULT, required
from albor_core.config.sections.guard import GuardConfig
from albor_core.config.sections.section import CROSS_CHECK
from albor_core.config.text.config_file import packaged_config, packaged_configs, read_config_file
from albor_core.config.text.fields import FieldTree, children
from albor_core.config.text.overrides import override
from albor_core.config.text.problems import Places, field_problems
from albor_core.config.text.strict_yaml import MAX_BYTES, YamlDocument, read_yaml, refusal
from albor_core.run.errors import NotFoundError, Problem

_FIELDS = FieldTree(Config)
MoreProblems = Callable[[Mapping[str, Any]], Iterable[Problem]]
"""What a room above finds wrong with a `monitoring` section, as plain data with every default."""


@dataclass(frozen=True)
class LoadedConfig:
    """A config with the exact bytes of its file; overrides are in `config` and not in `raw`."""

    raw: bytes
    config: Config
    path: Path
    overrides: tuple[str, ...] = ()
    """`key=value` texts."""
    places: Places | None = None
    """Where its values are written."""

    def place(self, field: str) -> str:
        """`file:line` or `--set KEY=VALUE` of a dotted field, or of the section it would be in."""
        return str(self.path) if self.places is None else self.places.of(field)


def load_config(
    path: Path, overrides: Sequence[str] = (), more: MoreProblems | None = None
) -> LoadedConfig:
    """Read and check a file, or the config of that name which comes with Albor where there is no
    such file. Raises NotFoundError, or ConfigError with every problem, those that `more` finds
    among them.
    """
    try:
        raw = read_config_file(path, MAX_BYTES + 1)
    except OSError as error:
        if error.errno in _NO_FILE and packaged_config(str(path)) is not None:
            return load_packaged(str(path), overrides, more)
        raise NotFoundError(f"{path}: {error.strerror}", hint=_hint()) from error
    config, places = _checked(raw, str(path), overrides, more)
    return LoadedConfig(raw, config, path, tuple(overrides), places)


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


def load_packaged(
    name: str, overrides: Sequence[str] = (), more: MoreProblems | None = None
) -> LoadedConfig:
    """A config that comes with Albor, `demo` or `train/pretrain-50m`, wherever it is installed.

    Raises NotFoundError where there is none of that name.
    """
    if (found := packaged_config(name)) is None:
        raise NotFoundError(f"no config {name!r} comes with Albor", hint=_hint())
    return load_config(found, overrides, more)


def _hint() -> str:
    return f"`albor init` writes one; Albor's own are {', '.join(packaged_configs())}"


def guard_options(options: Sequence[str]) -> dict[str, Any]:
    """The `guard` section as plain JSON from its defaults and `key=value` texts (`stale_s=60`).

    Raises ConfigError with every problem.
    """
    prefixed = [f"guard.{text}" for text in options]
    data, sources, found = override({}, prefixed, _FIELDS)
    places = Places(YamlDocument(None), sources, "", _FIELDS)
    try:
        section = GuardConfig.model_validate(data.get("guard"))
    except ValidationError as error:
        found += field_problems(error, places, above=("guard",))
        raise refusal([_as_option(problem) for problem in found]) from error
    if found:
        raise refusal([_as_option(problem) for problem in found])
    return section.model_dump(mode="json")


def _as_option(problem: Problem) -> Problem:
    """A problem with a text of `--option`, in the words of whoever wrote that."""
    words = {
        "--set guard.": "--option ",
        "--set": "--option",
        "guard.": "",
        "fields here": "options",
    }
    words |= {"is not a field": "is not an option", "optimizer.lr=3e-4": "stale_s=60"}
    texts = [problem.field, problem.message, problem.hint, problem.file]
    for old, new in words.items():
        texts = [text.replace(old, new) for text in texts]
    field, message, hint, file = texts
    if message.startswith("is "):
        return Problem("", f"{file or field} {message}", hint)
    return Problem(field, message, hint, file)


def with_defaults(resolved: Mapping[str, Any]) -> Mapping[str, Any]:
    """A resolved config that was written down, and fields younger than it, which had their defaults
    then; of a version with other fields, as it is.
    """
    try:
        return Config.model_validate(resolved).resolved()
    except ValidationError:
        return resolved


def parse_config(raw: bytes, *, file: str, overrides: Sequence[str] = ()) -> Config:
    """Check the bytes of a config with `key=value` overrides on top.

    Raises ConfigError whose `problems` name file:line, dotted field, cause and fix.
    """
    return _checked(raw, file, overrides, None)[0]


def _checked(
    raw: bytes, file: str, overrides: Sequence[str], more: MoreProblems | None
) -> tuple[Config, Places]:
    document, unread = read_yaml(raw, file=file)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of sections"
        empty = Problem("", what, "albor init writes a whole one", file)
        raise refusal(unread or [empty], file=file)
    data, sources, found = override(document.data, overrides, _FIELDS)
    places = Places(document, sources, file, _FIELDS)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        mode, (right, contradictions, lost) = _mode_in(data), _right_parts(data)
        found_between = problems_between(right, mode)
        between = [*_about_others([*contradictions, *found_between], lost), *_missing(data, mode)]
        if more is not None and "monitoring" in right:
            between += more(right["monitoring"].model_dump(mode="json"))
        found = [*field_problems(error, places, between=between), *found]
    else:
        if (found or unread) and more is not None:
            found += [
                replace(one, file=places.of(one.field))
                for one in more(config.resolved()["monitoring"])
            ]
        if not found and not unread:
            return config, places
    raise refusal(_in_order([*unread, *_beside(unread, found)]), file=file)


def _beside(unread: Sequence[Problem], found: Sequence[Problem]) -> Iterator[Problem]:
    """Problems in `found` that are not about a value which could not be read, and so is empty."""
    lost = [problem.field for problem in unread]
    for problem in found:
        if not any(f"{problem.field}.".startswith(f"{field}.") for field in lost if field):
            yield problem


def _in_order(found: Iterable[Problem]) -> list[Problem]:
    """Problems in the order of their lines, those of overrides last."""
    lines = {problem: problem.file.rpartition(":")[2] for problem in found}
    # a number is a line, and what has none stands behind all
    return sorted(lines, key=lambda one: int(lines[one]) if lines[one].isdigit() else 1 << 62)


def _mode_in(data: Mapping[str, Any]) -> str:
    """The training.mode of a config, valid or not."""
    training = data.get("training")
    said = training.get("mode") if isinstance(training, Mapping) else None
    return said if isinstance(said, str) else DEFAULT


def _missing(data: Mapping[str, Any], mode: str) -> Iterator[Problem]:
    """Fields that the recipe needs and the config lacks, also in invalid sections."""
    for field in required(mode):
        section, name = field.split(".")
        said = data.get(section) or {}
        if not isinstance(said, Mapping):
            continue  # refused as it stands
        is_said = name in said
        stands_in = field == "model.architecture" and said.get("path", ".") not in (".", "")
        stands_in |= field == "data.train" and bool(said.get("mixture"))
        if not is_said and not stands_in and (section in data or section == "model"):
            yield Problem(field, "is required", "or data.mixture" if section == "data" else "")


def _right_parts(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem], set[str]]:
    """The sections of a config without the fields that are wrong by themselves, what does not fit
    together in the rest of them, and the names of those fields.
    """
    right: dict[str, Any] = {}
    found: list[Problem] = []
    lost: set[str] = set()
    for name, section in children(Config).items():
        said = data.get(name)
        if section is None:
            right |= {name: said} if isinstance(said, Mapping) else {}
            continue
        try:
            right[name] = section.model_validate(said)
            continue
        except ValidationError as error:
            wrong = {str(detail["loc"][0]) for detail in error.errors() if detail["loc"]}
        if not isinstance(said, Mapping):
            continue
        lost |= wrong
        try:
            right[name] = section.model_validate({k: v for k, v in said.items() if k not in wrong})
        except ValidationError as error:
            found += _contradictions(error, name)
    return right, found, lost


def _contradictions(error: ValidationError, section: str) -> Iterator[Problem]:
    for detail in error.errors():
        if detail["type"] == CROSS_CHECK:
            above = ".".join(map(str, (section, *detail["loc"])))
            for one in detail["ctx"]["found"]:
                yield replace(one, field=f"{above}.{one.field}")


def _about_others(found: Iterable[Problem], lost: Collection[str]) -> Iterator[Problem]:
    """Problems that do not involve a field whose value is unknown."""
    for problem in found:
        words = re.findall(r"\w+", f"{problem.field} {problem.message} {problem.hint}")
        if not set(words) & set(lost):
            yield problem
