"""The memory estimate against what autograd really keeps for the backward pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from albor_core.config.load import parse_config
from albor_core.plan import memory as estimated
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.memory import memory

BATCH, SEQ_LEN = 4, 64


def kept_bytes(layers, heads, kv_heads, intermediate, *, half, wide=True, **more):
    """Bytes of distinct storages saved in one forward pass, parameters left out."""
    import torch

    from albor_core.model.llama import Llama, LlamaConfig

    shape = LlamaConfig(128, layers, heads, kv_heads, intermediate, 512, SEQ_LEN)
    model = Llama(replace(shape, **({"head_dim": 0} | more), residual_in_fp32=wide))
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept, storages = [], {}

    def pack(tensor):
        kept.append(tensor)  # alive, so that no two storages share an address
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.zeros((BATCH, SEQ_LEN), dtype=torch.int64)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=half),
    ):
        model(ids, labels=ids)
    return sum(storages.values())


def estimate(layers, heads, kv_heads, intermediate, *, half, wide=True, **more):
    """Activations and the half-precision copies of weights that autograd keeps with them."""
    text = f"""
model: {{architecture: {{hidden_size: 128, num_hidden_layers: {layers},
  num_attention_heads: {heads}, num_key_value_heads: {kv_heads},
  intermediate_size: {intermediate}, vocab_size: 512, max_position_embeddings: {SEQ_LEN},
  {", ".join(f"{key}: {value}" for key, value in more.items())}}}}}
data: {{train: x, batch_size: {BATCH}, seq_len: {SEQ_LEN}}}
optimizer: {{lr: 1e-3}}
training: {{output_dir: x, mixed_precision: {"bf16" if half else "fp32"},
  residual_in_fp32: {str(wide).lower()}}}
"""
    facts = PlanFacts(Path("c"), SplitFacts(Path("x")))
    found = memory(parse_config(text.encode(), file="c"), facts)
    return found.activations + found.half_copies


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize(
    ("half", "wide"),
    [(False, True), (False, False), (True, True), (True, False)],
    ids=["fp32", "fp32, whose stream cannot be narrow", "bf16", "bf16, the stream, too"],
)
@pytest.mark.parametrize("shape", [(4, 2, 384), (4, 4, 384), (4, 1, 512)], ids=str)
def test_a_block_costs_what_the_formula_says(shape, half, wide):
    """The slope over layers. Row statistics and padding are left out of the formula, hence 0.98."""
    how = {"half": half, "wide": wide}
    measured = kept_bytes(4, *shape, **how) - kept_bytes(2, *shape, **how)
    expected = estimate(4, *shape, **how) - estimate(2, *shape, **how)
    assert 0.98 <= expected / measured <= 1.1


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "more",
    [
        {"model_type": "qwen2"},
        {"head_dim": 64},
        {"model_type": "qwen3", "head_dim": 64},
        {"model_type": "qwen3", "head_dim": 16},
        {"model_type": "mistral", "sliding_window": 16},
    ],
    ids=str,
)
def test_a_block_of_every_family_costs_what_the_formula_says(more, half):
    how = {"half": half, **more}
    measured = kept_bytes(4, 4, 2, 384, **how) - kept_bytes(2, 4, 2, 384, **how)
    expected = estimate(4, 4, 2, 384, **how) - estimate(2, 4, 2, 384, **how)
    assert 0.98 <= expected / measured <= 1.1


@pytest.mark.slow  # imports torch
def test_the_plan_counts_with_the_trainers_own_numbers():
    from albor_core.kernels.ops.mlp import fp8
    from albor_core.kernels.ops.norms import qk_norm, rms_norm
    from albor_core.model import fused, llama
    from albor_core.train.optim import muon
    from albor_core.train.ranks import peer_copies
    from albor_core.train.step import fused as graphed
    from albor_core.train.step import gate

    assert estimated.GATE_ROWS == gate.GATE_ROWS
    assert estimated.LOGITS_BYTES == fused.LOGITS_BYTES
    assert estimated.SCORED_BYTES == llama.SCORED_BYTES == fused.SCORED_BYTES
    assert estimated.GRAPHED_TOKENS == graphed.GRAPHED_TOKENS
    assert estimated.COPYING_RANKS == peer_copies.RANKS
    assert estimated.NORM_PROGRAMS == rms_norm.PROGRAMS == qk_norm.PROGRAMS
    assert estimated.MUON_BATCH == muon.BATCH_ELEMENTS
    assert estimated.FP8_MULTIPLE == fp8.TILE


TINY = b"""
model: {architecture: {hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, intermediate_size: 384, vocab_size: 512, max_position_embeddings: 64}}
data: {train: x, batch_size: 4, seq_len: 64}
optimizer: {lr: 1e-3}
training: {output_dir: x, mixed_precision: bf16}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "override",
    ["training.seed=1", "training.compile=false", "training.mixed_precision=fp16",
     "training.deterministic=true", "training.activation_checkpointing=true",
     "training.activation_checkpointing=2", "training.seq_len_ramp=[{until: 2, seq_len: 16}]",
     "training.mixed_precision=fp8", "model.architecture.num_attention_heads=32",
     "model.architecture.model_type=qwen2", "model.architecture.model_type=qwen3",
     "model.architecture.head_dim=12", "model.architecture.head_dim=64",
     "model.architecture={hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 4, "
     "num_key_value_heads: 2, intermediate_size: 384, vocab_size: 512, "
     "max_position_embeddings: 64, model_type: mistral, sliding_window: 16}"],
)  # fmt: skip
def test_plan_and_trainer_agree_on_what_keeps_the_fused_step_away(override, monkeypatch):
    import torch

    from albor_core.kernels import dispatch
    from albor_core.recipes.registry import recipe_of
    from albor_core.recipes.trainable import Trainable
    from albor_core.train.build import obstacle_to_fusion
    from albor_core.train.ranks.placement import Placement

    monkeypatch.setattr(dispatch, "obstacle", lambda *_: "")
    config = parse_config(TINY, file="c", overrides=[override])
    training = config.training
    placement = Placement(
        torch.device("cuda"), "H200", training.mixed_precision, training.compile is not False
    )
    recipe = recipe_of(config)
    trainable = Trainable(recipe, recipe.model(torch.device("cpu")))
    told = obstacle_to_fusion(recipe, placement, trainable)
    assert estimated.fusion_obstacles(config, "cuda", (9, 0)) == ((told,) if told else ())
    facts = PlanFacts(Path("c"), SplitFacts(Path("x")), device="cuda", gpu_capability=(9, 0))
    assert (memory(config, facts).step == "fused") == (told == "")


@pytest.mark.parametrize(
    "size", ["hidden_size=96", "intermediate_size=352", "max_position_embeddings=64"]
)
def test_fp8_needs_sizes_of_whole_tiles(size):
    overrides = ["training.mixed_precision=fp8", f"model.architecture.{size}"]
    config = parse_config(TINY, file="c", overrides=overrides)
    is_whole = size.endswith("=64")
    assert (estimated.fusion_obstacles(config, "cuda", (9, 0)) == ()) == is_whole
    short = parse_config(TINY, file="c", overrides=[*overrides, "data.seq_len=32"])
    assert any("multiples of 64" in why for why in estimated.fusion_obstacles(short, "cuda"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_optimizers_state_has_the_bytes_of_the_plan(name):
    from albor_core.model.llama import Llama, LlamaConfig
    from albor_core.recipes.registry import recipe_of
    from albor_core.recipes.trainable import Trainable
    from albor_core.train.build import flat_optimizer

    config = parse_config(TINY, file="c", overrides=[f"optimizer.name={name}"])
    model = Llama(LlamaConfig(**config.model.architecture.model_dump()))
    state = flat_optimizer(config, Trainable(recipe_of(config), model)).tensors()
    held = sum(tensor.nbytes for key, tensor in state.items() if not key.startswith("step."))
    assert memory(config, PlanFacts(Path("c"), SplitFacts(Path("x")))).optimizer == held


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_layer_of_the_fused_step_keeps_what_the_formula_says(family, monkeypatch):
    """Bytes on the tape of the real model, with kernels that only make their results' shapes."""
    import torch

    from albor_core.kernels.ops.attention import attention, rope_qkv
    from albor_core.kernels.ops.mlp import swiglu_up
    from albor_core.kernels.ops.norms import qk_norm
    from albor_core.model import fused
    from albor_core.model.flat import FlatParameters
    from albor_core.model.llama import Llama, LlamaConfig

    def norm(x, *_):
        return torch.empty_like(x), x.new_empty(len(x), dtype=torch.float32)

    def add_norm(x, total, *_, rest):
        return torch.empty_like(x), torch.empty_like(x), x.new_empty(len(x), dtype=torch.float32)

    monkeypatch.setattr(fused, "norm_forward", norm)
    monkeypatch.setattr(fused, "add_norm_forward", add_norm)
    monkeypatch.setattr(rope_qkv, "rotate_in_place", lambda *_: None)
    monkeypatch.setattr(qk_norm, "norm_and_turn", lambda qkv, *_: torch.empty_like(qkv))
    monkeypatch.setattr(attention, "_sdpa", lambda q, k, v: torch.empty_like(q).requires_grad_())
    monkeypatch.setattr(swiglu_up, "swiglu_forward", lambda x, *, over: None)

    def kept(layers):
        shape = LlamaConfig(128, layers, 4, 2, 384, 512, SEQ_LEN, model_type=family)
        model = Llama(shape)
        step = fused.FusedLlama(model, FlatParameters(model, torch.bfloat16))
        step.hidden(torch.zeros((BATCH, SEQ_LEN), dtype=torch.int64))
        found = {}
        for tape in step.tapes:
            y, gate_up = tape.large[0]
            at = tape.attended
            many = (tape.before.y, tape.before.total, tape.before.rstd, at.qkv, at.y,
                    *at.graph[1], *tape.middle, y, gate_up)  # fmt: skip
            many += () if tape.projected is None else (tape.projected,)
            found |= {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in many}
        return sum(found.values())

    def planned(layers):
        fields = (f"num_hidden_layers={layers}", f"model_type={family}")
        overrides = [f"model.architecture.{field}" for field in fields]
        config = parse_config(TINY, file="c", overrides=overrides)
        need = memory(config, PlanFacts(Path("c"), SplitFacts(Path("x")), device="cuda"))
        assert need.step == "fused"
        return need.activations

    of_heads = 2 * 32 if family == "qwen3" else 0
    norms_gradients = 4 * 2 * (2 * 128 + of_heads) * estimated.NORM_PROGRAMS  # of two layers more
    logsumexp = 2 * 4 * 4 * BATCH * SEQ_LEN  # attention keeps it, fp32
    expected = planned(4) - planned(2)
    measured = kept(4) - kept(2) + logsumexp
    assert measured <= expected <= measured + norms_gradients


def peak_of_an_evaluation(batch, *, half, wide, vocab=512):
    """Bytes that the plain model allocates at most while it scores, by torch's own trace."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from albor_core.model.llama import Llama, LlamaConfig

    shape = LlamaConfig(128, 2, 4, 2, 384, vocab, SEQ_LEN)
    model = Llama(replace(shape, residual_in_fp32=wide)).eval()
    ids = torch.zeros((batch, SEQ_LEN), dtype=torch.int64)
    traced = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with torch.no_grad(), traced, torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        model(ids, ids)
    events = [e for e in traced.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


@pytest.mark.slow  # imports torch
@pytest.mark.parametrize(("half", "wide"), [(False, True), (True, True), (True, False)], ids=str)
@pytest.mark.parametrize("vocab", [512, 16384])
def test_an_evaluation_takes_what_the_plan_says(half, wide, vocab, monkeypatch):
    """The slope over sequences: with a small vocabulary the blocks, with a large one the logits."""
    from albor_core.model import llama

    monkeypatch.setattr(llama, "SCORED_BYTES", 1 << 40)
    monkeypatch.setattr(estimated, "SCORED_BYTES", 1 << 40)
    how = {"half": half, "wide": wide, "vocab": vocab}
    measured = peak_of_an_evaluation(16, **how) - peak_of_an_evaluation(4, **how)
    one, many = (
        memory(
            parse_config(
                TINY,
                file="c",
                overrides=[
                    f"data.batch_size={batch}",
                    "data.val=y",
                    f"model.architecture.vocab_size={vocab}",
                    f"training.mixed_precision={'bf16' if half else 'fp32'}",
                    f"training.residual_in_fp32={str(wide).lower()}",
                ],
            ),
            PlanFacts(Path("c"), SplitFacts(Path("x"))),
        ).evaluation
        for batch in (4, 16)
    )
    assert 0.97 <= (many - one) / measured <= 1.1


@pytest.mark.slow  # imports torch
def test_logits_of_an_evaluation_are_never_larger_than_a_piece(monkeypatch):
    from albor_core.model import llama

    monkeypatch.setattr(llama, "SCORED_BYTES", 1 << 20)
    few = peak_of_an_evaluation(4, half=True, wide=True, vocab=16384)
    many = peak_of_an_evaluation(16, half=True, wide=True, vocab=16384)
    blocks = 12 * SEQ_LEN * (10 * 128 + 6 * 384 + 18 * 128)
    assert many - few <= blocks < 12 * SEQ_LEN * 16384  # a byte a logit more would be too many


def test_what_needs_more_counts_an_evaluation_or_a_step():
    config = parse_config(TINY, file="c", overrides=["data.val=y"])
    facts = PlanFacts(Path("c"), SplitFacts(Path("x")))
    need = memory(config, facts)
    assert need.evaluation > 0
    assert need.total == need.fixed + max(need.activations + need.start, need.evaluation)
    larger = replace(need, evaluation=need.activations + need.start + 1)
    assert larger.total == need.total + 1
    held = replace(need, keeps_activations=True, start=0)
    assert held.total == held.fixed + held.activations + held.evaluation
    assert memory(parse_config(TINY, file="c"), facts).evaluation == 0  # nothing to score
