"""python -m albor_core.train RUN_DIR: one life of a run, in this process.

Reads the run directory's own config, never the user's original. Signals are handled and the state
file speaks before torch is loaded. However it ends, exit.json says how, unless the process is
killed. Exit codes are those of DESIGN 7: 0 done, 2 config, 4 Andon, 6 no usable checkpoint,
7 data, 8 in use, 130/143 stopped, 1 anything else.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from albor_core.run.errors import AlborError, ConfigError
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.run.state import StateWriter, read_state
from albor_core.train.faults import faults_from
from albor_core.train.life import Life, Outcome, Signals, begin, last_words, outcome_of

if TYPE_CHECKING:
    from albor_core.train.loop import Training


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    os.umask(0o077)
    run = RunDir(options.run_dir.absolute())
    try:
        run.metadata()
        life = begin(run, os.environ)
    except AlborError as error:  # not our run, or not ours alone: touch nothing
        return _complain(error)
    signals = Signals()
    signals.install(life)
    earlier = read_state(run.state) or {}
    state = StateWriter(run.state, run_id=run.id, attempt=life.attempt, nonce=life.nonce)
    state.fields["elapsed_seconds"] = earlier.get("elapsed_seconds") or 0.0
    state.publish()
    outcome = _live(life, signals, state, options)
    try:
        last_words(life, outcome)
    except OSError as error:
        _say(f"{run.exit}: {error.strerror}")
    return outcome.code


def _live(life: Life, signals: Signals, state: StateWriter, options: argparse.Namespace) -> Outcome:
    training = None
    try:
        from albor_core.run.config import parse_config  # noqa: PLC0415  heavy: after the signals

        path = life.run.config_resolved
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}", hint="albor train apply") from error
        config = parse_config(raw, file=str(path))
        faults = faults_from(os.environ, attempt=life.attempt)
        state.phase("initializing", limit_s=config.guard.start_limit_s)
        from albor_core.train.loop import Training  # noqa: PLC0415  loads torch: seconds

        training = Training(
            life,
            config,
            signals,
            faults,
            state,
            allow_config_change=options.allow_config_change,
        )
        return training.run(stop_after=options.stop_after)
    except AlborError as error:
        _complain(error)
        return _mourn(outcome_of(error, _step(training)), life, state, training)
    except Exception as error:  # a bug: its traceback belongs into the log
        traceback.print_exc()
        return _mourn(outcome_of(error, _step(training)), life, state, training)


def _step(training: Training | None) -> int:
    return 0 if training is None else training.step


def _mourn(outcome: Outcome, life: Life, state: StateWriter, training: Training | None) -> Outcome:
    """Tell journal and state file that this life failed, as far as the disk lets us."""
    try:
        if training is not None:
            training.abandon()
        journal = Journal(life.run.journal, attempt=life.attempt)
        journal.event(
            "run.end",
            step=outcome.step,
            severity="red",
            status="failed",
            reason=outcome.reason,
            code=outcome.code,
            message=outcome.message[:1000],
        )
        journal.close()
    except OSError as error:
        _say(f"{life.run.journal}: {error.strerror}")
    state.phase("failed")
    return outcome


def _complain(error: AlborError) -> int:
    _say(f"error: {error.message}")
    if error.hint:
        _say(f"  try: {error.hint}")
    return error.exit_code


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m albor_core.train", description=__doc__)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="N",
        help="save and leave after step N; the schedule is unchanged",
    )
    parser.add_argument(
        "--allow-config-change",
        action="store_true",
        help="go on from a checkpoint of another config",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
