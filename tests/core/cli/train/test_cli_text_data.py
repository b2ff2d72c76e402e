"""A config that names text where shards are expected: packed once, then trained on."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
import yaml

from albor_core.data.pack.manifest import load_manifest


def test_text_is_packed_once_and_trained_on(user, data):
    named = ("--set", f"data.train={data / 'corpus.parquet'}", "--set", "training.max_steps=2")
    named += ("--set", "training.warmup_steps=1")
    before = user.albor("train", "plan", "tiny.yaml", *named, "--json")
    assert before.code == 0, before.err
    told = before.document["data"]["train"]
    assert told["path"] == str(data / "corpus.parquet")
    assert told["sampled_bytes"] > 1000 and told["packing_seconds"] > 0
    assert (
        "of its text; apply packs it first, about 1s"
        in user.albor("train", "plan", "tiny.yaml", *named).out
    )
    assert not (user.home / "cache").exists()
    first = user.albor("train", "apply", "tiny.yaml", *named, "--name", "one")
    assert first.code == 0, first.err
    assert "holds text (column text): packing it with" in first.err
    resolved = json.loads((user.run("one").path / "config.resolved.json").read_text())
    (split,) = (user.home / "cache" / "packed").glob("*/train")
    assert resolved["data"]["train"] == str(split)
    packed = load_manifest(split)
    assert packed.documents == pq.read_metadata(data / "corpus.parquet").num_rows
    assert told["sequences"] == pytest.approx(packed.sequences, rel=0.02, abs=2)
    planned = user.albor("train", "plan", "tiny.yaml", *named)
    assert planned.code == 0, planned.err
    best = user.albor("train", "plan", "tiny.yaml", *named, "--set", "data.packing=best-fit")
    assert best.code == 0 and "apply packs it first" in best.out, "it is not packed that way"
    shards = f"data.train={split}"
    other = user.albor("train", "plan", "tiny.yaml", "--set", shards, "--set",
                       "data.packing=best-fit", "--json")  # fmt: skip
    (problem,) = other.document["problems"]
    assert problem["field"] == "data.packing"
    assert "was packed by concat, not by best-fit" in problem["message"]
    anew = user.albor("train", "plan", "tiny.yaml", *named, "--set", "data.shuffle=documents")
    assert anew.code == 0 and "documents, joined and cut anew in each epoch" in anew.out
    untold = user.albor(
        "train", "plan", "tiny.yaml", *named, "--set", "data.tokenizer=null", "--json"
    )
    assert untold.code == 1 and "no tokenizer is named" in untold.error["message"]
    config = yaml.safe_load((user.folder / "tiny.yaml").read_text())
    del config["data"]["train"]
    source = {"path": str(data / "shards" / "train"), "weight": 1}
    config["data"] |= {"mixture": [source], "val": str(data / "corpus.parquet")}
    (user.folder / "mixed.yaml").write_text(yaml.safe_dump(config))
    beside = user.albor("train", "plan", "mixed.yaml", "--json", *named[2:])
    assert beside.code == 0, beside.err
    assert beside.document["data"]["val"]["path"] == str(split)
