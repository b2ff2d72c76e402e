"""How fast `albor data import` reads small source files, beside plain pyarrow and `datasets`.

    python benchmarks/data/imports.py                          # 200 MB, 5 rounds
    pip install --target /tmp/site datasets                   # for the peer, in a folder of its own
    python benchmarks/data/imports.py --peer /tmp/site --json

The corpus is the .py files of this interpreter's library and packages, in the order of their paths,
copied over into numbered folders until there are --megabytes of them; it is read once before any
clock starts, so it lies in the page cache. All contenders write zstd Parquet, one after another in
each round:

- albor, to a folder and to one file, by one process and by two: keys, SHA-256 of every text and of
  every part, counts by reason, checks that no file changed, fsync.
- pyarrow: read, decode, write; one process, no key but the path, nothing checked, no fsync.
- datasets: load_dataset("text", sample_by="document") and to_parquet, by one process and by two.

Start-up is left out: modules are imported before the clock starts, and what two processes need to
start and stop is measured by an import of next to nothing and subtracted. MB are 10^6 bytes of
text; a core's MB/s are those of a second of processor time, children included, which a busy
machine stretches less than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.read import inputs, sources, tree

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive, there

Job = Callable[[Path], object]


def build(root: Path, megabytes: int) -> tuple[int, int]:
    """Files and bytes of the corpus below `root`."""
    paths = sysconfig.get_paths()
    places = sorted({paths["stdlib"], paths["purelib"], str(Path(pa.__file__).parents[1])})
    found = sorted({file.resolve() for place in places for file in Path(place).rglob("*.py")})
    texts = []
    for file in found:
        try:
            raw = file.read_bytes()
            raw.decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if raw.strip() and b"\0" not in raw and len(raw) <= 1 << 20:
            texts.append((str(file).lstrip("/"), raw))
    if not texts:
        sys.exit("no Python package is installed here")
    files = size = copy = 0
    while size < megabytes * 10**6:
        for name, raw in texts:
            path = root / f"copy{copy:03d}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
            files, size = files + 1, size + len(raw)
            if size >= megabytes * 10**6:
                break
        copy += 1
    return files, size


def all_files(root: Path) -> list[str]:
    return sorted(str(path) for path in root.rglob("*.py"))


def by_pyarrow(root: Path, out: Path) -> None:
    """The same columns by the shortest program that writes them."""
    schema = pa.schema([("text", pa.string()), ("source", pa.string()), ("file", pa.string())])
    with pq.ParquetWriter(out, schema, compression="zstd", compression_level=3) as writer:
        texts: list[str] = []
        names: list[str] = []
        pending = 0

        def flush() -> None:
            source = [root.name] * len(texts)
            writer.write_table(pa.Table.from_arrays([texts, source, names], schema=schema))

        for name in all_files(root):
            texts.append(Path(name).read_bytes().decode("utf-8"))
            names.append(name)
            pending += len(texts[-1])
            if pending >= 8 << 20:
                flush()
                texts, names, pending = [], [], 0
        if texts:
            flush()


def by_datasets(root: Path, out: Path, workers: int) -> None:
    import datasets

    found = datasets.load_dataset(
        "text", data_files=all_files(root), split="train", sample_by="document",
        cache_dir=str(out / "cache"), num_proc=workers,
    )  # fmt: skip
    found.to_parquet(str(out / "out.parquet"))


def by_albor(root: Path, out: Path, workers: int) -> None:
    sources.import_sources([root], out, inputs.Asked(git=False), workers=workers)


def contenders(root: Path, peer: bool) -> dict[str, tuple[int, Job]]:
    """Name -> processes, job."""
    found: dict[str, tuple[int, Job]] = {
        "albor, folder": (1, lambda out: by_albor(root, out / "c", 1)),
        "albor, folder, 2 processes": (2, lambda out: by_albor(root, out / "c", 2)),
        "albor, one file": (1, lambda out: by_albor(root, out / "c.parquet", 1)),
        "albor, one file, 2 processes": (2, lambda out: by_albor(root, out / "c.parquet", 2)),
        "pyarrow, one file": (1, lambda out: by_pyarrow(root, out / "c.parquet")),
    }
    if peer:
        found["datasets, one file"] = (1, lambda out: by_datasets(root, out, 1))
        found["datasets, one file, 2 processes"] = (2, lambda out: by_datasets(root, out, 2))
    return found


def timed(job: Job, scratch: Path) -> tuple[float, float]:
    """Seconds by the clock and of the processor, children included."""
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    before, clock = os.times(), time.perf_counter()
    job(out)
    clock, after = time.perf_counter() - clock, os.times()
    return clock, sum(after[:4]) - sum(before[:4])


def start_up(scratch: Path) -> tuple[float, float]:
    """Of two processes: an import of two files, a piece each, less the same by one process."""
    root = scratch / "two"
    root.mkdir(exist_ok=True)
    for name in ("a.py", "b.py"):
        (root / name).write_text("a = 1\n")
    kept = tree.UNIT_BYTES
    tree.UNIT_BYTES = 1
    try:
        one = timed(lambda out: by_albor(root, out / "c", 1), scratch)
        two = timed(lambda out: by_albor(root, out / "c", 2), scratch)
    finally:
        tree.UNIT_BYTES = kept
    return two[0] - one[0], two[1] - one[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=positive, default=200)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--peer", type=there, help="a folder that `datasets` is installed in")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.peer:
        sys.path.append(str(given.peer))  # behind ours: both use the same pyarrow
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    try:
        import datasets

        peer = f"datasets {datasets.__version__}"
    except ImportError:
        peer = ""
    with tempfile.TemporaryDirectory(prefix="albor-bench-") as name:
        scratch = Path(name)
        files, size = build(scratch / "corpus", given.megabytes)
        measure(scratch, files, size, peer, given)


def measure(scratch: Path, files: int, size: int, peer: str, given: argparse.Namespace) -> None:
    for path in all_files(scratch / "corpus"):
        Path(path).read_bytes()
    sources.SPREAD_BYTES = 0  # two processes even where one would do
    jobs = contenders(scratch / "corpus", bool(peer))
    load = os.getloadavg()[0]
    clocks: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    starts = []
    for _ in range(given.rounds):
        starts.append(start_up(scratch))
        for name, (_, job) in jobs.items():
            clocks[name].append(timed(job, scratch))
    begun = [statistics.median(one) for one in zip(*starts, strict=True)]
    rows = []
    for name, (processes, _) in jobs.items():
        less = begun if processes > 1 and name.startswith("albor") else [0.0, 0.0]
        wall = [size / 1e6 / (clock - less[0]) for clock, _ in clocks[name]]
        core = [size / 1e6 / (spent - less[1]) for _, spent in clocks[name]]
        rows.append(
            {
                "name": name, "processes": processes, "mb_per_s": statistics.median(wall),
                "mb_per_core_s": statistics.median(core), "least": min(core), "most": max(core),
            }
        )  # fmt: skip
    facts = {
        "files": files, "bytes": size, "rounds": given.rounds, "cores": os.cpu_count(),
        "load_before": load, "load_after": os.getloadavg()[0], "peer": peer or None,
        "start_up_s": begun[0], "pyarrow": pa.__version__,
    }  # fmt: skip
    if given.json:
        print(json.dumps({**facts, "rows": rows}))
        return
    print(
        f"{files:,} files, {size / 1e6:.0f} MB, {given.rounds} rounds, {os.cpu_count()} cores, "
        f"load {load:.1f} before and {os.getloadavg()[0]:.1f} after; pyarrow {pa.__version__}, "
        f"{peer or 'datasets is not installed'}; two processes start in {begun[0]:.2f} s"
    )
    print(f"{'':32} {'MB/s':>7} {'MB/s a core (median, least, most)':>36}")
    for row in rows:
        print(
            f"{row['name']:32} {row['mb_per_s']:7.1f} {row['mb_per_core_s']:16.1f} "
            f"{row['least']:9.1f} {row['most']:9.1f}"
        )


if __name__ == "__main__":
    main()
