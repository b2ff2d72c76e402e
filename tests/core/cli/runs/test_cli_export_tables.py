"""`albor runs export --what`: runs, params and events of runs as tables, chosen by a filter."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import jsonschema
import pytest
from cli_user import strict, valid

from albor_core.cli.runs.transfer.export import FORMATS, WHAT
from albor_core.documents.json_schema import schema_of
from albor_core.run.files.media_file import publish
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now

TABLES = [form for form in FORMATS if form != "otlp"]  # spans are no table: test_cli_export_otlp
HOSTILE = "=cmd()|'x'!A1,\"q\"\r\n\u202e\x1b[31m \U0001f600"
HALF = "half \ud83d of one"  # what JSON can say and UTF-8 cannot


@pytest.fixture
def three(desk):
    """Runs `a` and `b` of one experiment, `c` of another with a name and values to fear."""
    record(desk, "a", {"train/loss": 1.5, "acc": 0.5}, {"lr": 0.1, "mode": "x", "flag": True})
    record(desk, "b", {"train/loss": math.nan}, {"lr": 1, "mode": HALF, "flag": None})
    record(
        desk,
        "c",
        {'odd/=1,"x"': math.inf},
        {"lr": "auto", "text": HOSTILE},
        name=HOSTILE,
        experiment=HOSTILE,
    )
    return desk


def record(desk, run_id, values, params, *, name="", experiment="exp"):
    run = create_run(desk.folder / "out", run_id, experiment=experiment, name=name or run_id,
                     kind="track", argv=["x"], seed=7)  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    for key, value in params.items():
        journal.append("p", key=key, value=value)
    for step in (1, 2, 3):
        journal.metrics(step, values)
    file = publish(run.path, "png", b"png")
    meta = {"format": "png", "text": HOSTILE}
    journal.append("b", step=2, key="seen", kind="image", hash=file.hash, bytes=3, name="",
                   caption=HOSTILE, meta=meta)  # fmt: skip
    journal.event("checkpoint.saved", severity="info", step=2, text=HOSTILE)
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


def read(path):
    """The rows of a file of any format, every cell as Python has it."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    if path.suffix == ".csv":
        return list(csv.DictReader(path.open(newline="", encoding="utf-8")))
    return [strict(line) for line in path.read_text(encoding="utf-8").splitlines()]


def exported(desk, what, form, *words):
    out = desk.folder / f"{what}.{form}"
    done = desk.quick("runs", "export", "--what", what, "-o", out, "--force", *words)
    assert done.code == 0, done
    return read(out)


@pytest.mark.parametrize("what", WHAT)
def test_every_line_fits_the_published_schema_of_its_rows(three, what):
    name = "albor.runs.export.row" if what == "points" else f"albor.runs.export.{what}"
    rows = exported(three, what, "jsonl", "--filter", "")
    assert rows
    for row in rows:
        jsonschema.Draft202012Validator(schema_of(name)).validate(row)


@pytest.mark.parametrize("what", WHAT)
def test_all_formats_have_the_same_columns_and_as_many_rows(three, what):
    found = {form: exported(three, what, form, "--filter", "") for form in TABLES}
    assert len({len(rows) for rows in found.values()}) == 1
    assert len({tuple(rows[0]) for rows in found.values()}) == 1


def test_a_table_of_runs_has_params_and_last_values(three):
    rows = {row["id"]: row for row in exported(three, "runs", "jsonl", "--filter", "")}
    assert list(rows) == ["c", "b", "a"]  # the newest first, as in the list
    assert (rows["a"]["params.lr"], rows["b"]["params.lr"], rows["c"]["params.lr"]) == (
        0.1,
        1,
        "auto",
    )
    assert (rows["a"]["params.flag"], rows["b"]["params.flag"]) == (True, None)
    assert (rows["a"]["metrics.train/loss"], rows["b"]["metrics.train/loss"]) == (1.5, "nan")
    assert rows["c"]["metrics.train/loss"] is None
    assert (rows["a"]["status"], rows["a"]["step"], rows["a"]["seed"]) == ("completed", 3, 7)
    plain = {row["id"]: row for row in exported(three, "runs", "csv", "--filter", "")}
    assert (plain["a"]["params.lr"], plain["a"]["params.flag"], plain["a"]["tags"]) == (
        "0.1",
        "true",
        "[]",
    )
    assert (plain["b"]["metrics.train/loss"], plain["c"]["metrics.train/loss"]) == ("nan", "")
    packed = {row["id"]: row for row in exported(three, "runs", "parquet", "--filter", "")}
    assert (packed["a"]["params.lr"], packed["c"]["params.lr"]) == ("0.1", "auto")
    assert math.isnan(packed["b"]["metrics.train/loss"])


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("what", WHAT)
def test_hostile_names_and_values_come_back_as_they_were(three, what, form):
    rows = exported(three, what, form, "c")
    assert {row["experiment"] for row in rows} == {HOSTILE}
    if what == "runs":
        assert rows[0]["name"] == rows[0]["params.text"] == HOSTILE
    if what == "params":
        assert [row["value"] for row in rows if row["key"] == "text"] == [HOSTILE]
    if what == "media":
        assert rows[0]["caption"] == HOSTILE and Path(rows[0]["path"]).read_bytes() == b"png"
    if what == "events":
        data = rows[0]["data"]
        data = data if isinstance(data, dict) else json.loads(data)
        assert data["text"] == HOSTILE


@pytest.mark.parametrize("form", TABLES)
def test_half_a_character_is_written_as_a_mark_or_an_escape(three, form):
    rows = exported(three, "params", form, "b")
    (found,) = [row["value"] for row in rows if row["key"] == "mode"]
    assert found == (HALF if form == "jsonl" else "half ? of one")


def test_params_keep_their_types_where_a_format_has_them(three):
    rows = {row["key"]: row for row in exported(three, "params", "jsonl", "a")}
    assert {key: (row["value"], row["number"]) for key, row in rows.items()} == {
        "lr": (0.1, 0.1), "mode": ("x", None), "flag": (True, None)
    }  # fmt: skip
    rows = {row["key"]: row for row in exported(three, "params", "parquet", "a")}
    assert {key: (row["value"], row["number"]) for key, row in rows.items()} == {
        "lr": ("0.1", 0.1), "mode": ("x", None), "flag": ("true", None)
    }  # fmt: skip


def test_a_filter_chooses_as_the_list_does(three):
    rows = exported(three, "points", "jsonl", "--filter", "experiment:exp lr<0.5")
    assert {row["run"] for row in rows} == {"a"}
    document = valid(three.quick("runs", "export", "--filter", "experiment:exp", "--what", "runs",
                                 "-o", "x.csv", "--json"))  # fmt: skip
    assert (document["runs"], document["what"], document["rows"]) == (["b", "a"], "runs", 2)
    assert document["columns"][:2] == ["id", "name"]
    none = valid(three.quick("runs", "export", "--filter", "name:none", "-o", "y.csv", "--json"))
    assert (none["runs"], none["rows"]) == ([], 0)
    assert (three.folder / "y.csv").read_text() == "run,experiment,key,step,wall,value\n"


def test_of_a_filter_runs_without_the_metric_are_left_out(three):
    rows = exported(three, "points", "jsonl", "--filter", "", "--key", "loss")
    assert {(row["run"], row["key"]) for row in rows} == {("a", "train/loss"), ("b", "train/loss")}
    done = three.quick("runs", "export", "--filter", "", "--key", "train/los", "-o", "x.csv")
    assert done.code == 3 and "the nearest is 'train/loss'" in done.err
    assert not (three.folder / "x.csv").exists()


def test_of_a_filter_runs_whose_folder_is_gone_are_left_out_and_said(three):
    shutil.rmtree(three.folder / "out" / "a")
    for what in ("points", "media"):
        out = three.folder / f"{what}.jsonl"
        words = ("--filter", "experiment:exp", "--what", what, "-o", out)
        done = three.quick("runs", "export", *words)
        assert done.code == 0 and "left out: 1 run whose run directory is gone" in done.err
        assert {row["run"] for row in read(out)} == {"b"}
        gone = three.quick("runs", "export", "a", "--what", what, "-o", "y.jsonl")
        assert gone.code == 3 and "the run directory is gone" in gone.err
        assert not (three.folder / "y.jsonl").exists()
    for what in ("runs", "params", "events"):  # what the store has, it has
        rows = exported(three, what, "jsonl", "--filter", "experiment:exp")
        assert {row.get("run") or row["id"] for row in rows} == {"a", "b"}


def test_a_run_that_the_home_does_not_know_is_exported_too(three, tmp_path):
    home = tmp_path / "another"
    there = three.folder / "out" / "a"
    for what in WHAT:
        done = three.quick("runs", "export", there, "--what", what, ALBOR_HOME=str(home))
        assert done.code == 0 and '"a"' in done.out, done


def test_a_dash_is_stdout(three):
    plain = three.quick("runs", "export", "a", "--what", "params")
    assert three.quick("runs", "export", "a", "--what", "params", "-o", "-") == plain
    assert len(plain.out.splitlines()) == 3
    assert sorted(path.name for path in three.folder.iterdir()) == ["out"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "which runs?"),
        (("a", "--filter", "x"), 2, "RUN and --filter together"),
        (("--filter", "lr<"), 2, "filter, column 4"),
        (("--filter", "nosuch<1"), 2, "'nosuch' is not a field"),
        (("a", "--what", "runs", "--key", "loss"), 2, "--key chooses points"),
        (("a", "--what", "all"), 2, "'all' is not one of"),
        (("a", "-o", "x.xlsx"), 2, "which format?"),
        (("a", "-o", "-", "--format", "parquet"), 2, "needs a file"),
        (("a", "--json"), 2, "needs a file"),
        (("nobody",), 3, "no run 'nobody'"),
        (("a", "nobody", "-o", "x.csv"), 3, "no run 'nobody'"),
        (("a", "-o", "nowhere/x.csv"), 3, "there is no folder"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(three, words, code, said):
    done = three.quick("runs", "export", *words)
    assert (done.code, done.out) == (code, "") or ("--json" in words and done.code == code)
    assert said in done.err + done.out and "Traceback" not in done.err
    assert sorted(path.name for path in three.folder.iterdir()) == ["out"]
