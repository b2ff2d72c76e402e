"""XGBoost in the cockpit: `xgboost.train(..., evals=..., callbacks=[XGBoostCallback()])`.

Each round's figures of the evaluation sets go under `SET/METRIC`. The scikit-learn interface takes
the same callback.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from albor_core import track

_TrainingCallback: Any = import_module("xgboost").callback.TrainingCallback


class XGBoostCallback(_TrainingCallback):  # type: ignore[misc]  # xgboost is not a dependency
    """Tracks each training as a run of its own. It stays open after the training, since a test may
    follow: the next training, `close()` or the end of the program closes it.

    The arguments are those of `track.start`, whose `config` may well be the parameters of the
    training. With `id` and `resume="allow"` a training that goes on from a model (`xgb_model`) goes
    on with its run.
    """

    def __init__(self, experiment: str = "xgboost", **settings: Any) -> None:
        super().__init__()
        self.experiment, self.settings = experiment, settings
        self.run: track.Run | None = None

    def close(self, status: str = "completed") -> None:
        """Close the run, if there is one."""
        if self.run is not None:
            self.run.finish(status)
            self.run = None

    def before_training(self, model: Any) -> Any:
        self.close()
        self.run = track.start(self.experiment, **self.settings)
        self.run.repeats_steps = True  # what a program says of a round stands beside its figures
        return model

    def after_iteration(
        self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        assert self.run is not None
        newest = {
            f"{name}/{metric}": _figure(history[-1])
            for name, metrics in evals_log.items()
            for metric, history in metrics.items()
        }
        self.run.log(newest, step=epoch)
        return False  # goes on


def _figure(value: Any) -> Any:
    """The value of a metric; the mean if cross-validation gives mean and deviation."""
    return value[0] if isinstance(value, tuple) else value
