"""Where prose repeats a number that code decides by, the two agree."""

from pathlib import Path

import pytest

from albor_core.andon.bricks.budgets import FACTOR
from albor_core.cli.common.vocabulary import EVENTS
from albor_core.config.sections.guard import GuardConfig
from albor_core.config.sections.monitoring import BricksConfig
from albor_core.config.sections.training import StabilityConfig
from albor_core.guard.preflight import CHECKPOINT_ROOM
from albor_core.train.resume.saving import RED_AFTER_FAILURES
from albor_core.train.step.spikes import HIGHEST, IN_A_ROW, LEAST_NATS

SPELLED = ("none", "once", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
TIMES = {2.0: "twice", **{float(n): f"{SPELLED[n]} times" for n in range(3, 11)}}
HOW_TO = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "keep-a-run-on-its-path.md"


def help_of(section, field):
    return section.meanings()[field]


def spelled(number):
    assert number == int(number)
    return SPELLED[int(number)]


@pytest.mark.parametrize(
    ("prose", "says"),
    [
        (help_of(StabilityConfig, "loss_spike"), f"for {spelled(IN_A_ROW)} steps in a row"),
        (help_of(GuardConfig, "min_free_bytes"), f"{CHECKPOINT_ROOM} times the last checkpoint"),
        (" ".join(BricksConfig.__doc__.split()), f"{TIMES[FACTOR]} the budget pauses the run"),
        (EVENTS["jidoka.pause"], f"more than {TIMES[FACTOR]} its budget"),
        (EVENTS["checkpoint.failed"], f"red after {spelled(RED_AFTER_FAILURES)} in a row"),
    ],
)
def test_what_help_says_is_what_the_code_decides_by(prose, says):
    assert says in prose


def test_the_page_on_spikes_says_what_a_spike_is():
    default = StabilityConfig().loss_spike
    assert (
        f"the loss is {TIMES[default]} its running mean, {spelled(LEAST_NATS)} nats above it and "
        f"{spelled(HIGHEST)} standard deviations of its logarithm above the usual, "
        f"for {spelled(IN_A_ROW)} steps in a row"
    ) in HOW_TO.read_text()
