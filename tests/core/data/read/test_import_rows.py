"""Rows of JSONL, CSV and Parquet as documents: each compared with what the plain reader gives."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.read import git, parquet_rows, tree
from albor_core.data.read import rows as row_files
from albor_core.data.read.inputs import Asked
from albor_core.data.read.sources import import_sources
from albor_core.data.stage.record import read_record
from albor_core.run.errors import ConfigError, DataError

LETTERS = ["a", "\xe9", "\n", '"', ",", "\t", "\u6f22", "\\", "z" * 50, "\U0001f600"]


@pytest.fixture
def small_units(monkeypatch):
    for module in (tree, row_files, git, parquet_rows):
        monkeypatch.setattr(module, "UNIT_BYTES", 3_000)
    monkeypatch.setattr(row_files, "_BLOCK", 1_000)


def texts(count):
    rng = random.Random(5)
    return ["x" + "".join(rng.choices(LETTERS, k=rng.randrange(1, 40))) for _ in range(count)]


def taken(report):
    found = pq.read_table(report.out).to_pylist()
    return [(row["source"], row["file"], row["text"]) for row in found]


def jsonl(path, given, column="text"):
    lines = [json.dumps({"id": n, column: text}) for n, text in enumerate(given)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_jsonl_gives_each_line_by_its_number_whatever_it_is_cut_into(tmp_path, small_units, suffix):
    given = texts(300)
    path = jsonl(tmp_path / "a.jsonl", given)
    if suffix.endswith(".gz"):
        raw, path = path.read_bytes(), tmp_path / "a.jsonl.gz"
        path.write_bytes(gzip.compress(raw[:999]) + gzip.compress(raw[999:]))
    report = import_sources([path], tmp_path / "c.parquet")
    assert taken(report) == [(path.name, str(n), text) for n, text in enumerate(given, 1)]
    if suffix == ".jsonl":
        units = list(row_files.json_units(path))
        assert len(units) > 5 and sum(lines for lines, _, _ in units) == 300


def test_lines_that_are_no_documents_are_counted_and_named(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [
        b'\xef\xbb\xbf{"text": "first"}', b"", b"not json", b"[1]", b'{"text": 7}',
        b'{"body": "x"}', b'{"text": " "}', b'{"text": "caf\xe9"}', b'{"text": "\\ud800"}',
        b'{"text": "a\\u0000"}',
        b'{"text": "%s"}' % (b"y" * 2_000), b'{"n": ' + b"[" * 5_000, b'{"text": "last"}',
    ]  # fmt: skip
    path.write_bytes(b"\r\n".join(lines))
    report = import_sources([path], tmp_path / "c.parquet", Asked(max_bytes=1_000))
    assert taken(report) == [("a.jsonl", "1", "first"), ("a.jsonl", "13", "last")]
    assert report.skipped == {
        "binary": 1, "empty": 1, "no_text": 2, "not_an_object": 1, "not_json": 2, "not_utf8": 2,
        "too_large": 1,
    }  # fmt: skip
    assert report.counts.examples["not_json"] == ["a.jsonl/3", "a.jsonl/12"]
    record = read_record(report.out)
    assert record.counts.to_json() == report.counts.to_json() and record.step == "import"


def test_csv_is_read_as_the_csv_module_reads_it(tmp_path):
    given = texts(100)
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "code"])
        writer.writerows([n, text] for n, text in enumerate(given))
    report = import_sources([path], tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == given
    lines = path.read_text(encoding="utf-8").split("\n")
    first = taken(report)[7]
    assert lines[int(first[1]) - 1].startswith("7,"), "the key is the row's first line"


def test_a_row_of_csv_with_other_columns_is_counted_and_an_open_quote_refused(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"text\tn\none\t1\n\ntwo\ncaf\xe9\t2\nthree\t3\n")
    report = import_sources([path], tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == ["one", "three"]
    assert report.skipped == {"not_utf8": 1, "other_columns": 1}
    path = tmp_path / "b.csv"
    path.write_text('text\none\n"two\nthree\n')
    with pytest.raises(DataError, match=r"b\.csv: line 3: ") as caught:
        import_sources([path], tmp_path / "d.parquet")
    assert "quote" in caught.value.hint and not (tmp_path / "d.parquet").exists()


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "binary"])
def test_parquet_gives_each_row_whatever_its_groups_and_type(tmp_path, small_units, kind):
    given = [*texts(200), None, *texts(20)]
    column = pa.array(given, pa.string())
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(221), "content": column}), path, row_group_size=13)
    report = import_sources([path], tmp_path / "c.parquet")
    expected = [("a.parquet", str(n), text) for n, text in enumerate(given, 1) if text]
    assert taken(report) == expected and report.skipped == {"no_text": 1}
    assert len(list(parquet_rows.parquet_units(path, "content"))) > 3


def test_a_row_may_say_its_licence(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "license": "MIT"}\n{"text": "b", "license": ["MIT"]}\n')
    table = pa.table({"text": ["c", "d"], "licence": ["GPL-3.0-only OR MIT", "what? ever"]})
    pq.write_table(table, tmp_path / "b.parquet")
    report = import_sources([path, tmp_path / "b.parquet"], tmp_path / "c.parquet")
    said = pq.read_table(report.out).column("licence").to_pylist()
    assert said == ["MIT", None, "GPL-3.0-only OR MIT", None]


def test_another_column_is_taken_by_name_and_a_missing_one_refused_with_those_there(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["one"], column="prose")
    with pytest.raises(DataError, match=r"a\.jsonl: no column text or .*\(columns: id, prose\)"):
        import_sources([path], tmp_path / "c.parquet")
    report = import_sources([path], tmp_path / "c.parquet", Asked(column="prose"))
    assert taken(report)[0][2] == "one"


def test_a_column_asked_for_may_be_missing_in_the_first_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "t"}\n{"text": "t", "prose": "two"}\n')
    report = import_sources([path], tmp_path / "c.parquet", Asked(column="prose"))
    assert [row[2] for row in taken(report)] == ["two"] and report.skipped == {"no_text": 1}


def test_a_column_that_is_not_text_is_refused(tmp_path):
    table = pa.table({"text": [1, 2]})
    pq.write_table(table, tmp_path / "n.parquet")
    with pytest.raises(DataError, match="column text holds int64, not strings"):
        import_sources([tmp_path / "n.parquet"], tmp_path / "d.parquet")


def test_sources_of_several_kinds_keep_their_order(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "m.py").write_text("m = 1\n")
    (tmp_path / "notes").write_text("a text\n")
    rows = jsonl(tmp_path / "z.jsonl", ["one", "two"])
    report = import_sources([rows, tmp_path / "src", tmp_path / "notes"], tmp_path / "c.parquet")
    assert taken(report) == [
        ("z.jsonl", "1", "one"), ("z.jsonl", "2", "two"), ("src", "m.py", "m = 1\n"),
        ("notes", "notes", "a text\n"),
    ]  # fmt: skip
    assert {name: one.documents for name, one in report.counts.sources.items()} == {
        "z.jsonl": 2, "src": 1, "notes": 1,
    }  # fmt: skip
    assert [one["kind"] for one in read_record(report.out).settings["sources"]] == [
        "jsonl", "folder", "text",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["a.zip", "a.tar.gz", "b.jsonl.zst", "c.tgz", "d.csv.gz", "e.json"]
)
def test_what_holds_files_or_another_form_is_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\3\4 ../../etc/passwd")
    with pytest.raises(ConfigError, match="cannot be imported") as caught:
        import_sources([tmp_path / name], tmp_path / "c.parquet")
    assert name in caught.value.message and name in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="is a pipe or a device"):
        import_sources([tmp_path / "a.jsonl"], tmp_path / "c.parquet")


@pytest.mark.parametrize(
    "name, content, cause",
    [
        ("a.jsonl", b"", "it is empty"),
        ("a.jsonl", b"text\n", "line 1 is not json"),
        ("a.jsonl.gz", b"plain", "damaged gzip"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "one"}\n' * 9, mtime=0)[:-9], "damaged gzip"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"text\n", "no usable document"),
        ("a.parquet", b"PAR1", "not a readable Parquet"),
        ("a.txt", b"\x7fELF\0", "1 binary"),
    ],
)
def test_a_file_without_documents_is_refused_with_the_cause(tmp_path, name, content, cause):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=cause) as caught:
        import_sources([tmp_path / name], tmp_path / "out")
    assert name in caught.value.message and caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("rows", "elsewhere"),
    [
        ([{"content": "a"}, {"text": "b"}, {"text": "c"}], {"text": 2}),
        ([{"content": "a"}, {"content": None, "body": "b"}], {"body": 1}),
        ([{"content": "a"}, {"content": " ", "code": "b"}], {"code": 1}),
        ([{"content": "a"}, {"id": "7", "prompt": "longer"}], {"prompt": 1}),
        ([{"content": "a"}, {"content": None, "id": "7"}, {"content": 7}], {}),
    ],
)
def test_rows_with_their_text_in_another_column_are_told_by_its_name(tmp_path, rows, elsewhere):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = import_sources([path], tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == ["a"]
    assert dict(report.counts.sources["a.jsonl"].elsewhere) == elsewhere
    assert read_record(report.out).counts.to_json() == report.counts.to_json()


@pytest.mark.parametrize("kind", ["string", "dictionary"])
def test_rows_of_parquet_with_their_text_in_another_column_are_told_by_its_name(tmp_path, kind):
    table = {"text": ["a", None, "", "d"], "body": ["w", "x", "y", None]}
    columns = {name: pa.array(said, pa.string()) for name, said in table.items()}
    if kind == "dictionary":
        columns = {name: column.dictionary_encode() for name, column in columns.items()}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=2)
    report = import_sources([tmp_path / "a.parquet"], tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == ["a", "d"]
    assert dict(report.counts.sources["a.parquet"].elsewhere) == {"body": 2}


def test_a_column_of_parquet_that_holds_nothing_gives_way_to_one_of_text(tmp_path):
    table = pa.table({"text": pa.nulls(1), "content": ["one"]})
    pq.write_table(table, tmp_path / "a.parquet")
    report = import_sources([tmp_path / "a.parquet"], tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == ["one"]


def test_the_column_of_text_is_found_wherever_it_first_stands(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"id": n} for n in range(150)] + [{"id": 150, "text": "late"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = import_sources([path], tmp_path / "c.parquet")
    assert taken(report) == [("a.jsonl", "151", "late")]
    assert report.skipped == {"no_text": 150}


@pytest.mark.parametrize(
    ("body", "texts", "elsewhere"),
    [
        ("id,text\n1,a\nid,text\n2,b\n", ["a", "b"], {}),
        ("id,text\n1,a\ntext,id\nb,2\n", ["a", "b"], {}),
        ("id,text\n1,a\nid,text,url\n2,b,u\n", ["a", "b"], {}),
        ("id,text\n1,a\nid,content\n2,b\n", ["a"], {"content": 1}),
        ("text\na\ntext\nb\n", ["a", "b"], {}),
        ("id,text\n1,the text\n2,text\n", ["the text", "text"], {}),
    ],
)
def test_a_heading_in_mid_file_says_where_the_text_of_its_rows_is(tmp_path, body, texts, elsewhere):
    (tmp_path / "a.csv").write_text(body)
    report = import_sources([tmp_path / "a.csv"], tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == texts
    assert dict(report.counts.sources["a.csv"].elsewhere) == elsewhere


def test_files_of_one_folder_may_have_different_columns_and_each_says_which(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(pa.table({"text": ["a"]}), folder / "0.parquet")
    pq.write_table(pa.table({"id": [1], "content": ["b"]}), folder / "1.parquet")
    with pytest.raises(DataError) as refused:
        import_sources([folder], tmp_path / "c.parquet")
    assert f"albor data import {folder}/*.parquet" in refused.value.hint
    report = import_sources(sorted(folder.iterdir()), tmp_path / "c.parquet")
    assert [text for _, _, text in taken(report)] == ["a", "b"]
    assert [source.column for source in report.sources] == ["text", "content"]
    asked = Asked(column="text")
    with pytest.raises(DataError, match=r"1\.parquet: no column text \(columns: id, content\)"):
        import_sources(sorted(folder.iterdir()), tmp_path / "d.parquet", asked)
