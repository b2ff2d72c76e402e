"""A Lightning Trainer in the cockpit: `Trainer(logger=AlborLogger("my-project"))`.

For `lightning` and for `pytorch_lightning`, whichever is installed. Only rank 0 says anything.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from albor_core import track
from albor_core.integrations import kept_run
from albor_core.run.rundir import new_run_id

_PACKAGE = "lightning.pytorch" if find_spec("lightning") is not None else "pytorch_lightning"
_Logger: Any = import_module(f"{_PACKAGE}.loggers").Logger
_rank_zero_only: Any = import_module(f"{_PACKAGE}.utilities").rank_zero_only


class _PromisedRun:
    """A run that begins with the first look at it: a Trainer looks for `experiment` before anybody
    can know which checkpoint it goes on from.
    """

    def __init__(self, logger: AlborLogger) -> None:
        self._logger = logger

    def __getattr__(self, name: str) -> Any:
        self._logger._begin()
        return getattr(self._logger._run, name)


class AlborLogger(_Logger):  # type: ignore[misc]  # lightning is not a dependency of ours
    """The run begins with the first thing that is logged, and stays open over fit, validate and
    test: `finish()` or the end of the program closes it, an exception in the Trainer at once. The
    arguments are those of `track.start`. A Trainer that is given a checkpoint (`ckpt_path`) goes on
    with the run that saved it, as long as it lies where it was saved; `resume_from` names one where
    something is logged before the Trainer begins.
    """

    def __init__(
        self,
        experiment: str = "lightning",
        name: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        *,
        resume_from: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._experiment, self._run_name, self._dir = experiment, name, dir
        self._resume_from, self._settings = resume_from, settings
        self._run: track.Run | None = None
        self._next_id = ""
        self._early: list[Any] = []  # hyperparameters, which come before the model

    @property
    def name(self) -> str:
        return self._run_name or self._experiment

    @property
    def version(self) -> str:
        """The run's id, or the one that a new run would have; empty on all ranks but 0."""
        if self._run is not None:
            return self._run.id
        self._plan_id()
        return self._next_id

    @property
    def experiment(self) -> Any:
        """The run, which begins when something of it is asked for; None on all ranks but 0."""
        return self._run or self._promised()

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def _promised(self) -> _PromisedRun:
        return _PromisedRun(self)

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def _plan_id(self) -> None:
        given = self._settings.get("id")
        self._next_id = self._next_id or given or new_run_id(self.name)

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def _begin(self) -> None:
        if self._run is None:
            self._run = kept_run.start(
                self._settings,
                *kept_run.run_of_checkpoint(self._resume_from),
                experiment=self._experiment,
                name=self._run_name,
                dir=self._dir,
                fresh_id=self._next_id or None,
            )
            self._next_id = ""
            self._resume_from = None  # another fit of this logger is another run
            while self._early:
                self._run.params(self._early.pop(0))

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def log_hyperparams(
        self, params: Mapping[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        if self._run is None:
            self._early.append(params)
        else:
            self._run.params(params)

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._begin()
        assert self._run is not None
        self._run.log(metrics, step=step)

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Record the parameter count; the graph itself is not stored. Remember the checkpoint that
        the Trainer resumes from.
        """
        trainer = getattr(model, "_trainer", None)
        self._resume_from = self._resume_from or getattr(trainer, "ckpt_path", None)
        self._begin()
        assert self._run is not None
        self._run.params(kept_run.parameters(model))

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Keep beside the checkpoints which run they are of."""
        if self._run is None:
            return
        words = ("last_model_path", "best_model_path", "_last_checkpoint_saved")
        paths = [getattr(checkpoint_callback, word, "") for word in words]
        paths += getattr(checkpoint_callback, "best_k_models", ())
        for path in {Path(path) for path in paths if path}:
            kept_run.keep(path.parent, self._run.id, [path.name])

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def finalize(self, status: str) -> None:
        if status in ("failed", "interrupted"):
            self.finish("failed" if status == "failed" else "stopped")

    def finish(self, status: str = "completed") -> None:
        """End the run, if there is one."""
        if self._run is not None:
            self._run.finish(status)
            self._run = None

    close = finish
