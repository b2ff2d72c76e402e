"""Parquet as Neptune's exporter writes it becomes runs: values, steps, times and words."""

import builtins
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import AlborError
from albor_core.run.rundir import RunDir
from albor_core.store.query.reader import Reader

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow writes the files of this test")
import pyarrow.parquet as parquet  # noqa: E402

BEGAN = datetime(2025, 11, 1, 12, 0, tzinfo=UTC)
SCHEMA = pyarrow.schema(
    [
        ("project_id", pyarrow.string()),
        ("run_id", pyarrow.string()),
        ("attribute_path", pyarrow.string()),
        ("attribute_type", pyarrow.string()),
        ("step", pyarrow.decimal128(18, 6)),
        ("timestamp", pyarrow.timestamp("ms", tz="UTC")),
        ("int_value", pyarrow.int64()),
        ("float_value", pyarrow.float64()),
        ("string_value", pyarrow.string()),
        ("bool_value", pyarrow.bool_()),
        ("datetime_value", pyarrow.timestamp("ms", tz="UTC")),
        ("string_set_value", pyarrow.list_(pyarrow.string())),
        ("file_value", pyarrow.struct([("path", pyarrow.string())])),
    ]
)


def param(path, kind, value):
    return {"attribute_path": path, "attribute_type": kind, f"{kind}_value": value}


def series(path, values, kind="float_series"):
    for step, value in values.items():
        row = {"attribute_path": path, "attribute_type": kind, "step": Decimal(str(step))}
        stamp = datetime.fromtimestamp(BEGAN.timestamp() + float(step), UTC)
        yield {**row, "timestamp": stamp, "float_value": value}


ABOUT = [
    param("sys/name", "string", "a good run"),
    param("sys/id", "string", "PRO-7"),
    param("sys/description", "string", "first try"),
    param("sys/creation_time", "datetime", BEGAN),
    param("sys/tags", "string_set", ["ablation"]),
    param("config/lr", "float", 3e-4),
    param("config/layers", "int", 12),
    param("config/optimizer", "string", "adamw"),
    param("config/amp", "bool", True),
    {"attribute_path": "model", "attribute_type": "file", "file_value": {"path": "model.pt"}},
]


def write(path, rows, run="RUN-1", project="me/pretraining"):
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = [{"project_id": project, "run_id": run, **row} for row in rows]
    parquet.write_table(pyarrow.Table.from_pylist(whole, schema=SCHEMA), path)
    return path


def bring(*words):
    """The document of `albor runs import`, which fits its schema, and the exit code."""
    done = CliRunner().invoke(cli, ["runs", "import", "--json", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema_of("albor.runs.import"))
    return document


def asked(run, question):
    with Reader(RunDir(Path(run["path"])).store) as reader:
        return question(reader)


def values(run, key):
    return {p[0]: p[1] for p in asked(run, lambda reader: reader.points(run["run"], key))}


def test_a_run_in_parts_is_one_run_with_its_words(tmp_path):
    data = tmp_path / "data" / "me_pretraining_0a1b"
    write(data / "RUN-1_part_0.parquet", [*ABOUT, *series("metrics/loss", {0: 4.0, 10: 3.0})])
    more = series("metrics/loss", {20: math.nan, 30: math.inf})
    write(data / "RUN-1_part_1.parquet", [*more, *series("val/acc", {0: 0.1, 30: 0.9})])
    (run,) = bring(tmp_path / "data")["runs"]
    assert (run["source"], run["name"], run["experiment"]) == (
        "neptune",
        "a good run",
        "me/pretraining",
    )
    assert repr(values(run, "metrics/loss")) == "{0: 4.0, 10: 3.0, 20: nan, 30: inf}"
    assert values(run, "val/acc") == {0: 0.1, 30: 0.9}
    assert run["unmapped"] == {"file": 1} and run["last_step"] == 30
    assert asked(run, lambda reader: reader.params(run["run"])) == {
        "config/lr": 3e-4,
        "config/layers": 12,
        "config/optimizer": "adamw",
        "config/amp": True,
    }
    row = asked(run, lambda reader: reader.run(run["run"]))
    assert (row.created, row.last_wall) == (BEGAN.timestamp(), BEGAN.timestamp() + 30)
    assert asked(run, lambda reader: reader.tags(run["run"])) == ("ablation",)
    assert [n.text for n in asked(run, lambda reader: reader.notes(run["run"]))] == ["first try"]


def test_the_same_export_is_imported_once_and_more_of_it_adds_to_it(tmp_path):
    whole = [*ABOUT[:-1], *series("loss", {0: 4.0})]
    write(tmp_path / "RUN-1_part_0.parquet", whole)
    assert bring(tmp_path)["runs"][0]["change"] == "new"
    assert bring(tmp_path)["runs"][0]["change"] == "unchanged"
    write(tmp_path / "RUN-1_part_1.parquet", series("loss", {1: 3.0}))
    (run,) = bring(tmp_path)["runs"]
    assert (run["change"], values(run, "train/loss")) == ("extended", {0: 4.0, 1: 3.0})


def test_several_runs_in_a_folder_or_in_a_file_do_not_mix(tmp_path):
    write(tmp_path / "a" / "A_part_0.parquet", series("loss", {0: 1.0}), run="A")
    write(tmp_path / "a" / "B_part_0.parquet", series("loss", {0: 2.0}), run="B")
    rows = [{"run_id": "C", **row} for row in series("loss", {0: 3.0})]
    rows += [{"run_id": "D", **row} for row in series("loss", {0: 4.0})]
    write(tmp_path / "a" / "part_0.parquet", rows)
    found = {run["name"]: values(run, "train/loss")[0] for run in bring(tmp_path)["runs"]}
    assert found == {"A": 1.0, "B": 2.0, "C": 3.0, "D": 4.0}


def test_steps_that_are_not_whole_keep_their_order_and_distance(tmp_path):
    write(tmp_path / "R_part_0.parquet", series("loss", {0: 4.0, 0.25: 3.0, 1.5: 2.0}))
    (run,) = bring(tmp_path)["runs"]
    assert values(run, "train/loss") == {0: 4.0, 25: 3.0, 150: 2.0}
    facts = asked(run, lambda reader: reader.detail(run["run"])).facts
    assert facts["imported"]["step_multiplier"] == 100


def test_a_run_that_failed_is_known_as_failed(tmp_path):
    write(
        tmp_path / "R_part_0.parquet", [param("sys/failed", "bool", True), *series("a", {0: 1.0})]
    )
    assert bring(tmp_path)["runs"][0]["status"] == "failed"


def test_other_parquet_is_not_history(tmp_path):
    path = tmp_path / "points.parquet"
    parquet.write_table(pyarrow.table({"step": [1], "loss": [2.0]}), path)
    with pytest.raises(AlborError, match="no history of a kind that is known"):
        bring(path)


def test_a_file_that_was_cut_is_refused_and_costs_only_itself(tmp_path):
    write(tmp_path / "A_part_0.parquet", series("loss", {0: 1.0}), run="A")
    bad = write(tmp_path / "B_part_0.parquet", series("loss", {0: 2.0}), run="B")
    raw = bytearray(bad.read_bytes())
    raw[-8:-4] = (1 << 30).to_bytes(4, "little")  # where the description of the columns begins
    bad.write_bytes(raw)
    found = bring(tmp_path)
    assert [run["name"] for run in found["runs"]] == ["A"]
    assert "B_part_0.parquet" in found["problems"][0]["message"]


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "R_part_0.parquet", series("loss", {0: 1.0}))
    load = builtins.__import__

    def refuse(name, *rest, **more):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(AlborError, match="needs pyarrow") as raised:
        bring(path)
    assert raised.value.hint.startswith("pip install 'pyarrow")
