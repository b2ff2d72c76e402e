"""Sinks: destinations of alerts besides the cockpit, the journal and the stores. Values, and their
problems.

They come from `monitoring.notify` of a config and from `notify:` of ALBOR_HOME/rules.yaml.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from albor_core.andon.severity import severity_of
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.values.sink_fields import FIELDS, THRESHOLDS, sink_problems
from albor_core.run.values.webhook_url import HIDDEN, url_problem

SENT_KINDS = ("webhook", "command")
"""Those that the index process serves; the others are drawn by whoever has a terminal."""


@dataclass(frozen=True)
class Sink:
    """One destination. `severity`: the least severity that it gets. `source`: "config", of a run
    that was started here, or "user". The URL is a secret and never part of its repr.
    """

    name: str
    kind: str
    severity: str = "warning"
    format: str = "json"
    url_env: str | None = None
    url: str | None = field(default=None, repr=False)
    allow_http: bool = False
    allow_private: bool = False
    argv: tuple[str, ...] = ()
    source: str = "config"

    def wants(self, severity: str) -> bool:
        """Whether it gets alerts of this severity."""
        return THRESHOLDS.index(severity_of(severity)) >= THRESHOLDS.index(self.severity)

    def address(self, environment: Mapping[str, str]) -> str:
        """The URL. Raises ConfigError that names a missing variable, and never repeats the URL."""
        url = self.url if self.url_env is None else environment.get(self.url_env, "")
        if not url or url == HIDDEN:
            what = f"{self.url_env} is not set" if self.url_env else "its URL is not known here"
            raise ConfigError(f"{self.name}: {what}")
        if why := url_problem(url, allow_http=self.allow_http):
            raise ConfigError(f"{self.name}: its URL {why}")
        return url

    def sentence(self) -> str:
        """A description for a plan: "slack (webhook from $ALBOR_WEBHOOK): warning and worse"."""
        where = {
            "webhook": f"{self.format} webhook"
            + (f" from ${self.url_env}" if self.url_env else " of the config"),
            "command": f"command {self.argv[0] if self.argv else '?'}",
            "desktop": "notices of the terminal that the cockpit is in",
            "console": "lines on the terminal that follows the run",
        }[self.kind]
        worse = "" if self.severity == THRESHOLDS[-1] else " and worse"
        return f"{self.name}: {where}; alerts of severity {self.severity}{worse}"

    def to_json(self) -> dict[str, Any]:
        """Plain data with the URL: for a file that only the user can read."""
        found = {name: getattr(self, name) for name in FIELDS}
        return {**found, "argv": list(self.argv)}


def sinks_from(
    entries: Any,
    *,
    where: str = "notify",
    file: str = "",
    source: str = "config",
    damaged: list[Problem] | None = None,
) -> tuple[Sink, ...]:
    """The sinks of plain data. Raises ConfigError with every problem, each with its field. With
    `damaged`, which collects them, it does not raise: an unusable sink is only skipped.
    """
    if entries is None:
        return ()
    found: list[Sink] = []
    problems: list[Problem] = [] if damaged is None else damaged
    if not isinstance(entries, list | tuple):
        problems.append(Problem(where, "must be a list of sinks", "", file))
        entries = ()
    for index, entry in enumerate(entries):
        at = f"{where}.{index}"
        if not isinstance(entry, Mapping):
            problems.append(Problem(at, "must be a section with fields", "", file))
            continue
        wrong = [
            Problem(f"{at}.{name}", what, hint, file) for name, what, hint in sink_problems(entry)
        ]
        problems += wrong
        if not wrong:
            given = {name: value for name, value in entry.items() if value is not None}
            argv = tuple(given.pop("argv", ()))
            found.append(Sink(**{"name": "", **given, "argv": argv, "source": source}))
    if problems and damaged is None:
        raise ConfigError(str(problems[0]), hint=problems[0].hint, problems=tuple(problems))
    return tuple(_named(found))


def _named(sinks: Iterable[Sink]) -> list[Sink]:
    """The sinks, each with a unique name: its kind or format if it has none."""
    found: list[Sink] = []
    for sink in sinks:
        name = sink.name or (sink.format if sink.kind == "webhook" else sink.kind)
        name = "webhook" if name == "json" else name
        names, number, free = {one.name for one in found}, 1, name
        while free in names:
            number += 1
            free = f"{name}-{number}"
        found.append(replace(sink, name=free))
    return found


def joined(*lists: Sequence[Sink]) -> tuple[Sink, ...]:
    """The sinks of several lists; those that two lists name alike appear once."""
    found: dict[tuple[Any, ...], Sink] = {}
    for sink in (one for sinks in lists for one in sinks):
        found.setdefault((sink.kind, sink.url_env, sink.url, sink.argv), sink)
    return tuple(_named(found.values()))


def unset_variables(sinks: Sequence[Sink]) -> set[str]:
    """Environment variables of webhooks that are not set."""
    named = {sink.url_env for sink in sinks if sink.url_env is not None}
    return {name for name in named if not os.environ.get(name)}
