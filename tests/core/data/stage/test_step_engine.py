"""A step over a corpus: the same bytes by any number of processes and after any kill."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.stage import units
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.counts import sift
from albor_core.data.stage.output import Output
from albor_core.data.stage.record import read_record
from albor_core.data.stage.stage import plan_step, run_step
from albor_core.outputs import place
from albor_core.outputs.place import held, part_of
from albor_core.run.errors import DataError, InUseError, UsageError


@dataclass(frozen=True)
class Odd:
    """Keeps documents with an odd number, as slowly as is asked."""

    rest: int = 1
    wait_s: float = 0.0
    name: str = "odd"

    def settings(self):
        return {"rest": self.rest}

    def apply(self, table):
        time.sleep(self.wait_s)
        numbers = [int(text.split()[1]) for text in table.column("text").to_pylist()]
        return sift(table, [None if n % 2 == self.rest else "even" for n in numbers])


def write_corpus(path: Path, documents: int, groups: int) -> Path:
    rows = [{"text": f"document {n} " + "x" * 50, "source": f"s{n % 3}", "file": f"{n}.py"}
            for n in range(documents)]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, path, row_group_size=-(-documents // groups))
    return path


@pytest.fixture
def many_units(monkeypatch):
    monkeypatch.setattr(units, "UNIT_BYTES", 1)


def tree_hash(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EXDEV])
def test_file_system_without_links_gets_copies(tmp_path, many_units, monkeypatch, code):
    corpus = write_corpus(tmp_path / "c.parquet", 100, 7)
    run_step(corpus, tmp_path / "linked", Odd())

    def refuse(*args, **kwargs):
        raise OSError(code, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    run_step(corpus, tmp_path / "copied", Odd())
    assert tree_hash(tmp_path / "linked") == tree_hash(tmp_path / "copied")


def test_kill_in_the_middle_of_a_copy_is_gone_on_from(tmp_path, many_units, monkeypatch):
    corpus, out = write_corpus(tmp_path / "c.parquet", 100, 7), tmp_path / "out"
    run_step(corpus, tmp_path / "whole", Odd())

    class Killed(BaseException):
        pass

    def die(file, target):
        target.with_name(f".{target.name}.tmp").write_bytes(file.read_bytes()[:10])
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(place, "link_or_copy", die)
        run_step(corpus, out, Odd())
    assert not out.exists() and list(part_of(out).glob(".part-*"))
    assert plan_step(corpus, out, Odd()).action == "resume"
    run_step(corpus, out, Odd())
    assert tree_hash(out) == tree_hash(tmp_path / "whole")


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_output_is_the_same_by_one_process_and_by_two(tmp_path, many_units, name):
    corpus = write_corpus(tmp_path / "c.parquet", 100, 7)
    made = [
        run_step(corpus, tmp_path / folder / name, Odd(), workers=workers)
        for folder, workers in (("one", 1), ("two", 2))
    ]
    assert tree_hash(tmp_path / "one") == tree_hash(tmp_path / "two")
    assert made[0].record.documents == 50
    assert made[0].record.counts.total.dropped == {"even": 50}
    kept = [text for _, text in open_corpus(made[1].out).documents()]
    assert [int(text.split()[1]) for text in kept] == list(range(1, 100, 2)), "input order"


KILLED = """
import sys; from pathlib import Path
sys.path.insert(0, sys.argv[1])
from albor_core.data.stage import units; units.UNIT_BYTES = 1
from test_step_engine import Odd
from albor_core.data.stage.stage import run_step
if __name__ == "__main__":
    run_step(Path(sys.argv[2]), Path(sys.argv[3]), Odd(wait_s=0.05), workers=int(sys.argv[4]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_loses_nothing_and_leaves_no_process(tmp_path, many_units, wait_for_group, workers):
    corpus = write_corpus(tmp_path / "c.parquet", 100, 20)
    whole = run_step(corpus, tmp_path / "whole", Odd())
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    out = tmp_path / "out"
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, script, here, corpus, out, str(workers)], start_new_session=True
    )
    deadline = time.monotonic() + 60
    while len(list((part_of(out) / ".work" / "done").glob("*.json"))) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(DataError, match="not finished"):
        open_corpus(out)
    wait_for_group(process.pid)
    again = run_step(corpus, out, Odd())
    assert again.resumed_units >= 3
    assert tree_hash(out) == tree_hash(tmp_path / "whole")
    assert again.record == whole.record


def test_whole_output_is_reused_and_another_is_refused(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 10, 1)
    out = tmp_path / "out"
    assert not run_step(corpus, out, Odd()).reused
    assert run_step(corpus, out, Odd()).reused
    before = tree_hash(out)
    with pytest.raises(DataError, match="other inputs or settings"):
        run_step(corpus, out, Odd(rest=0))
    assert tree_hash(out) == before
    assert run_step(corpus, out, Odd(rest=0), force=True).record.settings == {"rest": 0}


@pytest.mark.parametrize("is_whole", [True, False], ids=["after the record", "within the record"])
def test_kill_at_the_very_end_leaves_nothing_that_stays(tmp_path, is_whole):
    corpus, out = write_corpus(tmp_path / "c.parquet", 10, 1), tmp_path / "out"
    run_step(corpus, out, Odd())
    before = tree_hash(out)
    (out / ".work" / "done").mkdir(parents=True)
    if not is_whole:
        (out / "manifest.json").rename(out / ".manifest.json.tmp")
    with pytest.raises(DataError, match="not finished"):
        open_corpus(out)
    assert run_step(corpus, out, Odd()).reused == is_whole
    assert tree_hash(out) == before and open_corpus(out).rows == 5


def test_record_tells_every_step_before(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 40, 1)
    run_step(corpus, tmp_path / "a.parquet", Odd())
    run_step(tmp_path / "a.parquet", tmp_path / "b", Odd())
    record = read_record(tmp_path / "b")
    assert [step["documents"] for step in record.steps()] == [20, 20]
    assert record.history[0]["sources"]["s0"]["dropped"] == {"even": 7}


def test_foreign_output_and_the_corpus_itself_are_refused(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 10, 1)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="not made by albor data"):
        run_step(corpus, tmp_path / "theirs", Odd())
    with pytest.raises(UsageError):
        run_step(corpus, corpus, Odd())
    assert (tmp_path / "theirs" / "thesis.txt").read_text() == "mine"


def test_two_processes_on_one_output(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 10, 1)
    with held(Output(tmp_path / "out")), pytest.raises(InUseError):
        run_step(corpus, tmp_path / "out", Odd())
    assert not (tmp_path / "out").exists()


def test_nothing_left_is_refused_with_the_reasons(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 10, 1)
    with pytest.raises(DataError, match="5 even"):
        run_step(run_step(corpus, tmp_path / "a", Odd()).out, tmp_path / "b", Odd(rest=0))
    assert not (tmp_path / "b").exists()


def test_step_that_refuses_its_first_documents_leaves_nothing(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 10, 1)
    before = tree_hash(tmp_path)
    with pytest.raises(DataError, match="strange"):
        run_step(corpus, tmp_path / "out", Refusing())
    assert tree_hash(tmp_path) == before and not (tmp_path / "out").exists()


@dataclass(frozen=True)
class Refusing(Odd):
    def apply(self, table):
        raise DataError("a strange column")


def test_corpus_that_goes_away_meanwhile_is_named(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 10, 1)
    with pytest.raises(DataError, match=r"c\.parquet: cannot be read: No such file"):
        run_step(corpus, tmp_path / "out", Odd(), progress=lambda done, total: corpus.unlink())
    assert not corpus.exists()


def test_plan_with_force_is_of_use_where_a_record_is_damaged(tmp_path):
    corpus, out = write_corpus(tmp_path / "c.parquet", 10, 1), tmp_path / "out"
    run_step(corpus, out, Odd())
    (out / "manifest.json").write_text("junk")
    assert "--force" in plan_step(corpus, out, Odd()).problems[0].hint
    forced = plan_step(corpus, out, Odd(), force=True)
    assert (forced.action, forced.problems) == ("replace", ())
    assert not run_step(corpus, out, Odd(), force=True).reused


def test_plan_writes_nothing_and_tells_what_a_sample_says(tmp_path):
    corpus = write_corpus(tmp_path / "c.parquet", 100, 10)
    before = tree_hash(tmp_path)
    plan = plan_step(corpus, tmp_path / "out", Odd())
    assert plan.action == "write" and plan.sampled.total.dropped == {"even": 50}
    assert tree_hash(tmp_path) == before
    run_step(corpus, tmp_path / "out", Odd())
    assert plan_step(corpus, tmp_path / "out", Odd()).action == "keep"
    assert plan_step(corpus, tmp_path / "out", Odd(rest=0)).problems
    assert plan_step(tmp_path / "none", tmp_path / "out2", Odd()).problems
