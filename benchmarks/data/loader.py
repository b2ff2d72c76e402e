"""What it costs to open a split and to read rows of it, beside reading the shards anew.

    python benchmarks/data/loader.py [--tokens 10B] [--read 64M] [--rounds 5]

Prints the start of a rank on simulated shards (a manifest, and a sparse file as the cache has it):
seconds, and anonymous memory above that of a process which has imported torch. Then, on shards
that are really there, the start of a first and of a next rank, and of one that reads the shards
into its own memory, as every rank had to; and the rates, in tokens per second of one core, of plain
rows, of a mixture, and of fill-in-the-middle with documents kept apart. Medians, lowest and highest
of the rounds, and the load of the machine, since neighbours make all of it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from albor_core.data.load import token_cache
from albor_core.data.load.fim import RowCutter, SentinelIds
from albor_core.data.load.mixture import DrawnSource, MixtureOrder
from albor_core.data.load.order import SequenceOrder
from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.load.token_cache import BLOCK, DIGEST, MAGIC, SCHEMA, Wanted
from albor_core.data.pack.manifest import Shard, load_manifest, shard_fields, write_manifest
from albor_core.run.values.numbers import parse_count

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import positive

SEQ_LEN, VOCAB, END, BATCH = 1024, 32_768, 0, 64
SHARD_TOKENS = 100_000_000

START = """
import sys, time
import torch
def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
before, began = anonymous(), time.perf_counter()
import numpy as np
from pathlib import Path
from albor_core.data.load.order import SequenceOrder
from albor_core.data.load.packed_shards import PackedShards
shards = PackedShards(Path(sys.argv[1]), seq_len=1024, shared_from=int(sys.argv[2]))
order = SequenceOrder(1, len(shards))
shards.batch(order.part(0, 0, 64))
print(time.perf_counter() - began, anonymous() - before, len(shards))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=parse_count, default=10_000_000_000)
    parser.add_argument("--read", type=parse_count, default=64_000_000)
    parser.add_argument("--rounds", type=positive, default=5)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {given.rounds} rounds")
    with tempfile.TemporaryDirectory(prefix="albor-loader-") as folder:
        os.environ["ALBOR_HOME"] = f"{folder}/home"
        simulated = simulate(Path(folder) / "simulated", given.tokens)
        tell_starts(f"start on {given.tokens:,} simulated tokens", simulated, given.rounds)
        real = write(Path(folder) / "real", given.read // SEQ_LEN)
        tell_starts(f"first start on {given.read:,} tokens", real, 1)
        tell_starts("next start", real, given.rounds)
        tell_starts("start that reads the shards itself", real, given.rounds, shared_from=1 << 60)
        tell_rates(real, given.rounds)
    print(f"load {os.getloadavg()[0]:.1f}")


# -- starts ------------------------------------------------------------------------------------


def tell_starts(title: str, split: Path, rounds: int, *, shared_from: int = 0) -> None:
    seconds, anonymous = [], []
    for _ in range(rounds):
        command = [sys.executable, "-c", START, str(split), str(shared_from)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        seconds.append(float(said[0]))
        anonymous.append(int(said[1]) / 1e6)
    print(f"{title:<46} {spread(seconds, 's', 2)}   {spread(anonymous, 'MB', 0)} anonymous")


def simulate(folder: Path, tokens: int) -> Path:
    """A sealed split whose shards are holes, and the cache of it: zeros, with their digests."""
    folder.mkdir(parents=True)
    rows, shards = tokens // SEQ_LEN, []
    per_shard = SHARD_TOKENS // SEQ_LEN
    for index, first in enumerate(range(0, rows, per_shard)):
        number, file = min(per_shard, rows - first), folder / f"shard-{index:05d}.parquet"
        with file.open("wb") as stream:
            stream.truncate(number * SEQ_LEN)
        shards.append(Shard(file.name, number * SEQ_LEN, "0" * 64, number))
    seal(folder, rows, tuple(shards))
    dtype = np.dtype(np.uint16)
    wanted = Wanted(load_manifest(folder), "input_ids", SEQ_LEN, rows, dtype, END, None)
    place = next(token_cache.folders())
    size = wanted.num_bytes
    blocks, rest = divmod(size, BLOCK)
    digests = blake3(bytes(BLOCK)).digest(DIGEST) * blocks
    digests += blake3(bytes(rest)).digest(DIGEST) * bool(rest)
    about = {"schema": SCHEMA, "data_hash": wanted.manifest.data_hash, "seq_len": SEQ_LEN}
    about |= {"rows": rows, "dtype": dtype.str, "tells_documents": True, "max_id": 0}
    text = json.dumps({**about, "bytes": size}).encode()
    with (place / f"{wanted.key}.tokens").open("wb") as stream:
        stream.truncate(size)
        stream.seek(size)
        stream.write(digests + text + len(text).to_bytes(8, "little") + MAGIC)
    return folder


def write(folder: Path, rows: int) -> Path:
    """Shards of random ids in documents of about 400 tokens."""
    folder.mkdir(parents=True)
    draw, shards = np.random.default_rng(1), []
    for index, first in enumerate(range(0, rows, 8192)):
        number, file = min(8192, rows - first), folder / f"shard-{index:05d}.parquet"
        ids = draw.integers(4, VOCAB, (number, SEQ_LEN), dtype=np.uint32)
        ids[draw.random(ids.shape, dtype=np.float32) < 1 / 400] = END
        values = pa.array(ids.ravel())
        offsets = pa.array(np.arange(0, ids.size + 1, SEQ_LEN, dtype=np.int32))
        table = pa.table({"input_ids": pa.ListArray.from_arrays(offsets, values)})
        pq.write_table(table, file, row_group_size=1024)
        shards.append(Shard(file.name, file.stat().st_size, "0" * 64, number))
    seal(folder, rows, tuple(shards))
    return folder


def seal(folder: Path, rows: int, shards: tuple[Shard, ...]) -> None:
    facts = {"split": "train", "seq_len": SEQ_LEN, "vocab_size": VOCAB, "max_id": VOCAB - 1}
    facts |= {"sequences": rows, "tokens": rows * SEQ_LEN, "documents": 1, "dropped_tokens": 0}
    facts |= {"tokenizer_sha256": "", "corpus_sha256": "", "eos_token_id": END}
    write_manifest(folder, {**facts, "shards": shard_fields(shards)})


# -- rates -------------------------------------------------------------------------------------


def tell_rates(split: Path, rounds: int) -> None:
    shared = PackedShards(split, seq_len=SEQ_LEN, shared_from=0)
    own = PackedShards(split, seq_len=SEQ_LEN, shared_from=1 << 60)
    order = SequenceOrder(1, len(shared))
    thirds = [len(shared) // 3] * 3
    sources = [DrawnSource(name, name * 64, rows) for name, rows in zip("abc", thirds, strict=True)]
    weights = {one.data_hash: weight for one, weight in zip(sources, (6, 3, 1), strict=True)}
    mixture = MixtureOrder(1, sources, ((0, weights),))
    fim = RowCutter(0.5, "psm", SentinelIds(1, 2, 3), END, 1)
    boundaries = shared.boundaries
    assert boundaries is not None

    def mixed(start: int) -> None:
        shared.batch(mixture.part(start, 0, BATCH) % mixture.num_sequences)

    def filled(start: int) -> None:
        rows = order.part(start, 0, BATCH)
        ids = shared.batch(rows)
        laid = fim.lay(ids, rows)
        fim.inner(laid, *ids.shape)
        boundaries.numbers(fim.apply(ids, laid))

    for title, work in (
        ("plain rows, mapped", lambda start: shared.batch(order.part(start, 0, BATCH))),
        (
            "plain rows, in memory (the old way)",
            lambda start: own.batch(order.part(start, 0, BATCH)),
        ),
        ("a mixture of three, mapped", mixed),
        ("fill-in-the-middle and documents apart", filled),
    ):
        rates = [rate(work, len(shared)) for _ in range(rounds)]
        print(f"{title:<46} {spread(rates, 'M tokens/s of a core', 0)}")


def rate(work: Callable[[int], object], rows: int) -> float:
    """Millions of tokens a second of CPU time, over about a second of it."""
    done, began = 0, time.process_time()
    while (spent := time.process_time() - began) < 1.0:
        work(done % (rows - BATCH))
        done += BATCH
    return done * SEQ_LEN / spent / 1e6


def spread(values: list[float], unit: str, digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
