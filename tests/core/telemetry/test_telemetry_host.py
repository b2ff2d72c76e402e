from __future__ import annotations

import os
from pathlib import Path

from albor_core.telemetry.host import sample_host
from albor_core.telemetry.sample import HostSample, host_from_json


def test_the_host_is_measured(tmp_path):
    sample_host(tmp_path)
    deadline = os.times().user + 0.05
    while os.times().user < deadline:  # burn our own processor time so that there is some to see
        sum(range(1000))
    sample = sample_host(tmp_path)
    assert sample.cpu_percent is not None and 0 < sample.cpu_percent <= 100
    assert sample.rss_bytes is not None and 1 << 20 < sample.rss_bytes < sample.memory_total_bytes
    assert 0 < sample.memory_available_bytes <= sample.memory_total_bytes
    disk = os.statvfs(tmp_path)
    assert sample.disk_free_bytes <= disk.f_blocks * disk.f_frsize
    assert host_from_json(sample.to_json()) == sample


def test_a_missing_path_means_an_unknown_disk_and_not_zero():
    assert sample_host(Path("/no/such/folder")).disk_free_bytes is None


def test_values_of_a_wrong_type_are_unknown():
    assert host_from_json({"load1": "high", "rss_bytes": True, "other": 1}) == HostSample()
