"""Where the spans of a run are sent: `monitoring.otlp` of its config, and the variables that all of
OpenTelemetry's exporters read.

What a config says is kept in ALBOR_HOME/otlp/ID.json, for the owner alone, and not in the run:
headers are secrets, and a run that was copied or pulled from elsewhere brings no address with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from albor_core.run.errors import Problem
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import albor_home, private_folder
from albor_core.run.home.registry import known_as
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import finite_of, mapping_of, text_of
from albor_core.run.values.otlp_fields import endpoint_problem, header_problem
from albor_core.run.values.webhook_url import HIDDEN

PATH = "/v1/traces"
TIMEOUT_S, LONGEST_S = 10.0, 60.0
_ENV = "OTEL_EXPORTER_OTLP_"
_FORM = "headers are name=value,name=value, with %2C for a comma in a value"
_OFF = ("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")


@dataclass(frozen=True)
class Collector:
    """`url` is where each batch is posted; `timeout_s` bounds a post. Headers are secrets."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = TIMEOUT_S

    @property
    def place(self) -> str:
        """What may be said of it: no path, which may hold a key."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def collector_of(run: RunDir, environment: Mapping[str, str]) -> tuple[Collector | None, str]:
    """The collector of a run's spans, and the reason if a configured one cannot be used; (None, "")
    if none is configured. Variables override the config, those of traces the general ones."""
    if any(environment.get(name, "").strip().lower() == word for name, word in _OFF):
        return None, ""
    url, headers, said_by = _place(run, environment)
    if not url:
        return None, ""
    if why := endpoint_problem(url):
        return None, f"{said_by} {why}"
    if (spoken := _of(environment, "TRACES_PROTOCOL") or _of(environment, "PROTOCOL")) not in (
        *("", "http/json", "http/protobuf"),
    ):
        return None, f"{_ENV}PROTOCOL is {spoken[:40]!r}, and traces are sent as http/json"
    headers = {name: value for name, value in headers.items() if not header_problem(name, value)}
    for name in ("HEADERS", "TRACES_HEADERS"):
        said, why = _headers(_of(environment, name))
        if why:  # a part of them would be refused by the collector, batch after batch
            return None, f"{_ENV}{name}: {why}"
        headers |= said
    return Collector(url, headers, _timeout_s(environment)), ""


def _place(run: RunDir, environment: Mapping[str, str]) -> tuple[str, dict[str, str], str]:
    """The URL, headers of the config where it is the config's (they are for no other), and the name
    of what says it.
    """
    if whole := _of(environment, "TRACES_ENDPOINT"):
        return whole, {}, f"{_ENV}TRACES_ENDPOINT"
    if base := _of(environment, "ENDPOINT"):
        return _with_path(base), {}, f"{_ENV}ENDPOINT"
    if run.alias or known_as(run) != run:
        return "", {}, ""
    own = text_of((read_json(otlp_file(run.id)) or {}).get("endpoint"))
    return (_with_path(own), kept_headers(run), "monitoring.otlp.endpoint") if own else ("", {}, "")


def _with_path(base: str) -> str:
    """The URL of traces below that of a collector; a query stays behind the path."""
    address, mark, query = base.partition("?")
    return address.rstrip("/") + PATH + mark + query


def _of(environment: Mapping[str, str], name: str) -> str:
    return environment.get(_ENV + name, "").strip()


def _headers(text: str) -> tuple[dict[str, str], str]:
    """`name=value,name=value`, values percent-encoded, as W3C baggage; and what is wrong with the
    first entry that is none. It is told by its place: what stands before a `=` may be the rest of a
    secret with a comma in it.
    """
    found: dict[str, str] = {}
    for place, entry in enumerate(text.split(","), start=1):
        if not entry.strip():  # behind a last comma
            continue
        name, equals, value = entry.partition("=")
        name, value = name.strip(), unquote(value.strip())
        why = header_problem(name, value) if equals else "has no ="
        if why:
            return {}, f"entry {place} {why}; {_FORM}"
        found[name] = value
    return found, ""


def _timeout_s(environment: Mapping[str, str]) -> float:
    """The timeout from the environment variables, which are in milliseconds."""
    text = _of(environment, "TRACES_TIMEOUT") or _of(environment, "TIMEOUT")
    with suppress(ValueError):
        ms = finite_of(float(text))
        if ms is not None and ms > 0:
            return min(LONGEST_S, ms / 1000)
    return TIMEOUT_S


def otlp_file(run_id: str) -> Path:
    """The file that stores the collector of a run's config."""
    return albor_home() / "otlp" / f"{run_id}.json"


def keep_collector(run: RunDir, endpoint: str | None, headers: Mapping[str, str]) -> None:
    """Keep what the config of `run`, which is begun or resumed here, says. A header that the run's
    own copy hides is the one that is kept already. Raises OSError.
    """
    path = otlp_file(run.id)
    if endpoint is None:
        path.unlink(missing_ok=True)
        return
    before = kept_headers(run)
    shown = {k: before.get(k, HIDDEN) if v == HIDDEN else v for k, v in headers.items()}
    private_folder(path.parent)
    found = {"endpoint": endpoint, "headers": {k: v for k, v in shown.items() if v != HIDDEN}}
    write_json(path, found, durable=True)


def collector_problems(
    headers: Mapping[str, str], run: RunDir | None, *, file: str
) -> tuple[Problem, ...]:
    """Headers of a config that say "hidden", and that nothing here knows."""
    known = {} if run is None else kept_headers(run)
    hint = "write the header itself, or use OTEL_EXPORTER_OTLP_HEADERS"
    return tuple(
        Problem(
            f"monitoring.otlp.headers.{name}", "was hidden in this copy of a config", hint, file
        )
        for name, value in headers.items()
        if value == HIDDEN and name not in known
    )


def kept_headers(run: RunDir) -> dict[str, str]:
    """The stored headers of the config with which the run was started here."""
    found = mapping_of((read_json(otlp_file(run.id)) or {}).get("headers"))
    return {name: value for name, value in found.items() if isinstance(value, str)}


def forget_collector(run_id: str) -> None:
    """Remove the stored headers of a removed run."""
    with suppress(OSError):
        otlp_file(run_id).unlink(missing_ok=True)
