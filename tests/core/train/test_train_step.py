"""One optimizer step on a CPU: what is computed how often, what is reduced, what is read."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from tiny_run import tiny_config
from torch.nn.parallel import DistributedDataParallel

from albor_core.config.load import parse_config
from albor_core.kernels.ops.cross_entropy import IGNORED
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.batch import Batch
from albor_core.recipes.causal_lm import CausalLM
from albor_core.run.errors import ConfigError
from albor_core.train.build import build
from albor_core.train.optim.adamw import Optimizer
from albor_core.train.optim.clipping import NoiseScale, noise_scale
from albor_core.train.optim.gradients import LossScale
from albor_core.train.process.faults import Faults
from albor_core.train.ranks.group import Ranks
from albor_core.train.ranks.placement import Placement, place
from albor_core.train.ranks.sharding import shard, sync_gradients
from albor_core.train.step import plain
from albor_core.train.step.optimizer_step import take_step
from albor_core.train.step.plain import PlainStep

CPU, META = torch.device("cpu"), torch.device("meta")
TINY = LlamaConfig(64, 2, 4, 2, 128, 96, 64)


def config_of(folder, **changes):
    raw = json.dumps(tiny_config(folder, **changes)).encode()
    return parse_config(raw, file="tiny.yaml")


def step_once(parts):
    stepper, brick, number = PlainStep(parts), nullcontext, parts.share.sequences_per_step
    total, updated, _ = take_step(
        parts, stepper, Faults(), brick, step=1, start=0, sequences=number, batch=number
    )
    return total, updated


@pytest.mark.parametrize(("is_on", "times"), [(False, 1), (True, 2)])
def test_checkpointed_blocks_are_computed_again_in_the_backward(tmp_path, is_on, times):
    parts = build(config_of(tmp_path, training__activation_checkpointing=is_on))
    ran = []
    for number, layer in enumerate(parts.model.model.layers):
        layer.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
    step_once(parts)
    assert sorted(ran) == sorted([0, 1] * times)


def test_gradients_of_all_ranks_are_asked_for_with_the_last_micro_batch_alone(
    tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setattr(plain, "sync_gradients", lambda model, *, syncs: asked.append(syncs))
    step_once(build(config_of(tmp_path, training__gradient_accumulation=3)))
    assert asked == [False, False, True]


def test_a_step_reads_nothing_from_the_device(tmp_path, monkeypatch):
    """On a device without values: whoever wants one gets an error. torch's own update is left out,
    which on a GPU is one kernel.
    """

    class There(Placement):
        def autocast(self, *, keeps_casts=True):
            return nullcontext()

    there = There(META, None, "fp16", compiles=False)
    monkeypatch.setattr(CausalLM, "first_weights", lambda self, model: None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)
    applied = []
    monkeypatch.setattr(Optimizer, "step", lambda self, skip: applied.append(skip))
    stability = {"zclip": True, "noise_scale_interval": 1}
    for accumulation in (1, 2):
        changes = {
            "training__gradient_accumulation": accumulation,
            "training__mixed_precision": "fp16",
        }
        config = config_of(tmp_path, training__stability=stability, **changes)
        parts = build(config, placement=there)
        angles = parts.model.model.rotary_emb
        angles.cos = angles.sin = torch.empty(32, 8, device=META)
        total, _ = step_once(parts)
        assert total.device == META
    assert len(applied) == 2


def test_a_batch_goes_to_a_gpu_from_memory_that_it_can_read_by_itself(tmp_path, monkeypatch):
    class Gpu(Placement):
        is_gpu = True

    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda ids: pinned.append(ids) or ids)
    parts = build(config_of(tmp_path))
    parts.batch(1, 0)
    assert not pinned
    batch = replace(parts, placement=Gpu(CPU, None, "fp32", compiles=False)).batch(1, 0)
    assert [kept is batch.ids for kept in pinned] == [True]


def test_a_gpu_that_is_not_there_is_refused_and_not_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"training\.device: cuda"):
        place(config_of(tmp_path, training__device="cuda").training)


def test_a_loss_scale_changes_neither_the_norm_nor_the_step(tmp_path):
    """It is a power of two, so it comes out as it went in but for what overflows."""
    config = config_of(tmp_path, training__gradient_accumulation=2)
    plain, scaled = build(config), build(config)
    scaled = replace(scaled, scale=LossScale(CPU))
    norms = [float(step_once(parts)[1].norm) for parts in (plain, scaled)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-6)
    pairs = zip(plain.model.parameters(), scaled.model.parameters(), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-6, atol=0) for a, b in pairs)


@pytest.mark.parametrize("world_size", [1, 2])
def test_noise_is_measured_between_a_ranks_micro_batch_and_the_whole_step(tmp_path, world_size):
    """Squared norms of 3 + 600 / tokens: the noise scale is 200 tokens."""
    wanted = {"data__batch_size": 2, "training__gradient_accumulation": 8}
    wanted["training__max_steps"] = 8
    parts = build(config_of(tmp_path, **wanted))
    spread = {"world_size": world_size, "strategy": "ddp"}
    config = config_of(tmp_path, **wanted, training__distributed=spread)
    parts = replace(parts, config=config, noise=NoiseScale(CPU))
    sizes = (parts.share.batch_size * 32, parts.tokens_per_step)
    assert sizes == (2 * 32, 16 * 32)
    exact = [torch.tensor(3 + 600 / size, dtype=torch.float64).sqrt() for size in sizes]
    parts.measure_noise(*exact)
    assert noise_scale(parts.noise.state.tolist()) == pytest.approx(200.0, rel=1e-9)


@pytest.fixture
def alone_in_a_group(tmp_path):
    """A process group of this process alone: collectives happen, and change nothing."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def started():
    model = Llama(TINY)
    init_weights(model, 0)
    return model, torch.randint(0, 96, (2, 16), generator=torch.Generator().manual_seed(0))


def backward(model, ids, *, syncs):
    sync_gradients(model, syncs=syncs)
    model(ids, ids)[1].backward()


def test_copies_reduce_their_gradients_when_they_are_told_to(alone_in_a_group):
    model, ids = started()
    copies, reduced = DistributedDataParallel(model), []

    def hook(state, bucket):
        reduced.append(bucket.index())
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    copies.register_comm_hook(None, hook)
    backward(copies, ids, syncs=False)
    assert not reduced
    backward(copies, ids, syncs=True)
    assert reduced


def test_parts_reduce_their_gradients_when_they_are_told_to(alone_in_a_group):
    model, ids = started()
    shard(model, model.model.layers, CPU, 1, half=None, compiles=False)
    backward(model, ids, syncs=False)
    assert all(p.grad is None for p in model.parameters())
    backward(model, ids, syncs=True)
    assert all(p.grad is not None for p in model.parameters())


def test_a_sharded_model_gathers_one_block_at_a_time(alone_in_a_group):
    model, ids = started()
    shard(model, model.model.layers, CPU, 1, half=None, compiles=False)
    layers, whole = model.model.layers, []

    def look(*_):
        found = [next(layer.parameters()) for layer in layers]
        whole.append([not hasattr(p, "device_mesh") for p in found])

    for layer in layers:
        layer.mlp.register_forward_pre_hook(look)
    with torch.no_grad():
        model(ids, ids)
    assert whole == [[True, False], [False, True]]


def scoring_only(parts, monkeypatch, counts):
    """Of its micro-batches the last tokens, so many in all, spread over the rows."""
    kind, real = type(parts), type(parts).batch

    def batch(self, start, micro, brick=nullcontext):
        ids = real(self, start, micro, brick).ids
        labels, left = ids.clone(), counts[micro]
        for row in labels:
            number = min(left, len(row) - 1)
            row[: len(row) - number] = IGNORED
            left -= number
        return Batch(ids, labels)

    monkeypatch.setattr(kind, "batch", batch)
    monkeypatch.setattr(kind, "scored", lambda self, start, micro, rank: counts[micro])


@pytest.mark.parametrize("counts", [(6, 62, 0), (0, 1, 93), (124, 124, 124)])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_micro_batches_that_score_unequal_numbers_of_tokens_add_up_to_the_whole_batch(
    tmp_path, monkeypatch, counts, z_loss
):
    changes = {"training__gradient_accumulation": 3, "training__stability": {"z_loss": z_loss}}
    parts = build(config_of(tmp_path, training__max_steps=20, **changes))
    scoring_only(parts, monkeypatch, counts)
    found = {}
    monkeypatch.setattr(
        Optimizer,
        "step",
        lambda self, skip: found.update((n, p.grad.clone()) for n, p in self.named().items()),
    )
    monkeypatch.setattr(type(parts.clip), "factor", lambda self, norm, skip: (None, skip))
    total, _ = step_once(parts)
    parts.model.zero_grad()
    micros = [parts.batch(0, micro) for micro in range(3)]
    ids, labels = (torch.cat([getattr(b, part) for b in micros]) for part in ("ids", "labels"))
    _, (loss, _) = parts.model(ids, score=parts.recipe.head.bind(Batch(ids, labels)))
    loss.backward()
    assert float(total) == pytest.approx(float(loss.detach()), rel=1e-6)
    wanted = {name: p.grad for name, p in parts.model.named_parameters()}
    difference = sum(float((found[n] - wanted[n]).square().sum()) for n in wanted) ** 0.5
    assert difference <= 1e-6 * sum(float(g.square().sum()) for g in wanted.values()) ** 0.5


def test_a_step_of_two_ranks_divides_by_the_tokens_of_both(tmp_path, monkeypatch):
    distributed = {"world_size": 2}
    config = config_of(
        tmp_path,
        training__gradient_accumulation=4,
        training__max_steps=20,
        training__distributed=distributed,
    )
    parts = build(config, placement=Placement(CPU, None, "fp32", compiles=False))
    counts = [[6, 0], [62, 20]]  # by rank
    monkeypatch.setattr(type(parts), "scored", lambda self, start, m, rank: counts[rank][m])
    weights = []
    for rank in (0, 1):
        here = replace(parts.placement, ranks=Ranks(rank, 2))
        mine = replace(parts, placement=here).weights(0)
        weights += [1 / (2 * weight.divisor) for weight in mine]  # ranks are averaged
    assert weights == pytest.approx([6 / 88, 0, 62 / 88, 20 / 88])


def test_micro_batches_that_score_alike_are_divided_by_their_number_to_the_bit(tmp_path):
    parts = build(config_of(tmp_path, training__gradient_accumulation=3))
    assert [weight.divisor for weight in parts.weights(0)] == [3.0, 3.0, 3.0]


def test_nothing_scored_is_a_loss_of_0_without_a_gradient(tmp_path):
    for z_loss in (0.0, 0.01):
        parts = build(config_of(tmp_path, training__stability={"z_loss": z_loss}))
        model, ids = parts.model, torch.zeros((2, 8), dtype=torch.int64)
        unscored = Batch(ids, torch.full_like(ids, IGNORED))
        _, (loss, _) = model(ids, score=parts.recipe.head.bind(unscored))
        loss.backward()
        assert float(loss) == 0.0
        assert all(not p.grad.any() for p in model.parameters())
        with torch.no_grad():
            assert float(model.eval()(ids, torch.full_like(ids, IGNORED))[1]) == 0.0
