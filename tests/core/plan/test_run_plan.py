"""The plan: the step algebra, what fits, and every problem at once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from albor_core.config.load import parse_config
from albor_core.plan.facts import PlanFacts, SplitFacts, TokenizerFacts
from albor_core.plan.memory import memory
from albor_core.plan.plan import plan
from albor_core.plan.text import render
from albor_core.run.errors import ConfigError, Problem

RAW = (Path(__file__).parents[1] / "config" / "pretrain-350m-v2.yaml").read_bytes()
TRAIN = SplitFacts(
    Path("data/train"), sequences=67_977, row_len=1024, tokens=67_977 * 1024, vocab_size=32_768,
    max_id=32_767, shards=17, bytes=280_000_000, data_hash="d" * 64, tokenizer_sha256="f" * 64,
)  # fmt: skip
FACTS = PlanFacts(
    config_path=Path("c.yaml"), train=TRAIN, val=replace(TRAIN, sequences=400),
    tokenizer=TokenizerFacts(Path("tokenizer.json"), 32_768, "f" * 64), device="cuda",
    device_name="NVIDIA GeForce RTX 4090", device_memory_bytes=24 << 30, peak_flops=165.2e12,
    cpu_count=8, disk_free_bytes=10**12, git_commit="a" * 40, git_dirty=False,
)  # fmt: skip


def planned(*overrides, facts=FACTS, **changes):
    config = parse_config(RAW, file="c.yaml", overrides=overrides)
    return plan(config, replace(facts, **changes))


def one_problem(made):
    (problem,) = made.problems
    assert problem.file == "c.yaml"
    assert problem.hint
    return problem


def beside_tokens(made):
    """Its warnings but for the one of too few tokens, which a rehearsal always has."""
    return tuple(w for w in made.warnings if "per parameter" not in w.message)


def test_the_350m_config_is_ready_with_its_own_data():
    made = planned()
    assert made.problems == ()
    (warning,) = made.warnings  # its data is a thousandth of what its size wants
    assert warning.field == "training.max_steps"
    assert warning.message == "20,480,000 tokens are 0.051 per parameter, fewer than 10"
    assert made.parameters == 398_509_056
    assert made.schedule.steps_per_epoch == 16_994  # the number in the config's own comment
    assert made.schedule.total_tokens == 5000 * 4 * 1024
    assert made.schedule.checkpoints == 200


def test_the_run_that_once_ended_in_its_warm_up_is_refused_before_it_starts():
    """22,079 sequences, 4 x 128 per step, 1 epoch: 43 steps of the 5,000, and 2,000 of warm-up."""
    made = planned(
        "training.gradient_accumulation=128",
        "training.warmup_steps=2000",
        train=replace(TRAIN, sequences=22_079),
    )
    assert made.schedule.steps_per_epoch == 43
    steps, warmup = made.problems
    assert steps.field == "training.max_steps"
    assert "5,000 steps cannot be reached: 1 epoch of 43 steps end at 43" in steps.message
    assert steps.hint == "set training.epochs to 117, or training.max_steps to 43"
    assert warmup.field == "training.warmup_steps"
    assert "never completes in 43 steps" in warmup.message


def test_the_hint_for_unreachable_steps_leads_to_a_plan_without_problems():
    accumulation = ("training.gradient_accumulation=128", "training.warmup_steps=100")
    facts = replace(FACTS, train=replace(TRAIN, sequences=22_079))
    assert planned(*accumulation, facts=facts).problems
    assert not planned(*accumulation, "training.epochs=117", facts=facts).problems
    assert planned(*accumulation, "training.epochs=116", facts=facts).problems


def test_without_max_steps_the_epochs_decide():
    made = planned("training.max_steps=null", "training.epochs=2")
    assert made.max_steps == 2 * 16_994


def test_rows_longer_than_seq_len_count_as_several_sequences():
    made = planned(train=replace(TRAIN, row_len=2048))
    assert made.schedule.sequences == 2 * 67_977


def test_rows_that_do_not_divide_lose_tokens_and_say_so():
    (warning,) = beside_tokens(planned(train=replace(TRAIN, row_len=1536)))
    assert (warning.field, "lose 33%" in warning.message) == ("data.seq_len", True)


@pytest.mark.parametrize(
    ("changes", "field", "cause"),
    [
        ({"train": replace(TRAIN, row_len=512)}, "data.seq_len", "longer than the 512"),
        ({"train": replace(TRAIN, max_id=40_000)}, "model.architecture.vocab_size", "id 40,000"),
        ({"train": replace(TRAIN, vocab_size=50_000)}, "model.architecture.vocab_size", "50,000"),
        ({"train": replace(TRAIN, sequences=3)}, "data.batch_size", "takes 4 sequences"),
        ({"train": replace(TRAIN, tokenizer_sha256="0" * 64)}, "data.tokenizer", "packed with"),
        ({"val": replace(TRAIN, max_id=40_000)}, "model.architecture.vocab_size", "id 40,000"),
        ({"tokenizer": TokenizerFacts(Path("t"), 50_000)}, "model.architecture.vocab_size", "50,0"),
        ({"tokenizer": TokenizerFacts(Path("t"), error="t: gone")}, "data.tokenizer", "t: gone"),
        ({"device": "cpu", "device_memory_bytes": 64 << 30}, "training.mixed_precision", "fp16"),
        ({"gpu_missing": True, "device_memory_bytes": None}, "training.device", "no GPU"),
        ({"output_writable": False}, "training.output_dir", "cannot be written"),
        ({"torch_available": False}, "", "torch is not installed"),
        ({"disk_free_bytes": 10**9}, "training.checkpoint.keep", "more than is free"),
        ({"device_memory_bytes": 11 << 30}, "data.batch_size", "more than the 11.0 GiB"),
    ],
)
def test_each_thing_that_would_stop_a_run_is_named_with_its_field_and_a_fix(changes, field, cause):
    problem = one_problem(planned(**changes))
    assert problem.field == field
    assert cause in problem.message


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"row_len": 1536}, "data.seq_len 1,024 does not divide the 1,536 tokens of a row"),
        ({"packing": "best-fit"}, "was packed by best-fit"),
        ({"eos_token_id": None}, "nothing says which token stands between documents"),
    ],
)
def test_documents_that_cannot_be_joined_anew_are_refused_before_a_run_begins(changes, cause):
    told = replace(TRAIN, eos_token_id=0, packing="concat")
    asked = "data.shuffle=documents"
    assert planned(asked, train=told).problems == ()
    assert planned(asked, train=replace(told, eos_token_id=None, bos_token_id=1)).problems == ()
    problem = one_problem(planned(asked, train=replace(told, **changes)))
    assert problem.field == "data.shuffle" and cause in problem.message


RANKS = ("training.distributed.world_size=4", "data.batch_size=16", "training.max_steps=4000")
FOUR = {"device_count": 4}


def test_how_rows_are_read_is_told_in_words_and_in_the_document():
    made = planned("data.shuffle=documents", "data.document_mask=true", "data.fim.rate=0.5")
    data, text = made.to_json()["data"], render(made)
    assert (data["shuffle"], data["document_mask"]) == ("documents", True)
    assert (data["fim"]["rate"], data["fim"]["format"]) == (0.5, "psm")
    for words in ("documents, joined and cut anew", "kept apart", "50% of the documents, psm"):
        assert words in text
    data = planned().to_json()["data"]
    assert (data["shuffle"], data["document_mask"], data["fim"]) == ("rows", False, None)


def test_ranks_share_the_global_batch_that_the_config_says():
    alone, four = planned(*RANKS[1:]), planned(*RANKS, **FOUR)
    assert four.problems == ()
    assert four.schedule == alone.schedule
    shared = {"world_size": 4, "batch_size": 4, "accumulation": 1, "strategy": "ddp"}
    assert four.to_json()["distributed"] == shared
    text = render(four)
    assert "4 by ddp, each 4 sequences x 1 micro-batches a step" in text
    assert "16,384 tokens (4 ranks x 4 x 1 x 1024)" in text
    assert "Memory of a rank" in text
    assert "Ranks:" not in render(alone)


def test_a_start_other_than_the_usual_is_shown():
    loud = planned("model.initialization.matrix=2", "model.initialization.residual=0.5")
    assert "random, matrix 2, residual 0.5" in render(loud)
    assert "random" not in render(planned())


def test_fsdp_needs_less_memory_of_each_rank_and_the_plan_says_so():
    large = (
        "model.architecture.num_hidden_layers=60",
        "training.activation_checkpointing=true",
    )
    facts = replace(FACTS, device_memory_bytes=12 << 30, **FOUR)
    problem = one_problem(planned(*RANKS, *large, facts=facts))
    assert problem.hint == "training.distributed.strategy=fsdp would fit"
    cut = planned(*RANKS, *large, "training.distributed.strategy=fsdp", facts=facts)
    assert cut.problems == ()
    whole = planned(*RANKS, *large, facts=facts).memory
    assert cut.memory.optimizer == -(-whole.optimizer // 32) * 8
    assert cut.memory.total < whole.total / 2


def test_gradients_that_accumulate_stay_whole_under_fsdp():
    fsdp = (*RANKS, "training.distributed.strategy=fsdp")
    once = planned(*fsdp, **FOUR).memory
    many = planned(*fsdp, "training.gradient_accumulation=8", **FOUR).memory
    assert many.gradients > 3.9 * once.gradients


@pytest.mark.parametrize(
    ("changes", "cause", "hint"),
    [
        ({"device_count": 2}, "there are 2 GPUs", "training.distributed.world_size=2"),
        ({"device_count": 1}, "there is 1 GPU", "training.distributed.world_size=1"),
        ({**FOUR, "accelerate_available": False}, "accelerate", "pip install 'albor[train]'"),
    ],
)
def test_ranks_that_cannot_be_are_refused_with_a_fix(changes, cause, hint):
    problem = one_problem(planned(*RANKS, **changes))
    assert problem.field == "training.distributed.world_size"
    assert cause in problem.message
    assert hint in problem.hint


def test_ranks_on_a_cpu_share_its_memory():
    on_cpu = ("training.mixed_precision=fp32", "training.device=cpu", *RANKS)
    made = planned(*on_cpu, device="cpu", device_memory_bytes=100 << 30)
    assert made.memory.capacity == 25 << 30


def test_what_ranks_cannot_share_is_refused_with_the_config():
    with pytest.raises(ConfigError) as caught:
        planned("training.distributed.world_size=4", "data.batch_size=3")
    (problem,) = caught.value.problems
    assert problem.field == "training.distributed.world_size"
    assert "of 3 sequences" in problem.message
    assert "3 would" in problem.hint
    assert problem.file.startswith("--set ")


def advised(problem):
    """What a hint asks for, as overrides."""
    words = problem.hint.removesuffix(", without the fused step").removesuffix(" would fit")
    return [word for word in words.split() if "=" in word]


@pytest.mark.parametrize(
    ("batch", "accumulation", "gib"),
    [(8, 1, 11), (12, 1, 9), (12, 1, 11), (12, 64, 12), (7, 1, 10), (16, 1, 12), (16, 3, 10)],
)
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_advice_for_too_little_memory_fits_and_trains_the_same(batch, accumulation, gib, precision):
    facts = replace(FACTS, device_memory_bytes=gib << 30)
    sizes = (f"data.batch_size={batch}", f"training.gradient_accumulation={accumulation}")
    wanted = (*sizes, "training.max_steps=null", f"training.mixed_precision={precision}")
    made = planned(*wanted, facts=facts)
    if not made.memory.missing:
        pytest.skip("it fits")
    problem = next(p for p in made.problems if p.field == "data.batch_size")
    after = planned(*wanted, *advised(problem), facts=facts)
    assert not after.memory.missing
    assert after.schedule.tokens_per_step == made.schedule.tokens_per_step


def test_the_largest_micro_batch_that_fits_is_advised_before_recomputing():
    large = "data.batch_size=12", "training.max_steps=4000"
    need = planned(*large, "data.batch_size=6", "training.gradient_accumulation=2").memory.total
    problem = one_problem(planned(*large, facts=replace(FACTS, device_memory_bytes=need)))
    assert problem.hint == "data.batch_size=6 with training.gradient_accumulation=2 would fit"


def test_what_is_too_large_is_advised_on_beside_a_precision_that_is_refused():
    large = "data.batch_size=12", "training.max_steps=4000", "training.mixed_precision=fp8"
    ampere = replace(FACTS, gpu_capability=(8, 0))
    half = "data.batch_size=6", "training.gradient_accumulation=2"
    need = planned(*large, *half, facts=ampere).memory.total
    precision, memory = planned(*large, facts=replace(ampere, device_memory_bytes=need)).problems
    assert precision.field == "training.mixed_precision"
    assert "would fit" in memory.hint


H200 = {"device_name": "NVIDIA H200", "device_memory_bytes": 143_771 << 20, "peak_flops": 989e12}
HOPPER = {**H200, "gpu_capability": (9, 0)}
BF16 = "training.mixed_precision=bf16"
FP8 = "training.mixed_precision=fp8"


def test_recomputing_is_proposed_and_keeps_the_fused_step():
    one = (BF16, "data.batch_size=1", "data.seq_len=1024", "training.max_steps=5000")
    deep = (*one, "model.architecture.num_hidden_layers=96")
    segmented = (*deep, "training.activation_checkpointing=96")
    need = planned(*segmented, **HOPPER).memory.total
    problem = one_problem(planned(*deep, **{**HOPPER, "device_memory_bytes": need}))
    assert problem.hint == "training.activation_checkpointing=96 would fit"
    deep = (*deep, "data.batch_size=4")
    kept, *fewer = (
        planned(*deep, f"training.activation_checkpointing={said}", **HOPPER).memory
        for said in ("false", 2, 6, 12)
    )
    assert {kept.step, *(one.step for one in fewer)} == {"fused"}
    sizes = [kept.activations, *(one.activations for one in fewer)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 4 * sizes[2]
    made = planned(*one, "training.activation_checkpointing=true", **HOPPER)
    assert made.memory.step == "compiled"
    assert any("fused step is off: training.activation_ch" in note for note in made.notes)


@pytest.mark.parametrize(
    ("batch", "precision", "measured"),
    [(4, BF16, 9.0), (16, BF16, 18.0), (64, BF16, 50.9), (64, FP8, 56.9)],
)
def test_the_fused_step_needs_what_was_measured(batch, precision, measured):
    """Peaks of docs/performance.md on an H200, in GiB; that of 16 was 21.0 when SwiGLU's result had
    a buffer of its own, which was 3.0.
    """
    made = planned(precision, f"data.batch_size={batch}", **HOPPER)
    need = made.memory
    found = (need.fixed + need.activations - need.overhead) / 2**30
    assert 0.98 <= found / measured <= 1.02
    assert "fused kernels" in render(made)
    assert "mixed\n" in render(made)
    narrow = planned(precision, "training.residual_in_fp32=false", **HOPPER)
    assert "mixed, residual stream too\n" in render(narrow)


@pytest.mark.parametrize(
    ("batch", "wide", "narrow"), [(4, 9.4, 9.0), (16, 21.7, 20.2), (64, 71.1, 65.1)]
)
@pytest.mark.parametrize("residual_in_fp32", [True, False])
def test_the_compiled_step_needs_what_was_measured(batch, wide, narrow, residual_in_fp32):
    """Peaks of docs/performance.md on an H200, in GiB, and whole gradients."""
    measured = wide if residual_in_fp32 else narrow
    residual = f"training.residual_in_fp32={residual_in_fp32}"
    need = planned(f"data.batch_size={batch}", residual, **HOPPER).memory
    assert need.step == "compiled"
    assert 0.98 <= (need.total - need.gradients - need.overhead) / 2**30 / measured <= 1.02


def test_a_compiled_step_needs_one_sequence_in_fp32_before_its_first():
    compiled = ("training.residual_in_fp32=true", "training.deterministic=true")
    few, many = (planned(f"data.batch_size={b}", *compiled, **HOPPER).memory for b in (1, 8))
    assert few.step == many.step == "compiled"
    plain = planned("data.batch_size=1", "training.mixed_precision=fp32",
                    "training.compile=false", **HOPPER).memory  # fmt: skip
    assert few.activations + few.start == plain.activations
    assert many.start == 0


@pytest.mark.parametrize(
    ("overrides", "changes", "cause"),
    [
        ((), {"gpu_capability": (8, 0)}, "needs compute capability 9.0, and the GPU has 8.0"),
        (("data.seq_len=1000",), {}, "multiples of 64"),
        (("model.architecture.num_attention_heads=256", "model.architecture.num_key_value_heads=4"),
         {}, "head_dim 4 is not a multiple of 8"),
        (("training.compile=false",), {}, "training.compile is false"),
        (("training.activation_checkpointing=true",), {}, "activation_checkpointing is true"),
        ((), {"device": "cpu", "gpu_idle": "X is there, but hidden"}, "X is there, but hidden"),
    ],
)  # fmt: skip
def test_fp8_that_the_trainer_would_refuse_is_refused_here(overrides, changes, cause):
    assert planned(FP8, **HOPPER).problems == ()
    made = planned(FP8, *overrides, **{**HOPPER, **changes})
    assert made.problems[0].field == "training.mixed_precision"
    assert cause in made.problems[0].message


def test_a_gpu_that_torch_cannot_use_is_warned_of_and_refused_where_it_is_needed():
    idle = {"device": "cpu", "gpu_idle": "H100 is there, but this torch has no CUDA",
            "gpu_remedy": "install a torch with CUDA"}  # fmt: skip
    (warning,) = beside_tokens(planned(BF16, **idle))
    assert warning.message == f"the run will train on the CPU: {idle['gpu_idle']}"
    assert warning.hint == idle["gpu_remedy"]
    fp16 = one_problem(planned(**idle))
    assert (fp16.field, fp16.hint) == ("training.mixed_precision", idle["gpu_remedy"])
    wanted = {**idle, "device": "cuda", "gpu_missing": True, "device_memory_bytes": None}
    assert "this torch has no CUDA" in one_problem(planned(BF16, **wanted)).message


def test_muon_keeps_one_moment_of_hidden_matrices_in_memory_and_on_disk():
    hidden = 24 * (1024 * (2 * 1024 + 2 * 256 + 3 * 4096))
    adamw, muon = planned(), planned("optimizer.name=muon")
    assert adamw.memory.optimizer - muon.memory.optimizer == 4 * hidden
    assert adamw.disk.checkpoint - muon.disk.checkpoint == 4 * hidden
    fused = planned("optimizer.name=muon", BF16, **HOPPER)
    assert fused.memory.optimizer == muon.memory.optimizer + 2 * hidden  # the bf16 update
    assert "Muon fp32 momentum" in render(muon)
    tiny = ("data.batch_size=1", "data.seq_len=8", "training.warmup_steps=0")
    assert planned(*tiny, "optimizer.name=muon").memory.activations > 5 * (1 << 26)


def test_rates_beside_lr_and_windows_are_told():
    assert "Other peaks" not in render(planned())
    rates = ("optimizer.muon_lr=5e-3", "optimizer.embedding_lr=0.2")
    told = render(planned("optimizer.name=muon", *rates))
    assert "Other peaks  hidden matrices 0.005, embedding 0.2\n" in told
    shape = ("model_type=qwen3", "sliding_window=512", "window_pattern=SSSL")
    told = render(planned(*(f"model.architecture.{one}" for one in shape)))
    assert "KV), window 512 in SSSL\n" in told


def test_a_window_or_an_l_that_nothing_feels_is_noted():
    family = "model.architecture.model_type=qwen3"
    window = "model.architecture.sliding_window"
    felt = planned(family, f"{window}=512", "model.architecture.window_pattern=SSSL")
    idle = planned(family, f"{window}=4096", "model.architecture.window_pattern=" + "S" * 24 + "L")
    said = (
        "a sliding_window of 4,096 changes nothing in rows of 1,024",
        "no layer sees all: 24 layers of " + "S" * 24 + "L",
    )
    assert not set(said) & set(felt.notes) and set(said) <= set(idle.notes)


def test_muons_state_and_its_update_are_shared_by_ranks_under_fsdp():
    muon = ("optimizer.name=muon", "training.warmup_steps=0", *RANKS)
    tiny = ("data.batch_size=4", "data.seq_len=8", *muon)
    whole = planned(*tiny, **FOUR).memory
    cut = planned(*tiny, "training.distributed.strategy=fsdp", **FOUR).memory
    assert cut.optimizer == -(-whole.optimizer // 4)
    assert cut.activations < whole.activations


def test_weights_too_large_for_the_device_are_told_so_and_not_to_shrink_the_batch():
    problem = one_problem(planned(device_memory_bytes=4 << 30))
    assert "weights and optimizer alone" in problem.hint


def test_the_keep_that_would_fit_the_disk_does_fit():
    facts = replace(FACTS, disk_free_bytes=40 * 10**9)
    problem = one_problem(planned("training.checkpoint.keep=10", facts=facts))
    keep = problem.hint.split("=")[1].split()[0]
    assert not planned(f"training.checkpoint.keep={keep}", facts=facts).problems
    assert planned(f"training.checkpoint.keep={int(keep) + 1}", facts=facts).problems


def test_no_more_checkpoints_are_counted_than_the_run_will_make():
    every = planned("training.checkpoint.save_every=1000", "training.checkpoint.keep=1000000")
    made = -(-every.max_steps // 1000)
    assert not every.problems
    assert every.disk.copies == made + 1  # one of them in flight


@pytest.mark.parametrize(
    ("keep", "save_every", "log_interval", "more"),
    [  # saves at most log_interval - gcd steps after the newest figures; keep - 1 are older ones
        (2, 250, 1, 0), (2, 100, 100, 0), (1, 3, 2, 1), (1, 10, 4, 1), (2, 3, 5, 1), (2, 6, 10, 1),
        (2, 10, 15, 0), (3, 2, 5, 0), (3, 2, 7, 1), (3, 2, 8, 1),
    ],
)  # fmt: skip
def test_the_checkpoint_that_a_rollback_would_go_to_is_counted(
    keep, save_every, log_interval, more
):
    made = planned(
        f"training.checkpoint.keep={keep}",
        f"training.checkpoint.save_every={save_every}",
        f"training.log_interval={log_interval}",
    )
    assert made.disk.copies == keep + 2 + more


def test_every_problem_comes_at_once():
    made = planned(
        "training.warmup_steps=5000",
        train=replace(TRAIN, max_id=40_000, problems=(Problem("data.train", "cut"),)),
        val=replace(TRAIN, row_len=512),
        disk_free_bytes=1,
        device_memory_bytes=1 << 30,
    )
    assert [problem.field for problem in made.problems] == [
        "data.train",
        "training.warmup_steps",
        "model.architecture.vocab_size",
        "data.seq_len",
        "data.batch_size",
        "training.checkpoint.keep",
    ]


def test_unknown_facts_are_left_out_and_never_taken_for_zero():
    made = plan(
        parse_config(RAW, file="c.yaml", overrides=["training.max_steps=null"]),
        PlanFacts(config_path=Path("c.yaml"), train=SplitFacts(Path("x")), device="cuda"),
    )
    assert made.problems == ()
    assert made.max_steps is None
    assert made.schedule.total_tokens is None
    assert made.duration is None
    assert "unknown" in render(made)


def test_evaluations_that_never_come_are_warned_of_in_words_that_stand_alone():
    made = planned("training.eval_interval=50", "training.max_steps=12", "training.warmup_steps=0")
    (warning,) = beside_tokens(made)
    assert warning.field == "training.eval_interval"
    assert warning.message == "evaluated every 50 steps, but the run has 12"


@pytest.mark.parametrize("field", ["warnings", "notes"])
def test_what_is_merely_unwise_stops_nothing(field):
    made = planned(
        "training.warmup_steps=2000",
        "training.epochs=20",
        "training.max_steps=100K",
        "data.val=null",
        "training.early_stopping_patience=3",
        val=None,
    )
    assert not made.problems
    assert getattr(made, field)


def test_a_long_warm_up_and_a_tiny_token_budget_are_told():
    made = planned("training.warmup_steps=2000", "monitoring.budgets.tokens=1M")
    assert made.warnings[0].field == "training.warmup_steps"
    assert "40%" in made.warnings[0].message
    assert "the budget of 1,000,000 tokens is used up at step 245 of 5,000" in made.notes


def test_budgets_stand_beside_what_the_plan_takes():
    made = planned("monitoring.budgets.gpu_hours=1000", "monitoring.budgets.money=50",
                   "monitoring.budgets.rate_per_gpu_hour=2.5", "monitoring.budgets.currency=EUR",
                   "monitoring.budgets.energy_kwh=3")  # fmt: skip
    hours = made.duration.seconds / 3600
    planned_use = {one.amount: one.planned for one in made.budgets}
    assert planned_use["gpu_hours"] == pytest.approx(hours * made.config.share().world_size)
    assert planned_use["money"] == pytest.approx(2.5 * planned_use["gpu_hours"])
    assert planned_use["energy_kwh"] is None
    text = render(made)
    assert "Budgets:      1,000 GPU-hours, the plan takes about" in text
    assert "3 kWh, the plan cannot tell its use" in text and "50 EUR" in text
    assert [one["amount"] for one in made.to_json()["budgets"]] == [
        "gpu_hours", "energy_kwh", "money"
    ]  # fmt: skip


def test_activation_memory_grows_with_the_micro_batch_only():
    config = parse_config(RAW, file="c", overrides=["data.batch_size=8"])
    small, large = memory(parse_config(RAW, file="c"), FACTS), memory(config, FACTS)
    assert large.activations == 2 * small.activations
    assert large.weights == small.weights == 4 * 398_509_056
    assert small.optimizer == 8 * 398_509_056


def test_fp32_needs_no_half_copies_and_more_activations():
    half = memory(parse_config(RAW, file="c"), FACTS)
    full = memory(parse_config(RAW, file="c", overrides=["training.mixed_precision=no"]), FACTS)
    assert full.half_copies == 0
    assert full.activations > half.activations


def test_a_setting_of_mixed_precision_that_fp32_does_not_read_is_noted():
    unread = "training.residual_in_fp32=false"
    (note,) = set(planned("training.mixed_precision=fp32", unread).notes) - set(planned().notes)
    assert note == "training.residual_in_fp32 has no effect where mixed_precision is fp32"
    assert not any("residual" in note for note in planned(unread).notes)


def test_a_cpu_estimate_tells_what_it_assumes():
    made = planned("training.mixed_precision=fp32", "training.num_threads=2", device="cpu")
    assert made.duration is not None
    assert "2 cores" in made.duration.assumption
    low, high = made.duration.low_s, made.duration.high_s
    assert (low, high) == (made.duration.seconds / 2, made.duration.seconds * 2)
    assert "assuming 50 GFLOP/s on each of" in render(made)


def test_the_json_is_strict_and_says_what_the_text_says():
    made = planned(disk_free_bytes=1)
    document = json.loads(json.dumps(made.to_json(), allow_nan=False))
    assert document["schema"] == "albor.train.plan/1"
    assert document["ok"] is False
    assert document["problems"][0]["field"] == "training.checkpoint.keep"
    assert document["model"]["parameters"] == 398_509_056
    json.dumps(made.data_facts(), allow_nan=False)


def test_the_text_ends_with_the_verdict_and_holds_the_andon_sentences():
    config = parse_config(RAW, file="c.yaml")
    extra = (Problem("monitoring.alerts.0", "unknown metric", "use loss"),)
    made = plan(config, FACTS, ("loss > 10 -> stop once armed",), extra)
    text = render(made)
    assert text.rstrip().endswith("1 problem: not ready")
    assert "loss > 10 -> stop once armed" in text
    assert "monitoring.alerts.0: unknown metric" in text
    assert text.isascii()
    assert render(planned()).rstrip().endswith("Ready")


def test_planning_is_a_pure_function():
    assert planned() == planned()


@pytest.mark.parametrize(
    ("override", "changes", "told", "cure"),
    [
        ("training.compile=true", {"device": "cpu"}, "compile has no effect on a CPU", "auto"),
        ("training.distributed.strategy=fsdp", {}, "fsdp has no effect", "ddp"),
        ("data.val=data/train", {}, "data.val is data.train", "data/val"),
        ("data.val=x/../data/train", {}, "data.val is data.train", "data/val"),
        ("training.num_threads=9", {}, "num_threads is 9, more than the 8 cores", "8"),
    ],
)
def test_what_will_have_no_effect_is_noted(override, changes, told, cure):
    field = override.partition("=")[0]
    common = ("data.train=data/train",)
    assert [told in note for note in planned(*common, override, **changes).notes].count(True) == 1
    cured = planned(*common, f"{field}={cure}", **changes)
    assert not any(told in note for note in cured.notes)


def test_a_batch_larger_than_data_and_memory_gets_no_advice_that_the_data_refuses():
    made = planned("data.batch_size=100000")
    assert [problem.field for problem in made.problems[:1]] == ["data.batch_size"]
    data, space = [one for one in made.problems if one.field == "data.batch_size"]
    assert "at most 67,977 in all" in data.hint
    assert "would fit" not in space.hint and "lower it" in space.hint


@pytest.mark.parametrize(("warmup", "is_warned"), [(100, False), (101, True), (400, True)])
def test_a_warm_up_beyond_a_tenth_of_the_run_is_warned_of(warmup, is_warned):
    made = planned("training.max_steps=1000", f"training.warmup_steps={warmup}")
    warned = [w for w in made.warnings if w.field == "training.warmup_steps"]
    assert [("more than 10 %" in w.message, "at most 100" in w.hint) for w in warned] == (
        [(True, True)] if is_warned else []
    )


@pytest.mark.parametrize(("until", "is_warned"), [(999, False), (1000, True), (5000, True)])
@pytest.mark.parametrize(("field", "stage"), [
    ("batch_ramp", "gradient_accumulation: 1"), ("seq_len_ramp", "seq_len: 256"),
])  # fmt: skip
def test_a_ramp_that_lasts_as_long_as_the_run_is_warned_of(until, is_warned, field, stage):
    ramp = f"training.{field}=[{{until: {until}, {stage}}}]"
    made = planned("training.max_steps=1000", "training.gradient_accumulation=2", ramp)
    warned = [w for w in made.warnings if w.field == f"training.{field}"]
    assert [f"to step {until:,}, but the run has 1,000" in w.message for w in warned] == (
        [True] if is_warned else []
    )


def test_a_plan_says_how_fast_a_step_would_be_and_that_it_assumes_so():
    made = planned()
    time = made.to_json()["time"]
    per_step = made.schedule.tokens_per_step
    assert time["step_ms"] == pytest.approx(1e3 * per_step / time["tokens_per_s"])
    assert time["seconds"] == pytest.approx(made.max_steps * time["step_ms"] / 1e3)
    assert "ms a step" in render(made) and time["assumption"] in render(made)


def test_the_speed_of_a_device_that_is_not_known_is_said_to_be_unknown():
    made = planned(peak_flops=None)
    assert made.to_json()["time"] is None
    (speed,) = [line for line in render(made).splitlines() if "Speed:" in line]
    assert speed.split() == ["Speed:", "unknown"]
