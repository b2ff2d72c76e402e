"""Parses the condition of a wait from text: `ended | step>=1000 | val/loss<2.1 | no step for 5m`.

Comparisons are the conditions of alert rules (andon/rules/grammar.py), read from the first step:
whoever waits for a value below 3 wants the first one, and no warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from albor_core.andon.rules.condition import Condition
from albor_core.andon.rules.grammar import parse_condition
from albor_core.andon.rules.sources import Rule
from albor_core.run.errors import ConfigError, UsageError

ENDED, ATTENTION = "ended", "attention"
_EXAMPLE = "ended, attention, 'step>=1000', 'val/loss<2.1', 'no step for 5m'"


@dataclass(frozen=True)
class Until:
    """One thing to wait for. `condition` is None for the words `ended` and `attention`."""

    text: str
    condition: Condition | None = None

    @property
    def reads_values(self) -> bool:
        """Whether what the run logs decides it."""
        return self.condition is not None and not self.condition.is_silence

    @property
    def silence_s(self) -> float | None:
        """The duration in `no step for`."""
        found = self.condition
        return found.threshold if found is not None and found.is_silence else None


class AwakeRule(Rule):
    """A rule without a warm-up."""

    @property
    def arm_step(self) -> int:
        return 0


def parse_until(text: str) -> tuple[Until, ...]:
    """Alternatives, parted by `|`: each will do. Raises UsageError with what is wrong where."""
    words = [word.strip() for word in _split(text)]
    if not all(words):
        raise UsageError(f"cannot wait until {text!r}: a condition is missing", hint=_EXAMPLE)
    return tuple(_until(word) for word in words)


def _split(text: str) -> list[str]:
    """The parts between bars that stand outside of quotes."""
    found, quote = [""], ""
    for char in text:
        if char == "|" and not quote:
            found.append("")
            continue
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
        found[-1] += char
    return found


def _until(word: str) -> Until:
    if word in (ENDED, ATTENTION):
        return Until(word)
    try:
        condition = parse_condition(word)
    except ConfigError as error:
        why = error.message.removeprefix("alert condition ")
        hint = error.hint if "for example" not in error.hint else _EXAMPLE
        raise UsageError(f"cannot wait until {why}", hint=hint) from error
    if condition.reads == "machine" and not condition.is_silence:
        raise UsageError(
            f"cannot wait until {word!r}: {condition.figures[0]} is of the machine, and only what a"
            " run logs can be waited for",
            hint=f"a rule can tell of it; or one of {_EXAMPLE}",
        )
    return Until(word, condition)


def rule_of(index: int, condition: Condition) -> Rule:
    """The rule that fires when `condition` is met; its id is `index`."""
    return AwakeRule(str(index), condition, "notify", "info", str(condition))
