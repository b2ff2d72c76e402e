"""The fault harness itself: it passes what is right, and it catches what is wrong.

`make chaos` runs it at full length; here a few faults each.
"""

from __future__ import annotations

import pytest
from faults import MIX
from shim import build, compiler
from soak import soak, tenths, undisturbed

FAULTS, STEPS = 10, 600
NO_REWIND = """
from albor_core.run.journal import Journal
Journal.rewind = lambda self, to: None
"""
NO_HASHES = """
import json
from albor_core.checkpoint import folder
folder.verify = lambda path: folder.Checkpoint(
    path, json.loads((path / folder.MANIFEST).read_text())
)
"""
NO_LINE = """
from albor_core.run.journal import Journal
real = Journal.metrics
def metrics(self, step, *rest, **more):
    if step % 97:
        real(self, step, *rest, **more)
Journal.metrics = metrics
"""

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(compiler() is None, reason="no C compiler to build chaosio.c with"),
]


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The library, and the end of the undisturbed run."""
    folder = tmp_path_factory.mktemp("chaos")
    return build(folder), undisturbed(folder / "calm", STEPS)


def planted(folder, bug):
    """An environment in which trainers, and nobody else, have this bug."""
    folder.mkdir()
    body = bug.replace("\n", "\n    ")
    (folder / "sitecustomize.py").write_text(
        f"import sys\nif 'albor_core.train' in sys.orig_argv:\n    {body}\n"
    )
    return {"PYTHONPATH": str(folder)}


@pytest.mark.sweep
def test_a_run_that_is_broken_again_and_again_ends_where_the_undisturbed_one_does(calm, tmp_path):
    kinds = (
        *("kill at an operation", "torn write", "full disk", "damaged checkpoint"),
        *("guard and trainer killed", "run's store deleted", "clock jumps", "checkpoint asked for"),
        *("reader killed", "command files garbage"),
    )
    assert set(kinds) <= MIX.keys()
    library, wanted = calm
    outcome = soak(tmp_path / "soak", library, 1, FAULTS, STEPS, wanted, kinds)
    assert outcome.violations == []
    assert len(outcome.struck) == FAULTS and sum(map(bool, tenths(outcome))) > 7


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("bug", "kind", "told"),
    [
        (NO_REWIND, "SIGKILL", "steps are twice in its history"),
        (NO_HASHES, "damaged checkpoint", "was damaged and not set aside"),
        (NO_LINE, "clock jumps", "steps are missing from its history"),
    ],
    ids=("no-rewind", "no-hashes", "no-line"),
)
def test_a_planted_bug_is_caught(calm, tmp_path, bug, kind, told):
    library, wanted = calm
    environ = planted(tmp_path / "planted", bug)
    outcome = soak(tmp_path / "soak", library, 1, 4, STEPS, wanted, (kind,), environ=environ)
    assert told in "; ".join(outcome.violations)


@pytest.mark.sweep
def test_a_soak_that_its_run_escaped_says_so(calm, tmp_path):
    library, wanted = calm
    outcome = soak(tmp_path / "soak", library, 1, 20, STEPS // 10, wanted, ("clock jumps",))
    assert "it was over before fault" in "; ".join(outcome.violations)
