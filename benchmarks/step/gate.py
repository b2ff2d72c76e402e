"""Does this checkout take longer than another? Steps and kernels, process beside process.

    python benchmarks/step/gate.py --against CHECKOUT [--pairs 9] [--limit 0.10] [--device cuda|cpu]
                                   [--op NAME]... [--batches 4 16 64] [--json FILE]
    python benchmarks/step/gate.py --write-baseline | --baseline | --self-test OP

Measured are the fused step at each batch (on a GPU; as step_pairs.py does) and every op by `albor
kernels bench`, forward and with backward, of the backend that dispatch takes. A pair is a process
of either checkout, one after the other, the order turned from pair to pair. Slower is what has a
median ratio above 1 + limit and a lower quartile above 1: by much, and most pairs say so.

Pairs count, because a time alone says as much of the GPU as of the code: its clock drifts, and at
its power limit it depends on temperature, on the card and on what ran before; both processes of a
pair meet nearly the same. benchmarks/baselines/DEVICE.json (--write-baseline: medians, versions,
commit) is from another day, often another card of that kind: a tripwire, told beside the pairs and
decisive only with --baseline. What it catches wants pairs before it is believed.

--self-test OP: a copy of this checkout must pass, and one whose OP does its work --times times must
not, naming OP and nothing else. It times OP and those of --op. A CPU works with one thread: two on
cores that others use wait for each other, and that is what would be timed.

Exit code 0: nothing is slower; 1: something is; 2: no such device, or no measurement.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import step_pairs
import torch

from albor_core.kernels.dispatch import OPS

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, not_negative, positive

ROOT = step_pairs.ROOT
BASELINES = ROOT / "benchmarks" / "baselines"
FEWEST = 3  # pairs that can agree
ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
TIMES = {"forward_us": "forward us", "step_us": "with backward us"}
SLOWED = """

def _slowed(fn):
    def again(*inputs, **how):
        for _ in range({times} - 1):
            fn(*inputs, **how)
        return fn(*inputs, **how)

    return None if fn is None else again


from dataclasses import replace as _replace  # noqa: E402

from albor_core.kernels.dispatch import op as _op  # noqa: E402

_fast = _op({name!r})
_ways = {{name: _slowed(getattr(_fast, name)) for name in ("reference", "triton", "instead")}}
register(_replace(_fast, **_ways))
"""
"""Put at the end of an op's module."""

Figures = dict[str, float]
"""A time for each measured quantity, whose name begins with the op's."""


@dataclass(frozen=True)
class Judged:
    """A quantity of two checkouts: medians, and quartiles of the ratio here over there."""

    quantity: str
    here: float
    there: float
    low: float
    middle: float
    high: float
    is_slower: bool

    def __str__(self) -> str:
        spread = f" (quartiles {self.low:.3f} to {self.high:.3f})" if self.low < self.high else ""
        times = f"{self.here:.5g} against {self.there:.5g}, ratio {self.middle:.3f}"
        return f"{'SLOWER  ' * self.is_slower}{self.quantity}: {times}{spread}"


def judge(pairs: list[dict[str, Figures]], limit: float) -> tuple[list[Judged], list[str]]:
    """What was measured of both in every pair, judged; and the names of what was not."""
    sides = [pair[name] for pair in pairs for name in ("here", "there")]
    names = list(dict.fromkeys(name for side in sides for name in side))
    shared = [name for name in names if all(name in side for side in sides)]
    judged = []
    for name in shared:
        here, there = ([pair[who][name] for pair in pairs] for who in ("here", "there"))
        ratios = [a / b for a, b in zip(here, there, strict=True)]
        low, middle, high = step_pairs.quartiles(ratios)
        slower = middle > 1 + limit and low > 1
        times = statistics.median(here), statistics.median(there)
        judged.append(Judged(name, *times, low, middle, high, slower))
    return judged, [name for name in names if name not in shared]


def judge_baseline(
    found: list[Figures], figures: Figures, limit: float
) -> tuple[list[Judged], list[str]]:
    """Medians of several processes against those of a baseline: no pairs, hence no quartiles."""
    return judge([{"here": medians(found), "there": figures}], limit)


def medians(found: list[Figures]) -> Figures:
    shared = set(found[0]).intersection(*found)
    return {name: statistics.median(one[name] for one in found) for name in sorted(shared)}


def kernel_times(checkout: Path, options: argparse.Namespace) -> Figures:
    """By `albor kernels bench` of that checkout."""
    command = [sys.executable, "-m", "albor_core.cli", "kernels", "bench", "--json", "--no-compile"]
    ops = [word for name in options.op for word in ("--op", name)]
    command += ["--rounds", str(options.kernel_rounds), *ops]
    environment = step_pairs.environment(checkout) | (ON_CPU if options.device == "cpu" else {})
    how = {"cwd": checkout, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, check=True, **how)
    found = {}
    for result in json.loads(done.stdout)["results"]:
        taken = next(c for c in result["candidates"] if c["backend"] == result["chosen"])
        for key, words in TIMES.items():
            if taken[key] is not None:
                found[f"{result['op']} {words}"] = taken[key]
    return found


def measured(checkout: Path, options: argparse.Namespace) -> Figures:
    """Everything of one checkout, once."""
    steps = {}
    if options.device == "cuda" and options.batches:
        steps = {f"step B{B} ms": ms for B, ms in step_pairs.measured(checkout, options).items()}
    return steps | kernel_times(checkout, options)


def paired(here: Path, there: Path, options: argparse.Namespace) -> list[dict[str, Figures]]:
    pairs: list[dict[str, Figures]] = []
    for number in range(options.pairs):
        order = step_pairs.in_turn(here, there, number)
        pairs.append({name: measured(checkout, options) for name, checkout in order})
        sys.stderr.write(f"pair {number + 1} of {options.pairs}\n")
        if options.json:  # of a gate that is cut off there are these
            options.json.write_text(json.dumps({"pairs": pairs}, indent=1))
    return pairs


def gate(here: Path, there: Path, options: argparse.Namespace) -> list[Judged]:
    """Tells of every quantity; what is slower comes back."""
    pairs = paired(here, there, options)
    judged, apart = judge(pairs, options.limit)
    show(judged, apart)
    if options.json:
        document = {"device": device_name(options.device), "limit": options.limit, "pairs": pairs}
        told = {"judged": [asdict(one) for one in judged], "not_compared": apart}
        options.json.write_text(json.dumps(document | told, indent=1))
    path = baseline_path(options.device)
    if here == ROOT and path.exists():
        print(f"for information, against {path.relative_to(ROOT)}:")
        figures = json.loads(path.read_text())["figures"]
        show(*judge_baseline([pair["here"] for pair in pairs], figures, options.limit))
    return [one for one in judged if one.is_slower]


def show(judged: list[Judged], apart: list[str]) -> None:
    for one in judged:
        print(one)
    print(f"not compared, since not measured of both: {', '.join(apart) or 'nothing'}")


def self_test(options: argparse.Namespace) -> bool:
    """Whether a copy passes and a slowed one is found."""
    name = options.self_test
    options.op, options.batches = list(dict.fromkeys([name, *options.op])), []
    with tempfile.TemporaryDirectory() as folder:
        same, slow = (copied(Path(folder) / which) for which in ("same", "slow"))
        (module,) = (slow / "albor_core" / "kernels" / "ops").rglob(f"{name}.py")
        module.write_text(module.read_text() + SLOWED.format(name=name, times=options.times))
        print("a copy:")
        of_copy = gate(same, ROOT, options)
        print(f"a copy whose {name} does its work {options.times} times:")
        found = {one.quantity.split()[0] for one in gate(slow, ROOT, options)}
    print(f"self-test: slower in a copy {len(of_copy)}, in the slowed one {sorted(found)}")
    return not of_copy and found == {name}


def copied(folder: Path) -> Path:
    shutil.copytree(ROOT / "albor_core", folder / "albor_core")
    return folder


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def baseline_path(device: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", device_name(device).lower()).strip("-")
    return BASELINES / f"{slug}.json"


def write_baseline(options: argparse.Namespace) -> None:
    """Anew behind each process: of a baseline that is cut off there is what was measured."""
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    told = subprocess.run(git, capture_output=True, text=True)
    path = baseline_path(options.device)
    path.parent.mkdir(exist_ok=True)
    found: list[Figures] = []
    for _ in range(options.pairs):
        found.append(measured(ROOT, options))
        document = {
            "device": device_name(options.device),
            "torch": torch.__version__,
            "triton": version("triton") if find_spec("triton") else None,
            "commit": told.stdout.strip() or None,
            "processes": len(found),
            "figures": medians(found),
        }
        path.write_text(f"{json.dumps(document, indent=1)}\n")
    print(f"{path}: medians of {options.pairs} processes")


def compare_baseline(options: argparse.Namespace) -> bool:
    """Whether nothing is slower than it was."""
    baseline = json.loads(baseline_path(options.device).read_text())
    told = ", ".join(f"{key} {baseline[key]}" for key in ("commit", "torch", "triton", "processes"))
    print(f"against {told}")
    found = [measured(ROOT, options) for _ in range(options.pairs)]
    judged, apart = judge_baseline(found, baseline["figures"], options.limit)
    show(judged, apart)
    return not any(one.is_slower for one in judged)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", type=Path, metavar="CHECKOUT")
    what.add_argument("--baseline", action="store_true", help="against benchmarks/baselines")
    what.add_argument("--write-baseline", action="store_true")
    what.add_argument("--self-test", metavar="OP", help="find OP made slow, and nothing in a copy")
    parser.add_argument("--times", type=int, default=2, help="that OP works in the self-test")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--pairs", type=int, default=9, help="or processes, for a baseline")
    parser.add_argument("--limit", type=float, default=0.10, help="a share of the time: 0.10")
    parser.add_argument("--op", action="append", default=[], help="time this op; repeatable")
    parser.add_argument("--kernel-rounds", type=positive, default=7)
    parser.add_argument(
        "--batches", type=positive, nargs="*", default=[4, 16, 64], help="none: no step"
    )
    parser.add_argument("--shape", default="350m", help="of the step's model")
    parser.add_argument("--warm", type=not_negative, default=4.0)
    parser.add_argument("--rounds", type=positive, default=3, help="of the step")
    parser.add_argument("--json", type=new_file, help="write the figures of each pair here, too")
    options = parser.parse_args()
    if unknown := [n for n in [*options.op, options.self_test] if n and n not in OPS]:
        parser.error(f"no op {unknown[0]!r}; there are {', '.join(OPS)}")
    least = FEWEST if options.against or options.self_test else 1
    problems = {
        "--limit must be above 0": not options.limit > 0,
        "--times must be at least 2": options.times < 2,
        "--json needs --against": options.json and not options.against,
        f"--pairs must be at least {least}": options.pairs < least,
        f"{options.against} is not a checkout of Albor": options.against
        and not (options.against / "albor_core" / "kernels").is_dir(),
    }
    if found := [words for words, holds in problems.items() if holds]:
        parser.error(found[0])
    return options


def main() -> int:
    options = parsed()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.stderr.write(
            "benchmarks/step/gate.py needs a CUDA GPU, or --device cpu; there is none\n"
        )
        return 2
    if options.baseline and not (path := baseline_path(options.device)).exists():
        sys.stderr.write(f"{path} is missing: benchmarks/step/gate.py --write-baseline\n")
        return 2
    print(f"{device_name(options.device)}, torch {torch.__version__}")
    try:
        if options.self_test or options.baseline:
            return 0 if (self_test if options.self_test else compare_baseline)(options) else 1
        if options.write_baseline:
            write_baseline(options)
            return 0
        slower = gate(ROOT, options.against.resolve(), options)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(
            f"{' '.join(map(str, error.cmd))} ended with {error.returncode}\n{error.stderr or ''}"
        )
        return 2
    print(f"slower: {', '.join(one.quantity for one in slower) or 'nothing'}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
