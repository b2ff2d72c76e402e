"""The spans of runs as one OTLP document in JSON, written as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TextIO

from albor_core.run.rundir import RunDir
from albor_core.store.spans.otlp import document, encoded
from albor_core.store.spans.reading import SpanReader

_PAGE = 1000


def write_spans(runs: Sequence[RunDir], file: TextIO) -> int:
    """One resourceSpans or more a run, of at most _PAGE spans each; returns the number of spans.
    Raises NotFoundError, OSError.
    """
    written, comma = 0, ""
    file.write('{"resourceSpans":[')
    for run in runs:
        reader = SpanReader(run)
        spans = reader.spans(is_alive=run.liveness().is_alive)
        while page := list(islice(spans, _PAGE)):
            (part,) = document(page, reader.fold.ids, reader.about)["resourceSpans"]
            file.write(comma + encoded(part).decode())
            written, comma = written + len(page), ","
    file.write("]}\n")
    return written
