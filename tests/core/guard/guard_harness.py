"""A real guard over a fake trainer, in a scratch folder, with all its times scaled down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albor_core.guard.deaths.past_attempts import known_nonces
from albor_core.guard.launch import write_launch
from albor_core.guard.process.processes import ProcessTree
from albor_core.run import control
from albor_core.run.files.whole_file import write_json
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "tests" / "fake_trainer.py"
OPTIONS: dict[str, Any] = {
    "poll_s": 0.05,
    "stale_s": 0.5,
    "backoff_s": [0.03, 0.06, 0.12],
    "stable_s": 60.0,
    "grace_s": 0.5,
    "start_limit_s": 20.0,
}
LIMIT_S = 20.0
ENDLESS = 100_000


def wait_until(what: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """The first true value of `what`; fails with its source after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError(f"not within {limit_s} s: {what.__code__.co_consts} {what}")


class Bench:
    """One run, its guard, and everything a test asks about them."""

    def __init__(self, folder: Path, name: str = "run-a") -> None:
        self.run = RunDir(folder / name)
        self.run.path.mkdir(mode=0o700, parents=True)
        self.guards: list[subprocess.Popen[bytes]] = []

    def prepare(self, *lives: dict[str, Any], **options: Any) -> None:
        write_launch(
            self.run,
            argv=[sys.executable, str(FAKE)],
            cwd=self.run.path,
            env={"PYTHONPATH": str(ROOT), "FAKE_TRAINER": json.dumps(lives or ({},))},
            options={**OPTIONS, **options},
            index=False,
        )

    def prepare_program(
        self, *argv: str, env: dict[str, str] | None = None, **options: Any
    ) -> None:
        write_launch(
            self.run,
            argv=argv,
            cwd=self.run.path,
            env=env,
            options={**OPTIONS, **options},
            kind="guard",
            index=False,
        )

    def start(
        self,
        environment: dict[str, str] | None = None,
        program: Sequence[str] = ("-m", "albor_core.guard"),
        words: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """A guard; `program` may run one in a way of its own."""
        with (self.run.guard / "guard.log").open("ab") as log:
            guard = subprocess.Popen(
                [sys.executable, *program, str(self.run.path), *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.guards.append(guard)
        return guard

    def finish(self, *lives: dict[str, Any], **options: Any) -> int:
        """Prepare, guard and wait: the guard's exit code."""
        self.prepare(*lives, **options)
        return self.start().wait(LIMIT_S)

    # --- what there is to see --------------------------------------------------------------------

    def records(self, kind: str) -> list[dict[str, Any]]:
        try:
            lines = self.run.attempts.read_text().splitlines()
        except OSError:
            return []
        return [body for line in lines if (body := json.loads(line))["t"] == kind]

    def classes(self) -> list[str]:
        return [record["class"] for record in self.records("attempt.end")]

    def events(self) -> list[str]:
        return [record["name"] for record in self.records("event")]

    def now(self) -> dict[str, Any]:
        return read_json(self.run.guard / "guard.json") or {}

    def state(self) -> dict[str, Any]:
        return read_state(self.run.state) or {}

    def step(self) -> int:
        return int(self.state().get("global_step") or 0)

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.run.crash_reports.glob("*"))]

    def log(self) -> str:
        return (self.run.guard / "guard.log").read_text()

    def trainer(self) -> int | None:
        return lock_holder(self.run.run_lock)

    def until_training(self, steps: int = 2) -> int:
        """Wait for the guard to see a trainer at work; its pid."""
        wait_until(lambda: self.now().get("state") == "running" and self.step() >= steps)
        pid = self.trainer()
        assert pid
        return pid

    def ask(self, cmd: str) -> control.Answer:
        command_id = control.send(self.run, cmd, sender="test")
        found = control.wait_answer(self.run, command_id, LIMIT_S)
        assert found is not None
        return found

    def plant(self, command_id: str, **body: Any) -> control.Answer:
        """Put any file into the inbox; the answer."""
        write_json(self.run.guard / "inbox" / f"{command_id}.json", body)
        found = control.wait_answer(self.run, command_id, LIMIT_S)
        assert found is not None
        return found

    def clean(self) -> None:
        for guard in self.guards:
            if guard.poll() is None:
                guard.kill()
            guard.wait(LIMIT_S)
        pid = self.trainer()
        if pid and pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
        nonces = known_nonces(self.run)
        table = ProcessTree(self.run.id, nonces, None, spare=_own_children())
        table.clear(patience_s=0.0)


def _own_children() -> frozenset[int]:
    """Other tests' processes below this one are not the run's."""
    us = os.getpid()
    raw = Path(f"/proc/{us}/task/{us}/children").read_text()
    return frozenset(int(pid) for pid in raw.split())


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    made = Bench(folder)
    try:
        yield made
    finally:
        made.clean()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
