"""The metrics of a run that were chosen: by a goal, or by a pin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.run.journal import parse_json
from albor_core.run.rundir import RunDir


class ChosenMetrics:
    """Follows one run: `take` its lines; `look` where a person may have said more."""

    def __init__(self, run: RunDir, about: Mapping[str, Any]) -> None:
        """`about` is run.json."""
        self._annotations, self._size = run.annotations, 0
        goals = about.get("goals")
        self.names: set[str] = {*map(str, goals)} if isinstance(goals, Mapping) else set()

    def take(self, record: Mapping[str, Any]) -> None:
        """A line of the journal."""
        goals = record.get("data")
        if record.get("name") == "run.goals" and isinstance(goals, Mapping):
            self.names.update(map(str, goals))

    def look(self) -> set[str]:
        """All of them now. What was unpinned stays: it was looked at."""
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
