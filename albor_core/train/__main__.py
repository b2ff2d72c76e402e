"""python -m albor_core.train RUN_DIR: one attempt of a run, in this process.

Reads the run directory's own config, never the user's original. Signals are handled and the state
file speaks before torch is loaded. However it ends, exit.json says how, unless the process is
killed. Exit codes: 0 done, 2 config, 4 Andon, 6 no usable checkpoint,
7 data, 8 in use, 130/143 stopped, 1 anything else.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from albor_core.run.checkpoints import newest
from albor_core.run.errors import AlborError, ConfigError, refused_by_the_machine
from albor_core.run.guard_options import Options
from albor_core.run.journal import Journal
from albor_core.run.program.launched_rank import (
    OWN_CONFIG,
    TORCHRUN,
    LaunchedRank,
    handed_rank,
)
from albor_core.run.rundir import RunDir, open_plain
from albor_core.run.state import StateWriter, read_state
from albor_core.run.values.quantity import counted
from albor_core.train.process.attempt import (
    Attempt,
    Outcome,
    begin,
    last_words,
    outcome_of,
)
from albor_core.train.process.faults import faults_from
from albor_core.train.process.signals import SignalRequests, dump_stacks_to
from albor_core.train.process.start_times import StartTimes, process_age_s
from albor_core.train.ranks.launched import (
    LaunchedMember,
    LaunchedRanks,
    is_broken_connection,
    refuse_other_config,
)
from albor_core.train.ranks.rank_processes import (
    RankProcesses,
    ignore_stops,
    join_crew,
    my_rank,
    send_outcome,
)

if TYPE_CHECKING:
    from albor_core.config.config import Config
    from albor_core.train.loop import Training


def main(arguments: list[str] | None = None) -> int:
    os.umask(0o077)
    launched = handed_rank(os.environ)
    if launched is not None and launched.rank > 0:
        return _join(launched)
    options = _parser().parse_args(arguments)
    run = RunDir(options.run_dir.absolute())
    if my_rank() > 0:
        return _follow(run)
    try:
        run.metadata()
        attempt = begin(run, os.environ)
        signals = SignalRequests()
        signals.install(attempt)
    except AlborError as error:  # not our run, or not ours alone: touch nothing
        return _print_error(error)
    except OSError as error:
        return _refused(error)
    earlier = read_state(run.state) or {}
    state = StateWriter(run.state, run_id=run.id, attempt=attempt.number, nonce=attempt.nonce)
    state.fields["elapsed_seconds"] = earlier.get("elapsed_seconds") or 0.0
    state.fields["budgets"] = earlier.get("budgets") or []
    state.publish()
    outcome = _train(attempt, signals, state, options)
    try:
        last_words(attempt, outcome)
    except OSError as error:
        _write_line(f"{run.exit}: {error.strerror}")
    return outcome.code


def _train(
    attempt: Attempt, signals: SignalRequests, state: StateWriter, options: argparse.Namespace
) -> Outcome:
    training = crew = None
    is_lost = True
    times = StartTimes(process_age_s())
    try:
        config = _config(attempt.run)
        faults = faults_from(os.environ, attempt=attempt.number)
        state.phase("initializing", limit_s=config.guard.start_limit_s)
        crew = _others(attempt, config)
        if crew is not None:
            crew.start(lambda outcome: _give_up(attempt, outcome))
        from albor_core.train.loop import Training  # noqa: PLC0415  loads torch: seconds
        from albor_core.train.step.brick_trace import TraceOrder  # noqa: PLC0415

        times.mark("imports")
        training = Training(
            attempt,
            config,
            signals,
            faults,
            state,
            allow_config_change=options.allow_config_change,
            times=times,
        )
        asked = options.trace
        order = TraceOrder(Path(asked[0]), int(asked[1]), int(asked[2])) if asked else None
        outcome = training.run(stop_after=options.stop_after, trace=order)
        is_lost = False
        return _count_lost(outcome, training)
    except AlborError as error:
        _print_error(error)
        return _record_failure(
            outcome_of(error, _step(attempt, training)), attempt, state, training
        )
    except Exception as error:  # a bug, and its traceback belongs into the log; or a rank is lost
        lost = None if crew is None else crew.loss()
        if lost is None:
            _refused(error)
            return _record_failure(
                outcome_of(error, _step(attempt, training)), attempt, state, training
            )
        _write_line(f"error: {lost.message}")
        return _record_failure(
            replace(lost, step=_step(attempt, training)), attempt, state, training
        )
    finally:
        if crew is not None:
            crew.close(is_lost=is_lost)


def _others(attempt: Attempt, config: Config) -> RankProcesses | LaunchedRanks | None:
    """The ranks beside this one: those of its launcher, else they are started here."""
    launched, ranks = handed_rank(os.environ), config.training.distributed.world_size
    if launched is not None:
        if launched.world_size != ranks:
            raise ConfigError(
                f"training.distributed.world_size: {ranks}, but {launched} was started",
                hint="start it again with the same launcher",
            )
        return LaunchedRanks(attempt, launched, limit_s=0.9 * config.guard.start_limit_s)
    for name in TORCHRUN:  # a launcher of one process: accelerate would look for more
        os.environ.pop(name, None)
    return RankProcesses(attempt, ranks, [str(attempt.run.path)]) if ranks > 1 else None


def _config(run: RunDir) -> Config:
    """The run's own. Raises ConfigError."""
    from albor_core.config.load import parse_config  # noqa: PLC0415  heavy: after the signals

    path = run.config_resolved
    try:
        with open_plain(path) as file:
            raw = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="albor train apply") from error
    return parse_config(raw, file=str(path))


def _give_up(attempt: Attempt, lost: Outcome) -> None:
    """A rank is gone and this process waits for it in a call that nothing can end."""
    _write_line(f"error: {lost.message}")
    try:
        last_words(attempt, lost)
    except OSError as error:
        _write_line(f"{attempt.run.exit}: {error.strerror}")
    os._exit(lost.code)


def _follow(run: RunDir) -> int:
    """Run one attempt of a rank above 0; return its exit code."""
    join_crew()
    attempt = Attempt(run, int(os.environ["ALBOR_ATTEMPT"]), os.environ["ALBOR_NONCE"])
    dump_stacks_to(run.logs / f"a{attempt.number:04d}.rank{my_rank()}.stacks")
    follower = None
    try:
        config = _config(run)
        faults = faults_from(os.environ, attempt=attempt.number)
        from albor_core.train.rank_loop import RankLoop  # noqa: PLC0415  loads torch: seconds

        follower = RankLoop(attempt, config, faults)
        follower.run()
        return 0
    except Exception as error:
        if not isinstance(error, AlborError):
            _write_line(f"rank {my_rank()}:")
            traceback.print_exc()
        outcome = outcome_of(error, 0 if follower is None else follower.step)
        send_outcome(outcome)
        return outcome.code


def _join(launched: LaunchedRank) -> int:
    """One attempt of a rank above 0 that a launcher has started. It writes no file."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    own = json.loads(os.environ.pop(OWN_CONFIG, "null"))
    member, follower = LaunchedMember(launched), None
    try:
        limits = {} if own is None else own["guard"]
        hello = member.meet(float(limits.get("start_limit_s", Options().start_limit_s)))
    except AlborError as error:
        return _print_error(error)
    if not hello.run:
        _write_line(f"{launched} leaves: {hello.reason}")
        return hello.code
    ignore_stops()
    try:
        run = RunDir(Path(hello.run))
        attempt = Attempt(run, hello.attempt, hello.nonce)
        config = _shared_config(run, launched)
        if own is not None:
            refuse_other_config(launched, own, config.resolved())
        os.chdir(hello.cwd)
        faults = faults_from(os.environ, attempt=attempt.number)
        from albor_core.train.rank_loop import RankLoop  # noqa: PLC0415  loads torch: seconds

        follower = RankLoop(attempt, config, faults)
        follower.run()
        member.leave()
        return 0
    except Exception as error:
        lost = member.loss() if is_broken_connection(error) else None
        if lost is not None:
            _write_line(f"error: {launched}: {lost.message}")
            return lost.code
        outcome = outcome_of(error, 0 if follower is None else follower.step)
        member.leave(outcome)
        if isinstance(error, AlborError):
            _print_error(error)
        else:
            traceback.print_exc()
        return outcome.code


def _shared_config(run: RunDir, launched: LaunchedRank) -> Config:
    try:
        return _config(run)
    except ConfigError as error:
        if run.path.is_dir():
            raise
        raise ConfigError(
            f"{launched}: {run.path} is not there on {os.uname().nodename}",
            hint="put training.output_dir on a disk that every host sees",
        ) from error


def _step(attempt: Attempt, training: Training | None) -> int:
    """The step that the attempt reached; if it never continued, the step it would have continued
    from."""
    if training is not None:
        return training.step
    saved = newest(attempt.run.checkpoints)
    return 0 if saved is None else saved[0]


def _record_failure(
    outcome: Outcome, attempt: Attempt, state: StateWriter, training: Training | None
) -> Outcome:
    """Tell journal and state file that this attempt failed, as far as the disk lets us."""
    try:
        if training is not None:
            training.abandon()
            outcome = _count_lost(outcome, training)
        journal = Journal(attempt.run.journal, attempt=attempt.number)
        journal.event(
            "run.end",
            step=outcome.step,
            severity="error",
            status="failed",
            reason=outcome.reason,
            code=outcome.code,
            message=outcome.message[:1000],
        )
        journal.close()
    except OSError as error:
        _write_line(f"{attempt.run.journal}: {error.strerror}")
    state.fields["global_step"] = outcome.step
    state.phase("failed")
    return outcome


def _count_lost(outcome: Outcome, training: Training) -> Outcome:
    """Add the number of lines that the disk never took to the outcome, and report them."""
    journal = training.reporter.journal
    why = journal.error
    lost = journal.give_up()
    if lost:
        _write_line(
            f"{counted(lost, 'line')} of this run could not be written: {why or journal.path}"
        )
    return replace(outcome, lines_lost=lost)


def _refused(error: Exception) -> int:
    """Words for what the machine refuses; of anything else the traceback, which is a bug's."""
    told = refused_by_the_machine(error) if isinstance(error, OSError) else None
    if told is not None:
        return _print_error(told)
    traceback.print_exception(error)
    return 1


def _print_error(error: AlborError) -> int:
    _write_line(f"error: {error.message}")
    if error.hint:
        _write_line(f"  try: {error.hint}")
    return error.exit_code


def _write_line(line: str) -> None:
    sys.stderr.write(line + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m albor_core.train", description=__doc__)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="N",
        help="save and exit after step N; the schedule is unchanged",
    )
    parser.add_argument(
        "--trace",
        nargs=3,
        metavar=("FILE", "FIRST", "STEPS"),
        help="write a profiler trace of STEPS steps from step FIRST on",
    )
    parser.add_argument(
        "--allow-config-change",
        action="store_true",
        help="resume from a checkpoint of another config",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
