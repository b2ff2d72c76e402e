"""benchmarks/step/train_step.py: who does not fit beside the others is raced beside the first."""

from __future__ import annotations

import gc
import importlib.util
import weakref
from pathlib import Path

import pytest
import torch

from albor_core.model.llama import Llama, LlamaConfig

STEP = Path(__file__).resolve().parents[2] / "benchmarks" / "step"
SHAPE = LlamaConfig(32, 1, 2, 1, 64, 64, 16)


@pytest.fixture
def room(monkeypatch):
    monkeypatch.syspath_prepend(STEP)
    import train_step

    return train_step


class Card:
    """One on which each peer takes so much when built and so much more in its rounds."""

    def __init__(self, room, capacity, built, racing=None):
        self.room, self.capacity, self.built, self.racing = room, capacity, built, racing or {}
        self.groups = []

    def use(self, peers, more=0):
        if sum(self.built[p.name] for p in peers if p.step) + more > self.capacity:
            raise torch.OutOfMemoryError("no 2 GiB left")

    def hold(self, names):
        """A contest of fake peers, each as many ms a step as its size."""
        self.groups.append(names)
        peers = [self.room.Peer(name) for name in names]

        def build(peer):
            peer.step = torch.sin
            self.use(peers)

        def race(peer):
            self.use(peers, self.racing.get(peer.name, 0))
            peer.ms.append(float(self.built[peer.name]))
            peer.clock_mhz.append(1)

        self.room.each(peers, build)
        for _ in range(3):
            self.room.each(peers, race)
        return peers


def reports(room, card, capsys):
    """The rows of each contest as (name, ratio), and all that was printed of other peers."""
    names = list(card.built)
    rows = [room.report(SHAPE, peers, 4) for peers in room.contests(names, card.hold)]
    told = [one for one in capsys.readouterr().out.splitlines() if not one.startswith("{")]
    return [[(row["peer"], row["ratio"]) for row in some] for some in rows], told


def test_peers_that_fit_are_raced_at_once(room, capsys):
    card = Card(room, 10, {"ours": 2, "hand": 3, "hf": 4})
    found, told = reports(room, card, capsys)
    assert (found, told) == ([[("ours", 1.0), ("hand", 1.5), ("hf", 2.0)]], [])


def test_who_lacks_memory_beside_the_others_is_raced_beside_the_first_alone(room, capsys):
    card = Card(room, 8, {"ours": 2, "hand": 3, "hf": 6, "liger": 3})
    found, told = reports(room, card, capsys)
    assert card.groups == [["ours", "hand", "hf", "liger"], ["ours", "hf"]]
    assert found == [
        [("ours", 1.0), ("hand", 1.5), ("liger", 1.5)],  # what hf had tried to take was free
        [("ours", 1.0), ("hf", 3.0)],
    ]
    assert told == ["B4 hf: put off, it does not fit beside the others"]


def test_who_lacks_memory_in_its_rounds_is_put_off_and_the_others_go_on(room, capsys):
    card = Card(room, 9, {"ours": 2, "hand": 3, "hf": 4}, racing={"hand": 2})
    found, told = reports(room, card, capsys)
    assert found == [[("ours", 1.0), ("hf", 2.0)], [("ours", 1.0), ("hand", 1.5)]]
    assert told == ["B4 hand: put off, it does not fit beside the others"]


def test_who_never_fits_is_told_with_the_cause(room, capsys):
    card = Card(room, 9, {"ours": 2, "hand": 3, "hf": 8})
    found, told = reports(room, card, capsys)
    assert found == [[("ours", 1.0), ("hand", 1.5)], [("ours", 1.0)]]
    assert told[1:] == [
        "B4 hf: not measured, it does not fit beside ours alone: OutOfMemoryError: no 2 GiB left"
    ]


def test_a_contest_is_not_repeated(room, capsys):
    card = Card(room, 9, {"ours": 2, "hf": 8})
    assert reports(room, card, capsys)[0] == [[("ours", 1.0)]]
    card = Card(room, 1, {"ours": 2})
    assert "it does not fit alone" in reports(room, card, capsys)[1][0]
    assert card.groups == [["ours"]]


def test_where_the_first_is_put_off_it_is_raced_alone(room, capsys):
    card = Card(room, 5, {"ours": 2, "hand": 3}, racing={"ours": 1})
    assert reports(room, card, capsys)[0] == [[("hand", 1.0)], [("ours", 1.0)]]


def test_another_failure_is_told_and_not_tried_again(room, capsys):
    card = Card(room, 9, {"ours": 2})
    found = [room.report(SHAPE, peers, 4) for peers in room.contests(["ours", "hf"], card.hold)]
    assert [row["peer"] for rows in found for row in rows] == ["ours"]
    assert "B4 hf: KeyError: 'hf'" in capsys.readouterr().out
    assert len(card.groups) == 1


def test_what_a_failed_peer_held_is_freed_at_once(room):
    held = []

    def work(peer):
        weights = torch.zeros(8)
        peer.step = lambda: weights
        held.append(weakref.ref(weights))
        raise torch.OutOfMemoryError("no memory left")

    gc.disable()  # so that it is `each` that collects
    try:
        peers = [room.Peer("one"), room.Peer("two")]
        room.each(peers, work)
        room.each(peers, work)
    finally:
        gc.enable()
    assert [ref() for ref in held] == [None, None], "and neither was built again"


def test_a_lack_of_memory_is_known_under_its_other_names(room):
    def raised(first, second=None):
        try:
            try:
                raise first
            finally:
                if second:
                    raise second
        except Exception as error:
            return error

    full = torch.OutOfMemoryError("")
    for error in (full, RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate")):
        assert room.is_out_of_memory(error)
    assert room.is_out_of_memory(RuntimeError("Triton Error [CUDA]: out of memory"))
    assert room.is_out_of_memory(raised(full, RuntimeError("capture was invalidated")))
    assert not room.is_out_of_memory(raised(KeyError("a"), RuntimeError("out of resource")))


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torchao"), reason="torchao is not installed")
@pytest.mark.parametrize("is_tied", [True, False])
def test_torchao_multiplies_all_but_the_head_in_fp8_and_names_stay(room, is_tied):
    shape = LlamaConfig(1024, 1, 16, 4, 4096, 64, 16, tie_word_embeddings=is_tied)
    start = Llama(shape)

    def in_fp8(model):
        found = (name for name, one in model.named_modules() if "Float8" in type(one).__name__)
        return {name.split(".")[-1].removesuffix("_proj") for name in found}

    every = room.in_torchao_fp8(start)
    assert in_fp8(every) == {"q", "k", "v", "o", "gate", "up", "down"}
    assert in_fp8(room.in_torchao_fp8(start, only_large=True)) == {"gate", "up"}
    assert in_fp8(start) == set(), "the start is another peer's, too"
    assert [name for name, _ in every.named_parameters()] == [
        n for n, _ in start.named_parameters()
    ]
