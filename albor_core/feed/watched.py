"""What watches a run. Only `albor train` evaluates rules: a config of another program, or one that
was imported, may hold a `monitoring` section, and nothing reads it.
"""

from __future__ import annotations

from albor_core.run.values.lenient import NOTHING, Document, mapping, number, sequence

_LIMITS = ("tokens", "wall_hours")


def watching_section(meta: Document, resolved: Document) -> Document:
    """`monitoring` of a run's config where its program obeys it, else empty. Takes run.json and
    config.resolved.json."""
    return mapping(resolved, "monitoring") if meta.get("kind") == "train" else NOTHING


def rules_watching(meta: Document, resolved: Document) -> int | None:
    """How many rules, cost limits and step-time budgets can raise an alert; None where that is not
    known, since run.json or the config cannot be read."""
    kind = meta.get("kind")
    if not isinstance(kind, str):
        return None
    if kind != "train":
        return 0
    if not isinstance(resolved.get("monitoring"), dict):
        return None
    found = watching_section(meta, resolved)
    budgets, bricks = mapping(found, "budgets"), mapping(found, "bricks")
    rules = sum(isinstance(rule, dict) for rule in sequence(found, "alerts"))
    limits = sum(number(budgets, name) is not None for name in _LIMITS)
    return rules + limits + sum(number(bricks, name) is not None for name in bricks)
