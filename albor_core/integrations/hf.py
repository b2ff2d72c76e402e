"""A Hugging Face Trainer in the cockpit: `Trainer(..., callbacks=[AlborCallback()])`.

Loss, gradient norm, learning rate and evaluation loss go under the house's names, everything else
that the Trainer logs under its own; tokens with `include_num_input_tokens_seen`. Only the process
of rank 0 says anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from albor_core import track
from albor_core.integrations import kept_run
from albor_core.integrations.closing_record import is_closing
from albor_core.run.values.metrics import as_json

# by name: the type checker would read all of transformers for these classes, half a minute
_callbacks = import_module("transformers.trainer_callback")
_TrainerCallback: Any = _callbacks.TrainerCallback
_ExportableState: Any = getattr(_callbacks, "ExportableState", object)  # not before 4.42

_NAMES = {
    "epoch": "train/epoch",
    "num_input_tokens_seen": "train/tokens",
    "train_tokens_per_second": "perf/tokens_per_s",
}
_FILTER = "logging_nan_inf_filter"


class AlborCallback(_TrainerCallback, _ExportableState):  # type: ignore[misc]
    """Tracks each `train()` as a run of its own.

    `train(resume_from_checkpoint=...)` goes on with the run that saved the checkpoint, which says
    so in its trainer_state.json, as long as it lies in the `output_dir` where it was saved. From a
    checkpoint that lies elsewhere a new run begins, whose `parent` is the other.

    The run stays open after training, since evaluations may follow: the next `train()`, `finish()`
    or the end of the program closes it, as `failed` where an exception ended the program. The
    arguments are those of `track.start`.
    """

    def __init__(
        self,
        experiment: str = "hf",
        name: str | None = None,
        dir: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self.experiment, self.name, self.dir, self.settings = experiment, name, dir, settings
        self.run: track.Run | None = None
        self._switched: Any = None  # the arguments whose filter was switched off here
        self.kept: Mapping[str, str] | None = None
        """Which run a checkpoint is of; set where the Trainer restores its callbacks."""

    def state(self) -> dict[str, Any]:
        """The state that the Trainer saves with each checkpoint."""
        args = {"experiment": self.experiment, "name": self.name, **as_json(self.settings)}
        if self.dir is not None:
            args["dir"] = os.fspath(self.dir)
        return {"args": args, "attributes": {"kept": self.kept}}

    def finish(self, status: str = "completed") -> None:
        """End the run, if there is one."""
        if self.run is not None:
            self.run.finish(status)
            self.run = None

    close = finish

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.finish()
        filtered = _switch_off_filter(args)
        if filtered:
            self._switched = args
        said = {_FILTER: True} if args is self._switched else {}  # as the user has it
        model = kwargs.get("model")
        shape = getattr(model, "config", None)
        config = {
            **args.to_dict(),
            **said,
            **({} if shape is None else {"model": shape.to_dict()}),
            **kept_run.parameters(model),
        }
        going_on, parent = kept_run.run_of_mark(_kept(state), args.output_dir)
        self.run = kept_run.start(
            self.settings,
            going_on,
            parent,
            experiment=self.experiment,
            name=self.name,
            config=config,
            dir=self.dir,
            max_steps=state.max_steps,
        )
        self.kept = kept_run.mark(args.output_dir, self.run.id)
        if filtered:
            self.run.event("hf.nan_filter", logging_nan_inf_filter=filtered)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.run is None or not logs:
            return
        if is_closing(logs):
            self.run.event("hf.summary", step=state.global_step, **logs)
            return
        named = {_NAMES.get(key, key): value for key, value in logs.items()}
        self.run.log(named, step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._beat("training")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._beat("evaluating")

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._beat("training")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is not None:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.run.event("hf.checkpoint", step=state.global_step, path=str(folder.absolute()))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is not None:
            self.run.event("hf.train_end", step=state.global_step)

    def _beat(self, phase: str) -> None:
        if self.run is not None:
            self.run.beat(phase)


def _switch_off_filter(args: Any) -> str:
    """A Trainer replaces a loss that is NaN by the mean of those before, 0 where there are none: of
    what is logged here it is not to. What was done, "" where nothing was to be done.
    """
    if not getattr(args, _FILTER, False):
        return ""
    try:
        setattr(args, _FILTER, False)
    except Exception:  # some arguments are frozen
        object.__setattr__(args, _FILTER, False)
    return "switched off: a loss of NaN is logged as it is"


def _kept(state: Any) -> object:
    """The callback's state in the checkpoint from which the Trainer continues."""
    if not getattr(state, "global_step", 0):
        return None
    saved = getattr(state, "stateful_callbacks", None) or {}
    found = saved.get(AlborCallback.__name__)
    newest = found[-1] if isinstance(found, list) and found else found
    attributes = newest.get("attributes") if isinstance(newest, Mapping) else None
    return attributes.get("kept") if isinstance(attributes, Mapping) else None
