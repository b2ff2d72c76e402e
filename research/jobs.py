"""Many measurements on the cards of one host, within the time that it is there.

    python research/jobs.py FILE --out DIR [--cards N] [--minutes M]

FILE has a job a line, the most wanted first: `SECONDS NAME COMMAND`, where $OUT in a command is
DIR. Each sees one card alone, one at a time; a line `---` waits for all before it (a corpus that
the rest reads). A job is begun only if it would end in time, and ended (-9, all of its processes)
after twice its seconds. NAME.log in DIR has what it says, jobs.json how each ended; what ended well
is not run again. Exit code 0 where all ended well, else 1; 2 where FILE or DIR is refused, and
nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import above_zero, new_folder, positive

ROOT = Path(__file__).resolve().parents[1]
TIMES = 2.0  # the seconds a job says, and it is ended
KEPT = "jobs.json"
MOST_BYTES = 255  # of the name of a file


Item, Card, Result = TypeVar("Item"), TypeVar("Card"), TypeVar("Result")


@dataclass(frozen=True)
class Job:
    seconds: float
    name: str
    command: str


@dataclass(frozen=True)
class Ended:
    name: str
    how: str
    """exit N, no time, or too long."""
    seconds: float
    card: str


def stages(text: str) -> Iterator[list[Job]]:
    """Jobs that may run beside each other. ValueError names a line that is none."""
    found: list[Job] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(maxsplit=2)
        if not words or words[0].startswith("#"):
            continue
        if words == ["---"]:
            yield found
            found = []
            continue
        try:
            seconds, name, command = words
            found.append(Job(above_zero(seconds), name, command))
        except ValueError:
            raise ValueError(f"line {number}: {line!r} is not SECONDS NAME COMMAND") from None
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"line {number}: {error}") from None
        if "\0" in command:
            raise ValueError(f"line {number}: a command has no NUL")
    yield found


def log_of(name: str) -> str:
    return f"{name}.log"


def check(jobs: Sequence[Job]) -> None:
    """ValueError where two would share a log, or one is no name of a file."""
    names = [job.name for job in jobs]
    for name in names:
        if names.count(name) > 1 or not re.fullmatch(r"[\w.+=@-]*\w[\w.+=@-]*", name):
            raise ValueError(f"{name!r} is no name of a file of its own")
        if len(os.fsencode(log_of(name))) > MOST_BYTES:
            raise ValueError(f"{name!r} is too long for a name of a file")


def over_cards(
    items: Sequence[Item], work: Callable[[Item, Card], Result], cards: Sequence[Card]
) -> Iterator[Result]:
    """`work` of each item, one at a time on each card; results as they come."""
    free: queue.SimpleQueue[Card] = queue.SimpleQueue()
    for card in cards:
        free.put(card)

    def on_a_card(item: Item) -> Result:
        card = free.get()
        try:
            return work(item, card)
        finally:
            free.put(card)

    with ThreadPoolExecutor(len(cards)) as pool:
        for done in as_completed([pool.submit(on_a_card, item) for item in items]):
            yield done.result()


def run(job: Job, card: str, out: Path, until: float) -> Ended:
    begun = time.monotonic()
    if begun + job.seconds > until:
        return Ended(job.name, "no time", 0.0, card)
    limit = min(TIMES * job.seconds, until - begun)
    env = os.environ | {"CUDA_VISIBLE_DEVICES": card, "OUT": str(out)}
    with (out / log_of(job.name)).open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", job.command], cwd=ROOT, env=env, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            how = f"exit {process.wait(limit)}"
        except subprocess.TimeoutExpired:
            how = "too long"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ended(job.name, how, round(time.monotonic() - begun, 1), card)


def known_in(out: Path, logs: Sequence[str]) -> dict[str, Any]:
    """What ended there before, by name; the folder is made. ValueError where one cannot write
    in it, or what is there is something else."""
    kept = out / KEPT
    try:
        known = {one["name"]: one for one in json.loads(kept.read_text())} if kept.exists() else {}
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{kept}: not what this wrote: {error}; take it away to run every job again"
        ) from None
    except OSError as error:
        raise ValueError(f"{kept}: {error.strerror}") from None
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
        for file in filter(Path.exists, [kept, *(out / log for log in logs)]):
            with file.open("a"):
                pass
    except OSError as error:
        raise ValueError(f"--out {error.filename}: {error.strerror}") from None
    return known


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=new_folder, required=True, help="logs and results go here")
    parser.add_argument("--cards", type=positive, default=1, help="GPUs to spread the jobs over")
    parser.add_argument("--minutes", type=float, default=600.0, help="until all is to be over")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    out = options.out.resolve()
    try:
        text = options.file.read_text("utf-8")
    except OSError as error:
        parser.error(f"{options.file}: {error.strerror}")
    except UnicodeDecodeError:
        parser.error(f"{options.file}: is not text in UTF-8")
    if not options.minutes >= 0:
        parser.error("--minutes: a number from 0")
    try:
        parts = list(stages(text))
        everything = [job for jobs in parts for job in jobs]
        check(everything)
        known = known_in(out, [log_of(job.name) for job in everything])
    except ValueError as error:
        parser.error(str(error))
    cards = [str(number) for number in range(options.cards)]
    for jobs in parts:
        left = [job for job in jobs if known.get(job.name, {}).get("how") != "exit 0"]
        for ended in over_cards(left, lambda job, card: run(job, card, out, until), cards):
            print(f"{ended.name}: {ended.how}, {ended.seconds} s on card {ended.card}", flush=True)
            known[ended.name] = asdict(ended)
            (out / KEPT).write_text(json.dumps(list(known.values()), indent=1))
    return int(any(known[job.name]["how"] != "exit 0" for job in everything))


if __name__ == "__main__":
    sys.exit(main())
