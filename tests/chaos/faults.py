"""What can break: each kind strikes a living run once, and waits until the run goes on."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shim import ANYBODY, TRAINER, Shim
from stage import ALBOR, STALE_S, GoneWrongError, Stage

from albor_core.checkpoint.folder import list_checkpoints
from albor_core.run.control import send, wait_answer

_IN_SAVING = 60  # calls that change the disk: two saves and the steps between them
_LANDS_S = 30.0
_DAY_S = 86_400


@dataclass
class Scene:
    """A run, its shim, chance, and what has come of it so far."""

    stage: Stage
    shim: Shim
    chance: random.Random
    deaths: int = 0
    """Of trainers, as far as this harness caused them."""
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def recovered(self, what: str, since: float) -> None:
        self.recoveries.setdefault(what, []).append(time.monotonic() - since)

    def next_life(self, attempt: int, since: float, what: str = "death") -> None:
        """A trainer has died: the next one has logged a step, which takes what it takes."""
        self.stage.wait(lambda: self.stage.where()[0] > attempt, "no life came after the death")
        self.deaths += 1
        self.recovered(what, since)

    def goes_on(self, steps: int = 5) -> None:
        """The same attempt, so many steps later."""
        attempt, step = self.stage.where()
        self.stage.wait(
            lambda: self.stage.where()[1] >= step + steps or self.stage.is_over, "it stands still"
        )
        if self.stage.where()[0] != attempt:
            self.violations.append(f"attempt {attempt} died of what costs no life")
            self.deaths += 1


# -- trainers that die ---------------------------------------------------------------------------


def _signalled(number: int) -> Callable[[Scene], bool]:
    def strike(scene: Scene) -> bool:
        attempt, since = scene.stage.where()[0], time.monotonic()
        os.kill(scene.stage.trainer, number)
        scene.next_life(attempt, since)
        return True

    return strike


def _hang(scene: Scene) -> bool:
    attempt, since = scene.stage.where()[0], time.monotonic()
    os.kill(scene.stage.trainer, signal.SIGSTOP)
    scene.next_life(attempt, since, "hang")
    return True


def _at_an_operation(action: str, ops: str) -> Callable[[Scene], bool]:
    def strike(scene: Scene) -> bool:
        stage, attempt = scene.stage, scene.stage.where()[0]
        part = scene.chance.choice(("-", "checkpoints", "checkpoints"))
        scene.shim.arm(
            action, nth=scene.chance.randint(1, _IN_SAVING), ops=ops, who=TRAINER, part=part
        )
        try:
            stage.wait(lambda: scene.shim.hits() or stage.is_over, "nothing was hit", _LANDS_S)
        except GoneWrongError:
            return False
        finally:
            scene.shim.disarm()
        if not scene.shim.hits():
            return False
        scene.next_life(attempt, time.monotonic())
        return True

    return strike


def _damaged_checkpoint(scene: Scene) -> bool:
    """The newest is broken while its trainer stands still, which dies then: the next attempt has to
    pass over it.
    """
    stage, chance = scene.stage, scene.chance
    stage.wait(lambda: len(list_checkpoints(stage.run.checkpoints)) >= 3, "no checkpoints came")
    trainer, since = stage.trainer, time.monotonic()
    os.kill(trainer, signal.SIGSTOP)
    stage.wait(lambda: _is_stopped(trainer), "it did not stop")
    attempt = stage.where()[0]
    newest = list_checkpoints(stage.run.checkpoints)[0]
    victim = chance.choice(sorted(path for path in newest.iterdir() if path.is_file()))
    _damage(victim, chance)
    os.kill(trainer, signal.SIGKILL)
    scene.next_life(attempt, since, "damaged checkpoint")
    if not list(stage.run.checkpoints.glob(f"bad-{newest.name}*")):
        scene.violations.append(f"{newest.name}/{victim.name} was damaged and not set aside")
    return True


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _damage(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    how = chance.choice(("flip", "flip", "cut", "gone"))
    if how == "gone":
        path.unlink()
    elif how == "cut":
        os.truncate(path, len(content) // 2)
    else:
        content[chance.randrange(len(content))] ^= 1
        path.write_bytes(content)


# -- guards and index processes that die ---------------------------------------------------------


def _guard_killed(scene: Scene) -> bool:
    stage, since = scene.stage, time.monotonic()
    trainer = stage.trainer
    os.kill(stage.guard, signal.SIGKILL)
    time.sleep(scene.chance.random())
    stage.resume()
    scene.recovered("guard", since)
    if stage.trainer != trainer:
        scene.violations.append("a trainer was not adopted")
        scene.deaths += 1
    scene.goes_on()
    return True


def _guard_killed_in_garbage(scene: Scene) -> bool:
    """The next guard has to know the trainer by its lock and environment alone."""
    names = scene.chance.choice((("child.json",), ("guard.json",), ("child.json", "guard.json")))
    guard = scene.stage.guard
    os.kill(guard, signal.SIGSTOP)  # else it writes guard.json again at once
    for name in names:
        _garbage(scene, scene.stage.run.guard / name)
    return _guard_killed(scene)


def _both_killed(scene: Scene) -> bool:
    stage, since = scene.stage, time.monotonic()
    attempt, trainer = stage.where()[0], stage.trainer
    os.kill(stage.guard, signal.SIGKILL)
    os.kill(trainer, signal.SIGKILL)
    time.sleep(scene.chance.random())
    stage.resume()
    scene.next_life(attempt, since, "both")
    return True


def _index_killed(scene: Scene) -> bool:
    index = scene.stage.index()
    if index:
        os.kill(index, signal.SIGKILL)
    scene.goes_on()
    return bool(index)


# -- disks ---------------------------------------------------------------------------------------


def _refusing(code: int, ops: str) -> Callable[[Scene], bool]:
    """A window in which the disk refuses, at least one call of the trainer too, and after which a
    checkpoint comes.
    """

    def strike(scene: Scene) -> bool:
        stage, chance = scene.stage, scene.chance
        part = chance.choice(("-", "checkpoints", "checkpoints", "journal.jsonl", "training_state"))
        scene.shim.arm(code, every=True, ops=ops, who=ANYBODY, part=part)
        try:
            time.sleep(chance.uniform(0.1, 0.5))
            stage.wait(lambda: _of_trainer(scene) or stage.is_over, "nothing was hit", _LANDS_S)
        except GoneWrongError:
            return False
        finally:
            scene.shim.disarm()
        since, saved = time.monotonic(), stage.saved()
        stage.wait(lambda: stage.saved() > saved or stage.is_over, "no checkpoint came after")
        scene.recovered("disk", since)
        scene.goes_on()
        return bool(_of_trainer(scene))

    return strike


def _of_trainer(scene: Scene) -> list[str]:
    """Hits on files that nobody but the trainer writes."""
    own = ("/journal.jsonl", "/checkpoints/", "/.training_state", "/training_state")
    return [hit for hit in scene.shim.hits() if any(name in hit for name in own)]


def _garbage(scene: Scene, path: Path) -> None:
    path.write_bytes(scene.chance.choice((b"", b"{", b"\0" * 100, b'{"a": 1}\n', b"[]", b"\xff")))


def _state_garbage(scene: Scene) -> bool:
    _garbage(scene, scene.stage.run.state)
    scene.goes_on()
    return True


def _command_garbage(scene: Scene) -> bool:
    guard = scene.stage.run.guard
    _garbage(scene, guard / "cmd.json")
    _garbage(scene, guard / "inbox" / f"{scene.chance.getrandbits(32):x}.json")
    os.kill(scene.stage.trainer, signal.SIGUSR2)
    scene.goes_on()
    return True


# -- stores --------------------------------------------------------------------------------------


def _store_damaged(scene: Scene) -> bool:
    store = scene.stage.run.store
    if not store.exists():
        return False
    with store.open("r+b") as file:
        file.write(scene.chance.randbytes(4096))
    _index_killed(scene)
    return True


def _store_deleted(scene: Scene) -> bool:
    store = scene.stage.run.store
    found = [path for path in store.parent.glob(f"{store.name}*") if path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    scene.goes_on()
    return bool(found)


def _home_store_damaged(scene: Scene) -> bool:
    """The store of all runs, which `db rebuild` makes again beside the living run."""
    store = scene.stage.home / "experiments.db"
    if not store.exists():
        return False
    with store.open("r+b") as file:
        file.write(scene.chance.randbytes(4096))
    done = scene.stage.albor("db", "rebuild")
    if done.returncode != 0 or "Traceback" in done.stderr:
        scene.violations.append(f"db rebuild beside the run: {done.returncode}: {done.stderr}")
    scene.goes_on()
    return True


# -- people, and nothing bad ---------------------------------------------------------------------


def _asked(*words: str) -> Callable[[Scene], bool]:
    def strike(scene: Scene) -> bool:
        for word in words:
            _ask(scene, word)
        scene.goes_on()
        return True

    return strike


def _ask(scene: Scene, word: str) -> None:
    told = None
    for _ in range(3):  # an attempt that has just begun may turn one down
        told = wait_answer(scene.stage.run, send(scene.stage.run, word, sender="chaos"), 30.0)
        if told is not None and told.status == "done":
            return
    scene.violations.append(f"{word}: {told}")


def _short_stop(scene: Scene) -> bool:
    trainer = scene.stage.trainer
    os.kill(trainer, signal.SIGSTOP)
    time.sleep(scene.chance.uniform(0.1, STALE_S / 8))
    os.kill(trainer, signal.SIGCONT)
    scene.goes_on()
    return True


def _reader_killed(scene: Scene) -> bool:
    words = scene.chance.choice(
        (("runs", "ls"), ("runs", "show", scene.stage.name), ("db", "check"))
    )
    reader = subprocess.Popen(
        [*ALBOR, *words],
        env={**os.environ, "ALBOR_HOME": str(scene.stage.home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(scene.chance.uniform(0.02, 0.3))
    reader.kill()
    reader.wait()
    scene.goes_on()
    return True


def _clock_jumps(scene: Scene) -> bool:
    """There, and back a few steps later."""
    scene.shim.skew(scene.chance.choice((-_DAY_S, -3600, -2, 2, 7200, 100 * _DAY_S)))
    scene.goes_on()
    scene.shim.skew(0)
    scene.goes_on()
    return True


_ANY_WRITE = "write,create,mkdir,truncate"
MIX: dict[str, tuple[int, Callable[[Scene], bool]]] = {
    "kill at an operation": (20, _at_an_operation("kill", "-")),
    "torn write": (10, _at_an_operation("short", "write")),
    "SIGKILL": (10, _signalled(signal.SIGKILL)),
    "SIGSEGV": (4, _signalled(signal.SIGSEGV)),
    "SIGABRT": (4, _signalled(signal.SIGABRT)),
    "SIGTERM from outside": (8, _signalled(signal.SIGTERM)),
    "hang": (5, _hang),
    "damaged checkpoint": (12, _damaged_checkpoint),
    "guard killed": (12, _guard_killed),
    "guard killed, its files garbage": (4, _guard_killed_in_garbage),
    "guard and trainer killed": (6, _both_killed),
    "full disk": (14, _refusing(errno.ENOSPC, _ANY_WRITE)),
    "failing disk": (8, _refusing(errno.EIO, "write,fsync")),
    "read-only disk": (8, _refusing(errno.EROFS, "-")),
    "index process killed": (8, _index_killed),
    "run's store damaged": (8, _store_damaged),
    "run's store deleted": (6, _store_deleted),
    "home's store damaged, rebuilt": (4, _home_store_damaged),
    "state file garbage": (6, _state_garbage),
    "command files garbage": (6, _command_garbage),
    "pause and resume": (5, _asked("pause", "resume")),
    "checkpoint asked for": (6, _asked("checkpoint")),
    "short stop": (8, _short_stop),
    "reader killed": (10, _reader_killed),
    "clock jumps": (8, _clock_jumps),
}
"""How many of 200, and how."""


def deck(count: int, chance: random.Random, kinds: tuple[str, ...] = ()) -> list[str]:
    """`count` kinds in the proportions of MIX, or of `kinds` in equal ones, shuffled."""
    weights = {kind: MIX[kind][0] for kind in MIX} if not kinds else dict.fromkeys(kinds, 1)
    total = sum(weights.values())
    drawn = [kind for kind, weight in weights.items() for _ in range(count * weight // total)]
    drawn += chance.choices(list(weights), list(weights.values()), k=count - len(drawn))
    chance.shuffle(drawn)
    return drawn


def is_words(done: subprocess.CompletedProcess[str]) -> str:
    """What is wrong with how a `--json` reader ended; trouble may be told of in words."""
    if "Traceback" in done.stderr:
        return done.stderr[-800:]
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return f"exit code {done.returncode} and no JSON: {done.stdout[:200]!r} {done.stderr[:200]}"
    is_error = document.get("schema") == "albor.error/1"
    return "" if is_error == (done.returncode != 0) else f"{done.returncode}: {done.stdout[:200]}"
