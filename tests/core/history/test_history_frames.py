"""Tables of the history in the libraries that people have; each is skipped by name where absent."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from albor_core import history
from albor_core.history.columns import column
from albor_core.run.errors import AlborError

NAN, INF = math.nan, math.inf
HALF = "half \ud83d of one"  # what JSON can say and UTF-8 cannot


@pytest.fixture
def table(maker):
    """Runs with params of one type, of several, of none, and with gaps."""
    maker.make("a", [(1, {"m": NAN, "n": 1.0})], seed=1,
               params={"lr": 0.1, "mode": "x", "flag": True, "depth": 3, "mix": 1})  # fmt: skip
    maker.make("b", [(1, {"m": INF})], seed=2,
               params={"lr": 1, "mode": HALF, "depth": 2**60, "mix": "auto"})  # fmt: skip
    maker.make("c", [(1, {"m": -INF})], params={"flag": False, "mix": None})
    return history.runs(sort="name")


def test_lists_hold_what_was_recorded(table, same):
    rows = table.to_list()
    assert [row["params.mix"] for row in rows] == [1, "auto", None]
    assert rows[1]["params.mode"] == HALF
    assert same([row["metrics.m"] for row in rows], [NAN, INF, -INF])
    assert same([row["metrics.n"] for row in rows], [1.0, None, None])
    assert rows[0]["tags"] == ()


def test_numpy_arrays_have_the_narrowest_type_that_holds_all(table):
    pytest.importorskip("numpy")
    found = table.to_numpy()
    assert found["metrics.m"].dtype == found["params.lr"].dtype == found["seed"].dtype == "float64"
    assert str(found["metrics.m"].tolist()) == "[nan, inf, -inf]"
    assert str(found["seed"].tolist()) == "[1.0, 2.0, nan]"
    assert found["attempts"].dtype == "int64"
    assert found["params.mix"].tolist() == [1, "auto", None]
    assert found["params.flag"].tolist() == [True, None, False]
    assert all(len(array) == 3 and array.ndim == 1 for array in found.values())


def test_an_arrow_table_keeps_unknown_and_nan_apart(table):
    pytest.importorskip("pyarrow")
    found = table.to_arrow()
    assert str(found["metrics.n"].to_pylist()) == "[1.0, None, None]"
    assert str(found["metrics.m"].to_pylist()) == "[nan, inf, -inf]"
    assert found["params.depth"].to_pylist() == [3, 2**60, None]
    assert found["params.mix"].to_pylist() == ["1", "auto", None]
    assert found["params.flag"].to_pylist() == [True, None, False]
    assert found["params.mode"].to_pylist() == ["x", "half ? of one", None]
    assert [str(found.schema.field(name).type) for name in ("id", "created", "tags", "seed")] == [
        "string", "double", "list<item: string>", "int64",
    ]  # fmt: skip


def test_a_pandas_frame_has_a_row_for_each_run(table):
    pandas = pytest.importorskip("pandas")
    found = table.to_pandas()
    assert isinstance(found, pandas.DataFrame) and list(found["id"]) == ["a", "b", "c"]
    assert str(found["seed"].dtype) == "Int64" and str(found["params.flag"].dtype) == "boolean"
    assert found["params.depth"].tolist()[:2] == [3, 2**60]
    assert str(found["metrics.m"].tolist()) == "[nan, inf, -inf]"
    assert found["params.mix"].tolist() == [1, "auto", None]
    assert found["params.lr"].mean() == pytest.approx(0.55)
    assert found["params.mode"].tolist()[:2] == ["x", "half ? of one"]


def test_a_polars_frame_keeps_unknown_and_nan_apart(table):
    polars = pytest.importorskip("polars")
    found = table.to_polars()
    assert isinstance(found, polars.DataFrame) and found["id"].to_list() == ["a", "b", "c"]
    assert str(found["metrics.n"].to_list()) == "[1.0, None, None]"
    assert str(found["metrics.m"].to_list()) == "[nan, inf, -inf]"
    assert found["params.mix"].to_list() == ["1", "auto", None]
    assert found["tags"].to_list() == [[], [], []]


@pytest.mark.parametrize("way", ["numpy", "pandas", "polars", "pyarrow"])
def test_no_runs_make_an_empty_table_with_the_same_columns(table, way):
    pytest.importorskip(way)
    method = f"to_{'arrow' if way == 'pyarrow' else way}"
    made = getattr(history.runs("name:none-such"), method)()
    names = made.column_names if way == "pyarrow" else list(getattr(made, "columns", made))
    assert names[:3] == ["id", "name", "experiment"]


@pytest.mark.parametrize("way", ["numpy", "pandas", "polars", "pyarrow"])
def test_metrics_and_events_become_tables_too(table, way):
    pytest.importorskip(way)
    method = f"to_{'arrow' if way == 'pyarrow' else way}"
    run = history.run("a")
    metrics = getattr(run.metrics(), method)()
    values = metrics["m"].to_pylist() if way == "pyarrow" else list(metrics["m"])
    assert str(values) in ("[nan]", "[np.float64(nan)]")
    events = getattr(run.events, method)()
    names = events["name"].to_pylist() if way == "pyarrow" else list(events["name"])
    assert names == ["run.end"]


@pytest.mark.parametrize("name", ["numpy", "pandas", "polars", "pyarrow"])
def test_a_library_that_is_absent_is_named_with_the_command_that_installs_it(
    table, name, monkeypatch
):
    monkeypatch.setitem(sys.modules, name, None)
    method = f"to_{'arrow' if name == 'pyarrow' else name}"
    with pytest.raises(AlborError, match=f"{name} is not installed") as refused:
        getattr(table, method)()
    assert refused.value.hint == f"pip install {name}"
    assert len(table.to_list()) == 3


@pytest.mark.parametrize("name", ["numpy", "pyarrow"])
def test_no_conversion_needs_the_library_of_another(maker, name):
    maker.make("a", [(1, {"m": 1.0})], params={"lr": 0.1})
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name in {{'numpy', 'pandas', 'polars', 'pyarrow'}} - {{{name!r}, 'numpy'}}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from albor_core import history\n"
        f"made = history.runs().to_{'arrow' if name == 'pyarrow' else name}()\n"
        "assert str(made['metrics.m'][0]) in ('1.0',), made['metrics.m']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(
    ("values", "declared", "kind"),
    [
        ([True, None, False], "", "bool"),
        ([1, None], "", "int"),
        ([1, 2.5], "", "float"),
        ([1, True], "", "mixed"),
        ([2**63, 1], "", "mixed"),
        ([-(2**63) - 1], "", "mixed"),
        ([2**53, 0.5], "", "mixed"),
        (["a", 1], "", "mixed"),
        ([None, None], "", "text"),
        ([], "int", "int"),
        (["x"], "int", "text"),
        ([1.5, 2], "int", "float"),
        ([{"a": 1}, [1]], "", "json"),
        ([b"raw"], "text", "mixed"),
    ],
)
def test_a_column_is_of_the_kind_that_loses_nothing(values, declared, kind):
    assert column(values, declared).kind == kind
