"""The card of a run: what people say about it, what it was made of, which runs it is related to,
what it left behind and how it died. `albor runs show` and the cockpit's Card tab draw the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, TypeVar

from albor_core.feed.archive.crashes import CrashShelf, CrashView, excerpt, last_words
from albor_core.feed.archive.patch import Patch, read_patch
from albor_core.feed.run.files import CachedJson, file_mark
from albor_core.feed.runs.listed_status import status_of
from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import NOTHING, Document, integer, mapping, sequence, text
from albor_core.store.index.annotations import notes_in, read_annotations, tags_in
from albor_core.store.query.lineage import parent_id
from albor_core.store.query.media import ArtifactVersion, MediaKey, media_keys, versions_of
from albor_core.store.query.reader import Reader
from albor_core.store.rows.rows import ArtifactRow, NoteRow
from albor_core.store.rows.run_row import RunRow

MOST_CHILDREN = 200  # the newest ones are shown; a filter lists them all
_BOUNDED = 4096  # of the facts in a store: see store/index/describe.py
T = TypeVar("T")


@dataclass(frozen=True)
class Relative:
    """A run that this one began from, or that began from it; without `status` where no store of
    this home knows it.
    """

    id: str
    name: str = ""
    status: str = ""
    step: int | None = None
    path: str = ""


@dataclass(frozen=True)
class CodeCard:
    """The code of a run. Paths are "" where nothing lies there: `patch_path` is the file whose
    `git.patch` is the whole patch, `script_copy` the script as it was, where no commit holds it.
    """

    commit: str = ""
    is_dirty: bool | None = None
    patch: Patch | None = None
    patch_path: str = ""
    untracked: int = 0
    script: str = ""
    script_sha256: str = ""
    script_copy: str = ""


@dataclass(frozen=True)
class RunCard:
    """Everything on the card. Texts are raw: whoever prints them passes them through `clean`."""

    id: str = ""
    notes: tuple[NoteRow, ...] = ()
    tags: tuple[str, ...] = ()
    group: str = ""  # as its program said, and the kind of job
    job_type: str = ""
    command: tuple[str, ...] = ()
    cwd: str = ""
    code: CodeCard = CodeCard()
    versions: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    seed: int | None = None
    created: float | None = None
    path: str = ""
    pulled: str = ""  # the host that it is a read-only copy from
    parent: Relative | None = None
    children: tuple[Relative, ...] = ()
    child_ids: tuple[str, ...] = ()  # of all children, sorted
    artifacts: tuple[ArtifactRow, ...] = ()
    artifact_versions: tuple[ArtifactVersion, ...] = ()  # that it made or used
    media: tuple[MediaKey, ...] = ()
    crashes: tuple[CrashView, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What `albor.runs.show/1` has of it beside what it had before."""
        return {
            "notes": [asdict(note) for note in self.notes],
            "code": asdict(self.code),
            "relatives": {
                "parent": None if self.parent is None else asdict(self.parent),
                "children": [asdict(child) for child in self.children],
            },
            "crashes": [_crash_json(crash) for crash in self.crashes],
            "lineage": [asdict(one) for one in self.artifact_versions],
        }


def _crash_json(crash: CrashView) -> dict[str, Any]:
    named = {name: getattr(crash, name) for name in _CRASH}
    return {**named, "excerpt": list(excerpt(crash))}


_CRASH = ("id", "path", "attempt", "kind", "reason", "error", "hang")


class Ask(Protocol):
    """Puts a question, which has a name, to a store; None where that cannot answer. It may give
    the answer of the last time where the store has not changed since.
    """

    def __call__(self, name: str, question: Callable[[Reader], T], /) -> T | None: ...


@dataclass(frozen=True)
class _Stored:
    """The contents of the run's own store; empty if it is unreadable."""

    facts: Document = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    host: str = ""
    seed: int | None = None
    created: float | None = None
    git_commit: str = ""
    tags: tuple[str, ...] = ()
    notes: tuple[NoteRow, ...] = ()
    artifacts: tuple[ArtifactRow, ...] = ()
    media: tuple[MediaKey, ...] = ()
    parent: str | None = None


class CardShelf:
    """The card of one run, looked up again for the cost of what has changed. Raises nothing.

    `own` asks the store that knows most about the run, `everybody` the one that knows its
    relatives. Files of the run are looked at unless `is_copy`: what a store calls the run's folder
    may then be another user's.
    """

    def __init__(self, run: RunDir, *, own: Ask, everybody: Ask, is_copy: bool = False) -> None:
        self._run, self._own, self._everybody = run, own, everybody
        self._is_copy = is_copy
        self._meta, self._launch = CachedJson(run.run_json), CachedJson(run.launch)
        self._crashes = CrashShelf(run)
        self._patches: tuple[str, Patch] = ("", Patch())
        self._said: tuple[object, tuple[NoteRow, ...], tuple[str, ...]] | None = None

    def look(self) -> RunCard:
        run_id = self._run.id
        meta = (None if self._is_copy else self._meta.get()) or NOTHING
        stored = self._own("card", lambda reader: _stored(reader, self._run))
        if stored is None:
            stored = _Stored(parent=parent_id(meta.get("parent"), None))
        facts = meta or stored.facts
        notes, tags = self._people(stored)
        children, child_ids = self._children(run_id)
        return RunCard(
            id=run_id,
            notes=notes,
            tags=tags,
            group=text(stored.facts, "group"),
            job_type=text(stored.facts, "job_type"),
            command=tuple(map(str, sequence(meta, "argv") if meta else stored.argv)),
            cwd="" if self._is_copy else text(self._launch.get() or NOTHING, "cwd"),
            code=self._code(facts, stored.git_commit),
            versions={k: str(v) for k, v in mapping(facts, "versions").items() if v},
            host=text(meta, "host") or stored.host,
            seed=integer(meta, "seed") if meta else stored.seed,
            created=stored.created,
            path=str(self._run.path),
            pulled="" if self._is_copy else pulled_from(self._run),
            parent=None if stored.parent is None else self._relative(stored.parent),
            children=children,
            child_ids=child_ids,
            artifacts=stored.artifacts,
            artifact_versions=self._versions(run_id),
            media=stored.media,
            crashes=() if self._is_copy else self._crashes.look() or last_words(self._run),
        )

    def _people(self, stored: _Stored) -> tuple[tuple[NoteRow, ...], tuple[str, ...]]:
        """Notes and tags, from the run's own file as it is now; if that is gone, from a store."""
        mark = None if self._is_copy else file_mark(self._run.annotations)
        if mark is None:
            return stored.notes, stored.tags
        if self._said is None or self._said[0] != mark:
            try:
                said = read_annotations(self._run)
            except OSError:
                return stored.notes, stored.tags
            notes = (NoteRow(n.wall, n.by, n.text, n.number) for n in notes_in(said))
            self._said = mark, tuple(notes), tags_in(said)
        return self._said[1:]

    def _code(self, facts: Document, stored_commit: str) -> CodeCard:
        git, script = mapping(facts, "git"), mapping(facts, "script")
        dirty = git.get("dirty", facts.get("git_dirty"))
        is_here = not self._is_copy
        copy = self._run.script if is_here and script.get("is_kept") else None
        patch = self._patch(text(git, "patch"))
        return CodeCard(
            commit=text(git, "commit") or stored_commit,
            is_dirty=None if dirty is None else bool(dirty),
            patch=patch,
            patch_path=str(self._run.run_json) if is_here and patch and self._meta.get() else "",
            untracked=integer(mapping(git, "untracked"), "files") or 0,
            script=text(script, "path"),
            script_sha256=text(script, "sha256"),
            script_copy=str(copy) if copy is not None and copy.is_file() else "",
        )

    def _patch(self, said: str) -> Patch | None:
        if not said:
            return None
        if self._patches[0] != said:
            found = read_patch(said)
            self._patches = said, replace(found, is_cut=found.is_cut or len(said) == _BOUNDED)
        return self._patches[1]

    def _versions(self, run_id: str) -> tuple[ArtifactVersion, ...]:
        """Artefact versions with their uses by other runs; while the home's store is behind, those
        of the run's own."""
        found = self._everybody("versions", lambda reader: versions_of(reader, run_id))
        return found or self._own("versions", lambda reader: versions_of(reader, run_id)) or ()

    def _relative(self, run_id: str) -> Relative:
        rows = self._everybody("parent", lambda reader: reader.by_id([run_id]))
        return relative(rows[0]) if rows else Relative(run_id)

    def _children(self, run_id: str) -> tuple[tuple[Relative, ...], tuple[str, ...]]:
        found = self._everybody(
            "children", lambda reader: reader.newest_children(run_id, MOST_CHILDREN)
        )
        rows, ids = found if found is not None else ((), ())
        return tuple(relative(row) for row in rows), ids


def _stored(reader: Reader, run: RunDir) -> _Stored:
    run_id = run.id
    detail = reader.detail(run_id)
    row = detail.row
    return _Stored(
        facts=detail.facts,
        argv=detail.argv,
        host=row.host or "",
        seed=row.seed,
        created=row.created,
        git_commit=row.git_commit or "",
        tags=row.tags,
        notes=reader.notes(run_id),
        artifacts=reader.artifacts(run_id),
        media=media_keys(reader, run),
        parent=reader.parents([run_id]).get(run_id),
    )


def relative(row: RunRow) -> Relative:
    """A related run as it is shown: its present status, and its step by its store."""
    name = row.name if row.name != row.id else ""
    return Relative(row.id, name, status_of(row), row.last_step, row.path)
