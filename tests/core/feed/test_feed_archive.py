"""What a run left behind, asked for: from its store, and from its files where there is none."""

from __future__ import annotations

import json
import shutil

import pytest
from typed_recipe import give_settings

from albor_core.feed.archive.archive import RunArchive
from albor_core.feed.archive.config_sheet import ConfigSheet
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer

YAML = b"""\
# comment
training:
  max_steps: 1_000
optimizer:
  lr: 1e-3
  weight_decay: 0.1
"""
RESOLVED = {
    "optimizer": {"lr": 0.001, "weight_decay": 0.1, "beta1": 0.9, "min_lr": 0.0001},
    "training": {"max_steps": 1000, "seed": 7, "checkpoint": {"keep": 2}},
    "elsewhere": {"unknown": [1, 2]},
}


@pytest.fixture
def run(tmp_path, monkeypatch) -> RunDir:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    made = create_run(
        tmp_path / "out", "one", experiment="e", name="one", kind="train", argv=["x"],
        config=YAML, resolved=RESOLVED,
    )  # fmt: skip
    journal = Journal(made.journal, attempt=1)
    journal.append("p", key="optimizer.lr", value=0.001)
    journal.event("run.start", step=0)
    for step in range(1, 21):
        journal.metrics(step, {"train/loss": 3 - step / 100, "val/loss": 4 - step / 100})
    for step in (10, 20):
        journal.append("s", step=step, prompt="def f", text=f"(x):\n    return {step}")
        journal.event("checkpoint.saved", step=step)
    journal.close()
    folder = made.checkpoints / "step-00000020"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"12345")
    manifest = {"step": 20, "files": {"model.safetensors": {"size": 5}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return made


def index(run: RunDir) -> None:
    with Indexer(run, global_store()) as indexer:
        indexer.drain()


@pytest.mark.parametrize("is_indexed", [True, False])
def test_samples_and_events_are_the_same_with_a_store_and_without(run, is_indexed):
    if is_indexed:
        index(run)
    archive = RunArchive(run)
    samples = archive.samples().samples
    assert [(s.step, s.prompt) for s in samples] == [(10, "def f"), (20, "def f")]
    assert samples[-1].text == "(x):\n    return 20"
    names = [event.name for event in archive.events().events]
    assert names == ["run.start", "checkpoint.saved", "checkpoint.saved"]
    archive.close()


def test_a_checkpoint_has_the_validation_loss_of_its_step(run):
    index(run)
    archive = RunArchive(run)
    (one,) = archive.checkpoints().saved
    assert (one.val_loss, one.state) == (pytest.approx(3.8), "verified")
    archive.close()


def test_curves_are_cut_to_the_window_that_is_wanted(run):
    index(run)
    archive = RunArchive(run)
    found = archive.curves(("train/loss", "no/such"), lo=5, hi=8, points=100)
    assert list(found) == ["train/loss"]
    assert list(found["train/loss"].steps) == [5, 6, 7, 8]
    archive.close()


def test_rows_are_asked_for_again_only_when_somebody_wrote(run):
    index(run)
    archive = RunArchive(run)
    first = archive.events()
    assert archive.events() == first
    journal = Journal(run.journal, attempt=1)
    journal.event("run.end", step=20)
    journal.close()
    index(run)
    assert archive.events().events[-1].name == "run.end"
    archive.close()


def test_every_field_says_where_it_comes_from(run):
    config = RunArchive(run).config()
    assert config.lines[0] == "# comment"
    fields = {field.key: field for field in config.fields}
    assert next(iter(fields)) == "optimizer.lr"
    told = {key: (f.origin, f.is_changed, f.line) for key, f in fields.items()}
    assert told["optimizer.weight_decay"] == ("file", False, 6)
    assert told["optimizer.beta1"] == ("default", False, None)
    assert told["optimizer.min_lr"] == ("default", False, None)  # computed from lr
    assert told["training.max_steps"] == ("file", True, 3)
    assert told["training.seed"] == ("elsewhere", True, None)
    assert fields["training.seed"].default == "0"
    assert told["training.checkpoint.keep"] == ("default", False, None)
    assert fields["elsewhere.unknown"].value == "[1, 2]"  # of another version
    assert not fields["elsewhere.unknown"].is_changed


def test_a_setting_of_a_recipe_has_its_default_like_every_field(run, monkeypatch):
    give_settings(monkeypatch)
    settings = {"smoothing": 0.1, "kind": "unigram", "decay": {"steps": 4096}}
    run.config_resolved.write_text(json.dumps({**RESOLVED, "recipe": settings}))
    fields = {field.key: field for field in RunArchive(run).config().fields}
    told = {key: (f.default, f.origin, f.is_changed) for key, f in fields.items()}
    assert told["recipe.smoothing"] == ("0.1", "default", False)
    assert told["recipe.kind"] == ('"uniform"', "elsewhere", True)
    assert told["recipe.decay.steps"] == ("32768", "elsewhere", True)


def test_a_run_without_files_has_the_params_that_the_store_remembers(run):
    index(run)
    shutil.rmtree(run.path)
    config = RunArchive(run).config()
    assert [(f.key, f.value) for f in config.fields] == [("optimizer.lr", "0.001")]
    assert config.fields[0].origin == "recorded"  # its default is not known
    assert config.lines == ()


def test_a_config_that_is_not_ours_is_shown_as_text(run):
    run.config_yaml.write_bytes(b"a: &x [*x, \x1b[2J]\n\xff\n" * 3)
    run.config_resolved.write_text("[]")
    config = ConfigSheet(run).look()
    assert len(config.lines) == 6
    assert all(line.isprintable() for line in config.lines)
    assert "config.resolved.json" in config.problem
    assert config.fields == ()
