"""`albor kernels bench --op gemm`: which products, by which ways, what is refused, and shares."""

from __future__ import annotations

import json
import math
import sys

import jsonschema
import pytest
import torch
import torch.nn.functional as F

from albor_core.cli.machine import kernels_gemm
from albor_core.cli.main import run
from albor_core.config.shape import ModelShape
from albor_core.documents.json_schema import schema_of
from albor_core.kernels import gemm as room
from albor_core.kernels.bench import Sizes
from albor_core.kernels.gemm import Gemm, GemmTime, RouteTime, step_products, time_gemm
from albor_core.profile.roofline import roofline
from albor_core.profile.trace import StepTrace
from albor_core.profile.workload import Workload

SIZES = Sizes(rows=48, hidden=32, intermediate=64, vocab=96, heads=4, kv_heads=2)
WORDS = ["--rows", "48", "--hidden", "32", "--intermediate", "64", "--vocab", "96"]
WORDS += ["--heads", "4", "--layers", "3"]
CPU, FP32 = torch.device("cpu"), torch.float32
SMALL = Gemm("shape", "product", 24, 40, 16, "NT")


@pytest.fixture
def bench(capsys, monkeypatch):
    """`albor kernels bench` with a small square: (exit code, stdout, stderr)."""
    monkeypatch.setitem(room.SQUARE, "cpu", 32)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["albor", "kernels", "bench", "--rounds", "1", *words])
        with pytest.raises(SystemExit) as ended:
            run()
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


def document(text):
    """One strict JSON document that fits its published schema."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    found = json.loads(text, parse_constant=refuse)
    jsonschema.validate(found, schema_of(found["schema"].removesuffix("/1")))
    return found


def test_a_steps_products_are_those_of_the_roofline_of_its_model():
    shape = ModelShape(32, 3, 4, 2, 64, 96, 48)
    expected = roofline(Workload(48, 1, 1, 1, "fp32", shape=shape), None, StepTrace(""), device="")
    found = [(one.name, one.when, one.m, one.n, one.k, one.per_step) for one in products(48)]
    assert found == [
        (one.name, one.when, one.m, one.n, one.k, one.per_step) for one in expected.products
    ]


def products(logits_rows):
    return step_products(SIZES, 3, logits_rows)


def test_the_heads_products_are_of_as_many_rows_as_logits_exist_at_a_time():
    head = [one for one in products(20) if one.name == "lm_head"]
    assert [(one.m, one.n, one.k) for one in head] == [(20, 96, 32), (20, 32, 96), (96, 32, 20)]
    assert {one.per_step for one in head} == {3}


@pytest.mark.slow
def test_the_document_has_every_product_with_its_ceiling_and_shares(bench):
    code, out, _ = bench("--op", "gemm", "--json", *WORDS)
    found = document(out)
    assert (code, found["device"], found["dtype"], found["layers"]) == (0, "cpu", "fp32", 3)
    assert len(found["products"]) == 15
    for one in found["products"]:
        flops = 2 * one["m"] * one["n"] * one["k"]
        timed = {route["route"]: route["us"] for route in one["routes"]}
        assert one["ceiling_us"] == timed[one["ceiling"]] == min(timed.values())
        assert one["ceiling_share"] == pytest.approx(one["ceiling_us"] / one["us"], abs=1e-4)
        assert one["tflops"] == pytest.approx(flops / one["us"] / 1e6, abs=1e-3)
        assert one["datasheet_share"] is None  # not known of a CPU
        assert one["sustained_share"] > 0
    weights = [(one["per_step"], one["us"], one["ceiling_us"]) for one in found["products"]]
    share = sum(n * best for n, _, best in weights) / sum(n * us for n, us, _ in weights)
    assert found["ceiling_share"] == pytest.approx(share, abs=1e-4)


def test_the_rate_of_a_tiny_product_does_not_read_as_0(bench):
    words = ("--op", "gemm", "--shape", "2,2,2", "--rounds", "3")
    code, out, _ = bench(*words)
    assert code == 0
    rows = [line.split() for line in out.splitlines() if " 2  2  2 " in line]
    assert rows and all(0 < float(row[8]) < 0.1 for row in rows), out
    for one in document(bench(*words, "--json")[1])["products"]:
        assert one["tflops"] == pytest.approx(16 / one["us"] / 1e6, rel=1e-3)
        assert one["sustained_share"] > 0


@pytest.mark.slow
def test_a_person_reads_a_line_a_product_and_what_a_step_reaches(bench):
    code, out, _ = bench("--op", "gemm", *WORDS)
    head, *lines = out.splitlines()
    assert code == 0
    for word in ("M", "N", "K", "us", "TFLOP/s", "of ceiling", "of sustained", "of data sheet"):
        assert word in head
    assert sum(line.startswith(("attn_", "ffn_", "lm_head")) for line in lines) == 15
    assert "of the ceiling (3 layers" in lines[-1]


def test_a_shape_is_timed_with_each_factor_either_way(bench):
    words = ("--op", "gemm", "--shape", "24,40,16", "--shape", "1K,2,3", "--json")
    found = document(bench(*words)[1])
    sizes = [(one["m"], one["n"], one["k"], one["layout"]) for one in found["products"]]
    ways = ("NN", "NT", "TN", "TT")
    assert sizes == [(*s, way) for s in ((24, 40, 16), (1024, 2, 3)) for way in ways]
    assert found["sizes"] is found["layers"] is found["ceiling_share"] is None


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--op gemm --shape 0,1,2", 2, "'--shape': 0,1,2: M, N and K are from 1"),
        ("--op gemm --shape many", 2, "'many' is not M,N,K"),
        ("--op gemm --shape 1,2", 2, "'1,2' is not M,N,K"),
        ("--op gemm --shape 1,2,2.5", 2, "'1,2,2.5' is not M,N,K"),
        ("--op gemm --shape 1,2,-3", 2, "M, N and K are from 1"),
        ("--op gemm --shape 1G,1G,1", 1, "1,073,741,824 x 1,073,741,824 x 1 needs about"),
        ("--op gemm --rows 1G", 1, "needs about"),
        ("--op gemm --shape 8,8,8 --rows 4", 2, "--rows has no meaning beside --shape"),
        ("--op gemm --shape 8,8,8 --kv-heads 4", 2, "--kv-heads has no meaning beside --shape"),
        ("--op gemm --shape 8,8,8 --layers 4", 2, "--layers has no meaning beside --shape"),
        ("--op gemm --no-compile", 2, "--compile and --no-compile have no meaning"),
        ("--op gemm --heads 3", 2, "3 heads"),
        ("--op gemm --op rope", 2, "cannot be timed together with other ops"),
        ("--shape 8,8,8", 2, "--shape needs --op gemm"),
        ("--op rope --layers 2", 2, "--layers needs --op gemm"),
    ],
)
def test_what_cannot_be_timed_is_refused_in_words(bench, words, code, says):
    ended, out, err = bench(*words.split())
    assert (ended, out) == (code, "")
    assert says in err and "next: " in err and "Traceback" not in err


def test_what_an_allocator_has_no_memory_for_after_all_is_refused_in_words(bench, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(room, "sustained", lambda *_, **__: 1e12)
    monkeypatch.setattr(room, "time_gemm", full)
    ended, out, err = bench("--op", "gemm", "--shape", "8,8,8")
    assert (ended, out) == (1, "")
    assert "8 x 8 x 8 needs more memory than there is here" in err


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b, c: a @ b * 1.01,
        lambda a, b, c: a[:, 1:] @ b[1:],
        lambda a, b, c: c,  # the result of whoever came before
        lambda a, b, c: (a @ b).index_fill_(0, torch.tensor(0), math.nan),
        lambda a, b, c: (a @ b).roll(1, 0),
    ],
    ids=["scaled", "short", "nothing", "nan", "shifted"],
)
def test_a_way_that_is_wrong_is_named_and_not_timed(wrong, monkeypatch):
    monkeypatch.setitem(room.CALLS, "wrong", wrong)
    found = time_gemm(SMALL, CPU, FP32, rounds=1)
    refused = [one for one in found.routes if one.why]
    assert [one.route for one in refused] == [f"wrong {way}" for way in room.LAYOUTS]
    assert all(one.us is None and one.why.startswith("wrong: errs") for one in refused)
    assert found.ceiling is not None and "wrong" not in found.ceiling.route
    assert found.ours.us


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 1 << 25, (1 << 30) - 1])
def test_what_is_compared_lies_in_the_matrix_and_reaches_both_ends(size):
    rows = room._spread(size, CPU).tolist()
    assert (rows[0], rows[-1], len(set(rows))) == (0, size - 1, min(size, room.SAMPLED))


@pytest.mark.slow
def test_ours_that_is_wrong_is_not_timed_either_and_has_no_share(bench, monkeypatch):
    monkeypatch.setitem(room.CALLS, "mm out", lambda a, b, c: a @ b + 1)
    found = document(bench("--op", "gemm", "--json", *WORDS)[1])
    wrong = [one for one in found["products"] if one["ours"] == "mm out"]
    assert wrong
    assert found["ceiling_share"] is None
    for one in wrong:
        assert one["why"].startswith("wrong: errs")
        assert one["us"] is one["tflops"] is one["ceiling_share"] is one["sustained_share"] is None
        assert one["ceiling"].startswith(("mm fresh", "linear"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [FP32, torch.bfloat16, torch.float16], ids=str)
def test_rounding_is_no_fault_and_every_way_of_a_step_is_timed(dtype):
    for one in (*products(48), *products(20), Gemm("long", "product", 3, 5, 9000, "TT")):
        found = time_gemm(one, CPU, dtype, rounds=1, round_s=0.0)
        assert found.ours.us, found.ours
        assert len(found.routes) == 9
        assert [route for route in found.routes if not route.us] == []


@pytest.mark.slow
def test_a_kernel_with_swiglu_in_it_is_held_to_both_of_its_results(monkeypatch):
    """Made-up ones in the place of those that need a GPU; `by` is their fault."""

    def project(x, w):
        gate, up = (x @ w.t()).chunk(2, -1)
        return torch.cat((gate, F.silu(gate) * up * by), -1)

    def backward(dy, w, gate_up):
        gate, a = gate_up.chunk(2, -1)
        up, da = a / F.silu(gate), dy @ w
        slope = gate.sigmoid() * (1 + gate * (1 - gate.sigmoid()))
        gate_up.copy_(torch.cat((da * up * slope, da * F.silu(gate) * by), -1))

    for op in (room.swiglu_up, room.swiglu_down):
        monkeypatch.setattr(op, "misfit", lambda *_: "")
    monkeypatch.setattr(room, "use_triton", lambda *_: True)
    monkeypatch.setattr(room.swiglu_up, "project", project)
    monkeypatch.setattr(room.swiglu_down, "swiglu_down_backward", backward)
    ours = [one for one in products(48) if one.how in ("swiglu_up", "swiglu_down")]
    for by in (1, 1.01):
        found = [time_gemm(one, CPU, torch.float32, rounds=1) for one in ours]
        assert [one.ours.route.split()[0] for one in found] == ["swiglu_up", "swiglu_down"]
        assert [one.ours.why.startswith("wrong") for one in found] == [by > 1] * 2
        assert [one.ours.us is None for one in found] == [by > 1] * 2


def test_both_libraries_of_a_gpu_are_asked_for_each_way_and_the_choice_is_given_back(monkeypatch):
    asked = ["default"]

    def preferred(library=None):
        if library is not None:
            asked.append(library)
        return asked[-1]

    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", preferred)
    names = {name: library for name, _, library in room._routes(SMALL, torch.device("cuda"))}
    assert len(names) == 18
    assert names["mm out TN cublaslt"] == "cublaslt"
    with room._blas("cublaslt"), room._blas("cublas"):
        assert asked[-1] == "cublas"
    assert asked[-1] == "default"


def test_all_ways_take_turns_and_a_time_is_the_median_behind_two_rounds():
    order = []

    def timer(work, sets, device, repeats):
        order.append(id(work))
        return len(order) // 10 + 1.0  # ten ways: a round

    found = time_gemm(SMALL, CPU, FP32, rounds=3, timer=timer)
    rounds = [order[start : start + 10] for start in range(0, 50, 10)]
    assert all(sorted(one) == sorted(rounds[0]) for one in rounds)
    assert rounds[1] == rounds[0][::-1]
    assert [one.us for one in (found.ours, *found.routes)][1:-1] == [4e6] * 8


def test_a_share_is_above_one_where_ours_is_the_faster():
    time = GemmTime(SMALL, RouteTime("ours", 5.0), (RouteTime("a", 10.0), RouteTime("b", 6.0)))
    assert (time.ceiling.route, time.share) == ("b", 1.2)
    assert room.step_share([time]) == 1.2
    assert room.step_share([time, GemmTime(SMALL, RouteTime("ours", None, "wrong"), ())]) is None


def test_a_data_sheet_is_that_of_the_precision():
    assert kernels_gemm.sheet_flops("NVIDIA H200", "bf16") == 989e12
    assert kernels_gemm.sheet_flops("NVIDIA H200", "fp32") == 67e12
    assert kernels_gemm.sheet_flops(None, "fp32") is None
