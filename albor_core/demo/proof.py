"""`albor demo --proof`: a recorded run of the 350M model, opened anywhere and read out.

proof.tar.xz beside this file is the record of one run of 2026-11-28 on one H200 with torch 2.11,

    python research/proof.py --out p --record proof.tar.xz

which trained 398.5M parameters on 108.0M tokens, its trainer killed (-9) twice, and evaluated the
last checkpoint. research/record.py says what a record leaves out, above all weights. This
module has no facts of the run: each is read from its files and from the store made of them.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from albor_core.demo.folder import make_folder
from albor_core.run.errors import AlborError, InUseError, TryAgainError, UsageError, remedy
from albor_core.run.files.whole_file import temporary_beside, write_bytes
from albor_core.run.home.folders import check_writable, own_home
from albor_core.run.home.registry import is_same_run, known_as, register
from albor_core.run.home.runs import registered_runs
from albor_core.run.rundir import RunDir, open_plain, read_json
from albor_core.run.values.lenient import mapping, sequence
from albor_core.run.values.step_time import step_seconds
from albor_core.store.file.paths import local_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader
from albor_core.store.rows.rows import AttemptRow

RECORD = Path(__file__).with_name("proof.tar.xz")
CAVEAT = (
    "12 of 1,648, early in each attempt, are up to 100 ms too long or too short, and so are their"
    " rates and MFU: that version told time of a step as its neighbour's where the host had waited"
)
"""Of the step times in the record."""
_GROWS = "annotations.jsonl"  # by what people say of the run
_MOST_BYTES = 64 << 20
_INDEX_S = 60.0


@dataclass(frozen=True)
class OpenedProof:
    """The recorded run in a folder of the user's, and whether it was there before."""

    run: RunDir
    reused: bool


def place_of(root: Path) -> RunDir:
    """The run directory of the recorded run. Raises AlborError."""
    return RunDir(root / "runs" / _recorded()[0])


def bytes_of_proof(root: Path) -> int:
    """Bytes that opening the proof writes: its files, and a store about as large as its journal; 0
    if it is already there. Raises UsageError if something else is in its place, AlborError.
    """
    _, files = _recorded()
    if _is_there(place_of(root), files):
        return 0
    return sum(map(len, files.values())) + len(files["journal.jsonl"])


def open_proof(root: Path) -> OpenedProof:
    """Put the recorded run into ROOT/runs, registered in this home and indexed; unpacked completely
    or not at all, unless it is already there as it was recorded.

    Raises UsageError if something else is in its place, InUseError if this home has it in another
    folder, AlborError.
    """
    run_id, files = _recorded()
    run = RunDir(root / "runs" / run_id)
    about = json.loads(files["run.json"])
    home = own_home()
    known = known_as(run, about)
    if known is None:
        raise _elsewhere(about)
    reused = _is_there(run, files)
    if not reused:
        check_writable(home / "runs")
        new = [folder for folder in run.path.parents if not folder.exists()]
        make_folder(root)
        make_folder(run.path.parent)
        is_mine = _unpack(run, files)
    try:
        register(known)
    except OSError:
        if not reused and is_mine:
            _remove(run, new)
        raise
    if not drain_index(known, timeout_s=_INDEX_S):
        raise TryAgainError(
            f"{run.path}: another process indexes it", hint=f"albor demo --proof --out {root}"
        )
    return OpenedProof(known, reused)


def _remove(run: RunDir, above: list[Path]) -> None:
    """Remove the unpacked run, and the folders that were made for it, innermost first."""
    shutil.rmtree(run.path, ignore_errors=True)
    for folder in above:
        with suppress(OSError):  # another process uses it by now
            folder.rmdir()


def _recorded() -> tuple[str, Mapping[str, bytes]]:
    """Id and files of the record, by their path in the run directory. Only plain files below the
    run's folder are accepted. Raises AlborError.
    """
    try:
        with tarfile.open(RECORD, "r:xz") as packed:
            found = [_member(packed, member) for member in packed]
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError, ValueError) as error:
        raise AlborError(
            f"{RECORD}: cannot be read: {error}", hint="install albor again: pip install ./albor"
        ) from error
    ids = {run_id for run_id, _, _ in found}
    assert len(ids) == 1, ids
    return ids.pop(), {name: content for _, name, content in found}


def _member(packed: tarfile.TarFile, member: tarfile.TarInfo) -> tuple[str, str, bytes]:
    """Run id, path in its folder, and content of a member of the archive. Raises ValueError."""
    path = PurePosixPath(member.name)
    content = packed.extractfile(member) if member.isreg() else None
    is_inside = not path.is_absolute() and ".." not in path.parts and len(path.parts) > 1
    if content is None or not is_inside or member.size > _MOST_BYTES:
        raise ValueError(f"{member.name!r} is not a file of a run")
    return path.parts[0], str(PurePosixPath(*path.parts[1:])), content.read()


def _elsewhere(about: Mapping[str, Any]) -> InUseError:
    """The error that this home has the recorded run in another folder, with its path."""
    there = next(
        known.path
        for known in registered_runs()
        if is_same_run(about, read_json(known.run_json) or {})
    )
    folder = there.parent.parent
    return InUseError(
        f"the recorded run is open in {there}", hint=f"albor demo --proof --out {folder}"
    )


def _is_there(run: RunDir, files: Mapping[str, bytes]) -> bool:
    """Whether the folder holds the run as it was recorded; False if nothing is there. Raises
    UsageError that says what is in its place.
    """
    try:
        run.path.lstat()
    except OSError:  # nothing is there, or nothing can be: making it says why
        return False
    for name, content in files.items():
        if why := _difference(run.path / name, content, grows=name == _GROWS):
            is_ours = is_same_run(json.loads(files["run.json"]), read_json(run.run_json) or {})
            raise UsageError(
                f"{run.path}: is not the run as it was recorded: {name} {why}",
                hint="another --out" + (f", or: rm -r {run.path}" if is_ours else ""),
            )
    return True


def _difference(path: Path, content: bytes, *, grows: bool) -> str:
    """The difference of a file from the recorded one; "" if there is none."""
    try:
        with open_plain(path) as file:
            found = file.read(len(content) if grows else len(content) + 1)
    except OSError as error:
        return "is missing" if isinstance(error, FileNotFoundError) else str(error.strerror)
    return "" if found == content else "differs"


def _unpack(run: RunDir, files: Mapping[str, bytes]) -> bool:
    """Write the record beside its final path, then move it there in one step; False if another
    process was faster. Raises AlborError.
    """
    beside = temporary_beside(run.path)
    try:
        for name, content in files.items():
            path = beside / name
            for folder in reversed([path.parent, *path.parent.parents]):
                if folder.is_relative_to(beside):
                    folder.mkdir(mode=0o700, exist_ok=True)
            write_bytes(path, content)
        beside.rename(run.path)
        return True
    except OSError as error:
        if run.path.is_dir() and _is_there(run, files):
            return False
        hint = remedy(error) or "another --out"
        raise AlborError(f"{run.path}: {error.strerror}", hint=hint) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def facts(run: RunDir) -> dict[str, Any]:
    """The claims of the proof, each read from the run: the document without its frame. Raises
    StoreError.
    """
    about = run.metadata()
    with Reader(local_store(run)) as reader:
        row, last = reader.run(run.own_id), reader.summary(run.own_id)
        lives = reader.attempts(run.own_id)
        starts = reader.events(run.own_id, names=("run.start",))
        told = Counter(step for step, _, _ in reader.points(run.own_id, "train/loss"))
        step_ms = [(step, ms) for step, ms, _ in reader.points(run.own_id, "perf/step_ms")]
    first = starts[0].data if starts else {}
    resumed = {event.attempt: event.data.get("resumed_from") for event in starts}
    return {
        "status": row.ended_status,
        "created": row.created,
        "device": first.get("device"),
        "torch": mapping(about, "versions").get("torch"),
        "parameters": first.get("parameters"),
        "steps": row.last_step,
        "steps_not_once": sum(told[step] != 1 for step in range(1, (row.max_steps or 0) + 1)),
        "step_seconds": round(step_seconds(step_ms), 1) if step_ms else None,
        "step_times": CAVEAT,
        "tokens": row.tokens,
        "attempts": row.attempts,
        "restarts": sum(life.action == "restart" for life in lives),
        "kills": [
            _kill(life, resumed.get(life.attempt + 1)) for life in lives if life.signal == "SIGKILL"
        ],
        "train_loss": row.loss,
        "val_loss": row.val_loss,
        "val_bpb": last["val/bpb"].last if "val/bpb" in last else None,
        "scores": _scores(run),
    }


def _kill(life: AttemptRow, resumed_from: object) -> dict[str, Any]:
    return {
        "attempt": life.attempt,
        "step": life.step,
        "signal": life.signal,
        "resumed_from": resumed_from,
        "report": life.report,
    }


def _scores(run: RunDir) -> list[dict[str, Any]]:
    """Scores of the evaluations that were kept with the run, in order of their names."""
    kept = [read_json(path) or {} for path in sorted(run.evaluations.glob("*/result.json"))]
    return [
        {
            "name": score.get("name"),
            "value": score.get("value"),
            "stderr": score.get("stderr"),
            "n": score.get("n"),
            "step": mapping(result, "model").get("step"),
        }
        for result in kept
        for task in sequence(result, "tasks")
        for score in sequence(task, "scores")
    ]
