"""What can be done to a run: one answer, for every kind of run in every state."""

from __future__ import annotations

import os

import pytest

from albor_core.feed.run.offers import ACTIONS, Subject, offer, way_on
from albor_core.feed.view.run_status import LIVE_WORDS, WORDS
from albor_core.run.values.clean import MARK

HERE = os.uname().nodename
KINDS = ("train", "guard", "track", "imported")


def run(kind: str = "train", word: str = "running", **known: object) -> Subject:
    fields = {"program": 40, "guard": 41} if word in LIVE_WORDS else {}
    if kind in ("track", "imported") or word == "unguarded":
        fields["guard"] = None
    return Subject("r-1", kind=kind, word=word, **{"host": HERE, **fields, **known})


def possible(subject: Subject) -> set[str]:
    return {action for action in ACTIONS if offer(action, subject).is_possible}


@pytest.mark.parametrize(
    ("subject", "actions"),
    [
        (run("train"), {"pause", "checkpoint", "stop"}),
        (run("train", "paused"), {"resume", "checkpoint", "stop"}),
        (run("train", "restarting", program=None), {"stop", "retry"}),
        (run("train", "unguarded"), {"stop", "retry"}),
        (run("train", "failed"), {"retry"}),
        (run("train", "stopped"), {"retry"}),
        (run("train", "completed"), set()),
        (run("guard"), {"pause", "stop"}),
        (run("guard", "paused"), {"resume", "stop"}),
        (run("guard", "unguarded"), {"stop", "retry"}),
        (run("guard", "failed"), {"retry"}),
        (run("guard", "failed", command=("x", f"--key={MARK}")), set()),
        (run("track"), {"stop"}),
        (run("track", "stalled"), {"stop"}),
        (run("track", "failed"), set()),
        (run("track", "lost"), set()),
        (run("imported", "completed"), set()),
        (run("train", guard_state="stopping"), {"stop"}),
        (run("track", program=0), set()),
        (run("track", program=None, host="elsewhere"), set()),
    ],
)
def test_only_what_works_for_this_run_is_offered(subject, actions):
    assert possible(subject) == actions


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_offer_says_what_it_does_and_every_refusal_why_and_what_works(kind, word, action):
    found = offer(action, run(kind, word))
    if found.is_possible:
        assert found.does
    else:
        assert found.why_not and "albor" in found.instead
        assert not found.why_not.endswith(".")


def test_an_imported_run_is_not_called_complete_since_its_source_may_not_say():
    found = offer("retry", run("imported", "completed"))
    assert found.why_not == "it was imported: its program is not known here"
    assert offer("retry", run("train", "completed")).why_not == "it is complete"


@pytest.mark.parametrize("word", WORDS)
def test_nobody_is_sent_to_resume_what_albor_train_did_not_begin(word):
    for kind in ("guard", "track", "imported"):
        for action in ACTIONS:
            assert "train resume" not in offer(action, run(kind, word)).instead
        assert "train resume" not in way_on(run(kind, word))


def test_a_stop_of_an_unguarded_program_goes_from_term_to_int_to_kill_and_stays_there():
    offers = [offer("stop", run("track"), signals_sent=sent) for sent in range(4)]
    assert [found.signal for found in offers] == ["TERM", "INT", "KILL", "KILL"]
    assert "asked again" in offers[0].does
    assert "was sent SIGTERM and has not ended" in offers[1].does
    assert "at once" in offers[2].does
    assert all("process 40" in found.does for found in offers)


def test_a_second_stop_of_a_guarded_run_kills_it_and_says_so():
    first, second = (offer("stop", run("guard", guard_state=s)) for s in ("running", "stopping"))
    assert (first.order, second.order) == ("stop", "stop_now")
    assert "killed now" in second.does


def test_a_run_of_another_host_is_stopped_there():
    refused = offer("stop", run("track", program=None, host="node7"))
    assert (refused.why_not, refused.instead) == (
        "it runs on node7",
        "on node7: albor guard stop r-1",
    )


def test_running_a_command_again_names_the_command():
    found = offer("retry", run("guard", "failed", command=("python", "x y.py")))
    assert "python 'x y.py'" in found.does
    assert way_on(run("guard", "failed")) == "albor guard retry r-1"
    assert way_on(run("train", "lost")) == "albor train resume r-1"
    assert way_on(run("track", "lost")) == "albor runs show r-1"
