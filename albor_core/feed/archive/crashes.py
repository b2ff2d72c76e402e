"""The crash reports of a run, for people: why each attempt died, its last output, its stacks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from albor_core.feed.run.files import CachedJson
from albor_core.feed.run.tail import last_lines
from albor_core.run.exit import exit_reason, read_exit
from albor_core.run.rundir import RunDir
from albor_core.run.values.clean import clean
from albor_core.run.values.lenient import Document, integer, mapping, sequence, text

MOST = 20  # the newest ones
STACK_BYTES = 64 << 10
LOG_LINES = 60  # of a program that no report tells of
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


EXCERPT = 16  # lines
_TRACEBACK = "Traceback (most recent call last)"
_MARKS = frozenset(" ^~")  # below the part of a line that failed


def words_of(crash: CrashView) -> tuple[str, ...]:
    """The cause of death in a line, and further words of its reason."""
    why = crash.error or crash.hang or crash.reason or crash.kind
    said = why.rpartition(" (")[0] if why.endswith(")") else why
    if crash.reason in why:
        return (why,)
    more = crash.reason.removeprefix(said) if said else crash.reason
    return why, more.lstrip(": ")


def excerpt(crash: CrashView, most: int = EXCERPT) -> tuple[str, ...]:
    """The lines that say most about a death: where a hang stood, else the last traceback of its
    output, else its stacks, else its last lines. Of a longer traceback the end; without the marks
    below its lines, which mean nothing once these are folded.
    """
    if crash.hang and crash.stacks:
        return crash.stacks[:most]
    begins = [i for i, line in enumerate(crash.log) if line.startswith(_TRACEBACK)]
    if begins:
        said = crash.log[begins[-1] :]
        trace = tuple(line for line in said if not (line.strip() and set(line) <= _MARKS))
        return trace if len(trace) <= most else (trace[0], *trace[1 - most :])
    return crash.stacks[:most] or crash.log[-most:]


def last_words(run: RunDir) -> tuple[CrashView, ...]:
    """How a program without a guard died, where it could still say so; () where it could not, or
    did not die."""
    words = read_exit(run)
    if words is None or text(words, "reason") != "exception":
        return ()
    python = mapping(words, "error")
    log = last_lines(run.logs, LOG_LINES)
    return (
        CrashView(
            id="",
            path=str(run.exit),
            attempt=integer(words, "attempt"),
            kind="exception",
            reason=exit_reason(words),
            error=_error(python),
            log=tuple(clean(line, limit=_LINE_CHARS) for line in log),
        ),
    )


def _error(python: Document) -> str:
    """An exception of Python in a line: type, message and place."""
    kind, message, where = (text(python, name) for name in ("type", "message", "where"))
    error = ": ".join(part for part in (kind, message) if part)
    return f"{error} ({where})" if error and where else error


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
        return CrashView(
            id=path.stem,
            path=str(path),
            attempt=integer(document, "attempt"),
            kind=text(document, "class"),
            reason=text(document, "reason"),
            error=_error(mapping(evidence, "python")),
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
