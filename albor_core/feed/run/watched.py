"""What watches a run: its rules, its limits and its step-time budgets.

The loop of `albor train` evaluates its config, and the index process what it leaves and rules.yaml
has; of every other program the index process evaluates all but budgets of bricks, which only our
trainer measures. What an imported run brought with it is not evaluated.
"""

from __future__ import annotations

from typing import NamedTuple

from albor_core.andon.bricks.names import budgets_of
from albor_core.andon.budgets.limits import AMOUNTS
from albor_core.run.values.lenient import NOTHING, Document, integer, mapping, number, sequence


class Watching(NamedTuple):
    """How many rules watch a run, and how many limits and step-time budgets. None: not known."""

    rules: int | None
    budgets: int = 0

    @property
    def total(self) -> int | None:
        """All that can raise an alert."""
        return None if self.rules is None else self.rules + self.budgets


def watching_section(kind: object, resolved: Document) -> Document:
    """`monitoring` of a run's config, as far as its kind of program is watched by it."""
    if kind == "imported":
        return NOTHING
    found = mapping(resolved, "monitoring")
    return found if kind == "train" else {k: v for k, v in found.items() if k != "bricks"}


def watching(kind: object, resolved: Document, watch: Document) -> Watching:
    """What watches the run, by config.resolved.json and the watch.json of the index process."""
    if not isinstance(kind, str) or not kind:
        return Watching(None)
    rules = integer(watch, "rules") or 0
    limits = [one for one in sequence(watch, "budgets") if isinstance(one, dict)]
    if kind != "train":
        return Watching(rules, sum(number(one, "limit") is not None for one in limits))
    if not isinstance(resolved.get("monitoring"), dict):
        return Watching(None)
    found = watching_section(kind, resolved)
    own = sum(isinstance(rule, dict) for rule in sequence(found, "alerts"))
    budgets = mapping(found, "budgets")
    set_limits = sum(number(budgets, name) is not None for name in AMOUNTS)
    return Watching(max(own, rules), set_limits + len(budgets_of(mapping(found, "bricks"))))
