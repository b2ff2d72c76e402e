"""research/peers/nanochat.py: nanochat is taken as it is, and trained by its rules."""

from __future__ import annotations

import gc
import hashlib
import itertools
import math
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

RESEARCH = Path(__file__).resolve().parents[1]
MODULES = ("", ".common", ".optim", ".gpt", ".flash_attention")

GPT = """
from dataclasses import dataclass
import torch
from nanochat.flash_attention import flash_attn
from nanochat.optim import KIND

@dataclass
class GPTConfig:
    sequence_len: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_kv_head: int
    n_embd: int
    window_pattern: str

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.lm_head = torch.nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.h = torch.nn.Parameter(torch.empty(config.n_layer, 12 * config.n_embd**2))

    def init_weights(self):
        torch.nn.init.zeros_(self.lm_head.weight)
        torch.nn.init.ones_(self.h)

    def num_scaling_params(self):
        lm_head = self.lm_head.weight.numel()
        return {"transformer_matrices": self.h.numel(), "lm_head": lm_head, "wte": 1 << 40}

def attend(q, window):
    return flash_attn.flash_attn_func(q, q, q, causal=True, window_size=(window, 0))
"""


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts can be imported, and nothing of a stand-in for nanochat stays so."""
    monkeypatch.syspath_prepend(RESEARCH)
    yield
    for name in MODULES:
        sys.modules.pop(f"nanochat{name}", None)


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds a stand-in for what the user fetches."""
    from peers import nanochat as peer

    package = tmp_path / "nanochat" / "nanochat"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, text in (("common.py", ""), ("optim.py", 'KIND = "muon"\n'), ("gpt.py", GPT)):
        (package / name).write_text(text, encoding="utf-8")
        digest = hashlib.sha256((package / name).read_bytes()).hexdigest()
        monkeypatch.setitem(peer.SHA256, name, digest)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_other_contents_are_refused_with_what_to_do(peers: Path) -> None:
    from peers.nanochat import COMMIT, check

    check(peers)
    file = peers / "nanochat" / "nanochat" / "optim.py"
    file.write_text('KIND = "adam"\n', encoding="utf-8")
    with pytest.raises(SystemExit, match=rf"optim\.py: not that of .*checkout {COMMIT}"):
        check(peers)
    file.unlink()
    with pytest.raises(SystemExit, match=rf"no such file; git clone .*nanochat.* {COMMIT}"):
        check(peers)


def test_its_model_is_built_at_its_shape_and_attends_through_our_window(peers: Path) -> None:
    from peers.autoresearch import attend
    from peers.nanochat import build, load, scale

    gpt = load(peers)
    model, scaled = build(gpt, 3, 64, torch.device("cpu"))
    config = model.config
    assert (config.n_embd, config.n_head, config.n_kv_head) == (256, 2, 2)  # 192, rounded up
    assert (config.sequence_len, config.vocab_size, config.window_pattern) == (2048, 64, "SSSL")
    assert bool((model.h == 1).all()) and not model.lm_head.weight.any()
    sizes = (depth * 12 * width**2 + 64 * width for depth, width in ((3, 256), (12, 768)))
    assert scaled == scale(*sizes)
    q = torch.randn(1, 9, 2, 4)
    torch.testing.assert_close(gpt.attend(q, 3), attend(q, q, q, 3))


def test_rates_batch_and_decay_scale_as_its_rules_say() -> None:
    from peers.nanochat import REFERENCE_BATCH, scale

    same = scale(90_000_000, 90_000_000)
    assert (same.batch, same.rate, same.weight_decay) == (REFERENCE_BATCH, 1.0, 0.28)
    # its base_train.py at 92d63d4: --depth=8 with a vocabulary of 8,192
    small = scale(29_360_304, 91_227_168)
    assert small.batch == 262_144
    assert small.rate == pytest.approx(math.sqrt(0.5))
    assert small.weight_decay == pytest.approx(0.28 * math.sqrt(0.5) * 91_227_168 / 29_360_304)


def test_schedules_are_its_own_at_the_share_that_is_gone() -> None:
    """Compared with the three functions of its base_train.py, of 1,000 steps."""
    from peers.nanochat import decay_share, momentum, rate_share

    steps, down = 1000, round(0.65 * 1000)

    def rate(it: int) -> float:
        if it < 40:
            return (it + 1) / 40
        if it <= steps - down:
            return 1.0
        progress = (steps - it) / down
        return progress * 1.0 + (1 - progress) * 0.05

    def muon_momentum(it: int) -> float:
        if it < 400:
            return (1 - it / 400) * 0.85 + it / 400 * 0.97
        if it >= steps - down:
            progress = (it - (steps - down)) / down
            return 0.97 * (1 - progress) + 0.90 * progress
        return 0.97

    for it in (0, 1, 39, 40, 200, 350, 351, 399, 400, 700, 999, 1000):
        gone = it / steps
        assert rate_share(it, gone) == pytest.approx(rate(it))
        assert momentum(it, gone) == pytest.approx(muon_momentum(it))
        assert decay_share(gone) == pytest.approx(0.5 * (1 + math.cos(math.pi * it / steps)))
    assert momentum(400, 0.1) == 0.97  # long runs: between rise and fall


class Bigrams(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 7)
        self.bias = nn.Parameter(torch.zeros(7))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        logits = self.table(ids) + self.bias
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Recorded(torch.optim.SGD):
    """Remembers how it was set at each step, and the gradient of the bias."""

    def __init__(self, model: Bigrams) -> None:
        groups = [
            {"params": [model.table.weight], "kind": "muon", "lr": 2.0, "initial_lr": 2.0},
            {"params": [model.bias], "kind": "adamw", "lr": 0.5, "initial_lr": 0.5},
        ]
        super().__init__(groups, lr=0.0, momentum=0.5, weight_decay=0.1)
        self.seen: list[list[tuple[float, float, float]]] = []
        self.gradients: list[Tensor] = []

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        keys = ("lr", "momentum", "weight_decay")
        self.seen.append([tuple(group[key] for key in keys) for group in self.param_groups])
        grad = self.param_groups[1]["params"][0].grad
        assert grad is not None
        self.gradients.append(grad.clone())
        super().step(closure)


def test_the_loop_learns_and_sets_its_optimizer_by_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from peers import nanochat as peer

    ticks = itertools.count()  # each look at the clock is a second: so is a step
    clock = types.SimpleNamespace(monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr(peer, "time", clock)
    ids = (torch.arange(8 * 17) % 7).view(8, 17)
    batches = ((ids[:, :-1], ids[:, 1:], 1 + i // 12) for i in itertools.count())
    torch.manual_seed(0)
    model = Bigrams()
    optimizer = Recorded(model)
    with torch.no_grad():
        before = model(ids[:, :-1], ids[:, 1:]).item()
    about = peer.train(
        model, optimizer, batches, seconds=10, accumulation=2, weight_decay=3.0, uncounted=4
    )
    with torch.no_grad():
        assert model(ids[:, :-1], ids[:, 1:]).item() < before
    assert about["steps"] == 14  # 4 that are kept and not counted, and 10 s of one second each
    assert about["tokens"] == 14 * 2 * 8 * 16
    assert about["epochs"] == 1 + 27 // 12  # of the last batch that was trained on
    assert gc.isenabled() and not gc.get_freeze_count()
    for step, (muon, adam) in enumerate(optimizer.seen):
        gone = max(0, step - 4) / 10
        share = peer.rate_share(step, gone)
        decay = 3.0 * peer.decay_share(gone)
        assert muon == pytest.approx((2.0 * share, peer.momentum(step, gone), decay))
        assert adam == pytest.approx((0.5 * share, 0.5, 0.1))


def test_a_step_of_several_batches_has_the_gradient_of_their_mean() -> None:
    from peers.nanochat import train

    ids = torch.randint(0, 7, (4, 17), generator=torch.Generator().manual_seed(3))
    first = []
    for size in (4, 2, 1):
        parts = itertools.cycle(ids.split(size))
        batches = ((part[:, :-1], part[:, 1:], 1) for part in parts)
        torch.manual_seed(0)
        model = Bigrams()
        optimizer = Recorded(model)
        train(model, optimizer, batches, seconds=1e-9, accumulation=4 // size, weight_decay=0.0,
              uncounted=1)  # fmt: skip
        first.append(optimizer.gradients[0])
    torch.testing.assert_close(first[1], first[0])
    torch.testing.assert_close(first[2], first[0])
