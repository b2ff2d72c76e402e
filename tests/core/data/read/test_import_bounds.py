"""Files made to exhaust whoever reads them: memory stays bounded, what is dropped is counted.

All are read by one process that may map 200 MiB more than it has once everything is loaded; each
would need several times that, if it was read as a whole or as it claims to be.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.read import parquet_rows
from albor_core.data.read.sources import import_sources
from albor_core.run.errors import DataError

HUGE = 512 << 20
READER = """
import json, resource, sys
from pathlib import Path
import pyarrow as pa
pa.set_memory_pool(pa.system_memory_pool())  # others map far ahead of what they use
import albor_core.data.read.sources as sources, gzip, csv, pyarrow.parquet
from albor_core.run.errors import AlborError
folder = Path(sys.argv[1])
(folder / "warm").write_text("up")
sources.import_sources([folder / "warm"], folder / "warm.parquet")
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (mapped + (200 << 20),) * 2)
said = {}
for name in sys.argv[2:]:
    try:
        report = sources.import_sources([folder / name], folder / "out" / name)
        said[name] = [report.files, report.skipped]
    except AlborError as error:
        said[name] = f"{error.code}: {error.message}"
said["grown_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps(said))
"""


def line_without_end(path: Path, before: bytes) -> None:
    path.write_bytes(before)
    with path.open("r+b") as stream:
        stream.truncate(HUGE)  # a hole: zeros that take no room


def gzip_of_zeros(path: Path) -> None:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    block = bytes(1 << 24)
    with path.open("wb") as stream:
        stream.write(packer.compress(b'{"text": "one"}\n'))
        for _ in range(20):
            stream.write(packer.compress(block))
        stream.write(packer.flush())


def repeated(path: Path, rows: int, value: str, groups: int = 1) -> None:
    """One value, `rows` times: its dictionary holds it once."""
    once = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))
    table = pa.table({"text": once})
    how = {"compression": "zstd", "store_schema": False, "write_statistics": False}
    with pq.ParquetWriter(path, table.schema, dictionary_pagesize_limit=1 << 30, **how) as writer:
        for _ in range(groups):
            writer.write_table(table)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "out").mkdir()
    line_without_end(folder / "line.jsonl", b'{"text": "one"}\n')
    line_without_end(folder / "line.csv", b"text\none\n")
    line_without_end(folder / "line.txt", b"one")
    (folder / "tree").mkdir()
    line_without_end(folder / "tree" / "a.py", b"one")
    (folder / "tree" / "b.py").write_text("two\n")
    for name in ("empty.py", "not_utf8.py"):
        (folder / "tree" / name).write_bytes(b"" if name == "empty.py" else b"caf\xe9\n")
    gzip_of_zeros(folder / "bomb.jsonl.gz")
    repeated(folder / "terabytes.parquet", 1_000_000, "x" * (1 << 20), groups=4)
    repeated(folder / "gigabytes.parquet", 40_000, "x" * (1 << 20))
    repeated(folder / "page.parquet", 1, "x" * (200 << 20))
    done = subprocess.run(
        [sys.executable, "-c", READER, folder, *(
            "line.jsonl", "line.csv", "line.txt", "tree", "bomb.jsonl.gz", "terabytes.parquet",
            "gigabytes.parquet", "page.parquet",
        )],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"sizes": {p.name: p.stat().st_size for p in folder.iterdir()}}


def test_a_line_of_half_a_gigabyte_is_one_document_too_large(said):
    assert said["line.jsonl"] == [1, {"too_large": 1}]
    assert said["tree"] == [1, {"empty": 1, "not_utf8": 1, "too_large": 1}]
    assert said["line.txt"].startswith("data_refused: ") and "1 too_large" in said["line.txt"]
    assert "line.csv: line 3: a row longer than" in said["line.csv"]


def test_a_compressed_file_that_expands_too_far_is_refused(said):
    assert "bomb.jsonl.gz: expands to more than 200 times its size" in said["bomb.jsonl.gz"]


@pytest.mark.parametrize("name", ["terabytes.parquet", "gigabytes.parquet", "page.parquet"])
def test_a_parquet_file_that_stands_for_much_more_is_refused(said, name):
    assert said["sizes"][name] < 200_000
    assert f"{name}: expands to more than 200 times its size" in said[name]


def test_reading_all_of_them_took_little_memory(said):
    assert said["grown_kib"] < 150 << 10


def test_a_footer_that_cannot_be_true_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({f"c{n}": ["x"] for n in range(20)} | {"text": ["x"]}), path)
    monkeypatch.setattr(parquet_rows, "MAX_COLUMNS", 20)
    with pytest.raises(DataError, match="has 21 columns, more than 20"):
        import_sources([path], tmp_path / "c.parquet")
    monkeypatch.setattr(parquet_rows, "MAX_FOOTER_BYTES", 100)
    with pytest.raises(DataError, match="its footer is larger"):
        import_sources([path], tmp_path / "c.parquet")


def test_a_page_that_claims_more_than_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    rng = np.random.default_rng(1)
    text = rng.integers(97, 123, 64 << 20, np.uint8).tobytes().decode()
    pq.write_table(pa.table({"text": [text]}), path, compression="none")
    monkeypatch.setattr(parquet_rows, "MEMORY_BYTES", 16 << 20)
    with pytest.raises(DataError, match="takes more than 16 MiB of memory"):
        import_sources([path], tmp_path / "c.parquet")
    monkeypatch.undo()
    with pytest.raises(DataError, match="1 too_large"):
        import_sources([path], tmp_path / "c.parquet")
