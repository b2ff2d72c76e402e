"""A foreign run becomes a run directory of ours: run.json, journal, exit.json, tags and notes.

The journal's bytes are a function of the source alone: times are the source's, ids its hash. So a
second import writes the same bytes and changes nothing; of a source that has grown it writes more,
and the index goes on where it was; of one that was rewritten it writes others, and the index
notices and begins again. Odd values, keys and steps are treated as in `track`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.watch import HealthWatch
from albor_core.integrations.importers.foreign import (
    NO_STEP,
    ORDER,
    REPLACED,
    TAKEN_BACK,
    UNTOLD,
    Example,
    ForeignMedium,
    ForeignRun,
    Item,
    Losses,
    MetricWord,
    Rewind,
)
from albor_core.integrations.importers.steps.placed import Placed, is_same
from albor_core.run.errors import AlborError, InUseError, UsageError
from albor_core.run.exit import exit_document, read_exit, write_exit
from albor_core.run.files.lock_file import locked
from albor_core.run.files.media_file import (
    INLINE_BYTES,
    MEDIA,
    caption_of,
    fits_line,
    hash_of,
    publish,
)
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import own_home, private_folder
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.defined_metrics import EVENT as DEFINED
from albor_core.run.values.defined_metrics import definition
from albor_core.run.values.directions import check_goals
from albor_core.run.values.flatten import flatten
from albor_core.run.values.lenient import whole_of
from albor_core.run.values.metrics import (
    MAX_NAMES,
    NameRoom,
    Odd,
    as_json,
    printable,
    safe_key,
    tidy,
)
from albor_core.run.values.redact import redact
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.annotations import append_annotation, read_annotations
from albor_core.store.index.catch_up import drain_index
from albor_core.store.upkeep.rebuild import discard
from albor_core.store.upkeep.remove import forget_rows
from albor_core.store.watch.built_in import BuiltIn, BuiltInTrouble

_MAX_STEP = 1 << 48
_NAMES_A_LINE = 10
_PIECE = 1 << 20
_ITEMS_A_WAIT = 1_000
_BY = "import"
_MAX_TAG_CHARS, _MAX_NOTE_CHARS = 64, 16384
_MAX_MEDIA, _MAX_MEDIA_BYTES = 100_000, 20 << 30


@dataclass
class ImportResult:
    """The result for one foreign run. `change` is new, extended, replaced or unchanged."""

    run: str
    source: str
    origin: str
    name: str
    experiment: str
    path: str
    change: str
    status: str
    points: int = 0
    last_step: int | None = None
    keys: int = 0
    media: int = 0
    damaged: int = 0
    unmapped: dict[str, int] = field(default_factory=dict)
    odd: dict[str, int] = field(default_factory=dict)
    examples: dict[str, Example] = field(default_factory=dict)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Held while importing into this home. Raises InUseError while another process imports."""
    folder = own_home() / "runs"
    private_folder(folder.parent)
    private_folder(folder)
    what = "cannot import: another import is running in this home"
    with locked(folder / ".import.lock", InUseError(what, hint="try again when that has ended")):
        yield


def import_run(foreign: ForeignRun, *, experiment: str | None = None) -> ImportResult:
    """Make or update the run of `foreign`, and index it into both stores.

    Only while holding `one_at_a_time`. Raises DataError where the source cannot be read (nothing
    is made then), AlborError where a run directory cannot be made.
    """
    run = RunDir(own_home() / "runs" / run_id(foreign))
    about = _described(foreign)
    arrival = ImportResult(
        run=run.id,
        source=foreign.source,
        origin=str(foreign.where),
        name=about["name"],
        experiment=about["experiment"] if experiment is None else printable(experiment),
        path=str(run.path),
        change="new",
        status=foreign.status,
    )
    fresh, aside = run.path.parent / ".import.jsonl", run.path.parent / ".import.media"
    _clear(fresh, aside)  # of an import that was killed
    home = run.path if run.run_json.is_file() else aside
    try:
        private_folder(home)
        _write_journal(fresh, home, foreign, about["params"], arrival)
        _place(run, fresh, aside, arrival, foreign.created, about)
    finally:
        _clear(fresh, aside)
    _write_end(run, foreign, arrival)
    _annotate(run, about["tags"], about["notes"])
    drain_index(run)
    return arrival


def _clear(fresh: Path, aside: Path) -> None:
    fresh.unlink(missing_ok=True)
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside)
    else:
        aside.unlink(missing_ok=True)


def _place(
    run: RunDir,
    fresh: Path,
    aside: Path,
    arrival: ImportResult,
    created: float | None,
    about: Mapping[str, Any],
) -> None:
    """The new journal, and the files of its media, in its run directory, which is made if need
    be.
    """
    facts = dict(about["facts"])
    commit = facts.pop("commit", None)
    if run.run_json.is_file():
        known = run.metadata()  # written once: a new name in the source changes nothing
        arrival.name, arrival.experiment = str(known.get("name")), str(known.get("experiment"))
        arrival.change = _compare(run.journal, fresh)
        if read_json(run.config_resolved) != about["params"]:
            write_json(run.config_resolved, about["params"])
    else:
        create_run(
            run.path.parent,
            run.id,
            experiment=arrival.experiment,
            name=arrival.name,
            kind="imported",
            argv=[],
            seed=_seed(about["params"]),
            resolved=about["params"],
            facts={"git": {"commit": commit}, "imported": facts},
            created=created,
        )
        if (aside / MEDIA).is_dir():
            (aside / MEDIA).rename(run.path / MEDIA)
    if arrival.change == "replaced":
        _forget(run)
    if arrival.change != "unchanged":
        fresh.replace(run.journal)


def _forget(run: RunDir) -> None:
    """Take what the stores have of another history: a shorter one would pass for one that was cut,
    of which they keep what its file has no more.
    """
    forget_rows(run.id, global_store())
    discard(local_store(run))


def run_id(foreign: ForeignRun) -> str:
    """The run that `foreign` is or becomes: the same for the same source and key, whatever name
    people give it.
    """
    digest = sha256(f"{foreign.source}\0{foreign.key}".encode("utf-8", "backslashreplace"))
    word = str(foreign.facts.get("id") or "")
    slug = re.sub(r"[^a-z0-9._-]+", "-", word.lower()).strip("-._")[:16]
    return "-".join(part for part in (foreign.source, slug, digest.hexdigest()[:10]) if part)


def _described(foreign: ForeignRun) -> dict[str, Any]:
    """Users' texts about the run, as JSON without secrets."""
    facts = {key: value for key, value in foreign.facts.items() if value not in ("", None)}
    said = {
        "name": printable(foreign.name)[:200],
        "experiment": printable(foreign.experiment)[:200],
        "params": as_json(foreign.params),
        "tags": [printable(tag)[:_MAX_TAG_CHARS] for tag in foreign.tags if tag.strip()],
        "notes": foreign.notes[:_MAX_NOTE_CHARS],
        "facts": {"source": foreign.source, "from": str(foreign.where), **as_json(facts)},
    }
    safe, _ = redact(said, dict(os.environ))
    return safe


def _seed(params: Mapping[str, Any]) -> int | None:
    return whole_of(params.get("seed"))


def _write_journal(
    path: Path, home: Path, foreign: ForeignRun, params: Mapping[str, Any], arrival: ImportResult
) -> None:
    """The files of media go below `home`."""
    journal = Journal(path, attempt=1)
    try:
        start = {"wall": foreign.created, "mono": 0.0}
        journal.append(
            "e", step=None, name="run.imported", severity="info",
            data={"source": foreign.source}, **start,
        )  # fmt: skip
        for key, value in flatten(params).items():
            journal.append("p", key=key, value=value, **start)
        losses, odd = Losses(), Odd()
        scribe = _Scribe(journal, home, foreign.created, losses, odd)
        for number, item in enumerate(foreign.items(losses)):
            scribe.take(item)
            if number % _ITEMS_A_WAIT == 0:
                journal.wait()  # a slow disk is waited for: memory would drop the oldest lines
        scribe.write_alerts()
        arrival.points, arrival.keys = scribe.points, len(scribe.last)
        arrival.media = scribe.media
        arrival.last_step = scribe.newest
        arrival.damaged, arrival.unmapped = losses.damaged, dict(losses.unmapped)
        arrival.odd = dict(odd.counts)
        named = {kind: Example(metric) for kind, metric in odd.examples.items()}
        arrival.examples = named | losses.examples
        if odd.total:
            data = {"counts": arrival.odd, "examples": dict(odd.examples)}
            journal.append(
                "e", step=None, name="track.odd", severity="warning", data=data,
                wall=scribe.wall, mono=0.0,
            )  # fmt: skip
        if arrival.unmapped or losses.damaged:
            first = {kind: str(example) for kind, example in losses.examples.items()}
            data = {"unmapped": arrival.unmapped, "damaged": losses.damaged, "examples": first}
            journal.append(
                "e", step=None, name="import.left_out", severity="info", data=data,
                wall=scribe.wall, mono=0.0,
            )  # fmt: skip
        if not journal.wait() or journal.dropped:
            why = journal.error or f"{path}: the disk takes no line"
            raise AlborError(why, hint="free some space, import again")
    finally:
        journal.close()


class _Scribe:
    """Points into journal lines by the rules of `track`, which its module docstring states."""

    def __init__(
        self, journal: Journal, home: Path, start: float | None, losses: Losses, odd: Odd
    ) -> None:
        self._journal, self._home, self._start = journal, home, start
        self._losses, self._odd = losses, odd
        self.points, self.media = 0, 0
        self._media_bytes = 0
        self._next = 0  # the step of what has none
        self.wall = start
        self.last: dict[str, Placed] = {}  # by key
        self._room = NameRoom()
        self._axes: dict[str, str] = {}
        self._built_in = BuiltIn()  # it was not watched, so that its NaN is told here
        self._troubles: dict[str, BuiltInTrouble] = {}
        self._health = HealthWatch(HealthFacts())
        self._zeros: dict[str, Alert] = {}

    @property
    def newest(self) -> int | None:
        """The last step that has a value, of those that the source did not take back."""
        steps = [placed.last for placed in self.last.values() if placed.last is not None]
        return max(steps, default=None)

    def take(self, item: Item) -> None:
        if isinstance(item, ForeignMedium):
            self._keep(item)
            return
        if isinstance(item, Rewind):
            self._rewind(item.to)
            return
        if isinstance(item, MetricWord):
            self._define(item)
            return
        values = tidy(item.values, self._odd)
        if not values:
            return
        step = self._placed(item.step)
        if "bad_step" in self._odd.counts:
            key, value = next(iter(values.items()))
            self._losses.examples.setdefault("bad_step", Example(key, step, value))
        for key in list(values):
            if self._room.lacks(key):
                example = Example(key, step, values[key])
                self._losses.note(f"value of more than {MAX_NAMES} names", example=example)
                del values[key]
                continue
            self._room.takes(key)
            self._count(key, step, values[key], has_step=item.step is not None)
        self._tell_axis(item.axis or (ORDER if item.step is None else ""), values)
        self._next = max(self._next, step + 1)
        self.points += len(values)
        self.wall = item.wall if item.wall is not None else self.wall
        self._journal.metrics(step, values, wall=item.wall, mono=self._mono())
        self._note(self._built_in.take_step(values, 0.0, step))
        self._note_zeros(self._health.take_zeros(step, values))

    def _note(self, troubles: Iterable[BuiltInTrouble]) -> None:
        for one in troubles:
            self._troubles.pop(one.name, None)
            if not one.is_over:
                self._troubles[one.name] = one

    def _note_zeros(self, said: Iterable[Alert]) -> None:
        for one in said:
            self._zeros.pop(one.rule, None)
            if one.state == "fired":
                self._zeros[one.rule] = one

    def write_alerts(self) -> None:
        """NaN, Inf and zeros in which metrics ended, as open alerts."""
        self._note(self._built_in.finish())
        self._note_zeros(self._health.end())
        not_finite = (one.alert(1, 0) for one in self._troubles.values())
        for alert in (*not_finite, *self._zeros.values()):
            self._journal.append(
                "e", step=alert.step, name="andon.alert", severity=alert.severity,
                data={**alert.to_json(), "state": "fired"},
                wall=self.wall, mono=self._mono(),
            )  # fmt: skip

    def _count(self, key: str, step: int, value: float, *, has_step: bool) -> None:
        """Add a value: decide on the one before it, and on its own step."""
        placed = self.last.setdefault(key, Placed())
        if not has_step:
            self._losses.note(NO_STEP, example=Example(key, step, value))
        is_back = placed.last is not None and step < placed.last
        before = placed.put(step, value)
        if before is not None:
            self.points -= 1  # of the two one is kept
            if not is_same(before, value):
                self._losses.note(REPLACED, example=Example(key, step, before))
        elif is_back:
            self._odd.note("step_backwards", key, step)
            self._losses.examples.setdefault("step_backwards", Example(key, step, value))

    def _tell_axis(self, axis: str, keys: Iterable[str]) -> None:
        """What the steps of these metrics count, said where that is new: two such metrics are
        compared only where it is the same.
        """
        changed = [key for key in keys if self._axes.get(key, "") != axis]
        self._axes.update(dict.fromkeys(changed, axis))
        for at in range(0, len(changed), _NAMES_A_LINE):
            data = {"axis": axis, "metrics": changed[at : at + _NAMES_A_LINE]}
            self._event("import.axis", data)

    def _define(self, said: MetricWord) -> None:
        try:
            about = definition(said.metric, None, said.summary or None)
            goals = check_goals({about["metric"]: said.goal} if said.goal else {})
        except UsageError:
            self._losses.note("definition of a metric", example=Example(said.metric))
            return
        if len(about) > 1:
            self._event(DEFINED, about)
        if goals:
            self._room.always(goals)
            self._built_in.choose(goals)
            self._event("run.goals", goals)

    def _event(self, name: str, data: Mapping[str, Any]) -> None:
        self._journal.append(
            "e", step=None, name=name, severity="info", data=dict(data),
            wall=self.wall, mono=self._mono(),
        )  # fmt: skip

    def _rewind(self, to: int) -> None:
        self._journal.append("r", to=to, wall=self.wall, mono=self._mono())
        for key, placed in self.last.items():
            count, first = placed.rewind(to)
            self.points -= count
            if first is not None:
                self._losses.note(TAKEN_BACK, count, Example(key, *first))
        newest = self.newest
        self._next = 0 if newest is None else newest + 1

    def _keep(self, medium: ForeignMedium) -> None:
        """A medium as the tracker keeps one: its file first, then its line."""
        if self.media >= _MAX_MEDIA or self._media_bytes >= _MAX_MEDIA_BYTES:
            example = Example(medium.key, medium.step)
            self._losses.note(f"{medium.kind} beyond what a run may keep", example=example)
            return
        content, meta = medium.content, {"format": medium.form, **medium.meta}
        key, caption = safe_key(medium.key), caption_of(medium.caption)
        if (small := _inline(medium)) is not None and fits_line(key, caption, {**meta, **small}):
            meta |= small
            digest = hash_of(content)
        else:
            digest = publish(self._home, medium.form, content).hash
            self._media_bytes += len(content)
        self.media += 1
        if medium.wall is not None:
            self.wall = medium.wall
        self._journal.append(
            "b",
            step=None if medium.step is None else self._placed(medium.step),
            key=key,
            kind=medium.kind,
            hash=digest,
            bytes=len(content),
            name="",
            caption=caption,
            meta=meta,
            wall=self.wall,
            mono=self._mono(),
        )

    def _mono(self) -> float:
        return (
            0.0 if self.wall is None or self._start is None else max(0.0, self.wall - self._start)
        )

    def _placed(self, step: Any) -> int:
        if step is None:
            return self._next
        try:
            whole = int(step)
            if isinstance(step, str) or whole != step or not 0 <= whole < _MAX_STEP:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            self._odd.note("bad_step", step)
            return self._next
        return whole


def _inline(medium: ForeignMedium) -> dict[str, Any] | None:
    """The journal content of a small medium that needs no file."""
    if medium.form not in ("json", "txt") or len(medium.content) > INLINE_BYTES:
        return None
    said = medium.content
    return {"data": json.loads(said) if medium.form == "json" else said.decode()}


def _compare(old: Path, new: Path) -> str:
    """How the history changed: new lines only (extended), other ones (replaced), or not at all;
    an older copy of the same history changes nothing.
    """
    if not old.is_file():
        return "replaced"
    with old.open("rb") as before, new.open("rb") as now:
        while piece := before.read(_PIECE):
            other = now.read(_PIECE)
            if len(other) > len(piece) and other.startswith(piece):
                return "extended"
            if other != piece:
                return "unchanged" if piece.startswith(other) and not now.read(1) else "replaced"
        return "extended" if now.read(1) else "unchanged"


def _write_end(run: RunDir, foreign: ForeignRun, arrival: ImportResult) -> None:
    """exit.json says how it ended, and not the journal, whose lines then stay as a source grows.
    A source that does not say counts as completed, and the reason says so.
    """
    is_untold = foreign.ending == UNTOLD
    document = exit_document(
        run,
        1,
        None,
        code=0 if foreign.status == "completed" else 1,
        reason=UNTOLD if is_untold else foreign.status,
        step=arrival.last_step,
        message=f"imported from {foreign.source}{'' if is_untold else f': {foreign.ending}'}",
        wall=foreign.ended,
    )
    if read_exit(run) != document:
        write_exit(run, document)


def _annotate(run: RunDir, tags: list[str], notes: str) -> None:
    """Tags and notes, each said once: what people took away since stays away."""
    said = {(a.kind, a.value) for a in read_annotations(run) if a.by == _BY}
    wanted = [("tag", tag) for tag in tags] + ([("note", notes)] if notes.strip() else [])
    for kind, value in wanted:
        if (kind, value) not in said:
            with suppress(FileNotFoundError):
                append_annotation(run, kind, value, by=_BY)
