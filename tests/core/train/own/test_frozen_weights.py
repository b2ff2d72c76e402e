"""A recipe that trains a part of a model: what is saved, what is frozen, and who reads it."""

import json
import math
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from own_recipes import Int8
from tiny_run import history, make_run, rewrite_config, train, train_here
from torch import nn

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.model.hf.folder import open_model
from albor_core.model.hf.tensors import load_model
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import ConfigError, DataError, NotFoundError
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.weight_files import open_weights
from albor_core.train.ranks.sharding import fingerprint as compared
from albor_core.train.resume.digest import digest

FEW = {"training__max_steps": 6, "training__warmup_steps": 1, "training__eval_interval": 3}
FEW |= {"training__checkpoint": {"save_every": 3, "keep": 3}}
NORMS = {**FEW, "training__mode": "own_recipes:Norms"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A checkpoint of a whole model."""
    run = make_run(tmp_path_factory.mktemp("base"), "base", **FEW)
    assert train_here(run, stop_after=1).reason == "stopped"
    return list_checkpoints(run.checkpoints)[0]


@pytest.fixture
def own_base(base, tmp_path):
    """One that a test may spoil."""
    return Path(shutil.copytree(base, tmp_path / "step-00000001"))


def begun(folder, name, base, **changes):
    return make_run(folder / name, name, **NORMS, model__path=str(base), **changes)


def newest(run):
    return verify(list_checkpoints(run.checkpoints)[0])


def test_a_checkpoint_holds_what_is_trained_and_the_rest_by_its_hash(tmp_path, base):
    run = begun(tmp_path, "norms", base)
    assert train_here(run).reason == "completed"
    saved, whole = newest(run), open_weights(base).tensors
    norms = {name for name in whole if "norm" in name}
    assert {*saved.model()} == norms
    assert {name.partition(".")[2] for name in saved.optimizer()} == norms
    assert saved.manifest["frozen_hash"] == fingerprint(base / "model.safetensors")[1]
    said = json.loads((saved.path / "base.json").read_bytes())
    assert (said["folder"], said["hash"]) == (str(base), saved.manifest["frozen_hash"])


def test_whoever_reads_such_a_checkpoint_reads_the_whole_model(tmp_path, base):
    run = begun(tmp_path, "norms", base)
    train_here(run, stop_after=3)
    saved = newest(run)
    model = load_model(open_model(saved.path), device=torch.device("cpu"), dtype=torch.float32)
    before, trained = verify(base).model(), saved.model()
    for name, value in model.state_dict().items():
        assert torch.equal(value, trained.get(name, before[name]))
    assert any(not torch.equal(trained[name], before[name]) for name in trained)


def test_it_goes_on_to_the_same_bits(tmp_path, base):
    whole, halves = (begun(tmp_path, name, base) for name in ("whole", "halves"))
    train_here(whole)
    train_here(halves, stop_after=3)
    train_here(halves, attempt=2)
    assert digest(whole) == digest(halves)


def test_a_base_that_was_changed_is_refused_and_one_that_was_moved_is_not(tmp_path, own_base):
    run = begun(tmp_path, "norms", own_base)
    train_here(run, stop_after=2)
    moved = Path(shutil.copytree(own_base, tmp_path / "moved"))
    rewrite_config(run, "model.path", str(moved))
    assert train_here(run, attempt=2, stop_after=3).step == 3
    rewrite_config(run, "model.path", str(own_base))
    saved, file = list_checkpoints(run.checkpoints)[-1], own_base / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    (own_base / "manifest.json").unlink()  # whose own sum would tell first
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=r"model\.path: the weights of .* are not those"):
        train_here(run, attempt=3)
    with pytest.raises(DataError, match="is not what"):
        open_weights(saved)
    shutil.rmtree(own_base)
    with pytest.raises(NotFoundError, match="which are gone"):
        open_weights(saved)


def test_from_random_weights_the_seed_is_what_the_rest_comes_from(tmp_path):
    runs = [make_run(tmp_path / name, name, **NORMS) for name in ("one", "two")]
    train_here(runs[0], stop_after=6)
    train_here(runs[1], stop_after=3)
    train_here(runs[1], attempt=2)
    assert digest(runs[0]) == digest(runs[1])
    with pytest.raises(DataError, match=r"drawn from training\.seed"):
        open_weights(newest(runs[0]).path)
    rewrite_config(runs[0], "training.seed", 7)
    with pytest.raises(ConfigError, match=r"^training\.seed: the frozen weights that it draws"):
        train_here(runs[0], attempt=2, allow_config_change=True)


def test_ranks_are_compared_by_packed_matrices_too_and_not_by_what_a_forward_counts():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), Int8(torch.eye(2)))
    everything = SimpleNamespace(trains=lambda name: not name.startswith("2."))
    trainable = Trainable(everything, model)
    first = compared(trainable)
    model[1].running_mean += 1
    assert compared(trainable) == first
    model[2].packed[0, 1] += 1
    assert compared(trainable) != first


def resumed(folder, **changes):
    """A run at once, and one in two attempts."""
    whole, halves = (make_run(folder / n, n, **{**FEW, **changes}) for n in ("whole", "halves"))
    train_here(whole)
    train_here(halves, stop_after=3)
    train_here(halves, attempt=2)
    return whole, halves


def test_a_matrix_packed_as_int8_is_read_behind_one_call_and_not_saved(tmp_path, base):
    changes = {"training__mode": "own_recipes:Packed", "model__path": str(base)}
    whole, halves = resumed(tmp_path, **changes)
    assert digest(whole) == digest(halves)
    assert all("norm" in name for name in newest(whole).model())
    assert (newest(whole).path / "norms.safetensors").exists()
    assert open_weights(newest(whole).path).tensors.keys() == open_weights(base).tensors.keys()
    plain = begun(tmp_path, "norms", base)
    train_here(plain)
    one, other = (history(run, ("train/loss",))[-1][2] for run in (whole, plain))
    assert one != other
    assert one == pytest.approx(other, abs=0.05)


def test_a_frozen_model_beside_it_is_known_by_its_hash_and_in_no_optimizer(tmp_path):
    changes = {"training__mode": "own_recipes:Taught", "recipe": {"teacher_seed": 7}}
    whole, halves = resumed(tmp_path, **changes)
    assert digest(whole) == digest(halves)
    saved = newest(whole)
    assert saved.manifest["beside_hash"].startswith("blake3:")
    assert {name.partition(".")[2] for name in saved.optimizer()} == {*saved.model()}
    assert history(whole, ("train/kl",))
    rewrite_config(halves, "recipe.teacher_seed", 8)
    with pytest.raises(ConfigError, match="teacher: the weights beside which"):
        train_here(halves, attempt=3, allow_config_change=True)


@pytest.mark.slow
def test_what_is_computed_before_step_1_goes_on_after_a_kill(tmp_path):
    changes = {"training__mode": "own_recipes:Preferred", "data__val": ...}
    whole, halves = resumed(tmp_path, **changes)
    assert digest(whole) == digest(halves)
    killed = make_run(tmp_path / "killed", "killed", **{**FEW, **changes})
    path = f"{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parent}"
    assert train(killed, PYTHONPATH=path, DIE_AT="11")[0] == 9
    made = {file: file.stat().st_mtime_ns for file in (killed.path / "prepared").iterdir()}
    assert len(made) == 11
    assert train(killed, PYTHONPATH=path)[0] == 0
    assert all(file.stat().st_mtime_ns == at for file, at in made.items())
    assert digest(killed) == digest(whole)
    first = history(whole, ("train/loss", "train/margin"))[:2]
    assert first[0][2] == pytest.approx(math.log(2), abs=1e-6)
    assert first[1][2] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_train_what_one_does(tmp_path, base, strategy):
    alone = begun(tmp_path, "alone", base)
    spread = {"training__distributed": {"world_size": 2, "strategy": strategy}}
    both = begun(tmp_path, "both", base, **spread)
    for run in (alone, both):
        path = f"{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parent}"
        code, said = train(run, PYTHONPATH=path)
        assert code == 0, said
    one, other = (newest(run).model() for run in (alone, both))
    assert {*one} == {*other}
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-7)
    assert newest(alone).manifest["frozen_hash"] == newest(both).manifest["frozen_hash"]
