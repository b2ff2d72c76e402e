"""The sinks of a run: those of the config with which it was started here, and those of the user.

Sinks of a config are stored in ALBOR_HOME/sinks/ID.json, readable by the owner only, and not in the
run: a URL is a secret, and a run that was copied, pulled or imported from elsewhere must not bring
a command or an address with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from albor_core.andon.channels.sinks import Sink, joined, sinks_from
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import albor_home, private_folder
from albor_core.run.home.registry import known_as
from albor_core.run.rundir import RunDir, open_plain, read_json
from albor_core.run.values.webhook_url import HIDDEN

RULES_FILE = "rules.yaml"
_MAX_BYTES = 1 << 20


def sinks_file(run_id: str) -> Path:
    """The file that stores the sinks of a run's config."""
    return albor_home() / "sinks" / f"{run_id}.json"


def keep_sinks(run: RunDir, entries: Sequence[Mapping[str, Any]]) -> None:
    """Store the sinks of the config of `run`, which is started or resumed here. A URL that the
    run's own copy hides is taken from the stored file. Raises OSError, ConfigError.
    """
    sinks = sinks_from(with_kept_urls(run, entries), where="monitoring.notify")
    path = sinks_file(run.id)
    if not sinks:
        path.unlink(missing_ok=True)
        return
    private_folder(path.parent)
    write_json(path, {"sinks": [sink.to_json() for sink in sinks]}, durable=True)


def with_kept_urls(
    run: RunDir | None, entries: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The sinks of a config, with hidden URLs filled in from those stored for `run`: of the sink of
    the same name, or at the same position. Others stay hidden.
    """
    kept = [] if run is None else _entries(run)
    urls = {str(one.get("name")): one.get("url") for one in kept}
    found: list[Mapping[str, Any]] = []
    for index, entry in enumerate(entries):
        url = entry.get("url")
        if url == HIDDEN:
            name = entry.get("name")
            at_place = kept[index].get("url") if index < len(kept) and not name else None
            url = urls.get(str(name)) or at_place or HIDDEN
        found.append({**entry, "url": url})
    return found


def _entries(run: RunDir) -> list[dict[str, Any]]:
    found = (read_json(sinks_file(run.id)) or {}).get("sinks")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def forget_sinks(run_id: str) -> None:
    """Remove the stored sinks of a removed run."""
    with suppress(OSError):
        sinks_file(run_id).unlink(missing_ok=True)


def config_sinks(run: RunDir) -> tuple[Sink, ...]:
    """Sinks of the config with which `run` was started here; none for a copy of it, or a run from
    elsewhere.
    """
    if run.alias or known_as(run) != run:
        return ()
    try:
        return sinks_from(_entries(run))
    except ConfigError:
        return ()  # another program wrote into our file


def user_sinks(
    home: Path | None = None, *, damaged: list[Problem] | None = None
) -> tuple[Sink, ...]:
    """Sinks of the user's rules.yaml. Raises ConfigError that names the file and the field, and
    repeats no URL. With `damaged`, which collects the problems of single sinks, it raises only if
    the whole file is unreadable.
    """
    path = (albor_home() if home is None else home) / RULES_FILE
    return sinks_from(_notify(path), file=str(path), source="user", damaged=damaged)


def rules_stamp() -> tuple[int, int]:
    """A stamp that changes with rules.yaml."""
    try:
        found = (albor_home() / RULES_FILE).stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


def _notify(path: Path) -> Any:
    """The entries under `notify:`. Raises ConfigError."""
    try:
        with open_plain(path) as file:
            raw = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    import yaml  # noqa: PLC0415  0.02 s, where there is no such file

    try:
        found = yaml.safe_load(raw)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)  # the message itself may repeat a URL
        where = "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigError(f"cannot read {path}{where}: it is not YAML") from None
    if found is None:
        return None
    if not isinstance(found, dict):
        hint = "write rules:, experiments:, notify: and bell: there, each with what belongs to it"
        raise ConfigError(f"{path}: is not a mapping", hint=hint)
    return found.get("notify")


def sinks_of(run: RunDir) -> tuple[tuple[Sink, ...], str]:
    """Every sink of a run, and the problem of the user's own if they cannot be read."""
    try:
        mine, problem = user_sinks(), ""
    except ConfigError as error:
        mine, problem = (), error.message
    return joined(config_sinks(run), mine), problem
