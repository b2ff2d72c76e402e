"""Every test has a home of its own: none may read or write the developer's runs."""

import inspect
import itertools
import os
import re
import signal
import tempfile
import time
import zlib

import pytest
from hypothesis import HealthCheck, settings
from sweep_share import ROOT, drawn, newest_commit, touched_files

BEGUN = time.monotonic()
LEFT_OUT = {}  # files of the sweep that --share did not draw
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("ALBOR_QUIET", "1")  # what programs print is compared with what they said
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it puts behind
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as nohup does
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Files whose tests start processes, models or whole screens: `make test` runs them, `make check`,
# which has a minute, does not.
STARTS_THINGS = (
    "chaos/",
    "core/andon/health/test_eta.py::test_nine_of_ten",
    "core/andon/health/test_health_watch.py::test_a_healthy_run",
    "core/cli/",
    "core/config/test_config_leaves",
    "core/eval/code/test_code_evaluation",
    "core/eval/code/test_pass_at_k.py::test_it_equals",
    "core/eval/code/test_sandbox",
    "core/model/generate/test_generate_draw",
    "core/train/clock/",
    "core/data/test_shard_packing.py::test_kill_9",
    "core/data/test_tokenizer_training",
    "core/data/clean/test_dedup_step.py::test_kill",
    "core/data/clean/test_dedup_step.py::test_two_processes",
    "core/data/clean/test_quality_rules.py::test_hostile",
    "core/data/mix/test_corpus_mix.py::test_output",
    "core/data/read/test_import_bounds",
    "core/data/read/test_import_engine",
    "core/data/stage/test_step_engine.py::test_kill",
    "core/data/stage/test_step_engine.py::test_output",
    "core/eval/test_choice.py::test_accuracy",
    "core/feed/test_feed_tail.py::test_a_flood",
    "core/recipes/test_bits_per_byte.py::test_a_run_that",
    "core/train/data/",
    "core/eval/code/test_code_tasks.py::test_our_own",
    "core/eval/code/test_judge",
    "core/eval/code/test_sandbox_hostile",
    "core/eval/test_evaluation",
    "core/eval/test_perplexity.py::test_rolling",
    "core/eval/test_watch",
    "core/eval/compare/test_compare_commands",
    "core/train/test_train_documents",
    "tui/test_desk.py::test_a_metric_is_pinned",
    "tui/test_desk.py::test_notes_and_tags",
    "tui/test_textual_private",
    "core/feed/test_attention_replay",
    "core/feed/test_feed_watch",
    "core/feed/test_feed_damage",
    "core/guard/test_guard_evidence",
    "core/guard/test_guard_attempts",
    "core/guard/test_guard_commands",
    "core/history/test_history_frames.py::test_no_conversion",
    "core/history/test_history_runs.py::test_a_program",
    "core/history/test_history_runs.py::test_a_home_whose",
    "core/kernels/test_kernel_aot",
    "core/kernels/test_fused_ops.py::test_plain_cross",
    "core/kernels/test_kernel_bench.py::test_every_op",
    "core/kernels/test_products",
    "core/kernels/test_rms_norm.py::test_a_kernel_with",
    "core/kernels/test_kernel_dispatch.py::test_an_unknown_value_of_the_override",
    "core/model/test_fp8_mlp.py::test_emulation",
    "core/model/generate/test_generate_engine",
    "core/model/test_llama",
    "core/config/test_run_config.py::test_a_config_cut",
    "core/data/test_shard_packing.py::test_a_disk_that_fills",
    "core/data/test_shard_packing.py::test_a_second_packer",
    "core/plan/test_found_gpu.py::test_a_run_that_falls",
    "core/plan/test_kept_sinks.py::test_a_url",
    "core/plan/test_train_launch.py::test_an_edit",
    "core/run/test_program_signal",
    "core/run/test_run_state.py::test_readers_never",
    "core/config/test_strict_yaml.py::test_what_is_dumped",
    "core/store/test_run_judged.py::test_26_runs",
    "core/store/test_series_outline",
    "core/store/test_store_index",
    "core/store/test_store_reader.py::test_what_is_no_store",
    "core/store/test_verdict_calibration",
    "core/telemetry/test_machine_takeover",
    "core/track/test_concurrency",
    "core/track/test_console",
    "core/track/test_media.py::test_a_handler",
    "core/track/test_media.py::test_a_program",
    "core/track/test_media.py::test_kill_9",
    "core/track/test_resume",
    "core/track/test_track.py::test_a_handler",
    "core/track/test_track.py::test_a_program",
    "core/track/test_track.py::test_the_live_state",
    "core/track/test_track_disk.py::test_a_file_size",
    "core/track/test_track_disk.py::test_a_program",
    "_is_left_out_and_counted_and_raises_nothing[a mapping",
    "core/train/own/",
    "core/train/test_crew_words",
    "core/train/test_train_bricks",
    "core/train/test_train_choice",
    "core/train/test_train_companions",
    "core/train/test_train_disk",
    "core/train/test_train_from_hf",
    "core/train/test_train_io",
    "core/train/test_train_loop",
    "core/train/test_train_start",
    "core/train/test_train_survival",
    "tui/attention/test_cockpit_attention",
    "tui/attention/test_cockpit_gpus.py::test_the_list",
    "tui/attention/test_cockpit_gpus.py::test_sixteen",
    "tui/attention/test_cockpit_gpus.py::test_a_runs_own",
    "tui/test_error_boundary",
    "tui/cockpit/test_cockpit_ages",
    "tui/cockpit/test_cockpit_documents",
    "tui/cockpit/test_cockpit_first_frame",
    "tui/cockpit/test_cockpit_hygiene",
    "tui/cockpit/test_cockpit_keys.py::test_the_help",
    "tui/cockpit/test_cockpit_large_store",
    "tui/cockpit/test_cockpit_lost_store",
    "tui/cockpit/test_cockpit_names",
    "tui/cockpit/test_cockpit_run",
    "tui/cockpit/test_cockpit_screens",
    "tui/cockpit/test_cockpit_small",
    "tui/cockpit/test_cockpit_smoke.py::test_every_screen",
    "tui/cockpit/test_cockpit_snapshots",
    "tui/cockpit/test_cockpit_source",
    "tui/cockpit/test_cockpit_status",
    "tui/cockpit/test_cockpit_terminal",
    "tui/cockpit/test_cockpit_words.py::test_a_crash_report",
    "tui/cockpit/test_cockpit_words.py::test_a_run_that_was_opened",
    "tui/cockpit/test_cockpit_words.py::test_no_gpu",
    "tui/cockpit/test_cockpit_words.py::test_the_glance",
    "tui/pty/test_pty_mirror",
    "tui/pty/test_pty_ssh",
    "tui/tabs/test_overview_any_metric",
    "tui/tabs/test_run_tabs_bad_input",
    "tui/tabs/test_run_tabs_open",
    "tui/tabs/test_tab_card",
)

# Of the tests that open a screen `make check` runs these: one takes as long as a hundred others.
SCREENS_IN_CHECK = (
    "tui/cockpit/test_cockpit_words",
    "tui/test_readonly",
)

# `make sweep`, in CI after the tests: every variant of something of which `make test` takes a few,
# and what takes long.
SWEEPS = (
    "core/cli/train/test_cli_torchrun",
    "core/cli/train/test_cli_stop_after",
    "core/cli/train/test_cli_train_run.py::test_a_requeued",
    "core/eval/code/test_code_tasks.py::test_all_canonical",
    "core/integrations/test_foreign_loops",
    "core/integrations/test_guarded_script.py::test_a_program_that_handles",
    "core/integrations/test_requeued_job",
    "core/kernels/test_kernel_aot",
    "core/model/test_llama.py::test_the_loss_starts",
    "core/track/test_resume.py::test_an_attempt_that_was_killed",
    "core/train/own/test_own_recipe.py::test_kill_9",
    "core/train/test_train_ranks",
    "core/train/test_train_rollback",
    "core/train/test_train_sizes",
    "core/train/test_train_survival.py::test_a_life_that_ends",
    "core/train/test_train_survival.py::test_digest_of_a_run",
    "core/train/test_train_survival.py::test_every_end_has",
    "tui/chart/test_chart_keys.py::test_arrows_pan",
    "tui/cockpit/test_cockpit_ascii",
    "tui/cockpit/test_cockpit_runs.py::test_the_highlighted",
    "tui/cockpit/test_cockpit_small",
    "tui/pty/test_pty_terminal.py::test_u6",
    "tui/tabs/test_run_tabs_bad_input",
    "tui/tabs/test_tab_card.py::test_what_cannot",
    "core/cli/test_cli_documents.py::test_a_run_goes_on_from_another_folder",
    "core/cli/test_cli_documents.py::test_the_demo_runs",
    "core/cli/test_cli_documents.py::test_two_applies",
    "core/cli/test_cli_endings.py::test_an_alert_that_stopped",
    "core/cli/test_cli_endings.py::test_no_usable_checkpoint",
    "core/cli/runs/test_cli_export.py::test_two_million_points",
    "core/cli/first_steps/test_installed_wheel",
    "core/cli/test_cli_survival.py::test_a_disk_that_takes",
    "core/guard/test_guard_attempts.py::test_g6",
    "core/kernels/test_fused_ops.py::test_interpreted",
    "core/kernels/test_fused_ops.py::test_cross_entropy_keeps",
    "core/kernels/test_fused_step.py",
    "core/store/test_store_faults.py::test_an_upgrade_killed",
    "core/store/test_verdict_calibration",
    "core/test_docs_run.py::test_every_command_of_a_page_does_what_it_is_there_for",
    "loops/test_loops.py::test_a_tracked",
    "loops/test_loops.py::test_kill_9",
    *(
        f"test_a_delay_above_a_budget_pauses_the_run_for_that_brick[{one}]"
        for one in ("h2d", "forward", "loss", "optimizer", "eval", "checkpoint", "log", "other")
    ),
    "core/train/test_train_crew.py::test_a_graceful",
    "core/train/test_train_crew.py::test_a_rank",
    "core/train/test_train_crew.py::test_no_rank",
    "core/train/test_train_io.py::test_t1_t2",
    "core/train/test_train_io.py::test_t23",
    "core/train/test_train_many_ranks",
    "core/train/test_train_muon.py::test_at_equal_tokens",
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
    "core/andon/health/test_health_watch.py::test_twenty_healthy",
    "core/cli/test_cli_survival.py::test_kill_9_at_five",
    "core/feed/test_attention_replay.py::test_twenty_healthy",
    "core/integrations/test_trainers_resume",
    "core/kernels/test_rms_norm.py::test_interpreted",
    "core/test_docs_run.py::test_the_tutorial",
    "core/train/clock/test_train_clock.py::test_ranks_agree",
    "core/train/test_train_from_hf.py::test_several_ranks",
    "tui/cockpit/test_cockpit_hygiene.py::test_hostile_text_is_shown_and_never_obeyed[1",
    "tui/cockpit/test_cockpit_terminal.py::test_a_storm_of_resizes",
    "tui/pty/test_pty_ssh.py::test_a_link_that_stalls",
    "tui/pty/test_pty_terminal.py::test_u4",
    "tui/pty/test_pty_terminal.py::test_reduced_motion",
    "core/cli/model/test_cli_eval.py::test_a_watch_beside",
    "core/kernels/test_decode_attention.py::test_it_compiles",
    "core/kernels/test_decode_attention.py::test_the_interpreted",
    "core/kernels/test_document_attention.py::test_the_interpreted",
    "core/kernels/test_document_attention.py::test_they_compile",
    "core/model/generate/test_generate_fused.py::test_fused_steps",
    "core/test_house.py::test_this_checkout",
    "core/train/own/test_own_ranks",
)


def pytest_addoption(parser):
    parser.addoption(
        "--within", type=int, metavar="SECONDS", help="begin no test later; files in another order"
    )
    parser.addoption(
        "--share",
        type=int,
        metavar="N",
        help="of the sweep's files one in N, as the commit draws them",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Of a sweep that a slow machine has no time for, what is left is told as skipped; the next one
    begins with other files.
    """
    within = item.config.option.within
    if within is not None and time.monotonic() - BEGUN > within:
        pytest.skip(f"no time left in {within} s")


def pytest_ignore_collect(collection_path, config):
    """Files that `make check` deselects whole it need not import: a quarter of its minute."""
    name, asked = collection_path.as_posix(), config.option.markexpr or ""
    is_slow = any(f"tests/{part}" in name for part in STARTS_THINGS + SWEEPS)
    return True if is_slow and "not slow" in asked else None  # None: others may say


def pytest_collection_modifyitems(config, items):
    """Mark what starts things as slow, and sweeps."""
    if (within := config.option.within) is not None:  # the same order in all processes
        items.sort(key=lambda item: hash_of(f"{within} {item.path}"))
    for item in items:
        is_screen = inspect.iscoroutinefunction(item.obj)  # Textual's Pilot is async, nothing else
        is_left_out = is_screen and not any(part in item.nodeid for part in SCREENS_IN_CHECK)
        is_sweep = any(part in item.nodeid for part in SWEEPS)
        if is_sweep:
            item.add_marker(pytest.mark.sweep)
        is_long = is_sweep or item.get_closest_marker("sweep") is not None
        if is_left_out or is_long or any(part in item.nodeid for part in STARTS_THINGS):
            item.add_marker(pytest.mark.slow)
    if config.option.share is not None:
        leave_out(items, config)


def leave_out(items, config):
    """Deselect the files of the sweep that this commit does not draw; their names are printed."""
    swept = [item for item in items if item.get_closest_marker("sweep")]
    files = {item.path.relative_to(ROOT).as_posix() for item in swept}
    left = files - drawn(files, config.option.share, newest_commit(), touched_files())
    gone = {item for item in swept if item.path.relative_to(ROOT).as_posix() in left}
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=list(gone))
    getattr(config, "workeroutput", LEFT_OUT)["left_out"] = sorted(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """What a process of pytest-xdist left out, told to the one that prints."""
    LEFT_OUT.update(getattr(node, "workeroutput", {}))


def pytest_terminal_summary(terminalreporter):
    if left_out := LEFT_OUT.get("left_out"):
        files = "1 file" if len(left_out) == 1 else f"{len(left_out)} files"
        terminalreporter.write_sep("=", f"{files} of the sweep left to other commits")
        terminalreporter.write_line("\n".join(left_out))


def hash_of(text):
    return zlib.crc32(text.encode())


def pytest_configure(config):
    """Before a test or a fixture of a wider scope runs, ALBOR_HOME is a folder of this session:
    what such a fixture writes outside any test is never the developer's.
    """
    home = tempfile.TemporaryDirectory(prefix="albor-tests-home-", ignore_cleanup_errors=True)
    config.add_cleanup(home.cleanup)
    os.environ["ALBOR_HOME"] = home.name
    # a machine at load draws slowly: that is no fault of what is drawn
    settings.register_profile("albor", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("albor")


@pytest.fixture(scope="session")
def _numbered(tmp_path_factory):
    """Makes the next folder of this process. pytest's own fixture lists all that there are for each
    new one: with thousands of tests a fifth of their time.
    """
    base, numbers = tmp_path_factory.mktemp("tests"), itertools.count()

    def make(name):
        folder = base / f"{next(numbers):05}-{name}"
        folder.mkdir()
        return folder

    return make


@pytest.fixture
def tmp_path(_numbered, request):
    """A fresh folder, as pytest's."""
    return _numbered(re.sub(r"\W", "_", request.node.name)[:30])


@pytest.fixture(autouse=True)
def albor_home(_numbered, monkeypatch):
    """ALBOR_HOME in a fresh folder, inherited by every process a test starts."""
    home = _numbered("home")
    monkeypatch.setenv("ALBOR_HOME", str(home))
    monkeypatch.delenv("ALBOR_FAULTS", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist says how wide its own lines are
    return home
