"""How long similar documents take to find, in how much memory, and how many are found.

    python benchmarks/data/dedup.py [--root DIR] [--rounds 3] [--files 20000] [--short 1000000]
                                    [--peer FOLDER]

Three parts, each on a corpus that is made once below --root, the same for ever:

  files    so many source-like files (median 4 KB, mean 6 KB), a tenth copies, a sixth edited
           copies: `albor data dedup --near`, whole processes, by one and by two workers
  short    so many documents of some 250 bytes: the same, its memory held against 1 GB; that of the
           largest process (ru_maxrss) and of all together (looked at 20 times a second)
  recall   2,000 files: what is left out against what exact Jaccard of all pairs says

datasketch takes part in `recall` where it is installed, or in FOLDER, with the same shingles,
permutations and bands. Rounds are interleaved; medians, spread and the load are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.clean.minhash import bands_for
from albor_core.data.stage.corpus import open_corpus

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import from_zero, new_folder, positive, there

PROMISED_S, PROMISED_BYTES, PROMISED_RECALL = 60.0, 1 << 30, 0.95
GAPS = np.array([" ", " ", " ", "\n    ", "(", ")", ", ", " = ", ".", "\n\n", ":\n        "])


def words_of(chance: np.random.Generator) -> np.ndarray:
    letters = np.array(list("etaoinshrdlucmfwygpbvk"))
    return np.array(
        ["".join(chance.choice(letters, chance.integers(2, 11))) for _ in range(20_000)], object
    )


def text_of(chance: np.random.Generator, words: np.ndarray, count: int) -> np.ndarray:
    """Words and gaps in turn; common words as common as in source code."""
    ranks = np.minimum(len(words) * chance.random(count) ** 3, len(words) - 1).astype(int)
    made = np.empty(2 * count, object)
    made[::2], made[1::2] = words[ranks], GAPS[chance.integers(0, len(GAPS), count)]
    return made


def documents(seed: int, count: int, mean_words: float, spread: float) -> Iterator[str]:
    """A tenth are copies of an earlier one, a sixth have up to a twentieth of its words changed."""
    chance = np.random.default_rng(seed)
    words = words_of(chance)
    recent: list[np.ndarray] = []
    for _ in range(count):
        kind = chance.random()
        if recent and kind < 0.26:
            made = recent[chance.integers(len(recent))].copy()
            if kind < 0.16:
                changed = chance.random(len(made)) < chance.random() * 0.05
                made[changed] = words[chance.integers(0, len(words), int(changed.sum()))]
        else:
            size = int(mean_words * np.exp(spread * chance.standard_normal())) + 5
            made = text_of(chance, words, size)
            if len(recent) < 2000:
                recent.append(made)
            else:
                recent[chance.integers(2000)] = made
        yield "".join(made)


def corpus(root: Path, name: str, count: int, mean_words: float, spread: float) -> Path:
    path = root / f"{name}-{count}.parquet"
    if path.exists():
        return path
    print(f"making {path}", file=sys.stderr)
    schema = pa.schema([("text", pa.string()), ("source", pa.string()), ("file", pa.string())])
    temp = path.with_suffix(".tmp")
    with pq.ParquetWriter(temp, schema, compression="zstd") as writer:
        texts: list[str] = []
        number = 0
        for text in documents(1, count, mean_words, spread):
            texts.append(text)
            if len(texts) == 4096 or number + len(texts) == count:
                names = [f"{number + n:07d}.py" for n in range(len(texts))]
                sources = [f"s{(number + n) % 7}" for n in range(len(texts))]
                columns = {"text": texts, "source": sources, "file": names}
                writer.write_table(pa.table(columns, schema=schema))
                number, texts = number + len(texts), []
    temp.replace(path)
    return path


def dedup(path: Path, out: Path, workers: int) -> dict[str, Any]:
    """One whole process: seconds, peaks of memory in bytes, and what it said."""
    argv = [sys.executable, "-m", "albor_core.cli", "data", "dedup", str(path), "-o", str(out),
            "--near", "--force", "--json", "--workers", str(workers)]  # fmt: skip
    together = [0]

    def watch(pid: int) -> None:
        while True:
            try:
                process = psutil.Process(pid)
                family = [process, *process.children(recursive=True)]
                together[0] = max(together[0], sum(one.memory_info().rss for one in family))
            except psutil.Error:
                return
            time.sleep(0.05)

    began = time.perf_counter()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        watcher = threading.Thread(target=watch, args=(process.pid,), daemon=True)
        watcher.start()
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    took = time.perf_counter() - began
    if process.returncode:
        sys.exit(f"{argv}: exit code {process.returncode}")
    largest = used.ru_maxrss * 1024
    return {"s": took, "largest": largest, "together": together[0], "said": json.loads(said)}


def show(name: str, runs: list[dict[str, Any]], bytes_in: int) -> None:
    times = [run["s"] for run in runs]
    said = runs[0]["said"]
    print(
        f"{name:<22} {statistics.median(times):7.1f} s ({min(times):.1f} to {max(times):.1f})  "
        f"{bytes_in / statistics.median(times) / 1e6:6.1f} MB/s  largest process "
        f"{max(run['largest'] for run in runs) / 2**20:6.0f} MiB, all "
        f"{max(run['together'] for run in runs) / 2**20:6.0f} MiB  "
        f"{said['documents']:,} of {said['documents_in']:,} stay, {said['dropped']}, "
        f"{said['extra']}"
    )


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    tokens = re.findall(r"[0-9A-Za-z_]+|[\x21-\x7e]", text)
    return frozenset(tuple(tokens[i : i + 5]) for i in range(max(1, len(tokens) - 4)))


def plainly(sets: list[frozenset[tuple[str, ...]]], threshold: float) -> set[int]:
    """What goes, by the exact similarity of each to all that stay before it."""
    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    gone = set()
    for number, ours in enumerate(sets):
        common: dict[int, int] = defaultdict(int)
        for one in ours:
            for other in holders[one]:
                common[other] += 1
        if any(
            both >= threshold * (len(ours) + len(sets[other]) - both)
            for other, both in common.items()
        ):
            gone.add(number)
            continue
        for one in ours:
            holders[one].append(number)
    return gone


def peer_gone(sets: list[frozenset[tuple[str, ...]]], threshold: float) -> set[int]:
    from datasketch import MinHash, MinHashLSH

    bands = bands_for(threshold)
    index = MinHashLSH(num_perm=bands.permutations, params=(bands.count, bands.rows))
    gone = set()
    for number, ours in enumerate(sets):
        sketch = MinHash(num_perm=bands.permutations)
        sketch.update_batch([" ".join(one).encode() for one in ours])
        if any(len(ours & sets[k]) >= threshold * len(ours | sets[k]) for k in index.query(sketch)):
            gone.add(number)
        else:
            index.insert(number, sketch)
    return gone


def recall(root: Path, path: Path, threshold: float = 0.8) -> None:
    texts = [text.decode() for _, text in open_corpus(path).documents()]
    sets = [shingles(text) for text in texts]
    truth = plainly(sets, threshold)
    began = time.perf_counter()
    run = dedup(path, root / "out-recall", 1)
    ours_s = time.perf_counter() - began
    kept = {int(key[-10:-3]) for key, _ in open_corpus(root / "out-recall").documents()}
    ours = set(range(len(texts))) - kept
    found, pairs = len(ours & truth) / len(truth), run["said"]["extra"]["compared"]
    print(
        f"recall at {threshold}, albor      {found:.4f} of {len(truth)}, {len(ours - truth)} more, "
        f"{ours_s:.1f} s, a whole process; {pairs} pairs compared"
    )
    try:
        began = time.perf_counter()
        theirs = peer_gone(sets, threshold)
    except ImportError:
        print("recall at 0.8, datasketch: not installed")
        return
    print(
        f"recall at {threshold}, datasketch {len(theirs & truth) / len(truth):.4f}, "
        f"{len(theirs - truth)} more, {time.perf_counter() - began:.1f} s, shingles made before"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=new_folder)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--files", type=from_zero, default=20_000)
    parser.add_argument("--short", type=from_zero, default=1_000_000)
    parser.add_argument("--peer", type=there)
    asked = parser.parse_args()
    if asked.peer:
        sys.path.insert(0, str(asked.peer))
    with tempfile.TemporaryDirectory() as folder:
        root = asked.root or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        print(f"load {os.getloadavg()}, {len(os.sched_getaffinity(0))} cores")
        parts = {"files": (asked.files, 450.0, 0.9), "short": (asked.short, 30.0, 0.5)}
        for name, (count, mean, spread) in parts.items():
            if not count:
                continue
            path = corpus(root, name, count, mean, spread)
            runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
            for _ in range(asked.rounds):
                for workers, several in runs.items():
                    several.append(dedup(path, root / "out", workers))
            for workers, several in runs.items():
                show(f"{name}, {workers} workers", several, open_corpus(path).text_bytes)
        recall(root, corpus(root, "files", 2000, 450.0, 0.9))
        print(
            f"promised: {PROMISED_S:.0f} s for 20,000 files on 2 cores, "
            f"{PROMISED_BYTES >> 20} MiB for 1,000,000 documents, recall {PROMISED_RECALL}"
        )
        print(f"load {os.getloadavg()}")


if __name__ == "__main__":
    main()
