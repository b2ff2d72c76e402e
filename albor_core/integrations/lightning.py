"""A Lightning Trainer in the cockpit: `Trainer(logger=AlborLogger("my-project"))`.

For `lightning` and for `pytorch_lightning`, whichever is installed. Only rank 0 says anything.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from albor_core import track

_PACKAGE = "lightning.pytorch" if find_spec("lightning") is not None else "pytorch_lightning"
_Logger: Any = import_module(f"{_PACKAGE}.loggers").Logger
_rank_zero_only: Any = import_module(f"{_PACKAGE}.utilities").rank_zero_only


class AlborLogger(_Logger):  # type: ignore[misc]  # lightning is no dependency of ours
    """The run begins with the first thing that is logged, and stays open over fit, validate and
    test: `close()` or the end of the program closes it, an exception in the Trainer at once. The
    arguments are those of `track.start`.
    """

    def __init__(
        self,
        experiment: str = "lightning",
        name: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        *,
        max_steps: int | None = None,
    ) -> None:
        super().__init__()
        self._experiment, self._run_name, self._dir = experiment, name, dir
        self._max_steps = max_steps
        self._run: track.Run | None = None

    @property
    def name(self) -> str:
        return self._run_name or self._experiment

    @property
    def version(self) -> str:
        """The run's id; empty before it began."""
        return "" if self._run is None else self._run.id

    @property
    def experiment(self) -> track.Run | None:
        """The run, begun if need be; None on all ranks but 0."""
        self._begin()
        return self._run

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def _begin(self) -> None:
        if self._run is None:
            self._run = track.start(
                self._experiment, self._run_name, None, self._dir, max_steps=self._max_steps
            )

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def log_hyperparams(
        self, params: Mapping[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        self._begin()
        assert self._run is not None
        self._run.params(params)

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._begin()
        assert self._run is not None
        self._run.log(metrics, step=step)

    @_rank_zero_only  # type: ignore[untyped-decorator]
    def finalize(self, status: str) -> None:
        if status in ("failed", "interrupted"):
            self.close("failed" if status == "failed" else "stopped")

    def close(self, status: str = "completed") -> None:
        """Close the run, if there is one."""
        if self._run is not None:
            self._run.close(status)
            self._run = None
