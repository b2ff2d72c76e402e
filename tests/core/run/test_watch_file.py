"""watch.json: who watches a run; nothing in it is believed without the lock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from albor_core.run.files.watch_file import SinkState, Watch, is_watched, read_watch, write_watch
from albor_core.run.home.new_run import create_run

HOLD = (
    "import sys; from pathlib import Path; from albor_core.run.liveness import take_lock;"
    "take_lock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def run(tmp_path):
    return create_run(tmp_path, "r", experiment="e", name="r", kind="track", argv=[])


def test_what_was_written_is_read_back(run):
    sinks = (SinkState("webhook", ok=False, why="timed out", since=5.0),)
    watch = Watch(7, 99.0, rules=1, rule_texts=("loss > 10",), sinks=sinks, words={"a": "b"})
    write_watch(run, watch)
    assert read_watch(run) == watch


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "albor.watch/2"}', "{"])
def test_a_file_that_says_nothing_we_know_is_nobody_watching(run, text):
    run.watch.write_text(text)
    assert read_watch(run) is None


def test_values_of_a_wrong_type_are_unknown(run):
    run.watch.write_text(
        '{"schema": "albor.watch/1", "pid": "x", "wall": [], "rules": null, "sinks": [1, {}],'
        ' "rule_texts": [1, "loss > 1"], "words": 3}'
    )
    found = read_watch(run)
    assert (found.pid, found.rules, found.rule_texts) == (0, 0, ("loss > 1",))


def test_a_run_is_watched_only_while_its_index_process_lives_and_speaks(run):
    fresh, old = Watch(7, 1000.0), Watch(7, 900.0)
    assert not is_watched(run, fresh, now=1001.0)  # nobody holds the lock
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.index_lock)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        holder.stdout.readline()
        assert is_watched(run, fresh, now=1001.0)
        assert not is_watched(run, old, now=1001.0)
        assert not is_watched(run, None, now=1001.0)
        holder.stdin.close()
