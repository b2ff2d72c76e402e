"""A trainer without torch: counts steps, writes state, journal and checkpoints, dies on cue.

FAKE_TRAINER holds JSON: a list of what each attempt does, the last one repeated: for example
    {"steps": 5, "step_s": 0.01, "checkpoint_every": 0, "at": 3, "do": "segv"}
with `do` one of segv kill abrt bus stop exit raise memory deadlock phase, `code` for exit, `words`
false to exit without exit.json, `ignore_term`, `grandchild`, `phase` {name, limit_s, sleep_s},
`state` "none", `say` text for the log.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from albor_core.run.files.whole_file import write_json
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import StateWriter

SIGNALS = {
    "segv": signal.SIGSEGV,
    "kill": signal.SIGKILL,
    "abrt": signal.SIGABRT,
    "bus": signal.SIGBUS,
    "stop": signal.SIGSTOP,
}


class Trainer:
    def __init__(self) -> None:
        self.run = RunDir(Path(os.environ["ALBOR_RUN_DIR"]))
        self.attempt = int(os.environ["ALBOR_ATTEMPT"])
        self.nonce = os.environ["ALBOR_NONCE"]
        lives = json.loads(os.environ["FAKE_TRAINER"])
        self.life = lives[min(self.attempt, len(lives)) - 1]
        self.stop_code = 0
        self.is_commanded = False
        self.is_paused = False
        self.step = 0

    def main(self) -> int:
        if self.life.get("ignore_term"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, self.on_stop)
            signal.signal(signal.SIGINT, self.on_stop)
        signal.signal(signal.SIGUSR2, self.on_command)
        stacks = (self.run.logs / f"a{self.attempt:04d}.stacks").open("wb")
        faulthandler.register(signal.SIGUSR1, file=stacks)
        write_json(self.run.path / f"env-{self.attempt}.json", dict(os.environ))
        if self.life.get("grandchild"):
            self.start_grandchild()
        if self.life.get("say"):
            print(self.life["say"], flush=True)
        self.state = StateWriter(
            self.run.state, run_id=self.run.id, attempt=self.attempt, nonce=self.nonce
        )
        self.journal = Journal(self.run.journal, attempt=self.attempt)
        self.step = self.last_checkpoint()
        self.publish("initializing")
        return self.train()

    def train(self) -> int:
        target = self.step + self.life.get("steps", 5)
        while True:
            if self.step == self.life.get("at"):
                self.act()
            if self.stop_code:
                self.checkpoint()
                return self.leave(self.stop_code, "stopped")
            if self.step >= target:
                return self.leave(0, "completed")
            self.obey()
            self.one_step()

    def one_step(self) -> None:
        if self.is_paused:
            time.sleep(0.01)
            self.state.keep_alive()
            return
        time.sleep(self.life.get("step_s", 0.01))
        self.step += 1
        self.journal.metrics(self.step, {"train/loss": 1.0 / self.step})
        every = self.life.get("checkpoint_every", 0)
        if every and self.step % every == 0:
            self.checkpoint()
        self.publish("training")

    def publish(self, phase: str, limit_s: float | None = None) -> None:
        if self.life.get("state") == "none":
            return
        self.state.fields["global_step"] = self.step
        self.state.fields["loss"] = 1.0 / max(1, self.step)
        self.state.phase(phase, limit_s=limit_s)

    def checkpoint(self) -> None:
        folder = self.run.checkpoints / f"step-{self.step:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "manifest.json", {"step": self.step})

    def last_checkpoint(self) -> int:
        names = sorted(path.name for path in self.run.checkpoints.glob("step-*"))
        return int(names[-1][5:]) if names else 0

    def act(self) -> None:
        do = self.life["do"]
        if do in SIGNALS:
            faulthandler.disable()
            os.kill(os.getpid(), SIGNALS[do])
        elif do == "exit":
            code = self.life["code"]
            sys.exit(self.leave(code, "x", self.life.get("words", True)))
        elif do == "raise":
            raise_here()
        elif do == "memory":
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            bytearray(1 << 40)
        elif do == "deadlock":
            while True:
                time.sleep(0.05)
        elif do == "phase":
            phase = self.life["phase"]
            self.publish(phase["name"], phase.get("limit_s"))
            time.sleep(phase["sleep_s"])

    def leave(self, code: int, reason: str, words: bool = True) -> int:
        if words:
            body = {"schema": "albor.exit/1", "run_id": self.run.id, "attempt": self.attempt}
            body |= {"nonce": self.nonce, "code": code, "reason": reason, "step": self.step}
            write_json(self.run.exit, {**body, "message": "", "error": None, "wall": time.time()})
        return code

    def start_grandchild(self) -> None:
        """In a session of its own, without our environment, deaf to SIGTERM, its parent gone."""
        sleeper = (
            "import signal, time; signal.signal(15, signal.SIG_IGN);"
            "print('deaf', flush=True); time.sleep(60)"
        )
        code = (
            "import subprocess, sys;"
            "p = subprocess.Popen([sys.executable, '-c', sys.argv[1]], env={},"
            " start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL);"
            "p.stdout.readline(); print(p.pid, flush=True)"
        )
        argv = [sys.executable, "-c", code, sleeper]
        pid = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
        (self.run.path / "grandchild").write_bytes(pid)

    def on_stop(self, number: int, frame: object) -> None:
        self.stop_code = 128 + number

    def on_command(self, number: int, frame: object) -> None:
        self.is_commanded = True

    def obey(self) -> None:
        if not self.is_commanded:
            return
        self.is_commanded = False
        command = read_json(self.run.guard / "cmd.json") or {}
        if command["cmd"] == "checkpoint":
            self.checkpoint()
        else:
            self.is_paused = command["cmd"] == "pause"
            self.publish("paused" if self.is_paused else "training")
        done = {"id": command["id"], "status": "done", "detail": f"at step {self.step}"}
        write_json(self.run.guard / "cmd_done.json", done)


def raise_here() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # deaths on cue leave no core files
    sys.exit(Trainer().main())
