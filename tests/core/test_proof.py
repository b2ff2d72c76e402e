"""benchmarks/results/proof.py on a CPU: a small model from texts to a report."""

from __future__ import annotations

import argparse
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
SMALL = (
    "model.architecture.vocab_size=512",
    "data.seq_len=128",
    "model.architecture.max_position_embeddings=1024",
    "monitoring.system.enabled=false",
)


@pytest.mark.sweep
def test_a_proof_goes_on_where_it_was_stopped_and_shows_each_step_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import proof
    import timed_runs

    def some_texts(folder: Path) -> None:
        lines = [f"def f{i}(x):\n    return [x + {i}, {i * i}] * {i % 7}\n" for i in range(12000)]
        texts = {"train": lines[:10500], "held": lines[10500:]}
        for split, found in texts.items():
            documents = ["\n".join(found[at : at + 150]) for at in range(0, len(found), 150)]
            names = [f"{split}-{at}.py" for at in range(len(documents))]
            table = pa.table({"text": documents, "source": names, "file": names})
            pq.write_table(table, folder / f"{split}.parquet")

    monkeypatch.setattr(timed_runs, "write_corpora", some_texts)
    rows = timed_runs.Rows(vocabulary=512)
    monkeypatch.setattr(timed_runs, "USUAL", rows)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    options = argparse.Namespace(
        out=tmp_path / "out", steps=300, rows=2, config="configs/demo.yaml", set=list(SMALL),
        humaneval=None, record=tmp_path / "proof.tar.xz", stop_after=20.0,
    )  # fmt: skip
    first = proof.prove(options)
    options.stop_after = 300.0
    assert (first, proof.prove(options)) in ((1, 0), (0, 0))
    known = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert all(check["holds"] for check in known["checks"].values()), known["checks"]
    assert known["checks"]["each step once"]["found"] == "0 are not"
    first_kill, second = (kill["step"] for kill in known["kills"])
    assert 100 <= first_kill < 200 <= second < 300
    assert {task["kind"] for task in known["evaluation"]["found"]["tasks"]} == {
        "text",
        "fim",
        "code",
    }
    with tarfile.open(options.record) as packed:
        names = packed.getnames()
    assert "proof/report.html" in names and "proof/training_state.json" in names
    assert not any("checkpoints" in name for name in names)
