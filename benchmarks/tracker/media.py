"""What media cost a training loop that logs numbers beside them, and what of them is on the disk.

    python benchmarks/tracker/media.py [--images 1000] [--tables 200] [--rows 10000] [--kills 20]

Two loops of as many steps as images, each in a process of its own: one keeps an image of 64 x 64
pixels a step and, at every fifth, a table of 10,000 rows and three columns; the other keeps none.
Half of the pictures and tables are said a second time. Both log eight doubles ten times a step;
every call is timed. Printed beside what is promised, with the load of the machine: microseconds of
`log`, milliseconds of `image` and `table`, and the files of the run against the distinct contents.

Then a loop that keeps pictures without end is killed by SIGKILL at random moments: counted are
files that are not what their name says, records whose file is not there, and media that were
acknowledged (`flush` had returned) and have no record.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from albor_core.run.files.media_file import hash_of, kept
from albor_core.run.journal import read_journal

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import from_zero, positive

PROMISED_US = 10.0
_SIDE = 64


def loop(images: int, tables: int, rows: int, logs: int) -> dict[str, Any]:
    """One loop in this process: nanoseconds of each kind of call, and where the run lies."""
    import numpy

    from albor_core import track
    from albor_core.track import media

    chance = numpy.random.default_rng(1)
    pictures = [
        chance.integers(0, 256, (_SIDE, _SIDE, 3), dtype=numpy.uint8)
        for _ in range((images + 1) // 2)
    ]
    sheets = [_sheet(number, rows) for number in range((tables + 1) // 2)]
    steps = max(images, 1000 if not images else 0)
    every = max(1, steps // tables) if tables else 0
    values = {f"key{number}": random.Random(number).random() for number in range(8)}
    took: dict[str, list[int]] = {"log": [], "image": [], "table": []}
    clock = time.perf_counter_ns
    run = track.start("media")
    step = said = 0
    for number in range(steps):
        if images:
            began = clock()
            run.image("samples", pictures[number % len(pictures)], step=step + 1)
            took["image"].append(clock() - began)
        if every and number % every == 0 and said < tables:
            began = clock()
            run.table("rows", sheets[said % len(sheets)], columns=["n", "x", "word"])
            took["table"].append(clock() - began)
            said += 1
        for _ in range(logs):
            step += 1
            began = clock()
            run.log(values, step=step)
            took["log"].append(clock() - began)
    began = clock()
    is_whole = media.flush(run, 600.0)
    waited = clock() - began
    run.close()
    return {"took": took, "flush": waited, "path": str(run.path), "odd": run.odd.counts,
            "whole": is_whole}  # fmt: skip


def _sheet(number: int, rows: int) -> list[list[Any]]:
    chance = random.Random(number)
    return [[row, chance.random(), f"word {row % 97}"] for row in range(rows)]


def race(home: Path, *sizes: int) -> dict[str, Any]:
    """`loop` in a fresh process."""
    command = [sys.executable, __file__, "--loop", *map(str, sizes)]
    done = subprocess.run(
        command, env={**os.environ, "ALBOR_HOME": str(home)}, stdout=subprocess.PIPE, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def endless() -> None:
    """Keep pictures until killed; each number on stdout is that of one that is acknowledged."""
    import numpy

    from albor_core import track
    from albor_core.track import media

    chance = numpy.random.default_rng()
    run = track.start("dying")
    print(run.path, flush=True)
    step = 0
    while True:
        step += 1
        run.image("samples", chance.integers(0, 256, (256, 256, 3), dtype=numpy.uint8), step=step)
        if step % 7 == 0 and media.flush(run):
            print(step, flush=True)


def killed(home: Path, delay_s: float) -> tuple[int, int, int, int]:
    """(media recorded, files that are not whole, records without a file, acknowledged and lost)."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--endless"],
        env={**os.environ, "ALBOR_HOME": str(home)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as told:
        run = Path(told.readline().strip())
        told.readline()  # the first are safe
        time.sleep(delay_s)
        process.kill()
        acknowledged = max((int(one) for one in told if one.endswith("\n")), default=7)
    process.wait()
    said = [line.record or {} for line in read_journal(run / "journal.jsonl")]
    shown = {one["step"]: one["hash"] for one in said if one.get("t") == "b"}
    names = {path.stem: path for path, _ in kept(run)}
    torn = sum(hash_of(path.read_bytes()) != name for name, path in names.items())
    gone = sum(digest not in names for digest in shown.values())
    lost = sum(step not in shown for step in range(1, acknowledged + 1))
    return len(shown), torn, gone, lost


def line(name: str, spans: list[int], unit: float, word: str, promised: str = "") -> None:
    if spans:
        ordered = sorted(spans)
        middle = statistics.median(ordered) / unit
        tail = ordered[int(len(ordered) * 0.99)] / unit
        print(f"{name:<28}{middle:>10.2f} {word} median{tail:>10.2f} p99   {promised}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("images", 1000), ("tables", 200), ("rows", 10_000), ("logs", 10)):
        parser.add_argument(f"--{name}", type=positive, default=default)
    parser.add_argument("--kills", type=from_zero, default=20)
    parser.add_argument("--endless", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--loop", type=int, nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.loop:
        print(json.dumps(loop(*given.loop)))
        return
    if given.endless:
        endless()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        bare = race(Path(folder) / "bare", 0, 0, 0, given.logs)
        full = race(Path(folder) / "full", given.images, given.tables, given.rows, given.logs)
        files = list(kept(Path(full["path"])))
        hashes = {hash_of(path.read_bytes()) for path, _ in files}
        chance = random.Random(2)
        deaths = [killed(Path(folder) / "dead", chance.uniform(0, 0.5)) for _ in range(given.kills)]
    print(f"load {load:.1f} before and {os.getloadavg()[0]:.1f} after, {os.cpu_count()} processors")
    line("log, no media", bare["took"]["log"], 1e3, "us")
    line("log, between media", full["took"]["log"], 1e3, "us", f"promised: {PROMISED_US:g} us")
    line("image", full["took"]["image"], 1e6, "ms")
    line(f"table of {given.rows:,} rows", full["took"]["table"], 1e6, "ms")
    print(f"{'until the last was safe':<28}{full['flush'] / 1e6:>10.1f} ms after the loop")
    wanted = (given.images + 1) // 2 + (given.tables + 1) // 2
    size = sum(status.st_size for _, status in files) / 2**20
    print(f"{'on the disk':<28}{len(files):>10,} files, {size:.1f} MiB   promised: {wanted:,}, each"
          f" once")  # fmt: skip
    print(f"{'refused':<28}{sum(full['odd'].values()):>10,}   {full['odd'] or ''}")
    recorded, torn, gone, lost = map(sum, zip((0, 0, 0, 0), *deaths, strict=True))
    print(
        f"{f'{given.kills} kills':<28}{recorded:>10,} media recorded; {torn} half, {gone} without a"
        f" file, {lost} acknowledged and lost   promised: 0, 0, 0"
    )
    if len(hashes) != len(files) or torn or gone or lost or not full["whole"] or full["odd"]:
        sys.exit("media are missing, doubled or damaged")


if __name__ == "__main__":
    main()
