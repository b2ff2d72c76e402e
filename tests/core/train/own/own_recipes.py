"""Recipes as users write them, for tests: the example's, in fp64, and some that do not fit."""

import os
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import torch
from own_recipes_entry import TEACHER
from torch.nn.functional import cross_entropy, logsigmoid

from albor_core.data.load.order import SequenceOrder
from albor_core.model.head import IGNORED, shifted
from albor_core.model.llama import Llama, init_weights
from albor_core.model.matrices import PackedMatrix
from albor_core.recipes.batch import Batch
from albor_core.recipes.causal_lm import CausalLM
from albor_core.recipes.head_loss import LogLoss, TokenLoss
from albor_core.recipes.recipe import Recipe
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import read_json

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


class LastLayer(CausalLM):
    """The second of two layers is trained."""

    def trains(self, name):
        return "layers.1." in name


class Int8(PackedMatrix):
    """A row's values over its largest."""

    def __init__(self, weight):
        super().__init__()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("packed", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.shape = (weight.shape[0], weight.shape[1])

    def write(self, out):
        torch.mul(self.packed, self.scale, out=out)


class Packed(Norms):
    """The MLPs are packed as int8; the norms have a file of another name."""

    weights_file = "norms.safetensors"

    def pack(self, model):
        for layer in model.model.layers:
            for name in ("gate_proj", "up_proj", "down_proj"):
                weight = getattr(layer.mlp, name).weight.detach()
                setattr(layer.mlp, name, Int8(weight))


class Taught(CausalLM):
    """Also by another decoder of 1M, which is frozen."""

    def beside(self, device):
        teacher = Llama(replace(self.shape, **TEACHER)).to(device)
        init_weights(teacher, self.settings["teacher_seed"])
        return {"teacher": teacher}

    def head_loss(self):
        return Distilled(self)


class Distilled(TokenLoss):
    columns = ("kl",)

    def __init__(self, recipe):
        self.recipe = recipe

    def bind(self, batch):
        with torch.no_grad():
            wanted = self.recipe.others["teacher"](batch.ids)[0].float().log_softmax(-1)
        return super().bind(replace(batch, extra={"wanted": wanted.flatten(0, 1)}))

    def values(self, logits, batch, rows):
        wanted, targets = batch.extra["wanted"][rows], shifted(batch.targets)[rows]
        kl = (wanted.exp() * (wanted - logits.log_softmax(-1))).sum(-1) * (targets != IGNORED)
        nats = cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
        return torch.stack((nats, kl), -1)

    def total(self, values, batch):
        nats, kl = values.sum(0) / self.count(batch)
        return (nats + kl) / 2, {"kl": kl.detach()}


class PairRows:
    """The first half of each row, and the same one backwards, which is to be less likely."""

    def __init__(self, source):
        self.inner, self.data_hash = source, f"pairs of {source.data_hash}"

    def __len__(self):
        return len(self.inner)

    def count(self, rows):
        return len(rows)  # pairs

    def batch(self, rows):
        first = np.array_split(self.inner.batch(rows)["ids"], 2, axis=1)[0]
        return {"ids": np.concatenate((first, first[:, ::-1]), 1), "row": rows}


class Preferred(CausalLM):
    """A loss on pairs beside what the model of step 0 made of them, computed before step 1."""

    def sources(self):
        train, _ = super().sources()
        self.pairs = PairRows(train)
        return self.pairs, None

    def order(self, source):
        return SequenceOrder(self.config.training.seed, len(source))

    def prepare(self, model, room):
        device = next(model.parameters()).device
        for row in range(len(self.pairs)):
            file = room.folder / f"{row}.json"
            if not file.exists() and row in room.mine(len(self.pairs)):
                assert room.begins
                if os.environ.get("DIE_AT") == str(row):
                    os._exit(9)
                ids = torch.from_numpy(self.pairs.batch(np.array([row]))["ids"]).to(device)
                with torch.no_grad():
                    nats = LogLoss().values(model(ids)[0].float().flatten(0, 1), Batch(ids), ...)
                write_json(file, {"margin": float(margins(nats, 1))}, durable=False)
            room.report((row + 1) / len(self.pairs))
        rows = (room.folder / f"{row}.json" for row in range(len(self.pairs)))
        self.reference = torch.tensor([read_json(row)["margin"] for row in rows], device=device)

    def head_loss(self):
        return PairLoss(self)


class PairLoss(LogLoss):
    columns = ("margin",)

    def __init__(self, recipe):
        self.recipe = recipe

    def bind(self, batch):
        reference = self.recipe.reference[batch.extra["row"]]
        return super().bind(replace(batch, extra={"reference": reference}))

    def count(self, batch):
        return torch.tensor(len(batch))

    def total(self, values, batch):
        margin = margins(values, len(batch)) - batch.extra["reference"]
        return -logsigmoid(0.1 * margin).mean(), {"margin": margin.detach().mean()}


def margins(nats, pairs):
    """How much likelier the first half of each row is than the second."""
    first, second = nats.view(pairs, -1).tensor_split(2, 1)
    return second.sum(1) - first.sum(1)


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


class Shifted(RunningSums):
    """`recipe.by` more than it was, with the gradients that it had; "-loss": exactly 0."""

    def sources(self):
        train, val = super().sources()
        return train, val if self.settings.get("validates", True) else None

    def loss(self, model, batch):
        total, sums = super().loss(model, batch)
        if self.settings["by"] == "-loss":
            return total - total.detach(), sums
        return total + float(self.settings["by"]) * (batch.targets >= 0).sum(), sums


class Judged(Shifted):
    """Which is sound in `recipe.within` alone."""

    def loss_fault(self, loss):
        low, high = map(float, self.settings["within"])
        return "" if low <= loss <= high else f"it belongs between {low:g} and {high:g}"


class NotARecipe:
    """Nothing of the kind."""


class Doubled(CausalLM):
    """Albor's own decoder and data, another loss."""

    def loss(self, model, batch):
        total, sums = super().loss(model, batch)
        return 2 * total, sums
