"""python -m albor_core.train.resume.digest RUN_DIR: step and hash of the newest checkpoint.

The hash covers weights, optimizer state, random number generators, data position and everything
else that decides how the run goes on; not clocks, paths or timings. Two runs with equal digests
are at the same place. Exit code 3 without a checkpoint, 6 if the newest is damaged.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albor_core.checkpoint.folder import BESIDE, FROZEN, OPTIMIZER, list_checkpoints, verify
from albor_core.run.errors import AlborError, NoCheckpointError, NotFoundError
from albor_core.run.files.tensor_header import DamagedFileError
from albor_core.run.rundir import RunDir

TRAJECTORY_KEYS = ("step", "tokens", "order", "tally", "spikes", "scaler", "rng")
_OF_RULES = ("rule", "subject", "armed", "steady", "held", "streak", "firing")
_PROGRESS = ("evaluated_step", "best_val", "evals_without_gain", "skipped")


def digest(run: RunDir) -> tuple[int, str]:
    """(step, hash). Raises NotFoundError, NoCheckpointError."""
    found = list_checkpoints(run.checkpoints)
    if not found:
        raise NotFoundError(f"{run.checkpoints}: no checkpoint")
    try:
        checkpoint = verify(found[0])
        trainer = checkpoint.trainer()
    except (DamagedFileError, OSError) as error:
        raise NoCheckpointError(f"{found[0]}: {error}") from error
    hasher = hashlib.sha256()
    for name in (checkpoint.weights, OPTIMIZER):
        hasher.update((checkpoint.path / name).read_bytes())
    for key in (FROZEN, BESIDE):
        hasher.update(str(checkpoint.manifest.get(key, "")).encode())
    fate = {key: trainer[key] for key in TRAJECTORY_KEYS}
    fate["andon"] = _rules(trainer["andon"]["rules"])
    fate["progress"] = {key: trainer["progress"][key] for key in _PROGRESS}
    fate["loss_ema"] = trainer["reporter"]["loss_ema"]
    hasher.update(json.dumps(fate, sort_keys=True).encode())
    return checkpoint.step, hasher.hexdigest()


def _rules(saved: Mapping[str, Any]) -> Any:
    """What rules remember, without times and without figures of speed; whole of a checkpoint from
    before rules had a grammar.
    """
    if "watches" not in saved:
        return saved
    kept = [{key: watch[key] for key in _OF_RULES} for watch in saved["watches"]]
    return [one | {"firing": bool(one["firing"])} for one in kept]


def main() -> int:
    try:
        step, text = digest(RunDir(Path(sys.argv[1]).absolute()))
    except AlborError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit_code
    sys.stdout.write(f"{step} {text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
