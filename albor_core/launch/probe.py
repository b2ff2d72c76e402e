"""Runs twenty real steps of a config on this device, in a folder that is removed afterwards.

The run is what `albor train apply` would start, with its trainer, data, evaluation and checkpoints,
but it logs every step, evaluates and saves within those few, and has no alerts, budgets or sinks.
It leaves neither a run directory nor a row in a store, only cached token ids, which all runs
share.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig
from albor_core.config.sections.monitoring import MonitoringConfig
from albor_core.launch.environment import trainer_environment
from albor_core.launch.found_gpu import visible
from albor_core.launch.run_folder import new_run
from albor_core.plan.plan import Plan
from albor_core.plan.speed import (
    MeasuredSpeed,
    ProbeLine,
    ProbeTimes,
    counted_lines,
    from_probe,
    measured_window,
)
from albor_core.run.errors import AlborError, InUseError
from albor_core.run.files.lock_file import locked
from albor_core.run.files.whole_file import ended_by_signals
from albor_core.run.home.folders import own_home, private_folder
from albor_core.run.journal import read_journal
from albor_core.run.program.parent_death import die_with_parent
from albor_core.run.rundir import RunDir
from albor_core.telemetry.gpu import Gpus
from albor_core.telemetry.sample import GpuSample

STEPS = 20
EVERY = 8  # steps between evaluations and between saves: two of each fall within the probe
_SAMPLE_S = 0.2
_LEAVE_S = 20.0
_WITHOUT = "plan without --probe, or albor train apply, whose log tells more"
_PREFIX, _LOCK = "albor-probe-", "probe.lock"


@dataclass(frozen=True)
class Sample:
    """GPU samples of one moment."""

    wall: float
    gpus: tuple[GpuSample, ...]


def probe(
    loaded: LoadedConfig, made: Plan, *, tell: Callable[[str], None] | None = None
) -> MeasuredSpeed:
    """Run the probe and measure its speed. `made` is its plan, without problems. Raises AlborError
    if its trainer fails, with the last line of its log, or if the run is too short to measure.
    """
    steps = min(STEPS, made.schedule.updates or STEPS)
    # a closed terminal must leave no trainer on the GPU either
    with ended_by_signals(), own_folder() as place:
        if tell is not None:
            tell(f"probe: {steps} steps in {place}")
        config = _probing(loaded.config, place / "runs")
        with temporary_home(place / "home"):
            run = new_run(replace(loaded, config=config), made, name="probe")
            began = time.time()
            samples = train_here(run, steps)
        ended = time.time()
        times = _times(run, began, ended, config.data.seq_len)
    ranks = loaded.config.training.distributed.world_size
    watts, capped = power(times, samples, ranks) if made.facts.device == "cuda" else (None, None)
    counted = len(counted_lines(times)) - 1
    found = from_probe(
        times, f"{counted} of {steps} steps of this config here", watts=watts, capped=capped
    )
    if found is None:
        raise AlborError(
            f"the probe took {len(times.lines)} steps, too few to measure a speed by",
            hint="plan without --probe: a run so short tells its speed itself",
        )
    return found


@contextmanager
def own_folder() -> Iterator[Path]:
    """Yield a temporary folder, locked meanwhile and removed afterwards; folders of killed probes
    are removed too.
    """
    busy = InUseError("a probe uses this folder")
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError, InUseError):
            found = left.parent.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                with locked(left, busy):
                    shutil.rmtree(left.parent)
    made = tempfile.TemporaryDirectory(prefix=_PREFIX)
    with made as folder, locked(Path(folder) / _LOCK, busy):
        yield Path(folder)


def _probing(config: Config, output_dir: Path) -> Config:
    training = config.training
    checkpoint = training.checkpoint.model_copy(update={"save_every": EVERY, "keep_every": None})
    watched = MonitoringConfig(tracking=config.monitoring.tracking, system=config.monitoring.system)
    changed = training.model_copy(
        update={
            "output_dir": output_dir,
            "log_interval": 1,
            "save_interval": EVERY,
            "checkpoint": checkpoint,
            "eval_interval": EVERY,
        }
    )
    return config.model_copy(update={"training": changed, "monitoring": watched})


@contextmanager
def temporary_home(folder: Path) -> Iterator[None]:
    """Make `folder` the ALBOR_HOME meanwhile, so that no run is registered in the user's. Token ids
    are still cached in the user's: the run will need them, and they may be large.
    """
    before, cache = os.environ.get("ALBOR_HOME"), own_home() / "cache"
    for made in (own_home(), cache):
        private_folder(made)
    folder.mkdir(mode=0o700)
    (folder / "cache").symlink_to(cache.absolute())
    os.environ["ALBOR_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ALBOR_HOME"]
        else:
            os.environ["ALBOR_HOME"] = before


def train_here(
    run: RunDir, steps: int, *told: str, who: str = "the probe", hint: str = _WITHOUT
) -> list[Sample]:
    """Run the trainer of `run` without a guard up to step `steps` and return GPU samples taken
    meanwhile. Raises AlborError in which `who` failed.
    """
    log = run.path / "probe.log"
    argv = [sys.executable, "-P", "-m", "albor_core.train", str(run.path)]
    samples: list[Sample] = []
    gpus = Gpus()
    with log.open("wb") as sink:
        trainer = subprocess.Popen(
            [*argv, "--stop-after", str(steps), *told],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, **trainer_environment()},
            start_new_session=True,
            preexec_fn=die_with_parent,  # its ranks in turn die with it
        )
        try:
            while trainer.poll() is None:
                samples.append(Sample(time.time(), gpus.sample()))
                time.sleep(_SAMPLE_S)
        finally:
            _end(trainer)
            gpus.close()
    if trainer.returncode:
        raise AlborError(
            f"{who} failed with exit code {trainer.returncode}: {_why(log)}", hint=hint
        )
    return samples


def _why(log: Path) -> str:
    """The last line that a trainer wrote, without the hint below it: that is for `apply`."""
    lines = log.read_text(errors="replace").strip().splitlines()
    said = [line for line in lines if line.strip() and not line.startswith("  try: ")]
    return said[-1].removeprefix("error: ")[:300] if said else "it said nothing"


def _end(trainer: subprocess.Popen[bytes]) -> None:
    """Stop the trainer with all its ranks, if it is still running: Ctrl-C reaches only this
    process."""
    if trainer.poll() is not None:
        return
    trainer.terminate()
    try:
        trainer.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        os.killpg(trainer.pid, signal.SIGKILL)
        trainer.wait()


def _times(run: RunDir, began: float, ended: float, seq_len: int) -> ProbeTimes:
    logged: dict[int, dict[str, float]] = {}
    saves: list[int] = []
    for line in read_journal(run.journal):
        entry = line.record or {}
        if entry.get("t") == "m":  # a long one comes in pieces
            logged.setdefault(int(entry["step"]), {"wall": entry["wall"]}).update(entry["v"])
        elif entry.get("name") == "checkpoint.saved":
            saves.append(int(entry["step"]))
    lines = [
        ProbeLine(
            step, values["wall"], values.get("brick/eval_ms", 0.0) / 1e3, values["train/tokens"]
        )
        for step, values in sorted(logged.items())
        if "train/tokens" in values
    ]
    return ProbeTimes(began, ended, lines, saves)


def power(
    times: ProbeTimes, samples: list[Sample], ranks: int
) -> tuple[float | None, float | None]:
    """Mean power of the run's GPUs in the measured steps, and the share of samples in which one was
    held back by its power limit; None if no GPU reports it.
    """
    window = measured_window(times)
    if window is None:
        return None, None
    inside = [
        visible([gpu for gpu in one.gpus if gpu.memory_total_bytes])[:ranks]
        for one in samples
        if window[0] <= one.wall <= window[1]
    ]
    sums = [
        sum(gpu.power_w or 0.0 for gpu in gpus)
        for gpus in inside
        if gpus and all(gpu.power_w is not None for gpu in gpus)
    ]
    if not sums:
        return None, None
    capped = [
        any("power" in word for gpu in gpus for word in gpu.throttle_reasons) for gpus in inside
    ]
    return fmean(sums), fmean(capped)
