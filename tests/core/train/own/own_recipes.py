"""Recipes as users write them, for tests: the example's, in fp64, and some that do not fit."""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy, logsigmoid

from albor_core.data.load.order import SequenceOrder
from albor_core.model.head import IGNORED, shifted
from albor_core.model.llama import init_weights
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
    """Also by another decoder, which is frozen."""

    columns = ("kl",)

    def beside(self, device):
        teacher = CausalLM.model(self, device)
        init_weights(teacher, self.settings["teacher_seed"])
        return {"teacher": teacher}

    def loss(self, model, batch):
        total, _ = super().loss(model, batch)
        with torch.no_grad():
            wanted = self.others["teacher"](batch.ids)[0].log_softmax(-1)
        found = model(batch.ids)[0].log_softmax(-1)
        kl = (wanted.exp() * (wanted - found)).sum(-1)[:, :-1].sum()
        return 0.5 * total + 0.5 * kl, {"kl": kl.detach()}


class PairRows:
    """Each row beside the same one backwards, which is to be less likely."""

    def __init__(self, source):
        self.inner, self.data_hash = source, f"pairs of {source.data_hash}"

    def __len__(self):
        return len(self.inner)

    def count(self, rows):
        return len(rows)  # pairs

    def batch(self, rows):
        ids = self.inner.batch(rows)["ids"]
        return {"ids": ids, "other": ids[:, ::-1].copy(), "row": rows}


class Preferred(CausalLM):
    """A loss on pairs beside what the model of step 0 made of them, computed before step 1."""

    def sources(self):
        train, _ = super().sources()
        self.pairs = PairRows(train)
        return self.pairs, None

    def order(self, source):
        return SequenceOrder(self.config.training.seed, len(source))

    def prepare(self, model, room):
        self.reference = torch.zeros(len(self.pairs), dtype=torch.float32)
        for row in range(len(self.pairs)):
            file = room.folder / f"{row}.json"
            if not file.exists() and row in room.mine(len(self.pairs)):
                assert room.begins
                if os.environ.get("DIE_AT") == str(row):
                    os._exit(9)
                ids = torch.from_numpy(self.pairs.batch(np.array([row]))["ids"])
                pair = torch.cat((ids, ids.flip(1)))
                with torch.no_grad():
                    logp = log_p(model(pair)[0].flatten(0, 1), pair).view(2, -1).sum(1)
                write_json(file, {"margin": float(logp[0] - logp[1])}, durable=False)
            room.report((row + 1) / len(self.pairs))
        for row in range(len(self.pairs)):
            self.reference[row] = read_json(room.folder / f"{row}.json")["margin"]

    def loss(self, model, batch):
        pair = torch.cat((batch.ids, batch.extra["other"]))
        found = {**batch.extra, "margin": self.reference[batch.extra["row"]].repeat(2)}
        _, (mean, means) = model(pair, score=PairLoss().bind(Batch(pair, None, None, found)))
        number = len(batch)
        return mean * number, {name: value * number for name, value in means.items()}

    columns = ("margin",)


class PairLoss(LogLoss):
    columns = ("margin",)

    def count(self, batch):
        return torch.tensor(len(batch) // 2)

    def total(self, values, batch):
        logp = -values.view(2, len(batch) // 2, -1).sum(-1)
        margin = logp[0] - logp[1] - batch.extra["margin"][: len(batch) // 2]
        return -logsigmoid(0.1 * margin).mean(), {"margin": margin.detach().mean()}


def log_p(logits, ids):
    return -cross_entropy(logits, shifted(ids), ignore_index=IGNORED, reduction="none")


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
