"""`albor eval compare`, `correlate`, `sheet` and `read-sheet`, as typed."""

from __future__ import annotations

import csv
import json
import sys

import jsonschema
import pytest
from click.testing import CliRunner

from albor_core import track
from albor_core.cli import main
from albor_core.cli.main import cli
from albor_core.documents.json_schema import schema_of
from albor_core.eval.task import ItemWriter
from albor_core.run.rundir import RunDir
from albor_core.track.scores import record_scores

ITEMS = 30


def code_item(at, passed):
    return {
        "prompt": f"def f{at}(x):\n", "samples": 1, "passed": int(passed),
        "outcomes": ["passed" if passed else "failed"], "details": [""],
        "completions": [f"    return {'x' if passed else at}"],
    }  # fmt: skip


def kept(folder, passes, *, kind="code", make=code_item, created=1.0, dtype="fp32"):
    """An evaluation with one task `own`, as it lies on the disk."""
    folder.mkdir(parents=True)
    with ItemWriter(folder / "own.jsonl") as items:
        for at, one in passes.items():
            items.write(f"t/{at}", make(at, one))
    how = {"batch_size": 8, "dtype": dtype, "device": "cpu", "backend": "pytorch"}
    model = {"path": "m", "name": folder.name, "weights": "0" * 64, "parameters": 1, "run": None,
             "step": None}  # fmt: skip
    task = {"task": "own", "kind": kind, "scores": [], "items": "own.jsonl", "seconds": 1.0,
            "facts": how, "section": {"kind": kind, "name": "own", "data": "own.jsonl",
                                      "limit": None}}  # fmt: skip
    document = {"schema": "albor.eval/1", "id": "0" * 16, "created": created, "seconds": 1.0,
                "model": model, "settings": how, "tasks": [task]}  # fmt: skip
    jsonschema.validate(document, schema_of("albor.eval"))
    (folder / "result.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def typed(monkeypatch, capsys):
    """What `albor eval WORDS` exits with and prints, through the program's own entry."""

    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["albor", "eval", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main.run()
        out, err = capsys.readouterr()
        assert end.value.code == code, (out, err)
        if "--json" not in words:
            return out, err
        document = json.loads(out)
        jsonschema.validate(document, schema_of(document["schema"].removesuffix("/1")))
        return document

    return run


def test_a_model_that_solves_more_is_better_and_one_that_may_be_lucky_is_not(tmp_path, typed):
    a = kept(tmp_path / "a", {at: at < 10 for at in range(ITEMS)})
    b = kept(tmp_path / "b", {at: at < 20 for at in range(ITEMS)})
    c = kept(tmp_path / "c", {at: at < 12 for at in range(ITEMS)}, dtype="bf16")
    (found,) = typed("compare", a, b, "--json")["figures"]
    assert (found["figure"], found["verdict"], found["p"]) == ("own/pass@1", "better", 2 / 2**10)
    assert (found["a_higher"], found["b_higher"], found["n"]) == (0, 10, ITEMS)
    (back,) = typed("compare", b / "result.json", a, "--json")["figures"]
    assert back["verdict"] == "worse" and back["difference"] == -found["difference"]
    document = typed("compare", a, c, "--json")
    assert document["figures"][0]["verdict"] == "indistinguishable"
    assert document["other"] == [
        {"where": "settings", "field": "dtype", "a": "fp32", "b": "bf16"}
    ]  # fmt: skip
    out, err = typed("compare", a, c)
    assert "indistinguishable" in out and "dtype is fp32 in A and bf16 in B" in err


def test_bits_per_byte_are_compared_by_bytes_and_lower_is_better(tmp_path, typed):
    def text(at, bits):
        return {"group": "", "logprob": -bits, "tokens": 10, "bytes": 20 + at, "bits_per_byte": 1.0}

    a = kept(tmp_path / "a", {at: 40.0 + at for at in range(12)}, kind="text", make=text)
    b = kept(tmp_path / "b", {at: 39.0 + at for at in range(12)}, kind="text", make=text)
    (found,) = typed("compare", a, b, "--json")["figures"]
    assert (found["figure"], found["method"]) == ("own/bpb", "sign-flip")
    assert found["verdict"] == "better" and found["difference"] < 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("compare", "a", "other"), 7, "item 't/0' is not the same in both: 'prompt' differs"),
        (("compare", "a", "alien"), 7, "no item is in both"),
        (("compare", "a", "b", "--task", "x"), 3, "no task that can be compared is in both"),
        (("compare", "a", "nowhere"), 3, "nowhere"),
        (("compare", "a", "empty"), 3, "holds no result.json"),
        (("compare", "a", "broken"), 7, "own.jsonl:1: is not an item"),
        (("sheet", "a", "a", "-o", "s.csv"), 7, "both wrote the same throughout"),
        (("sheet", "a", "b", "-o", "there.csv"), 2, "there.csv"),
        (("sheet", "a", "b", "-o", "known.csv"), 2, "known.key.json"),
        (("sheet", "a", "b", "-o", "s.csv", "--task", "x"), 3, "no task 'x' in both"),
        (("read-sheet", "s.csv"), 3, "only the key knows"),
        (("correlate", "nowhere"), 3, "nowhere"),
        (("correlate", "empty"), 3, "is not a run"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(
    tmp_path, monkeypatch, typed, words, code, said
):
    monkeypatch.chdir(tmp_path)
    kept(tmp_path / "a", {0: True, 1: False})
    kept(tmp_path / "b", {0: True, 1: True})
    kept(tmp_path / "other", {0: True}, make=lambda at, one: {**code_item(at, one), "prompt": "x"})
    kept(tmp_path / "alien", {7: True})
    (kept(tmp_path / "broken", {0: True}) / "own.jsonl").write_text("{")
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "known.key.json").write_text("mine")
    before = sorted(path.name for path in tmp_path.iterdir())
    error = typed(*words, "--json", code=code)["error"]
    assert said in error["message"] and error["hint"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_a_sheet_is_judged_and_read_back(tmp_path, typed):
    a = kept(tmp_path / "first", {at: at < 5 for at in range(ITEMS)})
    b = kept(tmp_path / "second", {at: at < 25 for at in range(ITEMS)})
    sheet = tmp_path / "sheet.csv"
    written = typed("sheet", a, b, "-o", sheet, "--repeats", "4", "--json")
    assert (written["pairs"], written["rows"], written["alike"]) == (20, 24, 10)
    assert "first" not in sheet.read_text() and "second" not in sheet.read_text()
    with sheet.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    for row in rows:
        row["better"] = "left" if row["left"].endswith("x") else "right"
    with sheet.open("w", newline="") as file:
        csv.DictWriter(file, rows[0]).writerows([dict(zip(rows[0], rows[0], strict=True)), *rows])
    found = typed("read-sheet", sheet, "--json")
    assert (found["a"], found["b"], found["verdict"]) == ("first", "second", "better")
    assert (found["b_wins"], found["same_again"]) == (24, 1.0)
    assert "B is better" in typed("read-sheet", sheet)[0]


@pytest.fixture
def run(tmp_path):
    """A run whose loss falls over six checkpoints, on the first four of which it was scored."""
    with track.start("e", name="r", dir=tmp_path / "runs") as made:
        for step in range(0, 61):
            made.log({"val/loss": 4 - step / 30}, step=step) if step % 5 == 0 else None
        held = RunDir(made.path)
    for step in (10, 20, 33, 40):
        record_scores(held, step, {"eval/own/pass@1": step / 100}, {"eval/own/pass@1": "max"},
                      id=f"{step}")  # fmt: skip
    return held


def test_scores_that_rise_as_the_loss_falls_are_seen_and_that_four_show_nothing(run, typed):
    (found,) = typed("correlate", run.path, "--json")["scores"]
    assert (found["score"], found["n"]) == ("eval/own/pass@1", 4)
    assert found["spearman"] == pytest.approx(-1.0)
    assert found["spearman_p"] == pytest.approx(2 / 24) and found["least_p"] > 0.05
    assert [point["with"] for point in found["points"]] == pytest.approx(
        [4 - step / 30 for step in (10, 20, 30, 40)]  # the last one before each
    )
    out, err = typed("correlate", run.path)
    assert "eval/own/pass@1" in out and "show nothing yet" in err


def test_a_metric_or_scores_that_are_not_there_are_named(run, typed):
    assert (
        "no metric 'val/ppl'"
        in typed("correlate", run.path, "--with", "val/ppl", "--json", code=3)["error"]["message"]
    )
    said = typed("correlate", run.path, "--score", "eval/x", "--json", code=3)["error"]["message"]
    assert "no score of 3 checkpoints or more" in said


def test_the_newest_evaluation_of_a_run_stands_for_it(run, typed, tmp_path):
    for name, count, created in (("old", 2, 1.0), ("new", 20, 2.0)):
        kept(run.evaluations / name, {at: at < count for at in range(ITEMS)}, created=created)
    other = kept(tmp_path / "other", dict.fromkeys(range(ITEMS), False))
    (found,) = typed("compare", other, run.path, "--json")["figures"]
    assert found["b"] == 20 / ITEMS


def test_a_task_of_an_earlier_evaluation_of_the_same_weights_is_compared(run, typed, tmp_path):
    kept(run.evaluations / "step-1-aaaa", dict.fromkeys(range(6), True), created=1.0)
    later = kept(run.evaluations / "step-1-bbbb", {0: True}, created=2.0)
    document = json.loads((later / "result.json").read_text())
    document["tasks"][0]["task"] = "other"
    (later / "result.json").write_text(json.dumps(document))
    b = kept(tmp_path / "b", dict.fromkeys(range(6), False))
    (found,) = typed("compare", run.path, b, "--json")["figures"]
    assert (found["figure"], found["n"], found["a"]) == ("own/pass@1", 6, 1.0)


@pytest.mark.parametrize(("n", "is_told"), [(1, True), (5, True), (6, False)])
def test_so_few_items_that_no_difference_can_show_are_told(n, is_told, tmp_path, typed):
    a = kept(tmp_path / "a", dict.fromkeys(range(n), True))
    b = kept(tmp_path / "b", dict.fromkeys(range(n), False))
    out, err = typed("compare", a, b)
    told = f"{n} item{'s' * (n > 1)} can never show a difference"
    assert (told in out + err) is is_told


def test_each_of_them_has_help():
    for name in ("compare", "correlate", "sheet", "read-sheet", "validate"):
        assert CliRunner().invoke(cli, ["eval", name, "--help"]).exit_code == 0
