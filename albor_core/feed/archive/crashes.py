"""The crash reports of a run, for people: why each life died, the end of its output, its stacks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from albor_core.feed.run.files import CachedJson
from albor_core.run.rundir import RunDir
from albor_core.run.values.clean import clean
from albor_core.run.values.lenient import Document, integer, mapping, sequence, text

MOST = 20  # the newest ones
STACK_BYTES = 64 << 10
_LINE_CHARS = 2000


@dataclass(frozen=True)
class CrashView:
    """One report. Lines are clean text already; `path` is where all of it stands."""

    id: str
    path: str
    attempt: int | None = None
    kind: str = ""  # the guard's class of the end
    reason: str = ""
    error: str = ""  # of Python: type, message and place
    hang: str = ""
    log: tuple[str, ...] = ()  # the last lines of its output
    stacks: tuple[str, ...] = ()


class CrashShelf:
    """The reports of one run; each is read once. Never raises."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._documents: dict[str, CachedJson] = {}

    def look(self) -> tuple[CrashView, ...]:
        """The newest reports, the newest first."""
        try:
            found = sorted(self._run.crash_reports.glob("*.json"), reverse=True)[:MOST]
        except OSError:
            return ()
        known = self._documents
        self._documents = {path.name: known.get(path.name) or CachedJson(path) for path in found}
        views = []
        for path in found:
            document = self._documents[path.name].get()
            if document is not None:
                views.append(self._view(path, document))
        return tuple(views)

    def _view(self, path: Path, document: Document) -> CrashView:
        evidence = mapping(document, "evidence")
        python = mapping(evidence, "python")
        kind, message, where = (text(python, name) for name in ("type", "message", "where"))
        error = ": ".join(part for part in (kind, message) if part)
        return CrashView(
            id=path.stem,
            path=str(path),
            attempt=integer(document, "attempt"),
            kind=text(document, "class"),
            reason=text(document, "reason"),
            error=f"{error} ({where})" if error and where else error,
            hang=text(evidence, "hang"),
            log=tuple(
                clean(line, limit=_LINE_CHARS)
                for line in sequence(evidence, "log_tail")
                if isinstance(line, str)
            ),
            stacks=self._stacks(text(evidence, "stacks")),
        )

    def _stacks(self, name: str) -> tuple[str, ...]:
        """The dumped stacks; the report names them by a path inside the run."""
        if not name.startswith("logs/") or ".." in name:
            return ()
        try:
            fd = os.open(self._run.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(fd, "rb") as file:
                raw = file.read(STACK_BYTES)
        except OSError:
            return ()
        lines = raw.decode(errors="replace").splitlines()
        return tuple(clean(line, limit=_LINE_CHARS) for line in lines)
