"""python -m albor_core.store.index RUN_DIR [--once]: the index process of one run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from albor_core.andon.health.curve import Curve
from albor_core.run.errors import AlborError
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.paths import global_store
from albor_core.store.index.backup import back_up_daily
from albor_core.store.index.earlier_runs import earlier_losses
from albor_core.store.index.indexer import Indexer, log_line


def main(argv: list[str]) -> int:
    """The program; returns its exit code."""
    words = [word for word in argv if word != "--once"]
    if len(words) != 1:
        log_line("usage: python -m albor_core.store.index RUN_DIR [--once]")
        return 2
    with contextlib.suppress(OSError):
        os.nice(10)
    run = RunDir(Path(words[0]).absolute())
    try:
        with Indexer(run, global_store()) as indexer:
            _stop_on_signals(indexer)
            _back_up()
            if "--once" in argv:
                indexer.drain()
            else:
                _follow_and_watch(run, indexer)
    except AlborError as error:
        log_line(error.message)
        return error.exit_code
    return 0


def _follow_and_watch(run: RunDir, indexer: Indexer) -> None:
    # here: whoever indexes an ended run, as many commands do, watches nothing
    from albor_core.store.spans.sending import sender_of  # noqa: PLC0415
    from albor_core.store.watch.live_sinks import LiveSinks  # noqa: PLC0415
    from albor_core.store.watch.watcher import Watcher, is_watchable  # noqa: PLC0415
    from albor_core.telemetry.machine_sampler import MachineSampler  # noqa: PLC0415

    sampler = MachineSampler()
    sampler.start()
    spans = sender_of(run)
    try:
        watcher = None
        if is_watchable(run):
            sinks = LiveSinks(run)
            watcher = Watcher(run, sampler=sampler, sender=sinks, earlier=_earlier(run))
        indexer.run_until_ended(watcher)
    finally:
        sampler.close()
        if spans is not None:  # the run's own span ends when no process works on it
            spans.close(is_over=not run.liveness().is_alive)


def _earlier(run: RunDir) -> tuple[Curve, ...]:
    """What its loss may be held against; of a training its own loop does that."""
    from albor_core.andon.health.facts import HealthFacts  # noqa: PLC0415  only who watches

    about, config = run.metadata(), read_json(run.config_resolved) or {}
    if about.get("kind") == "train":
        return ()
    return earlier_losses(
        global_store(),
        run.id,
        experiment=str(about.get("experiment") or ""),
        config=config,
        same_lr=HealthFacts.from_config(config).same_lr,
    )


def _back_up() -> None:
    try:
        back_up_daily(global_store(), time.strftime("%Y%m%d"))
    except AlborError as error:
        log_line(error.message)


def _stop_on_signals(indexer: Indexer) -> None:
    def stop(_signum: int, _frame: FrameType | None) -> None:
        indexer.stop()

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
