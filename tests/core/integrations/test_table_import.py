"""Tables as programs write them: every value at its step under the name that its row means."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.integrations.importers.find import find
from albor_core.integrations.importers.foreign import Losses
from albor_core.run.errors import DataError
from albor_core.run.files import line_appender
from albor_core.run.rundir import RunDir
from albor_core.run.values import metrics
from albor_core.store.query.reader import Reader


def series(path, losses=None):
    """run -> metric -> {step: value}, as the reader hands them over."""
    found = {}
    for run in find(Path(path)).runs():
        here = found.setdefault(run.name, {})
        for point in run.items(losses if losses is not None else Losses()):
            for key, value in point.values.items():
                here.setdefault(key, []).append((point.step, value))
    return found


def written(path, text):
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


@pytest.mark.parametrize(
    ("column", "train", "val"),
    [("split", "train", "val"), ("mode", "train", "eval"), ("stage", "fit", "validate"),
     ("phase", "Training", "Validation"), ("subset", "train", "dev")],
)  # fmt: skip
def test_a_word_in_a_row_tells_training_from_validation(tmp_path, column, train, val):
    said = [(10, train, 2.0), (10, val, 2.6), (20, train, 1.5), (20, val, 2.5)]
    body = "".join(json.dumps({"step": s, column: w, "loss": v}) + "\n" for s, w, v in said)
    (found,) = series(written(tmp_path / "a.jsonl", body)).values()
    assert found == {"train/loss": [(10, 2.0), (20, 1.5)], "val/loss": [(10, 2.6), (20, 2.5)]}


def test_a_value_that_another_replaces_is_counted_and_named(tmp_path):
    path = written(tmp_path / "a.csv", "step,loss\n10,2.0\n10,3.0\n")
    done = CliRunner().invoke(cli, ["runs", "import", "--json", str(path)])
    (run,) = json.loads(done.stdout)["runs"]
    assert run["unmapped"] == {"replaced": 1}
    with Reader(RunDir(Path(run["path"])).store) as reader:
        assert [point[:2] for point in reader.points(run["run"], "train/loss")] == [(10, 3.0)]


def test_the_state_of_the_trainer_is_a_history_of_its_output_folder(tmp_path):
    folder = tmp_path / "out" / "checkpoint-20"
    folder.mkdir(parents=True)
    history = [
        {"loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-4, "epoch": 0.5, "step": 10},
        {"eval_loss": 1.8, "epoch": 0.5, "step": 10},
        {"loss": float("nan"), "epoch": 1.0, "step": 20},
        {"train_loss": 1.7, "train_runtime": 3.0, "epoch": 1.0, "step": 20},
    ]
    state = {"best_metric": None, "global_step": 20, "log_history": history}
    found = series(written(folder / "trainer_state.json", state))["out"]
    assert str(found["loss"]) == "[(10, 2.0), (20, nan)]"
    assert found["eval_loss"] == [(10, 1.8)]
    assert found["summary/train_loss"] == [(20, 1.7)]
    assert "train_loss" not in found


@pytest.mark.parametrize(
    "said",
    [
        [{"loss": 2.0}, {"loss": 1.0}],
        {"loss": [2.0, 1.0]},
        {"history": {"loss": ["2.0", "1.0"]}},
        {"logs": [{"loss": 2.0}, {"loss": 1.0}]},
        '{"loss": 2.0}\n{"loss": 1.0}\n',
    ],
)
def test_a_json_document_is_read_by_its_shape(tmp_path, said):
    (found,) = series(written(tmp_path / "a.json", said)).values()
    assert found == {"loss": [(None, 2.0), (None, 1.0)]}


@pytest.mark.parametrize(
    ("said", "what"),
    [({"hidden_size": 64, "vocab": {}}, "one JSON object (hidden_size, vocab)"),
     ([1, 2, 3], "a JSON list without records"), ("3", "a single JSON value")],
)  # fmt: skip
def test_a_json_document_that_is_no_history_is_refused_by_what_it_is(tmp_path, said, what):
    with pytest.raises(DataError, match="so no history") as refused:
        list(
            find(written(tmp_path / "a.json", said)).importer.read([tmp_path / "a.json"], tmp_path)
        )
    assert what in refused.value.message


def test_numbers_as_texts_are_numbers_in_json_as_in_csv(tmp_path):
    body = "".join(
        json.dumps({"loss": f"{9 - i / 10:.3f}", "lr": "0.0001", "num_updates": str(i * 100)})
        + "\n"
        for i in (1, 2)
    )
    (found,) = series(written(tmp_path / "a.jsonl", body)).values()
    assert found == {"loss": [(100, 8.9), (200, 8.8)], "lr": [(100, 1e-4), (200, 1e-4)]}


def test_a_heading_in_mid_file_is_a_heading_also_with_new_columns(tmp_path):
    text = (
        "epoch,step,loss\n0,10,2.0\nepoch,step,loss\n1,20,1.5\nepoch,step,loss,val_loss\n2,30,1,3\n"
    )
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert found["loss"] == [(10, 2.0), (20, 1.5), (30, 1)]
    assert found["val_loss"] == [(30, 3)]
    assert (losses.damaged, losses.unmapped) == (0, {})


def test_a_decimal_comma_between_semicolons_is_a_number(tmp_path):
    (found,) = series(written(tmp_path / "a.csv", "step;loss\n10;2,5\n20;2,25\n")).values()
    assert found == {"loss": [(10, 2.5), (20, 2.25)]}


def test_a_chart_of_wandb_is_its_runs_without_their_bounds(tmp_path):
    text = (
        '"Step","a-1 - train/loss","a-1 - train/loss__MIN","a-1 - train/loss__MAX",'
        '"b - 2 - train/loss","b - 2 - _step"\n"0","3","3","3","4","0"\n"10","2","1","2","",""\n'
    )
    losses = Losses()
    found = series(written(tmp_path / "a.csv", text), losses)
    assert found == {
        "a-1": {"train/loss": [(0, 3), (10, 2)]},
        "b - 2": {"train/loss": [(0, 4)]},
    }
    assert losses.unmapped["bound of a chart"] > 0


def test_the_step_of_the_program_wins_over_the_calls_that_wandb_counts(tmp_path):
    text = "_step,train/global_step,train/loss\n0,10,2.0\n1,20,1.5\n"
    (found,) = series(written(tmp_path / "a.csv", text)).values()
    assert found["train/loss"] == [(10, 2.0), (20, 1.5)]


def test_an_import_of_too_many_names_keeps_the_house_s_own(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_NAMES", 5)
    row = {"step": 1, **{f"k/{i}": i for i in range(7)}, "val_loss": 0.5}
    path = written(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    done = CliRunner().invoke(cli, ["runs", "import", "--json", str(path)])
    (run,) = json.loads(done.stdout)["runs"]
    assert sum(run["unmapped"].values()) == 2 and run["keys"] == 6
    with Reader(RunDir(Path(run["path"])).store) as reader:
        assert "val/loss" in reader.summary(run["run"])


def test_an_import_waits_for_a_slow_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(line_appender, "SLOW_S", 0.0)  # each line is handed to a thread
    body = "".join(json.dumps({"step": i, "loss": 1 / (i + 1)}) + "\n" for i in range(200))
    path = written(tmp_path / "a.jsonl", body)
    done = CliRunner().invoke(cli, ["runs", "import", "--json", str(path)])
    (run,) = json.loads(done.stdout)["runs"]
    assert done.exit_code == 0 and run["points"] == 200
