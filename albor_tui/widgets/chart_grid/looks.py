"""The looks of charts in a grid: one window and cursor, but each its y and smoothing. Pure."""

from __future__ import annotations

from dataclasses import replace

from albor_tui.widgets.chart.data import Look


class Looks:
    """The look of each chart by its key."""

    def __init__(self) -> None:
        self.shared = Look()
        """Window, x axis and cursor of all, and the rest of those that were not changed."""
        self._own: dict[str, Look] = {}

    def smooth_all(self, smoothing: int) -> None:
        """Smooth all charts alike."""
        self.shared = self.shared.smoothed(smoothing - self.shared.smoothing)
        self._own = {
            key: replace(own, smoothing=self.shared.smoothing) for key, own in self._own.items()
        }

    def change_all(self, **changes: object) -> None:
        """All charts are looked at otherwise, each in this alone."""
        self.shared = replace(self.shared, **changes)  # type: ignore[arg-type]
        self._own = {key: replace(own, **changes) for key, own in self._own.items()}  # type: ignore[arg-type]

    def appearance(self, key: str) -> Look:
        return self._joined(self._own.get(key, self.shared), self.shared)

    def change(self, key: str, new: Look) -> None:
        """One chart is looked at otherwise."""
        if new != self._joined(self.appearance(key), new):
            self._own[key] = new
        self.shared = self._joined(self.shared, new)

    @staticmethod
    def _joined(own: Look, shared: Look) -> Look:
        window, cursor, is_pinned = shared.window, shared.cursor, shared.is_pinned
        return replace(own, axis=shared.axis, window=window, cursor=cursor, is_pinned=is_pinned)
