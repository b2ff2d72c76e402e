"""python io_sweep.py FOLDER MODE SEED COUNT: one trainer per chosen disk operation, broken there.

MODE is kill, short (half the bytes, then death), ENOSPC, EIO or EROFS (a window of operations that
fail, then none) or audit (nothing breaks; the order is looked at). torch is loaded once, each
attempt is a fork: 0.5 s instead of 4. Each trainer that died is started again until it ends; then
it must be where the undisturbed one is. One JSON document with everything found wrong on stdout.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import accelerate  # noqa: F401
import torch._dynamo  # noqa: F401
from io_shim import ERRNOS, KILL, SHORT, Act, Shim
from tiny_run import history, make_run

from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.run.errors import AlborError
from albor_core.run.files.tensor_header import DamagedFileError
from albor_core.run.rundir import RunDir
from albor_core.train import __main__ as trainer
from albor_core.train import (
    build,  # noqa: F401  loaded before the forks, as torch is
    loop,  # noqa: F401  loaded before the forks, as torch is
)
from albor_core.train.resume.digest import digest

KEYS = ("train/loss", "train/loss_ema", "optim/lr", "optim/grad_norm", "train/tokens", "val/loss")
CONFIG = {"training__log_interval": 2, "training__max_steps": 16}
WINDOW = 12  # operations that fail in a row: a whole save and what the loop writes meanwhile
LIVES = 6


def in_child(work: Callable[[], int], log: Path) -> int:
    """What `work` returned in a fork of this process; 128 + N for signal N."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def live(run: RunDir, log: Path, act: Act | None = None, told: Path | None = None) -> int:
    def work() -> int:
        shim = Shim(act) if act is not None else None
        if shim is not None:
            shim.install()
        try:
            return trainer.main([str(run.path)])
        finally:
            if told is not None and shim is not None:
                with told.open("w") as file:
                    json.dump(shim.log, file)

    return in_child(work, log)


def made(folder: Path, name: str) -> RunDir:
    def work() -> int:
        make_run(folder, name, **CONFIG)
        return 0

    assert in_child(work, folder.with_suffix(".log")) == 0, folder
    return RunDir(folder / "out" / name)


def end_of(run: RunDir) -> tuple[object, ...]:
    final = list_checkpoints(run.checkpoints)[0] / MODEL
    said = [(step, key, repr(value)) for step, key, value in history(run, KEYS)]
    return digest(run), final.read_bytes(), said


def torn(run: RunDir) -> Iterator[str]:
    """What a reader could not read, of what a killed trainer left under its final name."""
    for path in [
        *run.path.glob("*.json"),
        *run.guard.glob("*.json"),
        *run.checkpoints.glob("*.json"),
    ]:
        try:
            json.loads(path.read_bytes())
        except ValueError:
            yield f"{path.name} is not JSON"
    for path in list_checkpoints(run.checkpoints):
        try:
            verify(path).trainer()
        except (DamagedFileError, OSError) as error:
            yield f"{path.name}: {error}"


def litter(run: RunDir, pattern: str) -> list[str]:
    left = (path for path in run.path.rglob(pattern) if path.suffix in (".tmp", ".part", ".del"))
    return [f"{path.relative_to(run.path)} was left" for path in left]


_REFUSED = {  # what fails under each error; on a read-only mount everything does
    "ENOSPC": ("write", "create", "mkdir", "fsync"),
    "EIO": ("write", "fsync", "fdatasync"),
}


def act_of(mode: str, nth: int) -> Act:
    if mode in (KILL, SHORT):
        return lambda number, name, path: mode if number == nth else None

    def act(number: int, name: str, path: str) -> int | None:
        is_hit = nth <= number < nth + WINDOW and "/out/" in path
        return ERRNOS[mode] if is_hit and name in _REFUSED.get(mode, (name,)) else None

    return act


def once(root: Path, mode: str, nth: int, wanted: tuple[object, ...]) -> list[str]:
    """Break operation `nth` of a fresh run, let it end, and say what is wrong with the end."""
    run = made(root / f"{mode}-{nth}", f"{mode.lower()}-{nth}")
    log = root / f"{mode}-{nth}.log"
    codes = [live(run, log, act_of(mode, nth))]
    wrong = list(torn(run))
    if mode in (KILL, SHORT) and codes[0] != 137:
        return []  # this run had fewer operations: threads do not always interleave alike
    while codes[-1] != 0 and len(codes) < LIVES:
        codes.append(live(run, log))
    if codes[-1] != 0 or (mode in (KILL, SHORT) and len(codes) > 2):
        wrong.append(f"exit codes {codes}: {log.read_text()[-1500:]}")
    else:
        try:
            wrong += [] if end_of(run) == wanted else ["it ended somewhere else"]
        except (AlborError, AssertionError) as error:
            wrong.append(f"its end cannot be read: {error}")
        # where nothing could be removed, a small file may wait for the next attempt or `runs gc`
        wrong += litter(run, "*" if mode in (KILL, SHORT) else "step-*")
    return [f"{mode} at operation {nth}: {text}" for text in wrong]


# -- the order of an undisturbed attempt ----------------------------------------------------------


def disorder(operations: list[tuple[str, str, str]], run: RunDir) -> Iterator[str]:
    """T3: content before rename, the directory before pruning, the journal before publishing."""
    synced: set[str] = set()
    written: set[str] = set()
    said = said_synced = published = pruned = 0
    loose = ""  # the folder in which a checkpoint was published, until it is synced
    for name, path, other in operations:
        if name == "write":
            written.add(path)
            synced.discard(path)
            said += int(other) if path == str(run.journal) else 0
        elif name in ("fsync", "fdatasync"):
            synced.add(path)
            said_synced = said if path == str(run.journal) else said_synced
            loose = "" if path == loose else loose
        elif name == "rename" and other.endswith(".del"):
            pruned += 1
            if loose:
                yield f"{path}: pruned before {loose} was synced"
        elif name == "rename" and path.endswith(".part"):
            published += 1
            inside = {file for file in written if file.startswith(f"{path}/")}
            yield from (f"{file}: renamed before it was synced" for file in inside - synced)
            if f"{path}/manifest.json" not in inside or path not in synced:
                yield f"{path}: renamed before manifest and directory were synced"
            if _journal_before(Path(other)) > said_synced:
                yield f"{other}: published before the journal was synced"
            loose = str(Path(path).parent)
    if published < 3 or not pruned:
        yield f"{published} checkpoints were published, {pruned} pruned: nothing was shown"


def _journal_before(checkpoint: Path) -> int:
    """Bytes of the journal that a checkpoint counts on; 0 if it was pruned since."""
    try:
        return int(json.loads((checkpoint / "manifest.json").read_bytes())["journal"]["offset"])
    except FileNotFoundError:
        return 0


def main() -> int:
    root, mode, seed, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    reference = made(root / "reference", "reference")
    told = root / "reference.ops"
    code = live(reference, root / "reference.log", lambda number, name, path: None, told)
    assert code == 0, (root / "reference.log").read_text()
    operations = [tuple(entry) for entry in json.loads(told.read_text())]
    wrong: list[str] = []
    if mode == "audit":
        wrong = list(disorder(operations, reference))
        tried = len(operations)
    else:
        wanted = end_of(reference)
        chosen = random.Random(seed).sample(range(1, len(operations) + 1), count)
        for nth in chosen:
            wrong += once(root, mode, nth, wanted)
        tried = len(chosen)
    print(json.dumps({"operations": len(operations), "tried": tried, "wrong": wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
