"""An import by several processes, killed, gone on with, and disturbed by who writes its sources."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.read import parquet_rows, rows, sources, tree
from albor_core.data.read.inputs import Asked
from albor_core.data.read.sources import import_sources, plan_import
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import DataError

UNIT_BYTES = 2_000


@pytest.fixture
def small_units(monkeypatch):
    cut_small(monkeypatch.setattr)


def cut_small(put):
    for module in (tree, rows, parquet_rows):
        put(module, "UNIT_BYTES", UNIT_BYTES)
    put(rows, "_BLOCK", 500)
    put(sources, "SPREAD_BYTES", 0)


def tree_hash(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def given(tmp_path, grow_tree):
    """A tree, JSONL and Parquet."""
    made = [grow_tree(tmp_path / "src", 60), tmp_path / "a.jsonl", tmp_path / "b.parquet"]
    texts = [f"text {number} " + "y" * 90 for number in range(150)]
    made[1].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pq.write_table(pa.table({"text": texts}), made[2], row_group_size=15)
    return made


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_the_corpus_is_the_same_by_one_process_and_by_two(tmp_path, given, small_units, name):
    made = [
        import_sources(given, tmp_path / folder / name, workers=workers)
        for folder, workers in (("one", 1), ("two", 2))
        if (tmp_path / folder).mkdir() is None
    ]
    assert tree_hash(tmp_path / "one") == tree_hash(tmp_path / "two")
    assert made[0].files == 360 and open_corpus(made[1].out).rows == 360


def test_folder_and_file_hold_the_same_documents_and_a_plan_says_them(tmp_path, given, small_units):
    plan = plan_import(given, tmp_path / "out", workers=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.parquet", "src"]
    folder = import_sources(given, tmp_path / "out")
    file = import_sources(given, tmp_path / "out.parquet")
    assert folder.corpus_hash == file.corpus_hash
    assert list(open_corpus(folder.out).documents()) == list(open_corpus(file.out).documents())
    assert (plan.files, plan.bytes, plan.action) == (folder.files, folder.bytes, "write")
    again = plan_import(given, tmp_path / "out", workers=2)
    assert again.action == "keep" and not again.problems
    assert import_sources(given, tmp_path / "out").reused


def test_a_plan_names_every_source_that_cannot_be_imported(tmp_path, given):
    (tmp_path / "x.zip").write_bytes(b"PK")
    (tmp_path / "hollow").mkdir()
    bad = [tmp_path / name for name in ("nowhere", "x.zip", "hollow", "gone")]
    plan = plan_import([*bad, *given], tmp_path / "out")
    told = " ".join(problem.message for problem in plan.problems)
    assert len(plan.problems) == 4 and all(str(path) in told for path in bad)
    assert plan.files == 360, "the others are read"
    assert len(plan_import(bad, tmp_path / "out").problems) == 4


KILLED = """
import sys, time; from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_import_engine import cut_small
from albor_core.data.read import take
from albor_core.data.read.sources import import_sources
if __name__ == "__main__":
    cut_small(setattr)
    slow = lambda *_: time.sleep(0.05)
    import_sources([Path(a) for a in sys.argv[4:]], Path(sys.argv[2]), workers=int(sys.argv[3]),
                   progress=slow)
"""


@pytest.mark.parametrize("workers, name", [(1, "out.parquet"), (2, "out")])
def test_a_killed_import_goes_on_to_the_same_bytes(
    tmp_path, given, small_units, wait_for_group, workers, name
):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole = import_sources(given, tmp_path / "whole" / name)
    script, out = tmp_path / "killed.py", tmp_path / "killed" / name
    script.write_text(KILLED)
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, script, here, out, str(workers), *given], start_new_session=True
    )
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "killed").rglob("done/*.json"))) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for_group(process.pid)
    assert plan_import(given, out).action == "resume"
    again = import_sources(given, out)
    assert again.resumed_units >= 3 and again.record == whole.record
    assert tree_hash(tmp_path / "killed") == tree_hash(tmp_path / "whole")


def test_what_was_done_is_done_again_where_a_source_is_another_by_then(
    tmp_path, given, small_units
):
    def stop(documents, size):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_sources(given, tmp_path / "out", progress=stop)
    given[1].write_text('{"text": "another"}\n')
    assert plan_import(given, tmp_path / "out").action == "write"
    assert import_sources(given, tmp_path / "out").resumed_units == 0
    whole = import_sources(given, tmp_path / "whole")
    assert tree_hash(tmp_path / "out") == tree_hash(whole.out)


@pytest.mark.parametrize("victim", ["src/pkg4/mod059.py", "a.jsonl", "b.parquet"])
@pytest.mark.parametrize("how", ["append", "remove"])
def test_a_source_that_changes_meanwhile_is_refused_by_name(
    tmp_path, given, small_units, victim, how
):
    path = tmp_path / victim

    def disturb(documents, size):
        if how == "append":
            with path.open("ab") as stream:
                stream.write(b"\n")
        else:
            path.unlink(missing_ok=True)

    with pytest.raises(DataError) as caught:
        import_sources(given, tmp_path / "out", progress=disturb)
    assert path.name in caught.value.message
    assert ("changed while it was read" in caught.value.message) or how == "remove"
    assert not (tmp_path / "out").exists()


def test_the_output_may_lie_in_the_tree_that_is_read(tmp_path, grow_tree):
    root = grow_tree(tmp_path / "src", 5)
    first = import_sources([root], root / "corpus", Asked(("", ".parquet")))
    assert first.files == 5
    assert import_sources([root], root / "corpus", Asked(("", ".parquet"))).reused
