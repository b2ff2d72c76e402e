"""The two 350M configs of the specification, planned with data and a GPU that files pretend."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from called import albor

SPEC = (Path(__file__).parents[1] / "config" / "pretrain-350m-v2.yaml").read_text()
TOKENIZER = Path("models/albor-tokenizer-v2/tokenizer.json")
GPU = {
    "name": "NVIDIA GeForce RTX 4090",
    "memory_total_bytes": 24 << 30,
    "memory_used_bytes": 0,
    "power_limit_w": 450.0,
    "capability": [8, 9],
}


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """A folder with a tokenizer, an empty home and a GPU that could train."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    (tmp_path / "gpu.json").write_text(json.dumps({"gpus": [GPU], "torch_cuda": True}))
    monkeypatch.setenv("ALBOR_FAKE_NVML", str(tmp_path / "gpu.json"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    TOKENIZER.parent.mkdir(parents=True)
    vocab = {"model": {"vocab": {str(number): number for number in range(32_768)}}}
    TOKENIZER.write_text(json.dumps(vocab))


def shards(folder: str, sequences: int, seq_len: int = 1024) -> None:
    """A manifest of so many sequences, with a file of the size that it names."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    with (path / "shard-00000.parquet").open("wb") as file:
        file.truncate(1 << 20)
    manifest = {
        "schema": "albor.shards/1",
        "sequences": sequences,
        "seq_len": seq_len,
        "tokens": sequences * seq_len,
        "vocab_size": 32_768,
        "max_id": 32_767,
        "shards": [{"file": "shard-00000.parquet", "bytes": 1 << 20}],
        "data_hash": "d" * 64,
        "tokenizer_sha256": hashlib.sha256(TOKENIZER.read_bytes()).hexdigest(),
    }
    (path / "manifest.json").write_text(json.dumps(manifest))


def written(name: str, text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    Path(name).write_text(text)
    return name


def test_the_run_that_ended_in_its_warm_up_is_refused_with_its_43_steps_and_117_epochs():
    shards("data/pretokenized-2048-v2/train", 22_079)
    shards("data/pretokenized-2048/val", 400)
    config = written(
        "v1.yaml",
        SPEC,
        ("gradient_accumulation: 1 ", "gradient_accumulation: 128 "),
        ("warmup_steps: 500 ", "warmup_steps: 2000 "),
    )
    code, said = albor("train", "plan", config, "--json")
    made = json.loads(said)
    assert code == 1 and made["training"]["steps_per_epoch"] == 43
    steps, warmup = made["problems"]
    lines = Path(config).read_text().splitlines()
    for problem, text in ((steps, "max_steps: 5000"), (warmup, "warmup_steps: 2000")):
        file, line = problem["file"].split(":")
        assert file == config and text in lines[int(line) - 1]
    assert "5,000 steps cannot be reached: 1 epoch of 43 steps end at 43" in steps["message"]
    assert steps["hint"] == "set training.epochs to 117, or training.max_steps to 43"
    assert "2,000 steps never completes in 43 steps" in warmup["message"]
    code, said = albor("train", "plan", config)
    where = steps["file"].partition(":")[2]
    assert code == 1 and f"line {where}: training.max_steps: 5,000 steps cannot be" in said
    assert albor("train", "plan", config, "--set", "training.epochs=117")[0] == 0


def test_its_successor_is_ready_with_16_994_steps():
    shards("data/pretokenized-2048-v2/train", 67_977)
    shards("data/pretokenized-2048/val", 400)
    code, said = albor("train", "plan", written("v2.yaml", SPEC), "--json")
    made = json.loads(said)
    assert code == 0 and made["ok"] and made["problems"] == []
    assert made["training"]["steps_per_epoch"] == 16_994
    assert made["training"]["max_steps"] == 5_000 and made["training"]["warmup_steps"] == 500
    assert (
        "1 x 16,994 steps = 16,994; max_steps stops at 5,000"
        in albor("train", "plan", "v2.yaml")[1]
    )
    said = albor("train", "plan", "v2.yaml", "--set", "training.max_steps=null")[1]
    assert "1 x 16,994 steps = 16,994\n" in said
