"""The engine against a forward over the whole text for each token, in fp64."""

import random
from dataclasses import replace

import pytest
import torch
from hf_folder import SHAPES, SIZES

from albor_core.config.shape import RopeScaling
from albor_core.model.generate import engine as engine_module
from albor_core.model.generate import forward
from albor_core.model.generate.engine import Completion, Engine, generate
from albor_core.model.generate.fused import obstacle
from albor_core.model.generate.graphs import DecodeGraphs, rows_of
from albor_core.model.generate.plain import generate_plainly
from albor_core.model.generate.sampling import Sampling
from albor_core.model.llama import Llama, LlamaConfig
from albor_core.run.errors import AlborError, UsageError

CPU = torch.device("cpu")
FIRST = 16
YARN = RopeScaling("yarn", 4.0, original_max_position_embeddings=FIRST)
FAMILIES = {
    **SHAPES,
    "llama, linear": {"rope_scaling": RopeScaling("linear", 2.0)},
    "llama, yarn": {"rope_scaling": YARN},
    "mistral, one": {"sliding_window": 1},
    "qwen3, by layer": {"head_dim": 16, "sliding_window": 6, "window_pattern": "SL"},
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model_of(family="llama", *, dtype=torch.float64, context=64):
    """Random weights, loud enough that logits differ."""
    config = LlamaConfig(*SIZES[:6], context, model_type=family.split(",")[0], **FAMILIES[family])
    model = Llama(config).eval()
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.3, generator=source)
    return model.to(dtype)


def plainly(model, prompt, sampling):
    longest = model.config.max_position_embeddings
    return generate_plainly(lambda ids: model(ids)[0], prompt, sampling, max_context=longest)


def prompts(number, *, longest=20, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(64) for _ in range(draw.randint(1, longest))] for _ in range(number)]


def samplings(number, **more):
    """Greedy and warm, filtered in every way, long and short."""
    draw = random.Random(number)
    return [
        Sampling(
            max_new_tokens=draw.randint(1, 24),
            temperature=draw.choice([0.0, 0.7, 1.3]),
            top_p=draw.choice([1.0, 0.8]),
            top_k=draw.choice([0, 5]),
            seed=draw.randrange(1 << 40),
            **more,
        )
        for _ in range(number)
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_sequence_of_a_batch_is_that_of_a_full_forward_for_each_token(family):
    model = model_of(family)
    asked = prompts(7)
    how = samplings(7)
    how[::2] = [replace(one, stop_ids=frozenset(range(0, 64, 2))) for one in how[::2]]
    wanted = [plainly(model, *pair) for pair in zip(asked, how, strict=True)]
    assert {one.finish for one in wanted} == {"stop", "length"}
    assert generate(model, asked, how) == wanted


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_long_prompt_goes_through_in_pieces_with_the_same_end(family, monkeypatch):
    model = model_of(family)
    asked = [*prompts(3, longest=40, seed=1), list(range(50))]
    how = Sampling(max_new_tokens=10)
    whole = generate(model, asked, how)
    monkeypatch.setattr(forward, "CHUNK", 7)
    assert generate(model, asked, how) == whole


@pytest.mark.parametrize("max_batch", [1, 3, 8])
def test_eight_at_once_are_eight_times_one(max_batch):
    model, asked, how = model_of("qwen3"), prompts(8), samplings(8)
    alone = [generate(model, [prompt], one)[0] for prompt, one in zip(asked, how, strict=True)]
    assert generate(model, asked, how, max_batch=max_batch) == alone


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_arrival_changes_nothing(seed):
    model, asked, how = model_of("qwen2"), prompts(9), samplings(9)
    wanted = generate(model, asked, how)
    order = random.Random(seed)
    engine = Engine(model, max_batch=4)
    left, tickets = [*range(9)], {}
    order.shuffle(left)
    found = {at: [] for at in left}
    finish = {}
    while left or not engine.is_idle:
        while left and order.random() < 0.5:  # while others are on their way
            at = left.pop()
            tickets[engine.submit(asked[at], how[at])] = at
        for event in engine.step():
            at = tickets[event.ticket]
            assert at not in finish
            found[at] += [] if event.token is None else [event.token]
            if event.finish:
                finish[at] = event.finish
    assert [Completion(tuple(found[at]), finish[at]) for at in range(9)] == wanted


def test_a_sequence_that_is_cancelled_leaves_the_others_alone():
    model, asked = model_of(), prompts(5)
    how = Sampling(max_new_tokens=12)
    wanted = generate(model, asked, how)
    engine = Engine(model, max_batch=3)
    tickets = [engine.submit(prompt, how) for prompt in asked]
    found = {ticket: [] for ticket in tickets}
    for number in range(100):
        if number == 4:
            engine.cancel(tickets[0])  # one that runs, and one that waits
            engine.cancel(tickets[4])
        for event in engine.step():
            found[event.ticket].append(event.token)
    assert engine.is_idle
    for at in (1, 2, 3):
        assert tuple(found[tickets[at]]) == wanted[at].ids
    assert tuple(found[tickets[0]]) == wanted[0].ids[: len(found[tickets[0]])]
    assert len(found[tickets[0]]) < 12 and found[tickets[4]] == []
    engine.cancel(tickets[1])  # has ended: nothing happens


def test_texts_of_one_prompt_read_it_once_and_are_their_own(monkeypatch):
    model, (a, b) = model_of("mistral"), prompts(2)
    how = [Sampling(max_new_tokens=9, temperature=1.0, seed=i) for i in range(6)]
    asked = [a, a, b, a, b, a]
    alone = [generate(model, [prompt], one)[0] for prompt, one in zip(asked, how, strict=True)]
    read = []
    plain = engine_module.prefill

    def prefill(model, cache, ids, *rest):
        read.append(len(ids))
        return plain(model, cache, ids, *rest)

    monkeypatch.setattr(engine_module, "prefill", prefill)
    assert generate(model, asked, how) == alone
    assert read == [2]
    assert len({one.ids for one in alone}) == 6
    read.clear()
    short, long = [[1], [2], [3]], [4] * 40
    generate(model, [*short, long, *short], Sampling(max_new_tokens=2))
    assert read == [3, 2, 2]  # at most half of what goes through is padding


def test_a_sequence_ends_where_the_context_does():
    model = model_of(context=24)
    assert len(generate(model, [[1] * 20], Sampling(max_new_tokens=50))[0].ids) == 4
    assert generate(model, [[1] * 23], Sampling())[0].finish == "length"


@pytest.mark.parametrize(
    "prompt, said",
    [
        ([], "the prompt has no tokens"),
        ([1] * 64, "64 tokens of a prompt leave no room for a new one in a context of 64"),
        ([1, 64], "the prompt has token 64, outside the model's vocab_size 64"),
        ([-1], "the prompt has token -1, outside"),
    ],
)
def test_a_prompt_that_cannot_be_continued_is_refused_by_name(prompt, said):
    with pytest.raises(UsageError, match=said) as refused:
        generate(model_of(), [[1], prompt], Sampling())
    assert refused.value.hint


def test_weights_that_have_diverged_are_told_of_and_no_token_is_made_up():
    model = model_of()
    with torch.no_grad():
        model.model.norm.weight[3] = float("nan")
    with pytest.raises(AlborError, match="logits are not finite"):
        generate(model, [[1, 2]], Sampling(temperature=1.0))


@pytest.mark.parametrize("wrong", [
    {"max_new_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0},
    {"top_p": 1.5}, {"top_k": -1},
])  # fmt: skip
def test_a_sampling_that_means_nothing_is_refused_by_name(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling(**wrong)


class Replay:
    """A CUDA graph without a GPU: the same work again, into the same result."""

    def __init__(self, work):
        self.work, self.found = work, work()

    def replay(self):
        self.found.copy_(self.work())


class Graphs(DecodeGraphs):
    captured = 0

    def _captured(self, work):
        self.captured += 1
        graph = Replay(work)
        return graph, graph.found


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_steps_over_more_slots_than_sequences_write_the_same(family):
    model, asked, how = model_of(family), prompts(9), samplings(9)
    engine = Engine(model, max_batch=6, max_context=44)

    def step(tokens, positions):
        return forward.decode(model, engine._cache, tokens, positions, 44, is_even=False)

    engine._graphs = graphs = Graphs(step, 6, CPU)
    assert generate(model, asked, how, engine=engine) == generate(model, asked, how)
    greedy = Sampling(max_new_tokens=9)  # and an engine that is used again is as a new one
    assert generate(model, asked, greedy, engine=engine) == generate(model, asked, greedy)
    assert 2 <= graphs.captured <= 8  # for 1, 2, 4 and 6 slots, greedy and not


def test_slots_of_a_graph_are_a_power_of_two_or_all():
    assert [rows_of(n, 6) for n in range(1, 7)] == [1, 2, 4, 4, 6, 6]
    assert rows_of(129, 256) == 256


def test_a_model_that_is_trained_keeps_its_weights_where_they_are():
    assert "are trained" in obstacle(model_of())
    assert obstacle(model_of().requires_grad_(False))  # no GPU's kernels here


def test_half_precision_keeps_half_the_cache_and_still_writes():
    model = model_of(dtype=torch.bfloat16)
    engine = Engine(model, max_batch=2)
    assert engine._cache.keys.dtype is torch.bfloat16
    assert len(generate(model, [[1, 2], [3]], Sampling(max_new_tokens=5))[1].ids) == 5


def test_under_autocast_products_are_in_half_precision_over_whole_weights():
    model, how = model_of(dtype=torch.float32), Sampling(max_new_tokens=8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        halves = Engine(model, max_batch=1)
        found = generate(model, [[4, 5, 6]], how)[0]
        wanted = plainly(model, [4, 5, 6], how)
    assert halves._cache.keys.dtype is torch.bfloat16
    assert found.ids[:3] == wanted.ids[:3]  # then rounding may part them
