"""research/averaged.py: the mean of the last weights is exact, and judged as a model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tiny_run import make_run, train_here, write_tokenizer

from albor_core.run.checkpoints import name_of
from albor_core.run.rundir import RunDir

SCRIPT = Path(__file__).resolve().parents[1] / "averaged.py"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("averaged")
    tokenizer = str(write_tokenizer(folder / "tokenizer.json"))
    made = make_run(folder, data__tokenizer=tokenizer, training__checkpoint__keep=4)
    assert train_here(made).code == 0
    return made


def called(*words: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, SCRIPT, *words]
    return subprocess.run(list(map(str, line)), capture_output=True, text=True)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """Walks as those that it was trained on."""
    steps = np.random.default_rng(3).integers(1, 4, (20, 25))
    walks = [" ".join(f"w{1 + n % 60}" for n in one.cumsum()) for one in steps]
    file = tmp_path / "held.jsonl"
    file.write_text("".join(json.dumps({"text": walk}) + "\n" for walk in walks))
    return file


def test_the_mean_is_that_of_fp64_rounded_once_and_loads(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    from averaged import newest_first, write_mean

    from albor_core.model.hf.folder import open_model
    from albor_core.model.hf.tensors import load_model

    known = newest_first(run.path, [3])
    assert list(known.values()) == [24, 20, 15]
    write_mean(list(known), tmp_path)
    made = load_file(tmp_path / "model.safetensors")
    each = [load_file(path / "model.safetensors") for path in known]
    for name, weight in made.items():
        plain = np.mean([one[name].astype(np.float64) for one in each], axis=0)
        assert weight.dtype == np.float32 and (weight == plain.astype(np.float32)).all()
        assert not (weight == each[0][name]).all()
    assert made.keys() == each[0].keys()
    model = load_model(open_model(tmp_path), device=torch.device("cpu"), dtype=torch.float32)
    loaded = dict(model.named_parameters())
    assert all((loaded[name].detach().numpy() == made[name]).all() for name in made)
    assert not {"trainer.json", "manifest.json"} & {file.name for file in tmp_path.iterdir()}


def test_each_mean_is_judged_and_leaves_nothing_behind(run: RunDir, held: Path) -> None:
    before = sorted(run.path.rglob("*"))
    done = called(run.path, run.checkpoints, "--last", 3, "--held", held, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["steps"] for one in rows] == 2 * [[24], [24, 20, 15]]
    assert rows[:2] == rows[2:] and rows[0]["bpb"] != rows[1]["bpb"]
    line = [sys.executable, "-m", "albor_core.cli", "eval", "apply", run.path, "--task",
            f"text:{held}", "--dtype", "fp32", "--batch-size", "32", "--json"]  # fmt: skip
    assert sorted(run.path.rglob("*")) == before
    found = json.loads(subprocess.check_output(list(map(str, line)), text=True))
    (newest,) = (s["value"] for s in found["tasks"][0]["scores"] if s["name"] == "held/bpb")
    assert rows[0]["bpb"] == newest


def test_what_has_no_mean_is_named_before_anything_is_judged(
    run: RunDir, held: Path, tmp_path: Path
) -> None:
    def refused(said: str, *words: object) -> None:
        done = called(*words, "--held", held)
        assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
        assert said in done.stderr.splitlines()[-1]

    refused("0 published checkpoints, not 1", tmp_path)
    refused("4 published checkpoints, not 5", run.path, "--last", 2, 5)
    refused("'/nope' is not there", "/nope")
    own = tmp_path / "checkpoints"
    shutil.copytree(run.checkpoints, own)
    other = own / name_of(20) / "model.safetensors"
    weights = load_file(other)
    save_file(weights | {"model.norm.weight": np.zeros(7, np.float32)}, other)
    refused("step-00000020: weights of other names or shapes than step-00000024", own)
    other.write_bytes(b"cut")
    refused(f"{other.parent}: model.safetensors: header of", own, "--last", 2)
