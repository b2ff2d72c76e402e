"""The fields of a sink, a place where alerts go, and what is wrong with them.

Written in `monitoring.notify` of a config and in `notify:` of ALBOR_HOME/rules.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from albor_core.run.values.webhook_url import HIDDEN, url_problem

FIELDS = (
    "name",
    "kind",
    "severity",
    "format",
    "url_env",
    "url",
    "allow_http",
    "allow_private",
    "argv",
)
SINK_KINDS = ("webhook", "command", "desktop", "console")
FORMATS = ("json", "slack", "discord", "ntfy")
THRESHOLDS = ("info", "warning", "error", "critical")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_NAME = re.compile(r"[\w][\w .-]{0,39}")


def sink_problems(entry: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(field, what is wrong, what helps) of one sink as it was written; never a value of `url`."""
    found = [
        (str(name), "is not a field", f"fields here: {', '.join(FIELDS)}")
        for name in entry
        if name not in FIELDS
    ]
    for name, words in (("kind", SINK_KINDS), ("format", FORMATS), ("severity", THRESHOLDS)):
        value = entry.get(name)
        if value not in words and not (value is None and name != "kind"):
            is_told = isinstance(value, str) and "/" not in value  # what is a URL is a secret
            shown = f", is {str(value)[:40]!r}" if is_told else ", is missing" * (value is None)
            found.append((name, f"must be one of {', '.join(words)}{shown}", ""))
    for name in ("allow_http", "allow_private"):
        if not isinstance(entry.get(name, False), bool | None):
            found.append((name, "must be true or false", ""))
    called = entry.get("name")
    if called and not (isinstance(called, str) and _NAME.fullmatch(called)):
        found.append(("name", "must be a word of at most 40 letters, digits, . _ -", ""))
    return found + _of_kind(entry)


def _of_kind(entry: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    kind, argv = entry.get("kind"), entry.get("argv")
    has_url = [name for name in ("url", "url_env") if entry.get(name) is not None]
    found: list[tuple[str, str, str]] = []
    if kind == "webhook":
        if len(has_url) != 1:
            message = "is missing" if not has_url else "stands beside url: keep one"
            found.append(("url_env", message, "name the environment variable that holds the URL"))
        found += _of_url(entry)
    else:
        found += [(name, "is of a webhook only", "") for name in has_url]
    if kind == "command":
        is_list = isinstance(argv, list | tuple) and argv and all(isinstance(w, str) for w in argv)
        if not is_list or any("\0" in word for word in argv or ()) or not (argv or [""])[0]:
            hint = "for example: argv: [notify-send, Albor]"
            found.append(("argv", "must be a list of words: a program and its arguments", hint))
    elif argv:
        found.append(("argv", "is of a command only", ""))
    return found


def _of_url(entry: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    url, name = entry.get("url"), entry.get("url_env")
    if name is not None:
        # compiles 10 ms of patterns, of which a config without sinks has no use
        from albor_core.run.values.redact import is_shown  # noqa: PLC0415

        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            return [("url_env", "must be the name of an environment variable", "")]
        if is_shown(name):
            hint = "a name with WEBHOOK in it is always hidden"
            return [("url_env", f"{name} is a variable whose value reports show", hint)]
    if url is None or url == HIDDEN:
        return []
    if not isinstance(url, str):
        return [("url", "must be text", "")]
    why = url_problem(url, allow_http=entry.get("allow_http") is True)
    return [("url", why, "")] if why else []
