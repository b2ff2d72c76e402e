"""research/proof.py on a CPU: a small model from texts to a report, and its record."""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.demo import proof as opened
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal, parse_line
from albor_core.run.rundir import RunDir

RESEARCH = Path(__file__).resolve().parents[1]
SMALL = (
    "model.architecture.vocab_size=512",
    "data.seq_len=128",
    "model.architecture.max_position_embeddings=1024",
    "monitoring.system.enabled=false",
)


@pytest.mark.sweep
def test_a_proof_goes_on_where_it_was_stopped_and_shows_each_step_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(RESEARCH)
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
        out=tmp_path / "out", steps=150, rows=2, config="configs/demo.yaml", set=list(SMALL),
        humaneval=None, record=tmp_path / "proof.tar.xz", stop_after=20.0,
    )  # fmt: skip
    first = proof.prove(options)
    options.stop_after = 300.0
    assert (first, proof.prove(options)) in ((1, 0), (0, 0))
    known = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert all(check["holds"] for check in known["checks"].values()), known["checks"]
    assert known["checks"]["each step once"]["found"] == "0 are not"
    first_kill, second = (kill["step"] for kill in known["kills"])
    assert 50 <= first_kill < 100 <= second < 150
    assert {task["kind"] for task in known["evaluation"]["found"]["tasks"]} == {
        "text",
        "fim",
        "code",
    }
    with tarfile.open(options.record) as packed:
        files = {member.name: packed.extractfile(member).read() for member in packed}
    assert "proof/training_state.json" in files and "proof/journal.jsonl" in files
    assert any(name.startswith("proof/eval/") for name in files)
    assert not any("checkpoints" in name or name.endswith((".db", ".lock")) for name in files)
    assert not any(str(tmp_path).encode() in content for content in files.values())
    monkeypatch.setattr(opened, "RECORD", options.record)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "elsewhere"))
    found = opened.facts(opened.open_proof(tmp_path / "there").run)
    assert (found["steps"], found["steps_not_once"], found["restarts"]) == (150, 0, 2)
    (one, two) = (kill["step"] for kill in found["kills"])
    assert first_kill <= one < first_kill + 50 and second <= two < second + 50


def a_run(folder: Path) -> RunDir:
    """Of a machine with two GPUs, of which it used the first while others used both."""
    gpus = [{"index": n, "uuid": f"GPU-{n}{n}{n}"} for n in (0, 1)]
    facts = {
        "git": {
            "commit": "c0ffee", "dirty": True, "patch": None, "patch_sha256": None,
            "untracked": {"files": 1, "code": {"private/plan.py": "aa"}, "is_whole": True},
        },
        "versions": {"torch": "2.11.0", "system": "Linux-6.1-of-this-host"},
    }  # fmt: skip
    run = create_run(
        folder / "out" / "runs", "proof", experiment="e", name="p", kind="train",
        argv=["/tree/albor_core/cli/__main__.py", "train"], facts=facts, config=b"a: 1\n",
        resolved={"training": {"output_dir": str(folder / "out" / "runs")}},
    )  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.metrics(1, {"train/loss": float("nan"), "optim/lr": 1e-05})
    journal.metrics(2, {"gpu0/power_w": 1.0, "gpu1/power_w": 2.0, "gpu_hours": 3.0})
    journal.event("checkpoint.saved", step=2, path=str(run.checkpoints / "step-2"))
    journal.close()
    process = {"pid": 7, "uuid": "GPU-000", "name": "python3"}
    stranger = {"pid": 8, "uuid": "GPU-111", "name": "theirs"}
    state = {
        "host": "this-host", "boot_id": "b", "pid": 7, "executable_path": "/py/bin/python3",
        "gpu": [
            {**gpus[0], "processes": [process, stranger]}, {**gpus[1], "processes": [stranger]},
        ],
        "system": {"rss_bytes": 5, "load1": 97531.5},
    }  # fmt: skip
    report = {
        "argv": ["/py/bin/python3", str(run.path)],
        "time": {"wall": "then", "boot_id": "b", "uptime_s": 9.0},
        "gpu": {"source": "nvidia-smi", "devices": [
            {"uuid": "GPU-000", "procs": [process, stranger]}, {"uuid": "GPU-111", "procs": []},
        ]},
        "host": {"kernel": "6.1-of-this-host", "load": [97531.5]},
        "env": {"PYTHONPATH": "/tree"}, "env_names": ["HOME"],
    }  # fmt: skip
    write_json(run.state, state)
    write_json(run.crash_reports / "r.json", report)
    write_json(run.exit, {"wall": 12.5, "reason": "completed"})
    write_json(run.launch, {"env": {"PYTHONPATH": "/tree"}, "cwd": "/tree"})
    note = {"t": "event", "name": "guard.preflight_note", "data": {"note": "theirs is in use"}}
    start = {"t": "attempt.start", "attempt": 1, "pid": 7}
    run.attempts.write_text("".join(json.dumps(line) + "\n" for line in (note, start)))
    said = {"t": "note", "value": "well", "by": "somebody", "wall": 1.0}
    run.annotations.write_text(json.dumps(said) + "\n")
    for name in ("run.lock", ".albor/experiments.db", ".albor/experiments.db-wal", "report.html"):
        (run.path / name).write_text("of this-host")
    (run.path / "checkpoints" / "weights").write_text("many")
    (run.logs / "a0001.log").write_text("loss 1\n")
    return run


def test_a_record_tells_of_the_run_and_of_nothing_beside_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(RESEARCH)
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    from record import NO_BOOT, record_files, write_record

    run = a_run(tmp_path)
    before = run.journal.read_bytes().splitlines(keepends=True)
    files = dict(record_files(run))
    assert set(files) == {
        "annotations.jsonl", "config.resolved.json", "config.yaml", "crash-reports/r.json",
        "exit.json", "guard/attempts.jsonl", "journal.jsonl", "logs/a0001.log", "run.json",
        "training_state.json",
    }  # fmt: skip
    whole = b"".join(files.values()).decode()
    assert not re.search(
        r"this-host|theirs|somebody|private|GPU-|PYTHONPATH|HOME|97531\.5|/tree|/py/bin", whole
    )
    assert str(tmp_path) not in whole
    after = files["journal.jsonl"].splitlines(keepends=True)
    assert after[0] == before[0]
    assert parse_line(after[0])["v"]["train/loss"] != parse_line(after[0])["v"]["train/loss"]
    assert parse_line(after[1])["v"] == {"gpu0/power_w": 1.0, "gpu_hours": 3.0}
    assert parse_line(after[2])["data"]["path"] == "runs/proof/checkpoints/step-2"
    about, state = json.loads(files["run.json"]), json.loads(files["training_state.json"])
    assert about["argv"] == ["albor_core/cli/__main__.py", "train"]
    assert about["git"]["commit"] == "c0ffee" and about["git"]["dirty"] is False
    assert about["versions"] == {"torch": "2.11.0", "system": "Linux"}
    assert (state["host"], state["boot_id"], state["executable_path"]) == ("", NO_BOOT, "python3")
    assert [[one["pid"] for one in gpu["processes"]] for gpu in state["gpu"]] == [[7]]
    assert state["system"] == {"rss_bytes": 5, "load1": None}
    report = json.loads(files["crash-reports/r.json"])
    assert report["argv"] == ["python3", "runs/proof"]
    assert [one["pid"] for one in report["gpu"]["devices"][0]["procs"]] == [7]
    assert (report["env"], report["env_names"], report["host"]["kernel"]) == ({}, [], None)
    assert files["config.yaml"] == b"a: 1\n"
    for name in ("one", "two"):
        write_record(run, tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()
