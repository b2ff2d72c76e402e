"""`runs show` and `runs diff` as people read them: figures, tables that fit, letters for runs."""

from __future__ import annotations

import math
import re

import pytest

from albor_core.cli.common.follow import progress_line
from albor_core.cli.common.output import (
    cell_width,
    cut_middle,
    number,
    table,
    when,
)
from albor_core.cli.runs.show_text import _metrics
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.values.quantity import byte_size, duration, figure
from albor_core.store.index.indexer import index_now

WIDE = "\u6a21\u578b"  # two characters of two cells each
TOKENS = 999_424


@pytest.mark.parametrize(
    ("value", "key", "text"),
    [
        (999_424.0, "train/tokens", "999,424"),
        (999_424, "", "999,424"),
        (123_456_789_012_345.0, "train/tokens", "123,456,789,012,345"),
        (1e15, "", "1e+15"),
        (0.0, "", "0"),
        (-3.0, "", "-3"),
        (2.0, "val/loss", "2.0000"),
        (2.306849, "train/loss", "2.3068"),
        (1.5e-7, "train/loss", "1.5e-07"),
        (0.0003, "optim/lr", "0.0003"),
        (4.6415888336e-05, "optim/lr", "4.6416e-05"),
        (681.4912, "val/ppl", "681.49"),
        (2066.961, "val/ppl", "2,067.0"),
        (845_123.4, "perf/tokens_per_s", "845,123"),
        (946_454_528.0, "host/rss_bytes", "903 MiB"),
        (999, "x_bytes", "999 B"),
        (math.nan, "train/loss", "NaN"),
        (-math.inf, "", "-inf"),
        (None, "train/loss", "-"),
        (1.7976931348623157e308, "", "1.7977e+308"),
        (5e-324, "", "4.9407e-324"),
    ],
)
def test_a_figure_is_written_as_people_write_it(value, key, text):
    assert figure(value, key) == text


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (999_999_999_999_999.0, ",.0f", "999,999,999,999,999"),
        (1e15, ",.0f", "1e+15"),
        (-1e308, ".4f", "-1e+308"),
        (1e308, ".1%", "1e+308"),
        (1e308, "+,.4f", "+1e+308"),
        (math.inf, ",.0f", "inf"),
        pytest.param(10**400, ",.0f", "inf", id="beyond floats"),
        (None, ",.0f", "-"),
    ],
)
def test_no_format_makes_a_number_wider_than_a_column(value, spec, text):
    assert number(value, spec) == text


def test_sizes_times_and_moments_of_any_kind_are_text():
    assert [byte_size(n) for n in (None, 0, 2**20, 3 * 2**50, 1e308)] == [
        "-", "0 B", "1.00 MiB", "3,072 TiB", "9e295 TiB",
    ]  # fmt: skip
    assert [when(t) for t in (None, 0, 1e300, math.nan, -1e18)] == [
        "-", "1970-01-01 00:00", "-", "-", "-",
    ]  # fmt: skip
    assert [duration(s) for s in (None, -1, math.nan, math.inf, 59.9, 3600, 200_000, 1e308)] == [
        "-", "-", "NaN", "inf", "1m 00s", "1h 00m", "2d 07h", "1e303d",
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [[], {"a": 1}, "fast", True, None])
def test_a_line_of_progress_leaves_out_what_is_no_number(odd):
    names = ("max_steps", "progress_percent", "val_loss", "tokens_per_second", "eta_seconds")
    state = {"phase": "training", "global_step": 7, "loss": 2.5, **dict.fromkeys(names, odd)}
    assert progress_line(state, None).split() == ["training", "step", "7", "loss", "2.5000"]
    assert progress_line({**state, "loss": odd}, {"state": odd}).split()[1:] == ["step", "7"]


def test_a_line_of_progress_past_the_end_says_so_in_the_words_of_the_cockpit():
    state = {"phase": "training", "global_step": 2375, "max_steps": 100}
    line = progress_line({**state, "progress_percent": 2375.0}, None)
    assert line.split("  ")[-1] == "step 2,375, past its 100" and "%" not in line
    under = progress_line({**state, "global_step": 50, "progress_percent": 50.0}, None)
    assert "step 50/100" in under and "50%" in under


def test_cells_of_wide_letters_and_marks_are_counted_as_a_terminal_does():
    assert [cell_width(t) for t in ("abc", WIDE, "e\u0301", "")] == [3, 4, 1, 0]
    lines = table(("name", "n"), [(WIDE, "1"), ("ab", "22")], right="n").splitlines()
    assert lines == ["name   n", f"{WIDE}   1", "ab    22"]


def test_a_table_gives_way_at_its_last_words_and_never_at_numbers():
    rows = [("a" * 20, "1,234", "because " * 20), ("b", "5", "no")]
    made = table(("name", "n", "reason"), rows, right="n", limit=60)
    lines = made.splitlines()
    assert max(map(len, lines)) == 60
    assert "a" * 20 in lines[1] and "1,234" in lines[1] and lines[1].endswith("\u2026")
    assert "\u2026" not in lines[2]


@pytest.fixture
def desk(desk):
    """Ten runs, all of whose texts are long."""
    for index, name in enumerate("abcdefghij"):
        run = create_run(
            desk.folder / "out", f"{name}-{'long' * 5}", experiment="exp", name=WIDE * 20,
            kind="train", argv=["x"], seed=index, facts={"git": {"commit": "c" * 40}},
        )  # fmt: skip
        journal = Journal(run.journal, attempt=1)
        journal.event("run.start", attempt=1, device=f"a very long name of a GPU, {name}" * 3)
        journal.append("p", key="optimizer.lr", value=10 ** -(3 + index / 3))
        journal.append("p", key="data.train", value=f"/a/long/path/to/shards/{name}/" + "x" * 80)
        for step in range(1, 101):
            loss = 2 + 5 * math.exp(-step / 10) - index / 10
            values = {"train/loss": loss, "val/loss": loss, "train/tokens": TOKENS * step / 100}
            journal.metrics(step, values)
        folder = f"{run.path}/checkpoints/step-00000100"
        journal.append("a", name="step-00000100", path=folder, kind="checkpoint", step=100,
                       bytes=25_232_905, hash="blake3:" + "ab" * 32)  # fmt: skip
        journal.event("run.end", status="failed", reason="because " * 30, code=1)
        journal.close()
        index_now(run)
    return desk


RUNS = [f"{name}-{'long' * 5}" for name in "abcdefghij"]


@pytest.mark.parametrize("columns", [80, 100, 132])
@pytest.mark.parametrize(
    "words",
    [("show", RUNS[0]), ("diff", *RUNS[:2]), ("diff", *RUNS), ("diff", RUNS[0], RUNS[0])],
    ids=["show", "diff of two", "diff of ten", "diff with itself"],
)
def test_a_page_fits_the_screen_it_is_for(desk, words, columns):
    result = desk.quick("runs", *words, COLUMNS=str(columns))
    assert result.code == 0, result
    too_long = [line for line in result.out.splitlines() if cell_width(line) > columns]
    assert too_long == []
    assert "e+" not in result.out and f"{TOKENS:,}" in result.out


def test_what_is_piped_is_not_cut(desk):
    for words in (("show", RUNS[0]), ("diff", *RUNS)):
        told = desk.quick("runs", *words).out
        assert "because " * 20 in told or words[0] == "diff"
    assert desk.quick("runs", "show", RUNS[0]).out.count("\u2026") == 0


def test_show_has_every_part_with_times_a_person_can_read(desk):
    told = desk.quick("runs", "show", RUNS[0], COLUMNS="80").out
    assert re.search(r"^  created +20\d\d-\d\d-\d\d \d\d:\d\d UTC", told, re.M)
    assert re.search(r"^ +1  20\d\d-\d\d-\d\d \d\d:\d\d +0s  exit 1 ", told, re.M)
    assert re.search(
        r"^step-00000100  checkpoint, gone +100  24\.1 MiB  .*  abababababab$", told, re.M
    )
    assert re.search(r"^train/tokens +999,424 ", told, re.M)
    assert "optimizer  lr=0.001" in told
    assert not re.search(r"\d{10}\.\d", told)  # a unix time


def test_ten_runs_are_letters_each_with_its_curve_and_its_verdict(desk):
    told = desk.quick("runs", "diff", *RUNS, COLUMNS="100").out
    for letter, run in zip("ABCDEFGHIJ", RUNS, strict=True):
        (line,) = re.findall(rf"^{letter}  {run}  .*$", told, re.M)
        assert len(set(line) & set("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588")) >= 4
    assert re.findall(r"^([B-J])  +better  ", told, re.M) == list("BCDEFGHIJ")
    assert re.search(r"^J to the end of A, +2\.0002  +\d+  +[\d,]+", told, re.M)


@pytest.fixture
def rewarded(desk):
    """Two runs that log no loss, one of whose metrics has a name longer than a screen."""
    for index, name in enumerate(("walker", "runner")):
        run = create_run(
            desk.folder / "rl", name, experiment="rl", name=name, kind="track", argv=["x"]
        )
        journal = Journal(run.journal, attempt=1)
        journal.event("run.start", attempt=1)
        for step in range(1, 101):
            reward = {"reward": step / 10 + index, "n" * 150: float(step), "host/cpu": 0.5}
            journal.metrics(step, reward)
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        index_now(run)
    return desk


def test_runs_without_a_loss_are_compared_by_what_they_have(rewarded):
    told = rewarded.quick("runs", "diff", "walker", "runner", COLUMNS="100").out
    assert re.search(r"^reward to step 100, bars from ", told, re.M)
    assert re.search(r"^B  runner  .*\u2588 +11$", told, re.M)
    assert re.search(r"^reward +10 +11$", told, re.M)
    assert "host/cpu" not in told


def test_a_name_longer_than_the_screen_is_cut_with_a_sign(rewarded):
    told = rewarded.quick("runs", "show", "walker", COLUMNS="80").out
    (line,) = re.findall(r"^n+\u2026n+ .*$", told, re.M)
    assert line.split()[1:] == ["100", "-", "1", "100", "100"]
    assert max(map(cell_width, told.splitlines())) <= 80


def test_bars_end_above_only_where_something_is_above_them(rewarded):
    told = rewarded.quick("runs", "diff", "walker", "runner", "--metric", "reward").out
    assert re.search(r"^reward to step 100, bars from 0\.1 to 11$", told, re.M)


def test_a_curve_that_fell_far_at_first_still_shows_how_it_ended(desk):
    """The first tenth of the steps is cut off the scale, so that the end has several bars."""
    told = desk.quick("runs", "diff", RUNS[0], RUNS[9]).out
    a, b = (re.search(rf"^{x}  .*([\u2581-\u2588])  \d.*$", told, re.M)[1] for x in "AB")
    assert a > b  # 2.0 and 1.1, on a scale that would reach to 7


def test_a_long_key_of_a_metric_keeps_its_end_where_keys_differ():
    stat = {"last": 1.0, "best": 1.0, "minimum": 1.0, "maximum": 1.0, "count": 3}
    key = "metrics/of/a/long/key/that/says/much/about/itself_"
    made = {"summary": {key + end: stat for end in ("one", "two")}}
    lines = [line for line in _metrics(made, 80) if line]
    rows = "\n".join(lines).splitlines()[-2:]
    assert [row.split()[0][-3:] for row in rows] == ["one", "two"]
    assert all(row.startswith("metrics/of") and len(row) <= 80 for row in rows)
    assert key + "one" in "\n".join(_metrics(made, None)), "what is piped is not cut"
    assert cut_middle("abcdefghij", 7) == "abc\u2026hij"
    assert cut_middle("\u4e2d" * 9, 7) == "\u4e2d\u4e2d\u2026\u4e2d"
