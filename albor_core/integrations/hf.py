"""A Hugging Face Trainer in the cockpit: `Trainer(..., callbacks=[AlborCallback()])`.

Loss, gradient norm, learning rate and evaluation loss go under the house's names, everything else
that the Trainer logs under its own. Only the process of rank 0 says anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from albor_core import track

# by name: the type checker would read all of transformers for this one class, half a minute
_TrainerCallback: Any = import_module("transformers").TrainerCallback

_NAMES = {"epoch": "train/epoch", "num_input_tokens_seen": "train/tokens"}
# means over the whole training, said at its end: as values of the last step they would be wrong
_SUMMARY = ("train_loss", "train_runtime", "total_flos")


class AlborCallback(_TrainerCallback):  # type: ignore[misc]
    """Tracks each `train()` as a run of its own.

    The run stays open after training, since evaluations may follow: the next `train()`, `close()`
    or the end of the program closes it, as `failed` where an exception ended the program. The
    arguments are those of `track.start`.
    """

    def __init__(
        self,
        experiment: str = "hf",
        name: str | None = None,
        dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.experiment, self.name, self.dir = experiment, name, dir
        self.run: track.Run | None = None

    def close(self, status: str = "completed") -> None:
        """Close the run, if there is one."""
        if self.run is not None:
            self.run.close(status)
            self.run = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.close()
        model = getattr(kwargs.get("model"), "config", None)
        config = {
            **args.to_dict(),
            **({} if model is None else {"model": model.to_dict()}),
        }
        self.run = track.start(
            self.experiment, self.name, config, self.dir, max_steps=state.max_steps
        )

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
        if any(key in logs for key in _SUMMARY):
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
