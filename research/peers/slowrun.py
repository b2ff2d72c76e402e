"""qlabs-eng/slowrun's tiny track as a peer of slow.py: it is fetched, never kept here.

    git clone https://github.com/qlabs-eng/slowrun PEERS/slowrun
    git -C PEERS/slowrun checkout fd342f02affab8b39579761115c61b7d975f0430

tiny/train.py and tiny/cuda_kernels.py run in one process. Model, optimizer, loss in fp8, order of
rows, schedules, averages of weights and clock are its own: its first three steps are trained on
and not counted. It counts in epochs, 15 of 100M tokens for 316M parameters on eight GPUs in 15
minutes. Here so many are taken as fit by the seconds of a step on this card (`fit`): what is not
a whole one is taken from the first, so that it ends with whole ones, and what its flags say in
epochs keeps its share of the training. The rate is taken at FILLED, since a card slows down as it
warms up; a run that lasts longer all the same keeps what it learned.

`slowrun+FLAG=VALUE ...` sets its flags. As it is it sees few epochs of 540 s on one GPU; a size
that sees more is, say, slowrun+n_layer=8+n_embd=512+n_head=4.

Replaced are Flash Attention 3 from a hub (autoresearch.attend); its texts and the tokenizer of
GPT-2 (ours, whole and in an order that the seed draws, with a vocabulary of 8,192 as autoresearch
has it: of its own of 50,257 a small model would be mostly head); the vocabulary that its CUDA
kernel is compiled for; wandb; the seed; what it measures of held-out texts (bits_per_byte.py, all
files, windows without a first token, as its rows have none). By its own rule its figure is the
best of all weights that it judges by those: of each epoch with all its iterations, their moving
average, the average of the last epochs. It pins torch 2.10; here it has the torch that all have.
Its kernel is compiled as it starts: that needs a Hopper GPU and the headers of CUDA.
"""

from __future__ import annotations

import importlib.util
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from bits_per_byte import bits_per_byte
from peers.autoresearch import CONTEXT, VOCABULARY, attend, make_band, replaced
from timed_runs import encoded, tokenizer_of
from torch import Tensor

COMMIT = "fd342f02affab8b39579761115c61b7d975f0430"
URL = "https://github.com/qlabs-eng/slowrun"
FILES = ("train.py", "cuda_kernels.py")
TRIED, UNCOUNTED = 8, 3  # steps that say how long one takes; of its clock
FILLED = 0.98
TEXTS = "texts.pt"
Documents = Sequence[np.ndarray[Any, Any]]
Judge = Callable[[Any, int, int], float]
"""(model, iterations, rows at once) -> bits per byte."""


def read(peers: Path) -> dict[str, str]:
    """Of FILES in `peers`/slowrun/tiny. SystemExit with what to do where there is none."""
    folder = peers / "slowrun"
    for file in (folder / "tiny" / name for name in FILES):
        if not file.is_file():
            raise SystemExit(
                f"{file}: no such file; git clone {URL} {folder} and check out {COMMIT}"
            )
    return {name: (folder / "tiny" / name).read_text(encoding="utf-8") for name in FILES}


def check(peers: Path) -> None:
    """SystemExit where what lies there cannot be ported."""
    try:
        port(read(peers), seed=0, first=0, vocabulary=VOCABULARY)
    except ValueError as error:
        raise SystemExit(str(error)) from error


def port(files: Mapping[str, str], *, seed: int, first: int, vocabulary: int) -> dict[str, str]:
    """FILES for our run, with the token `first` before each text. ValueError for others."""
    fitted = "num_train_steps = round(TOKENS_PER_EPOCH * args.num_epochs / TOTAL_BATCH_SIZE)"
    changes = {
        "train.py": (
            ("import wandb\n", ""),
            ("wandb.init(**_wandb_kwargs)", "DummyWandb()"),
            ('wandb_run.log_code(".")', "pass"),
            ("import tiktoken\n", ""),
            ('tiktoken.get_encoding("gpt2")', "ENCODER"),
            ("BOS_ID = 50256 ", f"BOS_ID = {first} "),
            ("_fa3 = _load_fa3()", "_fa3 = ATTENTION"),
            ("torch.manual_seed(42)", f"torch.manual_seed({seed})"),
            ("torch.cuda.manual_seed(42)", f"torch.cuda.manual_seed({seed})"),
            ("def evaluate_bpb(", "def its_evaluate_bpb("),
            (
                "lambda: DataLoader(_val_path, args.device_batch_size, MAX_SEQ_LEN, device=device)",
                "lambda: None",
            ),
            (fitted, f"fit()\n{fitted}"),
            (
                "while current_epoch <= args.num_epochs:",
                "while current_epoch <= math.ceil(args.num_epochs):",
            ),
        ),
        "cuda_kernels.py": (
            ("CE_KERNEL_VOCAB_SIZE = 50304", f"CE_KERNEL_VOCAB_SIZE = {vocabulary}"),
        ),
    }
    version = f"commit {COMMIT} of {URL}"
    return {
        name: replaced(f"tiny/{name}", files[name], some, version) for name, some in changes.items()
    }


def write_texts(file: Path, documents: Documents, first: int, seed: int) -> None:
    """As its prepare_data.py has them: `first` before each text; which comes first, `seed` says."""
    order = np.random.default_rng(seed).permutation(len(documents))
    begin = np.array([first], np.int32)
    ids = np.concatenate([part for i in order for part in (begin, documents[i])])
    starts = np.cumsum([0, *(len(documents[i]) + 1 for i in order[:-1])])
    torch.save(
        {
            "tokens": torch.from_numpy(ids.astype(np.uint16)),
            "doc_starts": torch.from_numpy(starts),
            "bos_id": first,
            "seq_shuffle_seed": seed,
        },
        file,
    )


def fit(peer: Any, seconds: float) -> None:
    """Let its flags say as many epochs as fit: called where it knows how much one is."""
    args, loader = peer.args, peer.train_loader
    step_s = sum(
        (stage.end_frac - stage.start_frac) * seconds_of_step(peer, stage.iterations)
        for stage in peer.ITERATION_SCHEDULE.stages
    )
    begun = time.monotonic()
    loader._build_batches()  # the same rows again: its clock also counts an epoch's shuffling
    epoch_s = step_s * peer.TOKENS_PER_EPOCH / peer.TOTAL_BATCH_SIZE + time.monotonic() - begun
    epochs = (seconds * FILLED + UNCOUNTED * step_s) / epoch_s
    share = epochs / args.num_epochs
    args.wd_phase1_epoch *= share
    args.wd_phase2_epoch *= share
    args.swa_last_epochs = round(args.swa_last_epochs * share)
    args.num_epochs = epochs
    left_out = round((math.ceil(epochs) - epochs) * loader.num_steps)
    loader.pos = min(1 + left_out, loader.num_steps)  # 1: a batch is waiting already
    print(f"{step_s:.3f} s a step, {epoch_s:.1f} s an epoch: {epochs:.2f} of them", flush=True)


def seconds_of_step(peer: Any, iterations: int) -> float:
    """Once compiled, of one that moves no weight; no state of the optimizer is left of it."""
    weights = torch.ones(peer.args.mtp_predict, device=peer.device)
    groups, took = peer.optimizer.param_groups, []
    with torch.random.fork_rng():
        for group in groups:
            group["lr"] = 0.0
        for _ in range(1 + TRIED):
            peer.synchronize()
            begun = time.monotonic()
            for _ in range(peer.grad_accum_steps):
                with peer.autocast_ctx:
                    losses = peer.model(
                        peer.x, peer.y, num_iterations=iterations, mtp_weights=weights
                    )
                (losses.mean() / peer.grad_accum_steps).backward()
            peer.optimizer.step()
            peer.model.zero_grad(set_to_none=True)
            peer.synchronize()
            took.append(time.monotonic() - begun)
    for group in groups:
        group["lr"] = group["initial_lr"]
    peer.optimizer.state.clear()
    return statistics.median(took[1:])


def trained(
    files: Mapping[str, str],
    documents: Documents,
    judge: Judge,
    folder: Path,
    *,
    seconds: float,
    seed: int,
    first: int,
    vocabulary: int,
    flags: Sequence[str] = (),
) -> Any:
    """Its train.py after it has run in this process; its files vanish from `folder`."""

    def evaluate(model: Any, batches: object, steps: int, token_bytes: object,
                 num_iterations: int) -> tuple[float, float]:  # fmt: skip
        if peer.step == 0:  # would say nothing
            return math.inf, math.inf
        found = judge(model, num_iterations, peer.args.device_batch_size)
        peer.judged.append(round(found, 6))
        return found, found

    with tempfile.TemporaryDirectory(dir=folder) as own, chdir(own):
        ported = port(files, seed=seed, first=first, vocabulary=vocabulary)
        for name, text in ported.items():
            Path(name).write_text(text, encoding="utf-8")
        write_texts(Path(TEXTS), documents, first, seed)
        sys.path.insert(0, own)
        sys.argv = ["train.py", "--max-train-steps=0", f"--input_bin={TEXTS}",
                    *(f"--{flag}" for flag in flags)]  # fmt: skip
        spec = importlib.util.spec_from_file_location("slowrun_train", Path(own, "train.py"))
        assert spec is not None and spec.loader is not None
        peer: Any = importlib.util.module_from_spec(spec)
        vars(peer).update(
            ATTENTION=SimpleNamespace(flash_attn_func=_attend),
            ENCODER=_encoder(vocabulary, first),
            evaluate_bpb=evaluate,
            fit=lambda: fit(peer, seconds),
            judged=[],
        )
        sys.modules[spec.name] = peer
        spec.loader.exec_module(peer)
    return peer


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, window_size: tuple[int, int]) -> Tensor:
    return attend(q, k, v, window_size[0])


def _encoder(vocabulary: int, first: int) -> SimpleNamespace:
    """What it asks of tiktoken's; the bytes of a token go to its own measure alone, not to ours."""
    return SimpleNamespace(
        n_vocab=vocabulary,
        _special_tokens={"<|endoftext|>": first},
        decode_single_token_bytes=lambda token: b" ",
    )


def slowrun(
    data: Mapping[str, Any],
    folder: Path,
    seconds: float,
    seed: int,
    peers: Path,
    flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Trained and judged in this process, which is all of its group; FLAG=VALUE each."""
    alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost"}
    os.environ |= {name: str(value) for name, value in (alone | {"MASTER_PORT": 0}).items()}
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    device, tokenizer = torch.device("cuda"), tokenizer_of(folder, VOCABULARY)
    documents, first = encoded(folder, "train", tokenizer)
    held = [one.tolist() for one in encoded(folder, "held", tokenizer)[0]]
    make_band(CONTEXT, CONTEXT // 2)

    def judge(model: Any, iterations: int, rows: int) -> float:
        def nats(ids: Tensor, targets: Tensor) -> Tensor:
            found: Tensor = model(ids, targets, loss_reduction="none", num_iterations=iterations)
            return found

        return bits_per_byte(nats, held, data["bytes"], first=first, context=CONTEXT, batch=rows,
                             device=device)  # fmt: skip

    peer = trained(read(peers), documents, judge, folder, seconds=seconds, seed=seed, first=first,
                   vocabulary=VOCABULARY, flags=flags)  # fmt: skip
    spent = peer.total_training_time
    return {
        "bpb": peer.min_val_bpb,
        "judged": peer.judged,
        "train_s": round(spent, 2),
        "within": spent <= seconds,
        "steps": peer.step,
        "tokens": peer.step * peer.TOTAL_BATCH_SIZE,
        "epochs": round(peer.args.num_epochs, 3),
        "parameters": peer.param_counts,
        "context": CONTEXT,
        "vocabulary": VOCABULARY,
        "flags": list(flags),
        "commit": COMMIT,
    }
