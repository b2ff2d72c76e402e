"""A run is begun, or the guard's own is joined."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from albor_core.guard.supervised_attempt import SupervisedAttempt, inherited_attempt
from albor_core.run.errors import AlborError, InUseError, NotFoundError, UsageError, remedy
from albor_core.run.home.folders import albor_home, pointer_of
from albor_core.run.home.new_run import create_run
from albor_core.run.liveness import take_lock
from albor_core.run.program.job_rank import ALONE, JobRank, job_rank
from albor_core.run.program.provenance import script_of_process, versions
from albor_core.run.program.recorded_code import recorded_code
from albor_core.run.rundir import RunDir, is_run_id, new_run_id
from albor_core.run.values.directions import check_goals
from albor_core.run.values.lenient import integer
from albor_core.run.values.metrics import LoggedNames, Odd, printable
from albor_core.track import open_runs
from albor_core.track.last_words import tell
from albor_core.track.recordable import recordable
from albor_core.track.tracked_run import Run
from albor_core.track.words import check_words, describe, say

if TYPE_CHECKING:
    from albor_core.track.resumed import Past

RESUME = ("never", "allow", "must")


def start(
    experiment: str = "default",
    name: str | None = None,
    config: object = None,
    dir: str | os.PathLike[str] | None = None,
    *,
    max_steps: int | None = None,
    parent: str | None = None,
    goals: Mapping[str, str] | None = None,
    console: bool = True,
    id: str | None = None,
    resume: Literal["never", "allow", "must"] = "never",
    tags: Iterable[str] = (),
    notes: str = "",
    group: str | None = None,
    job_type: str | None = None,
    ranks: Literal["first", "all"] = "first",
) -> Run:
    """A new run below `dir` (by default ALBOR_HOME/runs), or the guard's own if we are under one:
    what is given fills in what `albor guard run` was not told, and what cannot be is said.

    `name` is for people and need not be unique. `config` is a mapping, dataclass, Namespace or an
    object with `to_dict()`; secrets in it are not recorded. `max_steps` lets viewers say how far it
    is. `parent` is the id of the run whose weights this one begins from. `goals` says of metrics
    whose names do not whether `min` or `max` is better ({"wer": "min"}), for all runs of the
    experiment.

    `id` is what the run is called for ever, where it shall not be made up. With `resume="allow"` a
    run of that id is gone on with, as another attempt of it, or made (a notebook's cell that is run
    again ends the run that it had begun); "must" takes a run that is
    there, also one that another program made, to log into after its end. A resumed run keeps what
    it began with; `config` and `tags` add to it, other `notes` take the place of those before.
    `group` and `job_type` are words to find runs by.

    In a job of several ranks (by torch or jax, else by what torchrun, MPI, PMIx or Lightning set)
    rank 0 has the run; in the others it is one that records nothing. `ranks="all"` gives each rank
    a run of its own, in a group of theirs; they are one run where runs are averaged over seeds.

    Begun, its id is said once on stderr, unless ALBOR_QUIET=1 or a guard has said it.

    `console=False`, or ALBOR_CONSOLE=0, leaves what the program prints out of its log.

    Raises UsageError for a config of another kind, another user's home, a parent that is not an id,
    a goal that is none or a run that another command goes on with, InUseError where the run is at
    work or exists and `resume` is "never", NotFoundError where it must exist and does not,
    AlborError where its directory cannot be made or used.
    """
    place = _place_in_job(ranks)
    if place.rank > 0 and ranks == "first":
        return QuietRun(place)
    group = place.group if group is None and ranks == "all" else group
    settings, directions = recordable(config), check_goals(goals)
    _check_names(experiment, name, parent)
    _check_id(id, resume)
    max_steps = _whole_steps(max_steps)
    words = check_words(tags, notes, group, job_type)
    with open_runs.starting:
        attempt, past = _going_on(id, dir, resume, is_other=place.rank > 0)
        if attempt is None:
            facts = {"max_steps": max_steps, "parent": parent, **place.facts()}
            attempt = _fresh(experiment, name, settings, dir, facts, run_id=id)
        if past is not None and max_steps is None:
            max_steps = integer(past.state, "max_steps")
        if not attempt.is_guarded and os.environ.get("ALBOR_QUIET") != "1":  # and not in its log
            _tell_begin(attempt.dir, is_again=past is None and place.restart > 0)
        run = _begun(attempt, max_steps, past, console=console)
        open_runs.add(run)
    if attempt.is_guarded or past is not None:
        told = {"id": id, "experiment": experiment, "name": name, "parent": parent,
                "max_steps": max_steps, **place.facts()}  # fmt: skip
        is_resumed = past is not None
        known = _known_of(told, settings.get("seed"), is_resumed=is_resumed)
        describe(run, known, dir, is_resumed=is_resumed)
    run.params(settings)
    run.set_goals(directions)
    say(attempt.dir, words)
    return run


def _tell_begin(run: RunDir, *, is_again: bool) -> None:
    """Once: where it is, how one run becomes of a job that starts again, and where the home comes
    near the size that its owner gave it.
    """
    tell(f"run {run.id}; watch: albor-tui {run.id}")
    if is_again:
        tell("its job was started again: id=..., resume='allow' make that one run")
    if os.environ.get("ALBOR_HOME_MAX"):
        from albor_core.store.upkeep.home_size import tell_if_nearly_full  # noqa: PLC0415  with a cap

        tell_if_nearly_full(albor_home(), tell)


def _place_in_job(ranks: str) -> JobRank:
    """The rank of this process, the only one of a process alone. Raises UsageError."""
    if ranks not in ("first", "all"):
        raise UsageError(f"cannot start: ranks {ranks!r}: one of first, all")
    return job_rank() or ALONE


class QuietRun(Run):
    """The run of a rank that records nothing: rank 0 has the job's run."""

    def __init__(self, place: JobRank) -> None:
        self.id, self.path, self.step, self.odd = "", Path(os.devnull), 0, Odd()
        self.repeats_steps = self._is_closed = self._is_forked = self._is_shut = True
        self._has_warned = True  # what it is asked to record is let go without a word
        self.dir, self._max_steps = RunDir(self.path), 0  # so that no guard is asked
        self._has_logged, self._names = False, LoggedNames()
        self._lock = threading.RLock()
        tell(
            f"{place} records nothing: rank 0 has the run;"
            " track.start(ranks='all') makes one for each"
        )

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Count the step alone."""
        self.step = step if type(step) is int else self.step + 1

    def end(self, **_: Any) -> None:
        """Do nothing: a quiet run has no end."""


def _begun(
    attempt: SupervisedAttempt, max_steps: int | None, past: Past | None, *, console: bool
) -> Run:
    """Raises AlborError, with the locks let go, where its files cannot be opened."""
    try:
        return Run(attempt, max_steps=max_steps, console=console, past=past)
    except OSError as error:
        for lock in attempt.locks:
            os.close(lock)
        raise AlborError(
            f"cannot track {attempt.dir.id!r}: {error.filename or attempt.dir.path}:"
            f" {error.strerror or error}",
            hint=remedy(error),
        ) from error


def _check_names(experiment: object, name: object, parent: object) -> None:
    """Raise UsageError."""
    for what, text in (("experiment", experiment), ("name", "-" if name is None else name)):
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"cannot start: {what} {text!r} is not a name", hint="give a text")
    if parent is None:
        return
    if not isinstance(parent, str) or not is_run_id(parent):
        raise UsageError(f"parent {parent!r} is not a run id", hint="albor runs ls shows the ids")
    if not (pointer_of(parent)).exists():
        tell(f"parent {parent!r} is not a run of {albor_home()}; it is recorded as it is")


def _whole_steps(given: object) -> int | None:
    """A number of steps, of any library's kind. Raises UsageError."""
    if given is None:
        return None
    try:
        whole = int(given)  # type: ignore[call-overload]
        if not isinstance(given, str | bytes) and whole == given and whole >= 0:
            return int(whole)
    except Exception:  # a foreign object
        whole = -1
    raise UsageError(
        f"cannot start: max_steps {given!r} is not a number of steps",
        hint="leave it out where the last step is not known",
    )


def _check_id(run_id: str | None, resume: str) -> None:
    """Raise UsageError if these say nothing that could be done."""
    if resume not in RESUME:
        raise UsageError(f"cannot start: resume {resume!r}: one of {', '.join(RESUME)}")
    if run_id is None:
        if resume == "must":
            raise UsageError(
                "cannot start: resume='must' needs the id of the run",
                hint="albor runs ls shows the ids",
            )
    elif not isinstance(run_id, str) or not is_run_id(run_id):
        raise UsageError(
            f"cannot start: id {run_id!r} cannot name a run: lower case letters, digits, '.', '_'"
            " and '-' can, at most 64",
            hint=f"id={new_run_id(str(run_id))!r}, say",
        )


def _going_on(
    run_id: str | None, folder: str | os.PathLike[str] | None, how: str, *, is_other: bool
) -> tuple[SupervisedAttempt | None, Past | None]:
    """The guard's attempt, or one more of the run that is gone on with; none for a new run, and no
    guard's for another rank than the first.
    """
    if is_other:
        return (None, None) if run_id is None else _known(run_id, folder, how)
    guarded = os.environ.get("ALBOR_RUN_DIR")
    if guarded and open_runs.is_open(Path(guarded)):
        raise InUseError(
            "this program's run is tracked here already", hint="run.finish() ends the first"
        )
    if (attempt := inherited_attempt(os.environ)) is not None or run_id is None:
        return attempt, None
    return _known(run_id, folder, how)


def _is_interactive() -> bool:
    """Whether a person types what runs: in a notebook or at Python's prompt. Elsewhere a second
    start of an open run is a mistake, such as two threads that want the same one.
    """
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _known_of(told: Mapping[str, object], seed: object, *, is_resumed: bool) -> dict[str, object]:
    """What was given, as a run records it; of a resumed one what may have been said before."""
    anew = ("max_steps", "job") if is_resumed else ()
    known = {key: said for key, said in told.items() if said is not None and key not in anew}
    if known.get("experiment") == "default":
        del known["experiment"]
    known |= {key: printable(str(known[key])) for key in ("experiment", "name") if key in known}
    return known | ({"seed": seed} if type(seed) is int else {})


def _known(
    run_id: str, folder: str | os.PathLike[str] | None, how: str
) -> tuple[SupervisedAttempt, Past] | tuple[None, None]:
    """The run of that id, gone on with; nothing where it is to be made."""
    from albor_core.track import resumed  # noqa: PLC0415  a cold start without an id is quicker

    _check_places(folder)
    found = resumed.find(run_id, folder)
    if found is not None:
        first = open_runs.opened(found.path)
        if first is not None and how == "allow" and _is_interactive():  # a cell is run again
            tell(f"run {found.id} was open in this program: finished, and gone on with")
            first.end()
        return resumed.resume(found, how)
    if how == "must":
        raise NotFoundError(
            f"cannot resume {run_id!r}: no such run in {albor_home()}"
            + ("" if folder is None else f" or {os.fspath(folder)}"),
            hint="albor runs ls shows the ids",
        )
    return None, None


def _fresh(
    experiment: str,
    name: str | None,
    settings: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
    facts: Mapping[str, Any],
    *,
    run_id: str | None,
) -> SupervisedAttempt:
    _check_places(folder)
    code, script = recorded_code(sys.argv, script_of_process())
    seed = settings.get("seed")
    title = printable(name or experiment)
    for last in (False, False, True):  # a random id may be taken, but not three in a row by chance
        try:
            run = create_run(
                Path(folder).expanduser() if folder is not None else albor_home() / "runs",
                run_id or new_run_id(title),
                experiment=printable(experiment),
                name=title,
                kind="track",
                argv=code["argv"],
                seed=seed if isinstance(seed, int) else None,
                resolved=settings,
                facts={
                    "git": code["git"],
                    "script": code["script"],
                    "versions": versions(),
                    **facts,
                },
                script=script,
            )
            break
        except InUseError:
            if last or run_id is not None:
                raise
    return SupervisedAttempt(
        run, 1, os.urandom(8).hex(), (take_lock(run.run_lock),), is_guarded=False
    )


def _check_places(folder: str | os.PathLike[str] | None) -> None:
    """Raise UsageError for a relative path if the working directory has been deleted."""
    with contextlib.suppress(FileNotFoundError):
        Path.cwd()
        return
    for name, place in (("dir", folder), ("ALBOR_HOME", os.environ.get("ALBOR_HOME"))):
        if place and not Path(place).expanduser().is_absolute():
            raise UsageError(
                f"{name} {os.fspath(place)!r}: the working directory of this program was deleted",
                hint="give an absolute path, or start in a folder that exists",
            )
