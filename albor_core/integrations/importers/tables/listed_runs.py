"""Whether a table is a list of runs, a row for each, and no history: what a page of runs, as those
of W&B, MLflow or Comet, is downloaded as. Its rows are not a curve.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from albor_core.integrations.importers.tables.rows import RUNS, STEPS, WALLS, Row

_NAMES = frozenset(("name", "display_name", "displayname", "id", "runname", "runid", "run_uuid",
    "trial", "trial_id", "trial_name", "trial_number", "experiment_key", "experiment_name", "job",
    "job_name", "model", "model_name", "run_id", "run_name"))  # fmt: skip
_OF_RUNS = frozenset(("state", "status", "created", "start_time", "end_time", "duration", "runtime",
    "user", "sweep", "tags", "notes", "hostname", "artifact_uri", "lifecycle_stage",
    "source_type"))  # fmt: skip  # what only runs have
_HISTORY = frozenset((*STEPS, *WALLS, "epoch", "batch", "key", "metric", "tag", "metricname"))
_MOST = 100_000


@dataclass
class ListedRuns:
    """Learns from rows, in their order."""

    _rows: int = 0
    _has_place: bool = False
    _about: frozenset[str] = frozenset()
    _seen: dict[str, set[str]] = field(default_factory=dict)
    """By column that may name a run: the names so far; a column with one twice is none."""

    def see(self, row: Row) -> None:
        """A row as it was read."""
        self._rows += 1
        if self._rows > 1 and not self._seen:
            return
        if self._rows > _MOST:
            self._seen.clear()
            return
        words = {name: name.strip().lower().replace(" ", "_") for name in row}
        if self._rows == 1:
            self._about = _OF_RUNS.intersection(words.values())
            is_told = any(name in row for name in RUNS)  # then each is read as a run of its own
            names = [name for name, word in words.items() if word in _NAMES]
            self._seen = {} if is_told else {name: set() for name in names}
        self._has_place |= any(
            word in _HISTORY and row[name] is not None for name, word in words.items()
        )
        for name in list(self._seen):
            said = row.get(name)
            if not isinstance(said, str) or said in self._seen[name]:
                del self._seen[name]
            else:
                self._seen[name].add(said)

    @property
    def is_one(self) -> bool:
        """Whether each row has a name of its own, and what only runs have or no place in one."""
        if not self._seen:
            return False
        if self._has_place:
            return len(self._about) > 1
        return self._rows > 1 or bool(self._about)
