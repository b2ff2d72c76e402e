"""Products of a decoder against a device: sizes, bounds, what a trace measures, MFU."""

from dataclasses import replace

import pytest
from made_traces import brick, call, kernel, op, step, write

from albor_core.cli.machine.profile_text import render
from albor_core.config.shape import ModelShape
from albor_core.profile.report import report_of
from albor_core.profile.trace import read_trace
from albor_core.profile.workload import METADATA, Workload, workload_from
from albor_core.telemetry.peaks import device_peaks, peak_flops

SHAPE = ModelShape(
    hidden_size=1024,
    num_hidden_layers=4,
    num_attention_heads=16,
    num_key_value_heads=4,
    intermediate_size=4096,
    vocab_size=32768,
    max_position_embeddings=1024,
)
WORK = Workload(1024, 4, 2, 1, "bf16", "NVIDIA H100 80GB HBM3", SHAPE, "causal_lm")
BUSY = [step(1, 0, 1000), brick("forward", 0, 1000), call(10, 1), kernel("k", 100, 800, 1)]


def report(tmp_path, events=BUSY, work=WORK, devices=("NVIDIA H100 80GB HBM3",)):
    head = {
        METADATA: work.to_json() if work else {},
        "deviceProperties": [{"id": 0, "name": name} for name in devices],
        "record_shapes": 1,
    }
    return report_of(read_trace(write(tmp_path / "t.json.gz", events, head=head)))


def products(found):
    return {(one.name, one.when): one for one in found.roofline.products}


def test_every_product_has_its_sizes_and_as_many_instances_as_a_step_takes(tmp_path):
    found = products(report(tmp_path))
    assert len(found) == 15
    sizes = {key: (one.m, one.n, one.k, one.per_step) for key, one in found.items()}
    assert sizes["attn_qkv", "forward"] == (4096, 1536, 1024, 8)
    assert sizes["ffn_gate_up", "input gradient"] == (4096, 1024, 8192, 8)
    assert sizes["ffn_down", "weight gradient"] == (1024, 4096, 4096, 8)
    assert sizes["lm_head", "forward"] == (4096, 32768, 1024, 2)
    whole = sum(one.flops * one.per_step for one in found.values())
    assert whole == 6 * SHAPE.num_matmul_parameters * WORK.tokens_per_step


def test_no_figure_of_a_tiny_model_reads_as_0(tmp_path):
    shape = replace(
        SHAPE,
        **dict.fromkeys(("hidden_size", "intermediate_size", "vocab_size"), 16),
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    made = report(tmp_path, work=replace(WORK, seq_len=8, batch_size=1, shape=shape))
    lines = [line for line in render(made, kernels=0, width=None) if " attn_out " in f" {line} "]
    figures = [word for line in lines for word in line.split() if word[0].isdigit()]
    assert len(figures) >= 24 and all(float(word) > 0 for word in figures), lines


def test_the_floor_and_what_bounds_a_product_follow_from_the_ridge_point(tmp_path):
    made = report(tmp_path)
    assert made.roofline.ridge == pytest.approx(989e12 / 3.35e12)
    large = products(made)["lm_head", "forward"]
    assert large.bound == "compute" and large.intensity > made.roofline.ridge
    assert large.floor_us == pytest.approx(1e6 * large.flops / 989e12)
    few = report(tmp_path, work=replace(WORK, seq_len=32, batch_size=1))
    small = products(few)["attn_out", "forward"]
    assert small.bytes == 2 * (32 * 1024 + 1024 * 1024 + 32 * 1024)
    assert small.bound == "memory" and small.floor_us == pytest.approx(1e6 * small.bytes / 3.35e12)


def test_kernels_measure_the_product_of_the_operator_that_they_were_launched_for(tmp_path):
    def of(number, begin, lasted, *dims):
        asked = {"External id": number, "Input Dims": list(dims)}
        made = op("aten::mm", begin, 1, **asked)
        return [made, call(begin, number), kernel("gemm", begin + 5, lasted, number, **asked)]

    events = [
        *BUSY[:2],
        *of(1, 0, 30, [4096, 1024], [1024, 1024]),  # q, and out, which are alike
        *of(2, 50, 10, [4096, 1024], [1024, 256]),
        *of(3, 70, 20, [4096, 1024], [1024, 256]),
        *of(4, 100, 90, [32768, 4096], [4096, 1024]),
        *of(5, 200, 70, [1024, 4096], [4096, 32768]),
    ]
    found = products(report(tmp_path, events))
    assert found["attn_qkv", "forward"].measured_us == 30 + 15 + 15
    assert found["attn_out", "forward"].measured_us == 30
    assert found["attn_out", "forward"].shares_with == (
        *("attn_qkv forward", "attn_out input gradient"),
    )
    assert found["lm_head", "weight gradient"].measured_us == 80
    assert found["ffn_down", "forward"].measured_us is None


def test_two_mfu_figures_state_what_they_are_made_of(tmp_path):
    found = report(tmp_path).utilisation
    flops = SHAPE.flops_per_token(1024) * 8 * 1024
    assert (found.parameters, found.flops_per_step) == (SHAPE.num_parameters, flops)
    assert found.of(found.half_peak) == pytest.approx(flops / 1e-3 / 989e12)
    assert found.of(found.fp32_peak) == pytest.approx(flops / 1e-3 / 67e12)
    two = report(tmp_path, work=replace(WORK, world_size=2))
    assert two.utilisation.of(two.utilisation.half_peak) == pytest.approx(
        found.of(found.half_peak)
    )  # twice the tokens on twice the devices
    assert "all ranks but the first of 2" in two.missing


def test_peaks_that_are_not_known_are_not_made_up(tmp_path):
    work = replace(WORK, device_name=None)
    found = report(tmp_path, work=work, devices=("Some GPU",))
    one = products(found)["lm_head", "forward"]
    assert (one.bound, one.floor_us, found.roofline.ridge) == (None, None, None)
    assert found.utilisation.of(found.utilisation.half_peak) is None
    cpu = report(tmp_path, [step(1, 0, 10), op("aten::mm", 1, 2)], devices=())
    assert cpu.device == "CPU" and cpu.roofline.peak_flops is None
    assert device_peaks("AMD") is None and device_peaks(None) is None
    assert peak_flops("NVIDIA A100-SXM4-40GB") == peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert device_peaks("NVIDIA A100-SXM4-40GB").bandwidth < device_peaks("A100").bandwidth


def test_a_trace_that_does_not_say_its_model_has_no_roofline_and_says_so(tmp_path):
    found = report(tmp_path, work=None)
    assert found.roofline is None and found.utilisation is None
    assert any(one.startswith("the shape of the model") for one in found.missing)
    own = report(tmp_path, work=replace(WORK, shape=None))
    assert own.roofline is None


def test_a_workload_comes_back_from_a_trace_and_nothing_else_does():
    said = WORK.to_json()
    assert workload_from(said) == WORK
    for odd in (None, [], {}, said | {"version": 0}, said | {"shape": 3}, said | {"seq_len": 0},
                said | {"shape": said["shape"] | {"hidden_size": -1}}):  # fmt: skip
        assert workload_from(odd) is None
