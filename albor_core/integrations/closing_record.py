"""How the record is told that Hugging Face's Trainer logs at its end: its means are of the whole
training, and as values of the last step they would be wrong.
"""

from __future__ import annotations

from collections.abc import Collection


def is_closing(names: Collection[str]) -> bool:
    """Whether what was logged under these names, also with W&B's `train/` before them, is that
    record. A Trainer that counts tokens gives each of its records a runtime, and tokens a second
    beside it; at the end there are samples a second, which no other record has.
    """
    known = {name.removeprefix("train/") for name in names}
    counts_tokens = "train_tokens_per_second" in known
    return "train_runtime" in known and ("train_samples_per_second" in known or not counts_tokens)
