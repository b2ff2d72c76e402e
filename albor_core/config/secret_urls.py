"""The URLs of sinks and the headers of a collector in a config: secrets, which nothing that is kept
of it may hold.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig, parse_config
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.values.webhook_url import HIDDEN

_TELLING = 6  # characters of a header that can be told from other words


def sink_entries(config: Config) -> list[dict[str, Any]]:
    """The sinks of a config as plain data, with their URLs."""
    return [one.with_url() for one in config.monitoring.notify]


def secrets_of(config: Config) -> tuple[str, ...]:
    """Secrets that stand in a config itself and can be told from other words, longest first."""
    headers = {value for value in headers_of(config).values() if len(value) >= _TELLING}
    return tuple(sorted({*_urls(config), *headers}, key=len, reverse=True))


def headers_of(config: Config) -> dict[str, str]:
    """The headers of its collector that are not hidden already."""
    found = config.monitoring.otlp.plain_headers()
    return {name: value for name, value in found.items() if value != HIDDEN}


def _urls(config: Config) -> set[str]:
    return {str(entry["url"]) for entry in sink_entries(config) if entry["url"]} - {HIDDEN}


def without_secrets(loaded: LoadedConfig) -> LoadedConfig:
    """The same config, whose bytes say "hidden" where they had one. Raises ConfigError where they
    write one so that it cannot be found.
    """
    if not _is_secretive(loaded.config):
        return loaded
    raw = _blanked(loaded.raw, loaded.config)
    file = str(loaded.path)
    try:
        config = parse_config(raw, file=file, overrides=loaded.overrides)
    except ConfigError:
        config = None
    if config is None or _is_secretive(config) or config.resolved() != loaded.config.resolved():
        raise _not_found(config or loaded.config, file)
    return replace(loaded, raw=raw, config=config)


def _is_secretive(config: Config) -> bool:
    return bool(_urls(config) or headers_of(config))


def _blanked(raw: bytes, config: Config) -> bytes:
    """The bytes of a config without its secrets, where they are written in one piece."""
    for url in sorted(_urls(config), key=len, reverse=True):
        raw = raw.replace(url.encode(), HIDDEN.encode())
    for name, value in headers_of(config).items():  # a short one may stand elsewhere, too
        before = rb"""(\b%s["']?[^\S\n]*:[^\S\n]*["']?)""" % re.escape(name.encode())
        raw = re.sub(before + re.escape(value.encode()), rb"\1" + HIDDEN.encode(), raw)
    return raw


def _not_found(config: Config, file: str) -> ConfigError:
    """The error of a config that still contains a secret."""
    if _urls(config):
        what, where, other = "URL", "notify", "url_env"
    else:
        what, where, other = "header", "otlp.headers", "OTEL_EXPORTER_OTLP_HEADERS"
    message = (
        f"its {what} cannot be taken out of what the run keeps: it is not written in one piece"
    )
    hint = f"write it on one line without escapes, or use {other}"
    problem = Problem(f"monitoring.{where}", message, hint, file)
    return ConfigError(str(problem), hint=hint, problems=(problem,))
