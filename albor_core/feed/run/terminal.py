"""What a run's config says of the terminal, read from config.resolved.json as leniently as a viewer
must: what is not as it should be is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.feed.view.run_view import ChartChoice, TerminalView
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.values.lenient import integer, mapping, sequence, text


def terminal_of(resolved: Mapping[str, Any]) -> TerminalView | None:
    """monitoring.terminal of a resolved config; None where it says nothing or is not enabled."""
    found = mapping(mapping(resolved, "monitoring"), "terminal")
    if not found or found.get("enabled") is not True:
        return None
    every = max(1, integer(mapping(resolved, "training"), "log_interval") or 1)
    return TerminalView(
        refresh_ms=max(100, integer(found, "refresh_rate") or 1000),
        metrics=tuple(_key(name) for name in sequence(found, "metrics") if isinstance(name, str)),
        charts=tuple(
            _choice(chart, every)
            for chart in sequence(found, "charts")
            if isinstance(chart, dict) and isinstance(chart.get("metric"), str)
        ),
    )


def _choice(chart: Mapping[str, Any], every: int) -> ChartChoice:
    window = integer(chart, "window") or 1
    return ChartChoice(
        metric=_key(chart["metric"]),
        is_loss_curve=text(chart, "type") == "loss_curve",
        window=window * every if window > 1 else 0,
        shows_eta=chart.get("show_eta") is True,
    )


def _key(name: str) -> str:
    return HOUSE_NAMES.get(name, name)
