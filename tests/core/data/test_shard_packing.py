"""Documents to shards: nothing lost, same bytes every time, killed runs visible, one packer."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.pack import pretokenize as packing
from albor_core.data.pack.pretokenize import pretokenize, read_manifest, verify_shards
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.data.pack.work import encode
from albor_core.data.pack.work.encode import SplitRule
from albor_core.data.read.sources import import_sources
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import ConfigError, DataError, InUseError, NotFoundError

ARGS = {"seq_len": 32, "val_fraction": 0.2, "shard_sequences": 64}


def is_validation(key: str, *, seed: int, val_fraction: float) -> bool:
    return SplitRule(seed, val_fraction).holds_out(key)


def tree_hash(root: Path) -> dict[str, str]:
    return {
        str(f.relative_to(root)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in sorted(root.rglob("*"))
        if f.is_file()
    }


@pytest.fixture(scope="module")
def packed(corpus, tokenizer, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "data"
    pretokenize(corpus, tokenizer, out, **ARGS)
    return out


def test_the_shards_hold_the_documents_in_order_but_for_the_counted_remainder(
    corpus, tokenizer, packed
):
    encoder = load_tokenizer(tokenizer)
    expected = {"train": [], "val": []}
    for key, text in open_corpus(corpus).documents():
        split = "val" if is_validation(key, seed=0, val_fraction=0.2) else "train"
        expected[split] += [*encoder.encode(text.decode()).ids, 0]
    for split, ids in expected.items():
        manifest = read_manifest(packed / split)
        stored = [
            i
            for path in manifest.paths()
            for row in pq.read_table(path)["input_ids"].to_pylist()
            for i in row
        ]
        assert stored == ids[: manifest.tokens]
        assert len(ids) - len(stored) == manifest.dropped_tokens < 32
        assert manifest.max_id == max(stored)
        assert manifest.documents == ids.count(0)


def test_the_manifest_counts_what_the_files_hold(packed):
    manifest = read_manifest(packed / "train")
    assert manifest.seq_len == 32 and manifest.vocab_size == 400
    assert manifest.tokens == manifest.sequences * 32
    assert len(manifest.shards) > 2
    assert [s.sequences for s in manifest.shards[:-1]] == [64] * (len(manifest.shards) - 1)
    for shard, path in zip(manifest.shards, manifest.paths(), strict=True):
        assert path.stat().st_size == shard.bytes
        assert hashlib.sha256(path.read_bytes()).hexdigest() == shard.sha256
        assert pq.read_schema(path).field("input_ids").type == pa.list_(pa.uint32())


def test_the_same_inputs_give_the_same_bytes(corpus, tokenizer, packed, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path / "again", **ARGS)
    assert tree_hash(tmp_path / "again") == tree_hash(packed)


def test_a_complete_output_of_the_same_inputs_is_reused(corpus, tokenizer, packed):
    before = tree_hash(packed)
    report = pretokenize(corpus, tokenizer, packed, **ARGS)
    assert report.reused and report.splits["train"] == read_manifest(packed / "train")
    assert tree_hash(packed) == before


def test_an_output_of_other_inputs_is_refused_and_replaced_only_by_force(
    corpus, tokenizer, tmp_path
):
    pretokenize(corpus, tokenizer, tmp_path, **ARGS)
    before = tree_hash(tmp_path)
    with pytest.raises(DataError, match=r"not the same: .*seq_len") as caught:
        pretokenize(corpus, tokenizer, tmp_path, **{**ARGS, "seq_len": 64})
    assert "--force" in caught.value.hint
    assert tree_hash(tmp_path) == before
    report = pretokenize(corpus, tokenizer, tmp_path, **{**ARGS, "seq_len": 64}, force=True)
    assert not report.reused and read_manifest(tmp_path / "train").seq_len == 64
    assert verify_shards(tmp_path / "train", hashes=True) == []
    stored = {p.name for p in (tmp_path / "train").glob("*.parquet")}
    assert stored == {shard.file for shard in report.splits["train"].shards}  # no longer leftovers


@pytest.fixture
def many_units(monkeypatch):
    monkeypatch.setattr(encode, "UNIT_BYTES", 1)


def test_units_of_any_size_give_the_same_bytes(corpus, tokenizer, packed, tmp_path, many_units):
    pretokenize(corpus, tokenizer, tmp_path, **ARGS)
    assert tree_hash(tmp_path) == tree_hash(packed)


@pytest.mark.slow
def test_two_processes_give_the_same_bytes(corpus, tokenizer, packed, tmp_path, many_units):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "ONE_PROCESS_BYTES", 0)
        pretokenize(corpus, tokenizer, tmp_path, **ARGS, workers=2)
    assert tree_hash(tmp_path) == tree_hash(packed)


@pytest.mark.parametrize("after", [1, 5, 8])
def test_a_packing_that_dies_leaves_no_manifest_and_goes_on_to_the_same_bytes(
    corpus, tokenizer, packed, tmp_path, many_units, after
):
    units = []

    def die(done, total):
        assert total == 60
        units.append(done)
        if len(units) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretokenize(corpus, tokenizer, tmp_path, **ARGS, progress=die)
    assert list(tmp_path.rglob("manifest.json")) == []
    with pytest.raises(NotFoundError, match="not finished"):
        read_manifest(tmp_path / "train")
    report = pretokenize(corpus, tokenizer, tmp_path, **ARGS)
    assert not report.reused and report.resumed_units == after
    assert tree_hash(tmp_path) == tree_hash(packed)


def test_replacing_by_force_and_dying_keeps_what_was_whole(corpus, tokenizer, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path, **ARGS)
    before = tree_hash(tmp_path)

    def die(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretokenize(corpus, tokenizer, tmp_path, seq_len=16, force=True, progress=die)
    kept = {name: one for name, one in tree_hash(tmp_path).items() if ".work" not in name}
    assert kept == before
    assert pretokenize(corpus, tokenizer, tmp_path, **ARGS).reused
    assert tree_hash(tmp_path) == before, "what was begun is gone"


@pytest.fixture(scope="module", params=["concat", "best-fit"])
def packing_and_whole(request, corpus, tokenizer, tmp_path_factory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("whole") / "data"
    pretokenize(corpus, tokenizer, out, **ARGS, packing=request.param)
    return request.param, out


def killed(corpus, tokenizer, packing_and_whole, folder, numbers) -> list[str]:
    packing, whole = packing_and_whole
    script = Path(__file__).with_name("killed_packers.py")
    argv = [sys.executable, script, corpus, tokenizer, folder, whole, packing]
    argv += map(str, numbers)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def operations(corpus, tokenizer, packing_and_whole, tmp_path_factory) -> int:
    (count,) = killed(corpus, tokenizer, packing_and_whole, tmp_path_factory.mktemp("count"), [0])
    return int(count)


def test_kill_9_at_some_operations_loses_nothing(
    corpus, tokenizer, packing_and_whole, tmp_path, operations
):
    assert operations > 100
    numbers = sorted({1 + n * (operations - 1) // 11 for n in range(12)})
    said = killed(corpus, tokenizer, packing_and_whole, tmp_path, numbers)
    assert said == [f"{number} ok" for number in numbers]


@pytest.mark.sweep
def test_kill_9_at_every_operation_loses_nothing(
    corpus, tokenizer, packing_and_whole, tmp_path, operations
):
    numbers = range(1, operations + 1)
    said = killed(corpus, tokenizer, packing_and_whole, tmp_path, numbers)
    assert said == [f"{number} ok" for number in numbers]


def test_adding_files_moves_no_other_file_between_the_splits(grow_tree, tmp_path):
    def splits(files):
        out = tmp_path / f"{files}.parquet"
        import_sources([grow_tree(tmp_path / "p", files)], out)
        return {
            key: is_validation(key, seed=3, val_fraction=0.3)
            for key, _ in open_corpus(out).documents()
        }

    few, many = splits(20), splits(60)
    assert few.items() <= many.items()
    assert {True, False} == set(few.values())


def test_a_document_that_would_be_most_of_validation_trains_instead(tmp_path, tokenizer):
    tree = tmp_path / "p"
    tree.mkdir()
    for number in range(60):
        (tree / f"m{number:02}.py").write_text("value = 1\n" * 40)
    names = [f"p/m{number:02}.py" for number in range(60)]
    held_out = [n for n in names if is_validation(n, seed=0, val_fraction=0.2)]
    (tree / held_out[0].removeprefix("p/")).write_text("prose = 2\n" * 40 * 60)
    corpus = tmp_path / "c.parquet"
    import_sources([tree], corpus)
    report = pretokenize(corpus, tokenizer, tmp_path / "out", seq_len=16, val_fraction=0.2)
    assert report.splits["val"].documents == len(held_out) - 1
    assert report.splits["train"].documents == 60 - len(held_out) + 1


def test_the_split_is_as_large_as_asked_for():
    held_out = sum(is_validation(f"p/{n}", seed=1, val_fraction=0.05) for n in range(20_000))
    # binomial: mean 1000, standard deviation 31; six of them is one chance in 5e8
    assert abs(held_out - 1000) < 185


def test_a_corpus_of_bare_texts_is_split_by_its_text(tokenizer, tmp_path):
    texts = [f"text number {n} " * 20 for n in range(40)]
    pq.write_table(pa.table({"text": [*texts, *texts]}), tmp_path / "c.parquet")
    report = pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)
    assert report.splits["train"].documents + report.splits["val"].documents == 80
    assert (
        report.splits["val"].documents % 2 == 0
    )  # both copies on the same side, never one in each


def test_a_sentinel_inside_a_document_is_plain_text(tokenizer, tmp_path):
    texts = [f"<|endoftext|> <|fim_middle|> {n} " * 20 for n in range(40)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "c.parquet")
    pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)
    ids = PackedShards(tmp_path / "o" / "train", seq_len=32).batch([0, 1, 2]).ravel()
    assert 3 not in ids and np.count_nonzero(ids == 0) <= 1


def test_documents_nobody_can_use_are_counted(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("albor_core.data.pack.tokenizer.MAX_DOCUMENT_BYTES", 5000)
    good = [f"text number {n} " * 20 for n in range(40)]
    texts = [*(t.encode() for t in good), b"\xff\xfe", b"", None, b"x" * 5001]
    column = pa.array(texts, pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": column}), tmp_path / "c.parquet")
    report = pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)
    assert report.skipped == {"unusable": 4}
    again = pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)
    assert again.reused and again.splits == report.splits and again.skipped == report.skipped


def test_a_single_file_cannot_fill_both_splits(tokenizer, tmp_path):
    pq.write_table(pa.table({"text": ["alone " * 500]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="none of its 1 documents falls into val"):
        pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)
    assert not (tmp_path / "o").exists()


def test_too_little_text_for_one_sequence_is_refused_without_a_manifest(
    corpus, tokenizer, tmp_path
):
    with pytest.raises(DataError, match="do not fill one sequence of 100000 tokens"):
        pretokenize(corpus, tokenizer, tmp_path, seq_len=100_000, shard_sequences=2)
    assert list(tmp_path.rglob("manifest.json")) == []


def test_a_corpus_that_changes_meanwhile_is_refused(corpus, tokenizer, tmp_path, monkeypatch):
    mine = tmp_path / "c.parquet"
    mine.write_bytes(corpus.read_bytes())

    divide = packing._Packing._encode

    def change(self, work):
        texts = pa.table({"text": [f"other {n} " * 50 for n in range(60)]})
        pq.write_table(texts, mine.with_suffix(".new"))
        mine.with_suffix(".new").replace(mine)
        return divide(self, work)

    monkeypatch.setattr(packing._Packing, "_encode", change)
    with pytest.raises(DataError, match="changed while it was being packed"):
        pretokenize(mine, tokenizer, tmp_path / "o", **ARGS)
    assert list((tmp_path / "o").rglob("manifest.json")) == []


def test_shards_of_other_tools_are_never_deleted(corpus, tokenizer, tmp_path):
    (tmp_path / "train").mkdir()
    theirs = tmp_path / "train" / "shard-00000.parquet"
    theirs.write_bytes(b"precious")
    for _ in range(2):  # the refused attempt must not make them look like ours
        with pytest.raises(DataError, match="not written by albor"):
            pretokenize(corpus, tokenizer, tmp_path, **ARGS)
    assert theirs.read_bytes() == b"precious"


def test_a_damaged_output_of_the_same_inputs_is_packed_again(corpus, tokenizer, packed, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path, **ARGS)
    shard = tmp_path / "val" / "shard-00000.parquet"
    shard.write_bytes(shard.read_bytes()[:100])
    assert not pretokenize(corpus, tokenizer, tmp_path, **ARGS).reused
    assert tree_hash(tmp_path) == tree_hash(packed)


def test_a_second_packer_is_told_who_the_first_is(corpus, tokenizer, tmp_path):
    script = (
        "import sys, time; from pathlib import Path\n"
        "from albor_core.data.pack.pretokenize import pretokenize\n"
        "def stay(done, total): print('packing', flush=True); time.sleep(60)\n"
        "c, t, o = map(Path, sys.argv[1:])\n"
        "pretokenize(c, t, o, seq_len=32, val_fraction=0.2, progress=stay)\n"
    )
    argv = [sys.executable, "-c", script, corpus, tokenizer, tmp_path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout.readline() == "packing\n"
            started = time.monotonic()
            with pytest.raises(InUseError, match=rf"pid {first.pid}\)") as caught:
                pretokenize(corpus, tokenizer, tmp_path, **ARGS)
            assert time.monotonic() - started < 10
            assert caught.value.exit_code == 8
        finally:
            os.kill(first.pid, signal.SIGKILL)
    assert not pretokenize(corpus, tokenizer, tmp_path, **ARGS).reused


@pytest.mark.parametrize(
    "wrong",
    [{"seq_len": 1}, {"val_fraction": -0.1}, {"val_fraction": 1.0}, {"shard_sequences": 0}],
    ids=str,
)
def test_impossible_arguments_are_refused_before_anything_is_written(
    corpus, tokenizer, tmp_path, wrong
):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        pretokenize(corpus, tokenizer, tmp_path / "o", **{**ARGS, **wrong})
    assert not (tmp_path / "o").exists()


def test_a_tokenizer_without_end_of_text_is_refused(corpus, tmp_path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"no special token ends a text") as caught:
        pretokenize(corpus, tmp_path, tmp_path / "o", **ARGS)
    assert "--eos TOKEN" in caught.value.hint
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 9, b"text\n"], ids=repr)
def test_a_corpus_that_is_not_parquet_is_named(tokenizer, tmp_path, content):
    (tmp_path / "c.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"c\.parquet: not a readable Parquet"):
        pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)


def test_a_file_name_column_that_is_not_text_is_an_error_that_names_the_corpus(tokenizer, tmp_path):
    names = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    table = pa.table({"text": ["x"], "source": ["s"], "file": names})
    pq.write_table(table, tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet: cannot be read as Parquet"):
        pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **ARGS)


@pytest.mark.parametrize("limit", [0, 2000], ids=["at once", "half way"])
def test_a_disk_that_fills_up_is_named_and_leaves_no_folder(corpus, tokenizer, tmp_path, limit):
    # a file size limit fails a write the way a full disk does
    out = tmp_path / "new" / "shards"
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from albor_core.data.pack.pretokenize import pretokenize\n"
        "from albor_core.run.errors import AlborError\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "try: pretokenize(*map(Path, sys.argv[1:]), seq_len=32, val_fraction=0.2)\n"
        "except AlborError as error: print(error.message, error.hint, sep='|')\n"
    )
    argv = [sys.executable, "-c", script, corpus, tokenizer, out]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    message, hint = done.stdout.split("|")
    assert message.startswith(str(out)) and "cannot be written" in message
    assert "file size limit" in hint and "another" in hint
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_folder_that_was_there_before(tokenizer, tmp_path):
    pq.write_table(pa.table({"text": ["one two", "three"]}), tmp_path / "c.parquet")
    (tmp_path / "shards").mkdir()
    with pytest.raises(DataError):
        pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "shards", **ARGS)
    assert (tmp_path / "shards").is_dir()
