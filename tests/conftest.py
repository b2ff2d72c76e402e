"""Every test has a home of its own: none may read or write the developer's runs."""

import os
import signal
import tempfile

import pytest

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it puts behind
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files whose tests start processes, models or whole screens: `make test` runs them, `make check`,
# which has a minute, does not.
STARTS_THINGS = (
    "chaos/",
    "core/cli/",
    "core/data/test_shard_packing.py::test_kill_9",
    "core/data/test_tokenizer_training",
    "core/feed/test_feed_watch",
    "core/feed/test_feed_damage",
    "core/guard/test_guard_evidence",
    "core/guard/test_guard_lives",
    "core/guard/test_guard_commands",
    "core/kernels/test_kernel_aot",
    "core/kernels/test_products",
    "core/kernels/test_kernel_dispatch.py::test_an_unknown_value_of_the_override",
    "core/model/test_llama",
    "core/config/test_run_config.py::test_a_config_cut",
    "core/run/test_run_state.py::test_readers_never",
    "core/config/test_strict_yaml.py::test_what_is_dumped",
    "core/store/test_series_outline",
    "core/store/test_store_index",
    "core/store/test_store_reader.py::test_what_is_no_store",
    "core/store/test_verdict_calibration",
    "core/test_track.py::test_a_program",
    "core/test_track_disk.py::test_a_file_size",
    "core/test_track_disk.py::test_a_program",
    "core/train/test_crew_words",
    "core/train/test_train_clock",
    "core/train/test_train_disk",
    "core/train/test_train_loop",
    "core/train/test_train_survival",
    "tui/test_error_boundary",
    "tui/cockpit/test_cockpit_ages",
    "tui/cockpit/test_cockpit_first_frame",
    "tui/cockpit/test_cockpit_hygiene",
    "tui/cockpit/test_cockpit_names",
    "tui/cockpit/test_cockpit_run",
    "tui/cockpit/test_cockpit_screens",
    "tui/cockpit/test_cockpit_small",
    "tui/cockpit/test_cockpit_smoke.py::test_every_screen",
    "tui/cockpit/test_cockpit_snapshots",
    "tui/cockpit/test_cockpit_source",
    "tui/cockpit/test_cockpit_status",
    "tui/cockpit/test_cockpit_terminal",
    "tui/pty/test_pty_mirror",
    "tui/tabs/test_run_tabs_bad_input",
    "tui/tabs/test_run_tabs_open",
)

# `make sweep`, in CI after the tests: every variant of something of which `make test` takes a few,
# and what takes long.
SWEEPS = (
    "core/cli/test_cli_documents.py::test_a_run_goes_on_from_another_folder",
    "core/cli/test_cli_documents.py::test_the_demo_runs",
    "core/cli/test_cli_documents.py::test_two_applies",
    "core/cli/test_cli_endings.py::test_an_alert_that_stopped",
    "core/cli/test_cli_endings.py::test_no_usable_checkpoint",
    "core/cli/runs/test_cli_export.py::test_two_million_points",
    "core/cli/test_cli_survival.py::test_a_disk_that_takes",
    "core/guard/test_guard_lives.py::test_g6",
    "core/kernels/test_fused_ops.py::test_interpreted",
    "core/kernels/test_fused_ops.py::test_cross_entropy_keeps",
    "core/kernels/test_fused_step.py",
    "core/kernels/test_kernel_aot.py::test_every_kernel",
    "core/store/test_store_faults.py::test_an_upgrade_killed",
    "core/store/test_verdict_calibration",
    "core/test_docs_run.py::test_every_command_of_a_page_does_what_it_is_there_for",
    "core/train/test_train_crew.py::test_a_graceful",
    "core/train/test_train_crew.py::test_a_rank",
    "core/train/test_train_crew.py::test_no_rank",
    "core/train/test_train_io.py::test_t1_t2",
    "core/train/test_train_io.py::test_t23",
    "core/train/test_train_many_ranks",
    "core/train/test_train_muon.py::test_at_equal_tokens",
    "core/train/test_train_rollback.py::test_kill_9",
    "core/train/test_train_survival.py::test_a_graceful_stop",
    "core/train/test_train_survival.py::test_kill_9_at_three",
    "core/train/test_train_survival.py::test_kill_9_from_outside",
    "tui/chart/test_chart_keys.py::test_the_cursor_goes_to_both_ends",
    "tui/cockpit/test_cockpit_hostile",
    "tui/cockpit/test_cockpit_hygiene.py::test_hostile_names_in_a_comparison",
    "tui/pty/test_pty_hostile",
    "tui/pty/test_pty_terminal.py::test_u3",
    "tui/pty/test_pty_terminal.py::test_u7",
    "tui/tabs/test_run_tabs_hostile",
    "tui/tabs/test_run_tabs_open.py::test_the_names_fit",
)


def pytest_ignore_collect(collection_path, config):
    """Files that `make check` deselects whole it need not import: a quarter of its minute."""
    name, asked = collection_path.as_posix(), config.option.markexpr or ""
    is_slow = any(f"tests/{part}" in name for part in STARTS_THINGS + SWEEPS)
    return True if is_slow and "not slow" in asked else None  # None: others may say


def pytest_collection_modifyitems(items):
    """Mark what starts things as slow, and sweeps."""
    for item in items:
        if any(part in item.nodeid for part in STARTS_THINGS + SWEEPS):
            item.add_marker(pytest.mark.slow)
        if any(part in item.nodeid for part in SWEEPS):
            item.add_marker(pytest.mark.sweep)


def pytest_configure(config):
    """Before a test or a fixture of a wider scope runs, ALBOR_HOME is a folder of this session:
    what such a fixture writes outside any test is never the developer's.
    """
    home = tempfile.TemporaryDirectory(prefix="albor-tests-home-", ignore_cleanup_errors=True)
    config.add_cleanup(home.cleanup)
    os.environ["ALBOR_HOME"] = home.name


@pytest.fixture(autouse=True)
def albor_home(tmp_path_factory, monkeypatch):
    """ALBOR_HOME in a fresh folder, inherited by every process a test starts."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ALBOR_HOME", str(home))
    monkeypatch.delenv("ALBOR_FAULTS", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist says how wide its own lines are
    return home
