"""Examples and adapters: other people's loops, seen live in the cockpit and kept in the stores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from albor_core.feed.runs.watch import RunsFeed
from albor_core.guard.process.index_process import IndexProcess
from albor_core.integrations.closing_record import is_closing
from albor_core.run.home.runs import registered_runs
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader

ROOT = Path(__file__).resolve().parents[3]
MAX_LINES = 30
# the end of each example waits for the file GO, so that a run can be met while it lives
HELD = """
import os, runpy, sys, time
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
real = track.Run._close
def close(self, *words):
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.02)
    real(self, *words)
track.Run._close = close
runpy.run_path(sys.argv[1], run_name="__main__")
"""
EXAMPLES = {  # steps, keys that must be there, a parameter
    "plain_loop.py": (200, {"train/loss", "optim/lr", "error/weights"}, ("lr", 0.05)),
    "hf_trainer.py": (20, {"train/loss", "val/loss", "optim/lr", "optim/grad_norm"}, None),
    "accelerate_loop.py": (50, {"train/loss"}, ("lr", 0.1)),
}


def wait_until(claim, timeout_s=90.0):
    deadline = time.monotonic() + timeout_s
    while not (found := claim()):
        assert time.monotonic() < deadline, claim
        time.sleep(0.05)
    return found


def cockpit(*words):
    """What `albor-tui` shows now, as a document."""
    command = [sys.executable, "-P", "-m", "albor_tui.main", "--once", "--json", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_example_is_short_and_tried():
    found = {path.name: len(path.read_text().splitlines()) for path in ROOT.glob("examples/*.py")}
    for name in ("own_model.py", "classifier.py"):  # the trainer's: its own tests train them
        assert found.pop(name) < 60
    assert found.keys() == EXAMPLES.keys()
    assert max(found.values()) < MAX_LINES


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_live_in_the_cockpit_and_complete_in_the_store(name, tmp_path):
    steps, keys, param = EXAMPLES[name]
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(ROOT / "examples" / name)],
        cwd=ROOT,
        env={**os.environ, "GO": str(tmp_path / "go"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        feed = RunsFeed()

        def shown():
            assert process.poll() is None, process.stderr.read()
            rows = [row for row in feed.poll().rows if row.step == steps]
            return rows and rows[0]

        live = wait_until(shown)
        assert (live.status, live.is_live, live.experiment) == ("running", True, "examples")
        assert live.loss is not None
        assert live.progress == 1.0
        shown = cockpit(live.id)
        assert shown["schema"] == "albor.monitor/1"
        assert (shown["status"]["word"], shown["now"]["step"]) == ("running", steps)
        (tmp_path / "go").touch()
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    (run,) = registered_runs()
    drain_index(run)
    with Reader(run.store) as reader:
        row = reader.run(run.id)
        assert (row.ended_status, row.last_step, row.kind) == ("completed", steps, "track")
        assert keys <= set(reader.keys(run.id))
        loss = reader.summary(run.id)["train/loss"]
        assert (loss.count, loss.first_step, loss.nonfinite) == (steps, 1, 0)
        if param is not None:
            assert reader.params(run.id)[param[0]] == param[1]


@pytest.fixture
def unindexed(monkeypatch):

    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def events(run):
    lines = (line.record for line in read_journal(RunDir(Path(run.path)).journal))
    return [record["name"] for record in lines if record["t"] == "e"]


def recorded(run):
    return json.loads(RunDir(Path(run.path)).config_resolved.read_text())


@pytest.mark.slow
def test_the_trainers_summary_is_no_last_step(unindexed, tmp_path):
    """`train_loss` is the mean of the whole training: it must not replace the last loss."""
    pytest.importorskip("transformers")
    from types import SimpleNamespace as Thing

    from albor_core.integrations.hf import AlborCallback

    state = Thing(is_world_process_zero=True, max_steps=2, global_step=2)
    arguments = Thing(to_dict=lambda: {"lr": 1}, output_dir=str(tmp_path))
    callback = AlborCallback()
    callback.on_train_begin(arguments, state, None)
    first = callback.run
    callback.on_log(arguments, state, None, {"loss": 0.5})
    callback.on_log(arguments, state, None, {"train_loss": 9.0, "train_runtime": 1.0})
    callback.on_save(arguments, state, None)
    callback.on_train_end(arguments, state, None)
    callback.on_train_begin(arguments, state, None)  # a second training is a run of its own
    assert callback.run.id != first.id
    callback.close()
    drain_index(RunDir(Path(first.path)))
    with Reader(RunDir(Path(first.path)).store) as reader:
        assert [p[:2] for p in reader.points(first.id, "train/loss")] == [(2, 0.5)]
    assert events(first) == [
        *("run.start", "hf.summary", "hf.checkpoint", "hf.train_end", "run.end"),
    ]
    other = AlborCallback()
    other.on_train_begin(arguments, Thing(is_world_process_zero=False), None)
    other.on_log(arguments, state, None, {"loss": 1.0})
    assert other.run is None


@pytest.mark.slow
def test_a_loss_that_is_nan_is_logged_as_it_is_and_not_as_the_trainer_repairs_it(
    unindexed, tmp_path
):
    """Frozen arguments have the filter switched off as well."""
    pytest.importorskip("transformers")
    from types import SimpleNamespace as Thing

    from albor_core.integrations.hf import AlborCallback

    class Frozen(Thing):
        def __setattr__(self, name, value):
            raise AttributeError(name)

    for kind in (Thing, Frozen):
        state = Thing(is_world_process_zero=True, max_steps=2, global_step=2)
        arguments = kind(
            to_dict=dict, output_dir=str(tmp_path / kind.__name__), logging_nan_inf_filter=True
        )
        callback = AlborCallback()
        callback.on_train_begin(arguments, state, None)
        assert arguments.logging_nan_inf_filter is False
        assert "hf.nan_filter" in events(callback.run)
        for _ in range(2):  # a second train() finds it switched off
            assert recorded(callback.run)["logging_nan_inf_filter"] is True  # as the script has it
            callback.on_train_begin(arguments, state, None)
        callback.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "closes"),
    [
        ("train_runtime train_samples_per_second train_steps_per_second train_loss", True),
        ("train_runtime train_samples_per_second train_tokens_per_second train_loss", True),
        ("train_runtime train_loss epoch", True),
        ("train/train_runtime train/train_loss", True),
        ("loss train_runtime train_tokens_per_second num_input_tokens_seen", False),
        ("train_loss aux_loss train_runtime train_tokens_per_second", False),
        ("train_loss total_flos", False),
    ],
)
def test_a_trainer_that_counts_tokens_has_a_runtime_in_each_record(names, closes):
    assert is_closing(names.split()) == closes


def test_only_the_record_with_a_runtime_is_the_trainers_summary(unindexed, tmp_path):
    pytest.importorskip("transformers")
    from types import SimpleNamespace as Thing

    from albor_core.integrations.hf import AlborCallback

    arguments = Thing(to_dict=dict, output_dir=str(tmp_path))
    callback = AlborCallback()
    callback.on_train_begin(
        arguments, Thing(is_world_process_zero=True, max_steps=3, global_step=0), None
    )
    run = callback.run
    for step in (1, 2, 3):
        logs = {"train_loss": 2.0 / step, "aux_loss": 0.5 * step, "total_flos": 1e6 * step}
        callback.on_log(arguments, Thing(global_step=step), None, logs)
    callback.on_log(arguments, Thing(global_step=3), None, {"train_loss": 9.0, "train_runtime": 1})
    callback.close()
    drain_index(RunDir(Path(run.path)))
    with Reader(RunDir(Path(run.path)).store) as reader:
        for key, last in (("train/loss", 2 / 3), ("aux_loss", 1.5)):
            assert [p[:2] for p in reader.points(run.id, key)][-1] == (3, last)
            assert len(reader.points(run.id, key)) == 3
    assert events(run).count("hf.summary") == 1


LIGHTNING_CALLS = """
import sys, types
# the names that the adapter takes from Lightning, by the signatures of its Logger
class Logger:
    def __init__(self): self.saved = 0
    def after_save_checkpoint(self, callback): pass
    def log_graph(self, model, input_array=None): pass
    def save(self): self.saved += 1
def rank_zero_only(call):
    return call
for name in ("pytorch_lightning", "pytorch_lightning.loggers", "pytorch_lightning.utilities"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["pytorch_lightning.loggers"].Logger = Logger
sys.modules["pytorch_lightning.utilities"].rank_zero_only = rank_zero_only
import importlib.util
seen = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "lightning" else seen(name, *rest)
from argparse import Namespace
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
IndexProcess.tend = lambda self: None
from albor_core.integrations.lightning import AlborLogger

logger = AlborLogger("exp", "protocol")
planned = logger.version
assert (logger.name, logger.version, bool(logger.experiment)) == ("protocol", planned, True)
logger.log_hyperparams(Namespace(lr=0.1, model={"width": 8}))
for step in range(3):  # as Trainer.fit does: epoch beside the metrics, steps from 0
    logger.log_metrics({"loss": 1.0 / (step + 1), "epoch": 0}, step=step)
logger.save()
logger.finalize("success")
logger.log_metrics({"test_loss": 0.5}, step=3)  # Trainer.test, on the same logger
first = logger.version
assert first == planned == logger.experiment.id
logger.close()
logger.log_metrics({"loss": 2.0}, step=0)
assert logger.version != first
logger.finalize("failed")
print(first)
"""


@pytest.mark.slow
def test_a_logger_keeps_the_protocol_of_lightning_where_there_is_none():
    command = [sys.executable, "-c", LIGHTNING_CALLS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    runs = {run.id: run for run in registered_runs()}
    assert len(runs) == 2
    first = runs.pop(done.stdout.strip())
    (second,) = runs.values()
    for run in (first, second):
        drain_index(run)
    with Reader(first.store) as reader:
        assert reader.params(first.id) == {"lr": 0.1, "model.width": 8}
        loss = [point[:2] for point in reader.points(first.id, "train/loss")]
        assert loss == [(0, 1.0), (1, 0.5), (2, 1.0 / 3)]
        assert [point[:2] for point in reader.points(first.id, "test_loss")] == [(3, 0.5)]
        assert reader.run(first.id).ended_status == "completed"
    with Reader(second.store) as reader:
        assert reader.run(second.id).ended_status == "failed"


@pytest.mark.slow
def test_a_lightning_trainer_logs_to_a_run(unindexed, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="no dependency of ours")
    import torch

    from albor_core.integrations.lightning import AlborLogger

    class Tiny(lightning.LightningModule):
        def __init__(self, lr=0.1):
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    logger = AlborLogger("exp", "tiny", tmp_path)
    trainer = lightning.Trainer(
        logger=logger, max_steps=6, log_every_n_steps=1, accelerator="cpu",
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Tiny(), torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=4))
    run = logger.experiment
    assert logger.version == run.id
    logger.close()
    drain_index(RunDir(Path(run.path)))
    with Reader(RunDir(Path(run.path)).store) as reader:
        assert reader.summary(run.id)["train/loss"].count == 6
        assert reader.params(run.id)["lr"] == 0.1
