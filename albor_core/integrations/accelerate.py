"""Accelerate's tracking API in the cockpit: `Accelerator(log_with=AlborTracker("my-project"))`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from albor_core import track


class AlborTracker(GeneralTracker):  # type: ignore[misc]  # accelerate has no types
    """The run begins with `accelerator.init_trackers(...)`, whose config becomes its parameters,
    and ends with `accelerator.end_training()`. Only the main process says anything.

    The arguments are those of `track.start`.
    """

    name = "albor"
    requires_logging_directory = False
    main_process_only = True

    def __init__(
        self,
        experiment: str = "accelerate",
        run_name: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        *,
        max_steps: int | None = None,
    ) -> None:
        super().__init__()
        self.experiment, self.run_name, self.dir = experiment, run_name, dir
        self.max_steps = max_steps
        self.run: track.Run | None = None

    @property
    def tracker(self) -> track.Run | None:
        """The run; None before `init_trackers` and on all processes but the main one."""
        return self.run

    @on_main_process  # type: ignore[untyped-decorator]
    def start(self) -> None:
        if self.run is None:
            self.run = track.start(
                self.experiment, self.run_name, None, self.dir, max_steps=self.max_steps
            )

    @on_main_process  # type: ignore[untyped-decorator]
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        if self.run is not None:
            self.run.params(values)

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        if self.run is not None:
            self.run.log(values, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        if self.run is not None:
            self.run.close()
            self.run = None
