"""Facts: what is on disk, told without ever raising for it."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from albor_core.config.load import parse_config
from albor_core.plan import facts as module
from albor_core.plan.facts import (
    GpuFacts,
    collect_facts,
    split_facts,
    tokenizer_facts,
    torch_without_cuda,
)
from albor_core.run.errors import DataError
from albor_core.run.program.provenance import versions

RAW = (Path(__file__).parents[1] / "config" / "pretrain-350m-v2.yaml").read_bytes()
CARD = GpuFacts("Card", 8 << 30, capability=(9, 0))


def write_split(folder, **changes):
    folder.mkdir(parents=True)
    (folder / "shard-00000.parquet").write_bytes(b"x" * 100)
    manifest = {
        "schema": "albor.shards/1", "seq_len": 1024, "sequences": 40, "tokens": 40_960,
        "vocab_size": 4096, "max_id": 4000, "data_hash": "d", "tokenizer_sha256": "t",
        "shards": [{"file": "shard-00000.parquet", "bytes": 100, "sha256": "s", "sequences": 40}],
        **changes,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def facts_of(folder, scan=None):
    return split_facts(folder, "input_ids", scan, "data.train")


def test_a_manifest_is_read_into_numbers(tmp_path):
    found = facts_of(write_split(tmp_path / "train"))
    assert (found.sequences, found.row_len, found.shards, found.bytes) == (40, 1024, 1, 100)
    assert found.sequences_at(500) == 80
    assert found.problems == ()


def test_a_shard_of_the_wrong_size_or_gone_is_named(tmp_path):
    folder = write_split(tmp_path / "train")
    (folder / "shard-00000.parquet").write_bytes(b"x" * 99)
    (problem,) = facts_of(folder).problems
    assert "99 bytes, the manifest says 100" in problem.message
    (folder / "shard-00000.parquet").unlink()
    (problem,) = facts_of(folder).problems
    assert "No such file" in problem.message


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "not a whole manifest"),
        ("[]", "not a whole manifest"),
        ('{"schema": "albor.shards/1"}', "not a whole manifest"),
        ('{"schema": "albor.shards/1", "shards": 5}', "not a whole manifest"),
        ('{"schema": "other/3"}', "schema 'other/3'"),
        ('{"schema": "albor.dataset/1"}', "schema 'albor.dataset/1'"),
        ("[" * 100_000, "not a whole manifest"),
    ],
)
def test_a_manifest_that_is_none_is_a_problem_and_no_traceback(tmp_path, text, cause):
    folder = write_split(tmp_path / "train")
    (folder / "manifest.json").write_text(text)
    (problem,) = facts_of(folder).problems
    assert cause in problem.message
    assert problem.hint


def test_a_binary_file_is_told_in_a_line_and_not_printed(tmp_path):
    noise = b"PAR1\xff" + bytes(range(256)) * 4000
    folder = write_split(tmp_path / "train")
    (folder / "manifest.json").write_bytes(noise)
    (problem,) = facts_of(folder).problems
    (tmp_path / "corpus.parquet").write_bytes(noise)
    for told in (problem.message, tokenizer_facts(tmp_path / "corpus.parquet").error):
        assert "not UTF-8 at byte 4" in told
        assert len(told) < 300


def test_a_missing_or_empty_directory_is_a_problem_with_the_next_command(tmp_path):
    (problem,) = facts_of(tmp_path / "nothing").problems
    assert "no such directory" in problem.message
    assert "albor data pretokenize" in problem.hint
    (tmp_path / "empty").mkdir()
    assert "no manifest.json" in facts_of(tmp_path / "empty").problems[0].message


@dataclass(frozen=True)
class Counted:
    sequences: int = 7
    seq_len: int = 64
    tokens: int = 448


def test_shards_without_a_manifest_are_counted_by_the_hook(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    assert facts_of(tmp_path).sequences is None
    assert facts_of(tmp_path, lambda folder, column: Counted()).sequences == 7


def test_what_the_hook_refuses_becomes_a_problem(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")

    def scan(folder, column):
        raise DataError(f"{folder}: no column {column}", hint="data.input_column=ids")

    (problem,) = facts_of(tmp_path, scan).problems
    assert "no column input_ids" in problem.message
    assert problem.hint == "data.input_column=ids"


def test_a_column_that_shards_with_a_manifest_have_not_is_a_problem(tmp_path):
    folder, asked = write_split(tmp_path / "train"), []

    def scan(path, column):
        asked.append((path.name, column))
        raise DataError("no column nope (columns: input_ids)", hint="set data.input_column")

    (problem,) = split_facts(folder, "nope", scan, "data.train").problems
    assert (problem.field, problem.hint) == ("data.train", "set data.input_column")
    assert "no column nope" in problem.message
    assert facts_of(folder, scan).problems == ()
    assert asked == [("shard-00000.parquet", "nope")]  # packed shards are not opened


def test_a_tokenizer_is_measured_by_its_highest_id(tmp_path):
    path = tmp_path / "tokenizer.json"
    document = {
        "model": {"vocab": {"a": 0, "b": 9}},
        "added_tokens": [{"id": 11, "content": "<x>"}],
    }
    path.write_text(json.dumps(document))
    found = tokenizer_facts(path)
    assert found.vocab_size == 12
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text(json.dumps({"model": {"vocab": [["a", 0.0], ["b", -1.0]]}}))
    assert tokenizer_facts(path).vocab_size == 2


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "Expecting value"),
        ("[]", "wrong type"),
        ("{}", "it has no 'model'"),
        ('{"model": {"vocab": {}}}', "vocabulary is empty"),
        ('{"model": 5}', "wrong type"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_an_error_in_words(tmp_path, text, cause):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    told = tokenizer_facts(path).error
    assert "not a tokenizer.json" in told
    assert cause in told


def test_facts_are_collected_without_raising_and_without_writing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse_config(RAW, file="c.yaml")
    found = collect_facts(
        config, Path("c.yaml"), find_gpu=lambda: CARD, peak_flops=lambda name: 1e12
    )
    assert (found.device, found.device_name, found.peak_flops) == ("cuda", "Card", 1e12)
    assert found.train.problems
    assert found.tokenizer.error
    assert found.disk_free_bytes > 0
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_wants_a_gpu_where_there_is_none_is_noticed():
    config = parse_config(RAW, file="c.yaml", overrides=["training.device=cuda"])
    found = collect_facts(config, Path("c.yaml"), find_gpu=lambda: None)
    assert found.gpu_missing
    assert found.device == "cuda"
    automatic = parse_config(RAW, file="c.yaml")
    assert collect_facts(automatic, Path("c"), find_gpu=lambda: None).device == "cpu"


def test_a_gpu_that_torch_cannot_use_is_there_and_not_trained_on():
    idle = replace(CARD, obstacle="this torch (2.0+cpu) has no CUDA", remedy="another torch")
    config = parse_config(RAW, file="c.yaml")
    found = collect_facts(config, Path("c"), find_gpu=lambda: idle)
    assert (found.device, found.peak_flops, found.gpu_missing) == ("cpu", None, False)
    assert found.gpu_idle == "Card is there, but this torch (2.0+cpu) has no CUDA"
    assert found.gpu_capability == (9, 0)
    config = parse_config(RAW, file="c.yaml", overrides=["training.device=cuda"])
    assert collect_facts(config, Path("c"), find_gpu=lambda: idle).gpu_missing
    config = parse_config(RAW, file="c.yaml", overrides=["training.device=cpu"])
    assert collect_facts(config, Path("c"), find_gpu=lambda: idle).gpu_idle == ""


@pytest.mark.parametrize(
    ("cuda", "version"), [("None", "2.0+cpu"), ("'13.0'", ""), (None, "")], ids=str
)
def test_how_torch_was_built_is_read_without_loading_it(tmp_path, monkeypatch, cuda, version):
    line = "" if cuda is None else f"cuda: Optional[str] = {cuda}\n"
    (tmp_path / "version.py").write_text(
        f"__version__ = '2.0+cpu'\ndebug = False\n{line}hip = None\n"
    )
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: spec)
    assert torch_without_cuda() == version


def test_versions_name_the_libraries_that_decide_numerics():
    found = versions()
    assert found["python"]
    assert "torch" in found
    json.dumps(found)


def test_the_manifest_that_packing_seals_is_the_one_that_is_read(tmp_path):
    from albor_core.data.pack.manifest import Shard, shard_fields, write_manifest

    (tmp_path / "shard-00000.parquet").write_bytes(b"x" * 10)
    shard = Shard("shard-00000.parquet", 10, "s", 6)
    sealed = write_manifest(
        tmp_path,
        {"split": "train", "seq_len": 128, "vocab_size": 512, "max_id": 500, "sequences": 6,
         "tokens": 768, "documents": 3, "dropped_tokens": 5, "tokenizer_sha256": "t",
         "corpus_sha256": "c", "shards": shard_fields((shard,))},
    )  # fmt: skip
    found = facts_of(tmp_path)
    assert found.problems == ()
    for name in ("sequences", "tokens", "vocab_size", "max_id", "data_hash", "tokenizer_sha256"):
        assert getattr(found, name) == getattr(sealed, name)
    for seq_len in (32, 100, 128, 500):
        assert found.sequences_at(seq_len) == sealed.sequences_at(seq_len)
