"""Describes sinks in a plan: which alerts each gets, and what would keep an alert from arriving."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from albor_core.andon.channels.kept_sinks import user_sinks, with_kept_urls
from albor_core.andon.channels.sinks import joined, sinks_from
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.rundir import RunDir
from albor_core.run.values.webhook_url import HIDDEN


def notify_sentences(entries: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """One sentence per sink, including those of the user's rules.yaml."""
    problem = ""
    try:
        mine = user_sinks()
    except ConfigError as error:
        mine, problem = (), error.message
    try:
        sinks = joined(sinks_from(entries), mine)
    except ConfigError:  # `notify_problems` says why
        sinks = mine
    lacking = [
        f"{sink.name}: {sink.url_env} is not set here, so nothing would arrive"
        for sink in mine
        if sink.url_env is not None and not os.environ.get(sink.url_env)
    ]
    told = tuple(f"alerts are sent to {sink.sentence()}" for sink in sinks)
    return (*told, *lacking, *([problem] if problem else []))


def notify_problems(
    entries: Sequence[Mapping[str, Any]], run: RunDir | None, *, file: str
) -> tuple[Problem, ...]:
    """Reasons why sinks of a config would never get an alert from this machine."""
    found = []
    for index, entry in enumerate(with_kept_urls(run, entries)):
        where, name = f"monitoring.notify.{index}", entry.get("url_env")
        if isinstance(name, str) and not os.environ.get(name):
            message = f"{name} is not set in this environment"
            found.append(Problem(f"{where}.url_env", message, f"export {name}=URL", file))
        if entry.get("url") == HIDDEN:
            hint = "write the URL itself, or use url_env"
            found.append(Problem(f"{where}.url", "was hidden in this copy of a config", hint, file))
    return tuple(found)
