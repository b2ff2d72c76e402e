"""How fast documents are held to quality rules and searched for secrets and personal data.

    python benchmarks/data/quality.py [--root DIR] [--megabytes 200] [--rounds 3] [--peer FOLDER]

The corpus is the Python files of the installed packages, repeated to --megabytes of text. Commands
are whole processes. What is promised is for a core, so bytes are divided by the CPU time of the
process and all its workers (user and system), less what the same command takes for one document;
seconds on the clock stand beside it, as the machine was. Rounds are interleaved; medians, spread
and load are printed.

Peers do alike in this process, without reading and writing files, where they are installed or in
FOLDER (`pip install --target FOLDER datatrove nltk spacy detect-secrets`), on the first
--peer-megabytes: datatrove's Gopher filters without n-grams and its PII formatter, detect-secrets,
and `quality` in plain Python, which the tests hold ours to.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.stage.corpus import open_corpus

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import above_zero, new_folder, positive, there

ALBOR = [sys.executable, "-m", "albor_core.cli", "data"]
MASK = ("--secrets", "mask", "--personal-data", "mask")
IMPORT_AND_QUALITY, ALL_OF_FILTER = 25.0, 10.0  # MB/s a core, promised
INSTALLED = Path(pa.__file__).parents[1]
ENGINE = ("quality", "--profile", "score", "--set", "min_score=none")


@dataclass(frozen=True)
class Spent:
    """Of one process and all that it started, in seconds."""

    clock: float
    cpu: float


def run(*words: str) -> Spent:
    began = time.perf_counter()
    process = subprocess.Popen([*ALBOR, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{words}: {said.decode()[-2000:]}")
    return Spent(time.perf_counter() - began, used.ru_utime + used.ru_stime)


def make_corpus(root: Path, megabytes: int) -> tuple[Path, Path]:
    """The corpus, and a folder with one document, for what it costs to start."""
    tiny, path = root / "tiny", root / f"corpus-{megabytes}.parquet"
    tiny.mkdir(parents=True, exist_ok=True)
    (tiny / "one.py").write_text("".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(20)))
    run("import", str(tiny), "-o", str(root / "one.parquet"), "--force")
    if path.exists():
        return path, tiny
    once = root / "once.parquet"
    run("import", str(INSTALLED), "-o", str(once), "--force")
    table = pq.read_table(once, columns=["text", "source", "file"])
    temp, written, turn = path.with_suffix(".tmp"), 0, 0
    with pq.ParquetWriter(temp, table.schema, compression="zstd") as writer:
        while written < megabytes * 1_000_000:
            for batch in table.to_batches(512):
                names = pa.array([f"{turn}/{name.as_py()}" for name in batch.column(2)])
                part = pa.table([batch.column(0), batch.column(1), names], schema=table.schema)
                writer.write_table(part)
                written += batch.column(0).nbytes
                if written >= megabytes * 1_000_000:
                    break
            turn += 1
    temp.replace(path)
    return path, tiny


def commands(root: Path, corpus: Path, source: Path) -> dict[str, tuple[str, ...]]:
    """Name -> words; each is run for `tiny` too."""
    data, out = str(corpus), str(root / "out")
    return {
        "import": ("import", str(source), "-o", str(root / f"{source.name}.parquet"), "--force"),
        "read and write, all rules off": (*ENGINE, data, "-o", out, "--force", "--workers", "1"),
        "quality": ("quality", data, "-o", out, "--force", "--workers", "1"),
        "quality, 2 workers": ("quality", data, "-o", out, "--force", "--workers", "2"),
        "secrets": ("filter", data, "-o", out, "--force", "--workers", "1", *MASK[:2]),
        "secrets and personal data": (
            *("filter", data, "-o", out, "--force", "--workers", "1"), *MASK,
        ),
        "the same, 2 workers": (
            *("filter", data, "-o", out, "--force", "--workers", "2"), *MASK,
        ),
    }  # fmt: skip


def measured(root: Path, corpus: Path, tiny: Path, rounds: int) -> dict[str, list[Spent]]:
    large = commands(root, corpus, INSTALLED)
    small = commands(root, root / "one.parquet", tiny)
    found: dict[str, list[Spent]] = {}
    for number in range(rounds + 1):  # the first fills the page cache
        for name in large:
            whole, start = run(*large[name]), run(*small[name])
            if number:
                less = Spent(whole.clock - start.clock, whole.cpu - start.cpu)
                found.setdefault(name, []).append(less)
    return found


def documents(corpus: Path, megabytes: float) -> list[str]:
    texts: list[str] = []
    for batch in pq.ParquetFile(corpus).iter_batches(256, columns=["text"]):
        for text in batch.column(0).to_pylist():
            if texts and megabytes <= 0:
                return texts
            texts.append(text)
            megabytes -= len(text) / 1e6
    return texts


def plain(text: str) -> float:
    """The figures of `quality` in plain Python."""
    lines = text.split("\n")
    written = [line.strip() for line in lines if line.strip()]
    counts = Counter(text).values()
    n = max(len(text), 1)
    alpha = sum(map(str.isalnum, text)) / n
    entropy = -sum(count / n * math.log2(count / n) for count in counts)
    return alpha + entropy + max(map(len, lines)) + len(set(written)) / max(len(written), 1)


def peers() -> Iterator[tuple[str, Callable[[str], object]]]:
    yield "quality in plain Python", plain
    try:
        from datatrove.data import Document
        from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
        from datatrove.pipeline.formatters.pii import PIIFormatter
    except ImportError as error:
        print(f"datatrove: not measured ({error})")
    else:
        quality, personal = GopherQualityFilter(), PIIFormatter()
        repetition = GopherRepetitionFilter(top_n_grams=(), dup_n_grams=())

        def gopher(text: str) -> object:
            document = Document(text=text, id="1")
            return quality.filter(document), repetition.filter(document)

        yield "datatrove: Gopher quality and repeated lines", gopher
        yield "datatrove: PII (e-mail and IP addresses alone)", personal.format
    try:
        from detect_secrets.core.scan import scan_line
        from detect_secrets.settings import default_settings
    except ImportError as error:
        print(f"detect-secrets: not measured ({error})")
    else:

        def secrets(text: str) -> object:
            with default_settings():
                return [list(scan_line(line)) for line in text.split("\n")]

        yield "detect-secrets: scan_line, default plugins", secrets


def rate(texts: list[str], what: Callable[[str], object]) -> float:
    """MB/s of CPU time; a document that the peer cannot take is an error of the peer's."""
    what(texts[0])
    began = time.process_time()
    for text in texts:
        what(text)
    return sum(len(text.encode()) for text in texts) / (time.process_time() - began) / 1e6


def show(name: str, size: float, spent: list[Spent]) -> float:
    rates = sorted(size / one.cpu / 1e6 for one in spent)
    clock = statistics.median(one.clock for one in spent)
    print(f"{name:48}{statistics.median(rates):9.1f}{rates[0]:9.1f}{rates[-1]:9.1f}{clock:9.1f}")
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=new_folder)
    parser.add_argument("--megabytes", type=positive, default=200)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--peer", type=there)
    parser.add_argument("--peer-megabytes", type=above_zero, default=3.0)
    given = parser.parse_args()
    if given.peer:
        sys.path.append(str(given.peer))
    with tempfile.TemporaryDirectory() as temporary:
        root = (given.root or Path(temporary)).absolute()
        corpus, tiny = make_corpus(root, given.megabytes)
        found = measured(root, corpus, tiny, given.rounds)
        opened, imported = (
            open_corpus(corpus),
            open_corpus(root / f"{INSTALLED.name}.parquet").text_bytes,
        )
        size = opened.text_bytes
        texts = documents(corpus, given.peer_megabytes)
        print(f"{opened.rows:,} documents, {size / 1e6:,.0f} MB, {given.rounds} rounds,"
              f" load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")  # fmt: skip
        print(f"{'MB/s a core (CPU time, start-up left out)':48}{'median':>9}{'least':>9}"
              f"{'most':>9}{'clock s':>9}")  # fmt: skip
        rates = {n: show(n, imported if n == "import" else size, s) for n, s in found.items()}
        both = 1 / (1 / rates["import"] + 1 / rates["quality"])
        for name, value, promised in (
            ("import and quality", both, IMPORT_AND_QUALITY),
            ("secrets and personal data", rates["secrets and personal data"], ALL_OF_FILTER),
        ):
            verdict = "held" if value >= promised else "MISSED"
            print(f"{name:48}{value:9.1f}   promised {promised:.0f}: {verdict}")
        for name, what in peers():
            print(f"{name:48}{rate(texts, what):9.1f}   first {given.peer_megabytes:.0f} MB")


if __name__ == "__main__":
    main()
