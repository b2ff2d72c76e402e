"""The documents of a corpus by name, licence and size; the text is read, not kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import IMPORT_HINT, Corpus
from albor_core.data.stage.lengths import LengthHistogram
from albor_core.run.errors import DataError

UNKNOWN = "unknown"
_KNOWN = ("source", "file", "licence")
_ROWS_PER_READ = 1024


@dataclass
class Survey:
    """Sums over documents; sizes are UTF-8 bytes of text."""

    documents: int = 0
    bytes: int = 0
    sources: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Source -> documents, bytes."""
    licences: Counter[str] = field(default_factory=Counter)
    """SPDX id, or `UNKNOWN` -> documents."""
    lengths: LengthHistogram = field(default_factory=LengthHistogram)

    def add(self, table: pa.Table) -> None:
        """`table` is one of `names_and_sizes`."""
        self.lengths.add(table.column("bytes").to_numpy())
        groups = table.group_by("source", use_threads=False)
        for row in groups.aggregate([("bytes", "sum"), ("bytes", "count")]).to_pylist():
            documents, size = self.sources.get(row["source"], (0, 0))
            self.sources[row["source"]] = documents + row["bytes_count"], size + row["bytes_sum"]
            self.documents += row["bytes_count"]
            self.bytes += row["bytes_sum"]
        for licence in table.column("licence").value_counts().to_pylist():
            self.licences[licence["values"]] += licence["counts"]


def survey(corpus: Corpus, progress: Progress | None = None) -> Survey:
    """Read every document once. Raises DataError naming a file that cannot be decoded."""
    found = Survey()
    for table in names_and_sizes(corpus):
        found.add(table)
        if progress is not None:
            progress(found.documents, corpus.rows)
    return found


def names_and_sizes(corpus: Corpus) -> Iterator[pa.Table]:
    """Columns source, file, licence and bytes of all documents, in order; names as `read_unit` has
    them. Raises DataError naming a file that cannot be decoded.
    """
    for file in corpus.files:
        try:
            reader = pq.ParquetFile(
                file, memory_map=True, pre_buffer=False, page_checksum_verification=True
            )
            names = set(reader.schema_arrow.names)
            columns = [one for one in (corpus.column, *_KNOWN) if one in names]
            for batch in reader.iter_batches(batch_size=_ROWS_PER_READ, columns=columns):
                yield _table(batch, file, corpus.column)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{file}: cannot be read as Parquet: {error}", hint=IMPORT_HINT
            ) from error


def _table(batch: pa.RecordBatch, file: Path, column: str) -> pa.Table:
    text = batch.column(column).cast(pa.large_binary())
    if {"source", "file"} <= set(batch.schema.names):
        source = batch.column("source").cast(pa.string())
        name = batch.column("file").cast(pa.string())
    else:
        source = pa.array([file.stem] * len(text), pa.string())
        hashes = [hashlib.sha256(one or b"").hexdigest() for one in text.to_pylist()]
        name = pa.array(hashes, pa.string())
    licence = pa.array([UNKNOWN] * len(text), pa.string())
    if "licence" in batch.schema.names and _is_text(batch.schema.field("licence").type):
        licence = batch.column("licence").cast(pa.string()).fill_null(UNKNOWN)
    return pa.table(
        {
            "source": source,
            "file": name,
            "licence": licence,
            "bytes": pc.binary_length(text).fill_null(0),
        }
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
