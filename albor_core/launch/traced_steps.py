"""Records a profiler trace of a few steps of a config, trained in a temporary folder (see
probe.py): only the trace and cached token ids are left.

No evaluation, checkpoint, alert or sink stands between the steps, and ramps are left out: each step
is a full one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig
from albor_core.config.sections.monitoring import MonitoringConfig
from albor_core.launch.probe import own_folder, temporary_home, train_here
from albor_core.launch.run_folder import new_run
from albor_core.plan.plan import Plan
from albor_core.run.errors import AlborError, UsageError
from albor_core.run.files.whole_file import ended_by_signals
from albor_core.run.journal import last_event
from albor_core.run.rundir import RunDir

WARMUP = 5
"""Steps before the traced ones: memory is taken, kernels are compiled, caches fill."""
_FAR = 1 << 40
_HINT = "albor train apply CONFIG, whose log tells more"


@dataclass(frozen=True)
class TracedSteps:
    """The steps that a recorded trace covers."""

    first: int
    steps: int


def trace_steps(
    loaded: LoadedConfig,
    made: Plan,
    out: Callable[[Path], None],
    *,
    steps: int,
    tell: Callable[[str], None] | None = None,
) -> TracedSteps:
    """Train WARMUP steps and then `steps` steps under a profiler; `out` is called with the trace
    while it exists. `made` is the plan of `loaded`, without problems. Raises AlborError if the
    trainer or the profiler fails, UsageError if the run has too few steps.
    """
    planned = made.schedule.updates or WARMUP + steps
    first = min(WARMUP, planned - steps) + 1
    if first < 1:
        raise UsageError(
            f"cannot trace {steps} steps: the run has {planned}", hint=f"--steps {planned}"
        )
    last = first + steps - 1
    with ended_by_signals(), own_folder() as place:
        if tell is not None:
            tell(f"profile: {last} steps in {place}, the last {steps} traced")
        own = replace(loaded, config=_bare(loaded.config, place / "runs"))
        trace = place / "trace.json.gz"
        with temporary_home(place / "home"):
            run = new_run(own, made, name="profile")
            told = ("--trace", str(trace), str(first), str(steps))
            train_here(run, last, *told, who="the profiled run", hint=_HINT)
        if not trace.exists():
            raise AlborError(f"the profiler wrote no trace: {_why(run)}", hint=_HINT)
        out(trace)
    return TracedSteps(first, steps)


def _bare(config: Config, output_dir: Path) -> Config:
    training = config.training
    checkpoint = training.checkpoint.model_copy(update={"save_every": _FAR, "keep_every": None})
    changed = training.model_copy(
        update={
            "output_dir": output_dir,
            "save_interval": _FAR,
            "checkpoint": checkpoint,
            "eval_interval": _FAR,
            "batch_ramp": (),
            "seq_len_ramp": (),
            "sample_prompts": (),
        }
    )
    watched = MonitoringConfig(tracking=config.monitoring.tracking, system=config.monitoring.system)
    return config.model_copy(update={"training": changed, "monitoring": watched})


def _why(run: RunDir) -> str:
    event = last_event(run.journal, "brick.untraced") or {}
    data = event.get("data")
    return str(data.get("reason") if isinstance(data, dict) else "it did not say why")
