"""Which products of a trace are which of the model, where many have the same sizes."""

from dataclasses import replace

import pytest
from made_traces import brick, call, kernel, op, step, write

from albor_core.cli.machine.profile_text import render
from albor_core.config.shape import ModelShape
from albor_core.profile.report import report_of
from albor_core.profile.trace import read_trace
from albor_core.profile.workload import METADATA, Workload

D, F, V, TOKENS, LAYERS = 64, 96, 192, 24, 2
NARROW = 16
SHAPE = ModelShape(
    hidden_size=D,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=1,
    intermediate_size=F,
    vocab_size=V,
    max_position_embeddings=TOKENS,
)
WORK = Workload(TOKENS, 1, 2, 1, "fp32", None, SHAPE, "causal_lm")
IN_PARTS = {"attn_qkv": (D, NARROW, NARROW), "ffn_gate_up": (F, F)}
LINEAR = {"attn_qkv": (D, D + 2 * NARROW), "attn_out": (D, D), "ffn_gate_up": (D, 2 * F)} | {
    "ffn_down": (F, D), "lm_head": (D, V)
}  # fmt: skip
BLOCK = ("attn_qkv", "attn_out", "ffn_gate_up", "ffn_down")
PASSES = ("forward", "input gradient", "weight gradient")
TRUTH = {(name, when): 10.0 * at for at, (name, when) in enumerate(
    ((name, when) for name in LINEAR for when in PASSES), start=1
)}  # fmt: skip
"""Microseconds of each product, of its parts together."""


def launches(tokens=TOKENS, whole=(), head=True):
    """A micro-batch as autograd launches it: brick, product, shapes and microseconds of each."""
    order = [*BLOCK * LAYERS, *(["lm_head"] if head else [])]
    made = []
    for name in order:
        outs, ins = outs_of(name, whole)
        made += [
            ("forward", name, "forward", [[tokens, ins], [ins, out]], len(outs)) for out in outs
        ]
    for name in reversed(order):
        outs, ins = outs_of(name, whole)
        for out in reversed(outs):
            made.append(
                ("backward", name, "weight gradient", [[out, tokens], [tokens, ins]], len(outs))
            )
            made.append(
                ("backward", name, "input gradient", [[tokens, out], [out, ins]], len(outs))
            )
    return made


def outs_of(name, whole):
    ins, out = LINEAR[name]
    return ((out,) if name in whole else IN_PARTS.get(name, (out,))), ins


def events_of(launched, *, on_gpu=True):
    """Operators one after the other, each with a kernel or itself as long as it takes."""
    made, at, bricks = [], 0.0, []
    for number, (where, name, when, dims, parts) in enumerate(launched, start=1):
        lasted = TRUTH[name, when] / parts if name in LINEAR else 999.0
        asked = {"External id": number, "Input Dims": dims}
        made.append(op("aten::mm", at, lasted, **asked))
        if on_gpu:
            made += [call(at, number), kernel("gemm", at + 1, lasted, number, **asked)]
        if not bricks or bricks[-1][0] != where:
            bricks.append([where, at, at])
        bricks[-1][2] = at = at + lasted + 5
    ranges = [brick(where, begin, end - begin) for where, begin, end in bricks]
    return [step(1, 0, at), *ranges, *made]


def report(tmp_path, events, work=WORK):
    head = {METADATA: work.to_json(), "record_shapes": 1}
    return report_of(read_trace(write(tmp_path / "t.json.gz", events, head=head)))


def products(made):
    return {(one.name, one.when): one for one in made.roofline.products}


def assert_told_apart(made):
    found = products(made)
    assert {key: one.measured_us for key, one in found.items()} == pytest.approx(TRUTH)
    assert not any(one.shares_with for one in found.values())
    assert "*" not in "".join(render(made, kernels=0, width=None))


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize(
    "whole", [(), ("attn_qkv",), ("ffn_gate_up",), ("attn_qkv", "ffn_gate_up")]
)
def test_equal_products_are_told_apart_by_the_order_of_their_launch(tmp_path, whole, on_gpu):
    """q, out and its input gradient are alike; so are gate and that of down, gate and up together
    and the head, gate and q, k and v together.
    """
    assert LINEAR["lm_head"][1] == 2 * F and LINEAR["attn_qkv"][1] == F
    assert_told_apart(report(tmp_path, events_of(launches(whole=whole) * 2, on_gpu=on_gpu)))


def test_products_of_an_optimizer_are_none_of_the_model(tmp_path):
    """Those of Muon have sizes of the model's."""
    own = [("optimizer", "muon", "", [[D, TOKENS], [TOKENS, D]], 1)] * 3
    one = [*launches() * 2, *own]
    assert_told_apart(report(tmp_path, events_of(one * 2)))
    mixed = report(tmp_path, events_of([*launches(), ("forward", *own[0][1:])]))
    assert products(mixed)["attn_out", "weight gradient"].measured_us > 100


@pytest.mark.parametrize("change", ["one more", "one less", "moved", "computed again"])
def test_counts_or_an_order_that_do_not_fit_leave_a_shared_mean_with_its_mark(tmp_path, change):
    made = launches()
    if change == "one more":
        made.insert(4, made[0])
    elif change == "one less":
        del made[0]
    elif change == "moved":  # of the head, behind those of the block before it
        made.insert(len(made), made.pop(2 * 7 + 1))
    else:
        made[2 * 7 + 3 : 2 * 7 + 3] = made[7:14]
    found = report(tmp_path, events_of(made))
    one = products(found)["attn_out", "forward"]
    assert "attn_out input gradient" in one.shares_with
    other = products(found)["attn_out", "input gradient"]
    assert one.measured_us == other.measured_us not in (None, TRUTH["attn_out", "forward"])
    lines = [*render(found, kernels=0, width=None)]
    assert sum(line.startswith("* products of the same sizes") for line in lines) == 1


def test_without_an_order_a_product_takes_no_time_of_another_that_it_may_not_be(tmp_path):
    """q, k and v together are as large as gate, but k alone is no other's size: they were launched
    apart. gate and up together are as large as the head, and gate as down's gradient: neither.
    """
    made = launches()
    made.insert(4, made[3])  # attn_out once more
    found = products(report(tmp_path, events_of(made)))
    qkv, gate_up = (found[name, "forward"] for name in ("attn_qkv", "ffn_gate_up"))
    assert "attn_out forward" in qkv.shares_with
    assert "ffn_down input gradient" not in qkv.shares_with
    part = TRUTH["attn_qkv", "forward"] / 3
    shared = [part, part, *[TRUTH["attn_out", "forward"]] * 3, *[TRUTH["attn_out", PASSES[1]]] * 2]
    shared += [TRUTH["attn_qkv", PASSES[1]] / 3] * 2
    assert qkv.measured_us == pytest.approx(2 * part + sum(shared) / len(shared))
    assert gate_up.measured_us is None


def test_a_head_that_is_computed_in_pieces_takes_nothing_from_products_of_its_sizes(tmp_path):
    made = launches(whole=("ffn_gate_up",), head=False)
    found = products(report(tmp_path, events_of(made)))
    for when in PASSES:
        assert found["lm_head", when].measured_us is None
        assert found["ffn_gate_up", when].measured_us == pytest.approx(TRUTH["ffn_gate_up", when])
        assert not found["ffn_gate_up", when].shares_with


def test_gradients_of_one_product_that_are_alike_share_their_mean_alone(tmp_path):
    """Where a micro-batch has as many tokens as a layer has outputs."""
    made = report(tmp_path, events_of(launches(D)), replace(WORK, seq_len=D))
    found = products(made)
    both = [found["attn_out", when] for when in PASSES[1:]]
    assert [one.measured_us for one in both] == pytest.approx([55, 55])  # 50 and 60
    assert both[0].shares_with == ("attn_out weight gradient",)
    assert found["attn_out", "forward"].measured_us == pytest.approx(40)
    assert not found["attn_out", "forward"].shares_with


def test_a_product_whose_kernel_is_missing_is_measured_by_its_other_instances(tmp_path):
    events = events_of(launches() * 2)
    first = next(at for at, one in enumerate(events) if one["cat"] == "kernel")
    del events[first]
    assert_told_apart(report(tmp_path, events))
