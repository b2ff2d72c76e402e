"""`albor train` as one of the ranks that torchrun or srun started.

Rank 0 does what the command does alone, its guard included, but that nothing is restarted here: the
launcher does that. The others become ranks of the trainer that it starts; they write nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from albor_core.cli.common.output import print_note
from albor_core.config.microbatches import share_of
from albor_core.run.errors import AlborError, ConfigError, InUseError, Problem, UsageError
from albor_core.run.program.launched_rank import LAUNCHED, OWN_CONFIG, LaunchedRank
from albor_core.run.rundir import RunDir

if TYPE_CHECKING:
    from albor_core.config.config import Config

WORLD_SIZE = "training.distributed.world_size"
_LOOK_S = 0.2
_EARLIER_S = 60.0


def refuse_unfit(launched: LaunchedRank, config: Config, file: str) -> None:
    """Raise ConfigError if a config asks for other ranks than were started, or for a step that they
    cannot share.
    """
    said, world = config.training.distributed.world_size, launched.world_size
    message = hint = ""
    if said not in (1, world):
        message = f"is {said}, and {launched.launcher} started {world} ranks"
        hint = "leave it out: the launcher says how many there are"
    elif share_of(config.data.batch_size, config.training.gradient_accumulation, world) is None:
        message = (
            f"the {world} ranks of {launched.launcher} cannot share a global batch of"
            f" {config.sequences_per_step} sequences evenly"
        )
        near = sorted(config.fitting_ranks(world))
        hint = f"start {' or '.join(map(str, near))}, or change data.batch_size"
    if message:
        problem = Problem(WORLD_SIZE, message, hint, file)
        raise ConfigError(f"{file}: {WORLD_SIZE}: {message}", hint=hint, problems=(problem,))


def refuse_detached(launched: LaunchedRank | None, *, detach: bool) -> None:
    """Raise UsageError: what a launcher started is over when its processes are."""
    if launched is not None and detach:
        raise UsageError(
            f"cannot detach from {launched.launcher}, whose ranks end with it",
            hint="leave --detach out; to watch it from elsewhere: albor monitor RUN",
        )


def refuse_world_size(launched: LaunchedRank | None, wanted: int | None) -> None:
    """Raise UsageError if --world-size asks for other ranks than were started."""
    if launched is not None and wanted not in (None, launched.world_size):
        raise UsageError(
            f"--world-size {wanted}: {launched.launcher} started {launched.world_size} ranks",
            hint="leave --world-size out",
        )


@contextmanager
def leading(launched: LaunchedRank | None, config: Config | None) -> Iterator[None]:
    """As rank 0, or alone, start a run: whatever keeps it from that ends the others, too. A rank
    above 0 does not come in here: it joins the run and trains by `config`.
    """
    if launched is not None and launched.rank > 0:
        _become_rank(launched, config)
    try:
        yield
    except AlborError as error:
        if launched is not None:
            _dismiss(launched, f"rank 0: {error.message}", error.exit_code)
        raise
    if launched is not None:
        _end_with_launcher()


def all_done(launched: LaunchedRank | None, run: RunDir) -> None:
    """Tell other ranks that there is nothing to do, so that they need not wait."""
    if launched is not None:
        _dismiss(launched, f"{run.id} is complete", 0)


def _end_with_launcher() -> None:
    """Ask for a stop once the process that started this one is gone. In a thread."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


def _dismiss(launched: LaunchedRank, reason: str, code: int) -> None:
    from albor_core.train.ranks.launched import dismiss

    dismiss(launched, reason, code)


def take_over(run: RunDir | None, launched: LaunchedRank | None) -> None:
    """Have a run that goes on do so on these ranks. Raises InUseError, or what `resize` does."""
    from albor_core.config.kept_config import config_of
    from albor_core.launch.run_folder import resize

    if run is None or launched is None:
        return
    _wait_for_earlier(run)
    if config_of(run).training.distributed.world_size != launched.world_size:
        resize(run, launched.world_size)


def _wait_for_earlier(run: RunDir) -> None:
    """Wait until the run's earlier attempt has ended: a launcher that was killed leaves one that is
    still ending. Raises InUseError if it lives on after `_EARLIER_S`.
    """
    deadline, told = time.monotonic() + _EARLIER_S, False
    while run.liveness().is_alive:
        if not told:
            print_note(f"waiting for the attempt of {run.id} before this one to end")
            told = True
        if time.monotonic() > deadline:
            raise InUseError(
                f"cannot start {run.id}: already active here",
                hint=f"albor guard stop {run.id}, or albor monitor {run.id}",
            )
        time.sleep(_LOOK_S)


def _become_rank(launched: LaunchedRank, config: Config | None) -> NoReturn:
    """Be that rank of the run that rank 0 starts. `config`: what this process was told to train;
    None where it is the run's own.
    """
    from albor_core.launch.environment import trainer_environment

    handed: dict[str, Any] = {LAUNCHED: launched.text()}
    if config is not None:
        handed[OWN_CONFIG] = json.dumps(config.resolved())
    print_note(f"{launched} joins rank 0 at {launched.address}:{launched.port}")
    sys.stdout.flush()
    argv = [sys.executable, "-P", "-m", "albor_core.train"]
    os.execve(argv[0], argv, {**os.environ, **trainer_environment(), **handed})  # noqa: S606
