"""Runs read back: which, what they were told and measured, as tables of any library."""

from albor_core.history.metrics import Metrics
from albor_core.history.one_run import RecordedRun, Rows
from albor_core.history.run_list import Runs, run, runs

__all__ = ["Metrics", "RecordedRun", "Rows", "Runs", "run", "runs"]
