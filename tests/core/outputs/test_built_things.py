"""A built thing is whole under its name or not there, whatever happens to who builds it.

One table for all kinds: corpora (a folder, a file), packed shards, evaluations, checkpoints.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from blake3 import blake3

from albor_core.checkpoint import folder as checkpoints
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pack.shard_check import verify_shards
from albor_core.data.stage import units
from albor_core.data.stage.counts import sift
from albor_core.data.stage.record import read_record
from albor_core.data.stage.stage import run_step
from albor_core.eval.kept import keep_result, kept_result, opened_place
from albor_core.eval.task import ItemWriter
from albor_core.outputs.identity import identity_of
from albor_core.outputs.place import OutputPlace, built, held
from albor_core.run.errors import AlborError, DataError, InUseError, UsageError
from albor_core.run.liveness import take_lock

EARLIER = Path(__file__).parent / "earlier"  # folders that the version before this room wrote
SOURCE, TOKENIZER = EARLIER / "c.parquet", EARLIER / "tokenizer.json"
ID = "c783954309510647c21690afdfe40758cf5e7792751735e236b26be6155fa181"  # of EARLIER's checkpoint
EVALUATION = "0123456789abcdef"


@dataclass(frozen=True)
class Odd:
    """Keeps documents with an odd number."""

    rest: int = 1
    name: str = "odd"

    def settings(self):
        return {"rest": self.rest}

    def apply(self, table):
        numbers = [int(text.split()[1]) for text in table.column("text").to_pylist()]
        return sift(table, [None if n % 2 == self.rest else "even" for n in numbers])


def build_corpus(path: Path) -> None:
    run_step(SOURCE, path, Odd())


def build_packed(path: Path) -> None:
    pretokenize(SOURCE, TOKENIZER, path, seq_len=16, val_fraction=0.2)


def build_evaluation(path: Path) -> None:
    if kept_result(path, EVALUATION):
        return
    with opened_place(path, EVALUATION) as work:
        for task in ("held", "ask"):
            with ItemWriter(work / f"{task}.jsonl") as items:
                items.records_of(
                    {"a": 1, "b": 2},
                    lambda some: [{"x": x} for x in some],
                    lambda *_: None,
                    at_once=1,
                )
        keep_result(path, work, {"schema": "albor.eval/1", "id": EVALUATION, "tasks": []})


def build_checkpoint(path: Path) -> None:
    folder = path.parent
    folder.mkdir(exist_ok=True)
    take_lock(folder.parent / "run.lock")  # as a trainer does for its life
    checkpoints._clear_leftovers(folder)
    if path.exists() and (path / "manifest.json").exists():
        return
    snapshot = checkpoints.Snapshot(
        3, {"w": torch.arange(4.0)}, {"m": torch.ones(2)}, {"step": 3}, {"offset": 7, "seq": 1},
        {"config.json": b"{}"},
    )  # fmt: skip
    hashes = {"config_hash": "c"}
    checkpoints.write_checkpoint(folder, snapshot, run_id="r1", parent_id=None, hashes=hashes)


@dataclass(frozen=True)
class Kind:
    name: str
    build: Callable[[Path], None]
    check: Callable[[Path], object]
    """Fails, or is false, where what lies under the name is not whole."""

    def tree(self, path: Path) -> dict[str, str]:
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        found = {
            str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).hexdigest()
            for one in files
            if one.is_file()
        }
        if self.build is build_checkpoint:  # its manifest says when it was written
            found["manifest.json"] = json.loads((path / "manifest.json").read_text())["id"]
        return found


KINDS = [
    Kind("corpus", build_corpus, read_record),
    Kind("corpus.parquet", build_corpus, read_record),
    Kind("packed", build_packed, lambda path: not [
        *verify_shards(path / "train", hashes=True), *verify_shards(path / "val", hashes=True)
    ]),
    Kind("evaluation", build_evaluation, lambda path: kept_result(path, EVALUATION)),
    Kind("step-00000003", build_checkpoint, lambda path: checkpoints.verify(path)),
]  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
every_faulted_kind = pytest.mark.parametrize(  # of packed shards: tests/core/data/killed_packers.py
    "kind", [kind for kind in KINDS if kind.name != "packed"], ids=lambda kind: kind.name
)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")  # what is forked has no other


@pytest.fixture
def room(tmp_path) -> Path:
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


@pytest.fixture
def whole(kind, tmp_path) -> dict[str, str]:
    (tmp_path / "whole").mkdir()
    assert in_a_fork(lambda: kind.build(tmp_path / "whole" / kind.name)) == 0
    return kind.tree(tmp_path / "whole" / kind.name)


def in_a_fork(action: Callable[[], None]) -> int:
    """Its exit code: that of an AlborError, 1 for an OSError, 99 for a fault of ours."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        code = 99
        try:
            action()
            code = 0
        except AlborError as error:
            code = error.exit_code
        except OSError:
            code = 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


CREATES = {"os.link", "os.mkdir"}
CHANGES = {*CREATES, "os.rename", "os.remove", "os.rmdir"}


def at_operation(number: int, below: Path, fault: Callable[[str], None], counted: Path) -> None:
    """Call `fault` before the operation of this number on files `below`, and each later one."""
    done = 0

    def audit(event: str, args: tuple) -> None:
        nonlocal done
        writes = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
        if not (event in CHANGES or writes) or not str(args[0]).startswith(f"{below}/"):
            return
        done += 1
        if number and done >= number:
            fault("os.mkdir" if writes else event)
        elif not number:
            os.write(descriptor, b".")

    descriptor = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.addaudithook(audit)


def operations(kind: Kind, tmp_path: Path) -> int:
    (tmp_path / "counted").mkdir()
    out, counted = tmp_path / "counted" / kind.name, tmp_path / "operations"

    def count() -> None:
        at_operation(0, out.parent, lambda event: None, counted)
        kind.build(out)

    assert in_a_fork(count) == 0
    return counted.stat().st_size


def points(count: int, is_sweep: bool) -> list[int]:
    """The first, the last two, and one between: by number. Each is for the sweep."""
    return list(range(1, count + 1)) if is_sweep else sorted({1, count // 2, count - 1, count})


def killed_and_made_again(
    kind: Kind, tmp_path: Path, whole: dict[str, str], is_sweep: bool
) -> None:
    def die(event: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    count = operations(kind, tmp_path)
    assert count >= 6
    for number in points(count, is_sweep):
        ended = interrupted(kind, tmp_path, number, die, whole)
        assert ended == -signal.SIGKILL, number


def filled_and_made_again(
    kind: Kind, tmp_path: Path, whole: dict[str, str], is_sweep: bool
) -> None:
    def refuse(event: str) -> None:
        if event in CREATES:
            raise OSError(errno.ENOSPC, "No space left on device")

    for number in points(operations(kind, tmp_path), is_sweep):
        ended = interrupted(kind, tmp_path, number, refuse, whole)
        assert ended in (0, 1), number  # 0: nothing was left to be created


def interrupted(
    kind: Kind, tmp_path: Path, number: int, fault: Callable[[str], None], whole: dict[str, str]
) -> int:
    """How a builder ends that meets `fault`. The next one makes the same of what it left."""
    out = tmp_path / f"interrupted-{number}" / kind.name
    out.parent.mkdir()

    def build() -> None:
        at_operation(number, out.parent, fault, tmp_path / "operations")
        kind.build(out)

    ended = in_a_fork(build)
    assert not out.exists() or kind.check(out), number
    assert in_a_fork(lambda: kind.build(out)) == 0, number
    assert kind.tree(out) == whole, number
    assert {one.name for one in out.parent.iterdir()} == {kind.name}, number
    return ended


@pytest.mark.slow
@every_faulted_kind
def test_kill_9_leaves_the_whole_or_nothing_and_the_next_makes_the_same(kind, tmp_path, whole):
    killed_and_made_again(kind, tmp_path, whole, is_sweep=False)


@pytest.mark.slow
@every_faulted_kind
def test_a_full_disk_is_told_and_leaves_nothing_half(kind, tmp_path, whole):
    filled_and_made_again(kind, tmp_path, whole, is_sweep=False)


@pytest.mark.sweep
@every_faulted_kind
@pytest.mark.parametrize("meet", [killed_and_made_again, filled_and_made_again])
def test_kill_9_and_a_full_disk_at_each_point(kind, tmp_path, whole, meet):
    meet(kind, tmp_path, whole, is_sweep=True)


@every_kind
def test_of_two_builders_at_once_one_is_refused_with_exit_code_8(kind, room):
    out = room / kind.name
    (room.parent / "run.lock").touch()
    child = os.fork()
    if child == 0:
        if kind.build is build_checkpoint:
            take_lock(room.parent / "run.lock")
            os.kill(os.getpid(), signal.SIGSTOP)
        with held(OutputPlace(out)):
            os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    try:
        before = sorted(room.rglob("*"))
        assert in_a_fork(lambda: kind.build(out)) == InUseError.exit_code
        assert sorted(room.rglob("*")) == before
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert in_a_fork(lambda: kind.build(out)) == 0
    assert kind.check(out) and [one.name for one in room.iterdir()] == [kind.name]


NAMED = [kind for kind in KINDS if kind.build is not build_checkpoint]


@pytest.mark.parametrize("suffix", ["", ".part"])
@pytest.mark.parametrize("kind", NAMED, ids=lambda kind: kind.name)
def test_a_folder_that_is_not_of_our_making_is_refused_and_left_alone(kind, room, suffix):
    theirs = room / f"{kind.name}{suffix}"
    thesis = theirs / ("train/thesis.parquet" if kind.name == "packed" else "thesis.txt")
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    with pytest.raises((DataError, UsageError)):
        kind.build(room / kind.name)
    assert thesis.read_text() == "mine"
    assert {one for one in room.rglob("*") if one.is_file()} == {thesis}
    assert [one.name for one in room.iterdir()] == [theirs.name]


def test_a_folder_with_the_name_of_a_checkpoint_that_is_none_is_set_aside_and_kept(room):
    (room / "step-00000003").mkdir()
    (room / "step-00000003" / "thesis.txt").write_text("mine")
    (room / "notes.part").write_text("mine too")
    assert in_a_fork(lambda: build_checkpoint(room / "step-00000003")) == 0
    assert (room / "bad-step-00000003" / "thesis.txt").read_text() == "mine"
    assert (room / "notes.part").read_text() == "mine too"
    assert checkpoints.verify(room / "step-00000003")


# -- what the version before wrote ----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.name)
def test_what_an_earlier_version_made_is_known_again_and_not_made_anew(kind, room):
    out = room / kind.name
    copy = shutil.copy if kind.name.endswith(".parquet") else shutil.copytree
    copy(EARLIER / kind.name, out)
    before = {one: one.stat().st_mtime_ns for one in room.rglob("*")}
    kind.build(out)
    assert {one: one.stat().st_mtime_ns for one in room.rglob("*")} == before


@pytest.mark.parametrize("kind", KINDS[:3], ids=lambda kind: kind.name)
def test_what_is_made_now_has_the_bytes_of_the_earlier_version(kind, room):
    kind.build(room / kind.name)
    assert kind.tree(room / kind.name) == kind.tree(EARLIER / kind.name)


@pytest.mark.parametrize("name", ["corpus", "corpus.parquet"])
def test_what_an_earlier_version_began_is_gone_on_from(name, room, tmp_path, monkeypatch):
    monkeypatch.setattr(units, "UNIT_BYTES", 1)  # as it was begun
    run_step(SOURCE, tmp_path / name, Odd())
    left = "begun/.work" if name == "corpus" else ".begun.parquet.work"
    shutil.copytree(EARLIER / left, room / left.replace("begun", "corpus"))
    report = run_step(SOURCE, room / name, Odd())
    assert (report.resumed_units, report.reused) == (1, False)
    assert KINDS[0].tree(room / name) == KINDS[0].tree(tmp_path / name)
    assert [one.name for one in room.iterdir()] == [name]


def test_the_id_of_a_checkpoint_is_what_the_earlier_version_gave_it(room):
    assert checkpoints.verify(EARLIER / "checkpoints" / "step-00000003").manifest["id"] == ID
    assert in_a_fork(lambda: build_checkpoint(room / "step-00000003")) == 0
    assert checkpoints.verify(room / "step-00000003").manifest["id"] == ID


def test_an_evaluation_that_an_earlier_version_began_or_made_is_its_own(room):
    place = room / "scores"
    place.mkdir()
    (place / ".evaluation").write_text(EVALUATION)
    (place / "held.jsonl").write_text('{"item":"a","x":7}\n')
    with pytest.raises(UsageError, match="holds another evaluation"), opened_place(place, "f" * 16):
        raise AssertionError
    build_evaluation(place)
    assert (place / "held.jsonl").read_text().startswith('{"item":"a","x":7}\n'), "answered again"
    assert {one.name for one in place.iterdir()} == {"ask.jsonl", "held.jsonl", "result.json"}
    (place / ".evaluation").write_text(EVALUATION)
    with opened_place(place, EVALUATION):
        pass
    with pytest.raises(UsageError, match="holds another evaluation"), opened_place(place, "f" * 16):
        raise AssertionError


# -- identity and place ---------------------------------------------------------------------------


def test_each_kind_keeps_the_form_of_its_identity():
    document = {"b": [1, 2.5, None], "a": {"y": "\u00e9", "x": True}}
    compact = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    wide = json.dumps(document, sort_keys=True).encode()
    assert identity_of(document) == blake3(compact).hexdigest()
    assert identity_of(document, "sha256") == hashlib.sha256(compact).hexdigest()
    assert identity_of(document, separators=(", ", ": ")) == blake3(wide).hexdigest()
    assert identity_of(dict(reversed(document.items()))) == identity_of(document)


def test_a_folder_that_is_there_already_is_filled_where_it_is(room):
    """It may be a mount, whose neighbour lies on another disk."""
    (room / "corpus").mkdir()
    inode = (room / "corpus").stat().st_ino
    seen = []
    run_step(SOURCE, room / "corpus", Odd(), progress=lambda *_: seen.append([*room.iterdir()]))
    assert (room / "corpus").stat().st_ino == inode
    assert all(names == [room / "corpus"] for names in seen)


def test_what_refuses_no_file_is_not_told_as_a_folder_that_cannot_be_written(room):
    """As a terminal that went while progress is printed to it."""
    with pytest.raises(BrokenPipeError), held(OutputPlace(room / "x")):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert list(room.iterdir()) == []


def test_what_replaces_a_folder_goes_with_the_old_one_only_when_all_of_it_is_there(room):
    (room / "x").mkdir()
    (room / "x" / "old").touch()
    with pytest.raises(KeyboardInterrupt), built(room / "x") as made:
        (made / "new").touch()
        raise KeyboardInterrupt
    assert [one.name for one in (room / "x").iterdir()] == ["old"]
    with built(room / "x") as made:
        (made / "new").touch()
    assert [str(one.relative_to(room)) for one in sorted(room.rglob("*"))] == ["x", "x/new"]
