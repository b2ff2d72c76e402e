"""The real trainer under the real guard, on a model that takes a few milliseconds a step: how it is
started, where it is, who works on it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shim import Shim

from albor_core.checkpoint.folder import list_checkpoints
from albor_core.run.journal import parse_line
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tiny_run import tiny_config

ALBOR = [sys.executable, "-P", "-m", "albor_core.cli"]
SEQUENCES, BATCH = 40, 4
SAVE_EVERY = 10
STALE_S = 6.0
PATIENCE_S = 180.0  # of the harness, for anything that should come by itself on a busy machine
_TAIL_BYTES = 64 << 10
GUARD = {
    "poll_s": 0.2,
    "stale_s": STALE_S,
    "checkpoint_limit_s": 1.5 * STALE_S,  # a trainer may be stopped in the middle of a save
    "eval_limit_s": 1.5 * STALE_S,
    "backoff_s": [0.05],
    "grace_s": 10.0,
    "max_no_progress": 1000,
    "max_restarts": 100_000,
}


class GoneWrongError(Exception):
    """The run did not come back: there is no point in breaking more."""


class Stage:
    """One run with a home of its own below `folder`."""

    def __init__(
        self, folder: Path, name: str, steps: int, shim: Shim | None, environ: dict[str, str]
    ) -> None:
        self.folder, self.name, self.steps, self.shim = folder, name, steps, shim
        self.home = folder / "home"
        self.run = RunDir(folder / "out" / name)
        self._environ = environ
        folder.mkdir(parents=True, exist_ok=True)
        epochs = steps * BATCH // SEQUENCES + 1
        config = tiny_config(
            folder,
            training__max_steps=steps,
            training__epochs=epochs,
            training__checkpoint={"save_every": SAVE_EVERY, "keep": 4},
            training__eval_interval=100,
            guard=GUARD,
        )
        (folder / "chaos.yaml").write_text(json.dumps(config))

    def albor(
        self, *words: object, under_shim: bool = False, limit_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """One command, as a person would type it."""
        env = {**os.environ, "ALBOR_HOME": str(self.home), "OMP_NUM_THREADS": "1", **self._environ}
        if under_shim and self.shim is not None:
            env |= self.shim.environment()
        return subprocess.run(
            [*ALBOR, *map(str, words)],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )

    def start(self) -> None:
        self._begin("apply", "chaos.yaml", "--name", self.name)

    def resume(self) -> None:
        """Give it a guard again: the next one adopts what lives."""
        self._begin("resume", self.name)

    def _begin(self, *words: str) -> None:
        done = self.albor("train", *words, "--detach", under_shim=True)
        if done.returncode != 0:
            raise GoneWrongError(f"albor train {words[0]}: {done.returncode}: {done.stderr}")

    # -- where it is ---------------------------------------------------------------------------

    def where(self) -> tuple[int, int]:
        """(attempt, step) of the newest line of the journal that has a step."""
        try:
            with self.run.journal.open("rb") as file:
                file.seek(max(0, self.run.journal.stat().st_size - _TAIL_BYTES))
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return 0, 0
        for line in reversed(lines):
            record = parse_line(line)
            if record is not None and record["t"] in ("m", "r"):
                step = record["step"] if record["t"] == "m" else record["to"]
                return int(record["attempt"]), int(step)
        return 0, 0

    def saved(self) -> int:
        """Step of the newest checkpoint."""
        found = list_checkpoints(self.run.checkpoints)
        return int(found[0].name.removeprefix("step-")) if found else 0

    @property
    def is_over(self) -> bool:
        return (read_json(self.run.exit) or {}).get("reason") == "completed"

    @property
    def trainer(self) -> int:
        """Its pid, once there is one that may be signalled."""
        return self._holder(self.run.run_lock)

    @property
    def guard(self) -> int:
        return self._holder(self.run.guard_lock)

    def index(self) -> int | None:
        return lock_holder(self.run.index_lock)

    def _holder(self, lock: Path) -> int:
        return self.wait(lambda: lock_holder(lock), f"{lock.name} was not taken")

    # -- waiting -------------------------------------------------------------------------------

    def wait(self, claim: Callable[[], Any], otherwise: str, limit_s: float = PATIENCE_S) -> Any:
        """What `claim()` is once it is true. Raises GoneWrongError, saying `otherwise`."""
        began = time.monotonic()
        while not (found := claim()):
            waited_s = time.monotonic() - began
            if waited_s > limit_s or (waited_s > 1.0 and self._has_failed()):
                raise GoneWrongError(f"{otherwise} in {waited_s:.0f} s; {self.told()}")
            time.sleep(0.01)
        return found

    def _has_failed(self) -> bool:
        guard = read_json(self.run.guard / "guard.json") or {}
        return guard.get("state") == "failed" and not self.run.liveness().is_alive

    def reach(self, step: int) -> None:
        self.wait(lambda: self.where()[1] >= step or self.is_over, f"step {step} was not reached")

    def told(self) -> str:
        """What its guard says of it, for a report of what went wrong."""
        guard = read_json(self.run.guard / "guard.json") or {}
        attempt, step = self.where()
        log = self.run.newest_log()
        said = "" if log is None else log.read_text(errors="replace")[-600:]
        return (
            f"attempt {attempt} step {step}, guard {guard.get('state')}: {guard.get('reason')};"
            f" its output: {said!r}"
        )
