"""`albor data pretokenize` beside plain `tokenizers` on the same text, tokenizer and cores.

    python benchmarks/data/pretokenize.py [--rounds 3] [--mb 200] [--folder DIR] [--vocab 32768]

The text: the Python packages that are installed here, imported once into DIR, with a tokenizer
trained on a part of them. The peer holds all of it in memory as str and calls encode_batch_fast,
with its own threads on all cores, and throws the ids away. Ours reads the corpus from Parquet,
encodes, packs, compresses, hashes and writes shards and manifests, by concat and by best-fit. A
process each, in turns, round by round; the start of the interpreter and of imports is left out, the
start of our worker processes is not. Printed: seconds and MB/s of each round, their medians, the
CPU seconds of each, the ratio of the rates of the peer and of concat (round by round, and of the
medians), and the load of the machine. To be believed on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from albor_core.data.pack.tokenizer import train_tokenizer
from albor_core.data.read.sources import import_sources

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_folder, positive

TRAIN_GROUPS = 4  # of the corpus, some 8 MiB each

PEER = """
import json, os, sys, time
import pyarrow.parquet as pq
from tokenizers import Tokenizer
corpus, tokenizer = sys.argv[1:3]
texts = pq.read_table(corpus, columns=["text"]).column(0).to_pylist()
size = sum(len(text.encode()) for text in texts)
encoder = Tokenizer.from_file(tokenizer)
encoder.encode_special_tokens = True
before, began, tokens = os.times(), time.monotonic(), 0
for at in range(0, len(texts), 512):
    encoded = encoder.encode_batch_fast(texts[at : at + 512], add_special_tokens=False)
    tokens += sum(map(len, encoded))
seconds, after = time.monotonic() - began, os.times()
cpu = after.user - before.user + after.system - before.system
print(json.dumps({"bytes": size, "seconds": seconds, "cpu": cpu, "tokens": tokens}))
"""

OURS = """
import json, os, sys, time
from pathlib import Path
from albor_core.data.pack.pretokenize import pretokenize
if __name__ == "__main__":
    corpus, tokenizer, out, workers, packing = sys.argv[1:6]
    before, began = os.times(), time.monotonic()
    made = pretokenize(
        Path(corpus), Path(tokenizer), Path(out), seq_len=1024, val_fraction=0,
        shard_sequences=1024, workers=int(workers), force=True, packing=packing,
    )
    seconds, after = time.monotonic() - began, os.times()
    cpu = sum(after[i] - before[i] for i in range(4))
    train = made.splits["train"]
    tokens = train.tokens + train.dropped_tokens - train.documents
    size = sum(one["bytes"] for one in train.sources.values())
    print(json.dumps({"bytes": size, "seconds": seconds, "cpu": cpu, "tokens": tokens}))
"""


def text(folder: Path, megabytes: int) -> Path:
    """The corpus, of at least so many MB where so much is installed."""
    whole = folder / "packages.parquet"
    if not whole.exists():
        paths = sysconfig.get_paths()
        places = {Path(paths[name]) for name in ("purelib", "platlib", "stdlib")}
        places |= {Path(place) for place in sys.path if place.endswith("site-packages")}
        found = sorted(place for place in places if place.is_dir())
        outer = [one for one in found if not any(other in one.parents for other in found)]
        import_sources(outer, whole)
    corpus = folder / f"packages-{megabytes}.parquet"
    if not corpus.exists():
        reader, size = pq.ParquetFile(whole), 0
        with pq.ParquetWriter(corpus, reader.schema_arrow, compression="zstd") as writer:
            for group in range(reader.num_row_groups):
                if size < megabytes * 1_000_000:
                    writer.write_table(reader.read_row_group(group))
                    size += reader.metadata.row_group(group).column(0).total_uncompressed_size
    return corpus


def tokenizer(folder: Path, corpus: Path, vocab: int) -> Path:
    """Trained on the first part."""
    out = folder / f"tokenizer-{vocab}" / "tokenizer.json"
    if not out.exists():
        reader = pq.ParquetFile(corpus)
        part = folder / "part.parquet"
        groups = list(range(min(TRAIN_GROUPS, reader.num_row_groups)))
        pq.write_table(reader.read_row_groups(groups), part)
        train_tokenizer(part, out, vocab_size=vocab)
    return out


def timed(program: str, *words: object) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(program)
        script.flush()
        line = [sys.executable, script.name, *map(str, words)]
        done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--mb", type=positive, default=200)
    parser.add_argument("--vocab", type=positive, default=32768)
    parser.add_argument(
        "--folder", type=new_folder, default=Path(tempfile.gettempdir()) / "albor-pack"
    )
    parser.add_argument("--workers", type=positive, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    corpus = text(asked.folder, asked.mb)
    words = tokenizer(asked.folder, corpus, asked.vocab)
    rounds: list[tuple[dict[str, float], ...]] = []
    for number in range(asked.rounds):
        peer = timed(PEER, corpus, words)
        found = []
        for packing in ("concat", "best-fit"):
            with tempfile.TemporaryDirectory(dir=asked.folder) as out:
                ours = timed(OURS, corpus, words, Path(out) / "shards", asked.workers, packing)
            if (peer["tokens"], peer["bytes"]) != (ours["tokens"], ours["bytes"]):
                raise SystemExit(f"not the same work: {peer} {ours}")
            found.append(ours)
        ours, best = found
        rounds.append((peer, ours, best))
        ratio = peer["seconds"] / ours["seconds"]
        print(
            f"round {number + 1}: peer {peer['seconds']:.1f} s, {peer['cpu']:.1f} CPU; "
            f"ours {ours['seconds']:.1f} s, {ours['cpu']:.1f} CPU; ratio {ratio:.2f}; "
            f"best-fit {best['seconds']:.1f} s, {best['cpu']:.1f} CPU; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    size = rounds[0][0]["bytes"] / 1e6
    seconds = [statistics.median(one[side]["seconds"] for one in rounds) for side in range(3)]
    ratios = sorted(peer["seconds"] / ours["seconds"] for peer, ours, _ in rounds)
    print(f"{size:.0f} MB, {rounds[0][0]['tokens'] / 1e6:.1f} M tokens, {asked.workers} cores")
    print(f"encode_batch_fast   {size / seconds[0]:6.2f} MB/s (median)")
    print(f"ours                {size / seconds[1]:6.2f} MB/s (median)")
    print(f"ours, best-fit      {size / seconds[2]:6.2f} MB/s (median)")
    print(
        f"ratio               {seconds[0] / seconds[1]:6.2f} of medians; "
        f"rounds {ratios[0]:.2f} to {ratios[-1]:.2f}; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
