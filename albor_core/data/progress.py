"""How far a job over a corpus is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with two counts, which the job names; raising from it abandons the job cleanly."""
