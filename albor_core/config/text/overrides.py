"""`--set key=value`: what it changes in a config, and how it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from albor_core.config.text.fields import TWINS, FieldTree
from albor_core.config.text.problems import SINKS
from albor_core.config.text.strict_yaml import KeyPath, load_yaml
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.values.webhook_url import HIDDEN

_OTLP = ("monitoring", "otlp")


def override(
    data: Mapping[str, Any], overrides: Sequence[str], fields: FieldTree
) -> tuple[dict[str, Any], dict[KeyPath, str], list[Problem]]:
    """The data with overrides applied, the source of each value set, and the wrong overrides."""
    changed = _copy(data)
    sources: dict[KeyPath, str] = {}
    found: list[Problem] = []
    named: dict[KeyPath, Any] = {}  # what was set by this very name
    for text in overrides:
        source = f"--set {shown_override(text)}"
        dotted, equals, value = text.partition("=")
        path: KeyPath = fields.real_name(tuple(part.strip() for part in dotted.split(".")))
        if not equals or not all(path):
            found.append(Problem("", "is not key=value", "--set optimizer.lr=3e-4", source))
        elif not fields.has(path):
            found.append(_no_field(path, source, fields))
        elif shown_override(text) != text:
            what, field, hint = _of_secret(dotted)
            message = f"{what} is a secret, and a command line is shown to every user of this host"
            found.append(Problem(field, message, hint, source))
        else:
            try:
                parsed = load_yaml(value.encode(), file=source).data
            except ConfigError as error:
                found += error.problems
                continue
            twin = TWINS.get(path)
            if twin is not None and named.get(twin, parsed) != parsed:
                message = f"{parsed}, but {sources[twin]}"
                hint = "they are the same setting: keep one"
                found.append(Problem(".".join(map(str, path)), message, hint, source))
                continue
            _set(changed, path, parsed, fields)
            sources[path], named[path] = source, parsed
            if twin is not None:
                _set(changed, twin, parsed, fields)
                sources[twin] = source
    return changed, sources, found


def _of_secret(dotted: str) -> tuple[str, str, str]:
    """The secret that an override would reveal, its field, and the alternative."""
    if dotted.strip().startswith("monitoring.otlp"):
        return "a header", "monitoring.otlp.headers", "use OTEL_EXPORTER_OTLP_HEADERS"
    return "a URL", "monitoring.notify", "use url_env"


def shown_override(text: str) -> str:
    """A `key=value` text as it may be repeated: without the URL of a sink, without a header."""
    dotted, _, value = text.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if path[:2] == _OTLP and re.search(r"\bheaders\b", text):
        return f"{'.'.join((*_OTLP, 'headers'))}={HIDDEN}"
    is_of_sinks = path[:2] in (("monitoring",), SINKS)
    holds_url = is_of_sinks and re.search(r"://|\burl\b", f"{dotted} {value}") is not None
    return f"{dotted}={HIDDEN}" if holds_url else text


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def _no_field(path: KeyPath, source: str, fields: FieldTree) -> Problem:
    """The problem of an override that names no field; entries of lists cannot be overridden."""
    at = next((i for i, part in enumerate(path) if str(part).isdigit()), 0)
    if at and fields.section_at(path[:at]) is not None and path[0] != "recipe":
        whole = ".".join(map(str, path[:at]))
        what = f"is a part of a list, and --set replaces {whole} as a whole"
        return Problem(".".join(map(str, path)), what, "edit the file", source)
    return Problem(".".join(map(str, path)), "is not a field", fields.suggestion(path), source)


def _set(data: dict[str, Any], path: KeyPath, value: Any, fields: FieldTree) -> None:
    section = fields.section_at(path[:-1])
    for part in path[:-1]:
        inner = data.get(str(part))
        if not isinstance(inner, dict):
            inner = data[str(part)] = {}
        data = inner
    for alias, name in getattr(section, "ALIASES", {}).items():
        if name == path[-1]:
            data.pop(alias, None)  # what the file says under it is overruled, too
    data[str(path[-1])] = value
