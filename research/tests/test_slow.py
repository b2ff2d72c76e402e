"""research/slow.py: variants are told apart, and slowrun is ported faithfully."""

from __future__ import annotations

import argparse
import math
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

RESEARCH = Path(__file__).resolve().parents[1]
FITTED = "num_train_steps = round(TOKENS_PER_EPOCH * args.num_epochs / TOTAL_BATCH_SIZE)\n"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESEARCH)


def test_a_variant_is_named_by_what_it_sets() -> None:
    from slow import EPOCH, SLOW, contender, recipe
    from timed_runs import Recipe

    name = contender("slow+training.checkpoint.keep=8+optimizer.lr=1e-3")
    sets = (*SLOW.sets, "training.checkpoint.keep=8", "optimizer.lr=1e-3")
    assert recipe(name) == {"recipe": Recipe(SLOW.config, sets).digest}
    assert recipe("slow") == {"recipe": SLOW.digest} and recipe("epoch") == {"recipe": EPOCH.digest}
    assert recipe(contender("slowrun+n_layer=8")) == {}
    for wrong in ("slow+lr", "fast", "epoch-8k", "slow+", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="none of epoch, slow, slowrun"):
            contender(wrong)


def test_what_a_variant_sets_comes_last(tmp_path: Path) -> None:
    from slow import SLOW

    data = {"train": "t", "held": "h", "tokenizer": "v", "vocabulary": 64, "context": 32}
    words = SLOW.variant("slow+training.checkpoint.keep=8").words(data, tmp_path, 80, 1)
    kept = [word for word in words if word.startswith("training.checkpoint.keep=")]
    assert kept[-1] == "training.checkpoint.keep=8" == words[-1]


def test_each_is_compared_with_the_plain_ones_and_with_slowrun_if_it_goes_on() -> None:
    from slow import comparisons, recipe

    def rows(name: str, bpb: float, **more: Any) -> list[dict[str, Any]]:
        about = {"run": name, "seconds": 9.0, **recipe(name), **more}
        return [about | {"bpb": bpb + i / 1000} for i in range(3)]

    swa, half = "slow+training.checkpoint.keep=8", "epoch+optimizer.lr=1e-3"
    kept = [*rows("epoch", 1.2), *rows("slow", 1.1), *rows(swa, 1.0), *rows(half, 1.19)]
    peer = "slowrun+n_layer=8"
    kept += [*rows("slowrun", 1.3), *rows(peer, 1.05), *rows("slow", 0.1, recipe="older")]
    kept += rows("slow", 0.2, seconds=5.0)
    found = {name: told for one in comparisons(kept, 9.0, 0.15) for name, told in one.items()}
    assert {name: told["holds"] for name, told in found.items()} == {
        "slow against epoch": False,  # not by so much
        "slow against slowrun": True,
        f"slow against {peer}": False,
        f"{swa} against epoch": True,
        f"{swa} against slow": True,
        f"{swa} against slowrun": True,
        f"{swa} against {peer}": True,
        f"{half} against epoch": True,
        f"{half} against slow": False,
    }
    assert [*comparisons(rows("epoch", 1.2), 9.0, 0.0)] == []


def sources() -> dict[str, str]:
    """What is replaced and little else; train.py tells a `fit` that it was ported."""
    return {
        "train.py": (
            "import wandb\nimport tiktoken\nBOS_ID = 50256  # its\n_fa3 = _load_fa3()\n"
            "torch.manual_seed(42)\ntorch.cuda.manual_seed(42)\ndef evaluate_bpb(\n"
            'wandb.init(**_wandb_kwargs)\nwandb_run.log_code(".")\n'
            'tiktoken.get_encoding("gpt2")\n'
            "lambda: DataLoader(_val_path, args.device_batch_size, MAX_SEQ_LEN, device=device)\n"
            f"{FITTED}while current_epoch <= args.num_epochs:\n"
        ),
        "cuda_kernels.py": "CE_KERNEL_VOCAB_SIZE = 50304\n",
    }


def test_another_version_of_slowrun_is_refused(tmp_path: Path) -> None:
    from peers.slowrun import COMMIT, check, port, read

    about: dict[str, Any] = {"seed": 7, "first": 5, "vocabulary": 8192}
    ported = port(sources(), **about)
    assert "BOS_ID = 5 " in ported["train.py"] and f"fit()\n{FITTED}" in ported["train.py"]
    assert ported["cuda_kernels.py"] == "CE_KERNEL_VOCAB_SIZE = 8192\n"
    for file, old in (("train.py", FITTED), ("cuda_kernels.py", "50304")):
        with pytest.raises(ValueError, match=f"tiny/{file}: .*found 0 times.*{COMMIT}"):
            port(sources() | {file: sources()[file].replace(old, "")}, **about)
    with pytest.raises(SystemExit, match=f"git clone .* check out {COMMIT}"):
        read(tmp_path)
    (tmp_path / "slowrun" / "tiny").mkdir(parents=True)
    for name in sources():
        (tmp_path / "slowrun" / "tiny" / name).write_text("pass\n")
    with pytest.raises(SystemExit, match=r"tiny/train\.py: 'import wandb' found 0 times"):
        check(tmp_path)


def test_texts_of_slowrun_are_whole_and_each_stands_behind_its_first_token(tmp_path: Path) -> None:
    from peers.slowrun import write_texts

    documents = [np.arange(n, dtype=np.int32) + 100 * n for n in (5, 0, 3, 9)]
    for seed in (1, 2):
        write_texts(tmp_path / f"{seed}.pt", documents, 7, seed)
    one, two = (torch.load(tmp_path / f"{seed}.pt", weights_only=True) for seed in (1, 2))
    parts = np.split(one["tokens"].long().numpy(), one["doc_starts"].numpy()[1:])
    assert sorted(map(tuple, parts)) == sorted((7, *document.tolist()) for document in documents)
    assert one["bos_id"] == 7 and not torch.equal(one["tokens"], two["tokens"])


def test_so_many_epochs_are_taken_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import slowrun

    took = {1: 0.5, 2: 1.0}
    monkeypatch.setattr(slowrun, "seconds_of_step", lambda peer, iterations: took[iterations])
    monkeypatch.setattr(slowrun.time, "monotonic", lambda: 0.0)
    stages = [types.SimpleNamespace(start_frac=a, end_frac=b, iterations=n)
              for a, b, n in ((0.0, 0.8, 1), (0.8, 1.0, 2))]  # fmt: skip
    args = types.SimpleNamespace(
        num_epochs=15, wd_phase1_epoch=2, wd_phase2_epoch=8, swa_last_epochs=4
    )
    loader = types.SimpleNamespace(num_steps=400, pos=1, _build_batches=lambda: None)
    peer = types.SimpleNamespace(
        args=args, train_loader=loader, TOKENS_PER_EPOCH=100, TOTAL_BATCH_SIZE=1,
        ITERATION_SCHEDULE=types.SimpleNamespace(stages=stages),
    )  # fmt: skip
    slowrun.fit(peer, (60 * 7.25 - 3 * 0.6) / slowrun.FILLED)  # 0.6 s a step, three uncounted
    assert args.num_epochs == pytest.approx(7.25)
    assert loader.pos == 1 + 300  # three quarters of the first are left out
    shares = args.wd_phase1_epoch, args.wd_phase2_epoch
    assert [one / 7.25 for one in shares] == pytest.approx([2 / 15, 8 / 15])
    assert args.swa_last_epochs == 2


class _Done:
    """What an exchange among one process has to do."""

    def get_future(self) -> _Done:
        return self

    def wait(self) -> None:
        pass


class _PlainLoss:
    """What its kernel in fp8 computes, for one target."""

    @staticmethod
    def apply(x: Any, targets: Any, weights: Any, head: Any, *scales: float) -> torch.Tensor:
        logits = 15 * torch.tanh((x @ head.type_as(x)).float() / 15)
        return F.cross_entropy(logits, targets, reduction="none") * weights[0]


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: nothing is compiled, no driver is asked."""
    dist: Any = torch.distributed

    def copied(out: torch.Tensor, found: torch.Tensor, **_: object) -> _Done:
        out.copy_(found)
        return _Done()

    for name, does in {
        "get_rank": lambda: 0, "get_world_size": lambda: 1, "all_reduce": lambda *_, **__: _Done(),
        "reduce_scatter_tensor": copied, "all_gather_into_tensor": copied,
    }.items():  # fmt: skip
        monkeypatch.setattr(dist, name, does)
    monkeypatch.setattr(torch, "compile", lambda model=None, **_: model or (lambda step: step))
    kernels = types.ModuleType("cuda_kernels")
    vars(kernels).update(CE_KERNEL_VOCAB_SIZE=64, FusedSoftcappedCrossEntropy=_PlainLoss)
    monkeypatch.setitem(sys.modules, "cuda_kernels", kernels)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
def test_slowrun_as_it_was_fetched_trains_to_the_end_of_its_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peers import slowrun

    folder = Path(os.environ.get("ALBOR_PEERS", "/nowhere"))
    if not (folder / "slowrun").is_dir():
        pytest.skip("ALBOR_PEERS names no folder with slowrun/tiny/train.py")
    slowrun.check(folder)
    files = slowrun.read(folder)
    draw = np.random.default_rng(0)
    documents = [
        ((draw.integers(0, 3) + np.arange(n)) % 60).astype(np.int32)
        for n in draw.integers(50, 900, 50)
    ]
    weights: list[list[bytes]] = []
    judged: list[tuple[int, float]] = []
    measured = slowrun.seconds_of_step

    def step_s(peer: Any, iterations: int) -> float:
        for moment in ("before", "after"):
            weights.append([p.detach().numpy().tobytes() for p in peer.orig_model.parameters()
                            if p.dtype == torch.float32])  # fmt: skip
            if moment == "before":
                assert measured(peer, iterations) > 0
        return 0.5

    def judge(model: Any, iterations: int, rows: int) -> float:
        ids = (torch.arange(257) % 60).view(1, -1)
        with torch.no_grad():
            found: float = model(ids[:, :-1], ids[:, 1:], num_iterations=iterations).item()
        judged.append((iterations, found))
        return found

    monkeypatch.setattr(slowrun, "TRIED", 1)
    monkeypatch.setattr(slowrun, "seconds_of_step", step_s)
    torch.set_num_threads(1)
    before = Path.cwd()
    peer = slowrun.trained(
        files, documents, judge, tmp_path, seconds=10.0, seed=3, first=63, vocabulary=64,
        flags=["n_layer=2", "n_embd=32", "n_head=2", "device-batch-size=1",
               "total-batch-size=4096"],
    )  # fmt: skip
    assert weights[0] == weights[1] == weights[2] == weights[3]  # measuring moved none
    assert peer.step == pytest.approx(peer.num_train_steps, abs=1) and peer.step > 15
    epochs = math.ceil(peer.args.num_epochs)
    assert epochs > 2 and peer.train_loader.epoch == epochs + 1
    assert len(judged) == epochs + 1  # each of these, and the moving average
    assert peer.min_val_bpb == min(found for iterations, found in judged if iterations == 2)
    assert peer.min_val_bpb < math.log(64) and peer.total_training_time > 0
    assert Path.cwd() == before and not any(tmp_path.iterdir())
