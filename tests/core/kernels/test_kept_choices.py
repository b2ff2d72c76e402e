"""A resumed run takes over what its card was found to do; a new one, another card or another
version finds it out.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from albor_core.kernels import dispatch
from albor_core.train import kernel_choices
from albor_core.train.kernel_choices import KeptChoices


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """`rms_norm` decided as on a GPU by a process of its own: (choice, whether it was examined)."""
    monkeypatch.setattr(dispatch, "HAS_TRITON", True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    cases = ((torch.ones(8, 32), torch.ones(32)),)
    op = replace(dispatch.op("rms_norm"), cases=lambda *_: iter(cases))

    def decide(*, reads=True, card="H100 1", pinned=None, reason="", triton_ms=1.0, forced=""):
        examined = []
        monkeypatch.setattr(dispatch, "FORCED", forced)

        def check(*_):
            examined.append(1)
            return dispatch.ParityVerdict(
                reason, (dispatch.Candidate("triton", 0.9999, 1e-3, 1e-2),)
            )

        times = {op.triton: triton_ms, op.reference: 2.0}
        memory = KeptChoices(tmp_path / "kernels", reads=reads, card=lambda device: card)
        with dispatch.deciding_anew(check=check, timer=lambda fn, _: times[fn], pinned=pinned):
            dispatch.register(op)
            dispatch.remember(memory)
            found = dispatch.choose("rms_norm", "cuda", torch.bfloat16)
        return found, bool(examined)

    return decide


def test_a_resumed_run_has_the_whole_choice_and_examines_nothing(attempt):
    first, examined = attempt(reads=False)
    assert examined and first.candidates and first.cost
    assert attempt(triton_ms=9.0) == (first, False)


def test_a_new_run_another_card_and_other_kernels_are_examined(attempt, monkeypatch):
    attempt(reads=False)
    slower, examined = attempt(reads=False, triton_ms=9.0)
    assert (slower.backend, examined) == ("reference", True)
    assert attempt(card="H100 2")[1]
    monkeypatch.setattr(kernel_choices, "_room", lambda: "changed")
    assert attempt()[1]


def test_a_pin_rules_over_what_was_the_quicker(attempt):
    assert attempt(reads=False, triton_ms=9.0)[0].backend == "reference"
    found, examined = attempt(pinned={"rms_norm": "triton"})
    assert (found.backend, examined) == ("triton", False)
    assert (
        attempt(pinned={"rms_norm": "reference"})[0].evidence
        == "as in the attempt before, not measured"
    )


@pytest.mark.parametrize(
    ("how", "whence"),
    [
        ({"pinned": {"rms_norm": "triton"}}, "as in the attempt before"),
        ({"forced": "triton"}, "asked for"),
        ({"forced": "triton", "pinned": {"rms_norm": "triton"}}, "asked for"),
    ],
)
def test_what_a_person_asked_for_is_told_apart_from_what_an_attempt_had(attempt, how, whence):
    found, examined = attempt(**how)
    assert (found.evidence, examined) == (f"{whence}; passes parity, not raced", True)
    attempt(reads=False)
    found, examined = attempt(**how)
    assert (found.evidence, examined) == (f"{whence}; passed parity here before", False)
    assert attempt(forced="reference")[0].evidence == "asked for, not measured"


def test_what_was_rejected_is_examined_each_time(attempt):
    for _ in range(2):
        choice, examined = attempt(reason="output: rms error 3.0e-01")
        assert (choice.backend, examined) == ("reference", True)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "albor.kernel_choice/1"}'])
def test_a_file_that_is_none_is_decided_anew(attempt, tmp_path, content):
    first, _ = attempt(reads=False)
    (kept,) = (tmp_path / "kernels").iterdir()
    assert json.loads(kept.read_text())["backend"] == "triton"
    kept.write_text(content)
    assert attempt() == (first, True)
    assert attempt() == (first, False)


def test_a_folder_that_takes_nothing_is_no_reason_to_fail(attempt, tmp_path):
    (tmp_path / "kernels").write_text("a file")
    assert attempt()[1]
