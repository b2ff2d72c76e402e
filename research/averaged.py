"""Whether the mean of a run's last weights is better than the last: bits per byte of both.

    python research/averaged.py RUN_OR_CHECKPOINTS ... --held FILE [--last K ...]
        [--batch-size 32] [--device auto]

RUN_OR_CHECKPOINTS is the folder of a run, or its checkpoints/. The mean of the last K published
checkpoints is taken in fp64, rounded to fp32, written as a model of its own into a folder beside
them that vanishes, and judged by `albor eval apply --task text:FILE` in fp32, as sprint.py and
slow.py judge a run. A line of JSON each: the newest alone as K = 1, then --last, by default
each K that is there. Runs keep one checkpoint unless told otherwise: slow.py saves each eighth of
the steps that it foresaw, and half-way once more, and

    slow.py ... --runs slow+training.checkpoint.keep=8

keeps the last eight. Exit code 2 where checkpoints lack, are fewer than K or of unlike shapes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrain import albor
from torch import Tensor

from albor_core.checkpoint.folder import MODEL, OPTIMIZER, TRAINER
from albor_core.checkpoint.tensorfile import read_tensors, write_tensors
from albor_core.run.checkpoints import MANIFEST, published
from albor_core.run.files.tensor_header import DamagedFileError, read_header

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
from arguments import positive, there

OF_THE_RUN = (MODEL, OPTIMIZER, TRAINER, MANIFEST)  # what a model beside it has none of


class UnusableError(Exception):
    """Checkpoints whose mean cannot be taken."""


def newest_first(folder: Path, last: Sequence[int]) -> dict[Path, int]:
    """The checkpoints of a run with their steps, as many as `last` asks for, all where it is empty;
    UnusableError where these are fewer or have other weights than the newest.
    """
    inner = folder / "checkpoints"
    found = published(inner if inner.is_dir() else folder)
    wanted = max(last, default=max(1, len(found)))
    if len(found) < wanted:
        raise UnusableError(f"{folder}: {len(found)} published checkpoints, not {wanted}")
    newest, *others = paths = list(found)[:wanted]
    shapes = shapes_of(newest)
    for path in others:
        if shapes_of(path) != shapes:
            raise UnusableError(f"{path}: weights of other names or shapes than {newest.name}")
    return {path: found[path] for path in paths}


def shapes_of(checkpoint: Path) -> dict[str, list[int]]:
    try:
        header = read_header(checkpoint / MODEL)
    except DamagedFileError as error:
        raise UnusableError(f"{checkpoint}: {error}") from error
    return {name: entry["shape"] for name, entry in header.items()}


def mean_of(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Of their weights, in fp32."""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, weight in read_tensors(path / MODEL).items():
            wide = weight.double()
            total[name] = total[name] + wide if name in total else wide
    return {name: (weight / len(checkpoints)).float() for name, weight in total.items()}


def write_mean(checkpoints: Sequence[Path], folder: Path) -> None:
    """As a model in `folder`, with what the first of `checkpoints` says beside its weights."""
    for file in checkpoints[0].iterdir():
        if file.name not in OF_THE_RUN:
            shutil.copy(file, folder)
    write_tensors(folder / MODEL, mean_of(checkpoints))


def bits_per_byte(checkpoints: Sequence[Path], held: Path, words: Sequence[object]) -> float:
    """Of their mean on the texts of `held`."""
    with tempfile.TemporaryDirectory(prefix=".mean-", dir=checkpoints[0].parent) as name:
        model = Path(name, "model")
        model.mkdir()
        write_mean(checkpoints, model)
        found = albor("eval", "apply", model, "--task", f"text:{held}", "--dtype", "fp32",
                      "-o", Path(name, "eval"), *words)  # fmt: skip
    scores = {one["name"]: one["value"] for task in found["tasks"] for one in task["scores"]}
    bpb: float = next(value for score, value in scores.items() if score.endswith("/bpb"))
    return bpb


def lines(
    known: Mapping[Path, int], last: Sequence[int], held: Path, words: Sequence[object]
) -> Iterator[dict[str, Any]]:
    """What each mean of these checkpoints, the newest first, reaches."""
    for count in sorted({1, *(last or range(1, len(known) + 1))}):
        newest = list(known)[:count]
        bpb = bits_per_byte(newest, held, words)
        steps = [known[path] for path in newest]
        yield {"run": str(newest[0].parent), "last": count, "steps": steps, "bpb": bpb}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=there, metavar="RUN_OR_CHECKPOINTS")
    parser.add_argument("--last", nargs="+", type=positive, default=[], metavar="K")
    parser.add_argument(
        "--held", type=there, required=True, help="texts, as `text:FILE` reads them"
    )
    parser.add_argument("--batch-size", type=positive, default=32)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args()
    words = ["--batch-size", options.batch_size, "--device", options.device]
    try:
        runs = [newest_first(folder.resolve(), options.last) for folder in options.runs]
        for known in runs:
            for line in lines(known, options.last, options.held.resolve(), words):
                print(json.dumps(line), flush=True)
    except (UnusableError, OSError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
