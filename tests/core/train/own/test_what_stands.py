"""A recipe that trains a part of a model: what is saved, what stands, and who reads it."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from tiny_run import make_run, train, train_here

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.model.hf.folder import open_model
from albor_core.model.hf.tensors import load_model
from albor_core.run.errors import ConfigError, DataError, NotFoundError
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.files.weight_files import open_weights
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
    train_here(run, stop_after=3)
    saved, file = newest(run).path, own_base / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    (own_base / "manifest.json").unlink()  # whose own sum would tell first
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=r"model\.path: the weights of .* are not those"):
        train_here(run, attempt=2)
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
