"""Which step a run takes: what does not pass is named in the journal, and something else trains."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_run import events, history, make_run, tiny_config, train_here

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.config.load import parse_config
from albor_core.model.fp8 import TENSORS, Scales
from albor_core.recipes.batch import Batch
from albor_core.recipes.causal_lm import CausalLM
from albor_core.run.errors import ConfigError
from albor_core.train import build as parts_module
from albor_core.train import loop
from albor_core.train.build import build, flat_optimizer
from albor_core.train.optim.gradients import LossScale
from albor_core.train.ranks import placement
from albor_core.train.ranks.group import Ranks
from albor_core.train.resume.train_state import reset_parts
from albor_core.train.step import choose
from albor_core.train.step.gate import GATE_ROWS, compare_compiled, plain_gradients
from albor_core.train.step.plain import PlainStep

FEW = {"training__max_steps": 5}


class Journal:
    """What `choose_step` said."""

    def __init__(self):
        self.events = []

    def __call__(self, kind, **fields):
        self.events.append((kind, fields))

    def reasons(self, kind):
        return {fields["backend"]: fields["reason"] for name, fields in self.events if name == kind}


class Fused:
    """Stands where FusedLlama would; takes any batch but for one kernel."""

    def __init__(self, model, flat, scales, *, segments=0):
        self.scales, self.calibrated = scales, []

    def left_out(self, rows, tokens):
        return {"attention": "a reason"} if rows > GATE_ROWS else {}

    def calibrate(self, ids):
        self.calibrated.append(ids)
        if self.scales is not None:
            self.scales.seen.fill_(5.0)


class Graphed:
    def __init__(self, fused, optimizer, **how):
        self.fused, self.how = fused, how


class Others(Ranks):
    """Alone, beside a rank that found something."""

    def first(self, text):
        return text or "another rank's"


def with_flat_buffers(folder, **changes):
    raw = json.dumps(tiny_config(folder, **FEW, **changes)).encode()
    config = parse_config(raw, file="tiny.yaml")
    parts = build(config)
    return replace(parts, optimizer=flat_optimizer(config, parts.trainable))


def chosen(parts, monkeypatch, faults=(), graphed=Graphed):
    """(parts, step, what was said, what was compared), the comparison's outcome being `faults`."""
    journal, compared = Journal(), []

    def compare(parts, fused, batch):
        compared.append(batch.ids)
        if fused.scales is not None:
            fused.scales.forget()  # the gate has scales of its own
        return list(faults)

    monkeypatch.setattr(choose, "FusedLlama", Fused)
    monkeypatch.setattr(choose, "GraphedStep", graphed)
    monkeypatch.setattr(choose, "compare", compare)
    return *choose.choose_step(parts, journal), journal, compared


def test_a_fused_step_that_passes_is_taken_and_says_what_does_without(tmp_path, monkeypatch):
    parts = with_flat_buffers(tmp_path)
    _, step, journal, compared = chosen(parts, monkeypatch)
    assert isinstance(step, Graphed)
    assert step.how["batch"] == tuple(parts.batch(1, 0).ids.shape)
    assert step.how["accumulation"] == parts.share.accumulation
    assert len(compared) == 2  # the batch is taken otherwise than its first two rows
    assert journal.reasons("step.chosen") == {
        "fused": "logits and gradients pass parity; no attention: a reason"
    }


def test_fp8_calibrates_a_new_run_and_keeps_the_scales_of_one_that_goes_on(tmp_path, monkeypatch):
    scales = Scales(2, torch.device("cpu"))
    parts = replace(with_flat_buffers(tmp_path), scales=scales)
    _, step, _, _ = chosen(parts, monkeypatch)
    assert len(step.fused.calibrated) == 1
    found = scales.to_json()
    assert found == [[(0.0).hex()] * 2, [(5.0).hex()] * 2]
    scales.advance()
    reset_parts(parts)  # a rollback to step 0
    assert scales.to_json() == found
    saved = [[(2.0).hex()] * 2, [(1.0).hex()] * 2]
    scales.load(saved)
    _, step, _, _ = chosen(parts, monkeypatch)
    assert step.fused.calibrated == []
    assert scales.to_json() == saved


def test_scales_of_fp8_are_part_of_a_checkpoint_and_come_back_with_it(tmp_path, monkeypatch):
    """The arithmetic needs a GPU; here the plain step trains, beside scales that nobody moves."""
    built = []

    def with_scales(*arguments, **how):
        scales = Scales(2, torch.device("cpu"))
        if not built:
            scales.seen[:, 1] = torch.tensor([0.1, 7.0])
        built.append(scales)
        return replace(build(*arguments, **how), scales=scales)

    monkeypatch.setattr(loop, "build", with_scales)
    run = make_run(tmp_path, **FEW)
    train_here(run, stop_after=2)
    saved = verify(list_checkpoints(run.checkpoints)[0]).trainer()["fp8"]
    train_here(run, attempt=2)
    first, second = built
    assert second.to_json() == saved == first.to_json()
    assert saved[1][1] == (7.0).hex()


def on_hopper(training):
    return replace(placement.place(training), precision="fp8")


def test_fp8_is_refused_where_all_that_would_be_in_it_is_frozen(tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "fusion_obstacles", lambda *_: ())
    monkeypatch.setattr(CausalLM, "trains", lambda self, name: "mlp" not in name)
    config = parse_config(json.dumps(tiny_config(tmp_path)).encode(), file="tiny.yaml")
    with pytest.raises(ConfigError, match="all MLPs are frozen, and nothing else is in fp8"):
        build(config, placement=on_hopper(config.training))


def test_a_run_in_fp8_has_scales_of_every_layer(tmp_path, monkeypatch):
    monkeypatch.setattr(parts_module, "obstacle_to_fusion", lambda *_: "")
    config = parse_config(json.dumps(tiny_config(tmp_path)).encode(), file="tiny.yaml")
    parts = build(config, placement=on_hopper(config.training))
    layers = config.model.architecture.num_hidden_layers
    assert len(parts.scales.scale) == TENSORS * layers


def test_a_fused_step_that_errs_is_named_and_the_plain_one_trains(tmp_path, monkeypatch):
    parts = with_flat_buffers(tmp_path)
    parts, step, journal, _ = chosen(parts, monkeypatch, ["logits: error 1.0"])
    assert isinstance(step, PlainStep)
    assert journal.reasons("kernels.rejected") == {"fused": "logits: error 1.0"}
    before = {name: t.clone() for name, t in parts.model.state_dict().items()}
    parts.optimizer.set_lr(0.01)
    loss = step.forward(parts.batch(1, 0))
    step.backward(0)
    assert float(step.update(loss).skip) == 0.0
    assert any(not torch.equal(t, before[n]) for n, t in parts.model.state_dict().items())


def test_moments_of_a_resumed_run_move_to_the_plain_step(tmp_path, monkeypatch):
    parts = with_flat_buffers(tmp_path)
    state = {name: torch.full_like(t, 3) for name, t in parts.optimizer.tensors().items()}
    parts.optimizer.load(state)
    parts, _, _, _ = chosen(parts, monkeypatch, ["logits: error 1.0"])
    taken = parts.optimizer.tensors()
    assert taken.keys() == state.keys()
    assert all(bool((tensor == 3).all()) for tensor in taken.values())


def test_a_kernel_that_cannot_be_built_is_named_and_the_plain_step_trains(tmp_path, monkeypatch):
    def broken(*arguments, **how):
        raise RuntimeError("ptxas fatal")

    parts = with_flat_buffers(tmp_path)
    _, step, journal, _ = chosen(parts, monkeypatch, graphed=broken)
    assert isinstance(step, PlainStep)
    assert "ptxas fatal" in journal.reasons("kernels.rejected")["fused"]


def test_what_one_rank_rejects_no_rank_takes(tmp_path, monkeypatch):
    parts = with_flat_buffers(tmp_path)
    parts = replace(parts, placement=replace(parts.placement, ranks=Others()))
    _, step, journal, _ = chosen(parts, monkeypatch)
    assert isinstance(step, PlainStep)
    assert journal.reasons("kernels.rejected") == {"fused": "another rank's"}


def test_fp8_that_errs_is_refused_and_never_replaced(tmp_path, monkeypatch):
    parts = with_flat_buffers(tmp_path)
    parts = replace(parts, scales=Scales(2, torch.device("cpu")))
    with pytest.raises(ConfigError, match=r"mixed_precision: fp8 .*logits: error 1"):
        chosen(parts, monkeypatch, ["logits: error 1.0"])


@pytest.fixture
def compiling(monkeypatch):
    """Runs compile on this CPU, by what the test gives."""
    true_place = placement.place

    def use(compiler):
        monkeypatch.setattr(torch, "compile", compiler)
        compiles = lambda training: replace(true_place(training), compiles=True)  # noqa: E731
        monkeypatch.setattr(parts_module, "place", compiles)

    return use


def losses(run):
    return [loss for _, _, loss in history(run, ("train/loss",))]


def rejected(run):
    found = [record["data"] for record in events(run, "kernels.rejected")]
    return {data["backend"]: data["reason"] for data in found}


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # made before any test has its own home
        patch.setenv("ALBOR_HOME", str(tmp_path_factory.mktemp("home")))
        run = make_run(tmp_path_factory.mktemp("plain"), **FEW)
        train_here(run)
    return losses(run)


def test_a_compiled_model_that_agrees_trains(tmp_path, compiling, plain_losses):
    calls = []

    def compiler(model, **how):
        return lambda *ids, **how: (calls.append(model.training), model(*ids, **how))[1]

    compiling(compiler)
    run = make_run(tmp_path, **FEW)
    train_here(run)
    assert not rejected(run)
    assert len(calls) >= 6  # once to be compared, and in each step
    assert losses(run) == plain_losses


def wrong_loss(model, **how):
    def run(*ids, **how):
        loss, means = model(*ids, **how)[1]
        return None, (loss * 1.1, means)

    return run


def wrong_gradient(model, **how):
    def run(*ids, **how):
        loss, means = model(*ids, **how)[1]
        return None, (2 * loss - loss.detach(), means)

    return run


def no_compiler(model, **how):
    def run(*ids, **how):
        raise RuntimeError("No working C++ compiler found")

    return run


@pytest.mark.parametrize(
    ("compiler", "reason"),
    [
        (wrong_loss, "loss: error 1.00e-01"),
        (wrong_gradient, "model.embed_tokens.weight: error 1.00e+00"),
        (no_compiler, "RuntimeError: No working C++ compiler found"),
    ],
)
def test_a_compiled_model_that_does_not_is_named_and_the_plain_one_trains(
    tmp_path, compiling, plain_losses, compiler, reason
):
    compiling(compiler)
    run = make_run(tmp_path, **FEW)
    assert train_here(run).reason == "completed"
    assert reason in rejected(run)["compiled"]
    assert events(run, "step.chosen")[-1]["data"]["backend"] == "plain"
    assert losses(run) == plain_losses


def in_fp16(folder, loudness, norm_scale):
    """Parts of a run in fp16 whose gradients are about as large as `norm_scale`."""
    parts = with_flat_buffers(folder)
    with torch.no_grad():
        parts.model.model.norm.weight.mul_(norm_scale)
    place = replace(parts.placement, precision="fp16")
    plain = parts_module.plain_optimizer(parts.config, parts.trainable)
    scale = LossScale(torch.device("cpu"))
    scale.scale.fill_(loudness)
    return replace(parts, placement=place, optimizer=plain, scale=scale)


def compared_in_fp16(parts):
    return compare_compiled(parts, PlainStep(parts), parts.batch(1, 0).ids)


def test_in_fp16_gradients_too_small_for_it_are_compared_at_the_loss_scale(tmp_path):
    parts = in_fp16(tmp_path, LossScale.START, 1e-6)
    query, ids = "model.layers.0.self_attn.q_proj.weight", parts.batch(1, 0).ids
    weight = parts.model.get_parameter(query)
    unscaled = plain_gradients(parts, Batch(ids), half=True)
    assert not unscaled.gradients[query].any()  # nothing would be left to compare
    assert compared_in_fp16(parts) == []

    step = PlainStep(parts)
    right = step.loss_and_gradients

    def wrong(*arguments):
        turned = weight.register_hook(lambda gradient: -gradient)
        try:
            return right(*arguments)
        finally:
            turned.remove()

    step.loss_and_gradients = wrong
    faults = compare_compiled(parts, step, ids)
    assert [fault.split(":")[0] for fault in faults] == [query]


def test_a_look_at_the_gradients_keeps_no_second_copy_of_them(tmp_path):
    """The plan counts one for each look that is compared."""
    parts, made = with_flat_buffers(tmp_path), {}
    for name, parameter in parts.model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda of, name=name: made.update({name: of.grad.data_ptr()})
        )
    seen = plain_gradients(parts, parts.batch(1, 0), half=True)
    assert made
    assert {name: found.data_ptr() for name, found in seen.gradients.items()} == made


@pytest.mark.parametrize("loudness", [2.0**24, LossScale.START, 1.0])
def test_in_fp16_a_loss_scale_that_overflows_rejects_nothing(tmp_path, loudness):
    parts = in_fp16(tmp_path, loudness, 100.0)
    assert compared_in_fp16(parts) == []
    assert float(parts.scale.scale) == loudness  # the run finds its own


def test_a_compiler_that_fails_leaves_a_sharded_model_as_it_is(tmp_path, compiling):
    parts = with_flat_buffers(tmp_path)
    compiling(no_compiler)
    for layer in parts.model.model.layers:
        layer._compiled_call_impl = no_compiler(layer)
    sharded = Ranks(is_sharded=True)
    place = replace(parts.placement, compiles=True, ranks=sharded)
    plain = parts_module.plain_optimizer(parts.config, parts.trainable)
    journal = Journal()
    after, _ = choose.choose_step(replace(parts, placement=place, optimizer=plain), journal)
    assert "No working C++ compiler" in journal.reasons("kernels.rejected")["compiled"]
    assert not after.placement.compiles
    after.model(parts.batch(1, 0).ids)
