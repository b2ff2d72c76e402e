"""Muon against an oracle in fp64, one matrix at a time; its state; and what it is for."""

from __future__ import annotations

import inspect
import math
import typing
import unittest.mock
import zipfile
from types import SimpleNamespace

import pytest
import torch
from tiny_run import events, history, make_run, train_here

from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.model.flat import FlatParameters
from albor_core.model.groups import group_of
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import ConfigError
from albor_core.train.build import refuse_absent_rates
from albor_core.train.optim import muon as room
from albor_core.train.optim.adamw import Optimizer
from albor_core.train.optim.muon import (
    FlatMuon,
    Muon,
    MuonOptimizer,
    hidden_matrices,
    orthogonalize,
)
from albor_core.train.optim.registry import OPTIMIZERS, wrong_groups
from albor_core.train.optim.schedules import Schedule
from albor_core.train.resume.digest import digest

RUN, STILL = torch.zeros(()), torch.ones(())
SHAPES = [(6, 6), (12, 5), (5, 12), (1, 7), (32, 96)]
HYPER = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": False}


def polynomial_by_hand(matrix):
    """Five quintic steps on one matrix, written with the SVD: each singular value by itself."""
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / (matrix.double().norm() + 1e-7)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ torch.diag(values) @ right


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_batch_is_orthogonalised_like_each_matrix_by_itself(shape):
    """The steps amplify a rounding error by 3.4445 each at most: 485 units of fp32 roundoff."""
    stack = draw(4, *shape)
    found = orthogonalize(stack, torch.float32)
    for matrix, got in zip(stack, found, strict=True):
        wanted = polynomial_by_hand(matrix)
        limit = 3.4445**5 * torch.finfo(torch.float32).eps * wanted.norm()
        assert (got.double() - wanted).norm() < limit


def test_singular_values_come_out_near_one():
    """Of a matrix whose own lie between 0.02 and 1 of the largest."""
    left, _, right = torch.linalg.svd(draw(48, 48))
    matrix = left @ torch.diag(torch.logspace(-1.7, 0, 48)) @ right
    values = torch.linalg.svdvals(orthogonalize(matrix[None], torch.float32)[0])
    assert 0.6 < values.min() < values.max() < 1.25


def test_half_precision_stays_close():
    stack = draw(2, 64, 192)
    exact, half = (orthogonalize(stack, t).float() for t in (torch.float32, torch.bfloat16))
    assert (half - exact).norm() / exact.norm() < 0.02


def test_a_matrix_of_zeros_stays_zero():
    assert not orthogonalize(torch.zeros(1, 4, 6), torch.float32).any()


def oracle_steps(weight, gradients, lr, momentum, decay, beta2=None):
    """The published algorithm on one matrix, in fp64, with momentum as a plain sum. `beta2`:
    NorMuon, its running mean a list of numbers.
    """
    weight, total = weight.double(), torch.zeros_like(weight, dtype=torch.float64)
    means = [0.0] * len(weight)
    for gradient in gradients:
        total = momentum * total + gradient.double()
        update = polynomial_by_hand(gradient.double() + momentum * total)
        if beta2 is not None:
            length = update.norm()
            for i, row in enumerate(update):
                means[i] = beta2 * means[i] + (1 - beta2) * float(row.square().mean())
                row /= math.sqrt(means[i])
            update *= length / update.norm()
        update *= 0.2 * math.sqrt(max(weight.shape))
        weight = weight - lr * decay * weight - lr * update
    return weight


@pytest.mark.parametrize("beta2", [None, 0.9])
def test_updates_are_those_of_the_oracle_whatever_the_shapes(beta2):
    start = {f"{i}": draw(*shape, seed=i) for i, shape in enumerate([*SHAPES, *SHAPES])}
    weights = {name: tensor.clone() for name, tensor in start.items()}
    gradients = [
        {name: draw(*t.shape, seed=100 * step + int(name)) for name, t in start.items()}
        for step in range(4)
    ]
    muon = Muon(weights, momentum=0.9, weight_decay=0.1, beta2=beta2)
    for some in gradients:
        muon.step(some, torch.tensor(0.02), RUN)
    for name, weight in weights.items():
        given = [g[name] for g in gradients]
        wanted = oracle_steps(start[name], given, 0.02, 0.9, 0.1, beta2)
        assert (weight.double() - wanted).norm() / wanted.norm() < 1e-5


def test_batches_that_are_cut_for_memory_change_nothing(monkeypatch):
    start = {f"{i}": draw(8, 16, seed=i) for i in range(5)}
    gradients = {name: draw(8, 16, seed=9 + int(name)) for name in start}
    ends = []
    for limit in (1 << 26, 2 * 8 * 16):
        monkeypatch.setattr(room, "BATCH_ELEMENTS", limit)
        weights = {name: tensor.clone() for name, tensor in start.items()}
        muon = Muon(weights, momentum=0.9, weight_decay=0.1)
        muon.step(gradients, torch.tensor(0.02), RUN)
        ends.append((len(muon._batches), weights))
    assert [count for count, _ in ends] == [1, 3]
    for name in start:
        torch.testing.assert_close(ends[0][1][name], ends[1][1][name], rtol=1e-5, atol=1e-6)


def test_it_agrees_with_torchs_own_muon():
    """Which computes in bf16 also on a CPU; an update is 2 % of a weight here."""
    weight = torch.nn.Parameter(draw(24, 40))
    theirs = torch.optim.Muon(
        [weight], lr=0.02, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    mine = {"w": weight.detach().clone()}
    muon = Muon(mine, momentum=0.9, weight_decay=0.1)
    start = mine["w"].clone()
    for step in range(3):
        weight.grad = draw(24, 40, seed=step)
        muon.step({"w": weight.grad}, torch.tensor(0.02), RUN)
        theirs.step()
    moved = (weight.detach() - start).norm()
    assert (mine["w"] - weight.detach()).norm() / moved < 0.02


def test_a_skipped_step_moves_nothing_even_if_gradients_are_nan():
    weights = {"w": draw(8, 8)}
    muon = Muon(weights, momentum=0.9, weight_decay=0.1, beta2=0.9)
    muon.step({"w": draw(8, 8, seed=1)}, torch.tensor(0.02), RUN)
    before = {name: tensor.clone() for name, tensor in (weights | muon.tensors()).items()}
    assert set(before) == {"w", "momentum.w", "row_square.w"}
    muon.step({"w": torch.full((8, 8), math.nan)}, torch.tensor(0.02), STILL)
    for name, tensor in (weights | muon.tensors()).items():
        assert torch.equal(tensor, before[name]), name


def test_a_matrix_without_a_gradient_stays_where_it_is_with_rows_equalised_too():
    weights = {"w": draw(8, 8), "v": draw(8, 8, seed=2)}
    muon = Muon(weights, momentum=0.9, weight_decay=0.0, beta2=0.9)
    before = weights["v"].clone()
    muon.step({"w": draw(8, 8, seed=1), "v": torch.zeros(8, 8)}, torch.tensor(0.02), RUN)
    assert torch.equal(weights["v"], before)


TINY = LlamaConfig(32, 2, 4, 2, 64, 64, 32)


def tiny(seed=0):
    model = Llama(TINY)
    init_weights(model, seed)
    return model


def test_hidden_matrices_are_all_but_embedding_head_and_norms():
    names = set(hidden_matrices(tiny()))
    assert len(names) == 2 * 7
    untied = LlamaConfig(32, 2, 4, 2, 64, 64, 32, tie_word_embeddings=False)
    assert set(hidden_matrices(Llama(untied))) == names
    optimizer = MuonOptimizer(tiny(), muon_lr=None, momentum=0.95, lr=0.01, **HYPER)
    adamw = {name for name in optimizer.named() if name not in names}
    assert {name.split(".")[-2] for name in adamw} == {
        *("embed_tokens", "norm", "input_layernorm", "post_attention_layernorm")
    }


def test_every_hyper_parameter_arrives_with_its_own_rate():
    optimizer = MuonOptimizer(tiny(), muon_lr=0.05, momentum=0.9, beta2=0.8, lr=0.01, **HYPER)
    given = {"lr": 0.01, "muon_lr": 0.05, "muon_momentum": 0.9}
    wanted = OptimizerConfig(name="muon", muon_beta2=0.8, **given)
    other = OptimizerConfig(name="muon", muon_beta2=0.7, **given)
    assert wrong_groups(optimizer.groups(), other) == ["muon_beta2 of hidden is 0.8, not 0.7"]
    assert wrong_groups(optimizer.groups(), wanted) == []
    optimizer.set_lr(0.005)  # half way down the schedule: both halve
    rates = {group.kind: group.values["lr"] for group in optimizer.groups()}
    assert rates == pytest.approx({"matrices": 0.005, "vectors": 0.005, "hidden": 0.025})
    plain = Optimizer(tiny(), lr=0.01, **HYPER)
    assert wrong_groups(plain.groups(), wanted) == ["no group of hidden"]


OWN = {"embedding": 0.3, "head": 0.004}
UNTIED = LlamaConfig(32, 2, 4, 2, 64, 64, 32, tie_word_embeddings=False)


def test_embedding_and_head_move_by_rates_of_their_own_and_decay_as_without():
    ids = torch.randint(0, 64, (2, 9), generator=torch.Generator().manual_seed(0))
    model, twin = Llama(UNTIED), Llama(UNTIED)
    for one in (model, twin):
        init_weights(one, 0)
    named = dict(twin.named_parameters())
    rates = {"model.embed_tokens.weight": 0.3, "lm_head.weight": 0.004}
    ours = Optimizer(model, lr=0.01, own_lr=OWN, **HYPER)
    hyper = {name: value for name, value in HYPER.items() if name not in ("weight_decay", "fused")}
    theirs = [
        torch.optim.AdamW([p], lr=rates.get(name, 0.01), weight_decay=0.0, foreach=False, **hyper)
        for name, p in named.items()
    ]
    for factor in (1.0, 0.5, 0.1):
        ours.set_lr(0.01 * factor)
        with torch.no_grad():
            for p in named.values():
                p.mul_(1 - 0.01 * factor * HYPER["weight_decay"] * (p.ndim > 1))
        for optimizer, (name, _) in zip(theirs, named.items(), strict=True):
            optimizer.param_groups[0]["lr"] = rates.get(name, 0.01) * factor
        for one in (model, twin):
            one.zero_grad()
        # one gradient for both: rounding apart, their losses are
        model(ids, ids)[1].backward()
        for mine, p in zip(model.parameters(), twin.parameters(), strict=True):
            p.grad = mine.grad.clone()
        ours.step(RUN)
        for optimizer in theirs:
            optimizer.step()
    for name, mine in model.named_parameters():
        torch.testing.assert_close(mine, named[name], rtol=1e-5, atol=1e-7, msg=name)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("is_tied", [True, False])
def test_rates_of_flat_buffers_are_those_of_torchs_form(kind, is_tied):
    shape = LlamaConfig(32, 2, 4, 2, 64, 64, 32, tie_word_embeddings=is_tied)
    own = {"embedding_lr": 0.3} if is_tied else {"embedding_lr": 0.3, "head_lr": 0.004}
    wanted = OptimizerConfig(name=kind, lr=0.01, **own)
    entry = OPTIMIZERS[kind]
    plain = entry.plain(Llama(shape), **entry.settings(wanted), fused=False)
    flat = entry.flat(FlatParameters(Llama(shape), torch.float32), **entry.settings(wanted))
    absent = frozenset({"matrices"}) if kind == "muon" else frozenset()
    for optimizer in (plain, flat):
        assert wrong_groups(optimizer.groups(), wanted, absent) == []
        optimizer.set_lr(0.005)
        rates = {group.kind: group.values["lr"] for group in optimizer.groups()}
        assert rates["embedding"] == pytest.approx(0.15)
        assert is_tied or rates["head"] == pytest.approx(0.002)
    matrices = flat.flat.matrices
    seen = torch.zeros_like(matrices.master)
    for piece in flat._pieces:
        if piece.segment is matrices:
            seen[piece.begin : piece.end] += 1
    hidden = [matrices.view(seen, name) for name in hidden_matrices(Llama(shape))]
    assert seen.max() == 1 and all((one == (kind == "adamw")).all() for one in hidden)
    assert set(flat.tensors()) >= {"exp_avg.model.embed_tokens.weight", "step.model.norm.weight"}


def test_a_rate_for_what_a_model_has_not_is_refused():
    everything = SimpleNamespace(trains=lambda name: True, group=group_of)
    with pytest.raises(ConfigError, match=r"optimizer\.head_lr: the model has no head"):
        wanted = OptimizerConfig(lr=0.01, head_lr=0.1)
        refuse_absent_rates(wanted, Trainable(everything, tiny()))
    refuse_absent_rates(wanted, Trainable(everything, Llama(UNTIED)))


def test_muon_is_refused_where_no_matrix_is_trained():
    norms = SimpleNamespace(trains=lambda name: "norm" in name, group=group_of)
    with pytest.raises(ConfigError, match=r"optimizer\.name: muon moves matrices"):
        refuse_absent_rates(OptimizerConfig(lr=0.01, name="muon"), Trainable(norms, tiny()))


def test_an_unknown_optimizer_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"optimizer\.name: must be 'adamw' or 'muon'"):
        make_run(tmp_path, optimizer={"name": "mouon", "lr": 0.01})


MUON = {"optimizer": {"name": "muon", "lr": 0.003, "muon_lr": 0.01, "embedding_lr": 0.006}}
SAID = ("train/loss", "optim/lr", "optim/grad_norm", "val/loss")


@pytest.mark.slow
@pytest.mark.parametrize("beta2", [None, 0.95])
def test_a_stopped_muon_run_ends_in_the_undisturbed_ones_bits(tmp_path, beta2):
    config = {"optimizer": {**MUON["optimizer"], "muon_beta2": beta2}}
    whole = make_run(tmp_path / "a", "whole", **config)
    broken = make_run(tmp_path / "b", "b", **config)
    train_here(whole)
    for attempt, stop in enumerate((1, 7, 13, None), 1):
        train_here(broken, attempt=attempt, stop_after=stop)
    ends = [(list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes() for run in (whole, broken)]
    assert ends[0] == ends[1]
    assert digest(whole) == digest(broken)
    assert [repr(h) for h in history(whole, SAID)] == [repr(h) for h in history(broken, SAID)]
    state = verify(list_checkpoints(whole.checkpoints)[0]).optimizer()
    assert "momentum.model.layers.0.mlp.up_proj.weight" in state
    assert ("row_square.model.layers.0.mlp.up_proj.weight" in state) == (beta2 is not None)
    assert "exp_avg.model.embed_tokens.weight" in state
    assert "exp_avg.model.layers.0.mlp.up_proj.weight" not in state
    (kinds,) = [e["data"]["groups"] for e in events(whole, "optimizer.ready")]
    assert {group["kind"] for group in kinds} == {"embedding", "vectors", "hidden"}


@pytest.mark.parametrize("is_flat", [True, False])
def test_a_state_goes_on_with_and_without_equal_rows(is_flat):
    given = {"muon_lr": None, "momentum": 0.95, "lr": 0.01, **HYPER}
    if is_flat:
        del given["fused"]

    def made(beta2):
        model = FlatParameters(tiny(), torch.float32) if is_flat else tiny()
        return (FlatMuon if is_flat else MuonOptimizer)(model, beta2=beta2, **given)

    def filled(optimizer):
        for number, tensor in enumerate(optimizer.tensors().values()):
            tensor.fill_(number)
        return {name: tensor.clone() for name, tensor in optimizer.tensors().items()}

    state, plain = filled(made(0.9)), made(None)
    plain.load(state)
    kept = plain.tensors()
    assert kept and all(torch.equal(tensor, state[name]) for name, tensor in kept.items())
    assert {name for name in state if name not in kept} == {
        f"row_square.{name}" for name in hidden_matrices(tiny())
    }
    again = made(0.9)
    filled(again)
    again.load(kept)
    for name, tensor in again.tensors().items():
        assert torch.equal(tensor, kept.get(name, torch.zeros_like(tensor))), name


@pytest.mark.slow
def test_a_muon_run_goes_back_after_a_spike_and_completes(tmp_path):
    run = make_run(tmp_path, **MUON, training__max_steps=36)
    assert train_here(run, faults="loss:x10@22-26").reason == "completed"
    assert len(events(run, "training.rollback")) == 1
    fresh = make_run(tmp_path / "b", "none", training__checkpoint={"save_every": 1000}, **MUON)
    assert train_here(fresh, faults="loss:nan@3-12").reason == "completed"  # back to step 0


SOURCES = (typing, unittest.mock, zipfile)  # Python that is there wherever this runs
STEPS, BATCH, LENGTH = 70, 12, 48


def bytes_of_python():
    text = "".join(inspect.getsource(module) for module in SOURCES)
    ids = torch.tensor(list(text.encode("ascii", "ignore")), dtype=torch.int64)
    cut = len(ids) * 9 // 10
    held_out = ids[cut : cut + (len(ids) - cut) // LENGTH * LENGTH].view(-1, LENGTH)
    return ids[:cut], held_out[::2]


def held_out_loss(kind, lr, data):
    """Nats per byte of a little model after STEPS steps; both kinds see the same batches."""
    ids, held_out = data
    model = Llama(LlamaConfig(48, 3, 4, 2, 128, 128, LENGTH))
    init_weights(model, 0)
    own = {"muon_lr": None, "momentum": 0.95} if kind is MuonOptimizer else {}
    optimizer = kind(model, lr=lr, **own, **HYPER)
    schedule = Schedule(lr, lr / 10, STEPS // 10, STEPS)
    source = torch.Generator().manual_seed(0)
    for step in range(1, STEPS + 1):
        at = torch.randint(0, len(ids) - LENGTH, (BATCH,), generator=source)
        batch = torch.stack([ids[i : i + LENGTH] for i in at])
        optimizer.set_lr(schedule.lr_at(step))
        _, loss = model(batch, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(RUN)
    with torch.no_grad():
        return float(model(held_out, held_out)[1])


@pytest.mark.slow
def test_at_equal_tokens_muons_best_rate_beats_adamws_best():
    """Each at its best of a grid a factor of two apart. 2.24 against 2.32 with torch 2.13; an
    optimizer at fault makes the difference less.
    """
    data = bytes_of_python()
    adamw = {lr: held_out_loss(Optimizer, lr, data) for lr in (2.5e-3, 5e-3, 1e-2, 2e-2)}
    muon = {lr: held_out_loss(MuonOptimizer, lr, data) for lr in (1e-2, 2e-2, 4e-2)}
    best = min(adamw, key=adamw.__getitem__)
    assert best not in (2.5e-3, 2e-2), adamw  # AdamW had its chance on both sides
    assert min(muon.values()) < min(adamw.values()) - 0.05, (adamw, muon)
