"""A model, a loss and data of your own: `albor train apply examples/own_model.yaml`."""

import numpy as np
from torch import nn

from albor_core.recipes.recipe import Recipe


class Sums:
    """Rows of random digits; labels are their running sums modulo 10. Some rows are short."""

    def __init__(self, seed, rows, length):
        random = np.random.default_rng(seed)
        self.digits = random.integers(0, 10, (rows, length))
        self.lengths = random.integers(length // 4, length + 1, rows)
        self.data_hash = f"sums of {seed}, {rows} x {length}"  # other data, another text

    def __len__(self):
        return len(self.digits)

    def count(self, rows):
        return self.lengths[rows].sum()  # labels that are scored

    def batch(self, rows):
        ids = self.digits[rows]
        is_there = np.arange(ids.shape[1]) < self.lengths[rows, None]
        return {"ids": ids, "labels": np.where(is_there, ids.cumsum(1) % 10, -100)}


class Adder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed_tokens = nn.Embedding(10, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, ids):
        return self.head(self.rnn(self.embed_tokens(ids))[0])


class RunningSums(Recipe):
    def sources(self):
        length = self.config.data.seq_len
        return Sums(1, 2048, length), Sums(2, 256, length)

    def model(self, device):
        return Adder(self.settings["width"]).to(device)

    def loss(self, model, batch):
        logits = model(batch.ids).transpose(1, 2)
        return nn.functional.cross_entropy(logits, batch.labels, reduction="sum"), {}
