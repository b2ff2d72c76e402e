"""Recipes as users write them, for tests: the example's, in fp64, and some that do not fit."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from torch.nn.functional import cross_entropy

from albor_core.model.head import IGNORED, shifted
from albor_core.recipes.causal_lm import CausalLM
from albor_core.recipes.head_loss import TokenLoss
from albor_core.recipes.recipe import Recipe

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "own_model.py"
_spec = spec_from_file_location("the_example", EXAMPLE)  # own_model is the name of tests' copies
sys.modules["the_example"] = module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["the_example"])
RunningSums = sys.modules["the_example"].RunningSums


class Double(RunningSums):
    def model(self, device):
        return super().model(device).double()


class NoLoss(Recipe):
    def sources(self):
        raise AssertionError("never asked for")


class OddSource(RunningSums):
    def sources(self):
        train, val = super().sources()
        train.count = lambda rows: len(rows) / 3
        return train, val


class NoIds(RunningSums):
    def sources(self):
        train, val = super().sources()
        train.batch = lambda rows: {"digits": rows}
        return train, val


class MeanOfRows(RunningSums):
    def loss(self, model, batch):
        logits = model(batch.ids)
        return logits.mean((1, 2)), {}


class Unnamed(RunningSums):
    def loss(self, model, batch):
        total, _ = super().loss(model, batch)
        return total, {"accuracy": total.detach()}


class Frozen(RunningSums):
    def model(self, device):
        return super().model(device).requires_grad_(False)


class NoSplit(RunningSums):
    def sources(self):
        return super().sources()[0]


class Figures(RunningSums):
    """Figures of its own, in training and in validation."""

    columns = ("entropy",)

    def loss(self, model, batch):
        total, _ = super().loss(model, batch)
        return total, {"entropy": 2 * total.detach()}

    def evaluate(self, model, batch, rows, scored):
        found = super().evaluate(model, batch, rows, scored)
        return {**found, "val/rows": (found["val/loss"][0] * 0 + rows, rows)}


class Norms(CausalLM):
    """The decoder's norms alone are trained."""

    def trains(self, name):
        return "norm" in name


class Smoothed(CausalLM):
    """Another head loss, with a figure of its own; the fused step can still take it."""

    def head_loss(self):
        return Smoothing(self.settings["smoothing"])


class Smoothing(TokenLoss):
    columns = ("smooth",)

    def __init__(self, share):
        self.share = share

    def values(self, logits, batch, rows):
        targets, how = shifted(batch.targets)[rows], {"ignore_index": IGNORED, "reduction": "none"}
        return cross_entropy(logits, targets, label_smoothing=self.share, **how)

    def total(self, values, batch):
        mean = values.sum() / self.count(batch)
        return mean, {"smooth": 2 * mean.detach()}


class NotARecipe:
    """Nothing of the kind."""


class Doubled(CausalLM):
    """Albor's own decoder and data, another loss."""

    def loss(self, model, batch):
        total, sums = super().loss(model, batch)
        return 2 * total, sums
