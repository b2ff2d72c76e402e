"""A head, a loss and a metric of your own on Albor's decoder: see classifier.yaml beside it."""

import numpy as np
from torch import nn

from albor_core.model.llama import Llama, init_weights
from albor_core.recipes.causal_lm import shape_of
from albor_core.recipes.recipe import Recipe


class Texts:
    """Rows of tokens; the class of a row is what it has most of: small, middling or large ones."""

    def __init__(self, seed, rows, length):
        self.ids = np.random.default_rng(seed).integers(0, 63, (rows, length))
        counts = [(self.ids // 21 == kind).sum(1) for kind in range(3)]
        self.labels, self.data_hash = np.argmax(counts, 0), f"texts of {seed}, {rows} x {length}"

    def __len__(self):
        return len(self.ids)

    def count(self, rows):
        return len(rows)

    def batch(self, rows):
        return {"ids": self.ids[rows], "kind": self.labels[rows]}


class Classifier(nn.Module):
    def __init__(self, shape, seed):
        super().__init__()
        whole = Llama(shape)
        init_weights(whole, seed)
        self.decoder, self.head = whole.model, nn.Linear(shape.hidden_size, 3)

    def forward(self, ids):
        return self.head(self.decoder(ids).mean(1))


class Classify(Recipe):
    def sources(self):
        length = self.config.data.seq_len
        return Texts(1, 2048, length), Texts(2, 256, length)

    def model(self, device):
        return Classifier(shape_of(self.config), self.config.training.seed).to(device)

    def loss(self, model, batch):
        total = nn.functional.cross_entropy(model(batch.ids), batch.extra["kind"], reduction="sum")
        return total, {}

    def evaluate(self, model, batch, rows, scored):
        kind, logits = batch.extra["kind"][:rows], model(batch.ids)[:rows]
        loss = nn.functional.cross_entropy(logits, kind, reduction="sum").double()
        right = (logits.argmax(-1) == kind).double().sum()
        return {"val/loss": (loss, rows), "val/accuracy": (right, rows)}
