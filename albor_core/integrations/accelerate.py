"""Accelerate's tracking API in the cockpit: `Accelerator(log_with=AlborTracker("my-project"))`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker, on_main_process

from albor_core import track
from albor_core.integrations import kept_run


class AlborTracker(GeneralTracker):  # type: ignore[misc]  # accelerate has no types
    """The run begins with `accelerator.init_trackers(...)`, whose config becomes its parameters,
    and ends with `accelerator.end_training()`. Only the main process says anything.

    The arguments are those of `track.start`. After `tracker.follow(accelerator)` each
    `save_state` says which run it is of, and `resume_from`, the folder that the script gives to
    `load_state`, goes on with that run, as long as it lies where it was saved.
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
        resume_from: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.experiment, self.run_name, self.dir = experiment, run_name, dir
        self.resume_from, self.settings = resume_from, settings
        self.run: track.Run | None = None
        self._accelerator: Any = None

    def follow(self, accelerator: Any) -> None:
        """Have the states that it saves say which run they are of, and the run how many parameters
        its models have.
        """
        self._accelerator = accelerator
        accelerator.register_save_state_pre_hook(self._keep)

    @on_main_process  # type: ignore[untyped-decorator]
    def _keep(self, models: Any, weights: Any, folder: str) -> None:
        if self.run is not None:
            kept_run.keep(folder, self.run.id)

    @property
    def tracker(self) -> track.Run | None:
        """The run; None before `init_trackers` and on all processes but the main one."""
        return self.run

    @on_main_process  # type: ignore[untyped-decorator]
    def start(self) -> None:
        if self.run is None:
            self.run = kept_run.start(
                self.settings,
                *kept_run.run_of_checkpoint(self.resume_from),
                experiment=self.experiment,
                name=self.run_name,
                dir=self.dir,
            )

    @on_main_process  # type: ignore[untyped-decorator]
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        if self.run is not None:
            self.run.params(values)

    @on_main_process  # type: ignore[untyped-decorator]
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        if self.run is None:
            return
        if models := getattr(self._accelerator, "_models", None):
            self._accelerator = None  # once
            self.run.params(kept_run.parameters(*models))
        self.run.log(values, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Pictures under each key: a list, or an array of several."""
        if self.run is None:
            return
        for key, pictures in values.items():
            is_several = isinstance(pictures, list | tuple) or getattr(pictures, "ndim", 0) == 4
            for picture in pictures if is_several else (pictures,):
                self.run.image(key, picture, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        if self.run is not None:
            rows = data if dataframe is None else dataframe
            self.run.table(table_name, rows, columns=columns, step=step)

    @on_main_process  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
            self.run = None
