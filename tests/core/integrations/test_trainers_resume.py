"""A training that another library's trainer goes on with is one run, each step once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from albor_core.guard.process.index_process import IndexProcess
from albor_core.integrations import kept_run
from albor_core.run.home.runs import registered_runs
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader

ROOT = Path(__file__).resolve().parents[3]
HEAD = """
import os, sys
sys.path.insert(0, os.getcwd())
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
IndexProcess.tend = lambda self: None
"""


def needs(package):
    """Found, not imported: the programs that a test starts do that."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setenv("ALBOR_CONSOLE", "0")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def program(body, *words, code=0):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + body, *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout


def points(run, key):
    drain_index(run)
    with Reader(run.store) as reader:
        return [point[:2] for point in reader.points(run.id, key)]


def params(run):
    drain_index(run)
    with Reader(run.store) as reader:
        return reader.params(run.id)


def attempts(run):
    return [
        line.record["attempt"]
        for line in read_journal(run.journal)
        if line.record.get("name") == "run.start"
    ]


HF = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from albor_core.integrations.hf import AlborCallback

folder, checkpoint, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Killer(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == die_at:
            os.kill(os.getpid(), 9)

torch.manual_seed(0)
shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 16}
model = LlamaForCausalLM(LlamaConfig(num_attention_heads=1, num_key_value_heads=1, **shape))
model.lm_head.weight.requires_grad_(False)
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 16, (48, 4))]
arguments = TrainingArguments(
    folder, max_steps=8, logging_steps=1, save_steps=3, report_to=[], use_cpu=True,
    disable_tqdm=True, include_num_input_tokens_seen="all", per_device_train_batch_size=2,
)
callback = AlborCallback("hf", name="tiny", tags=["a"])
trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[callback, Killer()])
trainer.train(resume_from_checkpoint={"": None, "last": True}.get(checkpoint, checkpoint))
print(callback.run.id)
"""


@needs("transformers")
@pytest.mark.slow
def test_a_hugging_face_training_that_was_killed_goes_on_as_one_run(tmp_path):
    folder = tmp_path / "out"
    program(HF, folder, "", 6, code=-signal.SIGKILL)
    (run,) = registered_runs()
    before = points(run, "train/loss")
    assert [step for step, _ in before] == [1, 2, 3, 4, 5, 6]
    (folder / "checkpoint-6").exists() and shutil.rmtree(folder / "checkpoint-6")
    assert program(HF, folder, "last", -1).split()[-1] == run.id
    assert [found.id for found in registered_runs()] == [run.id]
    after = points(run, "train/loss")
    assert [step for step, _ in after] == [*range(1, 9)]
    assert after[:3] == before[:3]
    assert attempts(run) == [1, 2]
    assert [value for _, value in points(run, "train/tokens")] == [8.0 * n for n in range(1, 9)]
    assert points(run, "perf/tokens_per_s")
    found = params(run)
    assert found["parameters.total"] - found["parameters.trainable"] == 16 * 8

    copy = tmp_path / "copy"
    shutil.copytree(folder / "checkpoint-3", copy / "checkpoint-3")
    fresh = program(HF, copy, copy / "checkpoint-3", -1).split()[-1]
    assert fresh != run.id
    assert points(run, "train/loss") == after
    assert read_json(RunDir(run.path.parent / fresh).run_json)["parent"] == run.id
    again = program(HF, folder, "", -1).split()[-1]  # the same folder, from the start
    assert again not in (run.id, fresh)


ACCELERATE = """
import torch
from pathlib import Path
from accelerate import Accelerator
from albor_core.integrations.accelerate import AlborTracker

folder, last, die_at = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
tracker = AlborTracker("exp", "tiny", resume_from=last, group="g")
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("exp", config={"lr": 0.1})
layer = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
tracker.follow(accelerator)
first = 1
if last is not None:
    accelerator.load_state(last)
    first = int(Path(last).name.split("-")[1]) + 1
for step in range(first, 9):
    if step == die_at:
        os.kill(os.getpid(), 9)
    loss = model(torch.ones(2, 4)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.log({"loss": loss}, step=step)
    if step % 3 == 0:
        accelerator.save_state(folder / f"step-{step}")
print(tracker.tracker.id)
accelerator.end_training()
"""


@needs("accelerate")
@pytest.mark.slow
def test_an_accelerate_loop_that_was_killed_goes_on_as_one_run(tmp_path):
    program(ACCELERATE, tmp_path, "", 6, code=-signal.SIGKILL)
    (run,) = registered_runs()
    assert program(ACCELERATE, tmp_path, tmp_path / "step-3", 0).split()[-1] == run.id
    assert [step for step, _ in points(run, "train/loss")] == [*range(1, 9)]
    assert attempts(run) == [1, 2]
    found = params(run)
    assert (found["lr"], found["parameters.total"], found["parameters.trainable"]) == (0.1, 5, 5)
    copy = tmp_path / "elsewhere" / "step-3"
    shutil.copytree(tmp_path / "step-3", copy)
    fresh = program(ACCELERATE, copy.parent, copy, 0).split()[-1]
    assert fresh != run.id
    assert read_json(RunDir(run.path.parent / fresh).run_json)["parent"] == run.id


LIGHTNING = """
import types
class Logger:
    def __init__(self): pass
def rank_zero_only(call):
    return call
for name in ("pytorch_lightning", "pytorch_lightning.loggers", "pytorch_lightning.utilities"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["pytorch_lightning.loggers"].Logger = Logger
sys.modules["pytorch_lightning.utilities"].rank_zero_only = rank_zero_only
import importlib.util
seen = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "lightning" else seen(name, *rest)
from pathlib import Path
import torch
from albor_core.integrations.lightning import AlborLogger

folder, last, die_at = Path(sys.argv[1]), sys.argv[2] or None, int(sys.argv[3])
logger = AlborLogger("exp", "tiny", job_type="train")
logger.experiment  # a Trainer's first look, before it has read a checkpoint
model = torch.nn.Linear(4, 1)
model._trainer = types.SimpleNamespace(ckpt_path=last)
logger.log_hyperparams({"lr": 0.1})
logger.log_graph(model)
for step in range(4 if last else 1, 9):
    if step == die_at:
        os.kill(os.getpid(), 9)
    logger.log_metrics({"loss": float(step), "epoch": 0}, step=step)
    if step % 3 == 0:  # as ModelCheckpoint does, on the process of rank 0
        path = folder / f"step={step}.ckpt"
        path.touch()
        best = {str(folder / "step=3.ckpt"): None}
        logger.after_save_checkpoint(types.SimpleNamespace(
            last_model_path="", best_model_path=str(folder / "step=3.ckpt"),
            best_k_models=best, _last_checkpoint_saved=str(path),
        ))
print(logger.version)
logger.finalize("success")
logger.finish()
"""


@pytest.mark.slow
def test_a_lightning_training_that_was_killed_goes_on_as_one_run(tmp_path):
    program(LIGHTNING, tmp_path, "", 6, code=-signal.SIGKILL)
    (run,) = registered_runs()
    assert program(LIGHTNING, tmp_path, tmp_path / "step=3.ckpt", 0).split()[-1] == run.id
    assert points(run, "train/loss") == [(step, float(step)) for step in range(1, 9)]
    found = params(run)
    assert (found["parameters.total"], found["parameters.trainable"]) == (5, 5)
    assert kept_run.run_of_checkpoint(tmp_path / "step=6.ckpt") == (run.id, None)


REAL_LIGHTNING = """
import torch
import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from albor_core.integrations.lightning import AlborLogger

folder, last, die_at = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"hidden": 4})
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, number):
        if self.global_step == die_at:
            os.kill(os.getpid(), 9)
        loss = self.layer(batch).square().mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

saved = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=3, save_top_k=-1)
trainer = L.Trainer(
    max_steps=9, accelerator="cpu", logger=AlborLogger("exp"), callbacks=[saved],
    log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False,
)
rows = torch.utils.data.DataLoader(torch.ones(36, 4), batch_size=4)
trainer.fit(Model(), rows, ckpt_path=last)
"""


@pytest.mark.sweep
def test_a_real_lightning_trainer_goes_on_with_the_run_of_its_checkpoint(tmp_path):
    pytest.importorskip("lightning", reason="lightning is not installed")
    program(REAL_LIGHTNING, tmp_path, "", 5, code=-signal.SIGKILL)
    (run,) = registered_runs()
    program(REAL_LIGHTNING, tmp_path, tmp_path / "step=3.ckpt", -1)
    assert [*registered_runs()] == [run]
    assert [step for step, _ in points(run, "train/loss")] == list(range(9))
    assert params(run)["hidden"] == 4


# -- what a checkpoint says ----------------------------------------------------------------------


def test_a_checkpoint_says_its_run_where_it_was_written_and_only_its_origin_elsewhere(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    kept_run.keep(here / "step-3", "one")
    kept_run.keep(here, "one", ["a.ckpt"])
    kept_run.keep(here, "two", ["b.ckpt"])
    assert kept_run.run_of_checkpoint(here / "step-3") == ("one", None)
    assert kept_run.run_of_checkpoint(here / "a.ckpt") == ("one", None)
    assert kept_run.run_of_checkpoint(here / "b.ckpt") == ("two", None)
    assert kept_run.run_of_checkpoint(here / "c.ckpt") == (None, None)
    shutil.copytree(here, there)
    assert kept_run.run_of_checkpoint(there / "a.ckpt") == (None, "one")
    kept_run.keep(there, "three", ["a.ckpt"])
    assert kept_run.run_of_checkpoint(there / "b.ckpt") == (None, None)
    assert kept_run.run_of_checkpoint(there / "a.ckpt") == ("three", None)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"runs": 3}', '{"runs": {".": "../x"}}', "\0"])
def test_a_planted_file_beside_a_checkpoint_says_nothing(text, tmp_path):
    (tmp_path / "albor_run.json").write_text(text)
    assert kept_run.run_of_checkpoint(tmp_path) == (None, None)


def test_a_training_whose_run_cannot_go_on_is_a_run_of_its_own(capsys):
    from albor_core import track

    with track.start(id="busy"), kept_run.start({}, "busy", None, experiment="e") as run:
        assert run.id != "busy"
        assert read_json(run.dir.run_json)["parent"] == "busy"
    assert "this training is a run of its own" in capsys.readouterr().err
    with kept_run.start({"id": "given"}, "busy", None) as run:
        assert run.id == "given"
