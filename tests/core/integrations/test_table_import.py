"""Tables as programs write them: every value at its step under the name that its row means."""

import json
import math
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


def log_of(tmp_path, rows, name="a.jsonl"):
    losses = Losses()
    body = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    (found,) = series(written(tmp_path / name, body), losses).values()
    return found, losses


def test_a_log_of_mmcv_counts_on_where_its_iterations_begin_again(tmp_path):
    rows = [{"env_info": "linux", "exp_name": "x"}]
    for epoch in (1, 2, 3):
        rows += [
            {"mode": "train", "epoch": epoch, "iter": i, "loss": epoch + i / 1000}
            for i in (50, 100)
        ]
        rows.append({"mode": "val", "epoch": epoch, "iter": 7, "bbox_mAP": epoch / 10})
    found, losses = log_of(tmp_path, rows)
    assert found["train/loss"] == [
        (50, 1.05), (100, 1.1), (150, 2.05), (200, 2.1), (250, 3.05), (300, 3.1),
    ]  # fmt: skip
    assert found["val/bbox_mAP"] == [(100, 0.1), (200, 0.2), (300, 0.3)]
    assert losses.examples["renumbered"].step == 100  # the first validation
    assert losses.unmapped["renumbered"] == 3 * 2 + 2 * 2 * 2  # epoch and figure of each row


def test_a_log_of_mmengine_has_its_validations_at_the_end_of_their_epochs(tmp_path):
    rows = []
    for epoch in (1, 2):
        for i in (50, 100):
            at = (epoch - 1) * 100 + i
            rows.append({"loss": 1 / at, "epoch": epoch, "iter": at, "step": at, "time": 0.3})
        rows.append({"coco/bbox_mAP": epoch / 10, "data_time": 0.1, "time": 0.2, "step": epoch})
    rows.append({"coco/test_mAP": 0.25, "data_time": 0.1, "time": 0.2})
    found, losses = log_of(tmp_path, rows)
    assert [step for step, _ in found["loss"]] == [50, 100, 150, 200]
    assert found["coco/bbox_mAP"] == [(100, 0.1), (200, 0.2)]
    assert found["summary/coco/test_mAP"] == [(200, 0.25)] and "coco/test_mAP" not in found
    assert losses.unmapped["renumbered"] == 6 and losses.examples["renumbered"].step == 100


def test_validations_of_mmengine_by_iterations_stay_where_they_are(tmp_path):
    rows = []
    for at in (50, 100, 150, 200):
        rows.append({"loss": 1 / at, "epoch": 1, "iter": at, "step": at})
        rows.append({"mIoU": at / 1000, "step": at})
    found, losses = log_of(tmp_path, rows)
    assert [step for step, _ in found["mIoU"]] == [50, 100, 150, 200]
    assert losses.unmapped == {}


@pytest.mark.parametrize("odd", [math.nan, math.inf, 10**399])
def test_a_step_or_epoch_that_is_no_finite_number_stays_what_it_is(tmp_path, odd):
    rows = [{"loss": 1 / e, "epoch": e, "iter": 50 * e, "step": 50 * e} for e in (1, 2)]
    rows += [{"mAP": 0.1, "step": odd}, {"mAP": 0.2, "step": 1}]
    found, _ = log_of(tmp_path, rows)
    assert str(found["mAP"][0]) == f"({odd}, 0.1)" and found["mAP"][1] == (50, 0.2)
    rows = [{"loss": 2.0, "epoch": e, "iter": i} for e in (1, 2, odd) for i in (1.0, 2.5)]
    found, _ = log_of(tmp_path, rows)
    assert [step for step, _ in found["loss"]] == [1, 2.5, 3.5, 5.0, 1, 2.5]


def test_what_fairseq_says_of_a_whole_epoch_is_no_point_of_the_curve(tmp_path):
    rows = []
    for epoch in (1, 2):
        for i in (100, 200):
            at = (epoch - 1) * 200 + i
            rows.append({"epoch": epoch, "loss": str(9 - at / 100), "num_updates": str(at)})
        rows.append({"epoch": epoch, "valid_loss": "5.5", "valid_num_updates": str(200 * epoch)})
        rows.append({"epoch": epoch, "train_loss": "7.7", "train_num_updates": str(200 * epoch)})
    lines = [f"2026-01-02 03:04:05 | INFO | train | {json.dumps(row)}" for row in rows]
    lines.insert(1, "2026-01-02 03:04:05 | INFO | fairseq.trainer | begin training epoch 1")
    for said in (rows, lines):
        found, losses = log_of(tmp_path, said, "train.log")
        assert found["loss"] == [(100, 8.0), (200, 7.0), (300, 6.0), (400, 5.0)]
        assert found["valid_loss"] == [(200, 5.5), (400, 5.5)]
        assert found["summary/train_loss"] == [(200, 7.7), (400, 7.7)]
        assert "train_loss" not in found and losses.damaged == 0
    assert losses.unmapped == {"line of text": 1}


def test_epochs_of_fairseq_are_its_curve_where_there_is_no_other(tmp_path):
    rows = [{"epoch": e, "train_loss": 8 - e, "train_num_updates": 200 * e} for e in (1, 2)]
    found, _ = log_of(tmp_path, rows)
    assert found["train_loss"] == [(200, 7), (400, 6)]


@pytest.mark.parametrize(
    "last",
    [{"final_loss": 0.5, "seconds": 7.5}, {"type": "summary", "step": 20, "final_loss": 0.5},
     {"split": "summary", "step": 20, "final_loss": 0.5}],
)  # fmt: skip
def test_a_last_record_of_the_whole_run_is_its_summary(tmp_path, last):
    found, losses = log_of(tmp_path, [{"step": 10, "loss": 2.0}, {"step": 20, "loss": 1.0}, last])
    assert found["loss"] == [(10, 2.0), (20, 1.0)]
    assert found["summary/final_loss"] == [(20, 0.5)] and "no step" not in losses.unmapped


@pytest.mark.parametrize("first", [0, 1])
def test_epochs_alone_are_the_steps_of_a_table(tmp_path, first):
    """Keras' CSVLogger, ultralytics' results.csv."""
    text = "                  epoch,   train/box_loss,  metrics/mAP50(B)\n" + "".join(
        f"{first + i:>10},{2.5 - i:>17},{i / 10:>18}\n" for i in range(3)
    )
    losses = Losses()
    path = written(tmp_path / "results.csv", text)
    (found,) = series(path, losses).values()
    assert found["train/box_loss"] == [(first, 2.5), (first + 1, 1.5), (first + 2, 0.5)]
    assert found["metrics/mAP50(B)"][2] == (first + 2, 0.2)
    assert losses.unmapped == {} and {p.axis for p in points(path)} == {"epoch"}


def test_numbers_of_an_epoch_may_lie_in_each_other_or_stand_a_row_for_each(tmp_path):
    nested = [{"epoch": e, "m": {"loss": 2.0 - e, "word": "x"}} for e in (0, 1)]
    (run,) = find(written(tmp_path / "n.json", nested)).runs()
    assert [(p.step, p.values["m"]) for p in run.items(Losses())] == [
        (0, {"loss": 2.0}), (1, {"loss": 1.0}),
    ]  # fmt: skip
    apart = [{"epoch": e, "metric": key, "value": e} for e in (3, 4) for key in ("loss", "acc")]
    found, losses = log_of(tmp_path, apart)
    assert found == {"loss": [(3, 3), (4, 4)], "acc": [(3, 3), (4, 4)]} and losses.unmapped == {}


def points(path):
    return [point for run in find(path).runs() for point in run.items(Losses())]


def test_epochs_that_begin_again_go_on_behind_the_others(tmp_path):
    text = "epoch,loss\n0,3\n1,2\n0,1.5\n1,1\n"
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert found["loss"] == [(0, 3), (1, 2), (2, 1.5), (3, 1)]
    assert losses.unmapped == {"renumbered": 4} and losses.examples["renumbered"].step == 2


def test_rows_of_one_epoch_without_a_step_are_numbered_by_order(tmp_path):
    rows = [{"epoch": 0, "loss": 3.0}, {"epoch": 0, "loss": 2.0}, {"epoch": 1, "loss": 1.0}]
    found, _ = log_of(tmp_path, rows)
    assert found["loss"] == [(None, 3.0), (None, 2.0), (None, 1.0)]


def test_batches_that_begin_again_in_each_epoch_count_on(tmp_path):
    rows = [{"epoch": e, "batch": b, "loss": e + b / 100} for e in (0, 1) for b in (0, 10, 20)]
    found, losses = log_of(tmp_path, rows)
    assert [step for step, _ in found["loss"]] == [0, 10, 20, 30, 40, 50]
    assert losses.examples["renumbered"].step == 30


def test_a_column_of_the_size_of_a_batch_is_no_step(tmp_path):
    rows = [{"epoch": e, "batch": 32, "loss": 2.0 - e} for e in (0, 1)]
    found, losses = log_of(tmp_path, rows)
    assert found["loss"] == [(0, 2.0), (1, 1.0)] and losses.unmapped == {}


def test_a_number_of_people_in_a_row_for_each_value_is_named_by_its_metric(tmp_path):
    path = written(tmp_path / "a.csv", "step,metric,value\n1,acc,85%\n")
    losses = Losses()
    assert list(series(path, losses).values()) == [{"acc": [(1, 0.85)]}]
    assert str(losses.examples["percent as a share"]) == "acc at step 1: 0.85"


def test_steps_that_go_on_over_epochs_stay_what_they_are(tmp_path):
    """Lightning's CSVLogger: rows of training and of validation apart, at the same step."""
    text = (
        "epoch,step,train_loss_step,train_loss_epoch,val_loss\n"
        "0,49,2.0,,\n0,99,1.5,,\n0,99,,,1.7\n0,99,,1.75,\n1,149,1.2,,\n1,199,,,1.3\n"
    )
    losses = Losses()
    (found,) = series(written(tmp_path / "metrics.csv", text), losses).values()
    assert found["train_loss_step"] == [(49, 2.0), (99, 1.5), (149, 1.2)]
    assert found["val_loss"] == [(99, 1.7), (199, 1.3)]
    assert found["train_loss_epoch"] == [(99, 1.75)] and losses.unmapped == {}


def test_a_log_of_llama_factory_is_over_its_current_steps(tmp_path):
    rows = [
        {"current_steps": 10, "total_steps": 20, "loss": 2.0, "lr": 1e-4, "epoch": 0.5,
         "percentage": 50.0, "elapsed_time": "0:00:10", "remaining_time": "0:00:10"},
        {"current_steps": 20, "total_steps": 20, "eval_loss": 1.8, "epoch": 1.0},
        {"current_steps": 20, "total_steps": 20, "epoch": 1.0, "percentage": 100.0},
    ]  # fmt: skip
    found, _ = log_of(tmp_path, rows, "trainer_log.jsonl")
    assert found["loss"] == [(10, 2.0)] and found["eval_loss"] == [(20, 1.8)]


def test_what_a_trainer_prints_is_read_as_python_writes_it(tmp_path):
    said = [
        "{'loss': 2.5, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.01}",
        "{'loss': '1.5', 'grad_norm': inf, 'learning_rate': 4e-05, 'epoch': 0.02}",
        "{'train_runtime': 3.2, 'train_samples_per_second': 5.1, 'train_loss': 2.0, 'epoch': 0.02}",
    ]
    found, losses = log_of(tmp_path, said)
    assert found["loss"] == [(None, 2.5), (None, 1.5)] and losses.damaged == 0
    assert str(found["grad_norm"]) == "[(None, nan), (None, inf)]"
    assert "summary/train_loss" in found and "train_loss" not in found


def test_the_results_of_a_fine_tune_of_openai_are_read_with_their_gaps(tmp_path):
    text = (
        "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy\n"
        "1,2.5,0.4,,\n2,2.1,0.5,2.3,0.45\n"
    )
    (found,) = series(written(tmp_path / "results.csv", text)).values()
    assert found["train_loss"] == [(1, 2.5), (2, 2.1)] and found["valid_loss"] == [(2, 2.3)]


def test_metrics_of_comet_are_a_row_for_each_value_with_its_part(tmp_path):
    rows = [
        {"metricName": "loss", "metricValue": "2.5", "step": 10, "epoch": None,
         "runContext": "train", "timestamp": 1767225600000, "offset": 1},
        {"metricName": "loss", "metricValue": "2.6", "step": 10, "runContext": "validate"},
    ]  # fmt: skip
    found, _ = log_of(tmp_path, rows)
    assert found == {"train/loss": [(10, 2.5)], "val/loss": [(10, 2.6)]}


def test_numbers_as_people_write_them_are_read_counted_and_named(tmp_path):
    text = 'step,acc,tokens,rate\n"1,000",85%,1.2k,"1,234"\n"2,000",85.3%,3M,"2,345"\n'
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert found == {
        "acc": [(1000, 0.85), (2000, 0.853)],
        "tokens": [(1000, 1200), (2000, 3_000_000)],
        "rate": [(1000, 1234), (2000, 2345)],
    }
    assert losses.unmapped == {
        "percent as a share": 2,
        "rounded to k, M, B or T": 2,
        "comma of thousands": 4,
    }
    assert str(losses.examples["percent as a share"]) == "acc at step 1000: 0.85"


def test_a_comma_of_which_a_column_does_not_say_what_it_parts_stays_a_text(tmp_path):
    text = 'step,a,b\n1,"1,234",3\n2,"0,25",4\n'
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert found == {"b": [(1, 3), (2, 4)]} and losses.unmapped == {"text": 2}


def test_the_scalars_of_clearml_are_its_series_over_their_iterations(tmp_path):
    said = {
        "loss": {
            "train": {"x": [10, 20], "y": [2.0, 1.5], "name": "train"},
            "val": {"x": [20], "y": [1.8], "name": "val"},
        },
        ":monitor:gpu": {"gpu_0_util": {"x": [10], "y": [99.0], "name": "gpu_0_util"}},
    }
    (found,) = series(written(tmp_path / "scalars.json", said)).values()
    assert found == {
        "loss/train": [(10, 2.0), (20, 1.5)],
        "loss/val": [(20, 1.8)],
        ":monitor:gpu/gpu_0_util": [(10, 99.0)],
    }


def test_times_that_swanlab_puts_beside_each_metric_are_the_times_of_its_values(tmp_path):
    text = "step,loss,loss_timestamp\n1,2.5,1767225600000\n2,2.0,1767225601000\n"
    path = written(tmp_path / "a.csv", text)
    (found,) = series(path).values()
    assert found == {"loss": [(1, 2.5), (2, 2.0)]}
    assert [point.wall for point in points(path)] == [1767225600.0, 1767225601.0]


@pytest.mark.parametrize(
    ("text", "metric"),
    [
        ("step,train_loss\n64,2.5\nstep,train_loss\n128,2.0\n", "train_loss"),  # DeepSpeed
        ("trainer/global_step,loss\n64,2.5\n128,2.0\n", "loss"),
        ("time/batch,loss/train/total\n64,2.5\n128,2.0\n", "loss/train/total"),  # Composer
        ("Iterations,loss\n64,2.5\n128,2.0\n", "loss"),  # ClearML
    ],
)
def test_the_step_stands_in_the_column_that_a_peer_has_for_it(tmp_path, text, metric):
    (found,) = series(written(tmp_path / "a.csv", text)).values()
    assert found[metric] == [(64, 2.5), (128, 2.0)]


PRINTED = ["{'loss': 1.0, 'epoch': 0.1}", "{'loss': 0.5, 'epoch': 0.2}"]
BAR = "  0%|          | 0/100 [00:00<?, ?it/s]\r  1%|1         | 1/100 [00:00<00:09, 10.1it/s]"


@pytest.mark.parametrize(
    "text",
    [
        "hello\n{}\n{}\n",
        "hello, world\n\n{}\nSaving model checkpoint to out, in parts\n{}\ndone\n",
        BAR + "\r" + " " * 40 + "\r{}\n\r" + BAR + "\n{}\n",
        BAR + "{}\n" + BAR + "{}" + BAR + "\n",
        "INFO:trainer:{}\n[rank0]: {}\n",
        "x" * 5000 + "\nstep,loss\n{}\n{}\n",
        "{}\n" + "a warning;of; several;words\n" * 9 + "{}\n",
    ],
)
@pytest.mark.parametrize("name", ["p.log", "p.txt", "slurm-1.out", "log"])
def test_a_log_is_read_whatever_lines_and_bars_stand_around_its_records(tmp_path, text, name):
    for records in (PRINTED, [line.replace("'", '"') for line in PRINTED]):
        found, losses = log_of(tmp_path, [text.format(*records)], name)
        assert found["loss"] == [(None, 1.0), (None, 0.5)]
        assert found["epoch"] == [(None, 0.1), (None, 0.2)]
        assert losses.damaged == 0 and set(losses.unmapped) <= {"line of text"}


def test_a_configuration_among_the_words_of_a_log_is_no_record(tmp_path):
    said = ["Args: {'lr': 0.1, 'epochs': 3, 'loss': 'mse'}", *PRINTED]
    found, losses = log_of(tmp_path, said, "p.log")
    assert set(found) == {"loss", "epoch"} and len(found["loss"]) == 2
    assert losses.damaged == 0 and losses.unmapped == {"line of text": 1}
    assert str(losses.examples["line of text"]).startswith('line 1: "Args:')


def refusal(path):
    """What is said of a file, once nothing was made of it."""
    done = CliRunner().invoke(cli, ["runs", "import", str(path)])
    assert isinstance(done.exception, DataError)
    return done.exception.message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "step,a,b,c\n1,2,3,4,5\n2,3,4,5,6\n",
            "none of its 2 rows can be read (first line 2: '5 cells",
        ),
        ("step,loss\n1,n/a\n2,n/a\n", "no number in its 2 rows but for steps and times"),
        ("10,2.0\n20,1.5\n", "its first line has numbers alone"),
        ("step,loss\n", "no row below its heading"),
    ],
)
def test_a_table_without_a_value_is_refused_by_what_is_true_of_it(tmp_path, text, why):
    path = written(tmp_path / "a.csv", text)
    assert why in refusal(path)


@pytest.mark.parametrize(
    "text",
    [
        "step|loss\n10|2.0\n20|1.5\n",
        "| step | loss |\n|------|:----:|\n| 10 | 2.0 |\n| 20 | 1.5 |\n",
        "step   loss\n  10   2.0\n  20   1.5\n",
        "step,loss\n10,2.0,\n20,1.5,\n",
    ],
)
def test_columns_may_stand_between_bars_or_spaces_or_before_a_last_comma(tmp_path, text):
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert found == {"loss": [(10, 2.0), (20, 1.5)]}
    assert (losses.damaged, losses.unmapped) == (0, {})


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        ("step,global_step,loss", {"global_step", "loss"}),
        ("step,global_step,iter,epoch,loss", {"global_step", "iter", "epoch", "loss"}),
        ("iteration,num_updates,loss", {"num_updates", "loss"}),
        ("timestamp,time,loss", {"time", "loss"}),
    ],
)
def test_columns_beside_the_one_of_the_step_are_metrics(tmp_path, head, kept):
    count = head.count(",")
    start = 1767225600 if head.startswith("timestamp") else 10
    rows = [",".join([str(start + i), *(str(i + j / 10) for j in range(count))]) for i in (0, 1)]
    losses = Losses()
    text = "\n".join([head, *rows, ""])
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert set(found) == kept and losses.unmapped == {}


def test_numbers_that_are_no_metric_beside_others_are_counted_and_named(tmp_path):
    text = "step,_step,loss\n10,0,2.0\n20,1,1.5\n"
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", text), losses).values()
    assert set(found) == {"loss"} and losses.unmapped == {"beside another column": 2}
    assert str(losses.examples["beside another column"]) == "_step at step 10: 0"
    _, losses = log_of(tmp_path, [{"metric": "loss", "value": 2.0, "step": 1, "offset": 7}])
    assert str(losses.examples["beside another column"]) == "offset at step 1: 7"


@pytest.mark.parametrize(
    ("row", "kind", "named"),
    [
        ({"acc": "0,25 or so"}, "text", "acc at step 3: '0,25 or so'"),
        ({"acc": [1, 2]}, "list", "acc at step 3: '[1, 2]'"),
        ({"acc": {"_type": "image-file"}}, "image-file", "acc at step 3: \"{'_type'"),
    ],
)
def test_what_is_dropped_is_named_with_its_step_and_what_it_was(tmp_path, row, kind, named):
    _, losses = log_of(tmp_path, [{"step": 3, "loss": 1.0, **row}])
    assert losses.unmapped == {kind: 1} and str(losses.examples[kind]).startswith(named)


def test_the_first_record_that_is_damaged_is_named(tmp_path):
    _, losses = log_of(tmp_path, [{"step": 3, "loss": 1.0}, '{"step": 4, "lo', '{"st'])
    assert losses.damaged == 2
    assert str(losses.examples["damaged record"]) == 'line 2: \'{"step": 4, "lo\''
    losses = Losses()
    series(written(tmp_path / "a.csv", "step,loss\n1,2\n2,3,4\n"), losses)
    assert str(losses.examples["damaged record"]) == "line 3: '3 cells under 2 headings: 2,3,4'"


@pytest.mark.parametrize("said", ["#NUM!", "-1.#IND", "nan(ind)", "-nan(ind)", "1.#QNAN", "-nan"])
def test_nan_is_read_as_spreadsheets_and_c_spell_it(tmp_path, said):
    losses = Losses()
    (found,) = series(written(tmp_path / "a.csv", f"step,loss\n1,2\n2,{said}\n"), losses).values()
    assert str(found["loss"]) == "[(1, 2), (2, nan)]" and losses.unmapped == {}
    found, _ = log_of(tmp_path, [{"step": 1, "a": "-1.#INF"}, {"step": 2, "a": "1.#INF"}])
    assert str(found["a"]) == "[(1, -inf), (2, inf)]"


def test_a_heading_of_one_column_may_have_spaces_in_it(tmp_path):
    (found,) = series(written(tmp_path / "a.csv", "train loss\n2.0\n1.5\n")).values()
    assert found == {"train loss": [(None, 2.0), (None, 1.5)]}


def test_points_of_thousands_before_a_decimal_comma_are_read(tmp_path):
    (found,) = series(written(tmp_path / "a.csv", "step;loss\n1;1.234,5\n2;0,25\n")).values()
    assert found == {"loss": [(1, 1234.5), (2, 0.25)]}


@pytest.mark.parametrize(
    "text",
    [
        "Name,State,loss,val_acc\nsunny-1,finished,0.5,0.8\nrainy-2,crashed,NaN,0.2\n",
        "Name,State,Created,_step,loss\nsunny-1,finished,2026-01-01,100,0.5\n",
        "Start Time,Duration,Run ID,Name,loss\n2026-01-01,3s,ab,x,0.5\n2026-01-02,3s,ac,y,0.4\n",
        "trial_id,loss\na1,0.5\na2,0.25\n",
    ],
)
def test_a_list_of_runs_is_no_curve(tmp_path, text):
    message = refusal(written(tmp_path / "a.csv", text))
    assert "a list of runs with a row for each" in message and "export the history" in message


def test_a_history_with_names_in_it_is_one(tmp_path):
    (found,) = series(written(tmp_path / "a.csv", "step,name,loss\n1,a,2\n2,b,1\n")).values()
    assert found == {"loss": [(1, 2), (2, 1)]}


def test_a_run_of_a_chart_is_told_of_its_own_bounds_alone(tmp_path):
    head = ",".join(["Step", *(f"{r} - loss{end}" for r in "ab" for end in ("", "__MIN", "__MAX"))])
    path = written(tmp_path / "a.csv", f"{head}\n0,3,1,3,4,4,4\n10,2,2,2,5,5,6\n")
    told = {}
    for run in find(path).runs():
        losses = Losses()
        list(run.items(losses))
        told[run.name] = (dict(losses.unmapped), str(losses.examples["bound of a chart"]))
    assert told == {
        "a": ({"bound of a chart": 1}, "a - loss__MIN at step 0: 1"),
        "b": ({"bound of a chart": 1}, "b - loss__MAX at step 10: 6"),
    }


def test_points_are_those_that_are_kept_and_a_heading_says_what_stands_below_it(tmp_path):
    steps = [*range(40), *range(11)]
    text = "step,loss\n" + "".join(f"{s},{i}\n" for i, s in enumerate(steps))
    path = written(tmp_path / "a.csv", text)
    done = CliRunner().invoke(cli, ["runs", "import", "--json", str(path)])
    (run,) = json.loads(done.stdout)["runs"]
    assert run["points"] == 40 and run["unmapped"] == {"replaced": 11}
    done = CliRunner().invoke(cli, ["runs", "import", str(path)])
    assert "left out or changed" in done.output


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_name_that_stands_twice_in_a_record_is_counted(tmp_path, name):
    said = '{"step": 1, "loss": 0.5, "loss": 0.7}'
    losses = Losses()
    text = f"[{said}]" if name == "a.json" else f"{said}\n"
    (found,) = series(written(tmp_path / name, text), losses).values()
    assert found == {"loss": [(1, 0.7)]} and losses.unmapped == {"said twice in a record": 1}
    assert str(losses.examples["said twice in a record"]) == "loss at step 1: 0.5"


def test_an_integer_beyond_all_floats_is_named_as_the_infinity_that_it_is(tmp_path):
    beyond = "9" * 399
    rows = [f'{{"step": 1, "loss": {beyond}, "loss": 2}}', f'{{"step": 2, "_step": {beyond}}}']
    _, losses = log_of(tmp_path, [*rows, '{"step": 3, "_step": 0, "loss": 1}'])
    assert losses.examples["said twice in a record"].value == math.inf
    assert losses.examples["beside another column"].value == math.inf
    points(written(tmp_path / "t.csv", f"step,time,loss\n1,{beyond},2\n"))
    chart = f"Step,a - loss,a - loss__MIN,a - loss__MAX\n0,3,{beyond},3\n"
    losses = Losses()
    series(written(tmp_path / "c.csv", chart), losses)
    assert losses.examples["bound of a chart"].value == math.inf


def test_an_example_names_its_metric_as_a_store_does_however_long_it_is(tmp_path):
    name = "loss\x1b[2J" + "x" * 100_000
    csv = ["Step", f"a - {name}", f"a - {name}__MIN", f"a - {name}__MAX"]
    losses = Losses()
    series(written(tmp_path / "c.csv", ",".join(csv) + "\n1,1,0,1\n"), losses)
    found = str(losses.examples["bound of a chart"])
    assert found.isprintable() and len(found) < 300
    _, losses = log_of(tmp_path, [{"step": 1, "loss": 1, name: "a word"}])
    assert len(str(losses.examples["text"])) < 300
