"""The decoder: counts, start, determinism, and transformers' own Llama as the oracle."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from albor_core.model import llama
from albor_core.model.head import IGNORED, NextTokens
from albor_core.model.llama import (
    LOGIT_STD,
    Llama,
    LlamaConfig,
    final_norm,
    init_std,
    init_weights,
    param_groups,
)

TINY = LlamaConfig(64, 2, 4, 2, 128, 96, 64)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def model(config=TINY, seed=0, **kwargs):
    made = Llama(config, **kwargs)
    init_weights(made, seed)
    return made


def tokens(config=TINY, batch=2, length=32, seed=1):
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab_size, (batch, length), generator=source)


@pytest.mark.parametrize(
    "config, count, tensors",
    [
        (LlamaConfig(1024, 24, 16, 4, 4096, 32768, 2048), 398_509_056, 218),
        (LlamaConfig(512, 12, 8, 2, 2048, 32768, 2048), 62_403_072, 110),
        (replace(TINY, tie_word_embeddings=False), 86_336, 21),
    ],
)
def test_the_model_has_the_parameters_its_shape_promises(config, count, tensors):
    with torch.device("meta"):
        made = Llama(config)
    assert sum(p.numel() for p in made.parameters()) == config.num_parameters == count
    assert len(made.state_dict()) == len(config.tensor_shapes()) == tensors


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_transformers_reads_the_checkpoint_and_computes_the_same_logits(tmp_path, tied, kv_heads):
    from transformers import LlamaForCausalLM

    config = replace(TINY, tie_word_embeddings=tied, num_key_value_heads=kv_heads, rope_theta=5e4)
    # far from the start, where logits are near zero and would agree by default
    ours = model(replace(config, initializer_range=0.2)).eval()
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    state = {name: t.contiguous() for name, t in ours.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})

    theirs, report = LlamaForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert theirs.config.rope_parameters["rope_theta"] == 5e4
    ids = tokens(config, length=64)
    with torch.no_grad():
        logits, _ = ours(ids)
        expected = theirs(ids, labels=ids)
        _, loss = ours(ids, ids)
    assert expected.logits.std() > 0.5
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "shape",
    [
        (64, 2, 4, 2, 256, 256),
        (512, 1, 8, 2, 2048, 4096),
        (512, 4, 8, 2, 2048, 4096),
        (1024, 2, 16, 4, 4096, 4096),
    ],
    ids=str,
)
@pytest.mark.parametrize(("matrix", "residual"), [(1, 0), (0.5, 0), (2, 0), (2, 1), (10, 10)])
def test_the_loss_starts_at_the_entropy_of_a_uniform_guess(shape, tied, matrix, residual):
    scales = {"matrix_scale": matrix, "residual_scale": residual}
    config = LlamaConfig(*shape, 128, tie_word_embeddings=tied, **scales)
    ids = tokens(config, batch=32, length=128)  # random targets scatter the loss by 0.003
    with torch.no_grad():
        _, loss = model(config)(ids, ids)
    assert abs(loss.item() - math.log(config.vocab_size)) < 0.03


@pytest.mark.parametrize("scales", [(1.0, 0.0), (2.0, 0.5)])
def test_initial_deviations_are_those_stated(scales):
    config = replace(TINY, vocab_size=2048, matrix_scale=scales[0], residual_scale=scales[1])
    std, state = init_std(config), model(config).state_dict()
    assert std["matrix"] == scales[0] * 0.64 / 8
    assert scales[1] == 0 or std["residual"] == scales[1] * 0.64 / 8 / 2
    for name, role in [
        ("model.layers.1.self_attn.q_proj.weight", "matrix"),
        ("model.layers.1.mlp.up_proj.weight", "matrix"),
        ("model.layers.1.mlp.down_proj.weight", "residual"),
        ("model.layers.1.self_attn.o_proj.weight", "residual"),
    ]:
        count = state[name].numel()  # a sample deviation is off by 1 / sqrt(2 n); five of those
        count //= 2 if scales[1] else 1  # of which half may be the other half
        assert state[name].std().item() == pytest.approx(std[role], rel=5 / math.sqrt(2 * count))
    assert torch.equal(state["model.layers.0.input_layernorm.weight"], torch.ones(64))
    assert torch.equal(state["model.norm.weight"], final_norm(config))


@pytest.mark.parametrize("half", [False, True])
def test_blocks_that_start_loud_write_alike_to_both_halves_and_all_get_a_gradient(half):
    config = replace(TINY, vocab_size=2048, residual_scale=1.0)
    made = model(config)
    for name, weight in made.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            first, second = weight.detach().chunk(2)
            assert 0 < (first - second).norm() < 0.006 * first.norm()
    ids = tokens(config, batch=2, length=16)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits, loss = made(ids)[0].detach(), made(ids, ids)[1]
    assert logits.abs().max() < 0.02
    loss.backward()
    assert all(weight.grad.norm() > 1e-6 for weight in made.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_what_a_token_brings_along_cancels_in_the_first_logits(tied):
    config = replace(TINY, vocab_size=2048, tie_word_embeddings=tied)
    state = model(config).state_dict()
    for name in ("model.embed_tokens.weight",) + (() if tied else ("lm_head.weight",)):
        first, second = state[name].chunk(2, dim=1)
        assert torch.equal(first, second)
        assert first.std().item() == pytest.approx(init_std(config)["embedding"], rel=0.02)
    first, second = state["model.norm.weight"].chunk(2)
    assert torch.equal(first, -second)
    with torch.no_grad():
        logits, _ = model(config)(tokens(config, batch=2, length=16))
    assert logits.std().item() == pytest.approx(LOGIT_STD, rel=0.3)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = model(seed=7).state_dict()
    torch.manual_seed(2)
    again, other = model(seed=7).state_dict(), model(seed=8).state_dict()
    deeper = model(replace(TINY, num_hidden_layers=3), seed=7).state_dict()
    assert all(torch.equal(t, again[name]) for name, t in first.items())
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(first[name], other[name])
    assert torch.equal(first[name], deeper[name])
    assert not torch.equal(first[name], first[name.replace("layers.0", "layers.1")])


def test_weights_made_on_no_device_can_be_given_one_later():
    with torch.device("meta"):
        late = Llama(TINY)
    late.to_empty(device="cpu")
    init_weights(late, 0)
    ids = tokens()
    with torch.no_grad():
        assert torch.equal(late(ids)[0], model()(ids)[0])


def test_labels_are_shifted_inside_and_ignored_ones_do_not_count():
    made, ids = model(replace(TINY, initializer_range=0.2)), tokens()
    labels = ids.clone()
    labels[:, :20] = IGNORED
    logits, nothing = made(ids)
    no_logits, loss = made(ids, labels)
    assert nothing is None and no_logits is None
    log_p = logits[:, 19:-1].log_softmax(-1).gather(-1, ids[:, 20:, None])
    torch.testing.assert_close(loss, -log_p.mean())
    assert loss.dtype is torch.float32


def test_z_loss_weighs_the_squared_denominator_of_what_is_scored():
    plain, ids = Llama(TINY), torch.randint(0, TINY.vocab_size, (2, 32))
    init_weights(plain, 0)
    labels = ids.clone()
    labels[:, :20] = IGNORED
    squares = plain(ids)[0][:, 19:-1].double().logsumexp(-1).square()
    wanted = plain(ids, labels)[1].double() + 0.01 * squares.mean()
    _, (found, means) = plain(ids, score=NextTokens(labels, 0.01))
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert not means
    assert torch.equal(plain(ids, score=NextTokens(labels))[1][0], plain(ids, labels)[1])


def test_no_position_sees_a_later_one():
    made, ids = model(replace(TINY, initializer_range=0.2)), tokens()
    changed = ids.clone()
    changed[:, 20] = (changed[:, 20] + 1) % TINY.vocab_size
    with torch.no_grad():
        a, b = made(ids)[0], made(changed)[0]
    assert torch.equal(a[:, :20], b[:, :20])
    assert not torch.equal(a[:, 20:], b[:, 20:])


@pytest.mark.parametrize("tied", [True, False])
def test_gradient_reaches_every_parameter(tied):
    made, ids = model(replace(TINY, tie_word_embeddings=tied)), tokens()
    made(ids, ids)[1].backward()
    dead = [n for n, p in made.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert dead == []


def test_training_is_the_same_to_the_bit_every_time():
    def train():
        made, ids = model(), tokens()
        optimizer = torch.optim.AdamW(param_groups(made, 0.1), lr=1e-2)
        for _ in range(3):
            made(ids, ids)[1].backward()
            optimizer.step()
            optimizer.zero_grad()
        return made.state_dict()

    first, second = train(), train()
    assert all(torch.equal(t, second[name]) for name, t in first.items())


def test_a_few_steps_learn_a_repeated_batch():
    made, ids = model(), tokens()
    optimizer = torch.optim.AdamW(param_groups(made, 0.0), lr=1e-2)
    for _ in range(30):
        loss = made(ids, ids)[1]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.5 * math.log(TINY.vocab_size)


def test_checkpointed_blocks_give_the_same_gradients():
    plain, saving, ids = model(), model(segments=2), tokens()
    plain(ids, ids)[1].backward()
    saving(ids, ids)[1].backward()
    pairs = zip(plain.parameters(), saving.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)


def test_casting_the_model_leaves_positions_exact():
    made = model()
    exact = made.model.rotary_emb.cos.clone()
    made.bfloat16().float()
    assert torch.equal(made.model.rotary_emb.cos, exact)


@pytest.mark.parametrize(
    ("gathered", "stream"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.bfloat16),
    ],
    ids=str,
)
def test_autocast_keeps_the_stream_and_the_loss_wide_and_products_narrow(gathered, stream):
    made, ids = model(replace(TINY, residual_in_fp32=stream is torch.float32)), tokens()
    _, exact = made(ids, ids)
    made.model.embed_tokens.to(gathered)
    widths, read = [], []
    for layer in made.model.layers:
        layer.register_forward_hook(lambda _m, _i, out: widths.append(out.dtype))
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.register_forward_hook(lambda _m, _i, out: read.append(out.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, loss = made(ids, ids)
    assert widths[:2] == [stream] * 2  # bf16 rounds small blocks away
    assert read[:4] == [torch.bfloat16] * 4
    assert loss.dtype is torch.float32
    # logits spread 0.2 nats at the start; bf16 keeps 8 bits of each
    assert abs(loss.item() - exact.item()) < 0.2 * 2**-7


def test_too_long_a_sequence_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"65.*64"):
        model()(tokens(length=65))


def test_only_matrices_decay_and_every_parameter_is_optimised_once():
    made = model(replace(TINY, tie_word_embeddings=False))
    decayed, kept = param_groups(made, 0.1)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    norms = {id(p) for n, p in made.named_parameters() if "norm" in n}
    assert {id(p) for p in kept["params"]} == norms
    both = [id(p) for group in (decayed, kept) for p in group["params"]]
    assert sorted(both) == sorted(id(p) for p in made.parameters())


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "compiled"])
def test_on_a_gpu_in_bf16_loss_and_gradients_agree_with_fp32_on_the_cpu(is_compiled):
    config = LlamaConfig(256, 4, 4, 2, 512, 1024, 128)
    exact, fast, ids = model(config), model(config).cuda(), tokens(config, 4, 128)
    run = torch.compile(fast, fullgraph=True) if is_compiled else fast
    exact(ids, ids)[1].backward()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        _, loss = run(ids.cuda(), ids.cuda())
    loss.backward()
    assert abs(loss.item() - math.log(1024)) < 0.03
    for (name, a), b in zip(exact.named_parameters(), fast.parameters(), strict=True):
        cosine = torch.cosine_similarity(a.grad.flatten(), b.grad.cpu().flatten(), dim=0)
        assert cosine > 0.99, name  # bf16 rounding noise of 2^-8 over some twenty roundings


@pytest.mark.parametrize("piece", [1, 7 * 3 * 64 * 8, 1 << 28])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_scored_in_pieces_is_the_mean_of_all_positions(monkeypatch, piece, dtype):
    """Against logits in fp64, some positions not counted."""
    monkeypatch.setattr(llama, "SCORED_BYTES", piece)
    made = model(LlamaConfig(32, 2, 4, 2, 64, 64, 16)).to(dtype).eval()
    ids = torch.randint(0, 64, (5, 16), generator=torch.Generator().manual_seed(3))
    labels = ids.clone()
    labels[2, 4:9] = IGNORED
    with torch.no_grad():
        _, loss = made(ids, labels)
        logits, _ = made(ids)
    flat, targets = logits[:, :-1].double().flatten(0, 1), labels[:, 1:].flatten()
    wanted = F.cross_entropy(flat, targets, ignore_index=IGNORED)
    assert loss.dtype is torch.float32
    assert float(loss) == pytest.approx(float(wanted), rel=2e-7)


def test_a_loud_embedding_with_a_quiet_head_of_its_own_begins_at_the_logarithm():
    own = {"mirrored": False, "embedding_std": 1.0, "head_std": 0.001, "residual_scale": 1.0}
    made = Llama(LlamaConfig(64, 2, 4, 2, 128, 1024, 64, tie_word_embeddings=False, **own))
    init_weights(made, 0)
    assert made.model.embed_tokens.weight.std().item() == pytest.approx(1.0, rel=0.02)
    assert made.lm_head.weight.std().item() == pytest.approx(0.001, rel=0.02)
    assert (made.model.norm.weight == 1).all()
    ids = torch.randint(0, 1024, (2, 64), generator=torch.Generator().manual_seed(0))
    assert abs(made(ids, ids)[1].item() - math.log(1024)) < 1e-3
