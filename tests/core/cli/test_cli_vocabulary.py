"""docs/reference/events.md has every word that the code says of a run, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from albor_core.cli.common.vocabulary import EVENTS, EXIT_CLASSES, STATUSES
from albor_core.feed.view.run_status import WORDS
from albor_core.guard.policy import ExitFacts, ExitPolicy, ExitStatus, TrainerWords, classify

ROOT = Path(__file__).resolve().parents[3] / "albor_core"
SAID = (
    r'(?:\bevent|_announce)\(\s*"([a-z_]+\.[a-z_]+)"',  # said by a call
    r'\bname="([a-z_]+\.[a-z_]+)"',  # or appended as a record
    r'"e".*?name="([a-z_]+\.[a-z_]+)"',
    r'name = "([a-z_]+\.[a-z_]+)"',
)


def test_every_event_that_is_said_is_explained_and_no_other():
    code = {path: path.read_text() for path in ROOT.rglob("*.py") if path.name != "vocabulary.py"}
    said = {name for text in code.values() for way in SAID for name in re.findall(way, text)}
    assert said - EVENTS.keys() == set()
    everywhere = "\n".join(code.values())
    assert [name for name in EVENTS if f'"{name}"' not in everywhere] == []
    assert len(said) > 25


def test_the_words_for_now_are_those_of_the_cockpit():
    assert tuple(STATUSES) == WORDS


def test_every_class_of_exit_is_explained_with_what_the_guard_does():
    found = {}
    facts = [ExitFacts(), ExitFacts(reached_end=True), ExitFacts(hung=True), ExitFacts(xids=(79,))]
    facts += [
        ExitFacts(stop_signal=15),
        ExitFacts(oom_killed=True),
        ExitFacts(killed_by_guard=True),
    ]
    facts += [ExitFacts(locked_out=True), ExitFacts(out_of_memory=True)]
    facts += [ExitFacts(words=TrainerWords(code, "x")) for code in range(9)]
    facts += [ExitFacts(words=TrainerWords(1, "gpu_memory"))]
    for code in (None, *range(256)):
        for known in facts:
            kind = classify(ExitStatus(code), known)
            found[kind.name] = "restarts" if kind.verdict is ExitPolicy.RESTART else "ends"
    assert found == {name: action for name, (action, _) in EXIT_CLASSES.items()}
