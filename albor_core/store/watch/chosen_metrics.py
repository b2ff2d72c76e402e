"""The metrics of a run that were chosen: by a goal, by a pin, or for its experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.run.errors import AlborError
from albor_core.run.home.folders import albor_home
from albor_core.run.journal import parse_json
from albor_core.run.rundir import RunDir, open_plain

SETTINGS = "views.yaml"
"""The file of the home with the metric of each experiment; feed/workspace/views.py writes it."""
_MAX_BYTES = 1 << 20


class ChosenMetrics:
    """Follows one run: `take` its lines; `look` where a person may have said more."""

    def __init__(self, run: RunDir, about: Mapping[str, Any]) -> None:
        """`about` is run.json."""
        self._annotations, self._size = run.annotations, 0
        self._experiment = str(about.get("experiment") or "")
        self._settings: tuple[int, int] | None = None
        goals = about.get("goals")
        self.names: set[str] = {*map(str, goals)} if isinstance(goals, Mapping) else set()

    def take(self, record: Mapping[str, Any]) -> None:
        """A line of the journal."""
        goals = record.get("data")
        if record.get("name") == "run.goals" and isinstance(goals, Mapping):
            self.names.update(map(str, goals))

    def look(self) -> set[str]:
        """All of them now. What was unpinned stays: it was looked at."""
        self._look_at_settings()
        try:
            size = self._annotations.stat().st_size
            if size != self._size:
                self._size = size
                for line in self._annotations.read_bytes().splitlines():
                    said = parse_json(line) or {}
                    if said.get("t") == "metric.pin" and isinstance(said.get("value"), str):
                        self.names.add(said["value"])
        except OSError:
            pass
        return self.names

    def _look_at_settings(self) -> None:
        """Add what a person chose in the cockpit for the run's experiment."""
        path = albor_home() / SETTINGS
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_ino
            if stamp == self._settings:
                return
            self._settings = stamp
            with open_plain(path) as file:
                raw = file.read(_MAX_BYTES)
            from albor_core.config.text.strict_yaml import load_yaml  # noqa: PLC0415

            found = load_yaml(raw, file=str(path)).data
        except (OSError, AlborError):  # who writes it says what is wrong with it
            return
        chosen = found.get("metrics") if isinstance(found, dict) else None
        name = chosen.get(self._experiment) if isinstance(chosen, dict) else None
        if isinstance(name, str):
            self.names.add(name)
