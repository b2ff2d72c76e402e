"""The curves of compared runs in a window of their chart, as fine as a store has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.series import Series

if TYPE_CHECKING:
    from albor_core.feed.workspace.overlay import OverlayFeed
    from albor_tui.model.source import LiveSource

POINTS = 800
Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class WindowRead:
    """What was read of a metric in a window, by run."""

    key: str = ""
    curves: Mapping[str, Series] = field(default_factory=dict)

    def over(
        self, whole: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """The curves of runs as a comparison writes them, finer where they were read."""
        found = []
        for curve, run in zip(whole, runs, strict=True):
            series = self.curves.get(run["id"])
            if series is None:
                found.append(dict(curve))
                continue
            low, high = ((), ()) if series.is_raw else (series.minimum, series.maximum)
            found.append({"steps": series.steps, "mean": series.mean, "min": low, "max": high})
        return found


class WindowCurves:
    """Reads curves in a window. Belongs to the thread that asks."""

    def __init__(self, source: LiveSource) -> None:
        self._source = source
        self._feed: OverlayFeed | None = None

    def read(self, runs: Sequence[Mapping[str, Any]], key: str, window: Window) -> WindowRead:
        """Of the whole nothing: a comparison has it."""
        if window == (None, None):
            return WindowRead()
        self._feed = self._feed or self._source.overlay()
        views = [RunView(id=run["id"], path=str(run.get("path") or "")) for run in runs]
        found = self._feed.curves(views, [key], lo=window[0], hi=window[1], points=POINTS)
        return WindowRead(key, found.get(key, {}))

    def close(self) -> None:
        """Let go of the stores."""
        if self._feed is not None:
            self._feed.close()
