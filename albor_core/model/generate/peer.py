"""transformers' generate on the same weights, where it is installed: what to be measured by."""

from __future__ import annotations

import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from albor_core.model.generate.measure import Load


def is_installed() -> bool:
    return find_spec("transformers") is not None


class Peer:
    """A folder of weights, or a config with random ones, in transformers."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval()
        self._model.generation_config.eos_token_id = None

    @classmethod
    def load(cls, folder: Path, *, device: torch.device, dtype: torch.dtype) -> Peer:
        """Looks at no network."""
        auto = import_module("transformers").AutoModelForCausalLM
        import_module("transformers.utils.logging").disable_progress_bar()
        model = auto.from_pretrained(folder, dtype=dtype, local_files_only=True)
        return cls(model.to(device))

    def __call__(self, load: Load) -> float:
        """Seconds to write all of it."""
        prompts = load.prompts(self._model.config.vocab_size).to(self._model.device)
        began = time.perf_counter()
        with torch.no_grad():
            found = self._model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=load.new_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        int(found[0, -1])  # the device has finished
        assert found.shape[1] == load.context + load.new_tokens
        return time.perf_counter() - began
