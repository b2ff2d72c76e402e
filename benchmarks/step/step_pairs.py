"""The fused step of two checkouts, process beside process: one GPU.

    python benchmarks/step/step_pairs.py --against CHECKOUT [--pairs 9] [--batches 4 16 64]
                                         [--shape 350m] [--warm 4] [--rounds 3] [--json FILE]

Each pair is a process of `train_step.py --only ours` of either checkout, one after the other, the
order turned from pair to pair: what differs is the code. A ratio is the time of this checkout over
that of CHECKOUT; told are the median over pairs, quartiles and range. Exit code 2 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import new_file, not_negative, positive, there

ROOT = Path(__file__).resolve().parents[2]


def measured(checkout: Path, options: argparse.Namespace) -> dict[int, float]:
    """Milliseconds a step for each batch."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        script = next((checkout / "benchmarks").rglob("train_step.py"))  # it has moved before
        command = [sys.executable, script, "--only", "ours", "--json", out]
        command += ["--shape", options.shape, "--batches", *map(str, options.batches)]
        command += ["--warm", str(options.warm), "--rounds", str(options.rounds)]
        subprocess.run(
            command, cwd=checkout, env=environment(checkout), check=True, stdout=subprocess.DEVNULL
        )
        return {row["B"]: row["ms"] for row in json.loads(out.read_text())}


def environment(checkout: Path) -> dict[str, str]:
    """Of a process that imports the code of that checkout, wherever this one is installed."""
    path = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def in_turn(here: Path, there: Path, number: int) -> list[tuple[str, Path]]:
    """Who is measured first in a pair: each is every other time."""
    return [("here", here), ("there", there)][:: 1 if number % 2 else -1]


def quartiles(ratios: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile; of one ratio all are that one."""
    return statistics.quantiles(ratios, n=4) if len(ratios) > 1 else 3 * ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=there, required=True, metavar="CHECKOUT")
    parser.add_argument("--pairs", type=positive, default=9)
    parser.add_argument("--batches", type=positive, nargs="+", default=[4, 16, 64])
    parser.add_argument("--shape", default="350m")
    parser.add_argument("--warm", type=not_negative, default=4.0)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--json", type=new_file, help="write the figures of each pair here, too")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.stderr.write("benchmarks/step/step_pairs.py needs a CUDA GPU; torch sees none here\n")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    against = options.against.resolve()
    pairs: list[dict[str, dict[int, float]]] = []
    for number in range(options.pairs):
        order = in_turn(ROOT, against, number)
        pairs.append({name: measured(checkout, options) for name, checkout in order})
        print(json.dumps(pairs[-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(pairs, indent=1))
    for B in options.batches:
        ratios = sorted(pair["here"][B] / pair["there"][B] for pair in pairs)
        low, middle, high = quartiles(ratios)
        print(
            f"{B} sequences: {statistics.median(pair['here'][B] for pair in pairs):.2f} ms, ratio"
            f" {middle:.4f} (quartiles {low:.4f} to {high:.4f}, range {ratios[0]:.4f} to"
            f" {ratios[-1]:.4f}, {len(ratios)} pairs)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
