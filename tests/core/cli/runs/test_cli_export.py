"""`albor runs export`: any size in bounded memory, whole or not at all, every value as it was."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from cli_user import ALBOR, User, strict, wait_until

from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import UsageError
from albor_core.run.files import whole_file
from albor_core.run.files.spans_file import SpansSent, write_spans_sent
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now
from albor_core.store.query.export import PAGE

KEYS, STEPS = 4, 500_000  # two million points
FORMATS = ("jsonl", "csv", "parquet")


def user(folder, home):
    folder.mkdir()
    return User(folder, home)


@pytest.fixture
def desk(tmp_path, albor_home):
    return user(tmp_path / "work", albor_home)


def record(folder, run_id, values):
    run = create_run(folder, run_id, experiment="exp", name=run_id, kind="track", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    for step, value in enumerate(values, start=1):
        journal.metrics(step, {"train/loss": value})
    journal.metrics(len(values) + 1, {f"only/{run_id}": 1})
    journal.close()
    index_now(run)
    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


ODD = [1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, 0.1, -7.0]


@pytest.mark.parametrize("form", FORMATS)
def test_every_value_comes_back_as_it_was(desk, form):
    record(desk.folder / "out", "a", ODD)
    out = desk.folder / f"points.{form}"
    assert desk.quick("runs", "export", "a", "--key", "train/loss", "-o", out).code == 0
    if form == "parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(out)
        assert table.schema.metadata[b"albor.schema"] == b"albor.runs.export.row/1"
        assert [str(field.type) for field in table.schema][3:] == ["int64", "double", "double"]
        found = table.column("value").to_pylist()
    elif form == "csv":
        found = [float(row["value"]) for row in csv.DictReader(out.open(newline=""))]
    else:
        schema = schema_of("albor.runs.export.row")
        rows = [strict(line) for line in out.read_text().splitlines()]
        for row in rows:
            jsonschema.Draft202012Validator(schema).validate(row)
        found = [float(row["value"]) for row in rows]
    assert list(map(repr, found)) == list(map(repr, ODD))
    assert [path.name for path in desk.folder.iterdir() if path.name != "out"] == [out.name]


def test_the_row_schema_names_the_columns_of_the_code(desk):
    from albor_core.store.query.export import COLUMNS

    printed = desk.quick("schema", "albor.runs.export.row").document
    assert tuple(printed["properties"]) == COLUMNS


def test_a_failure_half_way_leaves_nothing_and_the_old_file_whole(desk):
    for name in "ab":
        record(desk.folder / "out", name, ODD)
    words = ("runs", "export", "a", "b", "--key", "only/a", "-o")
    for form in FORMATS:
        out = desk.folder / f"x.{form}"
        assert desk.quick(*words, out).code == 3  # b has no such metric
        assert not out.exists()
        out.write_text("mine")
        assert desk.quick(*words, out).code == 2
        assert desk.quick(*words, out, "--force").code == 3
        assert out.read_text() == "mine"
        assert desk.quick("runs", "export", "a", "-o", out, "--force").code == 0
        assert out.read_bytes()[:4] != b"mine"
    assert names(desk.folder) == ["out", "x.csv", "x.jsonl", "x.parquet"]


def test_points_whose_run_folder_is_gone_are_said_to_be_gone(desk):
    shutil.rmtree(record(desk.folder / "out", "a", ODD).path)
    result = desk.quick("runs", "export", "a", "--json", "-o", "x.csv")
    assert (result.code, result.error["code"]) == (3, "not_found")
    assert "the run directory is gone" in result.error["message"]
    assert desk.quick("runs", "export", "nobody", "-o", "x.csv").code == 3


def test_without_pyarrow_parquet_names_the_command_that_brings_it(desk):
    record(desk.folder / "out", "a", ODD)
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from albor_core.cli.main import run\n"
        "sys.argv = ['albor', 'runs', 'export', 'a', *sys.argv[1:]]; run()"
    )
    for out, code in (("x.parquet", 1), ("x.csv", 0)):
        done = subprocess.run(
            [sys.executable, "-c", script, "-o", out],
            cwd=desk.folder, env=desk.environment(PYTHONPATH=str(Path(__file__).parents[4])),
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        if code:
            assert "pip install 'pyarrow" in done.stderr and "Traceback" not in done.stderr
    assert names(desk.folder) == ["out", "x.csv"]


# -- whole or not at all -------------------------------------------------------------------------


@pytest.fixture(params=["nameless", "named"])
def kind(request, monkeypatch):
    """Both ways: a file without a name, and what file systems without those get."""
    if request.param == "named":
        monkeypatch.setattr(whole_file, "NAMELESS", 0)


def test_a_file_shows_only_when_it_is_whole(tmp_path, kind):
    out = tmp_path / "x"
    with whole_file.whole_file(out, replace=False) as descriptor:
        os.write(descriptor, b"new")
        assert not out.exists()
    assert (out.read_bytes(), names(tmp_path)) == (b"new", ["x"])
    with whole_file.whole_file(out, replace=True) as descriptor:
        os.write(descriptor, b"newer")
        assert out.read_bytes() == b"new"
    assert (out.read_bytes(), names(tmp_path)) == (b"newer", ["x"])


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path, kind):
    out = tmp_path / "x"
    with (
        pytest.raises(UsageError, match="exists"),
        whole_file.whole_file(out, replace=False) as descriptor,
    ):
        os.write(descriptor, b"mine")
        out.write_bytes(b"theirs")
    assert (out.read_bytes(), names(tmp_path)) == (b"theirs", ["x"])
    with pytest.raises(FileNotFoundError), whole_file.whole_file(tmp_path / "no/x", replace=True):
        raise AssertionError("there is no such folder")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_nothing_and_the_handlers_as_they_were(tmp_path, kind, number):
    before = signal.getsignal(number)
    with (
        pytest.raises((SystemExit, KeyboardInterrupt)),
        whole_file.whole_file(tmp_path / "x", replace=True) as descriptor,
    ):
        os.write(descriptor, b"half")
        os.kill(os.getpid(), number)
        time.sleep(5)  # the handler raises out of it
    assert names(tmp_path) == []
    assert signal.getsignal(number) is before


# -- any size ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """Runs of 1 page and of two million points; written straight into the store, in seconds."""
    folder = tmp_path_factory.mktemp("long")
    made = user(folder / "work", folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(made.home))
        for name, steps in (("short", PAGE), ("long", STEPS)):
            run = create_run(made.folder / "out", name, experiment="e", name=name, kind="track",
                             argv=["x"])  # fmt: skip
            journal = Journal(run.journal, attempt=1)
            keys = range(KEYS if name == "long" else 1)
            journal.metrics(1, {f"metric/{key}": 0.0 for key in keys})
            journal.event("run.end", status="completed", reason="completed", code=0)
            journal.close()
            index_now(run)
            with sqlite3.connect(run.store) as db:
                db.execute(
                    "WITH RECURSIVE n(step) AS (SELECT 2 UNION ALL SELECT step + 1 FROM n"
                    " WHERE step < ?) INSERT INTO metrics (run_id, key_id, step, value)"
                    " SELECT k.run_id, k.key_id, n.step, n.step / 3.0 + k.key_id FROM keys k, n",
                    (steps,),
                )
            db.close()
    return made


def peak_rss(desk, *words):
    """The most memory that one `albor` had, in bytes."""
    pid = os.posix_spawn(ALBOR[0], [*ALBOR, *words], desk.environment())
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("form", "keys"), [("parquet", KEYS), ("jsonl", KEYS), ("csv", 1)])
def test_two_million_points_take_no_more_memory_than_two_pages(long_run, form, keys):
    short, long = (long_run.folder / f"{name}.{form}" for name in ("short", "long"))
    only = [word for key in range(keys) for word in ("--key", f"metric/{key}")]
    small = peak_rss(long_run, "runs", "export", "short", "-o", str(short))
    large = peak_rss(long_run, "runs", "export", "long", *only, "-o", str(long))
    # a row: a tuple of six, the point it came from, an int, two floats, two slots in lists, and its
    # line as text; two pages live at once while the next is read, and SQLite caches 2 MiB a file
    row = sys.getsizeof((0,) * 6) + sys.getsizeof((0,) * 3) + 28 + 2 * 24 + 2 * 8 + 49 + 120
    bound = 2 * PAGE * row + 2 * (2 << 20)
    assert large - small <= bound, f"{(large - small) / 2**20:.1f} MiB over {bound / 2**20:.1f}"
    assert bound < keys * STEPS * row / 5  # the bound would show a table held whole
    if form == "parquet":
        import pyarrow.parquet as pq

        assert pq.ParquetFile(long).metadata.num_rows == keys * STEPS
    else:
        with long.open("rb") as file:
            assert sum(1 for _ in file) == keys * STEPS + (form == "csv")
    short.unlink()
    long.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("form", FORMATS)
def test_an_export_that_is_killed_half_way_leaves_nothing(long_run, form, number, tmp_path):
    process = subprocess.Popen(
        [*ALBOR, "runs", "export", "long", "-o", str(tmp_path / f"x.{form}")],
        env=long_run.environment(), stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def is_writing():
        assert process.poll() is None, "it was over before it could be killed"
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                if link.readlink().is_relative_to(tmp_path) and link.stat().st_size > 100_000:
                    return True
            except FileNotFoundError:
                pass
        return False

    wait_until(is_writing)
    process.send_signal(number)
    assert process.wait(30) == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    assert names(tmp_path) == []


def test_the_spans_of_runs_are_one_document_and_show_has_their_ids(desk):
    one, two = (record(desk.folder / "runs", run_id, ODD[:3]) for run_id in ("one", "two"))
    said = desk.albor(
        *("runs", "export", "one", "two", "--format", "otlp", "-o", "s.json", "--json")
    ).document
    jsonschema.validate(said, schema_of("albor.runs.export"))
    found = strict((desk.folder / "s.json").read_text())
    spans = [span for part in found["resourceSpans"] for span in part["scopeSpans"][0]["spans"]]
    assert (said["what"], said["rows"], len(spans)) == ("spans", len(spans), len(spans))
    (root,) = [span for span in spans if span["name"] == "run one"]
    shown = desk.albor("runs", "show", "one", "--json").document
    jsonschema.validate(shown, schema_of("albor.runs.show"))
    assert shown["trace"]["trace_id"] == root["traceId"]
    assert shown["trace"]["span_ids"]["run"] == root["spanId"]
    assert shown["trace"]["sent"] is None
    shutil.rmtree(two.path)
    gone = desk.albor("runs", "export", "two", "--format", "otlp", "-o", "t.json")
    assert gone.code == 3
    assert not (desk.folder / "t.json").exists()
    assert desk.albor("runs", "export", "one", "--format", "otlp", "--what", "runs").code == 2
    assert desk.albor("runs", "export", "one", "--format", "otlp", "--key", "x").code == 2
    assert one.path.is_dir()


def test_show_tells_what_a_collector_refused_and_what_it_warned_of(desk):
    run = record(desk.folder / "runs", "one", ODD[:3])
    place = "http://h:4318"
    reason = "span is too old"
    write_spans_sent(run, SpansSent(place, 3, 2, why=reason, refusal=reason, warning="use gzip"))
    shown = desk.albor("runs", "show", "one", "--json")
    jsonschema.validate(shown.document, schema_of("albor.runs.show"))
    jsonschema.validate(json.loads(run.spans.read_text()), schema_of("albor.spans"))
    sent = shown.document["trace"]["sent"]
    assert (sent["dropped"], sent["refusal"], sent["warning"]) == (2, reason, "use gzip")
    said = desk.albor("runs", "show", "one").out
    assert f"2 spans were refused: {reason}; the collector warns: use gzip; next: albor" in said
    write_spans_sent(run, SpansSent(place, 5, warning="use gzip"))
    said = desk.albor("runs", "show", "one").out
    assert f"5 spans sent to {place}; the collector warns: use gzip\n" in said
