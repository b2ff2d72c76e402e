"""python tests/chaos/soak.py --faults 200 --seeds 1 2: break one run over its whole length.

The faults are spread evenly over its steps, so the run is neither over before the last nor
spared in its middle. At the end it has to be where the undisturbed run is: verdict.py. A lane for
each seed; exits 1 on any violation. The same seed breaks the same things in the same order.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from faults import MIX, Scene, deck, is_words
from figures import render
from shim import Shim, build, compiler
from stage import GoneWrongError, Stage
from verdict import End, end_of, processes_of, violations

STEPS_PER_FAULT = 45
# As slow on any machine: a command takes a second or two, in which a run must not get far.
PACE = {"ALBOR_FAULTS": "data:sleep=0.025@1-1000000"}
_READ_EVERY_S = 3.0
_LAST = 0.97  # of the run, at most: the last fault, and what those before it cost, take steps


@dataclass
class Outcome:
    """What one seed came to."""

    seed: int
    steps: int
    struck: list[tuple[str, int]] = field(default_factory=list)
    """(kind, step) of each fault that landed."""
    missed: list[str] = field(default_factory=list)
    """Kinds that found nothing to hit."""
    deaths: int = 0
    reads: int = 0
    points: int = 0
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class Readers(threading.Thread):
    """Somebody who looks at the run all the time."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(daemon=True)
        self.stage, self.reads, self.wrong = stage, 0, list[str]()
        self.over = threading.Event()

    def run(self) -> None:
        orders = (("runs", "ls"), ("runs", "show", self.stage.name))
        while not self.over.wait(_READ_EVERY_S):
            words = orders[self.reads % len(orders)]
            wrong = is_words(self.stage.albor(*words, "--json"))
            self.wrong += [f"albor {' '.join(words)}: {wrong}"] if wrong else []
            self.reads += 1


def undisturbed(folder: Path, steps: int) -> End:
    """The end of the run that nothing happens to."""
    stage = Stage(folder, "calm", steps, None, {})
    stage.start()
    stage.wait(lambda: stage.is_over, "the undisturbed run did not end", 3600.0)
    stage.wait(lambda: not stage.run.liveness().is_alive, "its guard did not leave")
    return end_of(stage)


def soak(
    folder: Path,
    library: Path,
    seed: int,
    faults: int,
    steps: int,
    wanted: End,
    kinds: tuple[str, ...] = (),
    *,
    environ: dict[str, str] | None = None,
) -> Outcome:
    """One run, broken `faults` times. `environ` is for its processes: what a test plants there."""
    began, outcome = time.monotonic(), Outcome(seed, steps)
    (folder / "shim").mkdir(parents=True)
    shim = Shim(library, folder / "work", folder / "shim")
    stage = Stage(folder / "work", f"seed-{seed}", steps, shim, PACE | (environ or {}))
    scene = Scene(stage, shim, random.Random(seed))
    readers = Readers(stage)
    try:
        stage.start()
        readers.start()
        for number, kind in enumerate(deck(faults, scene.chance, kinds), 1):
            stage.reach(int(_LAST * steps * (number - 0.5) / faults))
            if stage.is_over:
                raise GoneWrongError(f"it was over before fault {number} of {faults}")
            _strike(scene, kind, outcome)
        stage.wait(lambda: stage.is_over, "it did not end", 3600.0)
        stage.wait(lambda: not stage.run.liveness().is_alive, "its guard did not leave")
    except Exception as error:
        scene.violations.append(f"{type(error).__name__}: {error}")
    else:
        readers.over.set()
        readers.join()
        scene.violations += violations(scene, wanted)
        outcome.points = len(wanted.points)
    finally:
        readers.over.set()
        for pid in processes_of(stage):
            os.kill(pid, 9)
    scene.violations += readers.wrong + _spread(outcome, faults)
    outcome.violations, outcome.recoveries = scene.violations, scene.recoveries
    outcome.deaths, outcome.reads = scene.deaths, readers.reads
    outcome.seconds = time.monotonic() - began
    return outcome


def _strike(scene: Scene, kind: str, outcome: Outcome) -> None:
    step = scene.stage.where()[1]
    if MIX[kind][1](scene):
        outcome.struck.append((kind, step))
    else:
        outcome.missed.append(kind)
    print(f"seed {outcome.seed}: step {step}: {kind}", file=sys.stderr, flush=True)


def tenths(outcome: Outcome) -> list[int]:
    """How many faults struck in each tenth of the run."""
    counts = [0] * 10
    for _, step in outcome.struck:
        counts[min(9, 10 * step // outcome.steps)] += 1
    return counts


_FOR_TENTHS = 20  # with fewer faults a slow command may carry a run through a tenth


def _spread(outcome: Outcome, faults: int) -> list[str]:
    bare = [number for number, count in enumerate(tenths(outcome), 1) if not count]
    wrong = [f"nothing struck in tenth {bare} of the run"] if bare and faults >= _FOR_TENTHS else []
    if 10 * len(outcome.missed) > faults:
        wrong.append(f"{len(outcome.missed)} of {faults} faults hit nothing")
    return wrong


def _lane(job: tuple) -> Outcome:
    return soak(*job)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps-per-fault", type=int, default=STEPS_PER_FAULT)
    parser.add_argument(
        "--kinds", nargs="+", choices=MIX, default=(), metavar="KIND", help="these, equally often"
    )
    parser.add_argument("--json", action="store_true", help="the figures as one document")
    options = parser.parse_args()
    if compiler() is None:
        print("make chaos needs a C compiler: gcc or cc", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="albor-chaos-"))
    steps = options.faults * options.steps_per_fault
    library, wanted = build(folder), undisturbed(folder / "calm", steps)
    jobs = [
        (
            folder / f"seed-{seed}",
            library,
            seed,
            options.faults,
            steps,
            wanted,
            tuple(options.kinds),
        )
        for seed in options.seeds
    ]
    with multiprocessing.Pool(min(len(jobs), os.cpu_count() or 1)) as lanes:
        outcomes = lanes.map(_lane, jobs, chunksize=1)
    if options.json:
        print(json.dumps([{**asdict(one), "tenths": tenths(one)} for one in outcomes]))
    else:
        print("\n".join(render(one, tenths(one), options.faults) for one in outcomes))
        load = " ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{os.cpu_count()} cores, load {load}")
    if any(one.violations for one in outcomes):
        print(f"what is left of it: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
