"""The tabs of the Run screen, in their order: the one place that names them, and their keys.

Names only: the page of a tab, `albor_tui/screens/tabs/KEY.py`, is loaded when it is first shown.
"""

from __future__ import annotations

from albor_core.run.light_dataclass import dataclass


@dataclass(frozen=True)
class RunTab:
    """A tab by its key, as `--tab` takes it, its name, a shorter one for 80 columns, the class of
    its page, and what it is chosen with on the keyboard.
    """

    key: str
    name: str
    short: str
    page: str
    stroke: str


TABS = (
    RunTab("overview", "Overview", "View", "OverviewPage", "1"),
    RunTab("charts", "Charts", "Chart", "ChartsPage", "2"),
    RunTab("bricks", "Bricks", "Brick", "BricksPage", "3"),
    RunTab("system", "System", "Sys", "SystemPage", "4"),
    RunTab("logs", "Logs", "Log", "LogsPage", "5"),
    RunTab("config", "Config", "Conf", "ConfigPage", "6"),
    RunTab("checkpoints", "Checkpoints", "Ckpt", "CheckpointsPage", "7"),
    RunTab("samples", "Samples", "Samp", "SamplesPage", "8"),
    RunTab("events", "Events", "Events", "EventsPage", "9"),
    RunTab("data", "Data", "Data", "DataPage", "d"),
    RunTab("card", "Card", "Card", "CardPage", "i"),  # 0 is a chart's own
)
